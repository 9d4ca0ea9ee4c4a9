"""The comparison with foundation models: its subsets, its scores on a grid, its records."""

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from sigmax import metrics
from sigmax.distributions import Normal, Predictive

PATH = Path(__file__).parent.parent / "benchmarks" / "foundation.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("foundation", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["foundation"] = module  # dataclasses look their module up
    sys.path.insert(0, str(PATH.parent))  # it imports suite.py
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(PATH.parent))
    del sys.modules["foundation"]


def options(**given):
    defaults = {"quick": False, "sizes": None, "subsets": None, "inner": False, "settings": None}
    defaults |= {"datasets": "kin8nm,superconduct", "methods": "local"}
    return SimpleNamespace(**(defaults | given))


def normal_scores(script, n=4000, std=1.0, n_grid=200):
    """Scores on a grid of standard Normal targets, predicted by Normals of some std."""
    y = np.random.default_rng(0).normal(size=n)
    dist = Predictive(Normal(np.zeros(n), np.full(n, std)))
    grid = np.linspace(-6.0, 6.0, n_grid)
    return y, dist, script.grid_scores(y, script.densities_on(grid, dist), grid)


@pytest.mark.parametrize("std", [0.7, 1.0, 1.5])
def test_scores_on_a_grid_are_near_the_exact_ones(script, std):
    y, dist, on_grid = normal_scores(script, std=std)
    exact = script.exact_scores(y, dist)
    assert on_grid["log_likelihood"] == pytest.approx(exact["log_likelihood"], abs=5e-3)
    assert on_grid["crps"] == pytest.approx(exact["crps"], rel=5e-3)
    assert on_grid["pit_ks"] == pytest.approx(exact["pit_ks"], abs=0.03)
    assert on_grid["coverage_90"] == pytest.approx(exact["coverage_90"], abs=0.02)
    width = 2 * std * stats.norm.ppf(0.95)
    assert on_grid["interval_width"] == pytest.approx(width, rel=5e-3)
    assert exact["coverage_80"] == metrics.coverage(y, dist, level=0.8)


def test_the_cdf_on_a_grid_is_that_of_half_a_step_farther_on(script):
    y = np.linspace(-2, 2, 101)
    dist = Predictive(Normal(np.zeros(101), np.ones(101)))
    grid = np.linspace(-6.0, 6.0, 61)
    found = script.grid_scores(y, script.densities_on(grid, dist), grid)
    shifted = script.ks_distance(stats.norm.cdf(y + 0.1))
    assert found["pit_ks"] == pytest.approx(shifted, abs=2e-3)


def test_a_density_between_two_points_has_no_score_and_no_error(script):
    grid = np.linspace(0.0, 1.0, 200)
    found = script.grid_scores(np.array([0.5]), np.zeros((1, 200)), grid)
    assert found["log_likelihood"] == pytest.approx(np.log(1e-10))
    assert np.isfinite(list(found.values())).all()


def test_the_grid_goes_a_twentieth_beyond_the_training_targets(script):
    grid = script.make_grid(np.array([0.0, 3.0, 10.0]))
    assert len(grid) == 200
    assert grid[[0, -1]] == pytest.approx([-0.5, 10.5])


def test_ks_distance_is_that_of_the_definition(script):
    values = np.random.default_rng(1).beta(2, 1, size=50)
    below = np.arange(50) / 50
    ordered = np.sort(values)
    expected = max(np.max(ordered - below), np.max(below + 1 / 50 - ordered))
    assert script.ks_distance(values) == pytest.approx(expected)


def test_subsets_are_reproducible_and_their_parts_disjoint(script):
    train, test = script.split_rows(8192, 1000, 3)
    again = script.split_rows(8192, 1000, 3)
    other = script.split_rows(8192, 1000, 4)
    assert (len(train), len(test)) == (750, 250)
    assert not set(train) & set(test)
    assert np.array_equal(train, again[0]) and np.array_equal(test, again[1])
    assert set(other[1]) != set(test)


def test_inner_rows_are_training_rows(script):
    train, test = script.split_rows(8192, 1000, 0)
    less, held_out = script.split_rows(8192, 1000, 0, inner=True)
    assert set(less) | set(held_out) == set(train)
    assert not (set(less) | set(held_out)) & set(test)
    assert not set(less) & set(held_out)


