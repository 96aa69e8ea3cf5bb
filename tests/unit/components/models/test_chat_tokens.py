"""The token fields of completions, as the engines document them, and what is refused."""

import json
from copy import deepcopy
from typing import Any

import pytest

from components.models.chat_model.answers import read_answer
from components.models.chat_model.tokens import take_tokens
from components.models.tokens import EngineTokens
from contracts.chat import ChatCompletion
from contracts.convert import response_from_chat
from contracts.tokens import PolicySpan, pack_ids, pack_logprobs

PROMPT, GENERATED, LOGPROBS = [5, 6, 7], [8, 9], [-0.5, -0.25]
WANTED = EngineTokens(prompt=pack_ids(PROMPT), generated=pack_ids(GENERATED), logprobs=pack_logprobs(LOGPROBS))


def completion(choice: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [said | (choice or {})],
    } | fields


def entries(*tokens: str) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": logprob} for token, logprob in zip(tokens, LOGPROBS, strict=False)]}


VLLM = completion({"token_ids": GENERATED, "logprobs": entries("h", "i")}, prompt_token_ids=PROMPT)
OLDER_VLLM = completion({"logprobs": entries("token_id:8", "token_id:9")}, prompt_token_ids=PROMPT)
NEMO_RL = completion(
    {
        "message": {
            "role": "assistant",
            "content": "hi",
            "prompt_token_ids": PROMPT,
            "generation_token_ids": GENERATED,
            "generation_log_probs": LOGPROBS,
        }
    }
)
SGLANG = completion(
    {
        "prompt_token_ids": PROMPT,
        "meta_info": {"output_token_logprobs": [[-0.5, 8, "h"], [-0.25, 9, None]], "weight_version": "12"},
        "logprobs": entries("h", "i"),
    },
    metadata={"weight_version": "12"},
)
NEWER_SGLANG = completion(
    {"prompt_token_ids": PROMPT, "response_token_ids": GENERATED, "logprobs": entries("h", "i")},
    metadata={"weight_version": "default", "weight_versions": [{"version": "default", "start": 0, "end": 2}]},
)
"""0.5.23."""
SGLEXT = completion({"logprobs": entries("h", "i")}, sglext={"input_ids": PROMPT, "output_ids": [GENERATED]})
"""What SGLang says in a stream too."""


@pytest.mark.parametrize("document", [VLLM, OLDER_VLLM, NEMO_RL, NEWER_SGLANG, SGLEXT])
def test_the_forms_of_the_engines_say_the_same(document: dict[str, Any]) -> None:
    assert take_tokens(deepcopy(document), keep_logprobs=False) == WANTED


def test_sglang_says_which_weights_it_has_where_they_are_numbered() -> None:
    found = take_tokens(deepcopy(SGLANG), keep_logprobs=False)
    assert (found.prompt, found.generated, found.logprobs) == (WANTED.prompt, WANTED.generated, WANTED.logprobs)
    assert (found.spans, found.newest) == ((), 12)


def test_sglang_says_which_weights_sampled_which_tokens_where_they_changed_in_a_call() -> None:
    """T15: its `weight_version` alone is that of the end, and would be too young for what came before."""
    spans = [{"version": "11", "start": 0, "end": 1}, {"version": "12", "start": 1, "end": 2}]
    told = {"weight_version": "12", "weight_versions": spans}
    for document in (NEWER_SGLANG | {"metadata": told}, SGLANG | {"metadata": told}):
        found = take_tokens(deepcopy(document), keep_logprobs=False)
        assert found.spans == (PolicySpan(11, 1), PolicySpan(12, 1))
    assert take_tokens(deepcopy(NEWER_SGLANG), keep_logprobs=False).spans == ()


def test_what_sglang_says_of_its_weights_keeps_no_answer_from_becoming_a_response() -> None:
    """Its metadata are not all texts, as the API has them: what is none becomes its JSON."""
    document = deepcopy(NEWER_SGLANG)
    take_tokens(document, keep_logprobs=False)
    response = response_from_chat(ChatCompletion.model_validate(document)).to_dict()
    assert response["metadata"] == {
        "weight_version": "default",
        "weight_versions": '[{"version":"default","start":0,"end":2}]',
    }
    assert "token_ids" not in json.dumps(response)


