"""A rollout as OpenTelemetry spans, in the form of an OTLP JSON file.

Called by `replay export --format otlp`. Pure. A rollout is one trace and one line, a `TracesData`
(https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/). Names follow the semantic conventions for generative
AI (https://opentelemetry.io/docs/specs/semconv/gen-ai/), which are in development and may change. What was said is left
out unless it is asked for, as these conventions want it.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain
from typing import Any, Final

import msgspec

from components.durable.history import SUB_CALL
from contracts.events import CallError
from contracts.rollouts import RolloutFailure, ToolCall
from replay.parts import list_parts
from replay.trajectory import Call, Trajectory

Json = dict[str, Any]

_INTERNAL, _CLIENT = 1, 3
_OK, _ERROR = 1, 2
_PROVIDER: Final = "jetgym"
"""The conventions want a provider; which engine answered, an event does not say."""
_TOOL: Final = msgspec.json.Decoder(ToolCall)
_FAILED: Final = msgspec.json.Decoder(CallError)
_SETTINGS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
}


def traces(trajectory: Trajectory, *, content: bool = False) -> Iterator[bytes]:
    """The spans of a rollout as JSON, in parts; with `content` what was said too."""
    trace = _hex(trajectory.rollout_id, 32)
    resource = [_attribute("service.name", "jetgym"), _attribute("service.namespace", trajectory.request.run_id)]
    spans = (_span(trajectory, call, trace, content=content) for call in trajectory.calls.values())
    yield b'{"resourceSpans":[{"resource":' + msgspec.json.encode({"attributes": resource})
    yield b',"scopeSpans":[{"scope":{"name":"jetgym.replay"},"spans":'
    yield from list_parts(map(msgspec.json.encode, chain([_root(trajectory, trace)], spans)))
    yield b"}]}]}"


def _root(trajectory: Trajectory, trace: str) -> Json:
    request, last = trajectory.request, trajectory.ended or trajectory.events[-1]
    attributes: Json = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": _PROVIDER,
        "gen_ai.agent.name": request.agent,
        "gen_ai.conversation.id": trajectory.rollout_id,
        "jetgym.run_id": request.run_id,
        "jetgym.task_index": request.task_index,
        "jetgym.rollout_index": request.rollout_index,
        "jetgym.outcome": trajectory.state,
    }
    outcome = trajectory.outcome
    if outcome is not None and outcome.stats is not None:
        attributes["gen_ai.usage.input_tokens"] = outcome.stats.usage.input_tokens
        attributes["gen_ai.usage.output_tokens"] = outcome.stats.usage.output_tokens
    if trajectory.reward is not None:
        attributes["jetgym.reward"] = trajectory.reward
    events = [
        _event("jetgym.adopted", trajectory.moment(found.recorded), {"worker": found.worker, "epoch": found.epoch})
        for found in trajectory.adoptions
    ]
    error = outcome if isinstance(outcome, RolloutFailure) else None
    if error is not None:
        attributes["error.type"] = error.kind
    return {
        "traceId": trace,
        "spanId": _hex(trajectory.rollout_id, 16),
        "name": f"invoke_agent {request.agent}",
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanoseconds(trajectory.begun),
        "endTimeUnixNano": _nanoseconds(last.event.time),
        "attributes": [_attribute(name, value) for name, value in attributes.items()],
        "events": events,
        "status": _status(error.message if error is not None else None, over=trajectory.ended is not None),
    }


def _span(trajectory: Trajectory, call: Call, trace: str, *, content: bool) -> Json:
    replied = call.replied
    parent = call.key.rpartition(SUB_CALL)[0]
    start = trajectory.moment(call.requested)
    end = trajectory.moment(replied if replied is not None else trajectory.events[-1])
    name, kind, attributes = _what(trajectory, call, content=content)
    attributes |= {"jetgym.call_key": call.key, "jetgym.instance": call.instance}
    events = []
    if replied is not None and replied.event.elapsed:
        taken = max(start, end - timedelta(seconds=replied.event.elapsed))
        attributes["jetgym.worker"] = call.worker
        attributes["jetgym.queue_s"] = round((taken - start).total_seconds(), 6)
        events.append(_event("jetgym.taken", taken, {"worker": call.worker}))
    message = None
    if replied is not None and call.failed:
        error = trajectory.decoded(replied, _FAILED)
        attributes["error.type"], message = error.kind, error.message
    elif replied is not None and call.what == "verify":
        reward = _fields(trajectory.data(replied.event)).get("reward")
        if isinstance(reward, int | float):
            told = {"gen_ai.evaluation.name": call.instance, "gen_ai.evaluation.score.value": float(reward)}
            events.append(_event("gen_ai.evaluation.result", end, told))
    return {
        "traceId": trace,
        "spanId": _hex(f"{trajectory.rollout_id}/{call.key}", 16),
        "parentSpanId": _hex(f"{trajectory.rollout_id}/{parent}" if parent else trajectory.rollout_id, 16),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": _nanoseconds(start),
        "endTimeUnixNano": _nanoseconds(max(start, end)),
        "attributes": [_attribute(key, value) for key, value in attributes.items()],
        "events": events,
        "status": _status(message, over=replied is not None),
    }


def _what(trajectory: Trajectory, call: Call, *, content: bool) -> tuple[str, int, Json]:
    """Name, kind and attributes by what is called."""
    if call.what == "model":
        return _model(trajectory, call, content=content)
    if call.what == "tool":
        return _tool(trajectory, call, content=content)
    if call.what == "agent":
        told = {"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": _PROVIDER}
        return f"invoke_agent {call.instance}", _INTERNAL, {**told, "gen_ai.agent.name": call.instance}
    return f"{call.what} {call.instance}", _INTERNAL, {}


def _model(trajectory: Trajectory, call: Call, *, content: bool) -> tuple[str, int, Json]:
    asked = _settings(trajectory, call)
    model = str(asked.get("model") or call.instance)
    told: Json = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": _PROVIDER, "gen_ai.request.model": model}
    told["gen_ai.conversation.id"] = trajectory.rollout_id
    told |= {name: asked[key] for key, name in _SETTINGS.items() if isinstance(asked.get(key), int | float)}
    reply = _fields(trajectory.data(call.replied.event)) if call.replied is not None and not call.failed else {}
    if reply:
        told |= _answered(reply)
    if call.replied is not None and call.replied.event.policy is not None:
        oldest, newest = call.replied.event.policy
        told |= {"jetgym.policy.oldest": oldest, "jetgym.policy.newest": newest}
    if content:
        told["gen_ai.input.messages"] = msgspec.json.encode(_fields(trajectory.asked(call)).get("input")).decode()
        told["gen_ai.output.messages"] = msgspec.json.encode(reply.get("output") or []).decode()
    return f"chat {model}", _CLIENT, told


def _settings(trajectory: Trajectory, call: Call) -> Mapping[str, Any]:
    try:
        return trajectory.settings(call)
    except msgspec.DecodeError:  # it has none that could be told
        return {}


def _answered(reply: Json) -> Json:
    told: Json = {}
    for key, name in (("id", "gen_ai.response.id"), ("model", "gen_ai.response.model")):
        if isinstance(reply.get(key), str):
            told[name] = reply[key]
    details = reply.get("incomplete_details")
    calls = any(isinstance(item, dict) and item.get("type") == "function_call" for item in reply.get("output") or ())
    reason = str(details.get("reason")) if isinstance(details, dict) else "tool_calls" if calls else "stop"
    told["gen_ai.response.finish_reasons"] = [reason]
    if isinstance(usage := reply.get("usage"), dict):
        for key in ("input_tokens", "output_tokens"):
            if isinstance(usage.get(key), int):
                told[f"gen_ai.usage.{key}"] = usage[key]
    return told


def _tool(trajectory: Trajectory, call: Call, *, content: bool) -> tuple[str, int, Json]:
    try:
        asked = _TOOL.decode(trajectory.data(call.requested.event))
    except msgspec.DecodeError:
        return f"execute_tool {call.instance}", _INTERNAL, {"gen_ai.operation.name": "execute_tool"}
    told: Json = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": asked.name,
        "gen_ai.tool.call.id": asked.call_id,
        "gen_ai.tool.type": "function",
    }
    if content:
        told["gen_ai.tool.call.arguments"] = asked.arguments
        if call.replied is not None and not call.failed:
            output = _fields(trajectory.data(call.replied.event)).get("output")
            told["gen_ai.tool.call.result"] = output if isinstance(output, str) else _json(output)
    return f"execute_tool {asked.name}", _INTERNAL, told


def _status(message: str | None, *, over: bool) -> Json:
    if message is not None:
        return {"code": _ERROR, "message": message}
    return {"code": _OK} if over else {}


def _event(name: str, at: datetime, told: Json) -> Json:
    attributes = [_attribute(key, value) for key, value in told.items()]
    return {"name": name, "timeUnixNano": _nanoseconds(at), "attributes": attributes}


def _attribute(name: str, value: object) -> Json:
    return {"key": name, "value": _value(value)}


def _value(value: object) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}  # as JSON of protocol buffers writes 64 bits
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


def _fields(data: bytes) -> Json:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _hex(name: str, digits: int) -> str:
    """An ID that is the same at each export."""
    return sha256(name.encode()).hexdigest()[:digits]


def _nanoseconds(time: datetime) -> str:
    return str(int(time.timestamp()) * 1_000_000_000 + time.microsecond * 1000)
