"""How files of tasks are read, checked and turned into what is sent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bus.run_folder import run_id
from contracts.deployments import Description, Reference
from orchestrator.config import Config, load_config
from orchestrator.errors import InputError, Problem, UsageError
from orchestrator.run_files import write_whole
from orchestrator.tasks import (
    SHOWN,
    Dataset,
    MaterializedTask,
    datasets_of,
    input_line,
    materialize,
    other_inputs,
    read_tasks,
)

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": True}
OWN_TOOL = {**TOOL, "name": "own"}
REAL = Path(__file__).parents[3].parent / "shared" / "data" / "nemo_gym"


def agent(*datasets: dict[str, Any], resources: str | None = None) -> Description:
    references = (Reference(path="resources", kind="resources", name=resources),) if resources else ()
    config = {"datasets": list(datasets)}
    return Description(kind="agents", implementation="simple_agent", config=config, references=references)


def resources(*tools: dict[str, Any], stateful: bool = False) -> Description:
    return Description(kind="resources", implementation="r", tools=tools, stateful=stateful)


SOLVER = {"solver": agent(resources="counter"), "counter": resources(TOOL, stateful=True)}


def task(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "hello"}, **fields}


def config(folder: Path, **flags: Any) -> Config:
    return load_config([], folder=folder, flags=flags)


def lines(folder: Path, *tasks: dict[str, Any] | str, name: str = "tasks.jsonl") -> Path:
    texts = [entry if isinstance(entry, str) else json.dumps(entry) for entry in tasks]
    (folder / name).write_text("\n".join(texts) + "\n")
    return folder / name


def made(folder: Path, descriptions: Mapping[str, Description] = SOLVER, **flags: Any) -> list[MaterializedTask]:
    return materialize(config(folder, input="tasks.jsonl", **flags), descriptions).tasks


class TestReading:
    @pytest.mark.parametrize(
        ("line", "field", "message"),
        [
            ("{", "", "is no JSON object"),
            ("[1]", "", "is no JSON object"),
            ("\udcff", "", "is no UTF-8"),
            ('{"response_create_params": {}}', "responses_create_params", "did you mean 'response_create_params'?"),
            ('{"responses_create_params": 3}', "responses_create_params", "object"),
            ('{"responses_create_params": {}}', "responses_create_params.input", "required"),
            (
                '{"responses_create_params": {"input": "x", "temperature": "hot"}}',
                "responses_create_params.temperature",
                "number",
            ),
        ],
    )
    def test_a_bad_line_is_told_with_file_line_and_field(
        self, tmp_path: Path, line: str, field: str, message: str
    ) -> None:
        path = tmp_path / "tasks.jsonl"
        path.write_bytes(json.dumps(task()).encode() + b"\n\n" + line.encode(errors="surrogateescape") + b"\n")
        _, problem = read_tasks(path)
        assert isinstance(problem, Problem)
        assert problem.where == f"{path}:3"
        assert problem.path.startswith(field)
        assert message in problem.message

    def test_a_byte_order_mark_and_empty_lines_are_passed_over(self, tmp_path: Path) -> None:
        path = tmp_path / "tasks.jsonl"
        path.write_bytes(b"\xef\xbb\xbf" + json.dumps(task()).encode() + b"\r\n\r\n")
        assert [line.number for line in read_tasks(path) if not isinstance(line, Problem)] == [1]

    def test_a_directory_is_no_file_of_tasks(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            list(read_tasks(tmp_path))

    @pytest.mark.skipif(not REAL.is_dir(), reason="the NeMo Gym example tasks are not on this machine")
    def test_the_example_tasks_of_nemo_gym_are_read_unchanged(self) -> None:
        for path in sorted(REAL.glob("*.jsonl")):
            found = list(read_tasks(path))
            assert len(found) == 5
            assert not [line for line in found if isinstance(line, Problem)]


class TestMaterializing:
    def test_all_bad_lines_are_counted_and_the_first_are_told(self, tmp_path: Path) -> None:
        lines(tmp_path, *["{"] * (SHOWN + 5), task())
        with pytest.raises(InputError) as raised:
            made(tmp_path)
        assert raised.value.total == SHOWN + 5
        assert len(raised.value.problems) == SHOWN

    def test_bad_lines_can_be_left_out_and_are_counted(self, tmp_path: Path) -> None:
        lines(tmp_path, "{", task(a=1), "[]", task(a=2))
        result = materialize(config(tmp_path, input="tasks.jsonl", skip_bad_lines=True), SOLVER)
        assert result.skipped == 2
        assert [json.loads(entry.line)["a"] for entry in result.tasks] == [1, 2]

    def test_the_repeats_of_a_task_follow_each_other_and_share_its_line(self, tmp_path: Path) -> None:
        lines(tmp_path, task(a=1), task(a=2))
        result = made(tmp_path, repeats=2)
        assert [(entry.task_index, entry.rollout_index) for entry in result] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert result[0].line is result[1].line

    def test_a_limit_counts_good_tasks_of_each_file(self, tmp_path: Path) -> None:
        lines(tmp_path, task(a=1), task(a=2), "{")
        assert len(made(tmp_path, limit=1)) == 1

    def test_a_task_without_tools_gets_those_of_the_agents_resources(self, tmp_path: Path) -> None:
        own = {"responses_create_params": {"input": "x", "tools": [OWN_TOOL]}}
        lines(tmp_path, task(), {"responses_create_params": {"input": "x", "tools": []}}, own)
        sent = [json.loads(entry.line)["responses_create_params"]["tools"] for entry in made(tmp_path)]
        assert sent == [[TOOL], [TOOL], [OWN_TOOL]]

    def test_a_tasks_own_fields_are_sent_byte_for_byte(self, tmp_path: Path) -> None:
        (tmp_path / "tasks.jsonl").write_text(
            '{"responses_create_params":{"input":"x"},"n":1.10,"big":12345678901234567890}\n'
        )
        assert b'"n":1.10,"big":12345678901234567890' in made(tmp_path)[0].line

    def test_resources_without_a_session_are_named_with_each_task(self, tmp_path: Path) -> None:
        lines(tmp_path, task())
        assert made(tmp_path, {**SOLVER, "judge": resources()})[0].sessionless == ("judge",)

    def test_without_tasks_there_is_no_run(self, tmp_path: Path) -> None:
        lines(tmp_path, "")
        with pytest.raises(UsageError, match="no task to run"):
            made(tmp_path)


class TestDatasets:
    TWO: ClassVar = {"first": agent({"name": "d", "path": "d.jsonl", "repeats": 3}), "second": agent()}

    def test_without_input_the_agents_datasets_are_the_tasks(self, tmp_path: Path) -> None:
        lines(tmp_path, task(), name="d.jsonl")
        assert datasets_of(config(tmp_path), self.TWO) == [Dataset("d.jsonl", tmp_path / "d.jsonl", "first", 3)]

    def test_repeats_of_the_command_line_count_more_than_those_of_a_dataset(self, tmp_path: Path) -> None:
        lines(tmp_path, task(), name="d.jsonl")
        assert datasets_of(config(tmp_path, repeats=5), self.TWO)[0].repeats == 5

    def test_an_unknown_agent_is_refused_with_the_nearest(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"there is no agent 'frist'; did you mean 'first'?"):
            datasets_of(config(tmp_path, agent="frist"), self.TWO)

    def test_an_agent_without_datasets_needs_an_input(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="agent 'second' has datasets: name a file of tasks with --input"):
            datasets_of(config(tmp_path, agent="second"), self.TWO)

    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"there is no file 'd.jsonl' of tasks"):
            datasets_of(config(tmp_path), self.TWO)

    def test_with_several_agents_each_line_names_its_own_or_the_command_line_does(self, tmp_path: Path) -> None:
        lines(tmp_path, task(agent_ref={"type": "x", "name": "second"}), task(agent_ref={"name": "first"}))
        assert [entry.agent for entry in made(tmp_path, self.TWO)] == ["second", "first"]
        assert [entry.agent for entry in made(tmp_path, self.TWO, agent="first")] == ["first", "first"]

    @pytest.mark.parametrize("reference", [{}, {"agent_ref": {"name": "frist"}}, {"agent_ref": 3}])
    def test_a_line_that_names_no_agent_of_several_is_bad(self, tmp_path: Path, reference: dict[str, Any]) -> None:
        lines(tmp_path, task(**reference))
        with pytest.raises(InputError) as raised:
            made(tmp_path, self.TWO)
        assert raised.value.problems[0].path == "agent_ref.name"


class TestInputsFile:
    def made(self, folder: Path, limit: int | None = None) -> list[bytes]:
        return [
            input_line(entry, f"r1129-1612-x7k2-{entry.task_index:05d}-{entry.rollout_index:02d}")
            for entry in made(folder, limit=limit)
        ]

    def test_it_holds_what_is_sent_and_for_which_rollout(self, tmp_path: Path) -> None:
        lines(tmp_path, task(a=1))
        tasks = made(tmp_path)
        path = tmp_path / "materialized_inputs.jsonl"
        write_whole(path, self.made(tmp_path))
        assert json.loads(path.read_text()) == {
            **json.loads(tasks[0].line),
            "rollout_id": "r1129-1612-x7k2-00000-00",
            "task_index": 0,
            "rollout_index": 0,
            "agent": "solver",
        }
        assert run_id(tmp_path) == "r1129-1612-x7k2"

    def test_what_is_other_than_when_the_run_began_is_found(self, tmp_path: Path) -> None:
        lines(tmp_path, task(a=1), task(a=2))
        path = tmp_path / "materialized_inputs.jsonl"
        assert other_inputs(path, self.made(tmp_path)) == f"{path} is not there"
        write_whole(path, self.made(tmp_path))
        assert other_inputs(path, self.made(tmp_path)) is None
        lines(tmp_path, task(a=1), task(a=3))
        assert (other_inputs(path, self.made(tmp_path)) or "").startswith("line 2 of")
        assert other_inputs(path, self.made(tmp_path, limit=1)) == "the run began with 2 rollouts and would now have 1"
        assert other_inputs(path, [*self.made(tmp_path, limit=1), b"\n"]) is not None

    def test_the_run_is_known_by_any_line_that_is_whole(self, tmp_path: Path) -> None:
        """Of the inputs, else of the results; a directory without inputs holds no run."""
        lines(tmp_path, task(a=1), task(a=2))
        path = tmp_path / "materialized_inputs.jsonl"
        (tmp_path / "failures.jsonl").write_bytes(b"\x00\xff\n[1]\n" + b'{"run_id":"r1129-1612-x7k2"}\n')
        assert run_id(tmp_path) is None
        first, second = self.made(tmp_path)
        path.write_bytes(bytes(4096) + first + second)
        assert run_id(tmp_path) == "r1129-1612-x7k2"
        for damaged in (b"", bytes(4096), first[:-1], b"[" * 100_000 + b"\n"):
            path.write_bytes(damaged)
            assert run_id(tmp_path) == "r1129-1612-x7k2"
        (tmp_path / "failures.jsonl").unlink()
        assert run_id(tmp_path) is None
