"""A fitted estimator as a model of BoTorch."""

from typing import Any, final

from botorch.models.model import FantasizeMixin, Model
from torch import Size, Tensor

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.estimators import AbstractGPRegressor, AbstractRegressor, LocalRegressor
from sigmax.integrations.botorch.members import AbstractMembers, LocalMembers, ProcessMembers
from sigmax.integrations.botorch.posterior import MemberPosterior
from sigmax.integrations.surrogates import fit_surrogate


@final
class SigmaxModel(Model, FantasizeMixin):
    """A fitted estimator of one target as a model of BoTorch.

    The posterior is a `MemberPosterior`: that of the mean of y, or with ``observation_noise=True``
    that of y. Acquisition functions of BoTorch maximise; to minimise, give ``-Y``.

    Parameters
    ----------
    estimator : GPRegressor, SparseGPRegressor or LocalRegressor
        Fitted. A `LocalRegressor` with ``n_trees=0`` and ``target_map="none"``: forests have no
        gradient, and a map of the target has no variance in closed form. `fit_sigmax_model` does
        so.
    members : optional
        What stands for the estimator, if not the members that it was fitted with.

    Examples
    --------
    >>> import torch
    >>> X = torch.rand(20, 2, dtype=torch.double)
    >>> Y = -((X - 0.5) ** 2).sum(dim=-1, keepdim=True)
    >>> model = fit_sigmax_model(X, Y, random_state=0)
    >>> model.posterior(torch.rand(4, 3, 2, dtype=torch.double)).mean.shape
    torch.Size([4, 3, 1])
    """

    likelihood = None  # no GPyTorch likelihood: `fantasize` asks for it

    def __init__(self, estimator: AbstractRegressor, members: AbstractMembers | None = None):
        super().__init__()
        self.estimator = estimator
        self.members = members_of(estimator) if members is None else members

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> Size:
        return self.members.batch_shape

    def posterior(  # pyright: ignore[reportIncompatibleMethodOverride]
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
        found = self.members.joint(X.double().cpu())
        noise = None
        if isinstance(observation_noise, Tensor):
            noise = observation_noise.to(X).squeeze(-1).unsqueeze(-2).expand(found.mean.shape)
        elif observation_noise:
            noise = found.noise_variance.to(X)
        posterior = MemberPosterior(found.mean.to(X), found.covariance.to(X), noise)
        if posterior_transform is None:
            return posterior
        return posterior_transform(posterior=posterior, X=X)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> "SigmaxModel":
        """A model that also knows rows ``X`` (batch, n, d) with ``Y`` (batch, n, 1).

        Nothing is trained: hyper-parameters and networks stay as they are; fit anew every few rows.
        This model is left alone. Several batches are alternatives, as `fantasize` makes them; a
        `LocalRegressor` takes one batch at a time.

        Parameters
        ----------
        X, Y : Tensor
        noise : Tensor, optional
            The variance of the noise of ``Y``; without, what the model expects there. A
            `LocalRegressor` learns it itself.
        """
        rows = self.transform_inputs(X).double().cpu(), Y.double().cpu().squeeze(-1)
        variance = None if noise is None else noise.double().cpu().squeeze(-1)
        members = self.members.conditioned(*rows, variance)
        conditioned = SigmaxModel(members.estimator, members)
        if hasattr(self, "input_transform"):
            conditioned.input_transform = self.input_transform
        return conditioned.eval()


def fit_sigmax_model(
    train_X: Tensor,
    train_Y: Tensor,
    *,
    kind: str = "auto",
    noise_free: bool = False,
    **settings: Any,
) -> SigmaxModel:
    """A model of BoTorch, fitted to rows ``train_X`` (n, d) with ``train_Y`` (n, 1).

    Parameters
    ----------
    train_X, train_Y : Tensor
        In units of your own: both are standardised inside.
    kind : "auto", "gp" or "local", default "auto"
        "gp" is a `GPRegressor` averaged over its hyper-parameters, whose noise may depend on x;
        "local" a `LocalRegressor` without forests and maps of the target. "auto" takes the process
        up to 1,000 rows.
    noise_free : bool, default False
        Say so if the same X always gives the same Y.
    settings
        Of the estimator, ``categorical_features`` and ``random_state`` among them.
    """
    rows = as_arrays(train_X, train_Y)
    return SigmaxModel(fit_surrogate(*rows, kind=kind, noise_free=noise_free, **settings)).eval()


def members_of(estimator: AbstractRegressor) -> AbstractMembers:
    """The members that it was fitted with."""
    if isinstance(estimator, LocalRegressor):
        return LocalMembers.create(estimator)
    if isinstance(estimator, AbstractGPRegressor):
        return ProcessMembers.create(estimator)
    name = type(estimator).__name__
    kinds = "GPRegressor, SparseGPRegressor or LocalRegressor"
    raise InvalidArgumentError(f"`estimator` must be a fitted {kinds}, got a {name}.")


def as_arrays(X: Tensor, Y: Tensor) -> tuple[Any, Any]:
    """Rows and targets as the estimator takes them."""
    if X.ndim != 2 or Y.shape != (len(X), 1):
        shapes = f"{tuple(X.shape)} and {tuple(Y.shape)}"
        raise InvalidDataError(f"X and Y must have shapes (n, d) and (n, 1), got {shapes}.")
    return X.detach().cpu().double().numpy(), Y.detach().cpu().double().numpy()[:, 0]
