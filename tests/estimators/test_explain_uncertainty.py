"""`explain_uncertainty`: how much wider a prediction is without one of its columns."""

# Arguments of estimators have the types of their defaults.
# pyright: reportArgumentType=false

import numpy as np
import pandas as pd
import pytest

from sigmax import SigmaxRegressor
from sigmax.errors import InvalidArgumentError


def table(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """The size matters much, the colour little, the price of a thing not at all."""
    rng = np.random.default_rng(seed)
    colour = rng.choice(["blue", "red"], n)
    X = pd.DataFrame(
        {"colour": colour, "size": rng.normal(size=n), "price": rng.normal(size=n)},
    )
    y = 2 * X["size"] + 0.5 * (colour == "red") + 0.3 * rng.normal(size=n)
    return X, y.to_numpy()


@pytest.fixture(scope="module")
def model() -> SigmaxRegressor:
    return SigmaxRegressor("quick", random_state=0).fit(*table(300))


def test_changes_are_those_of_the_true_standard_deviation(model):
    X, _ = table(200, seed=1)
    before = model.predict(X, return_std=True)[1]
    changes = model.explain_uncertainty(X)
    assert changes.columns.tolist() == X.columns.tolist() and changes.shape == X.shape
    # Without the size, y has the variance 4 + 0.3²; without the colour 0.25² + 0.3².
    without = (before[:, None] + changes).mean()
    assert without["size"] == pytest.approx(np.hypot(2, 0.3), rel=0.2)
    assert without["colour"] == pytest.approx(np.hypot(0.25, 0.3), rel=0.2)
    assert abs(changes["price"].mean()) < 0.03


def test_changes_are_those_of_missing_cells(model):
    X, _ = table(20, seed=2)
    blank = X.assign(size=np.nan)
    expected = model.predict(blank, return_std=True)[1] - model.predict(X, return_std=True)[1]
    np.testing.assert_allclose(model.explain_uncertainty(X)["size"], expected)
    some = model.explain_uncertainty(X, columns=["size"])
    assert list(some) == ["size"]
    np.testing.assert_allclose(some["size"], expected)
    parts = [model.explain_uncertainty(X, part) for part in ("aleatoric", "epistemic")]
    assert all(np.isfinite(part).all().all() for part in parts)


def test_several_outputs_have_a_column_for_each():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    model = SigmaxRegressor(experts=["linear"], random_state=0)
    model.fit(X, X + 0.1 * rng.normal(size=X.shape))
    changes = model.explain_uncertainty(X[:5]).mean()
    assert changes.index.tolist() == [(0, "x0"), (0, "x1"), (1, "x0"), (1, "x1")]
    assert changes[0, "x0"] > 0.5 > abs(changes[0, "x1"])


def test_an_unknown_part_raises_an_error(model):
    with pytest.raises(InvalidArgumentError, match="`part` must be one of"):
        model.explain_uncertainty(table(3)[0], part="all")
    with pytest.raises(ValueError, match="`columns` must be columns of X, got 'age'"):
        model.explain_uncertainty(table(3)[0], columns=["age"])
    with pytest.raises(ValueError, match="`columns` must be a list of names, got 'age'"):
        model.explain_uncertainty(table(3)[0], columns="age")
