"""The step of a target that repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmax.targets import target_step

rng = np.random.default_rng(0)
COUNTS = rng.poisson(3.0, 300).astype(float)


@pytest.mark.parametrize(
    ("y", "step"),
    [
        (COUNTS, 1.0),
        (COUNTS - 7, 1.0),
        (5 * COUNTS, 5.0),
        (COUNTS / 10, 0.1),
        (0.25 + COUNTS / 2, 0.5),
        (1e6 + 0.01 * COUNTS, 0.01),
        (1e-6 * COUNTS, 1e-6),
        (np.array([3.0, 4.0, 4.0, 9.0]), 1.0),
        (np.float32(COUNTS / 10).astype(float), 0.1),
    ],
    ids=["whole", "negative", "fives", "decimal", "shifted", "large", "tiny", "few", "single"],
)
def test_values_on_a_grid_have_its_step(y, step):
    assert target_step(y) == pytest.approx(step, rel=1e-5)


def test_two_values_are_a_step_apart():
    assert target_step(np.repeat([0.0, 1.0], 50)) == 1.0
    assert target_step(np.repeat([-2.5, 4.0], [90, 10])) == 6.5


@pytest.mark.parametrize("name", ["normal", "uniform", "exponential", "lognormal"])
def test_a_continuous_target_has_none(name):
    assert target_step(getattr(rng, name)(size=400)) == 0.0


def test_a_constant_target_has_none():
    assert target_step(np.full(20, 3.0)) == 0.0


def test_a_few_repeated_values_are_no_heap():
    y = rng.normal(size=1000)
    y[:15] = y[0]
    assert target_step(y) == 0.0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_around_a_heap_a_twentieth_of_the_others_is_near(share):
    y = np.where(rng.uniform(size=2000) < share, 0.0, rng.exponential(size=2000))
    step, others = target_step(y), y[y > 0]
    assert np.mean(others < step) == pytest.approx(0.05, abs=0.01)


def test_of_several_heaps_the_nearest_others_count():
    y = np.concatenate([np.zeros(100), np.full(100, 5.0), rng.uniform(4, 6, 200)])
    assert target_step(y) == pytest.approx(0.05, abs=0.04)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 1000))
def test_the_step_goes_with_the_units(scale, seed):
    y = np.random.default_rng(seed).poisson(2.0, 100).astype(float)
    assert target_step(scale * y) == pytest.approx(scale * target_step(y), rel=1e-6)