def test_cells_are_those_with_published_figures_and_the_largest_come_first(script):
    cells = script.choose(options(subsets=2))
    assert {cell.n for cell in cells if cell.dataset == "kin8nm"} == {50, 500, 1000, 5000}
    few = [cell for cell in cells if cell.n == 50]
    assert len(few) == 2 * 20
    cells = [cell for cell in cells if cell.n != 50]
    first = [cell.n for cell in cells if cell.subset == 0]
    assert first == sorted(first, reverse=True)
    assert [cell.subset for cell in cells] == [0] * len(first) + [1] * len(first)
    assert cells[0].dataset == "superconduct" and cells[0].n == 20_000
    quick = script.choose(options(quick=True))
    assert len(quick) == 4 and {cell.n for cell in quick} == {500, 1000}


def test_settings_have_a_label_and_a_method(script):
    given = ['{"label": "wide", "n_members": 9}', '{"method": "combined", "n_steps": 5}']
    first, second = script.variants(options(settings=given))
    assert first == {"label": "wide", "method": "local", "settings": {"n_members": 9}}
    assert second["method"] == "combined" and "n_steps" in second["label"]


def test_parts_are_merged_without_what_is_torn_or_twice_there(script, tmp_path):
    out = tmp_path / "records.jsonl"
    lines = [asdict(cell) for cell in script.choose(options(quick=True))]
    texts = [json.dumps(line) + "\n" for line in lines]
    out.write_text(texts[0])
    script.part_of(out, 0).write_text(texts[0] + texts[1])
    script.part_of(out, 1).write_text(texts[2] + texts[3][:20])
    assert len(script.merge(out)) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["records.jsonl"]
    assert {script.key_of(line) for line in script.read(out)} == set(map(script.key_of, lines[:3]))


def test_a_run_writes_what_is_missing_and_goes_on_after_a_failure(script, tmp_path, monkeypatch):
    ran = []

    def run_cell(cell):
        ran.append(cell)
        if cell.dataset == "superconduct":
            raise RuntimeError("broken")
        return asdict(cell) | {"grid": {"crps": 1.0}}

    monkeypatch.setattr(script, "run_cell", run_cell)
    given = options(quick=True, out=tmp_path / "r.jsonl", seconds=60.0, jobs=1, commit="")
    script.run(given)
    assert len(ran) == 4 and len(script.read(tmp_path / "r.jsonl")) == 2
    script.run(given)
    assert len(ran) == 6  # those that failed are tried again


def test_nothing_starts_after_the_deadline(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "run_cell", lambda cell: pytest.fail("started"))
    script.run(options(quick=True, out=tmp_path / "r.jsonl", seconds=-1.0, jobs=1, commit=""))


def lines_of(script, factor):
    """Records with the scores of TabPFN-2.5, times a factor."""
    lines = []
    for (dataset, n), methods in script.read_published().items():
        names = ("log_likelihood", "crps", "pit_ks", "coverage_90")
        scores = {name: factor * methods[script.TABPFN][name] for name in names}
        line = {"label": "x", "dataset": dataset, "n": n, "subset": 0, "inner": False}
        line |= {"grid": scores, "exact": scores, "fit_s": 1.0, "predict_s": 0.5, "compile_s": 2.0}
        lines.append(line | {"jobs": 1, "machine": {"device": "cpu"}, "commit": "abc"})
    return lines


def test_the_summary_counts_and_averages_what_is_there(script):
    summary, *tables = script.report(lines_of(script, 1.0))
    rows = {row[0]: row[1:] for row in summary.rows}
    assert rows["all"][0] == "24" and rows["all but naval"][0] == "20"
    assert rows["all"][4] == "24 of 24"  # PIT-KS equals that of TabPFN-2.5
    assert rows["all but naval, n = 50"][0] == "5"
    found = script.compare(lines_of(script, 1.0))
    assert all(c.ratio() >= 1 for c in found) and {c.seconds for c in found} == {3.5}
    assert all(len(table.rows) == 30 for table in tables)
    assert script.report(lines_of(script, 0.1))[0].rows[-2][4] == "24 of 24"


def test_a_page_keeps_what_is_outside_the_markers(script, tmp_path):
    page, records = tmp_path / "page.md", tmp_path / "r.jsonl"
    page.write_text("before\n<!-- foundation -->\nold\n<!-- end -->\nafter\n")
    records.write_text("".join(json.dumps(line) + "\n" for line in lines_of(script, 1.0)))
    script.show(
        SimpleNamespace(records=[records], inner=False, label=None, page=page, markdown=False)
    )
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text and "### CRPS" in text
