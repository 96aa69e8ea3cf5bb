"""Writes the JSON Schemas of all public types and the AsyncAPI document of subjects and events into `docs/`.

`make docs` runs it; a test compares what it would write with what is there.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import contracts.chat
import contracts.responses
from bus import deadletter
from contracts import contexts, deployments, events, feeds, rollouts, tokens
from contracts.ids import ROOT_CALL

DOCS = Path(__file__).parent.parent / "docs"

_PAYLOADS: dict[str, tuple[str, str, type[Any] | None, str]] = {
    # event type: (channel, what it says, type of `data`, title)
    "rollout.requested": ("request", "one attempt at one task is asked for", rollouts.RolloutRequest, ""),
    "agent.requested": ("request", "an agent hands a task to another agent", rollouts.RolloutRequest, ""),
    "model.requested": ("request", "a model call", contexts.ModelRequest, ""),
    "session.requested": ("request", "a session is to be started from the task", rollouts.SessionSeed, ""),
    "tool.requested": ("request", "a function call of the model", rollouts.ToolCall, ""),
    "verify.requested": ("request", "a response is to be scored", rollouts.VerifyRequest, ""),
    "timer.requested": ("request", "the agent sleeps, or set a timeout", rollouts.TimerRequest, ""),
    "model.replied": ("reply", "the model's answer", contracts.responses.Response, ""),
    "agent.replied": ("reply", "the result of a nested rollout", rollouts.RolloutResult, ""),
    "session.replied": ("reply", "the session is there", rollouts.SessionSnapshot, "`null` where none are taken"),
    "tool.replied": ("reply", "what the tool answered", rollouts.ToolOutput, ""),
    "verify.replied": ("reply", "the reward", rollouts.Verdict, ""),
    "timer.replied": ("reply", "a timer fired", None, "`null`"),
    "model.failed": ("reply", "the model could not answer", events.CallError, ""),
    "agent.failed": ("reply", "a nested rollout failed", rollouts.RolloutFailure, ""),
    "session.failed": ("reply", "the session could not be started", events.CallError, ""),
    "tool.failed": ("reply", "the tool call could not be served", events.CallError, ""),
    "verify.failed": ("reply", "the verifier raised", events.CallError, ""),
    "rollout.completed": ("ended", "the rollout has a reward", rollouts.RolloutResult, ""),
    "rollout.failed": ("ended", "the rollout has none, and why", rollouts.RolloutFailure, ""),
    "rollout.cancelled": ("ended", "the rollout was cancelled", rollouts.RolloutFailure, ""),
    "rollout.adopted": ("adopted", "another worker carries the rollout on", rollouts.Adopted, ""),
    "rollout.revised": ("revised", "a verifier scored the rollout again", rollouts.Revised, ""),
    "cancel.requested": ("cancel", "a rollout, or a run, is to end", rollouts.CancelRequest, ""),
    "policy.updated": ("policy", "a model instance has new weights", rollouts.PolicyUpdated, ""),
    "feed.opened": ("feed", "a trainer begins to take the rollouts of a run", feeds.FeedRecord, ""),
    "feed.committed": ("feed", "a trainer has used these groups", feeds.FeedRecord, ""),
    "feed.dropped": ("feed", "a trainer will not use these groups, and why", feeds.FeedRecord, ""),
    "deployment.resolved": ("deployment", "what a deployment consists of", deployments.ResolvedDeployment, ""),
    "deployment.run": ("deployment", "a run started", deployments.RunStarted, ""),
    "deployment.worker": ("deployment", "a worker started", deployments.WorkerStarted, ""),
    "deployment.stopping": ("deployment", "a worker was told to stop", deployments.WorkerStopping, ""),
    "deployment.crashed": ("deployment", "a worker ended by what ran in it", deployments.WorkerCrashed, ""),
    "deployment.trying": ("deployment", "a call that may end its workers is begun", deployments.CallTried, ""),
    "dead.lettered": ("dead", "a message that cannot be processed, and why", deadletter.DeadLetterData, ""),
    "dead.settled": ("settled", "what was decided about a dead letter", deadletter.Settlement, ""),
}

_CHANNELS = {
    "request": (
        "{namespace}.{partition}.{kind}.{instance}.{slot}.request.{rollout}.{key}",
        f"A call to any worker of a pool. A rollout is requested under the call key `{ROOT_CALL}`.",
    ),
    "reply": ("{namespace}.{partition}.reply.{worker}.{rollout}.{key}", "The one answer, to the worker that waits."),
    "ended": ("{namespace}.{partition}.rollout.ended.{run}.{rollout}", "The one terminal event of a rollout."),
    "adopted": ("{namespace}.{partition}.rollout.adopted.{run}.{rollout}.{epoch}", "Recovery of a rollout."),
    "revised": ("{namespace}.{partition}.rollout.revised.{run}.{rollout}.{n}", "A later reward of a rollout."),
    "cancel": (
        "{namespace}.{partition}.cancel.{run}.{rollout}",
        "Cancellations, which all workers follow. That of a run is in each partition.",
    ),
    "policy": ("{namespace}.0.policy.{instance}.{version}", "New weights of a model instance."),
    "feed": (
        "{namespace}.0.feed.{run}.{feed}.{number}",
        "What a trainer has taken of a run, in order; the first writer of a number has it.",
    ),
    "deployment": ("{namespace}.0.deployment.{what}.{id}", "What runs where."),
    "dead": (
        "{namespace}.{partition}.dead.{kind}.{instance}.{rollout}.{seq}",
        "Dead letters: the reason and the original bytes.",
    ),
    "settled": (
        "{namespace}.{partition}.dead.{kind}.{instance}.{rollout}.{seq}.settled",
        "What an operator decided about a dead letter; the first decision stands.",
    ),
}

_PARAMETERS = {
    "namespace": "name of the deployment, `jetgym` by default",
    "partition": "number of the partition; a rollout lives wholly in one, chosen by a hash of its ID",
    "kind": "`agents`, `models`, `resources` or `timers`",
    "instance": "name of the component instance in the config",
    "slot": "part of the pool that serves this rollout",
    "rollout": "rollout ID; `_` where a dead letter belongs to none, and where a whole run is cancelled",
    "seq": "sequence of the message in its stream",
    "key": "call key: the path of the branch in the agent's code, and a counter",
    "worker": "ID of the agent worker that made the call",
    "run": "run ID",
    "feed": "name of the feed",
    "version": "policy version",
    "number": "number of the record, from 0",
    "epoch": "number of the adoption, from 1",
    "what": "`resolved`, `run`, `worker`, `stopping`, `crashed` or `trying`",
    "id": "ID of the deployment, run or worker; of a call's try a hash of its subject, and its number",
}


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas of all public types, a document a module of `contracts`."""
    found: dict[str, dict[str, Any]] = {}
    for package in (contracts.responses, contracts.chat):
        models = sorted(
            {
                member
                for member in vars(package).values()
                if isinstance(member, type)
                and issubclass(member, BaseModel)
                and member.__module__.startswith(package.__name__)
            },
            key=lambda model: model.__name__,
        )
        _, document = models_json_schema([(model, "serialization") for model in models])
        found[_module(package.__name__)] = document
    for module in (events, contexts, rollouts, tokens, feeds, deployments, deadletter):
        structs = [
            member
            for member in vars(module).values()
            if isinstance(member, type)
            and issubclass(member, msgspec.Struct)
            and member.__module__ == module.__name__
            and member not in {events.Recorded, deadletter.DeadLetter}
        ]
        copies = [_schema_copy(struct) for struct in structs]
        _, components = msgspec.json.schema_components(copies, schema_hook=_raw, ref_template="#/$defs/{name}")
        found[_module(module.__name__)] = {"$defs": components}
    return found


