"""Regression sets of the paper: files, downloads, splits and errors."""

import re
import sys
from dataclasses import replace
from io import BytesIO
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from sigmax.data import UCI_SETS, load_uci, standard_splits, uci
from sigmax.data.uci import Archive, OpenML
from sigmax.errors import DataFileError, InvalidArgumentError, MissingExtraError

NAMES = "boston carbon concrete energy kin8nm naval power protein superconduct wine_red wine_white"
ARCHIVES = [name for name, described in UCI_SETS.items() if isinstance(described.source, Archive)]
OPENML = [name for name in UCI_SETS if name not in ARCHIVES]


def small(monkeypatch, name, *, n_rows=12):
    """Replace a set by twelve rows with the same layout."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, UCI_SETS[name].n_features)).round(6)
    y = rng.normal(size=n_rows).round(6)
    described = replace(
        UCI_SETS[name],
        n_rows=n_rows,
        target_mean=float(y.mean()),
        target_std=float(y.std()),
        content_hash=None,
    )
    monkeypatch.setitem(UCI_SETS, name, described)
    return X, y


def in_file(name, X, y):
    """The bytes of a file that is laid out as the original."""
    left_out = np.full_like(y, 7.0)
    columns = {
        "energy": [*X.T, y, left_out],
        "naval": [*X.T, y, left_out],
        "protein": [y, *X.T],
        "year": [y, *X.T],
    }.get(name, [*X.T, y])
    table = pd.DataFrame(np.transpose(columns)).rename(columns="column {}".format)
    if name in ("naval", "yacht"):
        lines = ("   " + "  ".join(map(repr, row)) + " \n" for row in table.to_numpy().tolist())
        return ("".join(lines) + "\n").encode()
    if name in ("concrete", "energy", "power"):
        content = BytesIO()
        with pd.ExcelWriter(content, engine="openpyxl") as writer:
            if name == "power":
                table[::-1].to_excel(writer, sheet_name="Sheet1", index=False)
            table.to_excel(writer, sheet_name="Sheet2", index=False)
        return content.getvalue()
    layout = {
        "carbon": {"sep": ";", "decimal": ","},
        "wine_red": {"sep": ";"},
        "wine_white": {"sep": ";"},
        "year": {"header": False},
    }.get(name, {})
    return table.to_csv(index=False, **layout).encode()


def zipped(member, content):
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr("Readme.txt", "about")
        archive.writestr(f"folder/{member}", content)
    return packed.getvalue()


def archive_of(name) -> Archive:
    source = UCI_SETS[name].source
    assert isinstance(source, Archive)
    return source


def serve_set(monkeypatch, serve, name, packed):
    """Put a zip file where the archive has that of a set."""
    source = archive_of(name)
    base = serve(packed, path=f"/{source.number}/{source.slug}.zip")
    monkeypatch.setattr(uci, "ARCHIVE_URL", base)


def test_all_thirteen_sets_are_described():
    assert list(UCI_SETS) == [*NAMES.split(), "yacht", "year"]
    for name, described in UCI_SETS.items():
        assert described.name == name
        assert described.n_splits == {"protein": 5, "year": 1}.get(name, 20)
        assert described.remark.endswith(".")


@pytest.mark.parametrize("name", ARCHIVES)
def test_archive_file_is_fetched_parsed_and_cached(name, cache, serve, monkeypatch, closed_url):
    X, y = small(monkeypatch, name)
    source = archive_of(name)
    if source.first_row:
        source = replace(source, first_row=(*X[0], y[0]))
    n_train = 9 if name == "year" else None
    described = replace(UCI_SETS[name], source=source, n_train=n_train)
    monkeypatch.setitem(UCI_SETS, name, described)
    serve_set(monkeypatch, serve, name, zipped(source.member, in_file(name, X, y)))
    fetched = load_uci(name)
    np.testing.assert_array_equal(fetched.X, X)
    np.testing.assert_array_equal(fetched.y, y)
    assert [path.name for path in cache.iterdir()] == [f"{name}.npz"]
    monkeypatch.setattr(uci, "ARCHIVE_URL", closed_url)
    again = load_uci(name)
    np.testing.assert_array_equal(again.X, X)
    assert again.content_hash == fetched.content_hash
    assert len(again.splits) == described.n_splits


def test_power_falls_back_to_the_first_sheet(monkeypatch):
    X, y = small(monkeypatch, "power")
    inputs, target = archive_of("power").read(in_file("power", X, y))
    np.testing.assert_array_equal(inputs, X[::-1])
    np.testing.assert_array_equal(target, y[::-1])


def test_zip_file_in_the_cache_is_used_and_kept(cache, monkeypatch):
    X, y = small(monkeypatch, "yacht")
    cache.mkdir()
    by_hand = cache / "yacht+hydrodynamics.zip"
    by_hand.write_bytes(zipped("yacht_hydrodynamics.data", in_file("yacht", X, y)))
    np.testing.assert_array_equal(load_uci("yacht").X, X)
    assert by_hand.exists()


@pytest.mark.parametrize("name", OPENML)
def test_openml_table_is_fetched_and_cached(name, cache, monkeypatch):
    X, y = small(monkeypatch, name)
    X[:, 3] = np.arange(12) % 2

    def fetch_openml(*, data_id, data_home, as_frame):
        assert data_id == {"boston": 531, "kin8nm": 189}[name]
        assert cache in data_home.parents and as_frame
        data = pd.DataFrame(X)
        data[3] = pd.Categorical(data[3].astype(int).astype(str))  # as OpenML has CHAS and RAD
        return Bunch(data=data, target=pd.Series(y))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    np.testing.assert_array_equal(load_uci(name).X, X)
    monkeypatch.delattr("sklearn.datasets.fetch_openml")
    np.testing.assert_array_equal(load_uci(name).y, y)


@pytest.mark.parametrize("name", UCI_SETS)
def test_without_file_and_network_the_error_names_file_and_folder(name, cache, monkeypatch):
    def fetch_openml(**_):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    with pytest.raises(DataFileError, match="failed") as caught:
        load_uci(name)
    source = UCI_SETS[name].source
    assert f"put {name}.npz, with the arrays X and y, into {cache}" in str(caught.value)
    if isinstance(source, OpenML):
        assert f"data set {source.data_id} from OpenML" in str(caught.value)
    else:
        assert f"/{source.number}/{source.slug}.zip" in str(caught.value)
        assert f"save it as {cache / source.slug}.zip" in str(caught.value)
    assert not list(cache.glob("*.*"))


def test_error_of_a_missing_package_has_the_command_to_install_it(cache, serve, monkeypatch):
    X, y = small(monkeypatch, "energy")
    serve_set(monkeypatch, serve, "energy", zipped("ENB2012_data.xlsx", in_file("energy", X, y)))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(
        MissingExtraError, match=r'ENB2012_data.xlsx: pip install "sigmax\[paper\]"'
    ):
        load_uci("energy")


@pytest.mark.parametrize(
    "packed, message",
    [
        (b"no zip file", "cannot read yacht_hydrodynamics.data: BadZipFile"),
        (zipped("other.txt", b"1 2"), "cannot read yacht_hydrodynamics.data: KeyError"),
        (zipped("yacht_hydrodynamics.data", b"a b\nc d\n"), "could not convert"),
        (zipped("yacht_hydrodynamics.data", b""), "cannot read"),
        (zipped("yacht_hydrodynamics.data", b"1 2 3\n4 5 6\n"), r"\(2, 2\) and \(2,\), not"),
    ],
)
def test_broken_archive_raises_an_error_and_is_not_cached(
    packed, message, cache, serve, monkeypatch
):
    serve_set(monkeypatch, serve, "yacht", packed)
    with pytest.raises(DataFileError, match=message):
        load_uci("yacht")
    assert not list(cache.iterdir())


def test_another_content_hash_raises_an_error(cache, serve, monkeypatch):
    X, y = small(monkeypatch, "wine_red")
    monkeypatch.setitem(UCI_SETS, "wine_red", replace(UCI_SETS["wine_red"], content_hash="0" * 16))
    content = zipped("winequality-red.csv", in_file("wine_red", X, y))
    serve_set(monkeypatch, serve, "wine_red", content)
    with pytest.raises(DataFileError, match=r"content hash is [0-9a-f]{16}, not 0{16}"):
        load_uci("wine_red")
    assert not list(cache.iterdir())


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda X, y: (X[1:], y), r"shapes \(11, 6\) and \(12,\), not \(12, 6\), \(12,\)"),
        (lambda X, y: (X, y[:, None]), r"\(12, 1\)"),
        (lambda X, y: (np.full_like(X, np.nan), y), "not finite"),
        (lambda X, y: (X.astype(str), y), "not numbers"),
        (lambda X, y: (X, y + 0.1), "the target has mean"),
        (lambda X, y: (X, y.mean() + 1.1 * (y - y.mean())), "standard deviation"),
    ],
)
def test_file_with_other_data_raises_an_error(spoil, message, cache, monkeypatch):
    X, y = spoil(*small(monkeypatch, "yacht"))
    cache.mkdir()
    np.savez(cache / "yacht.npz", X=X, y=y)
    with pytest.raises(DataFileError, match=message) as caught:
        load_uci("yacht")
    assert str(cache / "yacht.npz") in str(caught.value)


def test_unknown_name_raises_an_error():
    with pytest.raises(InvalidArgumentError, match=r"boston, carbon.*got 'iris'"):
        load_uci("iris")


def test_standard_splits_contain_all_rows():
    splits = standard_splits(107, 20)
    assert len(splits) == 20
    for train, test in splits:
        assert (len(train), len(test)) == (96, 11)
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(107))
    first = standard_splits(107, 3)
    for few, many in zip(first, splits[:3], strict=True):
        np.testing.assert_array_equal(few[0], many[0])


@pytest.mark.parametrize("sizes, name", [((1, 20), "n_rows"), ((10, 0), "n_splits")])
def test_too_few_rows_or_splits_raise_an_error(sizes, name):
    with pytest.raises(InvalidArgumentError, match=f"`{name}` must be a whole number of at least"):
        standard_splits(*sizes)


def test_year_has_its_official_split():
    [(train, test)] = UCI_SETS["year"].splits()
    assert (len(train), len(test)) == (463_715, 51_630)
    assert (train[0], train[-1], test[0], test[-1]) == (0, 463_714, 463_715, 515_344)


@pytest.mark.parametrize("name", [name for name in UCI_SETS if name != "year"])
def test_sets_in_the_folder_are_as_described(name, data_folder):
    loaded = load_uci(name)
    described = loaded.description
    assert loaded.X.shape == (described.n_rows, described.n_features)
    assert (loaded.X.dtype, loaded.y.dtype) == (np.float64, np.float64)
    assert re.fullmatch("[0-9a-f]{16}", loaded.content_hash)
    with np.load(data_folder / f"{name}.npz", allow_pickle=False) as file:
        if "splits_train" not in file:
            return
        given = zip(file["splits_train"], file["splits_test"], strict=True)
        for (train, test), rows in zip(loaded.splits, given, strict=True):
            np.testing.assert_array_equal(train, rows[0])
            np.testing.assert_array_equal(test, rows[1])


@pytest.mark.parametrize("name", [n for n, known in UCI_SETS.items() if known.content_hash])
def test_known_hash_is_that_of_the_original_file(name, data_folder, cache, serve, monkeypatch):
    with np.load(data_folder / f"{name}.npz", allow_pickle=False) as file:
        content = in_file(name, file["X"], file["y"])
    serve_set(monkeypatch, serve, name, zipped(archive_of(name).member, content))
    assert load_uci(name).content_hash == UCI_SETS[name].content_hash
