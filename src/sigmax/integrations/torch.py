"""PyTorch: locality batches for its data loaders, and predictions as its distributions.

A module to import by its name, ``from sigmax.integrations.torch import locality_loader``: it needs
PyTorch, ``pip install "sigmax[torch]"``. Lightning's trainers take the loaders as they are.
"""

# PyTorch declares more arguments than it passes on, and `mean` both ways.
# pyright: reportIncompatibleMethodOverride=false

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, final

import numpy as np

from sigmax.errors import InvalidArgumentError, MissingExtraError

try:
    import torch
    from torch import distributions
    from torch.distributions import constraints
    from torch.utils.data import DataLoader, Dataset, Sampler
except ImportError as error:
    raise MissingExtraError(
        'sigmax.integrations.torch needs PyTorch: pip install "sigmax[torch]".'
    ) from error

# JAX is imported where it is used: the worker processes of a loader have no need of it.

__all__ = [
    "LocalityBatchSampler",
    "TorchPredictive",
    "WeightedRows",
    "locality_loader",
    "to_torch",
]


@final
class LocalityBatchSampler(Sampler):
    """Locality batches as the ``batch_sampler`` of a data loader.

    The batches of a pass follow from the sampler's ``random_state``, the rank and the number of the
    pass alone: the same loader gives the same batches again, and every pass gives others. A trainer
    may say with `set_epoch` which pass is next.

    Parameters
    ----------
    sampler : LocalitySampler
        Fitted to the rows of the data set.
    n_batches : int, optional
        Batches per pass; by default so many that they have as many rows as the data set.
    rank : int
        Of this process among several that train together: each draws other batches.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import LocalitySampler
    >>> from sigmax.integrations.torch import LocalityBatchSampler
    >>> X = np.random.default_rng(0).normal(size=(240, 3))
    >>> sampler = LocalitySampler(n_primary=3, n_secondary=8, n_neighbors=10, random_state=0)
    >>> batches = LocalityBatchSampler(sampler.fit(X))
    >>> len(batches), [len(indices) for indices in batches][:3]
    (10, [24, 24, 24])
    """

    def __init__(self, sampler: Any, n_batches: int | None = None, *, rank: int = 0):
        from sigmax.checks import check_count
        from sigmax.random import draw_seed

        if not hasattr(sampler, "weights_"):
            raise InvalidArgumentError("`sampler` has no rows yet: call `sampler.fit(X)` first.")
        self.locality, self.rank, self.epoch = sampler, rank, 0
        self.seed = draw_seed(sampler.random_state)
        rows = min(sampler.n_primary, sampler.n_rows_) * min(
            sampler.n_secondary, sampler.neighbors_.shape[1]
        )
        self.n_batches = math.ceil(sampler.n_rows_ / rows)
        if n_batches is not None:
            self.n_batches = check_count("n_batches", n_batches)

    @property
    def sampler(self) -> "LocalityBatchSampler":
        """Itself: what Lightning asks for to say which epoch is next."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Say which pass is next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        # Not before the first batch is asked for: a loader with workers makes iterators in vain.
        rng = np.random.default_rng([self.seed, self.rank, self.epoch])
        self.epoch += 1
        for indices, _ in islice(self.locality.batches(rng), self.n_batches):
            yield indices.tolist()


@final
class WeightedRows(Dataset):
    """A data set whose items also have their weights.

    A tuple has the weight as its last entry, a dict as ``"weight"``; of any other item and its
    weight there is a pair.

    Examples
    --------
    >>> from sigmax.integrations.torch import WeightedRows
    >>> WeightedRows([("a", 1.0), ("b", 2.0)], [0.5, 3.0])[1]
    ('b', 2.0, tensor(3.))
    """

    def __init__(self, dataset: Any, weights: Any):
        self.dataset, self.weights = dataset, torch.as_tensor(weights).to(torch.get_default_dtype())
        if len(self.weights) != len(dataset):
            found = f"{len(dataset)} items, {len(self.weights)} weights"
            raise InvalidArgumentError(f"`weights` must be one per item, got {found}.")

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        item, weight = self.dataset[index], self.weights[index]
        if isinstance(item, dict):
            return item | {"weight": weight}
        return (*item, weight) if isinstance(item, tuple | list) else (item, weight)


def locality_loader(
    dataset: Any, sampler: Any, n_batches: int | None = None, *, rank: int = 0, **options: Any
) -> DataLoader:
    """A loader of locality batches, every item with its Horvitz-Thompson weight.

    Multiply the loss of every item by its weight, sum, and divide by ``len(dataset)``, never by the
    size of the batch: that is an unbiased estimate of the mean loss of the whole data set.

    Parameters
    ----------
    dataset : Dataset
        Items by number, as many as the rows that the sampler was fitted to.
    sampler : LocalitySampler
        Fitted.
    n_batches, rank
        As in `LocalityBatchSampler`.
    options
        Of the ``DataLoader``, such as ``num_workers``.

    Notes
    -----
    Workers of a process in which JAX runs should not be forked, but started anew: pass
    ``multiprocessing_context="spawn"`` beside ``num_workers``. A Lightning trainer on several
    devices needs ``use_distributed_sampler=False``, and a loader with its ``rank`` on each.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from torch.utils.data import TensorDataset
    >>> from sigmax import LocalitySampler
    >>> from sigmax.integrations.torch import locality_loader
    >>> X = torch.randn(200, 3)
    >>> sampler = LocalitySampler(n_primary=3, n_secondary=8, n_neighbors=10, random_state=0)
    >>> loader = locality_loader(TensorDataset(X, X.sum(dim=1)), sampler.fit(X.numpy()))
    >>> [part.shape for part in next(iter(loader))]
    [torch.Size([24, 3]), torch.Size([24]), torch.Size([24])]
    """
    batches = LocalityBatchSampler(sampler, n_batches, rank=rank)
    return DataLoader(WeightedRows(dataset, sampler.weights_), batch_sampler=batches, **options)


def to_torch(dist: Any, dtype: torch.dtype = torch.float64, device: Any = None) -> Any:
    """A prediction as a distribution of PyTorch with the same values.

    A Normal and a Student-t are PyTorch's own, and a mixture of them is its ``MixtureSameFamily``.
    A target that was learned through a monotone map has a `TorchPredictive`, which can also be
    made of any other prediction: it has the cdf and the quantiles that PyTorch's Student-t lacks.

    Parameters
    ----------
    dist : Predictive, or one of `sigmax.distributions`
        What `predict_dist` of an estimator gives.
    dtype, device
        Of the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax.distributions import Mixture, Normal, Predictive
    >>> from sigmax.integrations.torch import to_torch
    >>> members = Normal(np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]))  # 2 members, 1 row
    >>> dist = to_torch(Predictive(Mixture(members)))
    >>> dist.mean, dist.variance
    (tensor([1.], dtype=torch.float64), tensor([2.], dtype=torch.float64))
    """
    from sigmax.distributions import Bounded, Mapped

    density = getattr(dist, "dist", dist)
    if isinstance(density, Bounded | Mapped):
        return TorchPredictive(dist, dtype, device)
    return native(density, dtype, device)


def native(density: Any, dtype: torch.dtype, device: Any) -> Any:
    """A density without a map as a distribution of PyTorch's own."""
    from sigmax.distributions import Mixture, Normal, StudentT

    def tensor(leaf: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(leaf), dtype=dtype, device=device)

    if isinstance(density, Normal):
        return distributions.Normal(tensor(density.mean), tensor(density.std))
    if isinstance(density, StudentT):
        return distributions.StudentT(
            tensor(density.df), tensor(density.mean), tensor(density.scale)
        )
    if not isinstance(density, Mixture):
        raise InvalidArgumentError(f"`dist` must be a prediction of sigmax, got {density!r}.")

    def last(leaf: Any) -> np.ndarray:
        return np.moveaxis(np.asarray(leaf), 0, -1)

    import jax

    components = jax.tree.map(last, density.components)
    logits = np.zeros(components.shape)
    if density.log_weight is not None:
        logits = last(density.log_weight)
    weights = distributions.Categorical(logits=tensor(logits))
    return distributions.MixtureSameFamily(weights, native(components, dtype, device))


