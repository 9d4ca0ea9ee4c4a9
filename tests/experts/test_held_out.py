"""Conformal intervals from the rows that members hold out, against loops over rows and members."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from estimator_list import ESTIMATORS, NETWORKS, SHORT, SPREAD, X, Y, build, fitted, name_of
from scipy import stats
from table_cases import table_of

from sigmax import MCDropoutRegressor, MeanVarianceRegressor, SigmaxRegressor
from sigmax.distributions import Mixture, Normal, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.experts import HeldOut, Rows, TrainingRows
from sigmax.features import TargetUnits

(DROPOUT,) = (e for e in NETWORKS if isinstance(e, MCDropoutRegressor))


def make_held_out(mean, variance, held_out, y, weight):
    """Held-out densities from moments (members, held out, outputs) of Normal members."""
    member = np.repeat(np.arange(len(held_out)), [len(rows) for rows in held_out])
    slot = np.concatenate([np.arange(len(rows)) for rows in held_out])
    n = len(y)
    table = table_of(np.arange(float(n))[:, None])
    given = TrainingRows(table, y, weight, np.arange(n), y.shape[1] == 1)
    rows = replace(Rows.encode(given, TargetUnits.fit(y, weight)), y=y)
    dist = Mixture(Normal(mean[member, slot][None], np.sqrt(variance[member, slot])[None]))
    return HeldOut.of_members(dist, member, np.concatenate(held_out), len(held_out), rows)


def test_a_row_is_judged_by_the_mixture_of_the_members_that_hold_it_out():
    rng = np.random.default_rng(0)
    y, weight = rng.normal(size=(9, 2)), rng.uniform(1, 2, 9)
    held_out = [np.array([0, 1, 2]), np.array([3, 4]), np.array([2, 4, 8])]
    mean = rng.normal(size=(3, 3, 2))
    variance = rng.uniform(1, 2, mean.shape)
    found = make_held_out(mean, variance, held_out, y, weight)
    scores, members = found._conformal

    by_row, log_prob = {}, []
    for row in (0, 1, 2, 3, 4, 8):
        who = [m for m in range(3) if row in held_out[m]]
        at = [np.flatnonzero(held_out[m] == row)[0] for m in who]
        means, variances = mean[who, at], variance[who, at]
        std = np.sqrt(variances.mean(axis=0) + means.var(axis=0))
        by_row[row] = who, np.abs(y[row] - means.mean(axis=0)) / std
        log_prob.append(np.log(stats.norm.pdf(y[row], means, np.sqrt(variances)).mean(axis=0)))
    np.testing.assert_array_equal(found.row, list(by_row))
    np.testing.assert_allclose(scores.score, [score for _, score in by_row.values()])
    np.testing.assert_allclose(scores.weight, weight[list(by_row)])
    np.testing.assert_allclose(Predictive(found.dist).log_prob(found.y), log_prob, rtol=1e-6)
    for fold, (who, _) in zip(scores.fold, by_row.values(), strict=True):
        assert np.flatnonzero(members[fold]).tolist() == who


def test_new_rows_are_compared_by_the_same_mixtures():
    """Each row's mixture of members, and the quantile over all rows, written out."""
    rng = np.random.default_rng(1)
    weight, held_out = np.ones(30), [rng.permutation(30)[:12] for _ in range(4)]
    y, spread = rng.normal(size=(30, 1)), rng.uniform(1, 2, (4, 12, 1))
    found = make_held_out(rng.normal(size=(4, 12, 1)), spread, held_out, y, weight)
    scores, members = found._conformal
    mean, variance = rng.normal(size=(4, 5, 1)), rng.uniform(1, 2, (4, 5, 1))
    ends = []
    for score, fold in zip(scores.score[:, 0], scores.fold, strict=True):
        own = members[fold]
        std = np.sqrt(variance[own].mean(axis=0) + mean[own].var(axis=0))[:, 0]
        center = mean[own].mean(axis=0)[:, 0]
        ends.append((center - score * std, center + score * std))
    lower, upper = np.sort(np.moveaxis(np.array(ends), 0, -1), axis=-1)
    n = len(ends)
    rank = int(np.ceil((n + 1) * 0.8))
    expected = np.stack([lower[:, n - rank], upper[:, rank - 1]], axis=-1)
    dist = Mixture(Normal(mean, np.sqrt(variance)))
    np.testing.assert_allclose(found.conformal_interval(dist, 0.8)[:, 0], expected, rtol=1e-9)


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_conformal_intervals_grow_with_coverage_and_hold_what_they_should(network):
    """Members learned from most of these rows: no less than the coverage, up to chance."""
    model = fitted(network)
    narrow, wide = (model.predict_interval(X, level, method="conformal") for level in (0.6, 0.9))
    assert narrow.shape == wide.shape == (120, 2) and np.isfinite(wide).all()
    assert np.all(wide[:, 0] <= narrow[:, 0]) and np.all(narrow[:, 1] <= wide[:, 1])
    assert np.mean((wide[:, 0] <= Y) & (wide[:, 1] >= Y)) > 0.8
    few = model.predict_interval(X, 0.99, method="conformal")  # 99 rows must be held out
    assert np.isinf(few).all()


