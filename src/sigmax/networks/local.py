r"""The local likelihood: training rows speak for a prediction as far as a learned metric sees them.

At x, networks give a prior: a mean $\mu_0$, and an inverse-Gamma variance with $\alpha_0$ and
$\beta_0$. Each training row j adds evidence of weight
$K_j = A \exp(-\frac12 \|z(x) - z(x_j)\|^2 - \frac12 \|(x - x_j)/\ell\|^2)$, where z is an embedding
network, and the conjugate update is closed form. Where no row is near, the prediction is the prior.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from sigmax.distributions import StudentT
from sigmax.networks.doubt import toward_prior
from sigmax.networks.extrapolation import NO_CENTER, ExtrapolationGate
from sigmax.networks.heads import SMALLEST_VARIANCE
from sigmax.networks.mlp import MLP
from sigmax.networks.periodic import PeriodicFeatures

__all__ = [
    "ROWS_PER_BLOCK",
    "Evidence",
    "LocalNetwork",
    "Memory",
    "Sums",
    "View",
    "Voice",
    "listen_to",
    "sum_up",
]

EXACT = lax.Precision.HIGHEST
"""Distances and sums of squares lose their digits in the short products of accelerators."""

ROWS_PER_BLOCK = 4096
"""Training rows that are listened to at once; memory does not grow with their number."""


@final
class Voice(eqx.Module):
    r"""How loud rows speak: ``log_amplitude`` is $\ln A$, ``log_strength`` $\ln \kappa_0$.

    The prior mean counts for $\kappa_0$ rows.
    """

    log_amplitude: Float[Array, ""]
    log_strength: Float[Array, ""]


@final
class View(eqx.Module):
    """What a member's networks say of some rows by themselves."""

    seen: Float[Array, "rows seen"]
    """Their features."""
    places: Float[Array, "rows place"]
    """Where they lie in the learned metric: Euclidean distances."""
    mean: Float[Array, "rows outputs"]
    """The prior mean."""


@final
class Memory(eqx.Module):
    """Training rows that may speak."""

    places: Float[Array, "slots place"]
    """Where they lie in the learned metric."""
    residuals: Float[Array, "slots outputs"]
    """Their targets, less the prior mean."""
    weight: Float[Array, " slots"]
    """Sample weights, 0 for those who are silent."""


@final
class Sums(eqx.Module):
    """Weighted sums over training rows, per row of interest: of 1, r and r². They add up."""

    count: Float[Array, " rows"]
    total: Float[Array, "rows outputs"]
    squares: Float[Array, "rows outputs"]


@final
class Evidence(eqx.Module):
    """The prediction at some rows, and how much stands behind it."""

    dist: StudentT
    count: Float[Array, " rows"]
    """S₀: how many training rows speak."""
    epistemic_share: Float[Array, " rows"]
    """Share of the variance that is doubt about the mean: 1 / (κ + 1)."""


