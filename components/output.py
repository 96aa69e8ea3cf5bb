"""What does a command do whose reader has seen enough, as `head` has?

Called by the command lines. It ends with 141, as a program does that SIGPIPE ends; the signal itself would come for
each lost connection too, and would leave no time to stop what was started.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

READER_GONE: Final = 141
"""Exit code: 128 and the number of the signal."""


@contextmanager
def ending_with_the_reader() -> Iterator[None]:
    """Within, whoever writes to standard output after its reader has gone raises `SystemExit`."""
    out = sys.__stdout__
    if out is not None and out is sys.stdout and not out.isatty():
        raw = _Output(out.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), out.encoding, out.errors)
    try:
        yield
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


class _Output(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # for what is still written on the way out
            raise SystemExit(READER_GONE) from None
