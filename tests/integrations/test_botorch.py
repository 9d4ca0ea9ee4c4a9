"""BoTorch's model, posterior and optimisation, against `predict_dist` and finite differences."""

import copy
import importlib
import sys
import warnings
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
import torch
from botorch.acquisition import (
    UpperConfidenceBound,
    qKnowledgeGradient,
    qLogNoisyExpectedImprovement,
)
from botorch.models import ModelList
from botorch.optim import optimize_acqf, optimize_acqf_mixed
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.get_sampler import get_sampler

from sigmax import MeanVarianceRegressor, SparseGPRegressor
from sigmax.errors import InvalidArgumentError, InvalidDataError, MissingExtraError
from sigmax.experts.gaussian_process.inference import (
    GPRows,
    Hyper,
    exact_posterior,
    predict_latent,
    predict_noise,
)
from sigmax.integrations.botorch import MemberPosterior, SigmaxModel, fit_sigmax_model

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)


def points(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.double, generator=generator)


def value(X: torch.Tensor) -> torch.Tensor:
    """A hill at (0.3, 0.6)."""
    return -((X - torch.tensor([0.3, 0.6], dtype=X.dtype)) ** 2).sum(dim=-1, keepdim=True)


@pytest.fixture(scope="module")
def train_X() -> torch.Tensor:
    return points(40, 2, seed=1)


@pytest.fixture(scope="module")
def train_Y(train_X) -> torch.Tensor:
    noise = 0.01 * torch.randn(40, 1, generator=torch.Generator().manual_seed(0))
    return 10 + value(train_X) + noise


@pytest.fixture(scope="module")
def model(train_X, train_Y) -> SigmaxModel:
    return fit_sigmax_model(train_X, train_Y, random_state=0, n_restarts=1)


def test_mean_and_variance_are_those_of_predict_dist(model):
    X = 1.6 * points(60, 2) - 0.3  # on the data and off them
    dist = model.estimator.predict_dist(X.numpy())
    posterior, of_y = model.posterior(X), model.posterior(X, observation_noise=True)
    np.testing.assert_allclose(posterior.mean[:, 0], dist.mean, rtol=1e-5)
    np.testing.assert_allclose(posterior.variance[:, 0], dist.epistemic_variance, rtol=1e-4)
    np.testing.assert_allclose(of_y.variance[:, 0], dist.variance, rtol=1e-4)
    assert posterior.mean.dtype == torch.double


def test_conditioned_processes_are_those_of_all_rows(model, train_X, train_Y):
    """With the hyper-parameters of the fit, by another way: one Cholesky factor of all rows."""
    estimator, X, Y = model.estimator, points(3, 2, seed=5), torch.tensor([[9.0], [9.5], [11.0]])
    before = model.posterior(X).mean
    conditioned = model.condition_on_observations(X[:2], Y[:2].double())
    conditioned = conditioned.condition_on_observations(X[2:], Y[2:].double())
    rows, at = torch.cat([train_X, X]).numpy(), points(6, 2, seed=6)
    fitted, scale = estimator.model_.fitted, float(estimator.model_.target.scaling.scale[0])
    target = (torch.cat([train_Y, Y]).numpy()[:, 0] - train_Y.mean().item()) / scale
    with jax.enable_x64(True):
        Z, Z_at = (
            fitted.coordinates(estimator.model_.encode(estimator.read(own)))
            for own in (rows, at.numpy())
        )
        draws = jax.tree.map(lambda leaf: leaf[0], fitted.posterior)
        weight = np.exp(np.asarray(draws.hyper.log_noise))[:, None] / np.asarray(
            predict_noise(draws, Z)
        )
        expected = [
            exact_posterior(hyper, GPRows(Z, target, w), np.asarray(1e-8))
            for hyper, w in zip(each(draws.hyper), weight, strict=True)
        ]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *expected)
        mean, variance = map(np.asarray, predict_latent(stacked, Z_at))
    posterior = conditioned.posterior(at)
    expected_mean = train_Y.mean().item() + scale * mean
    np.testing.assert_allclose(posterior.member_means, expected_mean, rtol=1e-6)
    growth = estimator.df_ / (estimator.df_ - 2)
    own = posterior.own_covariance.diagonal(dim1=-2, dim2=-1)
    np.testing.assert_allclose(own, growth * scale**2 * variance, rtol=1e-3, atol=1e-9)
    assert torch.equal(model.posterior(X).mean, before)


def each(hyper: Hyper) -> list[Hyper]:
    return [jax.tree.map(lambda leaf, i=i: leaf[i], hyper) for i in range(len(hyper.log_noise))]


