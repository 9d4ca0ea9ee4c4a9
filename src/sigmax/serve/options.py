"""Where to listen, whom to answer, and how much anybody may ask for."""

import ipaddress
from dataclasses import dataclass, field
from typing import final

from sigmax.checks import check_count, check_number
from sigmax.errors import InvalidArgumentError

__all__ = ["TOKEN_VARIABLE", "ServeOptions"]

TOKEN_VARIABLE = "SIGMAX_TOKEN"
"""The environment variable that holds the token; an option would show it to other users."""

SHORTEST_TOKEN = 16
MIB = 1 << 20


@final
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How a model is served.

    Examples
    --------
    >>> ServeOptions().is_loopback, ServeOptions(host="0.0.0.0").is_loopback
    (True, False)
    """

    host: str = "127.0.0.1"
    """The address to listen at."""
    port: int = 8000
    """0 takes any that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which the server may be addressed; by default those of this machine at a loopback
    address, and any name elsewhere."""
    token: str | None = field(default=None, repr=False)
    """What requests must bear, but for those to ``/health``; None if they need nothing."""
    show_rows: bool | None = None
    """Whether the training rows behind a prediction are shown with their cells and targets; None
    shows them at a loopback address only."""

    max_rows: int = 1000
    """Of one JSON request."""
    max_body: float = 4.0
    """MiB of one JSON request."""
    max_upload: float = 100.0
    """MiB of one file."""
    max_upload_rows: int = 1_000_000
    """Of one file."""
    max_parallel: int = 64
    """JSON requests that are answered at once."""
    max_uploads: int = 2
    """Files that are answered at once."""
    max_connections: int = 512

    request_seconds: float = 10.0
    """For the answer to a JSON request."""
    upload_seconds: float = 900.0
    """For the answer to a file."""
    body_seconds: float = 60.0
    """For a client to send a whole request."""
    stall_seconds: float = 10.0
    """For a client to send its headers, or the next part, or to take the next part of an answer."""
    shutdown_seconds: float = 10.0
    """For answers that are under way when the server is told to stop."""

    def check(self) -> None:
        """Refuse what makes no sense."""
        check_count("--port", self.port, minimum=0)
        if self.port > 65_535:
            raise InvalidArgumentError(f"`--port` must be at most 65535, got {self.port}.")
        counts = ("max_rows", "max_upload_rows", "max_parallel", "max_uploads", "max_connections")
        for name in counts:
            check_count(option(name), getattr(self, name))
        sizes = ("max_body", "max_upload")
        seconds = ("request", "upload", "body", "stall", "shutdown")
        for name in (*sizes, *(f"{what}_seconds" for what in seconds)):
            check_number(option(name), getattr(self, name), above=0.0)
        if self.token is None:
            return
        if len(self.token) < SHORTEST_TOKEN or not self.token.isascii() or " " in self.token:
            raise InvalidArgumentError(
                f"{TOKEN_VARIABLE} must have at least {SHORTEST_TOKEN} characters, all of them"
                ' ASCII and none a space: python -c "import secrets; print(secrets.token_hex())"'
            )

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def shows_rows(self) -> bool:
        """Whether training rows are shown with their cells."""
        return self.is_loopback if self.show_rows is None else self.show_rows

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """Names in lower case that a request may address, None for any."""
        if not self.allowed_hosts and not self.is_loopback:
            return None
        own = {"localhost", "127.0.0.1", "::1", self.host}
        return frozenset(name.lower() for name in {*own, *self.allowed_hosts})

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body * MIB)

    @property
    def max_upload_bytes(self) -> int:
        return int(self.max_upload * MIB)


def option(name: str) -> str:
    """How the command line calls a field."""
    return "--" + name.replace("_", "-")
