"""What a process prints is read to its end, whatever it is."""

import asyncio
import sys

from components.printed import PIECE, printed

PRINTS = """
import sys
sys.stdout.write(" one \\n\\n" + "x" * 1_000_000 + "\\nlast\\xff")
"""


async def test_a_line_of_any_length_comes_and_so_does_what_follows_it() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PRINTS, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    first, second, *pieces, last = [line async for line in printed(process.stdout)]
    assert (first, second, last) == (" one", "", "last\xff")
    assert "".join(pieces) == "x" * 1_000_000
    assert max(map(len, pieces)) <= 2 * PIECE
    assert await process.wait() == 0
