"""Says and calls something new in each turn: text that does not compress, and that no other rollout has."""

import random
import string

from components.models.base import Model, ModelCall, ModelConfig
from contracts.responses import Item, Response, ResponseCreateParams, function_call, output_message


class TalkerConfig(ModelConfig):
    """How long it talks."""

    turns: int


class Talker(Model[TalkerConfig]):
    """Calls `look` in every turn but the last."""

    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        """A message of 300 characters and a call."""
        turn = len(request.input) // 3
        chance = random.Random(f"{call.rollout_id}/{call.call_key}")  # noqa: S311 - chance, not secrecy

        def noise(length: int) -> str:
            return "".join(chance.choices(string.ascii_letters + string.digits, k=length))

        output: list[Item] = [output_message(noise(300), item_id=f"msg_{turn}")]
        if turn + 1 < self.config.turns:
            output.append(function_call(f"call_{turn}", "look", f'{{"at": "{noise(60)}"}}'))
        return Response(
            id=f"resp_{turn}", object="response", created_at=0, model="talker", status="completed", output=output
        )
