"""Server options, and the ASGI middleware that enforces them before a request is handled."""

import asyncio
import base64
import hmac
import ipaddress
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, final

import typer
from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders

from sigmax.errors import InvalidArgumentError
from sigmax.settings import check_count, check_number

TOKEN_VARIABLE = "SIGMAX_TOKEN"
"""Environment variable with the token; a command-line option would be visible to other users."""
MIN_TOKEN_LENGTH = 16
CSV_PATH = "/predict_csv"
MIB = 1 << 20
MAX_HEADER_BYTES = 1 << 15
"""Path, query and headers; uvicorn limits only headers that arrive in several packets."""

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@final
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of `sigmax serve`."""

    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free port.")] = 8000
    allowed_hosts: Annotated[
        tuple[str, ...],
        typer.Option(
            "--allow-host",
            help="Host name that browsers may use for the server; may be repeated. By default names"
            " of this machine on a loopback address, and any name otherwise.",
        ),
    ] = ()
    max_rows: Annotated[int, typer.Option(help="Largest number of rows in a JSON request.")] = 1000
    max_body: Annotated[float, typer.Option(help="Largest size of a JSON request in MiB.")] = 4.0
    max_upload: Annotated[float, typer.Option(help="Largest size of a file in MiB.")] = 100.0
    max_upload_rows: Annotated[int, typer.Option(help="Most rows in a file.")] = 1_000_000
    request_seconds: Annotated[float, typer.Option(help="Time limit of a JSON request.")] = 10.0
    max_parallel: int = 64
    """JSON requests at the same time."""
    max_uploads: int = 2
    max_connections: int = 512
    upload_seconds: float = 900.0
    body_seconds: float = 60.0
    """Time limit to send a request."""
    token: str | None = field(default=None, repr=False)
    """Bearer token that every path but ``/health`` requires; None for no token."""

    def check(self) -> None:
        check_count("--port", self.port, minimum=0)
        if self.port > 65_535:
            raise InvalidArgumentError(f"`--port` must be at most 65535, got {self.port}.")
        for name, value in vars(self).items():
            option = "--" + name.replace("_", "-")
            if name in ("max_body", "max_upload") or name.endswith("_seconds"):
                check_number(option, value, above=0.0)
            elif name.startswith("max_"):
                check_count(option, value)
        token = "x" * MIN_TOKEN_LENGTH if self.token is None else self.token
        if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or " " in token:
            raise InvalidArgumentError(
                f"{TOKEN_VARIABLE} must have at least {MIN_TOKEN_LENGTH} ASCII characters and no"
                ' spaces: python -c "import secrets; print(secrets.token_hex())"'
            )

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the server."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def max_bytes(self, path: str) -> int:
        return int((self.max_upload if path == CSV_PATH else self.max_body) * MIB)


def http_error(status: int, message: str, *loc: str | int, **headers: str) -> HTTPException:
    """Error with the field or cell that it is about; ``retry_after`` and others are headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTPException(status, [{"loc": loc, "msg": message}], headers=named)


async def http_error_response(request: Any, error: Any) -> JSONResponse:
    """Response of any `HTTPException`, ours or Starlette's, in the format of validation errors."""
    detail = error.detail
    if isinstance(detail, str):
        detail = [{"loc": (), "msg": f"{detail}."}]
    return JSONResponse({"detail": detail}, error.status_code, error.headers)


def has_token(request: Request, token: str) -> bool:
    """True if the token is sent as a bearer token, or as the password that a browser asks for."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            return False
    is_known = scheme.lower() in ("basic", "bearer")
    return is_known and hmac.compare_digest(given.strip().encode(), token.encode())


@final
class RequestGuard:
    """Outermost ASGI layer: host name, token, size and time of requests, security headers."""

    def __init__(self, app: Any, options: ServeOptions):
        self.app, self.options, self.hosts = app, options, None  # any host name
        if options.allowed_hosts or options.is_loopback:
            names = {"localhost", "127.0.0.1", "::1", options.host, *options.allowed_hosts}
            self.hosts = {name.lower() for name in names}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        app = self.app
        try:
            self.check(scope)
        except HTTPException as error:
            app = await http_error_response(scope, error)

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await app(scope, self.limited_body(scope["path"], receive), send_with_headers)

    def check(self, scope: Any) -> None:
        """Raise an `HTTPException` for a request that is not allowed."""
        request, max_bytes = Request(scope), self.options.max_bytes(scope["path"])
        n_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
        if n_bytes + len(scope["path"]) + len(scope["query_string"]) > MAX_HEADER_BYTES:
            message = f"Path and headers may have at most {MAX_HEADER_BYTES:,} bytes."
            raise http_error(431, message, "header", connection="close")
        host = request.headers.get("host", "").lower()
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if self.hosts is not None and host not in self.hosts:
            message = f"Unknown host name {host[:60]!r}: allow it with `--allow-host`."
            raise http_error(400, message, "header", "host")
        token = None if scope["path"] == "/health" else self.options.token
        if token is not None and not has_token(request, token):
            message = "This server requires a token: Authorization: Bearer TOKEN."
            is_browser = "text/html" in request.headers.get("accept", "")
            scheme = 'Basic realm="token of sigmax serve, as password"' if is_browser else "Bearer"
            raise http_error(401, message, "header", "authorization", www_authenticate=scheme)
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > max_bytes:
            raise too_large(max_bytes)

    def limited_body(self, path: str, receive: Any) -> Any:
        """``receive`` with limits on the time and the size of a body."""
        max_bytes, end = self.options.max_bytes(path), time.monotonic() + self.options.body_seconds
        n_bytes, is_complete = 0, False

        async def receive_body() -> Any:
            nonlocal n_bytes, is_complete
            if is_complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()))
            except TimeoutError:
                text = "The request body did not arrive in time."
                raise http_error(408, text, "body", connection="close") from None
            if message["type"] == "http.disconnect":
                raise http_error(400, "The client disconnected.", "body")
            n_bytes += len(message.get("body", b""))
            if n_bytes > max_bytes:
                raise too_large(max_bytes)
            is_complete = not message.get("more_body", False)
            return message

        return receive_body


def too_large(max_bytes: int) -> HTTPException:
    message = f"The request body may have at most {max_bytes:,} bytes."
    return http_error(413, message, "body", connection="close")
