"""The picture that shows whether densities are calibrated."""

import numpy as np
from jaxtyping import Float

from sigmax.checks import check_count
from sigmax.metrics import pit

__all__ = ["pit_histogram"]


def pit_histogram(y, dist, bins: int = 10) -> Float[np.ndarray, " bins"]:
    """Heights of the histogram of the probability integral transform; all 1 when calibrated.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros(4), np.ones(4)))
    >>> pit_histogram([-3.0, -0.1, 0.1, 3.0], dist, bins=4)
    array([1., 1., 1., 1.])
    """
    bins = check_count("bins", bins)
    return np.histogram(pit(y, dist), bins, range=(0, 1), density=True)[0]
