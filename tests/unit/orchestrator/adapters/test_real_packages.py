"""The adapters' fields against the sources of the trainers' own packages, where these are installed.

Without what they need will do: `pip install --no-deps --target DIR trl verl skyrl areal`, and DIR on PYTHONPATH.
Nothing of a package is imported; of the classes that are looked at, the source is run alone.
"""

import __future__

import ast
import inspect
import logging
import queue
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, Optional, Protocol, TypedDict, get_type_hints

import numpy as np
import pytest
from pydantic import BaseModel

from orchestrator.adapters import areal, skyrl, trl, verl
from tests.unit.orchestrator.adapters.trained_samples import trained

NAMES = {
    "Any": Any,
    "BaseModel": BaseModel,
    "Optional": Optional,
    "Protocol": Protocol,
    "TypedDict": TypedDict,
    "dataclass": dataclass,
    "logger": logging.getLogger(__name__),
    "np": np,
    "queue": queue,
}


def source(package: str, path: str) -> ast.Module:
    """A file of a package; skips the test where that is not installed."""
    try:
        found = distribution(package).locate_file(path)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    with open(str(found)) as file:  # noqa: PTH123 - a distribution's own kind of path
        return ast.parse(file.read())


def classes(package: str, path: str, *names: str, evaluated: bool = False) -> list[Any]:
    """These classes, or functions, of a file; what they are annotated with is `evaluated` where that is needed."""
    body: list[ast.stmt] = [
        node
        for node in source(package, path).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names
    ]
    module: dict[str, Any] = {**NAMES, "__name__": __name__}
    flags = 0 if evaluated else __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), path, "exec", flags, dont_inherit=True), module)
    return [module[name] for name in names]


def parameters(method: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name != "self"]


def test_trls_trainer_finds_in_a_sample_and_in_the_worker_what_it_looks_for() -> None:
    folder = "trl/experimental/async_grpo"
    (sample,) = classes("trl", f"{folder}/async_rollout_worker.py", "RolloutSample")
    found = trl.rollout_sample(trained()[0])
    assert [each.name for each in fields(sample)] == [each.name for each in fields(found)]
    assert asdict(sample(**asdict(found))).keys() == asdict(found).keys()
    for each in fields(sample):
        assert each.type != "np.ndarray" or isinstance(getattr(found, each.name), np.ndarray)
    (protocol,) = classes("trl", f"{folder}/async_grpo_trainer.py", "RolloutWorkerProtocol")
    worker = trl.RolloutWorker(lambda: pytest.fail("it is not started"), [])
    assert all(isinstance(getattr(worker, name), queue.Queue) for name in protocol.__annotations__)
    for name, method in inspect.getmembers(protocol, inspect.isfunction):
        if not name.startswith("_"):
            assert parameters(getattr(worker, name)) == parameters(method)


def test_trls_arrays_have_the_types_that_trls_own_worker_gives_them() -> None:
    tree = source("trl", "trl/experimental/async_grpo/async_rollout_worker.py")
    found = trl.rollout_sample(trained()[0])
    made = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and _named(node.func) == "RolloutSample")
    kinds = {each.arg: kind for each in made.keywords if each.arg and (kind := _dtype(each.value))}
    assert kinds == {name: getattr(found, name).dtype.name for name in kinds}
    assert len(kinds) == 3


def test_verls_agent_loop_output_takes_what_it_is_given() -> None:
    path = "verl/experimental/agent_loop/agent_loop.py"
    _, output = classes("verl", path, "AgentLoopMetrics", "AgentLoopOutput", evaluated=True)
    for each in trained():
        found = verl.agent_loop_output(each)
        assert set(found) <= set(output.model_fields)
        assert output(**found).model_dump(exclude_unset=True) == found


def test_skyrls_generator_output_has_these_fields() -> None:
    output, trajectory = classes("skyrl", "skyrl/train/generators/base.py", "GeneratorOutput", "TrajectoryID")
    found = skyrl.generator_output(trained())
    assert set(found) == set(get_type_hints(skyrl.GeneratorOutput)) == set(output.__annotations__)
    assert found["trajectory_ids"] is not None
    theirs = [trajectory(**asdict(each)) for each in found["trajectory_ids"]]
    assert [each.to_string() for each in theirs] == [each.to_string() for each in found["trajectory_ids"]]


def test_skyrls_own_checks_take_each_batch_whether_its_rollouts_are_broken_or_not() -> None:
    """Where it trains stepwise, SkyRL looks for steps in each batch; here the second one has none of several."""
    names = ("validate_generator_output", "_validate_step_wise_fields")
    check, _ = classes("skyrl", "skyrl/train/utils/trainer_utils.py", *names)
    for batch in (trained(), trained()[1:]):
        check(1, skyrl.generator_output(batch), step_wise=True)
    check(1, skyrl.generator_output(trained()[1:]))


def test_areals_own_workflow_returns_tensors_of_these_names_and_types() -> None:
    tree = source("areal", "areal/workflow/multi_turn.py")
    found: Any = areal.trajectories([replace(each) for each in trained()])
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _named(node.func) == "dict"]
    made = next(call for call in calls if any(each.arg == "loss_mask" for each in call.keywords))
    assert {each.arg: _dtype(each.value) for each in made.keywords} == {name: found[name].dtype.name for name in found}


def _named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _dtype(node: ast.expr) -> str:
    """`torch.tensor(x, dtype=torch.int32)` is "int32"."""
    kinds = [each.value for each in getattr(node, "keywords", ()) if each.arg == "dtype"]
    return kinds[0].attr if kinds and isinstance(kinds[0], ast.Attribute) else ""
