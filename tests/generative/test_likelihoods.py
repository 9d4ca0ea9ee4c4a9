"""Outputs of a decoder become densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax.generative.autoencoder import (
    FeatureUnits,
    GatedStudentLikelihood,
    NormalLikelihood,
    SharedLikelihood,
    StudentLikelihood,
)

X = np.random.default_rng(0).normal([1.0, -2.0, 5.0], [1.0, 3.0, 0.0], (500, 3))
UNITS = FeatureUnits.create(X, np.array([0.1, 0.1, 0.1]))
LIKELIHOODS = [
    (NormalLikelihood(UNITS), 2),
    (SharedLikelihood.create(UNITS), 1),
    (StudentLikelihood(UNITS), 3),
    (GatedStudentLikelihood.create(UNITS, 2, 4), 3),
]


def outputs_of(likelihood, n_rows=2):
    rows = [np.broadcast_to(part, (n_rows, 3)) for part in likelihood.initial_outputs()]
    return tuple(jnp.asarray(part, dtype=jnp.float32) for part in rows)


@pytest.mark.parametrize(("likelihood", "n_networks"), LIKELIHOODS)
def test_training_starts_from_the_data_and_never_falls_below_the_floor(likelihood, n_networks):
    z = jnp.zeros((2, 2))
    start = likelihood(outputs_of(likelihood), z)
    np.testing.assert_allclose(start.mean[0], X.mean(axis=0), rtol=1e-4)
    assert len(likelihood.initial_outputs()) == n_networks
    if not isinstance(likelihood, SharedLikelihood):
        np.testing.assert_allclose(start.std[0][:2], X.std(axis=0)[:2], rtol=0.25)
        mean, *others = outputs_of(likelihood)
        least = likelihood((mean, *(part - 100 for part in others)), z)
        spread = least.std if isinstance(likelihood, NormalLikelihood) else least.scale
        np.testing.assert_allclose(spread, 0.1, rtol=1e-5)
        assert bool(jnp.isfinite(least.variance).all())


def test_far_from_all_codes_the_variance_is_that_of_the_data():
    likelihood = GatedStudentLikelihood.create(UNITS, 2, 4)
    outputs = tuple(part - 1 for part in outputs_of(likelihood))
    dist = likelihood(outputs, jnp.array([[0.0, 0.0], [100.0, 0.0]]))
    np.testing.assert_allclose(dist.variance[1][:2], X.var(axis=0)[:2], rtol=1e-3)
    assert dist.variance[1][2] == pytest.approx(0.01)  # never varies: the floor, squared
    assert bool((dist.variance[0] < dist.variance[1])[:2].all())
    np.testing.assert_allclose(dist.mean, [X.mean(axis=0) - 1] * 2, rtol=1e-4)


def test_no_code_is_pulled_to_where_the_gate_is_shut():
    likelihood = GatedStudentLikelihood.create(UNITS, 2, 5)
    z = jnp.array([[2.5, 1.0], [3.0, 3.0]])
    assert jnp.all((likelihood.gate_value(z) > 1e-3) & (likelihood.gate_value(z) < 0.999))
    outputs = tuple(jnp.zeros((2, 3)) for _ in range(3))

    def misfit(z):
        return -jnp.sum(likelihood(outputs, z).log_prob(jnp.ones((2, 3))))

    np.testing.assert_array_equal(jax.grad(misfit)(z), 0.0)
