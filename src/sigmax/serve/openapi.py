"""The OpenAPI 3.1 document of one model: its own columns, levels and limits."""

import sys
from typing import Any

from sigmax.commands.predict import MOST_LEVELS
from sigmax.serve.answers import Answers
from sigmax.serve.options import ServeOptions
from sigmax.serve.questions import LARGEST, METHODS, MOST_NEIGHBORS, USUAL_LEVELS
from sigmax.serve.training_rows import shown_time
from sigmax.tables.schema import Column, Kind
from sigmax.version import __version__

__all__ = ["describe_api"]

MOST_LISTED = 1000
"""Levels of a column that are listed."""

Json = dict[str, Any]

NUMBER: Json = {"type": "number"}
MAYBE: Json = {"type": ["number", "null"], "description": "null where it is infinite or unknown"}
OFF_DATA: Json = {
    "type": ["number", "null"],
    "description": "0 on the training rows, 1 far from them; null where the model does not know",
}
CSV = {"text/csv": {"schema": {"type": "string"}}}


def describe_api(answers: Answers, options: ServeOptions) -> Json:
    """The whole document."""
    target = answers.saved.target
    paths = {
        "/health": {"get": operation("Whether the server is up", "Health")},
        "/predict": {
            "post": operation(
                f"Mean, standard deviation and interval of {target}",
                "Predictions",
                body="PredictRequest",
            )
        },
        "/predict_dist": {
            "post": operation(
                f"Quantiles of {target}, and probabilities of values",
                "Distributions",
                body="DistributionRequest",
            )
        },
        "/density": {
            "post": operation(
                f"The density of {target} for one row, and the training rows behind it",
                "Density",
                body="DensityRequest",
            )
        },
        "/predict_csv": {"post": csv_operation()},
    }
    needs_token = options.token is not None
    schemes = {"token": {"type": "http", "scheme": "bearer"}} if needs_token else {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"sigmax: {target}",
            "version": __version__,
            "description": f"Predictive distributions of {target}, by a model of"
            f" {answers.saved.facts['rows']['with_target']:,} rows of"
            f" {answers.saved.facts['source']}.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(answers, options),
            "responses": refusals(),
            **({"securitySchemes": schemes} if schemes else {}),
        },
        **({"security": [{"token": []}]} if needs_token else {}),
    }


