"""Which of an engine's base URLs does a call go to? The one that its rollout goes to, while that one lives.

Rendezvous hashing gives each rollout its own order of the URLs, so that an engine's prefix cache serves the whole
rollout, and a dead engine's rollouts spread over all others. Used by `request`; does no I/O.
"""

import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

REST_S: Final = 30.0
"""Seconds that a URL which could not be reached is not asked first."""


class Endpoints:
    """Base URLs of engines that serve the same model, and which of them rest because they could not be reached."""

    def __init__(self, urls: Sequence[str], *, rest_s: float = REST_S) -> None:
        if not urls:
            raise ValueError("a model needs at least one base URL")
        self._urls = tuple(urls)
        self._rest_s = rest_s
        self._rests_until: dict[str, float] = {}

    def order(self, affinity: str) -> tuple[str, ...]:
        """The URLs in the order in which a rollout prefers them; as configured where there is no affinity."""
        if len(self._urls) == 1 or not affinity:
            return self._urls
        return tuple(sorted(self._urls, key=lambda url: blake2b(f"{url}\n{affinity}".encode(), digest_size=8).digest()))

    def pick(self, affinity: str, turn: int = 0) -> str:
        """The URL to ask now: the preferred one that does not rest, or the `turn`-th after it.

        When all rest, the one whose rest ends first is asked.
        """
        order = self.order(affinity)
        awake = [url for url in order if not self.rests(url)]
        if awake:
            return awake[turn % len(awake)]
        return min(order, key=lambda url: self._rests_until[url])

    def rests(self, url: str) -> bool:
        """Whether `url` was unreachable a short while ago."""
        return self._rests_until.get(url, 0.0) > time.monotonic()

    def all_rest(self) -> bool:
        """Whether there is no URL that could be asked with better hope."""
        return all(self.rests(url) for url in self._urls)

    def unreachable(self, url: str) -> None:
        """Lets `url` rest."""
        self._rests_until[url] = time.monotonic() + self._rest_s

    def answered(self, url: str) -> None:
        """Ends the rest of `url`: it gave an answer, whatever it was."""
        self._rests_until.pop(url, None)
