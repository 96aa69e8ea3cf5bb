"""What the converter that our users come from lost or failed on is said here, and its task lines convert."""

import json
from pathlib import Path

import pytest

from contracts.base import JsonObject
from contracts.convert import ChatStyle, request_from_chat, request_to_chat
from contracts.errors import NoChatForm
from contracts.responses import ResponseCreateParams

TASKS = Path(__file__).parents[5] / "shared" / "data" / "nemo_gym"
FILES = sorted(TASKS.glob("*.jsonl"))


def to_chat(document: JsonObject, style: ChatStyle | None = None) -> JsonObject:
    return request_to_chat(ResponseCreateParams.model_validate(document), style or ChatStyle()).to_dict()


def test_structured_output_is_said() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    assert to_chat({"input": "hi", "text": {"format": form}})["response_format"]["json_schema"]["strict"] is True


@pytest.mark.parametrize("options", [{"truncation": "auto"}, {"include": ["x"]}, {"max_tool_calls": 1}])
def test_options_that_vanished_are_refused_aloud(options: JsonObject) -> None:
    with pytest.raises(NoChatForm, match=next(iter(options))):
        to_chat({"input": "hi", **options})


def test_reasoning_in_content_is_said() -> None:
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "deep"}]}
    assert to_chat({"input": [item]})["messages"][0]["reasoning_content"] == "deep"


def test_a_refusal_is_said() -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert to_chat({"input": [item]})["messages"][0]["content"] == item["content"]


def test_adjacent_messages_of_the_assistant_are_not_glued_together() -> None:
    items = [{"role": "assistant", "content": "a1"}, {"role": "assistant", "content": "a2"}]
    assert [message["content"] for message in to_chat({"input": items})["messages"]] == ["a1", "a2"]


def test_a_forced_tool_choice_is_said() -> None:
    tool = {"type": "function", "name": "add"}
    body = to_chat({"input": "hi", "tools": [tool], "tool_choice": tool})
    assert body["tool_choice"] == {"type": "function", "function": {"name": "add"}}


def test_a_hosted_tool_is_refused_with_the_way_out() -> None:
    with pytest.raises(NoChatForm, match=r"web_search.*Responses endpoint.*drop"):
        to_chat({"input": "hi", "tools": [{"type": "web_search"}]})


def test_whether_a_tool_is_strict_is_said() -> None:
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}
    assert to_chat({"input": "hi", "tools": [tool]})["tools"][0]["function"]["strict"] is True


def test_the_older_name_of_the_token_limit_is_read() -> None:
    request = request_to_chat(
        ResponseCreateParams(input="hi", max_output_tokens=5), ChatStyle(max_tokens_field="max_tokens")
    )
    assert request_from_chat(request).max_output_tokens == 5


@pytest.mark.skipif(not FILES, reason="the reference's task files are not here")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_task_lines_convert_and_lose_nothing(file: Path) -> None:
    for line in file.read_text().splitlines():
        document = json.loads(line)["responses_create_params"]
        request = ResponseCreateParams.model_validate(document)
        again = request_from_chat(request_to_chat(request)).to_dict()
        if not document.get("tools"):  # nothing is said of tools where there are none
            document = {k: v for k, v in document.items() if k not in ("tools", "parallel_tool_calls", "tool_choice")}
        assert again == document
