"""Who is answered at all, and what every answer tells the browser; as plain ASGI."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response

from sigmax.serve.options import ServeOptions
from sigmax.serve.refusals import refuse

__all__ = ["COOKIE", "LONGEST_HEADERS", "Guard", "Token"]

COOKIE = "sigmax_page"
"""Holds a proof that the page was given the token, not the token."""
OPEN_PATHS = ("/health", "/session")
"""Answered without a token; the second takes it."""

LONGEST_HEADERS = 1 << 15
"""Bytes, path and query included. uvicorn limits those that come in parts, not those that come at
once."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@final
class Token:
    """What requests must bear, compared in a time that tells nothing."""

    def __init__(self, token: str):
        self.token = token
        self.proof = hmac.new(token.encode(), b"sigmax page", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def is_borne(self, headers: Headers, cookies: Mapping[str, str]) -> bool:
        """Whether the request bears the token, or comes from our own page with its cookie."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme:
            return scheme.lower() == "bearer" and self.is_token(given.strip())
        is_proven = hmac.compare_digest(cookies.get(COOKIE, "").encode(), self.proof.encode())
        return is_proven and is_own_page(headers)


def is_own_page(headers: Headers) -> bool:
    """Whether no other site made the browser send the request."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host", "")


@final
class Guard:
    """The outermost layer: name of the host, token, and headers of every answer."""

    def __init__(self, app: Any, options: ServeOptions, token_page: str):
        self.app, self.token_page = app, token_page
        self.hosts = options.known_hosts
        self.token = None if options.token is None else Token(options.token)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        app = self.refusal(scope) or self.app

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await app(scope, receive, send_guarded)

    def refusal(self, scope: Any) -> Response | None:
        """The answer to those who get none."""
        n_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
        n_bytes += len(scope["path"]) + len(scope["query_string"])
        if n_bytes > LONGEST_HEADERS:
            message = f"Path and headers may have at most {LONGEST_HEADERS:,} bytes."
            return refuse(431, message, "header", Connection="close")
        headers = Headers(scope=scope)
        host = host_name(headers.get("host", ""))
        if self.hosts is not None and host not in self.hosts:
            message = f"This server is not called {host[:60]!r}: see `--allow-host`."
            return refuse(400, message, "header", "host")
        path = scope["path"]
        if self.token is None or path in OPEN_PATHS:
            return None
        if self.token.is_borne(headers, cookies_of(headers)):
            return None
        challenge = {"WWW-Authenticate": "Bearer"}
        if path == "/" and "text/html" in headers.get("accept", ""):
            return HTMLResponse(self.token_page, status_code=401, headers=challenge)
        message = "This needs the token of the server: Authorization: Bearer TOKEN."
        return refuse(401, message, "header", "authorization", **challenge)


def host_name(host: str) -> str:
    """The name in a Host header, without its port.

    Examples
    --------
    >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("A.example")
    ('localhost', '::1', 'a.example')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def cookies_of(headers: Headers) -> dict[str, str]:
    """Cookies by name, of which only plain ones are of ours."""
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return {name: value for name, _, value in pairs}
