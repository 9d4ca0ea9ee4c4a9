"""Bounds of targets."""

import numpy as np
import pytest

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.features import SUPPORT, Support

RNG = np.random.default_rng(0)
POSITIVE = {
    "exponential": RNG.exponential(size=300),
    "wages": np.exp(RNG.normal(3, 0.6, 300)),
    "counts": RNG.poisson(2.0, 300).astype(float),
    "uniform": RNG.uniform(size=300),
}
OTHERS = {
    "normal": RNG.normal(size=300),
    "far from 0": RNG.normal(100, 1, 300),
    "by chance": np.abs(RNG.normal(4, 1, 60)),
    "ratings": RNG.integers(1, 6, 300).astype(float),
    "constant": np.full(20, 3.0),
    "skewed, with a negative value": np.append(RNG.exponential(size=300), -0.01),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_a_target_that_is_never_negative_is_recognised(name):
    assert Support.find(POSITIVE[name]) == (0.0, np.inf)


@pytest.mark.parametrize("name", OTHERS)
def test_other_targets_have_no_bound(name):
    assert Support.find(OTHERS[name]) == (-np.inf, np.inf)


def test_what_is_declared_holds_and_values_beyond_it_are_an_error():
    y = RNG.uniform(0.3, 0.9, 50)
    assert Support.find(y, (0, 1)) == (0.0, 1.0)
    assert Support.find(POSITIVE["counts"], (None, None)) == (-np.inf, np.inf)
    with pytest.raises(InvalidDataError, match="1 of 51 values do not"):
        Support.find(np.append(y, 1.5), (None, 1))


@pytest.mark.parametrize("wrong", [(1, 0), (0,), 3, "positive", (0, "x"), (0, 0), (np.nan, 1)])
def test_what_is_no_pair_of_bounds_is_an_error(wrong):
    with pytest.raises(InvalidArgumentError, match="`support` must be"):
        SUPPORT[1].check("support", wrong)


def test_a_later_value_beyond_a_bound_takes_the_bound_away():
    assert Support(0.0, 5.0).with_values(np.array([3.0, -1.0])) == (-np.inf, 5.0)
