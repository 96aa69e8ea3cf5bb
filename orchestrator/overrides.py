"""What do the overrides on a command line do to a config?

The grammar is Hydra's own, parsed by its parser: `a.b=c` changes what is there, `+a.b=c` adds what is not there,
`++a.b=c` does either, `~a.b` deletes. Called by `config`. It never checks what the keys mean.
"""

from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.errors import ConfigError, nearest

SIGNS = ("+", "~")


def is_override(argument: str) -> bool:
    """Whether a positional argument is an override and no file: it begins with `+` or `~`, or holds a `=`."""
    return argument.startswith(SIGNS) or "=" in argument


def apply_overrides(config: DictConfig, overrides: Sequence[str]) -> None:
    """Changes `config` in place, in the order given; raises `ConfigError` for the first that cannot be applied."""
    if not overrides:
        return
    from hydra.core.override_parser.overrides_parser import OverridesParser  # noqa: PLC0415 - its grammar loads slowly
    from hydra.errors import HydraException  # noqa: PLC0415

    for text in overrides:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException as error:
            raise ConfigError(f"override {text!r} cannot be read: {str(error).splitlines()[0]}") from error
        key = override.key_or_group
        if override.is_sweep_override():
            raise ConfigError(f"override {text!r} is a sweep; run once for each value, or quote it: {key}='a,b'")
        if override.package is not None or "/" in key:
            raise ConfigError(f"override {text!r} names a config group; name the file among the configs instead")
        if key.split(".")[0] == "config_paths":
            raise ConfigError(f"override {text!r}: name the file on the command line beside the others instead")
        try:
            if override.is_delete():
                _delete(config, key, text, override.value())
            else:
                if not override.is_force_add():
                    _check_place(config, key, text, adds=override.is_add())
                OmegaConf.update(config, key, override.value(), merge=True, force_add=True)
        except OmegaConfBaseException as error:
            raise ConfigError(f"override {text!r} cannot be applied: {str(error).splitlines()[0]}") from error


def _check_place(config: DictConfig, key: str, text: str, *, adds: bool) -> None:
    there, missing, siblings = _look(config, key)
    if adds and there:
        raise ConfigError(f"override {text!r}: {key} is there already; change it with {text[1:]} or +{text}")
    if not adds and not there:
        hint = nearest(missing, siblings)
        raise ConfigError(f"override {text!r}: {key} is not in the config; {hint} (to add it all the same: ++{text})")


def _delete(config: DictConfig, key: str, text: str, expected: object) -> None:
    there, missing, siblings = _look(config, key)
    if not there:
        raise ConfigError(f"override {text!r}: {key} is not in the config; {nearest(missing, siblings)}")
    if expected is not None and (found := OmegaConf.select(config, key)) != expected:
        raise ConfigError(f"override {text!r}: {key} is {found!r}, not {expected!r}")
    above, _, last = key.rpartition(".")
    node = OmegaConf.select(config, above) if above else config
    del node[last]


def _look(config: DictConfig, key: str) -> tuple[bool, str, list[str]]:
    """Whether `key` is in the config (a missing value counts), its first part that is not, and the names beside it."""
    node: object = config
    for part in key.split("."):
        if OmegaConf.is_list(node) and part.isdigit() and int(part) < len(node):  # type: ignore[arg-type]
            node = node._get_node(int(part))  # type: ignore[attr-defined]  # noqa: SLF001 - no interpolation wanted
        elif isinstance(node, DictConfig):
            names = [str(name) for name in node]
            if part not in names:
                return False, part, names
            node = node._get_node(part)  # noqa: SLF001
        else:
            return False, part, []
    return True, "", []
