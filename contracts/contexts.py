"""How is a long conversation stored once, though every model call repeats it? Pure.

The *context* of a model call is its whole input and, after it, the output of its reply. A later request, and the
response that a rollout ends with, repeat a stretch of a context that the log has already; instead of the items they
carry a `Citation` of it. Agents' handles shorten (`Speaker`), whoever needs the whole looks the context up
(`ModelCalls`). What is short is never cited: to look it up would cost more than to say it again.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from sys import intern
from typing import Final, NamedTuple

import msgspec

from contracts.errors import MissingContext

SHORT: Final = 4096
"""Bytes of a request or a response up to which it is sent whole."""
REMEMBERED: Final = 4
"""Contexts of one execution that its next request may go on from: branches beside each other have their own."""


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """The items from `first` to before `last` in the context of a model call of the same rollout."""

    call: str
    """Its key."""
    first: int = 0
    last: int


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`model.requested`: a Responses request."""

    request: msgspec.Raw
    """The Responses request. With `cited`, its `input` follows the cited items, and a setting that it does not give
    is as in the request of the cited call."""
    cited: Citation | None = None
    without: tuple[str, ...] = ()
    """Settings of the cited call's request that this request does not have."""


class _Reply(msgspec.Struct):
    output: list[msgspec.Raw] = []


_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_REPLY: Final = msgspec.json.Decoder(_Reply)
_REQUEST: Final = msgspec.json.Decoder(ModelRequest)


class Context(NamedTuple):
    """All that was said up to and with one model call, item by item."""

    settings: Mapping[str, msgspec.Raw]
    """The fields of its request beside the input."""
    items: Sequence[msgspec.Raw]

    def and_reply(self, reply: bytes) -> "Context":
        """With the output of the call's reply."""
        return Context(self.settings, [*self.items, *_REPLY.decode(reply).output])

    def whole(self) -> bytes:
        """The Responses request that has these settings and these items as its input."""
        return _object({**self.settings, "input": _array(self.items)})


def read_request(data: bytes) -> ModelRequest:
    """The data of a `model.requested` event; raises `msgspec.DecodeError`."""
    return _REQUEST.decode(data)


def asked(request: ModelRequest, cited: Context | None) -> Context | None:
    """The context of a request before it is answered, given the context that it cites.

    None where the input is a text and no list: nothing can be cited of that. Raises `msgspec.DecodeError`.
    """
    fields = _FIELDS.decode(request.request)
    try:
        items = _ITEMS.decode(fields.pop("input"))
    except (KeyError, msgspec.ValidationError):
        return None
    if request.cited is None or cited is None:
        return Context(fields, items)
    settings = {name: value for name, value in cited.settings.items() if name not in request.without}
    return Context(settings | fields, [*_cut(request.cited, cited), *items])


class ModelCalls:
    """The model calls of one rollout: looks up what later events cite of them."""

    def __init__(
        self, requests: Mapping[str, bytes], replies: Mapping[str, bytes], *, remembered: int | None = None
    ) -> None:
        """The data of the `model.requested` and `model.replied` events, by call key; they may grow meanwhile.

        `remembered` is how many contexts are kept, the latest ones; all, if it is not given.
        """
        self._requests, self._replies, self._remembered = requests, replies, remembered
        self._contexts: dict[str, Context] = {}

    def context(self, call: str) -> Context:
        """The context of an answered call; raises `MissingContext`, `msgspec.DecodeError`."""
        chain: list[tuple[str, ModelRequest]] = []
        key: str | None = call
        while key is not None and key not in self._contexts:
            if key not in self._requests or key not in self._replies:
                raise MissingContext(f"model call {key!r}, which a later event cites, is not answered in the log")
            chain.append((key, read_request(self._requests[key])))
            cited = chain[-1][1].cited
            key = cited.call if cited is not None else None
        context = self._contexts[key] if key is not None else None
        for key, request in reversed(chain):
            found = asked(request, context)
            if found is None:
                raise MissingContext(f"model call {key!r} is cited, but its input is no list of items")
            self._contexts[key] = context = found.and_reply(self._replies[key])
            if self._remembered is not None and len(self._contexts) > self._remembered:
                del self._contexts[next(iter(self._contexts))]
        assert context is not None
        return context

    def whole_request(self, data: bytes) -> bytes:
        """The Responses request of a `model.requested` event; raises as `context`."""
        request = read_request(data)
        if request.cited is None:
            return bytes(request.request)
        context = asked(request, self.context(request.cited.call))
        if context is None:
            raise MissingContext("a model request cites a call, and its input is no list of items")
        return context.whole()

    def whole_response(self, response: msgspec.Raw, citation: Citation | None) -> msgspec.Raw:
        """The Responses object whose `output` follows the cited items; raises as `context`."""
        return response if citation is None else whole_response(response, citation, self.context(citation.call))


