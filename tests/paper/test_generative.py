"""The experiments moons and images: scores by hand, and tables and pictures from lines alone."""

from dataclasses import replace

import numpy as np
import pytest
from paper_cases import run_lines

from sigmax.data import IMAGE_SETS, ImageData, TwoMoons
from sigmax.distributions import Normal, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.generative.base import AbstractVAE
from sigmax.paper import images
from sigmax.paper.generative import RunSettings, create_generative, score_generative
from sigmax.paper.image_sheets import pack, tiled, unpack
from sigmax.paper.images_report import PAPER_IMAGES, image_figures, image_tables
from sigmax.paper.latent_pictures import shown_seeds
from sigmax.paper.moons import moons_figures, moons_tables, score_samples
from sigmax.runs.records import Task
from sigmax.runs.registry import Choice, find_experiment
from sigmax.runs.report import write_report

MOONS, IMAGES = find_experiment("moons"), find_experiment("images")
SMALL = {"hidden_sizes": [8], "n_steps": 20, "n_test": 50, "n_importance": 5}


def taken_for(record, method, **scores):
    """The same record as one of another method, with some scores of its own."""
    task = replace(record.task, method=method)
    return replace(record, task=task, scores={**record.scores, **scores})


@pytest.fixture(scope="module")
def moons():
    """A model with two seeds, from its lines, and the same taken for another."""
    settings = {**SMALL, "n_train": 60}
    found = run_lines("moons", methods=["vae"], n_splits=2, seed=3, settings=settings)
    better = {"energy": 0.1, "variance_far": 1.0}
    return [*found, *(taken_for(record, "comb-vae", **better) for record in found)]


def test_moons_are_told_in_one_table_with_the_data_as_a_yardstick(moons):
    assert [record.status for record in moons] == ["done"] * 4
    assert [record.task.seed for record in moons] == [3, 4, 3, 4]
    assert all(record.seconds["together"] == 2 for record in moons)
    (table,) = moons_tables(moons)
    assert [row[0] for row in table.rows] == ["VAE", "Comb-VAE", "data"]
    assert table.title.startswith("two moons in four dimensions: 60 points (hidden_sizes=[8],")
    assert table.notes[-1].endswith("are nearer to the data than VAE's on 2 of 2 seeds.")
    energies = [float(row[1].split()[0]) for row in table.rows]
    assert energies[2] < energies[1] == 0.1 < energies[0]
    scores = moons[0].scores
    assert scores["excess"] > 0 and scores["off_data_of_data"] < 0.01 < scores["off_data"]


def test_moons_are_shown_in_pairs_and_in_a_map(moons):
    figures = moons_figures(moons)
    assert list(figures) == ["moons_pairs", "moons_variance"]
    assert len(figures["moons_pairs"].axes) == 6 * 6
    titles = [axes.get_title() for axes in figures["moons_variance"].axes]
    assert titles[:2] == ["VAE", "Comb-VAE"]
    assert all(len(record.to_line()) < 300_000 for record in moons)
    assert all(bool(record.curves) == (record.task.split == 0) for record in moons)


def test_records_of_other_settings_are_not_averaged_with_these(moons):
    others = [replace(r, task=replace(r.task, settings={})) for r in moons if r.task.split == 0]
    tables = moons_tables([*moons, *others])
    assert [table.title.count("hidden_sizes") for table in tables] == [1, 0]
    shown = shown_seeds([*others, *moons])["moons"]
    assert shown["vae"].task.settings["n_train"] == 60  # of the settings with more records


def test_fresh_data_are_at_the_floor_and_moved_data_are_not():
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

    def _likelihood(self, units):
        raise NotImplementedError

    def _stages(self):
        raise NotImplementedError

    def encode(self, X):
        return np.asarray(X)[:, :2]

    def decode_dist(self, z):
        return Predictive(Normal(np.ones((len(z), 3)), np.full((len(z), 3), 2.0)))

    def elbo(self, X, n_samples=1, random_state=0):
        return np.full(len(X), -2.0)

    def log_prob(self, X, n_samples=500, random_state=0):
        return np.full(len(X), -1.0 * n_samples)


