"""Requests that are not answered, with the status and the sentences that say why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from starlette.responses import JSONResponse, Response

__all__ = ["Problem", "Refusal", "refuse", "refused"]


@final
@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where: as in ``("body", "rows", 0, "size")``."""

    place: tuple[str | int, ...]
    message: str

    def to_json(self) -> dict[str, Any]:
        return {"loc": list(self.place), "msg": self.message}


@final
class Refusal(Exception):
    """A request that gets another status than 200."""

    def __init__(
        self, status: int, problems: Sequence[Problem], headers: Mapping[str, str] | None = None
    ):
        super().__init__(status, problems)
        self.status, self.problems, self.headers = status, problems, headers

    def response(self) -> Response:
        """The answer, of which every refusal has the same form."""
        content = {"detail": [problem.to_json() for problem in self.problems]}
        return JSONResponse(content, status_code=self.status, headers=self.headers)


def refused(status: int, message: str, *place: str | int, **headers: str) -> Refusal:
    """A refusal for one reason; ``retry_after`` and the like are headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Refusal(status, [Problem(place, message)], named)


def refuse(status: int, message: str, *place: str | int, **headers: str) -> Response:
    """The response of a refusal for one reason."""
    return refused(status, message, *place, **headers).response()
