"""The directory of a run, as both `jetgym` and `replay` find it."""

import fcntl
from pathlib import Path

import pytest

from bus.run_folder import LIVE, MATERIALIZED, live, run_id


def test_the_id_of_a_run_is_that_of_its_first_rollout_without_task_and_index(tmp_path: Path) -> None:
    (tmp_path / MATERIALIZED).write_text('{"input": 1, "rollout_id": "r1-a-00012-03"}\nnot read\n')
    assert run_id(tmp_path) == "r1-a"


@pytest.mark.parametrize("line", ["", "{", "{}", '{"rollout_id": 1}', "\0" * 100])
def test_damaged_lines_name_no_run_and_a_whole_one_after_them_does(tmp_path: Path, line: str) -> None:
    (tmp_path / MATERIALIZED).write_text(line)
    assert run_id(tmp_path) is None
    (tmp_path / MATERIALIZED).write_text(line + '\n{"input": 1, "rollout_id": "r1-a-00012-03"}\n')
    assert run_id(tmp_path) == "r1-a"


def test_a_directory_without_inputs_has_no_run(tmp_path: Path) -> None:
    assert run_id(tmp_path) is None


def test_a_directory_is_live_while_a_process_holds_it(tmp_path: Path) -> None:
    assert live(tmp_path) is None
    with (tmp_path / LIVE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert live(tmp_path) == {}
        file.write('{"url": "nats://127.0.0.1:4222"}')
        file.flush()
        assert live(tmp_path) == {"url": "nats://127.0.0.1:4222"}
    assert live(tmp_path) is None