def operation(summary: str, answer: str, *, body: str | None = None) -> Json:
    """What one path takes and gives."""
    found: Json = {
        "summary": summary,
        "operationId": answer[0].lower() + answer[1:],
        "responses": {
            "200": {"description": summary, "content": of_json(answer)},
            **error_responses(
                ("400", "401", "408", "413", "415", "422", "429", "431", "503", "504")
            ),
        },
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": of_json(body)}
    else:
        found["security"] = []
        found["responses"] = {
            "200": found["responses"]["200"],
            **error_responses(("400",)),
        }
    return found


def csv_operation() -> Json:
    """The path that takes a file."""
    level = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    queries = {
        "coverage": {**level, "default": 0.9},
        "quantiles": {
            "type": "string",
            "pattern": rf"^(0?\.\d+(,0?\.\d+){{0,{MOST_LEVELS - 1}}})?$",
        },
        "method": {"type": "string", "enum": list(METHODS)},
    }
    return {
        "summary": "The rows of a CSV file with their predictions in further columns",
        "operationId": "predictCsv",
        "parameters": [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in queries.items()
        ],
        "requestBody": {"required": True, "content": CSV},
        "responses": {
            "200": {"description": "The same rows, with mean, std and so on", "content": CSV},
            **error_responses(
                ("400", "401", "408", "413", "415", "422", "429", "431", "503", "504")
            ),
        },
    }


def of_json(name: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def error_responses(codes: tuple[str, ...]) -> Json:
    return {code: {"$ref": f"#/components/responses/Refusal{code}"} for code in codes}


def refusals() -> Json:
    """Every way in which a request may be refused."""
    reasons = {
        "400": "No JSON, or a name of the server that it does not know",
        "401": "The token is missing or wrong",
        "408": "The body did not come in time",
        "413": "Too many bytes or rows",
        "415": "Another content type",
        "422": "A field or a cell is missing or wrong; `loc` says which",
        "429": "Too many requests at once: try again after Retry-After seconds",
        "431": "Path and headers are too long",
        "503": "No room for more bytes or connections: try again after Retry-After seconds",
        "504": "The answer took too long",
    }
    return {
        f"Refusal{code}": {"description": reason, "content": of_json("Refusal")}
        for code, reason in reasons.items()
    }


def schemas(answers: Answers, options: ServeOptions) -> dict[str, Json]:
    """All bodies."""
    row: Json = {"$ref": "#/components/schemas/Row"}
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": options.max_rows}
    level = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    value = {"type": "number", "exclusiveMinimum": -LARGEST, "exclusiveMaximum": LARGEST}
    lists: Json = {"type": "array", "maxItems": MOST_LEVELS}
    coverage: Json = {**level, "default": 0.9}
    method = {"type": "string", "enum": list(METHODS)}
    predicted = {"mean": MAYBE, "std": MAYBE, "lower": MAYBE, "upper": MAYBE}
    parts = {"aleatoric": MAYBE, "epistemic": MAYBE, "off_data": OFF_DATA}
    probabilities = {**lists, "items": level, "default": list(USUAL_LEVELS)}
    values = {**lists, "items": value, "default": []}
    names = {"target": {"const": answers.saved.target}}
    many = {"type": "array", "items": MAYBE}
    neighbor = {
        **closed({"row": {"type": "integer", "minimum": 1}, "weight": MAYBE}),
        "properties": {
            "row": {"type": "integer", "minimum": 1, "description": rows_counted(answers)},
            "weight": MAYBE,
            "target": MAYBE,
            "cells": {"type": "object"},
        },
    }
    interval = closed({"coverage": NUMBER, "lower": MAYBE, "upper": MAYBE})
    unusual = closed({"column": {"type": "string"}, "msg": {"type": "string"}})
    return {
        "Row": row_schema(answers),
        "PredictRequest": asked({"row": row, "rows": rows, "coverage": coverage, "method": method}),
        "DistributionRequest": asked(
            {"row": row, "rows": rows, "probabilities": probabilities, "values": values}
        ),
        "DensityRequest": {
            "type": "object",
            "required": ["row"],
            "additionalProperties": False,
            "properties": {
                "row": row,
                "n_neighbors": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MOST_NEIGHBORS,
                    "default": 5,
                },
            },
        },
        "Predictions": answered(
            {**names, "coverage": level, "method": method}, closed({**predicted, **parts})
        ),
        "Distributions": answered(
            {**names, "probabilities": {**many}, "values": {**many}},
            closed(
                {"mean": MAYBE, "std": MAYBE, "quantiles": many, "cdf": many, "off_data": OFF_DATA}
            ),
        ),
        "Density": closed(
            {
                **names,
                "mean": MAYBE,
                "std": MAYBE,
                **parts,
                "median": MAYBE,
                "intervals": {"type": "array", "items": interval},
                "density": closed({"y": many, "height": many}),
                "is_unlike": {"type": "boolean"},
                "unusual": {"type": "array", "items": unusual},
                "neighbors": {"type": ["array", "null"], "items": neighbor},
            }
        ),
        "Health": closed(
            {"status": {"const": "ok"}, "target": {"type": "string"}, "version": {"type": "string"}}
        ),
        "Refusal": closed(
            {
                "detail": {
                    "type": "array",
                    "minItems": 1,
                    "items": closed(
                        {
                            "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
                            "msg": {"type": "string"},
                        }
                    ),
                }
            }
        ),
    }


def rows_counted(answers: Answers) -> str:
    """What the numbers of training rows count."""
    if answers.saved.facts["fitted_to"] == "all rows":
        return "Counted from 1 among the rows of the table that have a target"
    return "Counted from 1 among the training rows, which were chosen from the table"


def closed(properties: Json) -> Json:
    """An object with all of these and nothing else."""
    return {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def asked(properties: Json) -> Json:
    """A request for one row or for several."""
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "oneOf": [{"required": ["row"]}, {"required": ["rows"]}],
    }


def answered(facts: Json, prediction: Json) -> Json:
    """An answer about one row or about several."""
    many = {"type": "array", "items": prediction}
    return {
        "oneOf": [
            closed({**facts, "prediction": prediction}),
            closed({**facts, "predictions": many}),
        ]
    }


def row_schema(answers: Answers) -> Json:
    """A row: every column by its exact name; others are left alone."""
    takes_gaps = answers.reader.takes_gaps
    columns = answers.reader.columns
    return {
        "type": "object",
        "required": [column.name for column in columns],
        "properties": {column.name: cell_schema(column, takes_gaps) for column in columns},
        "additionalProperties": True,
        "examples": [{column.name: answers.rows.typical(column) for column in columns}],
    }


def cell_schema(column: Column, takes_gaps: bool) -> Json:
    """What a cell may be."""
    gap = ["null"] if takes_gaps else []
    seen = "" if not takes_gaps or column.has_gaps else " No training row was without one."
    if column.kind is Kind.NUMBER:
        span = f"{column.low:g} to {column.high:g}" if column.low is not None else "none"
        found: Json = {"type": ["number", *gap], "description": f"In training: {span}.{seen}"}
        return found | {"minimum": -sys.float_info.max, "maximum": sys.float_info.max}
    if column.kind is Kind.TIME:
        ways: list[Json] = [{"type": "string", "format": how} for how in ("date-time", "date")]
        ways += [{"type": ["string", *gap]}]
        return {"anyOf": ways, "description": time_words(column) + seen}
    levels = list(column.levels[:MOST_LISTED])
    words = f"One of {len(column.levels):,} levels, or a new one.{seen}"
    known = [{"enum": levels, "description": "seen in training"}] if levels else []
    others: Json = {"type": ["string", "number", "boolean", *gap], "maxLength": 10_000}
    return {"anyOf": [*known, others], "description": words}


def time_words(column: Column) -> str:
    """How a time is written, and between which times it was."""
    how = "ISO 8601"
    if column.time_format not in (None, "ISO8601"):
        how += f" or {column.time_format}"
    if column.low is None or column.high is None:
        return f"A time, as {how}."
    first, last = (shown_time(end, 1.0) for end in (column.low, column.high))
    return f"A time, as {how}. In training: {first} to {last}."