def whole_response(response: msgspec.Raw, citation: Citation, cited: Context) -> msgspec.Raw:
    """The Responses object whose `output` follows the cited items."""
    fields = _FIELDS.decode(response)
    fields["output"] = _array([*_cut(citation, cited), *_ITEMS.decode(fields["output"])])
    return msgspec.Raw(_object(fields))


class Asked(NamedTuple):
    """What of a request that is on its way may be cited later, as digests. Small: tens of thousands wait at once."""

    settings: Mapping[str, bytes]
    items: Sequence[bytes] | None
    """None where nothing of it can be cited."""


class Speaker:
    """What one execution has said to models, by digests. What it cites is a function of the calls and replies alone."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: list[tuple[str, Mapping[str, bytes], Sequence[bytes]]] = []  # a deque takes ten times as much

    def ask(self, request: bytes) -> tuple[bytes, Asked]:
        """The data of the `model.requested` event for a Responses request, without what a context says already."""
        fields = _FIELDS.decode(request)
        try:
            items = _ITEMS.decode(fields.pop("input"))
        except (KeyError, msgspec.ValidationError):
            return _entry(request), Asked({}, None)
        settings = {intern(name): _digest(value) for name, value in fields.items()}
        digests = [_digest(item) for item in items]
        if len(request) > SHORT and (best := self._longest_start(digests)) is not None:
            key, there, kept = best
            changed = {name: value for name, value in fields.items() if there.get(name) != settings[name]}
            short = ModelRequest(
                request=msgspec.Raw(_object({**changed, "input": _array(items[kept:])})),
                cited=Citation(call=key, last=kept),
                without=tuple(name for name in there if name not in settings),
            )
            return msgspec.json.encode(short), Asked(settings, digests)
        return _entry(request), Asked(settings, digests)

    def hear(self, key: str, asked: Asked, reply: bytes) -> None:
        """The reply to the call with this key has come."""
        if asked.items is not None:
            output = [_digest(item) for item in _REPLY.decode(reply).output]
            self._heard.append((key, asked.settings, [*asked.items, *output]))
            del self._heard[:-REMEMBERED]

    def cite(self, response: msgspec.Raw) -> tuple[msgspec.Raw, Citation | None]:
        """A Responses object as it is to be stored, without the output that a context says already."""
        if memoryview(response).nbytes <= SHORT or not self._heard:
            return response, None
        try:
            fields = _FIELDS.decode(response)
            items = _ITEMS.decode(fields["output"])
        except (KeyError, msgspec.DecodeError):
            return response, None  # it is no Responses object: that is for whoever reads it to say
        digests = [_digest(item) for item in items]
        found = max((_stretch(heard, digests, key) for key, _, heard in self._heard), key=_length)
        kept = _length(found)
        if kept == 0:
            return response, None
        fields["output"] = _array(items[kept:])
        return msgspec.Raw(_object(fields)), found

    def _longest_start(self, digests: Sequence[bytes]) -> tuple[str, Mapping[str, bytes], int] | None:
        found = [(key, settings, _common(heard, digests)) for key, settings, heard in self._heard]
        best = max(found, key=lambda each: each[2], default=None)
        return best if best is not None and best[2] > 0 else None


def _stretch(heard: Sequence[bytes], output: Sequence[bytes], key: str) -> Citation:
    """The longest stretch of a context that `output` begins with."""
    starts = [place for place, digest in enumerate(heard) if output and digest == output[0]]
    first = max(starts, key=lambda start: _common(heard[start:], output), default=0)
    return Citation(call=key, first=first, last=first + _common(heard[first:], output))


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """How many elements two sequences have in common at their start."""
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))


def _length(citation: Citation) -> int:
    return citation.last - citation.first


def _cut(citation: Citation, cited: Context) -> Sequence[msgspec.Raw]:
    if not 0 <= citation.first <= citation.last <= len(cited.items):
        raise MissingContext(
            f"items {citation.first} to {citation.last} of model call {citation.call!r} are cited, it has "
            f"{len(cited.items)}"
        )
    return cited.items[citation.first : citation.last]


def _digest(raw: msgspec.Raw) -> bytes:
    return blake2b(raw, digest_size=12).digest()


def _entry(request: bytes) -> bytes:
    return b'{"request":' + request + b"}"


def _array(items: Sequence[msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(items) + b"]")


def _object(fields: Mapping[str, msgspec.Raw]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + bytes(value) for name, value in fields.items()) + b"}"
