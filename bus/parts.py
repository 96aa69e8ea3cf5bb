"""Which parts of large JSON may be found again in other data?

Its long strings: images and files in base64, long texts. A task, the session that is made for it, the call of a model
and that of the verifier hold the same image amid other things. Called by `blobs`, which stores each part as a blob of
its own. It looks for quotes and understands no JSON: whatever it finds, the data is what stands before, in and after
the parts, byte for byte.
"""

import re
from collections.abc import Iterator
from typing import Final

PART_BYTES: Final = 16 * 1024
"""Shorter strings stay where they are: a part costs a message, and each use of it another."""

_QUOTE: Final = b'"'
_BACKSLASH: Final = ord("\\")
_REST: Final = re.compile(rb'(?:[^"]*+(?<=\\)")*+[^"]*+"')
"""What is left of a string, with the quote at its end."""


def long_strings(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the insides of long strings begin and end, in their order; each has its quotes around it.

    It jumps from quote to quote that are up to `PART_BYTES` apart, and so hardly looks at data without a long string. A
    long stretch between two strings, as that of a list of numbers, is as good as a string.
    """
    begin = data.find(_QUOTE) + 1
    while begin and begin + PART_BYTES < len(data):
        quote = data.rfind(_QUOTE, begin, begin + PART_BYTES)
        if quote < 0 or data[quote - 1] == _BACKSLASH:
            if (rest := _REST.match(data, begin)) is None:
                return
            quote = rest.end() - 1
            if quote - begin >= PART_BYTES:
                yield begin, quote
        begin = quote + 1