def test_sparse_processes_are_models_too(train_X, train_Y):
    estimator = SparseGPRegressor(n_inducing=20, n_restarts=1, max_iter=20, random_state=0)
    model = SigmaxModel(estimator.fit(train_X.numpy(), train_Y.numpy()[:, 0]))
    X = points(20, 2)
    posterior, dist = model.posterior(X, observation_noise=True), estimator.predict_dist(X.numpy())
    np.testing.assert_allclose(posterior.mean[:, 0], dist.mean, rtol=1e-6)
    np.testing.assert_allclose(posterior.variance[:, 0], dist.variance, rtol=1e-6)


def test_many_rows_get_a_sparse_process():
    X = points(1001, 2)
    quick: dict[str, Any] = {"n_inducing": 30, "n_restarts": 1, "max_iter": 10, "random_state": 0}
    model = fit_sigmax_model(X, value(X), **quick)
    assert isinstance(model.estimator, SparseGPRegressor)
    torch.testing.assert_close(model.posterior(X[:9]).mean, value(X[:9]), rtol=0, atol=0.02)


def test_alternative_measurements_are_batches(model):
    X, Y = points(2, 3, 2, seed=7), 10 + points(4, 2, 3, 1, seed=8)
    both = model.condition_on_observations(X, Y)
    assert both.batch_shape == (4, 2)
    at = points(2, 5, 2, seed=9)
    found = both.posterior(at)
    assert found.mean.shape == (4, 2, 5, 1)
    one = model.condition_on_observations(X[1], Y[2, 1]).posterior(at[1])
    torch.testing.assert_close(found.mean[2, 1], one.mean)
    torch.testing.assert_close(found.covariance_matrix[2, 1], one.covariance_matrix)
    known = model.condition_on_observations(X[1], Y[2, 1], noise=torch.full((3, 1), 1e-12))
    torch.testing.assert_close(known.posterior(X[1]).mean, Y[2, 1], rtol=1e-3, atol=1e-3)


def test_fantasies_tell_what_knowledge_is_worth(model):
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    assert model.fantasize(points(2, 1, 2), sampler).batch_shape == (4, 2)
    gradient = qKnowledgeGradient(model, num_fantasies=4)
    assert optimised(gradient, q=1).shape == (1, 2)


@pytest.mark.parametrize("observation_noise", [False, True])
def test_draws_have_the_mean_and_the_covariance(model, observation_noise):
    """The largest of 30 differences exceeds 5 standard errors in under 1 of 10 000 seeds."""
    posterior = model.posterior(points(2, 3, 2), observation_noise=observation_noise)
    torch.manual_seed(0)
    n, draws = 40_000, posterior.rsample(torch.Size([40_000]))[..., 0]
    covariance, mean = posterior.covariance_matrix, posterior.mean[..., 0]
    variance = posterior.variance[..., 0]
    torch.testing.assert_close(covariance.diagonal(dim1=-2, dim2=-1), variance)
    assert ((draws.mean(dim=0) - mean).abs() < 5 * (variance / n).sqrt()).all()
    apart = draws - mean
    products = apart.unsqueeze(-1) * apart.unsqueeze(-2)
    error = products.std(dim=0) / n**0.5
    assert ((products.mean(dim=0) - covariance).abs() < 5 * error).all()


def test_near_points_move_together_and_far_ones_hardly(model):
    X = torch.tensor([[0.5, 0.5], [0.5001, 0.5], [0.0, 1.0]], dtype=torch.double)
    posterior = model.posterior(X)
    std = posterior.variance.sqrt()
    correlation = posterior.covariance_matrix / (std * std.T)
    assert correlation[0, 1] > 0.999
    assert abs(correlation[0, 2]) < 0.95
    noisy = model.posterior(X, observation_noise=torch.full((3, 1), 4.0))
    torch.testing.assert_close(noisy.variance, posterior.variance + 4.0)
    torch.testing.assert_close(noisy.covariance_matrix[0, 1], posterior.covariance_matrix[0, 1])


def test_gradients_are_finite_differences(model):
    X = (1.6 * points(4, 2, 2, seed=3) - 0.3).requires_grad_()  # on the data and off them
    base = torch.randn(8, 4, 3, 1, dtype=torch.double, generator=torch.Generator().manual_seed(0))

    def total(X: torch.Tensor) -> torch.Tensor:
        posterior = model.posterior(X)
        return posterior.rsample_from_base_samples(torch.Size([8]), base).square().sum()

    torch.autograd.gradcheck(total, X, eps=1e-5, rtol=1e-4, atol=1e-4)