def test_one_member_is_split_conformal_prediction():
    """Dropout predicts its held-out rows as it does new ones."""
    model = fitted(DROPOUT)
    mean, std = model.predict(X, return_std=True)
    scores = model.model_.fitted.held_out._conformal[0].score[:, 0]
    assert len(scores) == 20
    gaps = np.abs(np.abs(Y - mean)[:, None] / std[:, None] - scores[None])
    assert gaps.min(axis=0).max() < 1e-4
    width = np.sort(scores)[16] * std  # ⌈21 · 0.8⌉ = 17
    found = model.predict_interval(X, 0.8, method="conformal")
    np.testing.assert_allclose(found, np.stack([mean - width, mean + width], axis=-1), rtol=1e-6)


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_a_saved_model_has_the_same_conformal_intervals(network, tmp_path):
    model = fitted(network)
    model.save(tmp_path / "model")
    found = type(model).load(tmp_path / "model").predict_interval(X, method="conformal")
    np.testing.assert_array_equal(found, model.predict_interval(X, method="conformal"))


def test_without_held_out_rows_the_message_says_what_to_do(tmp_path):
    settings: dict[str, Any] = SHORT | SPREAD | {"validation_fraction": 0.0}
    model = build(MeanVarianceRegressor, **settings).fit(X, np.stack([Y, -Y], axis=1))
    model.save(tmp_path / "model")
    for one in (model, MeanVarianceRegressor.load(tmp_path / "model")):
        assert one.predict_interval(X).shape == (120, 2, 2)
        with pytest.raises(InvalidArgumentError, match="`validation_fraction` above 0"):
            one.predict_interval(X, method="conformal")


@pytest.mark.parametrize("other", [e for e in ESTIMATORS if e not in NETWORKS], ids=name_of)
def test_methods_in_closed_form_leave_every_row_out(other):
    model = fitted(other)
    held_out = model.model_.fitted.held_out
    assert len(held_out) == len(X)
    narrow, wide = (model.predict_interval(X, level, method="conformal") for level in (0.6, 0.9))
    assert np.isfinite(wide).all() and np.all(wide[:, 0] <= narrow[:, 0])
    assert np.mean((wide[:, 0] <= Y) & (wide[:, 1] >= Y)) > 0.85
    with pytest.raises(InvalidArgumentError, match="`method` must be one of conformal, distrib"):
        model.predict_interval(X, method="exact")


def test_a_held_out_row_is_no_inducing_point_and_its_own_error_does_not_widen_its_interval():
    rng = np.random.default_rng(0)
    X = np.append(rng.normal(size=79), 50.0)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    y[5] += 9
    experts: Any = ["linear"]
    model = SigmaxRegressor("quick", experts=experts, random_state=0).fit(X, y)
    held_out = model.model_.fitted.held_out
    gate, far = held_out.gate, model.predict_gate(X[79:])
    assert gate is not None and far is not None
    assert gate[held_out.row == 79] > 0.99 and far < 0.01
    bounds = model.model_.held_out_interval(0.9)
    assert np.isfinite(bounds).all()
    y_held_out = y[held_out.row]
    inside = (bounds[:, 0] <= y_held_out) & (y_held_out <= bounds[:, 1])
    assert 0.8 < inside.mean() < 0.97 and not inside[held_out.row == 5]


TABLES = {
    "linear": lambda X, noise: X @ [1.0, 0.5, 0.0] + 0.5 * noise,
    "varying noise": lambda X, noise: np.sin(2 * X[:, 0]) + 0.3 * np.exp(0.7 * X[:, 1]) * noise,
    "skewed": lambda X, noise: np.exp(X[:, 0] + 0.5 * noise),
    "rounded": lambda X, noise: np.round(3 * (X[:, 0] > 0) + X[:, 1] + noise),
}


def test_held_out_scores_are_not_better_than_those_of_new_rows():
    """Four tables: honest scores are better by two standard errors for one seed in 40."""
    n, found = 80, []
    for i, create in enumerate(TABLES.values()):
        rng = np.random.default_rng(i)
        X = rng.normal(size=(n + 1000, 3))
        y = create(X, rng.normal(size=n + 1000))
        model = SigmaxRegressor("quick", random_state=0).fit(X[:n], y[:n])
        dists = model.model_.held_out(), model.predict_dist(X[n:])
        targets = y[model.model_.fitted.held_out.row], y[n:]
        scores = [
            (dist.log_prob(own), -dist.crps(own)) for dist, own in zip(dists, targets, strict=True)
        ]
        for own, other in zip(*scores, strict=True):
            error = np.sqrt(own.var(ddof=1) / len(own) + other.var(ddof=1) / len(other))
            found.append((own.mean() - other.mean()) / error)
    better = np.reshape(found, (4, 2)).sum(axis=0) / np.sqrt(4)
    assert np.all(better < 2), better
