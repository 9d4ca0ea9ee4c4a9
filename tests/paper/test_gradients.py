"""Gradients: unbiasedness in three ways, table and figure."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimator_list import build
from jax.flatten_util import ravel_pytree
from paper_cases import run_lines

from sigmax import CombinedRegressor
from sigmax.data import ToyProblem
from sigmax.errors import InvalidArgumentError
from sigmax.paper.gradients import (
    DESIGNS,
    PARTS,
    Training,
    batch_gradients,
    create_samplers,
    describe_gradients,
    first_member,
    gradient_figures,
    gradient_tables,
    take_batches,
)

N_ROWS = 60
SMALL = {
    "hidden_sizes": (5,),
    "n_primary": 3,
    "n_secondary": 4,
    "n_neighbors": 8,
    "variance_n_primary": 1,
    "variance_n_secondary": 5,
    "variance_n_neighbors": 5,
    "n_steps": 100,
}


@pytest.fixture(scope="module")
def training():
    """Sixty rows, denser on the left, so that their weights differ."""
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(N_ROWS, 2))
    y = X[:, 0] + X[:, 1] * rng.standard_normal(N_ROWS)
    return Training.start(build(CombinedRegressor, "paper", random_state=0, **SMALL), X, y)


@pytest.fixture(scope="module")
def samplers(training):
    return create_samplers(training.prepared, seed=0)


def gradients_of(training, part, index, weight):
    network = first_member(training.prepared.networks)
    return np.asarray(batch_gradients(network, PARTS[part], index, weight, training.data))


def full_gradient_of(training, part):
    """Gradient of the mean negative log-likelihood of all rows."""
    network, data = first_member(training.prepared.networks), training.data
    X, y, own_center = (rows[0, :N_ROWS] for rows in (data.X, data.y, data.own_center))

    def loss(network):
        return -jnp.mean(network(X, own_center).log_prob(y))

    return np.asarray(ravel_pytree(getattr(eqx.filter_grad(loss)(network), PARTS[part]))[0])


@pytest.mark.parametrize("part", PARTS)
def test_a_batch_of_all_rows_gives_the_full_gradient(training, part):
    index, weight = jnp.arange(N_ROWS)[None], jnp.full((1, N_ROWS), 1 / N_ROWS)
    (found,) = gradients_of(training, part, index, weight)
    np.testing.assert_allclose(found, full_gradient_of(training, part), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("part", PARTS)
def test_batches_give_the_full_gradient_on_average(training, samplers, part, design):
    """Five standard errors for each of about 50 entries: under 1 seed in 10 000 fails."""
    batches = take_batches(iter(samplers[part, design]), 4000, N_ROWS)
    gradients = gradients_of(training, part, *batches)
    error = gradients.std(axis=0, ddof=1) / np.sqrt(len(gradients))
    off = np.abs(gradients.mean(axis=0) - full_gradient_of(training, part))
    assert (off <= 5 * error + 1e-7).all()


def test_the_average_over_every_locality_batch_is_exactly_the_full_gradient(training, samplers):
    """Whole neighbourhoods of one centre: there is one batch per row, with equal probability."""
    sampler = samplers["variance", "locality"]
    index = sampler.neighbors_
    weight = (sampler.weights_[index] / N_ROWS).astype(np.float32)
    gradients = gradients_of(training, "variance", jnp.asarray(index), jnp.asarray(weight))
    expected = full_gradient_of(training, "variance")
    np.testing.assert_allclose(gradients.mean(axis=0), expected, rtol=1e-3, atol=1e-6)


def test_uniform_batches_have_the_variance_of_a_simple_random_sample(training, samplers):
    """The variance over 4000 batches is known to about 3 %."""
    index, weight = take_batches(iter(samplers["mean", "uniform"]), 4000, N_ROWS)
    n = index.shape[1]
    gradients = gradients_of(training, "mean", index, weight)
    of_rows = gradients_of(training, "mean", jnp.arange(N_ROWS)[:, None], jnp.ones((N_ROWS, 1)))
    expected = (1 - n / N_ROWS) * of_rows.var(axis=0, ddof=1).mean() / n
    described = describe_gradients(jnp.asarray(gradients))
    assert described["variance"] == pytest.approx(expected, rel=0.15)


def test_batches_are_equally_large_and_as_in_the_paper():
    X, y = ToyProblem().sample(500, random_state=0)
    training = Training.start(CombinedRegressor(preset="paper", random_state=0), X, y)
    for (part, _), sampler in create_samplers(training.prepared, seed=0).items():
        index, weight = take_batches(iter(sampler), 3, len(X))
        assert index.shape == weight.shape == (3, {"mean": 120, "variance": 10}[part])


def test_uniform_rows_are_distinct_and_have_equal_weights(samplers):
    index, weight = take_batches(iter(samplers["mean", "uniform"]), 20, N_ROWS)
    assert all(len(set(rows.tolist())) == 12 for rows in np.asarray(index))
    np.testing.assert_allclose(weight, 1 / 12, rtol=1e-6)


def test_descriptions_of_given_gradients():
    gradients = jnp.array([[0.0, 1e-4, -2.0], [0.0, -0.5, 2.0]])
    described = describe_gradients(gradients)
    assert described["si"] == pytest.approx(3 / 6)
    assert described["variance"] == pytest.approx(np.var(gradients, axis=0, ddof=1).mean())


def test_the_last_checkpoint_is_the_fitted_network():
    """With as many checkpoints as a fit has chunks, both draw the same batches."""
    X, y = ToyProblem().sample(100, random_state=0)
    model = build(CombinedRegressor, "paper", random_state=0, **SMALL)
    *_, (step, last) = Training.start(model, X, y).checkpoints(100)
    value: Any = model.fit(X, y).model_.fitted
    fitted = first_member(value.networks)
    assert step == SMALL["n_steps"]
    for ours, theirs in zip(jax.tree.leaves(last), jax.tree.leaves(fitted), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def records():
    settings = {
        "hidden_sizes": [5],
        "n_inducing": 10,
        "n_steps": 40,
        "n_checkpoints": 4,
        "n_batches": 8,
    }
    return run_lines("gradients", datasets=["toy"], n_splits=2, seed=7, settings=settings)


def test_a_record_has_every_curve_by_training_step(records):
    assert [(r.task.split, r.task.seed, r.status) for r in records] == [
        (0, 7, "done"),
        (1, 8, "done"),
    ]
    for record in records:
        assert record.curves["step"][-1] == 40 and len(record.curves) == 1 + 2 * 4
        assert all(len(curve) == 4 for curve in record.curves.values())
        assert all(np.isfinite(curve).all() for curve in record.curves.values())
        after_warmup = np.asarray(record.curves["step"]) > 20
        si = np.asarray(record.curves["si_variance_locality"])[after_warmup]
        assert record.scores["si_variance_locality"] == pytest.approx(si.mean(), rel=1e-5)
    assert records[0].curves != records[1].curves


def test_table_and_figure_are_made_from_records(records):
    (table,) = gradient_tables(records)
    assert [row[0] for row in table.rows] == ["toy, mean", "toy, variance"]
    assert all(len(row) == len(table.header) == 6 for row in table.rows)
    assert all("±" in cell for row in table.rows for cell in row[1:])
    si = np.mean([record.scores["si_mean_uniform"] for record in records])
    assert table.rows[0][1].startswith(f"{si:.3f}")
    ((name, figure),) = gradient_figures(records).items()
    assert name == "gradients_toy" and len(figure.axes) == 4
    figure.canvas.draw()


def test_no_records_give_neither_table_nor_figure():
    assert gradient_tables([]) == [] and gradient_figures([]) == {}


def test_one_checkpoint_raises_an_error():
    with pytest.raises(InvalidArgumentError, match="`n_checkpoints` must be"):
        run_lines("gradients", datasets=["toy"], n_splits=1, settings={"n_checkpoints": 1})
