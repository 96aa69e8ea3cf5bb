"""How configs are composed, overridden, checked and kept free of secrets."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.deployments import REDACTED
from orchestrator.config import Config, get_global_config, load_config, redact, set_global_config
from orchestrator.errors import ConfigError

POLICY = {"policy": {"models": {"chat_model": {"base_url": "http://127.0.0.1:1", "model": "m"}}}}
AGENT = {"solver": {"agents": {"simple_agent": {"model": "policy"}}}}


def write(folder: Path, name: str, content: dict[str, Any]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def load(folder: Path, *overrides: str, name: str = "main.yaml", **flags: Any) -> Config:
    return load_config([name], overrides, folder=folder, flags=flags)


def fails(folder: Path, *overrides: str, name: str = "main.yaml", **flags: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        load(folder, *overrides, name=name, **flags)
    return str(raised.value)


def content(config: Config, name: str = "policy") -> dict[str, Any]:
    return config.instances[name].content


class TestComposition:
    def test_an_instance_is_a_name_a_kind_an_implementation_and_its_content(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {**POLICY, **AGENT})
        config = load(tmp_path)
        policy = config.instances["policy"]
        assert (policy.kind, policy.implementation) == ("models", "chat_model")
        assert policy.content == {"base_url": "http://127.0.0.1:1", "model": "m"}
        assert [instance.name for instance in config.of_kind("agents")] == ["solver"]

    def test_an_empty_implementation_has_empty_content(self, tmp_path: Path) -> None:
        (tmp_path / "main.yaml").write_text("counter:\n  resources:\n    counter:\n")
        assert content(load(tmp_path), "counter") == {}

    def test_what_includes_counts_more_than_what_it_includes(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"config_paths": ["a.yaml", "b.yaml"], "limit": 3})
        write(tmp_path, "a.yaml", {"limit": 1, "repeats": 1, "concurrency": 1})
        write(tmp_path, "b.yaml", {"limit": 2, "repeats": 2})
        settings = load(tmp_path).settings
        assert (settings.limit, settings.repeats, settings.concurrency) == (3, 2, 1)

    def test_a_later_config_of_the_command_line_counts_more(self, tmp_path: Path) -> None:
        write(tmp_path, "a.yaml", {"limit": 1})
        write(tmp_path, "b.yaml", {"limit": 2})
        assert load_config(["a.yaml", "b.yaml"], folder=tmp_path).settings.limit == 2

    def test_configs_are_looked_for_here_then_in_configs_and_included_ones_beside_their_includer(
        self, tmp_path: Path
    ) -> None:
        write(tmp_path, "configs/main.yaml", {"config_paths": ["sub/part.yaml"]})
        write(tmp_path, "configs/sub/part.yaml", {"config_paths": ["leaf.yaml"]})
        write(tmp_path, "configs/sub/leaf.yaml", {"limit": 7})
        assert load(tmp_path).settings.limit == 7

    def test_a_third_level_of_config_paths_is_refused_with_the_whole_chain(self, tmp_path: Path) -> None:
        for name, below in (("main", "a"), ("a", "b"), ("b", "c")):
            write(tmp_path, f"{name}.yaml", {"config_paths": [f"{below}.yaml"]})
        write(tmp_path, "c.yaml", {"limit": 1})
        assert "main.yaml -> a.yaml -> b.yaml -> c.yaml" in fails(tmp_path)

    @pytest.mark.parametrize("length", [1, 2, 3])
    def test_a_circle_of_configs_is_refused_with_the_whole_chain(self, tmp_path: Path, length: int) -> None:
        names = ["main.yaml", "a.yaml", "b.yaml"][:length]
        for name, below in zip(names, [*names[1:], names[0]], strict=True):
            write(tmp_path, name, {"config_paths": [below]})
        assert " -> ".join([*names, names[0]]) in fails(tmp_path)

    def test_the_same_config_may_be_included_twice_by_siblings(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"config_paths": ["a.yaml", "b.yaml"]})
        for name in ("a.yaml", "b.yaml"):
            write(tmp_path, name, {"config_paths": ["leaf.yaml"]})
        write(tmp_path, "leaf.yaml", {"limit": 7})
        assert load(tmp_path).settings.limit == 7

    def test_a_missing_config_is_named_with_the_places_where_it_was_looked_for(self, tmp_path: Path) -> None:
        assert "'nope.yaml' (looked for nope.yaml, configs/nope.yaml" in fails(tmp_path, name="nope.yaml")

    def test_a_missing_included_config_is_named_with_its_includer(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"config_paths": ["nope.yaml"]})
        assert fails(tmp_path).startswith("main.yaml: there is no config 'nope.yaml'")

    def test_broken_yaml_is_told_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "main.yaml").write_text("a: 1\nb: [1,\n")
        assert "line 3" in fails(tmp_path)

    def test_a_key_that_stands_twice_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "main.yaml").write_text("limit: 1\nlimit: 2\n")
        assert "duplicate key limit" in fails(tmp_path)

    @pytest.mark.parametrize("text", ["hosted_key sk-abcdef", "hosted_key:sk-abcdef", "a:b\nc:d"])
    @pytest.mark.parametrize("name", ["main.yaml", "env.yaml"])
    def test_a_file_without_a_key_is_refused_and_not_shown(self, tmp_path: Path, name: str, text: str) -> None:
        write(tmp_path, "main.yaml", POLICY)
        (tmp_path / name).write_text(text + "\n")
        said = fails(tmp_path)
        assert f"{name} must hold keys and values (`name: value`), it holds text: is a colon" in said
        assert "sk-abcdef" not in said

    def test_a_list_at_the_top_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "main.yaml").write_text("- a\n")
        assert "main.yaml must hold keys and values" in fails(tmp_path)

    def test_a_later_config_replaces_the_implementation_of_an_instance(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"config_paths": ["base.yaml"], **POLICY})
        write(tmp_path, "base.yaml", {"policy": {"models": {"scripted_model": {"reply": "x"}}}})
        assert load(tmp_path).instances["policy"].implementation == "chat_model"
        assert content(load(tmp_path)) == POLICY["policy"]["models"]["chat_model"]

    def test_a_later_config_of_the_same_implementation_is_merged(self, tmp_path: Path) -> None:
        write(
            tmp_path, "main.yaml", {"config_paths": ["base.yaml"], "policy": {"models": {"chat_model": {"model": "n"}}}}
        )
        write(tmp_path, "base.yaml", POLICY)
        assert content(load(tmp_path)) == {"base_url": "http://127.0.0.1:1", "model": "n"}


class TestOverrides:
    @pytest.fixture(autouse=True)
    def main(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {**POLICY, "vars": {"size": "big", "list": [1, 2]}})

    def test_a_plain_override_changes_what_is_there(self, tmp_path: Path) -> None:
        assert content(load(tmp_path, "policy.models.chat_model.model=n"))["model"] == "n"
        assert load(tmp_path, "limit=4").settings.limit == 4
        assert load(tmp_path, "log.partitions=2").settings.log.partitions == 2

    def test_a_plain_override_of_what_is_not_there_names_the_nearest(self, tmp_path: Path) -> None:
        said = fails(tmp_path, "policy.models.chat_model.modle=n")
        assert "did you mean 'model'?" in said
        assert "++policy.models.chat_model.modle=n" in said

    def test_a_plain_override_of_no_instance_names_the_nearest_instance(self, tmp_path: Path) -> None:
        assert "did you mean 'policy'?" in fails(tmp_path, "polcy.models.chat_model.model=n")

    def test_a_plus_adds_only_what_is_not_there(self, tmp_path: Path) -> None:
        assert content(load(tmp_path, "+policy.models.chat_model.seed=1"))["seed"] == 1
        assert "is there already" in fails(tmp_path, "+policy.models.chat_model.model=n")

    def test_two_plusses_set_it_in_any_case(self, tmp_path: Path) -> None:
        made = content(
            load(tmp_path, "++policy.models.chat_model.model=n", "++policy.models.chat_model.extra={a: [1]}")
        )
        assert made == {"base_url": "http://127.0.0.1:1", "model": "n", "extra": {"a": [1]}}

    def test_a_tilde_drops_a_key(self, tmp_path: Path) -> None:
        assert "model" not in content(load(tmp_path, "~policy.models.chat_model.model"))
        assert "did you mean 'model'?" in fails(tmp_path, "~policy.models.chat_model.modle")
        assert "is 'm', not 'n'" in fails(tmp_path, "~policy.models.chat_model.model=n")

    def test_later_overrides_count_more_and_may_refer_to_other_values(self, tmp_path: Path) -> None:
        made = load(tmp_path, "++policy.models.chat_model.model=x", "policy.models.chat_model.model=${vars.size}")
        assert content(made)["model"] == "big"

    def test_an_entry_of_a_list_can_be_changed(self, tmp_path: Path) -> None:
        assert load(tmp_path, "vars.list.1=9").settings.vars["list"] == [1, 9]
        assert "vars.list.5 is not in the config" in fails(tmp_path, "vars.list.5=9")

    def test_a_missing_value_counts_as_there(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"policy": {"models": {"chat_model": {"model": "???"}}}})
        assert content(load(tmp_path, "policy.models.chat_model.model=n"))["model"] == "n"

    @pytest.mark.parametrize(
        ("override", "said"),
        [
            ("limit=1,2", "is a sweep"),
            ("db/x=1", "config group"),
            ("db@x=1", "config group"),
            ("++config_paths=[x.yaml]", "beside the others"),
            ("++limit=[1", "cannot be read"),
        ],
    )
    def test_what_hydra_means_by_more_than_a_value_is_refused(self, tmp_path: Path, override: str, said: str) -> None:
        assert said in fails(tmp_path, override)

    def test_flags_count_more_than_everything(self, tmp_path: Path) -> None:
        assert load(tmp_path, "++limit=4", limit=5).settings.limit == 5


class TestShape:
    def test_an_unknown_top_level_key_is_refused_with_file_and_nearest(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"config_paths": ["part.yaml"]})
        write(tmp_path, "part.yaml", {"repeat": 3})
        assert fails(tmp_path).startswith("part.yaml: repeat: unknown key; did you mean 'repeats'?")

    def test_an_unknown_key_inside_a_setting_is_refused_with_the_nearest(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"log": {"partition": 3}})
        assert fails(tmp_path) == "main.yaml: log.partition: unknown key; did you mean 'partitions'?"

    def test_a_wrong_type_of_a_setting_is_told_with_its_file(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"limit": "many"})
        assert fails(tmp_path).startswith("main.yaml: limit: must be a whole number")

    def test_a_section_that_is_none_is_told_with_the_keys_that_it_takes(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"server": "nats://h:4222"})
        assert fails(tmp_path) == "main.yaml: server: must hold keys and values: url, binary, port"

    def test_an_override_is_told_as_such(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {})
        assert fails(tmp_path, "++limit=0").startswith("command line: limit:")

    @pytest.mark.parametrize(
        ("instance", "said"),
        [
            ({"x": {"agent": {"simple_agent": {}}}}, "x.agent: unknown kind; did you mean 'agents'?"),
            ({"x": {"agents": {}}}, "x.agents: names no implementation"),
            ({"x": {"agents": {"a": {}, "b": {}}}}, "has several implementations (a, b)"),
            ({"x": {"agents": {"a": {}}, "models": {"b": {}}}}, "x: is of kind agents and models"),
            ({"x": {"agents": {"a": 3}}}, "x.agents.a: must hold keys and values"),
            ({"x y": {"agents": {"a": {}}}}, "instance name 'x y' may only hold"),
            ({"x": 3}, "x: unknown key"),
            ({"agent": {"agents": {"a": {}}}}, "main.yaml: agent: is reserved for a setting"),
            ({"server": {"models": {"a": {}}}}, "main.yaml: server: is reserved for a setting"),
        ],
    )
    def test_a_wrong_shape_of_an_instance_is_explained(
        self, tmp_path: Path, instance: dict[str, Any], said: str
    ) -> None:
        write(tmp_path, "main.yaml", instance)
        assert said in fails(tmp_path)

    def test_all_problems_are_told_at_once(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"limitt": 1, "repeats": 0, "x": {"agent": {}}})
        assert len(fails(tmp_path).splitlines()) == 3

    def test_all_missing_values_are_told_at_once(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"policy": {"models": {"m": {"a": "???", "b": [{"c": "???"}]}}}})
        said = fails(tmp_path).splitlines()
        assert len(said) == 2
        assert said[0].startswith("main.yaml: policy.models.m.a: needs a value")
        assert said[1].startswith("main.yaml: policy.models.m.b.0.c: needs a value")

    def test_all_unresolvable_references_are_told_at_once(self, tmp_path: Path) -> None:
        write(tmp_path, "main.yaml", {"policy": {"models": {"m": {"a": "${nope}", "b": "${vars.nope}"}}}})
        said = fails(tmp_path).splitlines()
        assert len(said) == 2
        assert said[0].startswith("main.yaml: policy.models.m.a: ${nope} cannot be resolved")

    def test_the_environment_is_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JETGYM_TEST", "from-the-environment")
        write(tmp_path, "main.yaml", {"policy": {"models": {"m": {"a": "${oc.env:JETGYM_TEST}"}}}})
        assert "the environment is not read" in fails(tmp_path)


class TestSecrets:
    @pytest.fixture(autouse=True)
    def main(self, tmp_path: Path) -> None:
        model = {"api_key": "${openai_key}", "model": "m", "headers": [{"x": "Bearer ${openai_key}"}], "size": 1}
        write(tmp_path, "main.yaml", {"policy": {"models": {"chat_model": model}}, "vars": {"url": "http://u:pw@h/"}})
        write(tmp_path, "env.yaml", {"openai_key": "sk-abcdef", "policy": {"models": {"chat_model": {"size": 12345}}}})

    def test_env_yaml_defines_names_and_values_below_the_command_line(self, tmp_path: Path) -> None:
        made = content(load(tmp_path))
        assert made["api_key"] == "sk-abcdef"
        assert made["headers"] == [{"x": "Bearer sk-abcdef"}]
        assert made["size"] == 12345
        assert content(load(tmp_path, "policy.models.chat_model.size=2"))["size"] == 2

    def test_nothing_from_env_yaml_is_in_the_redacted_config(self, tmp_path: Path) -> None:
        config = load(tmp_path)
        assert config.redacted()["policy"]["models"]["chat_model"] == {
            "api_key": REDACTED,
            "model": "m",
            "headers": [{"x": REDACTED}],
            "size": REDACTED,
        }
        assert "sk-abcdef" not in config.to_yaml()
        assert "openai_key" not in config.redacted()

    def test_a_value_that_overrides_env_yaml_is_shown(self, tmp_path: Path) -> None:
        assert (
            load(tmp_path, "policy.models.chat_model.size=2").redacted()["policy"]["models"]["chat_model"]["size"] == 2
        )

    def test_keys_named_like_secrets_and_passwords_in_urls_are_hidden(self, tmp_path: Path) -> None:
        config = load(tmp_path, "++policy.models.chat_model.auth_token=xyzxyzxyz", "++vars.eos_token=abcabcabc")
        assert config.redacted()["policy"]["models"]["chat_model"]["auth_token"] == REDACTED
        assert config.redactor.text("refused: xyzxyzxyz") == f"refused: {REDACTED}"
        assert config.redacted()["vars"] == {"url": f"http://u:{REDACTED}@h/", "eos_token": "abcabcabc"}

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("nats://me:pw@h:1,nats://i:1", f"nats://me:{REDACTED}@h:1,nats://i:1"),
            ("nats://s3cr3t@h:1", f"nats://{REDACTED}@h:1"),
            ("tls://s3cr3t@h:1,tls://s3cr3t@i:1", f"tls://{REDACTED}@h:1,tls://{REDACTED}@i:1"),
            ("nats://h:1", "nats://h:1"),
        ],
    )
    def test_the_password_or_token_of_a_server_is_hidden(self, tmp_path: Path, url: str, shown: str) -> None:
        config = load_config(["main.yaml"], folder=tmp_path, flags={"server": {"url": url}})
        assert config.redacted()["server"]["url"] == shown
        assert config.redactor.text(f"no NATS server answers at {url}") == f"no NATS server answers at {shown}"

    def test_secret_values_are_hidden_in_any_text(self, tmp_path: Path) -> None:
        config = load(tmp_path)
        set_global_config(config)
        assert redact("401 for key sk-abcdef") == f"401 for key {REDACTED}"
        assert "sk-abcdef" not in str(config.problem(("policy",), "no such key: sk-abcdef"))

    def test_a_representation_of_the_config_shows_no_secret(self, tmp_path: Path) -> None:
        assert "sk-abcdef" not in repr(load(tmp_path))

    def test_env_yaml_may_not_include_configs(self, tmp_path: Path) -> None:
        write(tmp_path, "env.yaml", {"config_paths": ["x.yaml"]})
        assert "env.yaml may not name config_paths" in fails(tmp_path)


def test_the_global_config_is_the_one_that_was_set(tmp_path: Path) -> None:
    write(tmp_path, "main.yaml", POLICY)
    config = load(tmp_path)
    set_global_config(config)
    assert get_global_config() is config
