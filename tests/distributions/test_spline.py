"""Monotone splines: increasing, smooth, and exact in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmax.distributions import MonotoneSpline

N_KNOTS = 6
steps = st.lists(st.floats(1e-2, 1e2), min_size=N_KNOTS - 1, max_size=N_KNOTS - 1)
value = jax.jit(lambda spline, x: spline(x))
inverse = jax.jit(lambda spline, y: spline.inverse(y))
log_slope = jax.jit(lambda spline, x: spline.log_slope(x))


def spline_of(x_steps, y_steps, start=0.0) -> MonotoneSpline:
    x, y = (start + np.concatenate([[0.0], np.cumsum(part)]) for part in (x_steps, y_steps))
    return MonotoneSpline.through(x, y)


def points_of(spline: MonotoneSpline, n=201, far=30.0) -> np.ndarray:
    """All along the knots, and far beyond both ends."""
    x = np.asarray(spline.x)
    inside = np.linspace(x[0], x[-1], n)
    beyond = far * np.ptp(x) * np.geomspace(1e-3, 1, 20)
    return np.sort(np.concatenate([x[0] - beyond, inside, x[-1] + beyond, x[1:-1]]))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(x_steps=steps, y_steps=steps, start=st.floats(-100, 100))
def test_any_increasing_knots_give_an_increasing_map_with_an_exact_inverse(x_steps, y_steps, start):
    spline = spline_of(x_steps, y_steps, start)
    x = points_of(spline)
    with jax.enable_x64(True):
        y, slope = np.asarray(value(spline, x)), np.exp(log_slope(spline, x))
        back, knots = np.asarray(inverse(spline, y)), value(spline, np.asarray(spline.x))
    assert np.all(np.diff(y)[np.diff(x) > 0] > 0) and np.all(slope > 0)
    np.testing.assert_allclose(knots, spline.y, rtol=1e-12, atol=1e-9)
    # Digits of y are digits of x where the map is steep, and more of them where it is flat.
    tolerance = 1e-10 * (np.abs(x).max() + np.abs(y).max() / slope)
    assert np.all(np.abs(back - x) <= tolerance)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(x_steps=steps, y_steps=steps)
def test_the_slope_is_that_of_differences_and_of_jax(x_steps, y_steps):
    spline = spline_of(x_steps, y_steps)
    rng, ends = np.random.default_rng(0), np.asarray(spline.x)[[0, -1]]
    x = rng.uniform(ends[0] - 50, ends[1] + 50, 80)
    step = 1e-6
    is_inside = np.min(np.abs(x[:, None] - np.asarray(spline.x)), axis=1) > 2 * step
    with jax.enable_x64(True):
        expected = (value(spline, x + step) - value(spline, x - step)) / (2 * step)
        got = np.exp(log_slope(spline, x))
        np.testing.assert_allclose(got, jax.vmap(jax.grad(spline))(jnp.asarray(x)), rtol=1e-8)
    np.testing.assert_allclose(got[is_inside], expected[is_inside], rtol=2e-3)


def test_the_slope_is_continuous_and_constant_beyond_the_ends():
    spline = spline_of([1.0, 0.2, 3.0, 1.0, 2.0], [0.5, 2.0, 0.1, 1.0, 1.0])
    x = np.asarray(spline.x)
    with jax.enable_x64(True):
        below, above = (np.exp(log_slope(spline, x + step)) for step in (-1e-11, 1e-11))
        far = np.exp(log_slope(spline, np.array([-1e6, 1e6])))
    np.testing.assert_allclose(below, above, rtol=1e-6)
    np.testing.assert_allclose(far, [0.5, 0.5], rtol=1e-12)  # secants at both ends


@pytest.mark.parametrize("shape", [(2,), (7, 2), (3, 7, 2)])
def test_outputs_have_maps_of_their_own(shape):
    rng = np.random.default_rng(0)
    x, y = (np.cumsum(rng.uniform(0.1, 2, (N_KNOTS, 2)), axis=0) for _ in range(2))
    both = MonotoneSpline.through(x, y)
    at = rng.uniform(-3, 12, shape)
    with jax.enable_x64(True):
        for j in range(2):
            alone = MonotoneSpline.through(x[:, j], y[:, j])
            np.testing.assert_allclose(both(at)[..., j], alone(at[..., j]), rtol=1e-12)
            np.testing.assert_allclose(
                both.inverse(at)[..., j], alone.inverse(at[..., j]), rtol=1e-12
            )
            np.testing.assert_allclose(
                both.log_slope(at)[..., j], alone.log_slope(at[..., j]), atol=1e-12
            )


def test_knots_on_a_line_are_that_line():
    x = np.array([-1.0, 0.5, 2.0, 5.0])
    spline = MonotoneSpline.through(x, 3 + 2 * x)
    at = np.linspace(-40, 40, 101)
    with jax.enable_x64(True):
        np.testing.assert_allclose(spline(at), 3 + 2 * at, rtol=1e-12)
        np.testing.assert_allclose(spline.inverse(at), (at - 3) / 2, atol=1e-12)
        np.testing.assert_allclose(spline.log_slope(at), np.log(2), rtol=1e-12)
