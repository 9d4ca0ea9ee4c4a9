"""How much and how long: sizes and times of bodies, and how many requests are answered at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import final

from starlette.requests import ClientDisconnect, Request

from sigmax.serve.refusals import refused

__all__ = ["Slots", "body_parts", "read_body"]


@final
class Slots:
    """Places for requests that are under way, or for bytes that are held.

    ``status`` is 429 where clients ask for too much at once, 503 where the server has no room.

    Examples
    --------
    >>> slots = Slots(1, "answers", status=429)
    >>> with slots.taken():
    ...     slots.n_free
    0
    """

    def __init__(self, number: int, what: str, *, status: int):
        self.number, self.n_free, self.what, self.status = number, number, what, status

    @contextmanager
    def taken(self, number: int = 1) -> Iterator[None]:
        """Take places, or refuse the request: come again in a second."""
        self.take(number)
        try:
            yield
        finally:
            self.n_free += number

    def take(self, number: int) -> None:
        if number > self.n_free:
            message = f"All {self.number:,} {self.what} are in use: try again."
            raise refused(self.status, message, retry_after="1")
        self.n_free -= number


async def body_parts(
    request: Request, *, max_bytes: int, body_seconds: float, stall_seconds: float
) -> AsyncIterator[bytes]:
    """The parts of a body as they come.

    Raises
    ------
    Refusal
        413 if it is too long, 408 if it takes too long, 400 if the client goes away.
    """
    too_long = refused(
        413, f"The body may have at most {max_bytes:,} bytes.", "body", connection="close"
    )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > max_bytes:
        raise too_long
    end, n_bytes, stream = time.monotonic() + body_seconds, 0, aiter(request.stream())
    while True:
        seconds = min(stall_seconds, max(0.0, end - time.monotonic()))
        try:
            part = await asyncio.wait_for(anext(stream), seconds)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise refused(
                408, "The body did not come in time.", "body", connection="close"
            ) from None
        except ClientDisconnect:
            raise refused(400, "The client went away.", "body") from None
        n_bytes += len(part)
        if n_bytes > max_bytes:
            raise too_long
        yield part


async def read_body(request: Request, held: Slots, **limits: float) -> bytes:
    """A whole body in memory, of which all requests together hold a limited number of bytes."""
    parts, n_bytes = [], 0
    try:
        async for part in body_parts(request, **limits):  # pyright: ignore[reportArgumentType]
            held.take(len(part))
            n_bytes += len(part)
            parts.append(part)
        return b"".join(parts)
    finally:
        held.n_free += n_bytes
