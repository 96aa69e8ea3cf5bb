"""Was the machine started anew since its log was last served, and what has to be done about it?

A power cut takes what had not reached the disk, of each of the server's files another last part. So a pool's consumer
may count requests as done whose replies, or ends, are not in the log any more: nobody would be given them again. Then
the pools begin anew: all requests are delivered again, and what is answered is acknowledged without work. Called by
`launch` for a server of its own, before workers start, and by `--resume` where the log has lost results in another way,
as when it is an older copy of itself. It reads no event.
"""

from pathlib import Path
from typing import Any, Final

from bus.bus import Bus
from bus.overview import slot_states
from bus.pull import MAX_ACK_PENDING, ConsumerConfig, ensure_consumer
from bus.subjects import consumer_name

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_FILE: Final = "boot"
"""In the directory of the server: during which start of the machine its pools were last served."""


async def begin_anew_after_reboot(bus: Bus, directory: Path) -> bool:
    """Whether the pools of a log, whose server's directory this is, begin anew: if `rebooted`. Raises `BusError`."""
    if not rebooted(directory):
        return False
    begun = await begin_anew(bus)
    (directory / _FILE).write_bytes(_boot())
    return begun


async def begin_anew(bus: Bus) -> bool:
    """Has all requests delivered again; whether there are pools. Before workers start. Raises `BusError`."""
    found = [(number, slot) for number in range(bus.config.partitions) for slot in await slot_states(bus, number)]
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    for number, slot in found:
        anew = ConsumerConfig(
            stream=bus.subjects.stream(number),
            name=consumer_name(slot.kind, slot.instance, slot.slot),
            filter=f"{bus.subjects.pool_prefix(number, slot.kind, slot.instance, slot.slot)}>",
            ack_wait_s=bus.config.ack_wait_s,
            max_ack_pending=MAX_ACK_PENDING,
        )
        await connection.api(f"CONSUMER.DELETE.{anew.stream}.{anew.name}", None, dict[str, Any])
        await ensure_consumer(connection, anew)  # its slot is known to have been there
    return bool(found)


def rebooted(directory: Path) -> bool:
    """Whether the machine was started anew since the pools of a log in this directory were last served, if ever.

    Where the system does not tell when it started, it was.
    """
    now, file = _boot(), directory / _FILE
    return not now or not file.is_file() or file.read_bytes() != now


def _boot() -> bytes:
    try:
        return _BOOT.read_bytes()
    except OSError:
        return b""