@final
class TorchPredictive(distributions.Distribution):
    """A prediction as a distribution of PyTorch, by its values.

    `log_prob` is computed by PyTorch and so has a gradient with respect to the value. All else is
    what the prediction itself says, without gradients. Draws follow ``torch.manual_seed``.

    Parameters
    ----------
    dist : Predictive, or one of `sigmax.distributions`
        What `predict_dist` of an estimator gives.
    dtype, device
        Of what it returns.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from sigmax.distributions import StudentT
    >>> from sigmax.integrations.torch import TorchPredictive
    >>> dist = TorchPredictive(StudentT(np.array([0.0]), np.array([4.0]), np.array([1.0])))
    >>> dist.cdf(torch.tensor([1.0])).round(decimals=3)
    tensor([0.8130], dtype=torch.float64)
    """

    arg_constraints: Any = {}  # noqa: RUF012 - as PyTorch has it
    support: Any = constraints.real

    def __init__(self, dist: Any, dtype: torch.dtype = torch.float64, device: Any = None):
        from sigmax.distributions import Bounded, Mapped, Predictive

        self.predictive = dist if isinstance(dist, Predictive) else Predictive(dist)
        self.dtype, self.device = dtype, torch.device("cpu" if device is None else device)
        density, self.bounds = self.predictive.dist, None
        if isinstance(density, Bounded):
            bounds = density.low, density.high
            self.bounds = [torch.tensor(bound, dtype=dtype, device=device) for bound in bounds]
            density = density.base
        self.spline = None
        if isinstance(density, Mapped):
            self.spline, density = density.spline, density.base
        self.base = native(density, dtype, device)
        super().__init__(torch.Size(self.predictive.shape), validate_args=False)

    @property
    def mean(self) -> torch.Tensor:
        """Mean."""
        return self._tensor(self.predictive.mean)

    @property
    def variance(self) -> torch.Tensor:
        """Variance, aleatoric and epistemic together."""
        return self._tensor(self.predictive.variance)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Logarithm of the density, with a gradient; leading axes are those of several values."""
        if self.spline is None:
            found = self.base.log_prob(value)
        else:
            mapped, log_slope = through_map(self.spline, value.to(self.dtype))
            found = self.base.log_prob(mapped) + log_slope
        if self.bounds is None:
            return found
        low, high = self.bounds
        return torch.where((value >= low) & (value <= high), found, -torch.inf)

    def cdf(self, value: torch.Tensor) -> torch.Tensor:
        """Probability of at most ``value``."""
        return self._by_value(self.predictive.cdf, value)

    def icdf(self, value: torch.Tensor) -> torch.Tensor:
        """Quantiles at the levels ``value``."""
        return self._by_value(self.predictive.inverse_cdf, value)

    def sample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Independent draws, along new first axes."""
        shape = torch.Size(sample_shape)
        seed = int(torch.randint(2**31 - 1, ()).item())
        draws = self.predictive.sample(math.prod(shape), random_state=seed)
        return self._tensor(draws).reshape(*shape, *self.batch_shape)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """Of the same shape only: a prediction has the rows that it has."""
        if torch.Size(batch_shape) != self.batch_shape:
            raise InvalidArgumentError(f"A prediction has the shape {tuple(self.batch_shape)}.")
        return self

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, dtype=self.dtype, device=self.device)

    def _by_value(self, function: Any, value: Any) -> torch.Tensor:
        """A function of one number per density, for several of each along leading axes."""
        values = torch.as_tensor(value, dtype=self.dtype).detach().cpu().numpy()
        shape = np.broadcast_shapes(values.shape, self.predictive.shape)
        flat = np.broadcast_to(values, shape).reshape(-1, *self.predictive.shape)
        return self._tensor(np.stack([function(one) for one in flat]).reshape(shape))


