"""A `LocalRegressor` as a model of BoTorch."""

import copy
from typing import Any, final

from botorch.exceptions import UnsupportedError
from botorch.models.model import Model
from torch import Size, Tensor

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.estimators import LocalRegressor
from sigmax.integrations.botorch.bridge import FittedMembers, moments
from sigmax.integrations.botorch.posterior import MemberPosterior
from sigmax.integrations.surrogates import fit_surrogate

__all__ = ["SigmaxModel", "fit_sigmax_model"]


@final
class SigmaxModel(Model):
    """A fitted `LocalRegressor` of one target as a model of BoTorch.

    The posterior is a `MemberPosterior`: that of the mean of y, or with ``observation_noise=True``
    that of y. Acquisition functions of BoTorch maximise; to minimise, give ``-Y``.

    Parameters
    ----------
    estimator : LocalRegressor
        Fitted with ``n_trees=0`` and ``target_map="none"``: forests have no gradient, and a map of
        the target has no variance in closed form. `fit_sigmax_model` does so.

    Examples
    --------
    >>> import torch
    >>> X = torch.rand(20, 2, dtype=torch.double)
    >>> Y = -((X - 0.5) ** 2).sum(dim=-1, keepdim=True)
    >>> model = fit_sigmax_model(X, Y, preset="fast", n_steps=20, random_state=0)
    >>> model.posterior(torch.rand(4, 3, 2, dtype=torch.double)).mean.shape
    torch.Size([4, 3, 1])
    """

    def __init__(self, estimator: LocalRegressor):
        super().__init__()
        self.estimator = estimator
        self.fitted = FittedMembers.of(estimator)

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> Size:
        return Size()

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """The joint posterior at the q points of every batch of ``X`` (batch, q, d).

        Parameters
        ----------
        X : Tensor
            Numbers, and categories by the numbers that the model was fitted with.
        output_indices : None or [0]
            There is one output.
        observation_noise : bool or Tensor
            False for the mean of y, True for y; a tensor is a noise variance of your own.
        posterior_transform
            Applied to the posterior, if given.
        """
        if output_indices not in (None, [0]):
            raise InvalidArgumentError(f"`output_indices` must be [0], got {output_indices!r}.")
        X = self.transform_inputs(X)
        *batch, q, d = X.shape
        found = moments(self.estimator, self.fitted, X.reshape(-1, d))

        def by_batch(values: Tensor) -> Tensor:
            """Members behind the batch, before the points."""
            shaped = values.reshape(len(values), *batch, q, *values.shape[2:])
            return shaped.movedim(0, len(batch))

        noise = None
        if isinstance(observation_noise, Tensor):
            noise = observation_noise.to(X).squeeze(-1).unsqueeze(-2)
        elif observation_noise:
            noise = by_batch(found.noise_variance)
        posterior = MemberPosterior(
            by_batch(found.mean), by_batch(found.own_variance), noise, by_batch(found.coordinates)
        )
        if posterior_transform is None:
            return posterior
        return posterior_transform(posterior=posterior, X=X)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> "SigmaxModel":
        """A model that also remembers rows ``X`` (n, d) with ``Y`` (n, 1), without training.

        The networks stay as they are; fit anew every few rows. This model is left alone.
        """
        if X.ndim != 2 or Y.ndim != 2:
            raise UnsupportedError("SigmaxModel is conditioned on one batch of rows at a time.")
        rows, targets = as_arrays(self.transform_inputs(X), Y)
        estimator = copy.deepcopy(self.estimator).partial_remember(rows, targets)
        conditioned = SigmaxModel(estimator)
        if hasattr(self, "input_transform"):
            conditioned.input_transform = self.input_transform
        return conditioned.eval()


def fit_sigmax_model(
    train_X: Tensor, train_Y: Tensor, *, noise_free: bool = False, **settings: Any
) -> SigmaxModel:
    """A model of BoTorch, fitted to rows ``train_X`` (n, d) with ``train_Y`` (n, 1).

    There are neither forests nor a map of the target, and fewer than 200 rows are not recalibrated.

    Parameters
    ----------
    train_X, train_Y : Tensor
        In units of your own: both are standardised inside.
    noise_free : bool, default False
        Say so if the same X always gives the same Y. Fewer than 200 rows are then learned as they
        are: none is held out to stop the training early.
    settings
        Of `LocalRegressor`, ``categorical_features`` and ``random_state`` among them.
    """
    rows = as_arrays(train_X, train_Y)
    return SigmaxModel(fit_surrogate(*rows, noise_free=noise_free, **settings)).eval()


def as_arrays(X: Tensor, Y: Tensor) -> tuple[Any, Any]:
    """Rows and targets as the estimator takes them."""
    if X.ndim != 2 or Y.shape != (len(X), 1):
        shapes = f"{tuple(X.shape)} and {tuple(Y.shape)}"
        raise InvalidDataError(f"X and Y must have shapes (n, d) and (n, 1), got {shapes}.")
    return X.detach().cpu().double().numpy(), Y.detach().cpu().double().numpy()[:, 0]
