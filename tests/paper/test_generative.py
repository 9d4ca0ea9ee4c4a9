"""The experiments moons and images: scores, tables and figures from records."""

from dataclasses import replace

import numpy as np
import pytest
from paper_cases import run_lines

from sigmax.data import IMAGE_SETS, ImageData, TwoMoons
from sigmax.distributions import Normal, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.generative.vae import AbstractVAE
from sigmax.paper import generative, paper_experiments
from sigmax.paper.benchmark import PUBLISHED
from sigmax.paper.generative import (
    IMAGES,
    MOONS,
    RunSettings,
    create_generative,
    image_figures,
    image_settings,
    image_tables,
    moons_figures,
    moons_tables,
    pack,
    run_settings,
    sample_sheet,
    score_generative,
    score_samples,
    shown_seeds,
    tiled,
    unpack,
)
from sigmax.runs.experiments import Choice
from sigmax.runs.records import Task
from sigmax.runs.report import write_report

SMALL = {"hidden_sizes": [8], "n_steps": 20, "n_test": 50, "n_importance": 5}


def taken_for(record, method, **scores):
    """The record with another method and other scores."""
    task = replace(record.task, method=method)
    return replace(record, task=task, scores={**record.scores, **scores})


@pytest.fixture(scope="module")
def moons():
    """Records of a model with two seeds, and the same as records of another model."""
    settings = {**SMALL, "n_train": 60}
    found = run_lines("moons", methods=["vae"], n_splits=2, seed=3, settings=settings)
    better = {"energy": 0.1, "variance_far": 1.0}
    return [*found, *(taken_for(record, "comb-vae", **better) for record in found)]


def test_moons_have_one_table_with_a_row_for_the_data(moons):
    assert [record.status for record in moons] == ["done"] * 4
    assert [record.task.seed for record in moons] == [3, 4, 3, 4]
    assert all(record.seconds["together"] == 2 for record in moons)
    (table,) = moons_tables(moons)
    assert [row[0] for row in table.rows] == ["VAE", "Comb-VAE", "data"]
    assert table.title.startswith("two moons in four dimensions: 60 points (hidden_sizes=[8],")
    assert table.notes[-1].endswith("has a smaller energy distance than VAE on 2 of 2 seeds.")
    energies = [float(row[1].split()[0]) for row in table.rows]
    assert energies[2] < energies[1] == 0.1 < energies[0]
    scores = moons[0].scores
    assert scores["excess"] > 0 and scores["off_data_of_data"] < 0.01 < scores["off_data"]


def test_moons_have_a_figure_of_pairs_and_a_map_of_the_variance(moons):
    figures = moons_figures(moons)
    assert list(figures) == ["moons_pairs", "moons_variance"]
    assert len(figures["moons_pairs"].axes) == 6 * 6
    titles = [axes.get_title() for axes in figures["moons_variance"].axes]
    assert titles[:2] == ["VAE", "Comb-VAE"]
    assert all(len(record.to_line()) < 300_000 for record in moons)
    assert all(bool(record.curves) == (record.task.split == 0) for record in moons)


def test_records_of_different_settings_are_not_averaged(moons):
    others = [replace(r, task=replace(r.task, settings={})) for r in moons if r.task.split == 0]
    tables = moons_tables([*moons, *others])
    assert [table.title.count("hidden_sizes") for table in tables] == [1, 0]
    shown = shown_seeds([*others, *moons])["moons"]
    assert shown["vae"].task.settings["n_train"] == 60  # of the settings with more records


def test_new_data_have_small_distances_and_shifted_data_large_ones():
    fresh = TwoMoons().sample(5_000, random_state=99)[0]
    same, moved = score_samples(fresh, 0), score_samples(fresh + 3, 0)
    assert same["energy"] < 0.1 and same["sliced_wasserstein"] < 0.1 and same["off_data"] < 0.01
    assert moved["energy"] > 1 and moved["sliced_wasserstein"] > 1 and moved["off_data"] > 0.9


class KnownModel(AbstractVAE):
    """Codes are the first two features; the decoder gives back 1 with a std of 2 everywhere."""

    def __init__(self, n_latent=2):
        self.n_latent = n_latent

    def sample(self, n=1, with_noise=True, random_state=None):
        return np.random.default_rng(random_state).uniform(size=(n, 3))

    def encode(self, X):
        return np.asarray(X)[:, :2]

    def decode_dist(self, z):
        return Predictive(Normal(np.ones((len(z), 3)), np.full((len(z), 3), 2.0)))

    def elbo(self, X, n_samples=1, random_state=0):
        return np.full(len(X), -2.0)

    def log_prob(self, X, n_samples=500, random_state=0):
        return np.full(len(X), -1.0 * n_samples)


def test_scores_agree_with_their_definitions():
    rng = np.random.default_rng(0)
    X_train, X_test = rng.normal(size=(200, 3)), 1 + rng.normal(size=(100, 3))
    scores = score_generative(KnownModel(), X_train, X_test, n_importance=7)
    squared, total = np.mean((X_test - 1) ** 2), X_train.var(axis=0).sum()
    assert scores["elbo_train"] == -2 and scores["log_prob"] == -7
    assert scores["rmse"] == pytest.approx(np.sqrt(squared))
    assert scores["variance_bias"] == pytest.approx(4 - squared)
    assert scores["variance_ratio"] == pytest.approx(4 / squared)
    assert scores["variance_on_codes"] == pytest.approx(12 / total)
    assert scores["variance_far"] == pytest.approx(12 / total)
    assert scores["variance_median"] == pytest.approx(np.median(4 / X_train.var(axis=0)))


