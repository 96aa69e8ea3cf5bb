"""What is secret in a config, and how is it kept out of everything that is shown or stored?

Secret is: what `env.yaml` says and what refers to it, what a component's config declares as a `SecretStr`, what
stands under a key named like a secret, and the password in a URL, or NATS's token. Called by `config`, by the log files
of workers and by the command line's error text. It never decides what a component gets: workers get the real values.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from contracts.deployments import REDACTED

SHORTEST: Final = 6
"""Shorter secret values are hidden where they stand, not searched for in text: `1` is everywhere."""

KeyPath = tuple[str, ...]

_SECRET_KEY: Final = re.compile(
    r"(^|[_-])((api|access|private|secret|signing)[_-]?key|(api|access|auth|bearer|hf|refresh|session)[_-]?token"
    r"|secret|password|passwd|passphrase|credentials?|authorization)$|^token$",
    re.IGNORECASE,
)
"""`api_key` and `X-Api-Key`, but not `key`; `auth_token`, but not `eos_token`."""
_URL_PASSWORD: Final = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+(?=@)")
_NATS_TOKEN: Final = re.compile(r"\b(nats|tls)://[^/\s:@,]+(?=@)")
"""What stands alone before the @ is no user's name there."""

_LOGIN: Final = re.compile(r"\w{1,9}://[^/\s@]+@")
"""What either of them may hide a part of."""


class Redactor:
    """Knows the secret places and values of one config."""

    def __init__(self, paths: Iterable[KeyPath] = (), values: Iterable[object] = ()) -> None:
        self._paths = frozenset(paths)
        self._values: list[str] = []
        for value in values:
            self.learn(value)

    def learn(self, value: object) -> None:
        """From now on `value` and the strings in it are hidden in all text."""
        if isinstance(value, dict | list):
            for entry in value.values() if isinstance(value, dict) else value:
                self.learn(entry)
        elif isinstance(value, str) and len(value) >= SHORTEST and value not in self._values:
            self._values.append(value)
            self._values.sort(key=len, reverse=True)

    def learn_named(self, tree: object) -> None:
        """Learns the strings that stand under keys named like secrets."""
        if isinstance(tree, dict):
            for key, value in tree.items():
                if isinstance(value, str) and _SECRET_KEY.search(str(key)):
                    self.learn(value)
                else:
                    self.learn_named(value)
        elif isinstance(tree, list):
            for value in tree:
                self.learn_named(value)

    def text(self, text: str) -> str:
        """`text` without secret values."""
        for value in self._values:
            text = text.replace(value, REDACTED)
        if "://" not in text:
            return text
        return _NATS_TOKEN.sub(rf"\1://{REDACTED}", _URL_PASSWORD.sub(rf"\1:{REDACTED}", text))

    def place_to_cut(self, text: str, most: int) -> int:
        """Where to cut `text`, at `most` characters at most, so that no secret is cut in two."""
        place = most
        for value in self._values:
            begin = text.find(value, max(0, place - len(value) + 1), place + len(value) - 1)
            place = begin if begin > 0 else place
        for found in _LOGIN.finditer(text) if "://" in text else ():
            if 0 < found.start() < place < found.end():
                place = found.start()
        return place

    def tree(self, tree: Any, above: KeyPath = ()) -> Any:
        """A copy of the config, or of the part of it below `above`, without secrets."""
        if above in self._paths:
            return REDACTED
        if isinstance(tree, dict):
            return {key: self._entry(value, (*above, str(key))) for key, value in tree.items()}
        if isinstance(tree, list):
            return [self.tree(value, (*above, str(index))) for index, value in enumerate(tree)]
        return self.text(tree) if isinstance(tree, str) else tree

    def _entry(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, str) and value and _SECRET_KEY.search(path[-1]):
            return REDACTED
        return self.tree(value, path)


def differences(tree: object, other: object, above: KeyPath = ()) -> Iterable[KeyPath]:
    """The paths at which two resolved configs of the same keys differ."""
    if isinstance(tree, dict) and isinstance(other, dict) and tree.keys() == other.keys():
        for key in tree:
            yield from differences(tree[key], other[key], (*above, str(key)))
    elif isinstance(tree, list) and isinstance(other, list) and len(tree) == len(other):
        for index, (mine, theirs) in enumerate(zip(tree, other, strict=True)):
            yield from differences(mine, theirs, (*above, str(index)))
    elif tree != other:
        yield above
