"""The OpenAPI document, and random requests generated from it."""

import os

import hypothesis
import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)
from serve_cases import TOKEN, get

from sigmax.serve.app import create_app
from sigmax.serve.limits import ServeOptions

N_CASES = int(os.environ.get("SIGMAX_API_CASES", "25"))
"""Random requests per path, valid and invalid; SIGMAX_API_CASES=350 for two thousand."""


@pytest.fixture(scope="module")
def document(app):
    return get(app, "/openapi.json").json()


def test_the_document_is_valid(document):
    OpenAPIV31SpecValidator(document).validate()


def test_the_document_has_the_columns_of_the_model_by_their_exact_names(document, frame):
    row = document["components"]["schemas"]["Row"]
    columns = [name for name in frame.columns if name != "minutes"]
    assert row["required"] == list(row["properties"]) == columns
    cells = row["properties"]
    assert cells["distance_km"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
    assert cells["vehicle"]["anyOf"][0]["enum"] == ["bike", "car", "scooter", "van"]
    assert cells["ordered"]["anyOf"][0] == {"type": "string", "format": "date-time"}
    assert cells["ordered"]["anyOf"][2:] == [{"type": "string"}, {"type": "null"}]
    assert "%d.%m.%Y" in cells["promised"]["description"]
    low, high = frame["distance_km"].min(), frame["distance_km"].max()
    assert f"{low:g} to {high:g}" in cells["distance_km"]["description"]


def test_limits_and_the_token_are_in_the_document(saved):
    options = ServeOptions(max_rows=7, token=TOKEN)
    app = create_app(saved, options, warm_up=False)
    found = get(app, "/openapi.json", headers={"authorization": f"Bearer {TOKEN}"}).json()
    rows = found["components"]["schemas"]["PredictRequest"]["properties"]["rows"]
    assert rows["anyOf"][0]["maxItems"] == 7
    assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    OpenAPIV31SpecValidator(found).validate()


def test_every_documented_status_has_a_body(document):
    for path in document["paths"].values():
        for operation in path.values():
            for code, response in operation["responses"].items():
                (content,) = response["content"].values()
                if code != "200":
                    assert content["schema"] == {"$ref": "#/components/schemas/ErrorResponse"}
                assert content["schema"]


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("path", ["/health", "/predict", "/predict_dist", "/density", "/explain"])
def test_made_up_requests_get_a_documented_response(app, path, mode, document):
    """No 5xx, and no status or body that is not in the document."""
    if mode == "negative" and path == "/health":
        pytest.skip("it has no input")
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"host": "localhost"})
    operation = schema[path]["GET" if path == "/health" else "POST"]
    seen = set()

    @hypothesis.settings(
        max_examples=1 if path == "/health" else N_CASES,
        deadline=None,
        derandomize=True,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        database=None,
        suppress_health_check=[
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.data_too_large,
        ],
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def check(case):
        case.headers["host"] = "localhost"
        response = case.call()
        seen.add(response.status_code)
        assert response.status_code < 500, response.text
        checks = [status_code_conformance, response_schema_conformance]
        case.validate_response(response, checks=checks)

    check()
    assert seen
