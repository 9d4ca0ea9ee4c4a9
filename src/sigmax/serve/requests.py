"""Bodies of requests and responses as pydantic models."""

from typing import Annotated, Any, Literal, final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from sigmax.table_model import MOST_LEVELS

LARGEST = 1e300
"""Largest absolute value for which a probability is computed."""

STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
Method = Literal["distribution", "conformal"]
Probability = Annotated[float, Field(gt=0, lt=1)]
Value = Annotated[float, Field(gt=-LARGEST, lt=LARGEST)]


class AbstractRowsRequest(BaseModel):
    """Request for one row or for several; `request_model` sets the types of both."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["row"]}, {"required": ["rows"]}]}
    )
    row: Any = None
    rows: Any = None

    @model_validator(mode="after")
    def check_rows(self) -> Any:
        if (self.row is None) == (self.rows is None):
            raise PydanticCustomError("row_or_rows", "Exactly one of row and rows is required")
        return self

    @property
    def all_rows(self) -> list[Any]:
        return [self.row] if self.rows is None else self.rows


class AbstractPredictRequest(AbstractRowsRequest):
    """Mean, standard deviation and interval of each row."""

    coverage: Probability = 0.9
    method: Method | None = None


class AbstractDistributionRequest(AbstractRowsRequest):
    """Quantiles of each row, and probabilities of values."""

    probabilities: list[Probability] = Field([0.05, 0.25, 0.5, 0.75, 0.95], max_length=MOST_LEVELS)
    values: list[Value] = Field([], max_length=MOST_LEVELS)


class AbstractDensityRequest(BaseModel):
    """Density of one row and its nearest training rows, as shown on the page."""

    model_config = STRICT
    row: Any
    n_neighbors: int = Field(5, ge=0, le=50)


class AbstractExplainRequest(BaseModel):
    """Change of the standard deviation of one row by knowing each of its columns."""

    model_config = STRICT
    row: Any


def request_model(base: type[BaseModel], row_model: Any, max_rows: int) -> Any:
    fields: Any = {"row": (row_model, ...)}
    if issubclass(base, AbstractRowsRequest):
        rows: Any = Annotated[list[row_model], Field(min_length=1, max_length=max_rows)]
        fields = {"row": (row_model | None, None), "rows": (rows | None, None)}
    name = base.__name__.removeprefix("Abstract")
    return create_model(name, __base__=base, __doc__=base.__doc__, **fields)


@final
class CsvQuery(BaseModel):
    """Options of `sigmax predict` in the query of a request with a file."""

    model_config = ConfigDict(extra="forbid")
    coverage: Probability = 0.9
    quantiles: Annotated[
        tuple[Probability, ...],
        BeforeValidator(lambda texts: [part for part in ",".join(texts).split(",") if part]),
        Field(max_length=MOST_LEVELS, description="several, or one text with commas"),
    ] = ()
    method: Method | None = None


def response_model(name: str, fields: dict[str, Any], optional: Any = None) -> Any:
    """Model of a response; optional fields are left out where they do not apply."""
    types: Any = {field: (kind, ...) for field, kind in fields.items()}
    types |= {field: (kind | None, None) for field, kind in (optional or {}).items()}
    return create_model(name, **types)


Number = Annotated[float | None, Field(description="null if infinite or unknown")]
OffData = Annotated[
    float | None,
    Field(description="0 near the training rows, 1 out of distribution; null without an estimate"),
]
RowNumber = Annotated[int, Field(ge=1, description="counted from 1 among the training rows")]
MOMENTS: dict[str, Any] = {"mean": Number, "std": Number}
PARTS: dict[str, Any] = {"aleatoric": Number, "epistemic": Number, "off_data": OffData}
BOUNDS: dict[str, Any] = {"lower": Number, "upper": Number}

HealthResponse = response_model("Health", {"status": Literal["ok"], "target": str, "version": str})
ErrorDetail = response_model("ErrorDetail", {"loc": list[str | int], "msg": str})
ErrorResponse = response_model("ErrorResponse", {"detail": list[ErrorDetail]})
RowPrediction = response_model("RowPrediction", MOMENTS | BOUNDS | PARTS)
PredictResponse = response_model(
    "PredictResponse",
    {"target": str, "coverage": float, "method": Method},
    {"prediction": RowPrediction, "predictions": list[RowPrediction]},
)
RowDistribution = response_model(
    "RowDistribution",
    MOMENTS | {"quantiles": list[Number], "cdf": list[Number], "off_data": OffData},
)
DistributionResponse = response_model(
    "DistributionResponse",
    {"target": str, "probabilities": list[float], "values": list[float]},
    {"prediction": RowDistribution, "predictions": list[RowDistribution]},
)
Interval = response_model("Interval", {"coverage": float} | BOUNDS)
Curve = response_model("Curve", {"y": list[Number], "height": list[Number]})
Atom = response_model("Atom", {"value": float, "probability": float})
Neighbor = response_model("Neighbor", {"row": RowNumber, "weight": float})
DensityResponse = response_model(
    "DensityResponse",
    {"target": str, **MOMENTS, **PARTS, "median": Number, "intervals": list[Interval]}
    | {"density": Curve, "is_out_of_distribution": bool, "notes": str}
    | {"atoms": list[Atom], "neighbors": list[Neighbor] | None},
)
Effect = response_model("Effect", {"column": str, "effect": Number})
ExplainResponse = response_model("ExplainResponse", {"target": str, "effects": list[Effect]})
