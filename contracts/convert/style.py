"""How an engine wants Chat Completions said, where engines differ: `ChatStyle`. Part of the config of chat models."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from contracts.errors import NoChatForm

ReasoningStyle = Literal["reasoning_content", "reasoning", "think_tags", "omit"]


class ChatStyle(BaseModel):
    """What the converter has to know of an engine. The defaults lose nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reasoning_style: ReasoningStyle = "reasoning_content"
    """Where the reasoning of earlier turns is put: in a message's `reasoning_content` (SGLang, llama.cpp, DeepSeek,
    older vLLM) or `reasoning` (vLLM, OpenRouter), in front of its text between `<think>` and `</think>`, or nowhere.
    In replies, both fields are always read; `<think>` is read under `think_tags` and left in the text otherwise."""
    developer_role: Literal["developer", "system"] = "developer"
    """The role that developer messages are sent under; few chat templates know `developer`."""
    merge_system: bool = False
    """Joins the instructions and all system and developer messages at the start into one message, for chat templates
    that take a single one."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The name of the limit on generated tokens."""
    drop: tuple[str, ...] = ()
    """What may be left out although Chat Completions cannot say it, by the names that `NoChatForm` gives: options
    (`truncation`, `include`, `reasoning.summary`), types of items and tools (`web_search`), `encrypted_content`."""


DEFAULT_STYLE = ChatStyle()


def leave_out(name: str, why: str, style: ChatStyle) -> None:
    """Returns if `style` lets `name` be left out, else raises `NoChatForm` that says why and what to do."""
    if name not in style.drop:
        raise NoChatForm(
            name,
            f"{name} has no form in Chat Completions: {why}. Take it out of the request, use a model behind a "
            f"Responses endpoint, or allow its loss with `style: {{drop: [{name}]}}` in the model's config",
        )