@final
class LocalNetwork(eqx.Module):
    """A prior for every row, and a kernel by which training rows update it."""

    features: PeriodicFeatures
    """How all networks see x."""
    embedding: MLP
    mean: MLP
    spread: MLP
    voice: Voice
    gate: ExtrapolationGate
    factor: Float[Array, ""]
    """What the held-out rows widened all scales by; no step trains it."""
    most_df: Float[Array, ""]
    """Degrees of freedom on the data, at most: what held-out rows say of the tails."""
    doubt: Float[Array, ""]
    """How far every prediction is taken to the mean and the variance of y: 0 is not at all."""
    input_scale: float = eqx.field(static=True)
    min_concentration: float = eqx.field(static=True)
    prior_variance: float = eqx.field(static=True)

    def see(self, x: Float[Array, "rows features"]) -> View:
        """What the networks say of some rows by themselves."""
        seen = self.features(x)
        places = jnp.concatenate([self.embedding(seen), x / self.input_scale], axis=1)
        return View(seen, places, self.mean(seen))

    def prior(self, view: View) -> StudentT:
        """The density on the data when nobody speaks."""
        concentration, squared_scale = jnp.split(jax.nn.softplus(self.spread(view.seen)), 2, axis=1)
        concentration = self.min_concentration + concentration
        rate = concentration * (squared_scale + SMALLEST_VARIANCE)
        return StudentT.from_inverse_gamma(view.mean, concentration, rate)

    def doubted_prior(self, view: View, gate: Float[Array, "rows 1"]) -> StudentT:
        """The prior, by which a prediction off the data tends to the mean and the variance of y.

        The mean does so later than the variance, as in `VarianceNetwork`.
        """
        prior = self.prior(view)
        unheard = prior.variance * (1 + jnp.exp(-self.voice.log_strength))
        widened = prior.widen(jnp.sqrt(1 - gate + gate * self.prior_variance / unheard))
        return StudentT((1 - gate**2) * prior.mean, widened.df, widened.scale)

    def openness(self, x: Float[Array, "rows features"]) -> Float[Array, " rows"]:
        """The gate at every row: 0 on the data, 1 far from them."""
        return self.gate(x, jnp.full(len(x), NO_CENTER))

    def weights(
        self, places: Float[Array, "rows place"], others: Float[Array, "others place"]
    ) -> Float[Array, "rows others"]:
        """K: how much the others speak for each row."""
        squared = jnp.sum(places**2, axis=1)[:, None] + jnp.sum(others**2, axis=1)[None]
        squared = squared - 2 * jnp.matmul(places, others.T, precision=EXACT)
        return self.loudness(jnp.maximum(squared, 0.0))

    def loudness(self, squared: Float[Array, "rows others"]) -> Float[Array, "rows others"]:
        """K at squared distances in the learned metric."""
        return jnp.exp(self.voice.log_amplitude - 0.5 * squared)

    def update(
        self, prior: StudentT, sums: Sums, offset: Float[Array, "rows outputs"] | None = None
    ) -> Evidence:
        """Prior and evidence to one density: the normal-inverse-Gamma update, weighted.

        Residuals are from the networks' mean; ``offset`` is how far that lies above the prior's.
        """
        own, count = jnp.exp(self.voice.log_strength), sums.count[:, None]
        strength = own + count
        average = sums.total / jnp.maximum(count, 1e-12)
        scatter = jnp.maximum(sums.squares - sums.total * average, 0.0)
        shift = average if offset is None else average + offset
        concentration = prior.df / 2
        rate = concentration * prior.scale**2 + scatter / 2
        rate = rate + 0.5 * own * count / strength * shift**2
        dist = StudentT.from_inverse_gamma(
            prior.mean + count / strength * shift,
            concentration + count / 2,
            rate * (strength + 1) / strength,
        )
        return Evidence(dist, sums.count, 1 / (own + sums.count + 1))

    def remember(
        self,
        X: Float[Array, "slots features"],
        y: Float[Array, "slots outputs"],
        weight: Float[Array, " slots"],
    ) -> Memory:
        """Training rows as this member sees them, block by block."""

        def look(x: Float[Array, "rows features"]) -> tuple[Array, Array]:
            view = self.see(x)
            return view.places, view.mean

        places, means = lax.map(look, in_blocks(X))
        return Memory(places.reshape(len(X), -1), y - means.reshape(y.shape), weight)

    def listen(self, places: Float[Array, "rows place"], memory: Memory) -> Sums:
        """What the training rows say about the rows at ``places``, block by block."""

        def add(sums: Sums, block: Memory) -> tuple[Sums, None]:
            weights = self.weights(places, block.places) * block.weight[None]
            return jax.tree.map(jnp.add, sums, sum_up(weights, block.residuals)), None

        nothing = jnp.zeros((len(places), memory.residuals.shape[1]))
        silence = Sums(nothing[:, 0], nothing, nothing)
        return lax.scan(add, silence, jax.tree.map(in_blocks, memory))[0]

    def conclude(self, view: View, gate: Float[Array, " rows"], said: Sums) -> Evidence:
        """The prediction from what was heard; the gate silences it off the data."""
        prior, shut = self.doubted_prior(view, gate[:, None]), (1 - gate)[:, None]
        heard = Sums((1 - gate) * said.count, shut * said.total, shut * said.squares)
        found = self.update(prior, heard, view.mean - prior.mean)
        dist = found.dist.with_tails(self.most_df, shut).widen(1 + (self.factor - 1) * shut)
        dist = toward_prior(dist, self.doubt, self.prior_variance)
        return Evidence(dist, found.count, found.epistemic_share)

    def __call__(self, x: Float[Array, "rows features"], memory: Memory) -> Evidence:
        """The prediction from all that is remembered."""
        view = self.see(x)
        return self.conclude(view, self.openness(x), self.listen(view.places, memory))


def sum_up(weights: Float[Array, "rows others"], residuals: Float[Array, "others outputs"]) -> Sums:
    """What the others say, in sums."""
    n_outputs = residuals.shape[1]
    terms = jnp.concatenate([jnp.ones_like(residuals[:, :1]), residuals, residuals**2], axis=1)
    sums = jnp.matmul(weights, terms, precision=EXACT)
    return Sums(sums[:, 0], sums[:, 1 : 1 + n_outputs], sums[:, 1 + n_outputs :])


def listen_to(weights: Float[Array, "rows k"], residuals: Float[Array, "rows k outputs"]) -> Sums:
    """What others say who are not the same for every row, in sums."""
    weighted = weights[:, :, None] * residuals
    return Sums(
        jnp.sum(weights, axis=1),
        jnp.sum(weighted, axis=1),
        jnp.sum(weighted * residuals, axis=1),
    )


def in_blocks(rows: Float[Array, "slots ..."]) -> Float[Array, "blocks block ..."]:
    """Rows cut into equal blocks; their number is a small one, or a multiple of the block."""
    size = min(len(rows), ROWS_PER_BLOCK)
    return rows.reshape(len(rows) // size, size, *rows.shape[1:])
