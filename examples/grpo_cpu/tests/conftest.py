"""What the tests of the example share. Without the example's own packages they are skipped, each by name."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from examples.grpo_cpu.tokens import Tokenizer

MISSING = [name for name in ("torch", "tokenizers", "matplotlib") if find_spec(name) is None]
TEXTS = ['Find the code. Begin with "red".', 'open {"box": "blue"}', 'A note: open "gold".', 'It is "lime".']


class Skipped(pytest.Module):
    """A file of tests that cannot be imported here."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip(f"needs {', '.join(MISSING)}: run `make learn-test`", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Skipped.from_parent(parent, path=module_path) if MISSING else None


@pytest.fixture(scope="session")
def tokenizer() -> "Tokenizer":
    from examples.grpo_cpu.tokens import Tokenizer  # noqa: PLC0415

    return Tokenizer.train(TEXTS * 3)


@pytest.fixture(autouse=True)
def the_same_chance_in_each_test_and_one_core() -> None:
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    torch.set_num_threads(1)