def test_batches_of_any_shape_give_the_same_numbers(model):
    X = points(2, 3, 4, 2)
    found = model.posterior(X)
    assert found.mean.shape == found.variance.shape == (2, 3, 4, 1)
    assert found.covariance_matrix.shape == (2, 3, 4, 4)
    one = model.posterior(X[1, 2])
    torch.testing.assert_close(one.mean, found.mean[1, 2])
    torch.testing.assert_close(one.covariance_matrix, found.covariance_matrix[1, 2])
    sampler = get_sampler(found, torch.Size([16]), seed=0)
    assert isinstance(sampler, SobolQMCNormalSampler)
    assert sampler(found).shape == (16, 2, 3, 4, 1)
    torch.testing.assert_close(sampler(found)[:, 1, 2], sampler(one))
    single = model.posterior(X.float())
    assert single.mean.dtype == torch.float32
    torch.testing.assert_close(single.mean, found.mean.float(), rtol=1e-4, atol=1e-4)
    assert model.posterior(points(0, 1, 2)).mean.shape == (0, 1, 1)
    with pytest.raises(ValueError, match=r"`base_samples` must have shape \(5, 5, 1\)"):
        one.rsample_from_base_samples(torch.Size([5]), torch.zeros(5, 4, 1))


def optimised(acquisition, **options) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where the gate has a kink
        torch.manual_seed(0)
        found, _ = optimize_acqf(
            acquisition, BOUNDS, num_restarts=2, raw_samples=64, options={"maxiter": 30}, **options
        )
    return found


def test_acquisition_functions_find_the_top_of_a_hill(model, train_X):
    top = optimised(UpperConfidenceBound(model, beta=0.01), q=1)
    assert (top - torch.tensor([[0.3, 0.6]])).abs().max() < 0.15
    sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
    improvement = qLogNoisyExpectedImprovement(model, train_X, sampler=sampler)
    pair = optimised(improvement, q=2)
    assert pair.shape == (2, 2)
    assert value(pair).max() > value(train_X).quantile(0.9)


def test_categories_are_optimised_with_the_rest():
    """The second of three categories is best by 1, whatever the number."""
    X = torch.stack([points(45), torch.arange(45, dtype=torch.double) % 3], dim=1)
    Y = value_of_category(X)
    model = fit_sigmax_model(X, Y, categorical_features=[1], random_state=0)
    dist = model.estimator.predict_dist(X.numpy())
    np.testing.assert_allclose(model.posterior(X).mean[:, 0], dist.mean, rtol=1e-4, atol=1e-5)
    inner = X[1:2]  # the first row is the least of all, the bound of the training data
    at = inner.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.posterior(at).mean.sum(), at)
    step = torch.tensor([[1e-5, 0.0]], dtype=torch.double)
    slope = (model.posterior(inner + step).mean - model.posterior(inner - step).mean) / 2e-5
    expected = torch.cat([slope, torch.zeros_like(slope)], dim=1)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        torch.manual_seed(0)
        found, _ = optimize_acqf_mixed(
            UpperConfidenceBound(model, beta=0.01),
            torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.double),
            q=1,
            num_restarts=2,
            raw_samples=16,
            options={"maxiter": 20},
            fixed_features_list=[{1: float(level)} for level in range(3)],
        )
    assert found[0, 1] == 1.0
    assert abs(found[0, 0] - 0.5) < 0.25


def value_of_category(X: torch.Tensor) -> torch.Tensor:
    return ((X[:, 1] == 1).double() - (X[:, 0] - 0.5) ** 2)[:, None]


def test_several_targets_are_several_models(model):
    found: Any = ModelList(model, model).posterior(points(3, 2))
    assert found.mean.shape == (3, 2)
    with pytest.raises(InvalidArgumentError, match=r"`output_indices` must be \[0\]"):
        model.posterior(points(1, 2), output_indices=[1])


def test_other_estimators_raise_an_error(model):
    two = copy.deepcopy(model.estimator)
    two.model_ = replace(two.model_, is_single_output=False)
    with pytest.raises(InvalidArgumentError, match="has one target"):
        SigmaxModel(two)
    with pytest.raises(InvalidArgumentError, match="or SparseGPRegressor, got a MeanVariance"):
        SigmaxModel(MeanVarianceRegressor())
    with pytest.raises(InvalidArgumentError, match="GPRegressor has no setting preset"):
        fit_sigmax_model(points(4, 2), points(4, 1), preset="fast")
    with pytest.raises(InvalidDataError, match=r"shapes \(n, d\) and \(n, 1\), got \(3, 2\)"):
        fit_sigmax_model(torch.zeros(3, 2), torch.zeros(3))
    assert isinstance(model.posterior(points(1, 2)), MemberPosterior)


def test_without_botorch_one_sentence_says_what_to_install(monkeypatch):
    loaded = [name for name in sys.modules if name.split(".")[0] == "botorch"]
    for name in ("botorch", *loaded):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "sigmax.integrations.botorch")
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module("sigmax.integrations.botorch")
    message = 'sigmax.integrations.botorch needs BoTorch: pip install "sigmax[botorch]".'
    assert str(caught.value) == message
