"""Hypothesis strategies of whole conversations, as Responses items and as Chat Completions messages.

Texts are never empty: the absence of a text and an empty text are one thing to Chat Completions, see
`test_history.py`.
"""

from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]

TEXTS = st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"]), min_size=1, max_size=12)
"""Without `<`, since text that looks like reasoning is reasoning under `think_tags`."""
NAMES = st.sampled_from(["add", "get_weather", "a-b"])
ARGUMENTS = st.sampled_from(["{}", '{"a": 1}', "{broken", "", "null"])
URLS = st.sampled_from(["https://host/a.png", "data:image/png;base64,AAAA"])
EXTRA = st.fixed_dictionaries({}, optional={"name": NAMES, "x_engine": st.integers()})
"""Fields of a message that the Responses API does not know."""


def _document(fixed: Document, needed: Document, optional: Document | None = None) -> st.SearchStrategy[Document]:
    constants = {name: st.just(value) for name, value in fixed.items()}
    return st.fixed_dictionaries(constants | needed, optional=optional or {})


# ------------------------------------------------------------------------------------------- Responses

INPUT_TEXT = _document({"type": "input_text"}, {"text": TEXTS})
INPUT_PARTS = st.one_of(
    INPUT_TEXT,
    _document(
        {"type": "input_image"}, {"image_url": URLS}, {"detail": st.sampled_from(["low", "high", "auto", "original"])}
    ),
    _document({"type": "input_file"}, {"file_data": TEXTS}, {"filename": TEXTS}),
    _document({"type": "input_file"}, {"file_id": TEXTS}),
    _document({"type": "input_video"}, {"video_url": URLS}),
    _document({"type": "input_audio"}, {"input_audio": st.just({"data": "AAAA", "format": "wav"})}),
)
CITATIONS = st.lists(
    st.one_of(
        st.just({"type": "url_citation", "start_index": 0, "end_index": 1, "url": "https://host", "title": "t"}),
        st.just({"type": "file_citation", "file_id": "f", "filename": "n", "index": 0}),
    ),
    max_size=2,
)
OUTPUT_PARTS = st.one_of(
    _document({"type": "output_text"}, {"text": TEXTS, "annotations": CITATIONS}),
    _document({"type": "refusal"}, {"refusal": TEXTS}),
)
REASONING = st.builds(
    lambda texts, shown: (
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [_typed("reasoning_text", text) for text in texts],
        }
        if shown
        else {"type": "reasoning", "id": "rs_1", "summary": [_typed("summary_text", text) for text in texts]}
    ),
    st.lists(TEXTS, min_size=1, max_size=2),
    st.booleans(),
)


def _typed(kind: str, text: str) -> Document:
    return {"type": kind, "text": text}


