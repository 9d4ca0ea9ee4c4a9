"""What JSON requests ask for, refused with the name of the field that is wrong."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from sigmax.commands.predict import MOST_LEVELS, PredictOptions
from sigmax.serve.refusals import Problem, Refusal, refused
from sigmax.serve.rows import CheckedRows, RowReader, shown

__all__ = [
    "MOST_NEIGHBORS",
    "DensityQuestion",
    "PredictQuestion",
    "QuantileQuestion",
    "parse_json",
    "read_density",
    "read_predict",
    "read_quantiles",
]

MOST_NEIGHBORS = 50
USUAL_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
METHODS = ("distribution", "conformal")
LARGEST = 1e300
"""Of the values at which probabilities are asked for."""


@final
@dataclass(frozen=True, eq=False)
class PredictQuestion:
    """Mean, standard deviation and interval of some rows."""

    rows: CheckedRows
    is_single: bool
    options: PredictOptions


@final
@dataclass(frozen=True, eq=False)
class QuantileQuestion:
    """Quantiles of some rows, and probabilities of values."""

    rows: CheckedRows
    is_single: bool
    probabilities: tuple[float, ...]
    values: tuple[float, ...]


@final
@dataclass(frozen=True, eq=False)
class DensityQuestion:
    """All that the page shows of one row."""

    rows: CheckedRows
    n_neighbors: int


def parse_json(body: bytes) -> dict[str, Any]:
    """The object of a body.

    Raises
    ------
    Refusal
        400 if it is no JSON, 422 if it is no object.
    """
    try:
        found = json.loads(body.decode("utf-8-sig"), parse_constant=no_constant)
    except RecursionError:
        raise refused(400, "The body is nested too deeply.", "body") from None
    except (ValueError, UnicodeDecodeError) as error:
        text = str(error).encode(errors="backslashreplace").decode()
        raise refused(400, f"The body is no JSON in UTF-8: {text[:200]}.", "body") from None
    if not isinstance(found, dict):
        raise refused(422, "The body must be an object.", "body")
    return found


def no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def read_predict(body: dict[str, Any], reader: RowReader, max_rows: int) -> PredictQuestion:
    """``row`` or ``rows``, ``coverage`` and ``method``."""
    fields = Fields(body, ("row", "rows", "coverage", "method"))
    coverage = fields.number("coverage", 0.9, 0.0, 1.0)
    method = fields.choice("method", METHODS)
    rows, is_single = fields.rows(reader, max_rows)
    return PredictQuestion(rows, is_single, PredictOptions(coverage=coverage, method=method))


def read_quantiles(body: dict[str, Any], reader: RowReader, max_rows: int) -> QuantileQuestion:
    """``row`` or ``rows``, ``probabilities`` and ``values``."""
    fields = Fields(body, ("row", "rows", "probabilities", "values"))
    probabilities = fields.numbers("probabilities", USUAL_LEVELS, 0.0, 1.0)
    values = fields.numbers("values", (), -LARGEST, LARGEST)
    rows, is_single = fields.rows(reader, max_rows)
    return QuantileQuestion(rows, is_single, probabilities, values)


def read_density(body: dict[str, Any], reader: RowReader, max_rows: int) -> DensityQuestion:
    """``row`` and ``n_neighbors``."""
    fields = Fields(body, ("row", "n_neighbors"))
    n_neighbors = fields.count("n_neighbors", 5, MOST_NEIGHBORS)
    rows, _ = fields.rows(reader, 1)
    return DensityQuestion(rows, n_neighbors)


@final
class Fields:
    """The fields of a body, each read by its rule."""

    def __init__(self, body: dict[str, Any], names: tuple[str, ...]):
        self.body, self.names = body, names
        unknown = [name for name in body if name not in names]
        if unknown:
            known = ", ".join(names)
            problems = [
                Problem(("body", text_of(name)), f"is no field of this request, which has {known}")
                for name in unknown[:5]
            ]
            raise Refusal(422, problems)

    def get(self, name: str, usual: Any, rule: str, accepts: Callable[[Any], bool]) -> Any:
        """A field, or what is usual where it is left out."""
        if name not in self.body:
            return usual
        value = self.body[name]
        if not accepts(value):
            raise refused(422, f"must be {rule}, got {shown(value)}", "body", name)
        return value

    def number(self, name: str, usual: float, above: float, below: float) -> float:
        rule = f"a number above {above:g} and below {below:g}"
        return float(self.get(name, usual, rule, lambda value: is_between(value, above, below)))

    def count(self, name: str, usual: int, most: int) -> int:
        def is_count(value: Any) -> bool:
            is_whole = is_between(value, -0.5, most + 0.5) and float(value).is_integer()
            return is_whole

        return int(self.get(name, usual, f"a whole number from 0 to {most}", is_count))

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        return self.get(name, None, " or ".join(choices), lambda value: value in choices)

    def numbers(
        self, name: str, usual: tuple[float, ...], above: float, below: float
    ) -> tuple[float, ...]:
        rule = f"a list of at most {MOST_LEVELS} numbers above {above:g} and below {below:g}"

        def is_list(value: Any) -> bool:
            return (
                isinstance(value, list)
                and len(value) <= MOST_LEVELS
                and all(is_between(number, above, below) for number in value)
            )

        return tuple(float(value) for value in self.get(name, usual, rule, is_list))

    def rows(self, reader: RowReader, max_rows: int) -> tuple[CheckedRows, bool]:
        """The rows, and whether it is one that came by itself."""
        both = [name for name in ("row", "rows") if name in self.names]
        given = [name for name in both if name in self.body]
        if len(given) != 1:
            raise refused(422, f"exactly one of {' and '.join(both)} is needed", "body", both[0])
        if given == ["row"]:
            return reader([self.body["row"]], "body", "row"), True
        rows = self.body["rows"]
        if not isinstance(rows, list) or not rows:
            raise refused(422, "must be a list of at least one row", "body", "rows")
        if len(rows) > max_rows:
            message = f"at most {max_rows:,} rows are answered at once, got {len(rows):,}"
            raise refused(413, message, "body", "rows")
        return reader(rows, "body", "rows"), False


def is_between(value: Any, above: float, below: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and above < value < below and math.isfinite(value)


def text_of(name: str) -> str:
    return name[:60].encode(errors="backslashreplace").decode()
