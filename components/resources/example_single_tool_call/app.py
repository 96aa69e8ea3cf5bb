"""One tool and a reward of 1 for everyone: a smoke test of a model's tool calls."""

from components.resources import Resources, tool


class WeatherResources(Resources):
    """Weather that is the same everywhere."""

    @tool
    async def get_weather(self, city: str) -> str:
        """Says what the weather is like in a city.

        Args:
            city: Name of the city.
        """
        return f"It is cold and clear in {city}."

    async def verify(self) -> float:
        """Every rollout that comes this far passes."""
        return 1.0