EASY_MESSAGES = st.builds(
    lambda role, content, extra: {"role": role, "content": content, **extra},
    st.sampled_from(["user", "system", "developer"]),
    TEXTS | st.lists(INPUT_PARTS, min_size=1, max_size=3),
    EXTRA,
)
ASSISTANT_MESSAGES = st.one_of(
    st.builds(
        lambda parts: {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": parts},
        st.lists(OUTPUT_PARTS, min_size=1, max_size=2),
    ),
    st.builds(lambda text: {"role": "assistant", "content": text}, TEXTS),
)
CALLS = st.one_of(
    _document({"type": "function_call", "id": "fc_1"}, {"name": NAMES, "arguments": ARGUMENTS}),
    _document({"type": "custom_tool_call"}, {"name": NAMES, "input": TEXTS}),
)
OUTPUTS = TEXTS | st.lists(INPUT_TEXT, min_size=1, max_size=2)


@st.composite
def turns(draw: st.DrawFn) -> list[Document]:
    """What a model says at once, and the outputs of its calls."""
    said = draw(st.lists(REASONING, max_size=1)) + draw(st.lists(ASSISTANT_MESSAGES, max_size=1))
    calls = draw(st.lists(CALLS, min_size=0 if said else 1, max_size=2))
    prefix = draw(st.integers(0, 1_000_000))
    outputs = []
    for index, call in enumerate(calls):
        call["call_id"] = f"call_{prefix}_{index}"
        outputs.append({"type": f"{call['type']}_output", "call_id": call["call_id"], "output": draw(OUTPUTS)})
    return said + calls + outputs


@st.composite
def items(draw: st.DrawFn) -> list[Document]:
    """A conversation, as an agent would have it."""
    pieces = draw(st.lists(EASY_MESSAGES.map(lambda message: [message]) | turns(), min_size=1, max_size=5))
    return [item for piece in pieces for item in piece]


@st.composite
def disordered_items(draw: st.DrawFn) -> list[Document]:
    """Items in any order, calls without outputs and outputs without calls among them."""
    said = draw(st.lists(EASY_MESSAGES | ASSISTANT_MESSAGES | REASONING | CALLS, min_size=1, max_size=7))
    for index, item in enumerate(said):
        if item.get("type") in ("function_call", "custom_tool_call"):
            item["call_id"] = f"call_{index}"
    return said


# ------------------------------------------------------------------------------------------- Chat Completions

CHAT_TEXT = _document({"type": "text"}, {"text": TEXTS})
CHAT_PARTS = st.one_of(
    CHAT_TEXT,
    _document({"type": "image_url"}, {"image_url": _document({}, {"url": URLS}, {"detail": st.just("low")})}),
    _document({"type": "input_audio"}, {"input_audio": st.just({"data": "AAAA", "format": "mp3"})}),
    _document({"type": "file"}, {"file": _document({}, {"file_data": TEXTS}, {"filename": TEXTS})}),
    _document({"type": "video_url"}, {"video_url": _document({}, {"url": URLS})}),
    _document({"type": "audio_url"}, {"audio_url": st.just({"url": "https://host/a.wav"})}),
)
CHAT_INPUT = st.builds(
    lambda role, content, extra: {"role": role, "content": content, **extra},
    st.sampled_from(["user", "system", "developer"]),
    TEXTS | st.lists(CHAT_PARTS, min_size=1, max_size=3),
    EXTRA,
)
CHAT_CALLS = st.one_of(
    _document({"type": "function"}, {"function": _document({}, {"name": NAMES, "arguments": ARGUMENTS})}),
    _document({"type": "custom"}, {"custom": _document({}, {"name": NAMES, "input": TEXTS})}),
)
CHAT_CONTENT = TEXTS | st.lists(CHAT_TEXT | _document({"type": "refusal"}, {"refusal": TEXTS}), min_size=1, max_size=2)


@st.composite
def chat_turns(draw: st.DrawFn, reasoning: str) -> list[Document]:
    """A message of the assistant and the outputs of its calls; `reasoning` is the field that holds its reasoning."""
    message: Document = {"role": "assistant", **draw(EXTRA)}
    if draw(st.booleans()):
        message[reasoning] = draw(TEXTS)
    message["content"] = draw(st.just("") | CHAT_CONTENT)
    if message["content"] and draw(st.booleans()):
        return [message]
    calls = draw(st.lists(CHAT_CALLS, min_size=int(len(message) == 2), max_size=2))
    if not calls:
        return [message]
    if not message["content"]:
        del message["content"]
    prefix = draw(st.integers(0, 1_000_000))
    message["tool_calls"] = [{"id": f"call_{prefix}_{index}", **call} for index, call in enumerate(calls)]
    content = TEXTS | st.lists(CHAT_TEXT, min_size=1, max_size=2)
    outputs = [{"role": "tool", "tool_call_id": call["id"], "content": draw(content)} for call in message["tool_calls"]]
    return [message, *outputs]


@st.composite
def messages(draw: st.DrawFn, reasoning: str = "reasoning_content") -> list[Document]:
    """A conversation as an engine would be sent it."""
    pieces = draw(st.lists(CHAT_INPUT.map(lambda message: [message]) | chat_turns(reasoning), min_size=1, max_size=5))
    return [message for piece in pieces for message in piece]
