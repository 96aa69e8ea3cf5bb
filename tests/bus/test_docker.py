"""Whether the official image was tested, told in the test report."""

from bus import Bus, LogConfig
from tests.bus.events import request


async def test_the_official_image_holds_a_log(docker_server: str, config: LogConfig) -> None:
    """The whole suite runs on it too, where a Docker engine answers."""
    async with await Bus.connect(docker_server, config, name="test/docker/w", writer="w1") as bus:
        await bus.ensure_log()
        await bus.publish(request(bus, "r1"))
        assert len(await bus.history("r1")) == 1
