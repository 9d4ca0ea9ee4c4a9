"""UCI benchmark, ablation and active learning: tasks, jobs and records."""

import numpy as np
import pytest
from paper_cases import SMALL, run_lines

from sigmax.data import load_uci
from sigmax.paper.uci import (
    ABLATION,
    COMBINATIONS,
    UCI,
    ablation_figures,
    ablation_tables,
    active_figures,
    active_tables,
    combination,
    describe_split,
    run_splits,
)
from sigmax.runs.experiments import Choice
from sigmax.runs.methods import create_model, fit_models
from sigmax.runs.records import done


def choose(dataset, method, n_splits, experiment=UCI, **settings):
    chosen = Choice(datasets=[dataset], methods=[method], n_splits=n_splits, settings=settings)
    return experiment.choose(chosen)


def test_every_split_is_a_task_and_equal_ones_form_a_job():
    tasks = UCI.choose(Choice(datasets=["yacht", "protein"], methods=["gp", "nn"], seed=100))
    assert len(tasks) == 2 * (20 + 5)
    assert {task.seed - task.split for task in tasks} == {100}
    jobs = UCI.jobs(tasks, "cpu")
    sizes = {(job[0].dataset, job[0].method, len(job)) for job in jobs}
    assert sizes == {
        ("yacht", "gp", 1),
        ("yacht", "nn", 20),
        ("protein", "gp", 1),
        ("protein", "nn", 1),
    }
    assert sorted(task.key for job in jobs for task in job) == sorted(t.key for t in tasks)
    on_gpu = UCI.jobs(tasks, "gpu")
    assert ("protein", "nn", 5) in {(j[0].dataset, j[0].method, len(j)) for j in on_gpu}


def test_records_hold_scores_seconds_and_metadata(data_folder):
    records = run_lines("uci", datasets=["yacht"], methods=["nn"], n_splits=2, settings=SMALL)
    assert [record.status for record in records] == ["done", "done"]
    for record in records:
        assert record.seconds["together"] == 2
        assert 0 < record.scores["coverage_50"] < record.scores["coverage"] <= 1
        assert record.data["n_train"] == 277 and record.data["n_features"] == 6


def test_scores_are_those_of_the_estimator(data_folder):
    (task,) = choose("yacht", "nn", 1, **SMALL)
    (record,) = run_splits((task,))
    data = load_uci("yacht")
    train, test = data.splits[0]
    model = create_model(task).fit(data.X[train], data.y[train])
    expected = model.predict_dist(data.X[test]).log_prob(data.y[test]).mean()
    assert record.scores["log_likelihood"] == pytest.approx(expected, rel=1e-6)


def test_infeasible_tasks_have_a_reason(data_folder):
    (task,) = choose("kin8nm", "gp", 1)
    (record,) = run_splits((task,))
    assert record.status == "infeasible" and "7,373 training rows" in record.reason


def test_duplicates_across_the_split_are_counted(data_folder):
    metadata = [describe_split(load_uci("wine_red"), split) for split in range(20)]
    assert np.mean([values["copies_of_X"] for values in metadata]) == pytest.approx(
        0.266, abs=0.001
    )
    assert metadata[0]["n_distinct_targets"] == 6


def test_models_of_any_kind_are_fitted_and_timed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    data = [(X, X[:, 0]), (X, X[:, 1])]
    tasks = choose("yacht", "gp", 2, max_iter=2, n_restarts=1)
    models = [create_model(task) for task in tasks]
    seconds = fit_models(models, data)
    assert seconds["together"] == 1 and seconds["fit"] > 0
    assert models[1].predict(X).shape == (40,)


def test_ablation_has_sixteen_combinations_and_shows_the_effect_of_each_idea():
    tasks = choose("yacht", "combined", 2, ABLATION, **SMALL)
    assert len(tasks) == 32
    assert {combination(task) for task in tasks} == set(COMBINATIONS)
    assert COMBINATIONS[0] == "none" and COMBINATIONS[-1] == "LS+MV+IG+EX"
    records = [
        done(
            task,
            scores={
                "log_likelihood": 0.5 * task.settings["locality"] - 0.1 * task.settings["split"],
                "rmse": 1.0 + task.split,
            },
        )
        for task in reversed(tasks)
    ]
    table, errors = ablation_tables(records)
    changes = {row[0]: row[1] for row in table.rows if row[0].startswith("with")}
    assert changes["with LS − without"] == "0.50 ± 0.00"
    assert changes["with MV − without"] == "-0.10 ± 0.00"
    assert changes["with IG − without"] == "0.00 ± 0.00"
    assert len(table.rows) == 20 and errors.rows[0][1] == "1.50 ± 0.50"
    (figure,) = ablation_figures(records).values()
    assert figure.axes[0].get_title() == "yacht"


def test_active_learning_has_ten_rounds_and_tables_and_figures(data_folder):
    records = run_lines("active", datasets=["yacht"], methods=["nn"], n_splits=2, settings=SMALL)
    assert [record.seconds["together"] for record in records] == [2] * 4
    assert all(len(record.curves["rmse"]) == 11 for record in records)
    first, other = records[0], records[2]
    assert first.curves["rmse"][0] == pytest.approx(other.curves["rmse"][0], rel=1e-4)
    assert first.curves["rmse"][-1] != other.curves["rmse"][-1]
    errors, _ = active_tables(records)
    assert errors.header == ["data set", "NN, variance", "NN, random"]
    assert errors.rows[0][1].endswith(("+", "−")) and len(errors.notes) == 2
    assert set(active_figures(records)) == {"active_rmse", "active_log_likelihood"}