def test_scores_are_what_they_say():
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


def test_settings_are_of_the_run_or_of_the_model():
    settings = {"n_test": 10, "n_steps": 5, "hidden_sizes": [4, 3]}
    task = Task(experiment="moons", dataset="moons", method="comb-vae", settings=settings)
    assert RunSettings.of(task) == RunSettings(n_test=10)
    model = create_generative(task, {"n_steps": 9, "n_latent": 1})
    assert (model.n_steps, model.n_latent, model.hidden_sizes) == (5, 1, (4, 3))
    wrong = replace(task, settings={"likelihood": "normal"})
    with pytest.raises(InvalidArgumentError, match="comb-vae has no setting likelihood"):
        create_generative(wrong, {})


def test_images_have_the_latent_dimensions_and_the_floor_of_the_paper():
    assert images.usual_settings("mnist")["n_latent"] == 2
    assert images.usual_settings("svhn")["n_latent"] == 10
    assert images.usual_settings("svhn")["min_std"] == 0.01


@pytest.fixture(scope="module")
def image_records():
    """Two seeds of a model of tiny grey images, and the same taken for a part of another set."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 16)).astype(np.float32)
    y, described = rng.integers(10, size=80), replace(IMAGE_SETS["mnist"], shape=(4, 4))
    data = ImageData("mnist", X[:60], y[:60], X[60:], y[60:], described)
    chosen = {"datasets": ["mnist"], "methods": ["vae-shared"], "settings": SMALL}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "loaded", lambda name: data)
        grey = run_lines("images", device="gpu", n_splits=2, **chosen)
    sheet = pack(images.sample_sheet(KnownModel(n_latent=10), (1, 1, 3), 0))
    facts = {**grey[0].data, "note": "a subset: tiny", "sheet": sheet}
    colour = [replace(r, task=replace(r.task, dataset="svhn"), data=facts, curves={}) for r in grey]
    return [*grey, *colour]


def test_images_are_told_in_a_table_per_set_and_beside_the_paper(image_records):
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
    assert set(PAPER_IMAGES["log_prob"]) == set(IMAGE_SETS)


def test_images_are_shown_in_sheets_and_grey_ones_on_a_map(image_records):
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
    page = write_report(tmp_path).read_text()
    for word in ("Comb-VAE", "σ-VAE", "moons pairs", "images mnist variance"):
        assert word in page
    assert "of an unknown experiment or method" not in page
    stray = replace(moons[1], task=replace(moons[1].task, method="nn"))
    (tmp_path / "records.jsonl").write_text(moons[1].to_line() + stray.to_line())
    page = write_report(tmp_path).read_text()
    assert "of an unknown experiment or method: 1." in page


def test_sheets_survive_being_packed():
    picture = np.random.default_rng(0).uniform(size=(3, 5, 3))  # an odd number of values
    np.testing.assert_allclose(unpack(pack(picture)), picture, atol=0.5 / 15)
    images = np.arange(9 * 2 * 3).reshape(9, 2, 3)
    np.testing.assert_array_equal(tiled(images)[2:4, 3:6], images[4])
    with pytest.raises(ValueError, match="sheet"):
        unpack({"shape": [1], "levels": "§"})


def test_quick_is_a_setting_of_these_two_only():
    (task,) = IMAGES.choose(
        Choice(datasets=["mnist"], methods=["vae"], n_splits=1, quick=True, settings={"n_test": 5})
    )
    assert task.settings["n_steps"] == 300 and task.settings["n_test"] == 5
    assert len(IMAGES.choose(Choice())) == 4 * 4 * 3
    assert len(MOONS.choose(Choice())) == 4 * 5
    with pytest.raises(InvalidArgumentError, match="`quick` is for moons, images only"):
        find_experiment("toy").choose(Choice(quick=True))
