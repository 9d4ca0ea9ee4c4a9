"""Data of another size that are padded to the same one are trained by the same programs."""

from typing import Any

import jax
import numpy as np
import pytest
from estimator_list import build

from sigmax import CombinedRegressor, LocalRegressor
from sigmax.experts.local import LOCAL_PRESETS

SMALL: dict[str, Any] = {"hidden_sizes": (8,), "n_steps": 60, "n_members": 2, "random_state": 0}

COMPILED: list[str] = []


def note_compilation(event: str, duration_secs: float, **_: Any) -> None:
    if "backend_compile" in event:
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(note_compilation)


def fit_and_predict(regressor: type, n_rows: int, **settings: Any) -> int:
    """How many programs a fit and its predictions compile."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=n_rows)
    COMPILED.clear()
    model = build(regressor, **SMALL | settings).fit(X, y)
    model.predict(X[:70], return_std=True)
    model.predict_interval(X[:70], method="conformal")
    return len(COMPILED)


@pytest.mark.parametrize("regressor", [LocalRegressor, CombinedRegressor])
def test_another_number_of_rows_of_the_same_bucket_compiles_nothing(regressor):
    assert fit_and_predict(regressor, 500) > 0
    assert fit_and_predict(regressor, 450) == 0
    other = {"n_steps": 70, "learning_rate": 1e-3, "weight_decay": 1e-2}
    assert fit_and_predict(regressor, 500, **other) == 0


@pytest.mark.parametrize("preset", ["default", "fast"])
@pytest.mark.parametrize("sizes", [(260, 512), (2100, 4096), (9000, 16_384), (70_000, 131_072)])
def test_one_program_serves_a_bucket_whatever_the_number_of_steps(preset, sizes):
    expert = LOCAL_PRESETS[preset or "default"]
    (few,), (many,) = (expert.fit_to(n_rows).stages() for n_rows in sizes)
    assert few.one_chunk() == many.one_chunk()
    assert few != many  # weight decay follows the number of rows


def test_a_stage_runs_all_its_cycles_and_no_more():
    (stage,) = LOCAL_PRESETS["fast"].fit_to(2700).stages()
    clocks = [stage.clock(chunk) for chunk in range(stage.n_chunks)]
    n_here = np.array([int(clock.n_here) for clock in clocks])
    assert n_here.sum() == stage.n_cycles and n_here.min() > 0
    assert n_here.max() <= stage.one_chunk().n_drawn
    np.testing.assert_array_equal(
        np.cumsum(n_here)[:-1], [int(clock.n_before) for clock in clocks[1:]]
    )
