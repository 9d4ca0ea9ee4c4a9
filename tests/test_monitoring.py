"""Drift tests: error rates at any stopping time, delays, and monitors of fitted models."""

import json

import numpy as np
import pytest
from scipy.stats import norm

from sigmax.distributions import Normal, Predictive
from sigmax.errors import InvalidArgumentError, ModelFileError
from sigmax.monitoring import STAKES, Bets, DriftTests, Monitor, randomised_pit

ALPHA = 0.1


def watch(z, is_off=None, tolerance=0.03):
    """Tests of rows whose standardised errors are z under predictions of N(0, 1)."""
    tests = DriftTests(alpha=ALPHA, tolerance=tolerance)
    is_off = np.zeros(len(z)) if is_off is None else is_off
    missed = (np.abs(z) > norm.ppf(0.95)).astype(float)
    return tests.update(norm.cdf(z), missed, is_off)


def delay(tests, change):
    """Rows from a change to the first alarm."""
    return min(test.since or 0 for test in tests.tests if test.is_alarm) - change


def test_wealth_equals_the_sum_over_all_starts_by_brute_force():
    rng = np.random.default_rng(0)
    x, bound = rng.random(30), 0.4
    _, found = Bets.create([bound]).update(x[:, None])
    for n in (1, 2, 17, 30):
        e = 0.0
        for stake in STAKES:
            for start in range(1, n + 1):
                gains = 1 + stake * (x[start - 1 : n] / bound - 1)
                e += np.prod(gains) / (start * (start + 1)) / len(STAKES)
        e += 1 / (n + 1)
        np.testing.assert_allclose(np.exp(found[n - 1, 0]), e, rtol=1e-9)


def test_without_drift_there_is_hardly_ever_an_alarm():
    """400 streams of 400 rows, checked after every row; also at the edge of the tolerance."""
    rng = np.random.default_rng(1)
    alarms = [watch(rng.normal(size=400), rng.random(400) < 0.02).has_alarm for _ in range(400)]
    slack = 2 * np.sqrt(ALPHA * (1 - ALPHA) / 400)
    assert np.mean(alarms) <= ALPHA + slack
    scale = np.tan(np.pi / 2 * 0.53)  # the mean of |2 PIT - 1| is 0.53
    at_edge = [
        watch(scale * rng.normal(size=400), rng.random(400) < 0.05).has_alarm for _ in range(400)
    ]
    assert np.mean(at_edge) <= ALPHA + slack


@pytest.mark.parametrize(
    ("change", "name", "most_rows"),
    [
        (lambda z: z + 1.0, "targets above the predictions", 80),
        (lambda z: z - 1.0, "targets below the predictions", 80),
        (lambda z: 2.0 * z, "errors larger than predicted", 150),
    ],
)
def test_a_shift_in_mean_or_scale_is_detected_soon_also_after_a_thousand_rows_without_drift(
    change, name, most_rows
):
    rng = np.random.default_rng(2)
    for quiet in (0, 1000):
        delays = []
        for _ in range(20):
            z = rng.normal(size=quiet + 400)
            z[quiet:] = change(z[quiet:])
            tests = watch(z)
            delays.append(delay(tests, quiet))
            assert name in [test.name for test in tests.tests if test.is_alarm]
        assert np.median(delays) <= most_rows


def test_rows_out_of_distribution_are_detected_soon():
    rng = np.random.default_rng(3)
    is_off = rng.random(1200) < np.where(np.arange(1200) < 1000, 0.01, 0.3)
    tests = watch(rng.normal(size=1200), is_off)
    assert [test.name for test in tests.tests if test.is_alarm] == ["rows out of distribution"]
    assert 0 < delay(tests, 1000) <= 60


def test_smaller_errors_are_a_notice_and_no_alarm():
    tests = watch(0.4 * np.random.default_rng(4).normal(size=500))
    assert not tests.has_alarm
    found = {test.name: test for test in tests.tests}["errors smaller than predicted"]
    assert found.since is not None and "notice since row" in str(found)


def test_batches_give_the_same_result_as_all_rows_at_once_also_through_json():
    z = np.random.default_rng(5).normal(0.3, 1.2, size=300)
    whole = watch(z)
    parts = DriftTests(alpha=ALPHA)
    for part in np.split(z, [1, 100]):
        missed = (np.abs(part) > norm.ppf(0.95)).astype(float)
        parts.update(norm.cdf(part), missed, np.zeros(len(part)))
        parts = DriftTests.from_json(json.loads(json.dumps(parts.to_json())))
    np.testing.assert_allclose(parts.bets.log_e, whole.bets.log_e)
    assert parts.since == whole.since and parts.n_rows == 300


def test_the_randomised_pit_of_counts_is_uniform():
    rng = np.random.default_rng(6)
    z = rng.normal(5.0, 1.0, 4000)
    dist = Predictive(Normal(np.full(4000, 5.0), np.full(4000, 1.0)))
    pit = randomised_pit(dist, np.round(z), np.ones(4000), rng.random(4000))
    assert np.abs(np.histogram(pit, 10, (0, 1))[0] / 400 - 1).max() < 0.2
    plain = randomised_pit(dist, z, np.zeros(4000), rng.random(4000))
    np.testing.assert_allclose(plain, norm.cdf(z - 5.0), atol=1e-9)


class Wrong:
    """A stand-in for a model: N(x, 1), out of distribution beyond 10."""

    def predict_dist_and_gate(self, X):
        x = np.asarray(X, float)[:, 0]
        return Predictive(Normal(x, np.ones(len(x)))), (x > 10).astype(float)


def test_a_monitor_names_the_problem_and_continues_from_a_file(tmp_path):
    rng = np.random.default_rng(7)
    X = rng.uniform(0, 10, (300, 1))
    y = X[:, 0] + rng.normal(size=300)
    monitor = Monitor(Wrong()).update(X, y)
    assert not monitor.has_alarm and "no alarm" in str(monitor)
    assert monitor.drift.tolerance == pytest.approx(2 / np.sqrt(1200), abs=1e-4)
    monitor.save(tmp_path / "state.json")
    both = [monitor, Monitor.load(tmp_path / "state.json", Wrong())]
    texts = []
    for own in both:
        own.update(X[:150], y[:150] + 1.5)
        assert own.alarms[0].name == "targets above the predictions"
        assert 300 < (own.alarms[0].since or 0) < 340
        texts.append(str(own))
    assert texts[0] == texts[1] and "ALARM since row 3" in texts[0]
    (tmp_path / "state.json").write_text('{"format": 1}')
    with pytest.raises(ModelFileError, match="not the state of a monitor"):
        Monitor.load(tmp_path / "state.json", Wrong())
    with pytest.raises(InvalidArgumentError, match="alpha"):
        Monitor(Wrong(), alpha=1.5)


def test_the_plot_shows_the_path_of_every_test():
    from matplotlib.figure import Figure

    from sigmax.plots import draw_monitor

    rng = np.random.default_rng(8)
    X = rng.uniform(0, 20, (50, 1))
    axes = Figure().subplots()
    draw_monitor(axes, Monitor(Wrong()).update(X, X[:, 0] + rng.normal(size=50)))
    assert len(axes.lines) == 7 and np.shape(axes.lines[0].get_xdata()) == (50,)