def test_sglang_says_in_a_stream_at_its_end_which_tokens_there_were() -> None:
    """T9."""
    streamed = read_answer(
        _stream(
            _part({"role": "assistant", "content": ""}),
            _part({"content": "h"}, logprobs=entries("h")),
            _part({"content": "i"}, logprobs={"content": entries("h", "i")["content"][1:]}, finish_reason="stop"),
            {"id": "c", "choices": [], "sglext": {"input_ids": PROMPT, "output_ids": [GENERATED]}},
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
        )
    )
    assert take_tokens(streamed, keep_logprobs=False, streamed=True) == WANTED
    assert "sglext" not in streamed


@pytest.mark.parametrize("document", [VLLM, OLDER_VLLM, NEMO_RL, SGLANG, NEWER_SGLANG, SGLEXT])
def test_a_completion_whose_tokens_are_taken_has_none_left(document: dict[str, Any]) -> None:
    """T18."""
    left = deepcopy(document)
    take_tokens(left, keep_logprobs=False)
    assert left["choices"] == completion()["choices"]
    assert left.keys() - {"metadata"} == completion().keys()


def test_log_probabilities_stay_where_they_were_asked_for_but_never_with_ids() -> None:
    asked, named = deepcopy(VLLM), deepcopy(OLDER_VLLM)
    assert take_tokens(asked, keep_logprobs=True) == take_tokens(named, keep_logprobs=True) == WANTED
    assert asked["choices"][0]["logprobs"] == entries("h", "i")
    assert "logprobs" not in named["choices"][0]


@pytest.mark.parametrize(
    "said",
    [
        [1, 2],
        {"content": "ab"},
        {"content": 5},
        {"content": [None, None]},
        {"content": [{"token": "h"}, {"token": "i"}]},
        {"content": [{"token": "h", "logprob": None}, {"token": "i", "logprob": -1}]},
        {"content": [{"token": "h", "logprob": "-1"}, {"token": "i", "logprob": "x"}]},
        {"content": [*entries("h")["content"], 1]},
    ],
)
def test_log_probabilities_that_cannot_be_read_are_a_flaw_and_no_part_of_the_answer(said: Any) -> None:
    """T3: whether they were asked for or not; the rest of the answer is one."""
    for keep in (True, False):
        document = _with(GENERATED, said)
        assert take_tokens(document, keep_logprobs=keep).flaw
        assert response_from_chat(ChatCompletion.model_validate_json(json.dumps(document))).output


def test_weights_that_were_changed_before_the_first_token_sampled_none() -> None:
    """T15: the engine may say that it had them."""
    told = [{"version": "7", "start": 0, "end": 0}, {"version": "8", "start": 0, "end": 2}]
    for more in ({"policy_spans": [[7, 0], [8, 2]]}, {"metadata": {"weight_versions": told}}):
        assert take_tokens(deepcopy(VLLM) | more, keep_logprobs=False).spans == (PolicySpan(8, 2),)


def _without(document: dict[str, Any], *path: str) -> dict[str, Any]:
    changed = deepcopy(document)
    place: Any = changed
    for name in path[:-1]:
        place = place["choices"][0] if name == "choice" else place[name]
    del place[path[-1]]
    return changed


def _with(token_ids: list[Any], logprobs: dict[str, Any]) -> dict[str, Any]:
    return completion({"token_ids": token_ids, "logprobs": logprobs}, prompt_token_ids=PROMPT)


