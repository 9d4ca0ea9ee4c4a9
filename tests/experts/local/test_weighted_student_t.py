"""Weighted Student-t components, compared with the mixture of the same components."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sigmax.distributions import Mixture, StudentT
from sigmax.experts.local.network import WeightedStudentT
from sigmax.networks import toward_prior

SHAPE = (6, 2)
N_COMPONENTS = 3


def make(seed=0, *, equal=False) -> WeightedStudentT:
    rng = np.random.default_rng(seed)
    shape = (*SHAPE, N_COMPONENTS)
    parts = rng.normal(size=shape), rng.uniform(3, 12, shape), rng.uniform(0.1, 1.5, shape)
    components = StudentT(*(jnp.asarray(part, dtype=jnp.float32) for part in parts))
    logits = np.zeros(shape) if equal else rng.normal(size=shape)
    return WeightedStudentT(components, jax.nn.log_softmax(jnp.asarray(logits, dtype=jnp.float32)))


def as_mixture(dist: WeightedStudentT) -> Mixture:
    components, log_weight = jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf, -1, 0), (dist.components, dist.log_weight)
    )
    return Mixture(components, None, log_weight, N_COMPONENTS)


def test_moments_and_density_are_those_of_the_mixture():
    dist, y = make(), jnp.asarray(np.random.default_rng(1).normal(size=SHAPE), dtype=jnp.float32)
    mixture = as_mixture(dist)
    np.testing.assert_allclose(dist.mean, mixture.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dist.variance, mixture.variance, rtol=1e-5)
    np.testing.assert_allclose(dist.variance, mixture.aleatoric_variance, rtol=1e-5)
    np.testing.assert_allclose(mixture.epistemic_variance, 0.0, atol=1e-6)
    np.testing.assert_allclose(dist.log_prob(y), mixture.log_prob(y), rtol=1e-4, atol=1e-5)


def test_the_density_is_scipys():
    dist = make()
    parts = dist.components
    pdf = stats.t.pdf(0.3, *(np.asarray(part) for part in (parts.df, parts.mean, parts.scale)))
    expected = np.log(np.sum(np.exp(dist.log_weight) * pdf, axis=-1))
    got = dist.log_prob(jnp.full(SHAPE, 0.3))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [0.5, 3.0, "each"])
def test_widening_is_of_every_component_about_its_own_mean(factor):
    dist = make()
    factor = jnp.linspace(0.5, 2, 12).reshape(SHAPE) if factor == "each" else factor
    wide = dist.widen(factor)
    of_components = jnp.broadcast_to(jnp.asarray(factor), SHAPE)[..., None]
    np.testing.assert_allclose(wide.components.scale, of_components * dist.components.scale)
    np.testing.assert_array_equal(wide.components.mean, dist.components.mean)
    np.testing.assert_array_equal(wide.log_weight, dist.log_weight)


def test_tails_are_bounded_in_every_component():
    dist = make()
    np.testing.assert_allclose(
        dist.with_tails(5.0).components.df, np.minimum(dist.components.df, 5.0), rtol=1e-5
    )
    none = dist.with_tails(5.0, jnp.zeros((6, 1)))
    np.testing.assert_allclose(none.components.df, dist.components.df, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_leads_from_the_prediction_to_the_prior(share):
    """The variance goes along a line, whatever the components."""
    dist = make()
    got = dist.toward(4.0, share)
    np.testing.assert_allclose(got.mean, (1 - share) * dist.mean, rtol=1e-4, atol=1e-6)
    expected = (1 - share) * np.asarray(dist.variance) + share * 4
    np.testing.assert_allclose(got.variance, expected, rtol=1e-4)
    same = toward_prior(dist, jnp.asarray(share), 4.0)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(one, other)


def test_in_the_end_all_components_have_one_mean_and_one_variance():
    got = make().toward(2.5, jnp.ones((6, 1)))
    np.testing.assert_allclose(got.components.mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(got.components.variance, 2.5, rtol=1e-5)


def test_the_mean_may_be_moved_by_another_share():
    dist, share = make(), jnp.linspace(0, 1, 6)[:, None]
    got = dist.toward(1.0, share, mean_share=share**2)
    np.testing.assert_allclose(got.mean, (1 - share**2) * dist.mean, rtol=1e-4, atol=1e-6)
    expected = (1 - share) * dist.variance + share
    np.testing.assert_allclose(got.variance, expected, rtol=1e-4)


def test_gradients_are_finite_at_both_ends_of_a_share():
    dist = make()

    def score(dist, share):
        moved = dist.toward(1.0, share, mean_share=share**2)
        return jnp.sum(moved.log_prob(jnp.full(SHAPE, 0.4))) + jnp.sum(moved.variance)

    for share in (0.0, 1.0):
        gradients = jax.grad(score)(dist, jnp.full((6, 1), share))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
