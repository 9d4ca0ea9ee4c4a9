"""Texts of commands: numbers, verdicts and names of files."""

from pathlib import Path

import numpy as np
import pytest

from sigmax.cli.describe import count_kinds, printable
from sigmax.cli.predict import default_output, is_parts
from sigmax.cli.scores import Estimate, ScoreDifference, estimate_text, standard_error, verdict
from sigmax.table_model import Note, UnusualRows
from sigmax.tables import Kind


def test_kinds_are_counted_and_control_characters_are_not_printed():
    kinds = [Kind.NUMBER, Kind.TIME, Kind.NUMBER, Kind.CATEGORY]
    assert count_kinds(kinds) == "2 numbers, 1 category and 1 time"
    assert printable("red\x1b[31m") == "red�[31m"


def test_numbers_are_rounded_to_two_digits_of_their_error():
    assert estimate_text(Estimate(12345.6, 78.9)) == "12,346 ± 79"
    assert estimate_text(Estimate(0.9034, 0.012), percent=True) == "90.3 ± 1.2 %"


def test_the_standard_error_of_clusters_is_that_of_their_means():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert standard_error(values, np.arange(4)) == pytest.approx(np.std(values, ddof=1) / 2)
    assert standard_error(values, np.array([0, 0, 1, 1])) == pytest.approx(1.0)  # of 1.5 and 3.5


@pytest.mark.parametrize(
    ("crps", "rmse", "worst_row", "expected"),
    [
        (-0.46, 0.8, 0.0, "Better than a linear model: CRPS 23.0 ± 2.5 % lower."),
        (-0.46, 3.1, 0.9, "% lower, but RMSE 3.1 times as high because of one row."),
        (0.02, 1.02, 0.0, "No better than a linear model: "),
        (0.4, 1.3, 0.0, "Worse than a linear model: "),
    ],
)
def test_a_verdict_follows_the_crps_and_names_a_higher_rmse(crps, rmse, worst_row, expected):
    found = verdict(
        ScoreDifference(
            baseline="linear",
            baseline_crps=2.0,
            log_likelihood=Estimate(0.3, 0.1),
            crps=Estimate(crps, 0.05),
            rmse=rmse,
            worst_row=worst_row,
        )
    )
    assert expected in found


def test_many_files_and_folders_are_predicted_in_parts():
    assert not is_parts(["new.csv"], "out.csv")
    assert is_parts(["new/*.csv"], None) and is_parts(["a.csv"], "out/")


def test_predictions_are_next_to_the_file_in_its_format():
    assert default_output(Path("a/new.csv.gz")) == Path("a/new_predicted.csv")
    assert default_output(Path("new.parquet")).name == "new_predicted.parquet"


def test_values_beyond_the_training_range_are_counted():
    rows = UnusualRows()
    rows.add([[], [Note("range", "size", "above 9")]], np.array([0.0, 0.0]))
    assert rows.sentences() == ["1 value beyond the range of the training data: size above 9 (1)."]
