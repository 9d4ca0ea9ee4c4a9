r"""Noise of Gaussian processes that depends on x.

The variance of the noise is $\sigma^2 e^{g(x)}$ with a function g that is a Gaussian process
itself: smooth, of mean 0 and of the standard deviation `LOG_NOISE_STD` a priori. Of few rows, g is
the sum of the few functions in which it varies most there, with independent standard Normal
weights, which are hyper-parameters like any other. Away from all rows g is 0.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sigmax.compilation import compiled
from sigmax.estimators.gp_inference import GPRows, Posterior, Values

__all__ = ["noise_functions", "noise_kernel", "predict_noise", "with_noise"]

LOG_NOISE_STD = 2.0
"""Of g a priori: two standard deviations are a factor of 55 on the variance, 7 on the std."""

N_FUNCTIONS = 8
LEAST_SHARE = 0.01
"""Of the variance of g: functions with less are 0, so that their number is always the same."""


def noise_kernel(
    X: Float[Values, "rows features"], Z: Float[Values, "points features"], d: int
) -> Float[Array, "rows points"]:
    """Correlation of g: a squared exponential of length-scale √d on standardised columns."""
    squares = jnp.sum(X**2, axis=1)[:, None] + jnp.sum(Z**2, axis=1)[None, :]
    squared_distance = jnp.maximum(squares - 2 * jnp.asarray(X) @ jnp.asarray(Z).T, 0.0)
    return jnp.exp(-0.5 * squared_distance / d)


def noise_functions(
    X: Float[np.ndarray, "rows features"], d: int
) -> Float[np.ndarray, "rows functions"]:
    """Coefficients of the kernel at the rows, a column for every function that g is a sum of.

    Examples
    --------
    >>> X = np.linspace(-1.7, 1.7, 50)[:, None]
    >>> with jax.enable_x64(True):
    ...     basis = np.asarray(noise_kernel(X, X, 1)) @ noise_functions(X, 1)
    >>> basis.shape, np.any(basis, axis=0).sum()
    ((50, 8), np.int64(4))
    >>> bool(np.all(np.sum(basis**2, axis=1) <= LOG_NOISE_STD**2))
    True
    """
    values, vectors = np.linalg.eigh(np.asarray(noise_kernel(X, X, d)))
    is_large = (values > LEAST_SHARE * len(X)) & (np.arange(len(X), 0, -1) <= N_FUNCTIONS)
    found = LOG_NOISE_STD * vectors[:, is_large] / np.sqrt(values[is_large])
    return np.pad(found, ((0, 0), (0, N_FUNCTIONS - found.shape[1])))


def with_noise(rows: GPRows) -> GPRows:
    """The rows with the functions that the noise at them depends on."""
    functions = noise_functions(np.asarray(rows.X), rows.n_length_scales)
    return replace(rows, noise_functions=functions)


@compiled
def predict_noise(
    posterior: Posterior, X: Float[Values, "rows features"]
) -> Float[Array, "outputs rows"]:
    """Variance of the noise of every output at ``X``."""

    def predict(posterior: Posterior, X: Values) -> Array:
        log_noise = jnp.full(len(X), posterior.hyper.log_noise)
        if posterior.noise_coefficients is not None:
            d = len(posterior.hyper.log_length_scale)
            log_noise += noise_kernel(X, posterior.points, d) @ posterior.noise_coefficients
        return jnp.exp(log_noise)

    return jax.vmap(predict, in_axes=(0, None))(posterior, X)
