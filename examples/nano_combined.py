"""The method "Combined" of the paper in one file of plain JAX, on the paper's toy problem.

Detlefsen, Jørgensen and Hauberg, "Reliable training and estimation of variance networks" (NeurIPS
2019). Four ideas, in the order of the paper:

    LS  locality sampler: batches of neighbours with Horvitz-Thompson weights
    MV  mean-variance split training: never update both in the same step
    IG  inverse-Gamma variance: a Student-t likelihood
    EX  extrapolation architecture: far from the data the variance tends to a constant

Sizes and learning rates are those of ``CombinedRegressor(preset="paper")``. Comments quote the
equations of the paper; "here" marks a deviation from it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax, random
from jax.nn import relu, sigmoid, softplus
from jax.scipy.special import gammaln

N_WARMUP, BATCH_SIZE = 5000, 256  # steps of the mean alone
N_CYCLES = 2500  # a cycle is a step of the mean and a step of the variance
MEAN_SAMPLER = (3, 40, 50)  # m (psu), n (ssu) and k of the locality sampler for the mean
VARIANCE_SAMPLER = (1, 10, 10)  # and for the variance
N_HIDDEN, LEARNING_RATE, GATE_LEARNING_RATE = 50, 1e-2, 1e-3
MIN_ALPHA, INITIAL_GAMMA = 1.1, 1.5  # α above 1, so that the variance of the Student-t exists
ETA = 1.0  # variance far from the data; y is standardised, so that this is Var(y)

Params = dict[str, Any]


# ---- LS: locality sampler
def neighbor_lists(X: np.ndarray, k: int) -> np.ndarray:
    """O_k(i): the k nearest neighbours of every row, the row itself first."""
    squared_distance = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    np.fill_diagonal(squared_distance, -1.0)
    return np.argsort(squared_distance, axis=1, kind="stable")[:, :k]


def inclusion(neighbors: np.ndarray, m: int, n: int) -> np.ndarray:
    """π_j = m/N Σ_i n/k 1[j ∈ O_k(i)]: expected number of times that row j is in a batch."""
    N, k = neighbors.shape
    n_lists = np.bincount(neighbors.ravel(), minlength=N)  # Σ_i 1[j ∈ O_k(i)]
    return m / N * n / k * n_lists


def locality_batch(key: Array, neighbors: Array, m: int, n: int) -> Array:
    """Rows of a batch; a row that is drawn from two lists is in it twice, as π_j expects."""
    N, k = neighbors.shape
    key_primary, key_secondary = random.split(key)
    # m primary sampling units, without replacement among all N rows
    primary = random.choice(key_primary, N, (m,), replace=False)
    # n secondary sampling units, without replacement among the k neighbours of each primary unit
    places = [random.choice(own, k, (n,), replace=False) for own in random.split(key_secondary, m)]
    return neighbors[primary[:, None], jnp.stack(places)].ravel()


# ---- networks
def create_mlp(rng: np.random.Generator, n_inputs: int, output_bias: float) -> Params:
    """One hidden layer; its biases are spread so that its kinks lie among the data."""
    W1 = rng.normal(0, (2 / n_inputs) ** 0.5, (n_inputs, N_HIDDEN))
    b1 = rng.uniform(-1, 1, (1, N_HIDDEN))
    w2 = rng.normal(0, 0.1 / N_HIDDEN**0.5, N_HIDDEN)
    params = {"W1": W1, "b1": b1, "w2": w2, "b2": output_bias}
    return {name: jnp.asarray(value, "float32") for name, value in params.items()}


def mlp(params: Params, X: Array) -> Array:
    return relu(X @ params["W1"] + params["b1"]) @ params["w2"] + params["b2"]


def create_params(rng: np.random.Generator, X: np.ndarray) -> Params:
    """θ_μ in "mean" and θ_σ² in "variance": the two blocks of the mean-variance split."""
    bias_alpha, bias_beta = np.log(np.expm1([4 - MIN_ALPHA, 0.3]))  # first α = 4, β/α = 0.3
    # "The inducing points c_i are initialized with k-means and optimized during training": with
    # min(500, N) centres and N <= 500, k-means returns the training rows.
    gate = {"c": jnp.asarray(X, "float32"), "log_gamma": jnp.log(jnp.float32(INITIAL_GAMMA))}
    mean, alpha, beta = (create_mlp(rng, X.shape[1], bias) for bias in (0.0, bias_alpha, bias_beta))
    return {"mean": mean, "variance": {"alpha": alpha, "beta": beta, "gate": gate}}


# ---- EX: extrapolation
def gate(params: Params, X: Array, own: Array | None = None) -> Array:
    """ν(δ(x)): 0 on the data, 1 far from them; ``own`` are the indices of training rows."""
    c, gamma = params["c"], jnp.exp(params["log_gamma"])
    distance = jnp.sqrt(jnp.sum((X[:, None] - c[None]) ** 2, axis=-1) + 1e-12)
    if own is not None:  # each is an inducing point itself, which here is left out of its own δ
        distance = jnp.where(own[:, None] == jnp.arange(len(c))[None], jnp.inf, distance)
    delta = jnp.min(distance, axis=1)  # δ(x) = min_i ‖c_i − x‖
    nu = sigmoid(delta / gamma - 6.9077)  # ν(δ) = sigmoid((δ + a)/γ), a ≈ −6.9077 γ
    nu_0 = sigmoid(-6.9077)  # 0.001 of Var(y) would be a floor under every variance
    return (nu - nu_0) / (1 - nu_0)  # so here ν(0) = 0 exactly


# ---- IG: inverse-Gamma variance
def predictive(params: Params, X: Array, own: Array | None = None) -> tuple[Array, Array, Array]:
    """μ(x), α(x) and β(x) of the Student-t, with the extrapolation in β."""
    variance = params["variance"]
    mu = mlp(params["mean"], X)
    alpha = MIN_ALPHA + softplus(mlp(variance["alpha"], X))
    beta = alpha * (softplus(mlp(variance["beta"], X)) + 1e-7)  # here times α: β/α is learned
    # σ̂²(x) = (1 − ν(δ(x))) σ̂_θ² + η ν(δ(x)), of the expectation E[σ²] = β/(α − 1), with α kept:
    nu = gate(variance["gate"], X, own)
    return mu, alpha, (1 - nu) * beta + nu * ETA * (alpha - 1)


def log_t(y: Array, mu: Array, alpha: Array, beta: Array) -> Array:
    """log p(y) = log ∫ N(y | μ, σ²) Inv-Gamma(σ² | α, β) dσ² = log t_{μ,α,β}(y)."""
    constant = alpha * jnp.log(beta) - gammaln(alpha) + gammaln(alpha + 0.5)
    rest = (alpha + 0.5) * jnp.log(beta + 0.5 * (y - mu) ** 2)
    return constant - rest - 0.5 * jnp.log(2 * jnp.pi)


# ---- MV: split training
class Step(NamedTuple):
    """A kind of training step: one block of the parameters learns, all others are fixed."""

    block: str
    optimiser: optax.GradientTransformation
    draw: Callable[[Array], Array]  # rows of a batch, from a key
    loss: Callable[[Params, Array], Array]  # loss of these rows


def adam(learning_rate: float) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(learning_rate))


def train(params: Params, key: Array, steps: tuple[Step, ...], n_cycles: int) -> Params:
    """Take the steps in turn, ``n_cycles`` times."""

    def run_cycle(carry, key):
        params, states = carry
        new_states = []
        keys = random.split(key, len(steps))
        for step, state, own_key in zip(steps, states, keys, strict=True):
            rows = step.draw(own_key)

            def loss(learned, step=step, params=params, rows=rows):
                return step.loss(params | {step.block: learned}, rows)

            update, state = step.optimiser.update(jax.grad(loss)(params[step.block]), state)
            params = params | {step.block: optax.apply_updates(params[step.block], update)}
            new_states.append(state)
        return (params, tuple(new_states)), None

    states = tuple(step.optimiser.init(params[step.block]) for step in steps)
    return lax.scan(run_cycle, (params, states), random.split(key, n_cycles))[0][0]


class Model(NamedTuple):
    """Parameters of the networks, and the moments that standardise X and y."""

    params: Params
    X_mean: np.ndarray
    X_std: np.ndarray
    y_mean: float
    y_std: float

    def parameters(self, X: np.ndarray) -> tuple[Array, Array, Array]:
        """μ, α and β of the Student-t predictive, in units of y."""
        mu, alpha, beta = predictive(self.params, jnp.asarray((X - self.X_mean) / self.X_std))
        return self.y_mean + self.y_std * mu, alpha, self.y_std**2 * beta

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean μ and standard deviation √(β/(α − 1))."""
        mu, alpha, beta = self.parameters(X)
        return np.asarray(mu), np.asarray(jnp.sqrt(beta / (alpha - 1)))

    def log_prob(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(log_t(jnp.asarray(y), *self.parameters(X)))


def fit(X: np.ndarray, y: np.ndarray, seeds: Sequence[int]) -> list[Model]:
    """Fit one model per seed, all at once, to X of shape (N, D) and y of shape (N,)."""
    moments = X.mean(axis=0), X.std(axis=0), float(y.mean()), float(y.std())
    X = (X - moments[0]) / moments[1]
    N, X_all, y_all = len(X), jnp.asarray(X), jnp.asarray((y - moments[2]) / moments[3])

    def squared_error(params: Params, rows: Array) -> Array:  # constant σ²
        return 0.5 * jnp.mean((y_all[rows] - mlp(params["mean"], X_all[rows])) ** 2)

    def local_step(block: str, optimiser, sampler: tuple[int, int, int]) -> Step:
        m, n, k = sampler
        lists = neighbor_lists(X, k)
        pi = jnp.asarray(inclusion(lists, m, n))

        def negative_log_likelihood(params: Params, rows: Array) -> Array:
            # Σ_i log p(y_i) ≈ Σ_{j ∈ O} 1/π_j log p(y_j); over N, never over the batch size
            log_p = log_t(y_all[rows], *predictive(params, X_all[rows], own=rows))
            return -jnp.sum(log_p / pi[rows]) / N

        draw = partial(locality_batch, neighbors=jnp.asarray(lists), m=m, n=n)
        return Step(block, optimiser, draw, negative_log_likelihood)

    by_label: dict = {"network": adam(LEARNING_RATE), "gate": adam(GATE_LEARNING_RATE)}
    labels = {"alpha": "network", "beta": "network", "gate": "gate"}
    uniform = partial(random.choice, a=N, shape=(min(BATCH_SIZE, N),), replace=False)
    warmup = Step("mean", adam(LEARNING_RATE), uniform, squared_error)
    mean = local_step("mean", adam(LEARNING_RATE), MEAN_SAMPLER)  # p(y | θ_μ)
    variance = local_step("variance", optax.multi_transform(by_label, labels), VARIANCE_SAMPLER)

    @jax.jit
    @jax.vmap
    def train_both(params: Params, key: Array) -> Params:
        keys = random.split(key)
        params = train(params, keys[0], (warmup,), N_WARMUP)
        return train(params, keys[1], (mean, variance), N_CYCLES)

    created = [create_params(np.random.default_rng(seed), X) for seed in seeds]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *created)
    trained = train_both(stacked, jnp.stack([random.key(seed) for seed in seeds]))
    return [Model(jax.tree.map(itemgetter(i), trained), *moments) for i in range(len(seeds))]