def _raw(kind: type) -> dict[str, Any]:
    if kind is msgspec.Raw:
        return {"description": "any JSON"}
    raise NotImplementedError(kind)


def _schema_copy(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The struct without its defaults of raw JSON, which the schema generator cannot write down."""
    if not any(field.type is msgspec.Raw and not field.required for field in msgspec.structs.fields(struct)):
        return struct
    fields: list[Any] = []
    for field in msgspec.structs.fields(struct):
        if field.required:
            fields.append((field.name, field.type))
        elif field.type is msgspec.Raw:
            fields.append((field.name, field.type, msgspec.UNSET))
        elif field.default is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, field.default))
        else:
            fields.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
    return msgspec.defstruct(struct.__name__, fields, kw_only=True, namespace={"__doc__": struct.__doc__})


def _module(name: str) -> str:
    return name.split(".")[1]


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3.0 document of the subjects and what is said on them."""
    messages: dict[str, Any] = {}
    for name, (_, summary, payload, words) in _PAYLOADS.items():
        ways: list[dict[str, Any]] = [{"description": words}] if words else []
        if payload is not None:
            ways.insert(0, {"$ref": f"schemas/{_module(payload.__module__)}.json#/$defs/{payload.__name__}"})
        data = ways[0] if len(ways) == 1 else {"anyOf": ways}
        messages[name] = {
            "name": name,
            "summary": summary,
            "contentType": "application/cloudevents+json",
            "payload": {
                "allOf": [
                    {"$ref": "schemas/events.json#/$defs/Event"},
                    {"properties": {"type": {"const": name}, "data": data}},
                ]
            },
        }
    channels, operations = {}, {}
    for name, (address, description) in _CHANNELS.items():
        said = [message for message, entry in _PAYLOADS.items() if entry[0] == name]
        channels[name] = {
            "address": address,
            "description": description,
            "parameters": {
                part: {"description": text} for part, text in _PARAMETERS.items() if f"{{{part}}}" in address
            },
            "messages": {message: {"$ref": f"#/components/messages/{message}"} for message in said},
        }
        for action in ("send", "receive"):
            operations[f"{action}_{name}"] = {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "JetGym events",
            "version": events.SPECVERSION,
            "description": "Every event is published once, to one subject of one JetStream stream a partition.",
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def files() -> dict[Path, str]:
    """All files that this script writes, and their content."""
    written = {
        Path("schemas") / f"{name}.json": json.dumps(schema, indent=1, sort_keys=True) + "\n"
        for name, schema in schemas().items()
    }
    written[Path("asyncapi.yaml")] = yaml.safe_dump(asyncapi(), sort_keys=False, width=120)
    return written


def main() -> int:
    """Writes the files and removes schemas of types that are gone."""
    written = files()
    (DOCS / "schemas").mkdir(parents=True, exist_ok=True)
    for path in (DOCS / "schemas").glob("*.json"):
        if path.relative_to(DOCS) not in written:
            path.unlink()
    for path, text in written.items():
        (DOCS / path).write_text(text)
    print(f"{len(written)} files in {DOCS.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