def _version(version: int, start: int, end: int) -> dict[str, Any]:
    return {"version": str(version), "start": start, "end": end}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (completion(), "no IDs of the prompt's tokens"),
        (completion(prompt_token_ids=PROMPT), "no IDs of the generated tokens"),
        (_without(VLLM, "prompt_token_ids"), "no IDs of the prompt's tokens"),
        (_without(VLLM, "choice", "logprobs"), "no log-probabilities"),
        (_without(NEMO_RL, "choice", "message", "generation_log_probs"), "and not all of"),
        (NEMO_RL | {"prompt_token_ids": [5, 6, 8]}, "differ: 7 and 8 at token 2"),
        (NEMO_RL | {"prompt_token_ids": [5, 6]}, "differ: 3 and 2 tokens"),
        (_with([8, 1], entries("token_id:8", "token_id:9")), "at token 1"),
        (_with(["8", "9"], entries("h", "i")), "not all tokens are numbers"),
        (_with([8, 1 << 40], entries("h", "i")), "not all tokens are numbers"),
        (_with([True, 9], entries("token_id:1", "token_id:9")), "not all tokens are numbers"),
        (VLLM | {"policy_spans": [[True, 2]]}, "not known"),
        (VLLM | {"policy_spans": [["new", 2]]}, "not known"),
        (VLLM | {"policy_spans": [[1.7, 2]]}, "not known"),
        (VLLM | {"metadata": {"weight_versions": [_version(1, 0, 1), _version(2, 0, 1)]}}, "do not follow each other"),
        (VLLM | {"metadata": {"weight_versions": [_version(2, 1, 2), _version(1, 0, 1)]}}, "do not follow each other"),
        (VLLM | {"choices": []}, "no IDs of the generated tokens"),
    ],
)
def test_what_is_missing_or_contradicts_itself_is_a_flaw(document: dict[str, Any], words: str) -> None:
    """T10: no IDs are put together from what is there in part."""
    found = take_tokens(deepcopy(document), keep_logprobs=False)
    assert words in found.flaw
    assert (found.prompt, found.generated, found.logprobs) == (b"", b"", b"")


def _stream(*chunks: dict[str, Any], done: bool = True) -> bytes:
    events = [f"data: {json.dumps({'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks]
    return "".join([": hello\n\n", *events, "data: [DONE]\n\n" * done]).encode()


def _part(delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {"id": "c", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, **choice}]}


def test_a_stream_says_what_the_completion_would_say() -> None:
    """T9: with a call that comes in parts, and tokens in chunks of any length."""
    call = {"index": 0, "id": "c0", "type": "function", "function": {"name": "add", "arguments": ""}}
    streamed = read_answer(
        _stream(
            _part({"role": "assistant", "content": ""}, finish_reason=None) | {"prompt_token_ids": PROMPT},
            _part({"content": "h"}, token_ids=[8], logprobs=entries("h")),
            _part({"reasoning": "why"}, token_ids=[], logprobs=None),
            _part({"tool_calls": [call]}, token_ids=None),
            _part({"tool_calls": [{"index": 0, "function": {"arguments": '{"n"'}}]}, token_ids=[9]),
            _part({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
            _part({}, finish_reason="tool_calls", logprobs={"content": entries("h", "i")["content"][1:]}),
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
        )
    )
    assert take_tokens(streamed, keep_logprobs=False) == WANTED
    (choice,) = streamed["choices"]
    function = {"name": "add", "arguments": '{"n":1}'}
    assert choice["message"] == {
        "role": "assistant",
        "content": "h",
        "reasoning": "why",
        "tool_calls": [{"id": "c0", "type": "function", "function": function}],
    }
    assert (choice["finish_reason"], streamed["object"]) == ("tool_calls", "chat.completion")
    assert streamed["usage"]["total_tokens"] == 5


def test_a_stream_that_left_tokens_out_is_no_use() -> None:
    counted = VLLM | {"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
    assert take_tokens(deepcopy(counted), keep_logprobs=False, streamed=True).flaw == (
        "the stream has 2 of 4 generated tokens"
    )
    assert take_tokens(deepcopy(counted), keep_logprobs=False) == WANTED


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (_stream(_part({"content": "h"}), done=False), "ended before it was done"),
        (_stream({"error": {"message": "out of memory", "code": 500}}), "out of memory"),
        (b"data: [1]\n\n", "no JSON object"),
        (b"[1]", "no JSON object"),
    ],
)
def test_an_answer_that_is_none_is_told(body: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_answer(body)


def test_numbers_that_json_does_not_have_are_read_so_that_it_can_be_said() -> None:
    assert str(read_answer(b'{"logprob": NaN, "other": -Infinity}')) == "{'logprob': nan, 'other': -inf}"