def toy_problem(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """y = x sin x + 0.3 ε₁ + 0.3 x ε₂ with x uniform on [0, 10]."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, n_rows)
    return x[:, None], x * np.sin(x) + rng.normal(0, 0.3, n_rows) + x * rng.normal(0, 0.3, n_rows)


def main() -> None:
    X, y = toy_problem(500, seed=0)
    fresh_X, fresh_y = toy_problem(10_000, seed=1)
    x = np.linspace(0.5, 9.5, 181)[:, None]
    true_std = 0.3 * np.sqrt(1 + x[:, 0] ** 2)
    far = np.array([[-4.0], [-60.0], [70.0]])
    scores = []
    for model in fit(X, y, seeds=range(10)):
        error = np.abs(model.predict(x)[1] / true_std - 1)
        averages = np.mean(model.log_prob(fresh_X, fresh_y)), np.mean(error)
        scores.append([*averages, *model.predict(far)[1] / y.std()])
    score = np.mean(scores, axis=0)
    print("means of 10 fits to the same 500 points")
    print(f"log-likelihood of a fresh point: {score[0]:.2f}")
    print(f"relative error of std on [0.5, 9.5]: {score[1]:.2f}")
    print("std at x = -4, -60 and 70, in units of std(y):", *(f"{std:.2f}" for std in score[2:]))


if __name__ == "__main__":
    main()
