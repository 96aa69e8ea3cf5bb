"""Who may ask the web app, and what may its pages do?

The app shows what models and tools wrote, on a machine on which a browser has other pages open as well. So it answers
only to loopback names, which keeps a foreign name that resolves to this machine out (DNS rebinding); what changes
something takes a token that only its own page can read; and its pages load nothing from elsewhere and run no script
that is written in them.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

TOKEN: Final = "X-Replay-Token"  # noqa: S105 - the name of a header
_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_SAFE: Final = frozenset({"GET", "HEAD"})
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """The middleware of one start of the app, `check`, and the headers of its answers, `say`."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        """For `TOKEN`, in requests that change something."""

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses with 403 what it should not answer."""
        if (refused := self._refused(request)) is not None:
            return web.json_response({"error": refused}, status=403)
        return await handler(request)

    @staticmethod
    async def say(_: web.Request, response: web.StreamResponse) -> None:
        """Puts onto every answer what its pages may do."""
        response.headers.update(_HEADERS)

    def _refused(self, request: web.Request) -> str | None:
        """Why a request is refused; None where it is not."""
        host = request.headers.get("Host", "")
        if _name_of(f"//{host}") not in _NAMES:
            return "this app answers to 127.0.0.1 and localhost only"
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site == "cross-site":
            return "asked by a page from elsewhere"
        if request.method in _SAFE:
            return None
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return "asked by a page from elsewhere"
        if not hmac.compare_digest(request.headers.get(TOKEN, "").encode(), self.token.encode()):
            return f"without the {TOKEN} of this start: load the page again"
        return None


def _name_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for what is no port
    except ValueError:
        return None
    return parts.hostname if parts.username is None and not parts.path else None
