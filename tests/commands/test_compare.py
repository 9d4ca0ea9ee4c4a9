"""`sigmax compare`: methods on the folds of a table, by the runner, to be resumed."""

import json
import re
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_cases import fails_with, run
from engine_cases import InProcessEngine

from sigmax.cli.app import load_command
from sigmax.cli.compare import (
    COMPARED,
    COVERED,
    CompareOptions,
    best_method,
    compare_page,
    other_scores,
    plan_comparison,
    ranked_table,
    read_task_table,
)
from sigmax.cli.rows import ColumnOptions
from sigmax.report.validation import CURVE_LEVELS
from sigmax.runs.records import Task, done, read_records


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Worker processes import and compile everything anew; tests of the runner have them."""
    monkeypatch.setattr("sigmax.runs.engines.LocalEngine", InProcessEngine)
    read_task_table.cache_clear()


OPTIONS: dict[str, Any] = {"target": "y", "n_folds": 2, "seed": 0}
OPTIONS |= {name: [] for name in ("categories", "numbers", "drop")}
SMALL = ("--folds", 2, "--set", "n_steps=20", "--set", "hidden_sizes=[8]")


def test_methods_are_ranked_and_a_second_run_fits_nothing(table, tmp_path):
    out = tmp_path / "out"
    command = ("compare", table, "--target", "minutes", "--out", out, *SMALL)
    result = run(*command, "--methods", "marginal,linear")
    assert result.exit_code == 0, result.output
    assert result.output.index("linear ") < result.output.index("marginal ")
    records = read_records(out / "records.jsonl")
    assert len(records) == 4
    result = run(*command, "--methods", "marginal,linear,sigmax-quick")
    assert "6/6" in result.output and "ranked by CRPS" in result.output
    after = read_records(out / "records.jsonl")
    text = " ".join(result.output.split())
    assert re.search("sigmax-quick, the best of 1: .* than a linear model", text)
    assert text.index("than a linear model") < text.index("ranked by")
    assert after[:4] == records and [r.task.method for r in after[4:]] == ["sigmax-quick"] * 2
    page = (out / "report.html").read_text()
    assert "ranked by CRPS" in page and "other scores" in page
    assert "than a linear model" in page
    assert re.search(r"Of 3 methods, \S+ predicts minutes best", page)
    methods = "--methods=marginal,linear,sigmax-quick"
    assert f"sigmax compare {table} --target=minutes --out={out} {methods}" in page
    data = json.loads(page.split('id="charts">')[1].split("</script>")[0])
    assert len([layer for layer in data["calibration"]["layers"] if layer["mark"] == "line"]) == 3


def test_the_curve_of_a_record_is_the_coverage_of_central_intervals(table, tmp_path):
    out = tmp_path / "out"
    run("compare", table, "--target", "minutes", "--out", out, "--methods", "linear", *SMALL[:2])
    for record in read_records(out / "records.jsonl"):
        curve = dict(zip(CURVE_LEVELS.tolist(), record.curves[COVERED], strict=True))
        for level in (0.5, 0.8, 0.9):
            assert curve[level] == pytest.approx(record.scores[f"coverage_{100 * level:g}"])


def test_another_content_of_the_file_is_another_comparison(table, tmp_path):
    copy, out = tmp_path / "copy.csv", tmp_path / "out"
    copy.write_bytes(table.read_bytes())
    command = ("compare", copy, "--target", "minutes", "--out", out, "--methods", "marginal")
    assert run(*command, "--folds", 2).exit_code == 0
    copy.write_text(copy.read_text().replace("rain", "sleet"))
    assert run(*command, "--folds", 2).exit_code == 0
    records = read_records(out / "records.jsonl")
    assert len(records) == 4
    assert len({r.task.settings["table"]["sha256"] for r in records}) == 2


def test_paired_differences_are_those_of_rows(table, tmp_path):
    out = tmp_path / "out"
    run("compare", table, "--target", "minutes", "--out", out, "--methods", "marginal,linear")
    records = read_records(out / "records.jsonl")
    rows = {
        method: np.concatenate([r.curves["crps"] for r in records if r.task.method == method])
        for method in ("marginal", "linear")
    }
    assert len(rows["linear"]) == 255
    gap = rows["marginal"] - rows["linear"]
    shown = ranked_table(records).rows[1][2]
    value, error = (float(part) for part in shown.split(" ± "))
    assert value == pytest.approx(gap.mean(), rel=0.05)
    assert error == pytest.approx(gap.std(ddof=1) / np.sqrt(255), rel=0.05)


def make_record(method, split, crps, blocks, n_test=100, **table):
    """Record of a method on a fold."""
    settings = {"table": {"options": OPTIONS, "reading": {}, "sha256": "0", **table}}
    named = {"experiment": "compare", "dataset": "a.csv", "method": method}
    widths = {f"{name}_{p}": 0.9 for name in ("coverage", "width") for p in (50, 80, 90, 95)}
    return done(
        Task(**named, split=split, settings=settings),
        scores={"crps": crps, "log_likelihood": -crps, "rmse": crps, **widths},
        curves={
            "crps": blocks,
            "log_likelihood": [-block for block in blocks],
            COVERED: CURVE_LEVELS.tolist(),
        },
        seconds={"fit": 1.0},
        data={"n_test": n_test},
        machine={},
    )


def test_a_difference_is_that_of_the_scores_that_are_shown():
    """Folds of unequal size, and blocks of rows that do not weigh the same."""
    records = [
        make_record("linear", 0, 1.0, [0.9, 1.1], n_test=900),
        make_record("linear", 1, 2.0, [2.1, 1.9], n_test=100),
        make_record("marginal", 0, 3.0, [2.9, 3.1], n_test=900),
        make_record("marginal", 1, 9.0, [9.1, 8.9], n_test=100),
    ]
    table = ranked_table(records)
    assert table.header[2] == "CRPS minus best"
    first, second, gap = (
        float(text.split(" ± ")[0])
        for text in (table.rows[0][1], table.rows[1][1], table.rows[1][2])
    )
    assert (first, second) == (1.1, 3.6) and gap == pytest.approx(second - first)
    assert other_scores(records).rows[1][2].startswith("-2.5")  # of the log-likelihood


def test_the_page_says_which_method_is_best_and_whether_that_may_be_chance(tmp_path):
    hostile = "<script>alert(1)</script>"
    records = [
        make_record("a", 0, 1.0, [0.9, 1.1, 1.0]),
        make_record("b", 0, 1.2, [1.1, 1.32, 1.18]),
        make_record(hostile, 0, 3.0, [2.9, 3.1, 3.0]),
    ]
    assert best_method(records) == (
        "Of 3 methods, a predicts y best; the next, b, has a 20 % higher CRPS, more than chance"
        " would explain."
    )
    close = [
        make_record("a", 0, 1.0, [0.9, 1.1, 1.0], sha256="1"),
        make_record("b", 0, 1.05, [1.3, 0.8, 1.05], sha256="1"),
    ]
    assert "may well be chance" in best_method(close)
    page = compare_page(tmp_path, records)
    assert hostile not in page
    assert page.count("<figure ") == 2
    both = compare_page(tmp_path, [*records, *close])
    ids = re.findall(r' id="([^"]*)"', both)
    assert len(ids) == len(set(ids)) and "may well be chance" in both  # the last comparison


def test_by_time_every_fold_is_later_than_what_is_learned_from(table, tmp_path):
    out = tmp_path / "out"
    command = ("compare", table, "--target", "minutes", "--methods", "linear,marginal")
    result = run(*command, "--out", out, "--folds", 3, "--time-column", "ordered")
    assert result.exit_code == 0, result.output
    records = read_records(out / "records.jsonl")
    times = pd.to_datetime(pd.read_csv(table).dropna(subset=["minutes"])["ordered"]).to_numpy()
    description = json.dumps(records[0].task.settings["table"])
    folds = read_task_table(str(table), description).folds
    assert [len(test) for _, test in folds] == [64, 64, 63]
    for train, test in folds:
        assert times[train].max() < times[test].min()
    assert [r.data["n_train"] for r in records[:3]] == [64, 128, 192]
    page = (out / "report.html").read_text()
    assert f"--out={out}" in page and "--time-column=ordered" in page
    both = ("--time-column", "ordered", "--group-column", "district")
    assert fails_with(run(*command, *both), "choose one")
    few = ("--time-column", "promised", "--folds", 3)
    frame = pd.read_csv(table).assign(promised="2025-01-01")
    frame.to_csv(tmp_path / "few.csv", index=False)
    result = run("compare", tmp_path / "few.csv", *command[2:], *few)
    assert fails_with(result, "--time-column", "too few different times")


@pytest.mark.skipif(find_spec("catboost") is None, reason="CatBoost is not installed")
def test_catboost_has_its_own_categories_and_gaps(table, tmp_path):
    out = tmp_path / "out"
    options = ("--methods", "catboost,marginal", "--folds", 2)
    result = run("compare", table, "--target", "minutes", "--out", out, *options)
    assert result.exit_code == 0, result.output
    scores = {r.task.method: r.scores["crps"] for r in read_records(out / "records.jsonl")}
    assert scores["catboost"] < scores["marginal"]


def test_a_method_that_cannot_take_so_many_rows_says_so(table, tmp_path, monkeypatch):
    from dataclasses import replace

    monkeypatch.setitem(COMPARED, "gp", replace(COMPARED["gp"], largest=50))
    options = ("--methods", "gp,marginal", "--folds", 2)
    result = run("compare", table, "--target", "minutes", "--out", tmp_path / "out", *options)
    text = " ".join(result.output.split())
    assert "gp: not applicable" in text and "its limit is 50" in text


def test_packages_that_are_not_installed_are_left_out_unless_they_are_named(
    table, tmp_path, monkeypatch
):
    for module in ("peers", "compare"):
        monkeypatch.setattr(f"sigmax.cli.{module}.is_installed", lambda name: False)
    choice = plan_comparison(table, ColumnOptions(target="minutes"), CompareOptions(), {})
    assert choice.methods == ("sigmax", "sigmax-quick", "linear", "marginal")
    options = ("--methods", "catboost", "--out", tmp_path / "out")
    result = run("compare", table, "--target", "minutes", *options)
    assert fails_with(result, "pip install", "sigmax[peers]", code=1)


def test_mistakes_are_reported_before_anything_is_run(table, tmp_path):
    out = tmp_path / "out"
    for arguments, words in {
        (table, "--target", "nothing"): ["--target", "'nothing'"],
        (table, "--target", "minutes", "--methods", "magic"): ["--methods", "local"],
        (table, "--target", "minutes", "--folds", 1): ["--folds"],
        (table, "--target", "minutes", "--folds", 200): ["200 folds"],
        (table, "--target", "minutes", "--set", "n_stepz=1"): ["'n_stepz'"],
        (table, "--target", "minutes", "--address", "auto"): ["--address", "--engine ray"],
        (table, "--target", "minutes", "--engine", "ray", "--device", "x"): ["`device`", "gpu"],
        ("-", "--target", "minutes"): ["name a file"],
        (tmp_path / "nowhere.csv", "--target", "y"): ["does not exist"],
    }.items():
        assert fails_with(run("compare", *arguments, "--out", out), *words), arguments
    assert not out.exists()


def test_records_can_be_reported_again(table, tmp_path):
    out = tmp_path / "out"
    run("compare", table, "--target", "minutes", "--out", out, "--methods", "marginal")
    (out / "report.html").unlink()
    assert run("report", out).exit_code == 0
    assert "minutes of deliveries.csv" in (out / "report.html").read_text()
    assert json.loads((out / "records.jsonl").read_text().splitlines()[0])["status"] == "done"


def test_the_help_names_every_method():
    option = next(o for o in load_command("compare").params if o.name == "methods")
    told = set(re.findall(r"[\w-]+", option.help))
    assert told >= COMPARED.keys()
