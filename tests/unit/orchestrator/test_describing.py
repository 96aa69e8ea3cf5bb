"""How components are checked before anything starts: JetGym's own, and ones that a test writes."""

import textwrap
from pathlib import Path

import pytest
import yaml

from contracts.deployments import REDACTED
from orchestrator.config import Config, load_config
from orchestrator.describing import Checked, check
from orchestrator.errors import ConfigError, UsageError
from orchestrator.pools import worker_commands, worker_spec

BASE = {
    "solver": {"agents": {"simple_agent": {"model": "policy", "resources": "counter"}}},
    "counter": {"resources": {"example_session_state_mgmt": {}}},
    "policy": {"models": {"openai_model": {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key": "sk-abcdef"}}},
}


def load(folder: Path, *overrides: str) -> Config:
    (folder / "main.yaml").write_text(yaml.safe_dump(BASE, sort_keys=False))
    return load_config(["main.yaml"], overrides, folder=folder)


async def checked(folder: Path, *overrides: str) -> Checked:
    return await check(load(folder, *overrides), lambda _: None)


async def problems(folder: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        await checked(folder, *overrides)
    return str(raised.value).splitlines()


async def test_a_description_has_defaults_references_and_tools(tmp_path: Path) -> None:
    found = (await checked(tmp_path)).descriptions
    assert found["solver"].config["max_turns"] > 0
    assert [(r.path, r.kind, r.name) for r in found["solver"].references] == [
        ("model", "models", "policy"),
        ("resources", "resources", "counter"),
    ]
    assert {tool["name"] for tool in found["counter"].tools} == {"increment_counter", "get_counter_value"}
    assert found["counter"].stateful


async def test_an_unknown_implementation_is_refused_with_the_nearest(tmp_path: Path) -> None:
    said = await problems(tmp_path, "~solver", "++solver.agents.simple_agnet={}")
    assert len(said) == 1
    assert said[0].startswith("command line: solver.agents.simple_agnet: there is no agents implementation")
    assert said[0].endswith("did you mean 'simple_agent'?")


async def test_all_problems_of_all_components_are_told_at_once_with_their_file(tmp_path: Path) -> None:
    said = await problems(
        tmp_path,
        "++solver.agents.simple_agent.max_turn=3",
        "++counter.resources.example_session_state_mgmt.pool.worker=2",
        "policy.models.openai_model.base_url=3",
    )
    assert len(said) == 3
    assert "solver.agents.simple_agent.max_turn: unknown key; did you mean 'max_turns'?" in said[0]
    assert "counter.resources.example_session_state_mgmt.pool.worker: unknown key; did you mean 'workers'?" in said[1]
    assert "policy.models.openai_model.base_url" in said[2]


async def test_a_reference_to_nothing_is_refused_with_the_nearest_of_the_right_kind(tmp_path: Path) -> None:
    assert await problems(tmp_path, "solver.agents.simple_agent.model=polici") == [
        "command line: solver.agents.simple_agent.model: there is no instance 'polici'; did you mean 'policy'?"
    ]


async def test_a_reference_in_a_config_without_that_kind_says_what_to_add(tmp_path: Path) -> None:
    (said,) = await problems(tmp_path, "~policy")
    assert "there is no instance 'policy'; there are no models: name a config that has one beside yours, like " in said
    assert "components/models/local_llm/config.yaml" in said


async def test_a_misspelt_instance_in_an_override_is_told_as_one(tmp_path: Path) -> None:
    assert await problems(tmp_path, "++slover.agents.simple_agent.max_turns=3") == [
        "command line: slover.agents.simple_agent: no config has 'slover'; did you mean 'solver'?"
    ]


async def test_a_dataset_that_is_only_a_name_is_told_with_the_keys_that_it_needs(tmp_path: Path) -> None:
    (said,) = await problems(tmp_path, "++solver.agents.simple_agent.datasets=[tasks.jsonl]")
    assert said.endswith("simple_agent.datasets.0: must hold keys and values: name, path, repeats")


async def test_a_reference_to_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    (said,) = await problems(tmp_path, "solver.agents.simple_agent.model=counter")
    assert said.endswith("'counter' is of kind resources, models is wanted; there are: policy")


async def test_the_value_of_a_secret_field_is_hidden_from_then_on(tmp_path: Path) -> None:
    found = await checked(tmp_path)
    assert found.config.redacted(found.descriptions)["policy"]["models"]["openai_model"]["api_key"] == REDACTED
    assert found.config.redactor.text("sk-abcdef") == REDACTED


async def test_workers_get_secrets_in_clear_and_only_in_their_spec(tmp_path: Path) -> None:
    found = await checked(tmp_path)
    command = next(c for c in worker_commands(found, "nats://x") if c.name == "policy-0")
    assert b"sk-abcdef" in command.spec
    assert not any("sk-abcdef" in word for word in command.argv)


async def test_each_worker_gets_its_share_of_the_slots(tmp_path: Path) -> None:
    pool = "++counter.resources.example_session_state_mgmt.pool"
    found = await checked(tmp_path, f"{pool}={{workers: 3, slots: 8}}")
    specs = [worker_spec(found, found.config.instances["counter"], "nats://x", index) for index in range(3)]
    assert [spec.slots for spec in specs] == [(0, 3, 6), (1, 4, 7), (2, 5)]
    assert specs[0].slots_of == {"solver": 1, "counter": 8, "policy": 1}
    with pytest.raises(UsageError, match="3 workers by its config, so their indexes end at 2"):
        worker_spec(found, found.config.instances["counter"], "nats://x", 3)


@pytest.mark.parametrize(("until_killed", "gets"), [(20.0, 17.0), (4.0, 3.0), (0.0, 0.0)])
async def test_a_worker_has_ended_by_itself_before_it_is_killed(
    tmp_path: Path, until_killed: float, gets: float
) -> None:
    found = await checked(tmp_path, f"++launch.drain_s={until_killed}")
    assert worker_spec(found, found.config.instances["policy"], "nats://x", 0).drain_s == gets


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        ("counter.resources.example_session_state_mgmt.pool={workers: 2}", "it keeps sessions"),
        ("counter.resources.example_session_state_mgmt.pool={workers: 3, slots: 2}", "each worker needs a slot"),
        ("solver.agents.simple_agent.pool={slots: 2}", "must be 1 for agents"),
    ],
)
async def test_a_pool_whose_slots_do_not_fit_its_workers_is_refused(tmp_path: Path, pool: str, why: str) -> None:
    (said,) = await problems(tmp_path, f"++{pool}")
    assert why in said


async def test_a_component_of_the_working_directory_is_found_before_one_of_jetgym(tmp_path: Path) -> None:
    place = tmp_path / "components" / "models" / "mine_only"
    place.mkdir(parents=True)
    (place / "app.py").write_text(
        textwrap.dedent('''
        """A model of the user's."""
        from components.models.base import Model, ModelConfig

        class MineConfig(ModelConfig):
            size: int = 3

        class Mine(Model[MineConfig]):
            pass
        ''')
    )
    found = await checked(tmp_path, "~policy", "++policy.models.mine_only={}")
    assert found.descriptions["policy"].config["size"] == 3
    assert worker_spec(found, found.config.instances["policy"], "nats://x", 0).roots == (str(tmp_path),)
