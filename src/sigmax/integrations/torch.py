"""PyTorch: locality batches for its data loaders, and predictions as its distributions.

It needs PyTorch, ``pip install "sigmax[torch]"``. Lightning's trainers take the loaders as well.
"""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, final

import numpy as np

from sigmax.errors import InvalidArgumentError, MissingExtraError

with MissingExtraError.unless_imported("sigmax.integrations.torch needs PyTorch", "torch"):
    import torch
    from torch import distributions
    from torch.utils.data import DataLoader, Dataset, Sampler

# JAX is imported where it is used: the worker processes of a loader do not need it.


@final
class LocalityBatchSampler(Sampler):
    """Locality batches as the ``batch_sampler`` of a data loader.

    The batches of a pass depend only on the sampler's ``random_state``, the rank and the number of
    the pass: runs can be repeated, and passes differ. A trainer may set the number by `set_epoch`.

    Parameters
    ----------
    sampler : LocalitySampler
        Fitted to the rows of the data set.
    n_batches : int, optional
        Batches per pass; by default enough for as many rows as the data set has.
    rank : int
        Rank of this process among several that train together: each draws other batches.

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
        from sigmax.random import draw_seed
        from sigmax.settings import check_count

        if not hasattr(sampler, "weights_"):
            raise InvalidArgumentError("`sampler` has no rows yet: call `sampler.fit(X)` first.")
        self.locality, self.rank, self.epoch = sampler, rank, 0
        self.seed = draw_seed(sampler.random_state)
        if n_batches is None:
            n_rows, k = sampler.neighbors_.shape
            batch_size = min(sampler.n_primary, n_rows) * min(sampler.n_secondary, k)
            n_batches = math.ceil(n_rows / batch_size)
        self.n_batches = check_count("n_batches", n_batches)

    @property
    def sampler(self) -> "LocalityBatchSampler":
        """The object itself, on which Lightning calls `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        # When the first batch is drawn: a loader with workers also creates unused iterators.
        rng = np.random.default_rng([self.seed, self.rank, self.epoch])
        self.epoch += 1
        for indices, _ in islice(self.locality.batches(rng), self.n_batches):
            yield indices.tolist()


@final
class WeightedRows(Dataset):
    """A data set whose items also have their weights.

    A tuple gets the weight as its last entry, a dict as ``"weight"``; any other item becomes a pair
    of the item and its weight.

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
    """Create a loader of locality batches, every item with its Horvitz-Thompson weight.

    Multiply the loss of every item by its weight, sum, and divide by ``len(dataset)``, never by the
    size of the batch: that is an unbiased estimate of the mean loss of the whole data set.

    Parameters
    ----------
    dataset : Dataset
        Items by number, one for each row that the sampler was fitted to.
    sampler : LocalitySampler
        Fitted sampler.
    n_batches, rank
        As in `LocalityBatchSampler`.
    options
        Options of the ``DataLoader``, such as ``num_workers``.

    Notes
    -----
    Workers of a process in which JAX runs should not be forked: pass
    ``multiprocessing_context="spawn"`` with ``num_workers``. A Lightning trainer on several devices
    needs ``use_distributed_sampler=False``, and a loader with its ``rank`` on each.

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
    """Convert a prediction to a distribution of PyTorch with the same values.

    Normal and Student-t distributions become PyTorch's, a mixture its ``MixtureSameFamily``. A
    prediction of a transformed or bounded target has no counterpart in PyTorch and raises an error.

    Parameters
    ----------
    dist : Predictive, or one of `sigmax.distributions`
        Result of `predict_dist` of an estimator, or a density.
    dtype, device
        Type and device of the parameters.

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
    import jax

    from sigmax.distributions import Bounded, Mixture, Normal, StudentT

    density = getattr(dist, "dist", dist)
    if isinstance(density, Bounded):
        rule = "without bounds of the target"
        how = "fit with `support=(None, None)`"
        raise InvalidArgumentError(f"`dist` must be {rule}, which PyTorch does not have: {how}.")

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

    components = jax.tree.map(last, density.components)
    is_equal = density.log_weight is None
    logits = np.zeros(components.shape) if is_equal else last(density.log_weight)
    weights = distributions.Categorical(logits=tensor(logits))
    return distributions.MixtureSameFamily(weights, to_torch(components, dtype, device))
