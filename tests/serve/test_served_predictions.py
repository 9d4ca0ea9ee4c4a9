"""Responses of the server equal the predictions of the model."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from serve_cases import ask, get, post
from typer.testing import CliRunner

from sigmax.cli import app as command_line
from sigmax.estimators import load_estimator
from sigmax.table_model import RowPredictions

ADDED = ["mean", "std", "lower", "upper", "aleatoric", "epistemic", "off_data"]
close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def model(folder):
    return load_estimator(folder / "model")


@pytest.fixture(scope="module")
def X(frame, model):
    return frame[list(model.feature_names_in_)]


@pytest.mark.parametrize("n_rows", [1, 5, 64, 65, 300])
def test_predictions_are_those_of_the_loaded_model(app, rows, model, X, n_rows):
    rows, X = (rows + rows)[:n_rows], pd.concat([X, X])[:n_rows]
    answer = post(app, "/predict", {"rows": rows, "coverage": 0.8})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["target"], found["coverage"], found["method"]) == ("minutes", 0.8, "distribution")
    predictions = pd.DataFrame(found["predictions"])
    assert list(predictions.columns) == ADDED and len(predictions) == n_rows
    dist = model.predict_dist(X)
    close(predictions["mean"], dist.mean)
    close(predictions["std"], dist.std)
    close(predictions[["lower", "upper"]], dist.interval(0.8))
    close(predictions["off_data"], model.predict_gate(X))
    close(predictions["aleatoric"] ** 2 + predictions["epistemic"] ** 2, dist.variance)


def test_a_single_row_gets_a_single_prediction(app, rows, model, X):
    found = post(app, "/predict", {"row": rows[7]}).json()
    assert "predictions" not in found and found["coverage"] == 0.9
    close(found["prediction"]["mean"], model.predict(X[7:8])[0])


def test_conformal_intervals_are_those_of_the_model(app, rows, model, X):
    found = post(app, "/predict", {"rows": rows[:9], "method": "conformal"}).json()
    bounds = [[one["lower"], one["upper"]] for one in found["predictions"]]
    assert found["method"] == "conformal"
    close(bounds, model.predict_interval(X[:9], 0.9, method="conformal"))


@pytest.mark.parametrize("n_levels", [3, 40])  # the second is computed in the other thread
def test_quantiles_and_probabilities_are_those_of_the_model(app, rows, model, X, n_levels):
    levels = np.linspace(0.02, 0.97, n_levels).tolist()
    body = {"rows": rows[:4], "probabilities": levels, "values": [10.0, 25.5]}
    found = post(app, "/predict_dist", body).json()
    assert found["probabilities"] == levels and found["values"] == [10.0, 25.5]
    dist = model.predict_dist(X[:4])
    close([one["quantiles"] for one in found["predictions"]], dist.quantile(levels))
    shares = np.stack([dist.cdf(10.0), dist.cdf(25.5)], axis=1)
    close([one["cdf"] for one in found["predictions"]], shares)
    close([one["mean"] for one in found["predictions"]], dist.mean)


def test_the_cdf_at_a_quantile_is_its_probability(app, rows):
    levels = [0.1, 0.5, 0.9]
    first = post(app, "/predict_dist", {"row": rows[0], "probabilities": levels}).json()
    values = first["prediction"]["quantiles"]
    second = post(app, "/predict_dist", {"row": rows[0], "values": values}).json()
    close(second["prediction"]["cdf"], levels)


def test_parallel_requests_are_predicted_in_one_batch_with_their_own_options(
    app, rows, model, X, monkeypatch
):
    calls = []
    usual = RowPredictions.__init__

    def counting(self, saved, frame):
        calls.append(len(frame))
        usual(self, saved, frame)

    monkeypatch.setattr(RowPredictions, "__init__", counting)
    asked = [
        ("POST", "/predict", {"json": {"row": rows[i], "coverage": 0.5 if i % 2 else 0.9}})
        for i in range(40)
    ]
    asked[3] = ("POST", "/predict", {"json": {"row": {"distance_km": "far"}}})
    answers = ask(app, *asked)
    assert answers.pop(3).status_code == 422
    kept = np.delete(np.arange(40), 3)
    means = [answer.json()["prediction"]["mean"] for answer in answers]
    close(means, model.predict(X.iloc[kept]))
    uppers = [answer.json()["prediction"]["upper"] for answer in answers]
    dist = model.predict_dist(X.iloc[kept])
    expected = np.where(kept % 2, dist.interval(0.5)[:, 1], dist.interval(0.9)[:, 1])
    close(uppers, expected)
    assert sum(calls) == 39 and len(calls) < 10


def test_missing_values_unseen_categories_unknown_columns_and_other_time_formats_are_accepted(
    app, rows, model, X
):
    row = rows[0] | {"weather": None, "vehicle": "rocket", "extra": [1, {}], "weight_kg": None}
    row |= {"promised": "2025-03-09", "ordered": "2025-03-01T08:28:00+00:00"}
    found = post(app, "/predict", {"row": row})
    assert found.status_code == 200, found.text
    one = X[:1].assign(weather=None, vehicle="rocket", weight_kg=np.nan, promised="09.03.2025")
    one = one.assign(ordered="2025-03-01 08:28")
    close(found.json()["prediction"]["mean"], model.predict(one)[0])


def test_booleans_and_their_names_are_the_same_category(app, rows):
    answers = [
        post(app, "/predict", {"row": rows[0] | {"fragile": value}}).json()["prediction"]
        for value in (True, "True", False)
    ]
    assert answers[0] == answers[1] != answers[2]


def test_the_density_is_that_of_the_model_with_its_intervals(app, rows, model, X):
    found = post(app, "/density", {"row": rows[11], "n_neighbors": 3}).json()
    dist = model.predict_dist(X[11:12])
    y, height = np.array(found["density"]["y"]), np.array(found["density"]["height"])
    step = y[1] - y[0]
    for at in (0, 200, 400):  # probability of a range, from the model and from the drawn density
        low, high = y[at] - step / 2, y[at + 100] + step / 2
        expected = dist.cdf(high)[0] - dist.cdf(low)[0]
        densities = [np.exp(dist.log_prob(end)[0]) for end in (low, high)]
        rounding = 0.05 * sum(densities) + 1e-4  # targets are rounded to tenths of minutes
        np.testing.assert_allclose(step * height[at : at + 101].sum(), expected, atol=rounding)
    assert step * height.sum() == pytest.approx(0.99, abs=0.01)
    close(found["median"], dist.quantile(0.5)[0])
    for interval, coverage in zip(found["intervals"], (0.5, 0.9), strict=True):
        close([interval["lower"], interval["upper"]], dist.interval(coverage)[0])


def test_effects_of_columns_are_those_of_the_model_the_largest_first(app, rows, model, X):
    found = post(app, "/explain", {"row": rows[11]}).json()["effects"]
    expected = model.explain_uncertainty(X[11:12]).iloc[0]
    assert {one["column"] for one in found} == set(X.columns)
    close([one["effect"] for one in found], [-expected[one["column"]] for one in found])
    sizes = [abs(one["effect"]) for one in found]
    assert sizes == sorted(sizes, reverse=True) and found[0]["column"] == "distance_km"


def test_the_training_rows_behind_a_prediction_are_named_by_their_numbers(app, rows, model, X):
    found = post(app, "/density", {"row": rows[11], "n_neighbors": 5}).json()["neighbors"]
    indices, weights = model.explain_neighbors(X[11:12], k=5)
    assert [one["row"] - 1 for one in found] == indices[0].tolist()
    close([one["weight"] for one in found], weights[0])
    assert all(one.keys() == {"row", "weight"} for one in found)


def test_cells_outside_of_the_training_data_are_named(app, rows):
    row = rows[0] | {"distance_km": 900.0, "vehicle": "rocket", "ordered": None}
    found = post(app, "/density", {"row": row}).json()
    notes = {note.split()[0]: note for note in found["notes"].split("; ")}
    assert set(notes) == {"distance_km", "vehicle", "ordered"}
    assert "above" in notes["distance_km"] and notes["vehicle"] == "vehicle 'rocket' unseen"
    assert notes["ordered"] == "ordered missing"
    assert found["is_out_of_distribution"] and found["off_data"] > 0.9
    assert not post(app, "/density", {"row": rows[0]}).json()["is_out_of_distribution"]


def test_the_response_to_a_file_equals_the_output_of_sigmax_predict(app, folder, table, tmp_path):
    out = tmp_path / "out.csv"
    command = ["predict", str(folder), str(table), "--out", str(out), "--quantiles", "0.1"]
    result = CliRunner().invoke(command_line, [*command, "--coverage", "0.8"])
    assert result.exit_code == 0, result.output
    sent = {"content": table.read_bytes(), "headers": {"content-type": "text/csv"}}
    path = "/predict_csv?coverage=0.8&quantiles=0.1"
    answer = ask(app, ("POST", path, sent))[0]
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    (tmp_path / "answer.csv").write_bytes(answer.content)
    found, expected = pd.read_csv(tmp_path / "answer.csv"), pd.read_csv(out)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4, atol=1e-5)


def test_health_names_the_target(app):
    assert get(app, "/health").json()["target"] == "minutes"
