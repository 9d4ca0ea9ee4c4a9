"""An answer that is sent as it is made, for as long as somebody takes it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, final

__all__ = ["StreamedAnswer"]


@final
class StreamedAnswer:
    """A response of unknown length, as a plain ASGI application.

    It ends early, without the mark by which clients know that nothing is missing, if the time is
    over, if the client takes no part for too long, or if making a part fails.

    Parameters
    ----------
    next_part
        Makes the next part, or gives no bytes if there is none.
    end
        The time on the clock of the event loop when it must be over.
    stall_seconds
        How long a client may take for one part.
    release
        Called at the end, whatever happened.
    """

    def __init__(
        self,
        next_part: Callable[[], Awaitable[bytes]],
        *,
        headers: dict[str, str],
        end: float,
        stall_seconds: float,
        release: Callable[[], None],
    ):
        self.next_part, self.end, self.stall_seconds = next_part, end, stall_seconds
        self.headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.release = release

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        gone = asyncio.ensure_future(receive())  # all has been received: it can only go away

        async def send_in_time(message: Any) -> None:
            async with asyncio.timeout(self.stall_seconds):
                await send(message)

        try:
            async with asyncio.timeout_at(self.end):
                await send_in_time(
                    {"type": "http.response.start", "status": 200, "headers": self.headers}
                )
                while part := await self.next_part():
                    if gone.done():
                        return
                    await send_in_time(
                        {"type": "http.response.body", "body": part, "more_body": True}
                    )
                await send_in_time({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return
        finally:
            self.release()
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone
