"""Who directs: configuration, launch and supervision, tasks, collection, and the command line.

The public names are loaded when they are first used: the command line first checks that the packages which would be
imported are ours.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orchestrator.config import Config, get_global_config, load_config, set_global_config
    from orchestrator.describing import Checked, check
    from orchestrator.errors import OrchestratorError
    from orchestrator.launch import Deployment
    from orchestrator.run_files import RunFiles
    from orchestrator.settings import Settings
    from orchestrator.tasks import MaterializedTask, materialize
    from orchestrator.trainer import Trainer

__all__ = [
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

_PLACES: Final = {
    "Checked": "describing",
    "Config": "config",
    "Deployment": "launch",
    "MaterializedTask": "tasks",
    "OrchestratorError": "errors",
    "RunFiles": "run_files",
    "Settings": "settings",
    "Trainer": "trainer",
    "check": "describing",
    "get_global_config": "config",
    "load_config": "config",
    "materialize": "tasks",
    "set_global_config": "config",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    return getattr(import_module(f"orchestrator.{_PLACES[name]}"), name)