def through_map(spline: Any, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a `MonotoneSpline` makes of values, and the logarithm of its slope there."""
    knots = [
        torch.tensor(np.asarray(leaf), dtype=value.dtype, device=value.device)
        for leaf in (spline.x, spline.y, spline.slope)
    ]
    inner = knots[0][1:-1]  # (knots,), or (knots, outputs)
    inner = inner.reshape(len(inner), *[1] * (value.ndim + 1 - inner.ndim), *inner.shape[1:])
    index = torch.sum(value >= inner, dim=0)
    outputs = [torch.arange(size, device=value.device) for size in knots[0].shape[1:]]
    left, right = ([leaf[(at, *outputs)] for leaf in knots] for at in (index, index + 1))
    width, height = right[0] - left[0], right[1] - left[1]
    secant = height / width
    share = torch.clamp((value - left[0]) / width, 0.0, 1.0)
    product = share * (1 - share)
    below = secant + (left[2] + right[2] - 2 * secant) * product
    inside = left[1] + height * (secant * share**2 + left[2] * product) / below
    lower = torch.clamp(value - knots[0][0], max=0.0) * knots[2][0]
    upper = torch.clamp(value - knots[0][-1], min=0.0) * knots[2][-1]
    above = right[2] * share**2 + 2 * secant * product + left[2] * (1 - share) ** 2
    return inside + lower + upper, 2 * torch.log(secant / below) + torch.log(above)
