"""What others may import from the package itself."""

import subprocess
import sys

import orchestrator

NAMES = [
    "Checked",
    "Config",
    "Deployment",
    "MaterializedTask",
    "OrchestratorError",
    "RunFiles",
    "Settings",
    "Trainer",
    "check",
    "get_global_config",
    "load_config",
    "materialize",
    "set_global_config",
]


def test_the_public_names_are_these_and_each_is_there() -> None:
    assert orchestrator.__all__ == NAMES
    assert all(getattr(orchestrator, name).__name__ == name for name in NAMES)


def test_the_package_itself_imports_none_of_the_packages_that_could_be_shadowed() -> None:
    code = "import orchestrator.cli, sys; print([n for n in ('bus', 'components', 'contracts') if n in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"
