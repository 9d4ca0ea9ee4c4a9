"""One meaning of ``random_state`` everywhere: int, RandomState, Generator or None."""

import zlib
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.base import clone as sklearn_clone
from sklearn.utils import check_random_state

from sigmax import CombinedRegressor, CombVAE, LocalitySampler, MeanVarianceRegressor
from sigmax.active_learning import choose
from sigmax.data import Station, ToyProblem, TwoMoons
from sigmax.distributions import Normal, Predictive
from sigmax.random import draw_seed, jax_key, make_generator, make_key, named_generator, named_key

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
Y = X[:, 0] + 0.1 * rng.normal(size=60)
DAYS = np.repeat(np.arange(1, 366), 10)
STATION = Station("somewhere", DAYS, rng.normal(size=len(DAYS)))


def clone(model: Any) -> Any:
    return sklearn_clone(model)


def locality_batch(random_state):
    sampler = LocalitySampler(n_neighbors=10, n_secondary=5, random_state=random_state).fit(X)
    return next(iter(sampler))[0]


def fitted_network(random_state):
    model = MeanVarianceRegressor(hidden_sizes=(4,), n_steps=2, random_state=random_state)
    model.set_settings(warmup_fraction=0.0, recalibrate=False)
    return clone(model).set_params(random_state=random_state).fit(X, Y).predict(X)


def fitted_autoencoder(random_state):
    model = CombVAE(hidden_sizes=(4,), n_steps=2, random_state=random_state)
    return model.fit(X).encode(X)


DRAWS = {
    "key": make_key,
    "generator": lambda state: make_generator(state).random(3),
    "prediction": lambda state: Predictive(Normal(np.zeros(3), np.ones(3))).sample(2, state),
    "sampler": locality_batch,
    "choose": lambda state: choose(None, X, 5, acquisition="random", random_state=state),
    "toy": lambda state: ToyProblem().sample(5, random_state=state)[1],
    "moons": lambda state: TwoMoons().sample(5, random_state=state)[0],
    "station": lambda state: STATION.draw_year(state)[1],
    "network": fitted_network,
    "autoencoder": fitted_autoencoder,
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_a_generator_advances_and_its_copy_repeats(name, kind):
    draw, state = DRAWS[name], kind(3)
    first, second = draw(state), draw(state)
    assert np.any(first != second)
    np.testing.assert_array_equal(draw(kind(3)), first)


@pytest.mark.parametrize("name", [n for n in DRAWS if n not in ("network", "autoencoder")])
def test_an_int_repeats_and_none_does_not(name):
    draw = DRAWS[name]
    np.testing.assert_array_equal(draw(7), draw(np.int64(7)))
    assert np.any(draw(None) != draw(None))


def test_an_int_gives_the_draws_it_has_always_given():
    for seed in (0, 1, 2**32 - 1):
        assert draw_seed(seed) == check_random_state(seed).randint(2**31 - 1)
        np.testing.assert_array_equal(
            make_generator(seed).random(4), np.random.default_rng(seed).random(4)
        )
    assert draw_seed(0) == 209652396  # of NumPy's RandomState, which never changes
    expected = jax.random.key_data(jax.random.key(209652396))
    np.testing.assert_array_equal(make_key(0), expected)


@pytest.mark.parametrize("seed", [0, 1, 209652396, 2**31 - 2])
@pytest.mark.parametrize("name", ["", "members", "fold 3"])
def test_named_keys_are_those_of_jax_bit_for_bit(seed, name):
    ours, theirs = np.array([0, seed], np.uint32), jax.random.key(seed)
    for _ in range(3):
        assert named_generator(ours, name).random() == named_generator(theirs, name).random()
        ours = named_key(ours, name)
        theirs = jax.random.fold_in(theirs, zlib.crc32(name.encode()))
        np.testing.assert_array_equal(ours, jax.random.key_data(theirs))
        np.testing.assert_array_equal(jax.random.bits(jax_key(ours)), jax.random.bits(theirs))


@pytest.mark.parametrize("state", ["a", -1, 1.5])
def test_anything_else_is_refused(state):
    rule = r"`random_state` must be an int of at least 0, a RandomState, a Generator or None, got"
    for function in (draw_seed, make_generator, make_key, DRAWS["prediction"], DRAWS["toy"]):
        with pytest.raises(ValueError, match=rule):
            function(state)


def test_an_estimator_with_a_generator_can_be_cloned():
    model = CombinedRegressor(random_state=np.random.default_rng(5))
    copy = clone(clone(model))
    assert copy.random_state is not model.random_state
    assert copy.random_state.random() == np.random.default_rng(5).random()


def test_the_sampler_draws_nothing_before_it_is_asked_to():
    state = np.random.RandomState(0)
    LocalitySampler(random_state=state)
    assert state.randint(10**6) == np.random.RandomState(0).randint(10**6)