def test_settings_are_split_into_those_of_the_run_and_of_the_model():
    settings = {"n_test": 10, "n_steps": 5, "hidden_sizes": [4, 3]}
    task = Task(experiment="moons", dataset="moons", method="comb-vae", settings=settings)
    assert run_settings(task) == RunSettings(n_test=10)
    model = create_generative(task, {"n_steps": 9, "n_latent": 1})
    assert (model.n_steps, model.n_latent, model.hidden_sizes) == (5, 1, (4, 3))
    wrong = replace(task, settings={"likelihood": "normal"})
    with pytest.raises(InvalidArgumentError, match="comb-vae has no setting likelihood"):
        create_generative(wrong, {})


def test_images_have_the_latent_dimensions_and_minimum_std_of_the_paper():
    assert image_settings("mnist")["n_latent"] == 2
    assert image_settings("svhn")["n_latent"] == 10
    assert image_settings("svhn")["min_std"] == 0.01


@pytest.fixture(scope="module")
def image_records():
    """Records of two seeds on tiny grey images, and the same as records of a subset of SVHN."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 16)).astype(np.float32)
    y, described = rng.integers(10, size=80), replace(IMAGE_SETS["mnist"], shape=(4, 4))
    data = ImageData("mnist", X[:60], y[:60], X[60:], y[60:], described)
    chosen = {"datasets": ["mnist"], "methods": ["vae-shared"], "settings": SMALL}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generative, "load_cached_images", lambda name: data)
        grey = run_lines("images", device="gpu", n_splits=2, **chosen)
    sheet = pack(sample_sheet(KnownModel(n_latent=10), (1, 1, 3), 0))
    facts = {**grey[0].data, "note": "a subset: tiny", "sheet": sheet}
    colour = [replace(r, task=replace(r.task, dataset="svhn"), data=facts, curves={}) for r in grey]
    return [*grey, *colour]


def test_images_have_two_tables_per_set_and_one_of_published_values(image_records):
    assert [record.status for record in image_records] == ["done"] * 4
    grey, spread, colour, _, paper = image_tables(image_records)
    assert spread.title.startswith("images: MNIST, the decoder's variance (")
    assert [row[0] for row in spread.rows] == ["σ-VAE"]
    assert grey.title.startswith("images: MNIST (") and colour.title.startswith("images: SVHN (")
    assert not any("subset" in note for note in grey.notes)
    assert colour.notes[0] == "SVHN here is a subset: tiny."
    assert "2 seeds were trained at once" in grey.notes[-1]
    assert len(paper.rows) == 4 and paper.rows[0][1] == "2053.01 ± 1.60"
    assert "Not the same quantities" in paper.notes[0] and "here: SVHN." in paper.notes[0]
    assert set(PUBLISHED["images"]["log_prob"]) == set(IMAGE_SETS)


def test_images_have_figures_of_samples_and_grey_ones_a_map(image_records):
    figures = image_figures(image_records)
    assert list(figures) == ["images_mnist", "images_mnist_variance", "images_svhn"]
    first = [record for record in image_records if record.task.split == 0]
    assert unpack(first[0].data["sheet"]).shape == (15 * 4, 15 * 4)
    assert unpack(first[1].data["sheet"]).shape == (6, 6, 3)
    assert len(first[0].curves["codes"]) == 2 * 20
    assert "sheet" not in image_records[1].data


def test_page_shows_both_experiments(moons, image_records, tmp_path):
    lines = "".join(record.to_line() for record in [*moons, *image_records])
    (tmp_path / "records.jsonl").write_text(lines)
    page = write_report(tmp_path, paper_experiments()).read_text()
    for word in ("Comb-VAE", "σ-VAE", "moons pairs", "images mnist variance"):
        assert word in page
    assert "of an unknown experiment or method" not in page
    stray = replace(moons[1], task=replace(moons[1].task, method="nn"))
    (tmp_path / "records.jsonl").write_text(moons[1].to_line() + stray.to_line())
    page = write_report(tmp_path, paper_experiments()).read_text()
    assert "Records of an unknown experiment or method, not shown: 1." in page


def test_packed_pictures_are_unpacked():
    picture = np.random.default_rng(0).uniform(size=(3, 5, 3))  # an odd number of values
    np.testing.assert_allclose(unpack(pack(picture)), picture, atol=0.5 / 15)
    images = np.arange(9 * 2 * 3).reshape(9, 2, 3)
    np.testing.assert_array_equal(tiled(images)[2:4, 3:6], images[4])
    with pytest.raises(ValueError, match="picture of samples"):
        unpack({"shape": [1], "levels": "§"})


def test_quick_settings_exist_for_moons_and_images_only():
    (task,) = IMAGES.choose(
        Choice(datasets=["mnist"], methods=["vae"], n_splits=1, quick=True, settings={"n_test": 5})
    )
    assert task.settings["n_steps"] == 300 and task.settings["n_test"] == 5
    assert len(IMAGES.choose(Choice())) == 4 * 4 * 3
    assert len(MOONS.choose(Choice())) == 4 * 5
    with pytest.raises(InvalidArgumentError, match="`quick`: uci has no quick settings"):
        paper_experiments()["uci"].choose(Choice(quick=True))
