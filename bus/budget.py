"""How many more messages may a pool ask for?

What is asked for and what is fetched and not begun stays within what the pool fetches ahead; with what is in progress
it stays within the worker's places, so that nothing waits in a busy worker while another one idles. Kept by `pool` and
its `Puller`s, who count each message into it and out of it. It never asks for anything.
"""


class Budget:
    """The counters of one pool. None of its numbers is about one consumer: all draw on the same places."""

    __slots__ = ("ahead", "asked", "places")

    def __init__(self, ahead: int, places: int) -> None:
        self.ahead = ahead
        """So many more may be asked for before one of those on their way, or fetched, is begun."""
        self.places = places
        """So many more may be asked for before one of those on their way, or held, has ended."""
        self.asked = 0
        """Messages that were asked for and have not come."""

    @property
    def vacant(self) -> int:
        """Places that nothing held has; below 0 where more is held."""
        return self.places + self.asked

    def ask(self, count: int) -> None:
        """So many are asked for; a negative number of them will not come."""
        self.asked += count
        self.ahead -= count
        self.places -= count
