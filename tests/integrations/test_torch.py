"""PyTorch: batches that are unbiased and repeat, and distributions with the values of ours."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sigmax import LocalitySampler
from sigmax.distributions import (
    Bounded,
    Mixture,
    Normal,
    Predictive,
    StudentT,
)
from sigmax.errors import InvalidArgumentError
from sigmax.integrations.torch import (
    LocalityBatchSampler,
    WeightedRows,
    locality_loader,
    to_torch,
)

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(250, 2)), RNG.normal(5, 0.1, (50, 2))])
Y = X[:, 0] + (0.2 + (X[:, 1] > 1)) * RNG.normal(size=300)
ROWS = TensorDataset(torch.tensor(X).float(), torch.tensor(Y).float())


@pytest.fixture(scope="module")
def sampler() -> LocalitySampler:
    return LocalitySampler(n_primary=4, n_secondary=8, n_neighbors=12, random_state=0).fit(X)


def indices(batches) -> list[list[int]]:
    return list(batches)


def test_batches_repeat_by_seed_and_differ_by_pass_and_rank(sampler):
    batches = LocalityBatchSampler(sampler)
    first, second = indices(batches), indices(batches)
    assert len(batches) == len(first) == 10  # 300 rows, 32 in a batch
    again = LocalityBatchSampler(sampler)
    assert indices(again) == first and indices(again) == second
    again.set_epoch(1)
    assert indices(again) == second != first
    assert indices(LocalityBatchSampler(sampler, rank=1)) != first
    assert len(LocalityBatchSampler(sampler, 3)) == 3


def test_a_batch_has_whole_neighbourhoods(sampler):
    for batch in LocalityBatchSampler(sampler, 20):
        drawn = np.reshape(batch, (4, 8))
        lists = [set(row) for row in sampler.neighbors_.tolist()]
        assert all(any(set(row) <= one for one in lists) for row in drawn.tolist())


@pytest.mark.parametrize("design", ["counts", "set"])
def test_weighted_sums_of_batches_are_unbiased(design):
    sampler = LocalitySampler(
        n_primary=4, n_secondary=8, n_neighbors=12, design=design, random_state=1
    )
    is_rare = sampler.fit(X).counts_ < np.median(sampler.counts_)  # in the lists of few rows
    rows = TensorDataset(torch.tensor(is_rare).float(), *ROWS.tensors)
    loader = locality_loader(rows, sampler, n_batches=4000)
    sums = torch.stack([torch.stack([w.sum(), w @ rare, w @ y**2]) for rare, _, y, w in loader])
    expected = torch.tensor([300.0, is_rare.sum(), np.sum(Y**2)])
    z = (sums.mean(dim=0) - expected) / (sums.std(dim=0) / 4000**0.5)
    assert torch.all(torch.abs(z) < 5)  # by chance less than one seed in a million is beyond
    plain = np.array([is_rare[batch].mean() for batch in LocalityBatchSampler(sampler, 4000)])
    bias = (plain.mean() - is_rare.mean()) / (plain.std() / 4000**0.5)
    assert bias < -5  # which is why there are weights


def test_workers_give_the_same_batches(sampler):
    expected = list(locality_loader(ROWS, sampler, 4))
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    found = list(locality_loader(ROWS, sampler, 4, **options))
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    first = indices(LocalityBatchSampler(sampler))[0]
    np.testing.assert_allclose(expected[0][2], sampler.weights_[first], rtol=1e-6)


def test_weights_stand_beside_items_of_any_kind():
    assert WeightedRows([{"x": 1}], [2.0])[0] == {"x": 1, "weight": torch.tensor(2.0)}
    assert WeightedRows(["a"], [2.0])[0] == ("a", torch.tensor(2.0))
    with pytest.raises(InvalidArgumentError, match="1 items, 2 weights"):
        WeightedRows(["a"], [1.0, 2.0])


def test_a_sampler_without_rows_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"call `sampler.fit\(X\)` first"):
        LocalityBatchSampler(LocalitySampler())


class MeanVariance(nn.Module):
    """A linear mean, and one log-variance on either side of the second feature."""

    def __init__(self):
        super().__init__()
        self.mean, self.log_variance = nn.Linear(2, 1), nn.Linear(1, 1)

    def loss(self, x, y, weight, n_rows):
        side = (x[:, 1:] > 1).float()
        log_variance = self.log_variance(side)[:, 0]
        square = (y - self.mean(x)[:, 0]) ** 2
        return (weight * 0.5 * (log_variance + square * torch.exp(-log_variance))).sum() / n_rows


def spreads(model) -> np.ndarray:
    with torch.no_grad():
        return np.exp(0.5 * model.log_variance(torch.tensor([[0.0], [1.0]])).numpy()[:, 0])


def test_a_mean_variance_network_learns_the_noise_from_weighted_batches(sampler):
    torch.manual_seed(0)
    model, loader = MeanVariance(), locality_loader(ROWS, sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(30):
        for x, y, weight in loader:
            optimizer.zero_grad()
            model.loss(x, y, weight, len(ROWS)).backward()
            optimizer.step()
    np.testing.assert_allclose(spreads(model), [0.2, 1.2], rtol=0.35)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_a_lightning_trainer_takes_the_loader_and_counts_its_epochs(sampler):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.seen = MeanVariance(), []

        def training_step(self, batch):
            x, y, weight = batch
            self.seen.append(weight.tolist())
            return self.model.loss(x, y, weight, len(ROWS))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    module, loader = Module(), locality_loader(ROWS, sampler)
    trainer = lightning.Trainer(
        max_epochs=30,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, loader)
    np.testing.assert_allclose(spreads(module.model), [0.2, 1.2], rtol=0.35)
    assert len(module.seen) == 300
    again = locality_loader(ROWS, sampler)
    for epoch in range(3):
        expected = [weight.tolist() for _, _, weight in again]
        assert module.seen[10 * epoch : 10 * epoch + 10] == expected


def random_student_t(*shape) -> StudentT:
    rng = np.random.default_rng(7)
    return StudentT(rng.normal(size=shape), rng.uniform(2.5, 9, shape), rng.uniform(0.5, 2, shape))


LOG_WEIGHT = np.log(np.random.default_rng(3).dirichlet(np.ones(4), (6, 2)).transpose(2, 0, 1))
DENSITIES = {
    "normal": Normal(np.linspace(-1, 1, 12).reshape(6, 2), np.ones((6, 2))),
    "student-t": random_student_t(6, 2),
    "mixture": Mixture(random_student_t(4, 6, 2)),
    "weighted": Mixture(random_student_t(4, 6, 2), None, LOG_WEIGHT, 2),
}


@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.parametrize("at", [-6.0, -0.4, 1.3, 5.0])
def test_densities_and_moments_are_ours(name, at):
    ours, theirs = Predictive(DENSITIES[name]), to_torch(DENSITIES[name])
    assert theirs.batch_shape == (6, 2)
    y = np.full((6, 2), at)
    np.testing.assert_allclose(theirs.log_prob(torch.tensor(y)), ours.log_prob(y), rtol=1e-9)
    np.testing.assert_allclose(theirs.mean, ours.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(theirs.variance, ours.variance, rtol=1e-9)


def test_the_density_has_a_gradient():
    value = torch.full((6, 2), 0.3, dtype=torch.float64, requires_grad=True)
    dist = to_torch(DENSITIES["weighted"])
    (gradient,) = torch.autograd.grad(dist.log_prob(value).sum(), value)
    step = 1e-6
    ends = [Predictive(DENSITIES["weighted"]).log_prob(0.3 + sign * step) for sign in (1, -1)]
    np.testing.assert_allclose(gradient, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_single_precision_is_for_the_asking():
    dist = to_torch(Predictive(DENSITIES["mixture"]), torch.float32)
    found = dist.log_prob(torch.zeros(6, 2))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, Predictive(DENSITIES["mixture"]).log_prob(0.0), atol=1e-5)


def test_values_that_are_no_predictions_raise_an_error():
    with pytest.raises(InvalidArgumentError, match="must be a prediction of sigmax"):
        to_torch("normal")


def test_bounded_targets_raise_an_error():
    density = Bounded(Mixture(random_student_t(3, 5)), np.array(0.0), np.array(np.inf))
    with pytest.raises(InvalidArgumentError, match="without bounds of the target"):
        to_torch(Predictive(density))
