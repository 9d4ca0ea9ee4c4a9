"""Image sets: formats, files, downloads and errors."""

import gzip
import hashlib
import io
import struct
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat

from sigmax.data import IMAGE_SETS, load_images, store
from sigmax.data.images import FORMATS, NAMES, read_cifar, read_idx
from sigmax.data.store import content_hash
from sigmax.errors import DataFileError, InvalidArgumentError

RNG = np.random.default_rng(0)


def tiny_arrays(shape, n_train=6, n_test=2):
    sizes = {"X_train": (n_train, *shape), "y_train": (n_train,)}
    sizes |= {"X_test": (n_test, *shape), "y_test": (n_test,)}
    largest = {"X": 256, "y": 10}
    return {
        name: RNG.integers(largest[name[0]], size=size).astype(np.uint8)
        for name, size in sizes.items()
    }


def hash_of(arrays):
    return content_hash((arrays[name] for name in NAMES), "u1")


def idx(array):
    """The bytes of a gzipped idx file."""
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


def cifar_batch(X, y):
    return b"".join(
        bytes([label]) + image.transpose(2, 0, 1).tobytes()
        for image, label in zip(X, y, strict=True)
    )


def cifar(arrays):
    """Bytes of a tar file of six batches and one other file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        parts = {
            f"data_batch_{i + 1}.bin": cifar_batch(
                arrays["X_train"][i:][::5], arrays["y_train"][i:][::5]
            )
            for i in range(5)
        }
        parts["test_batch.bin"] = cifar_batch(arrays["X_test"], arrays["y_test"])
        for name, content in {"readme.html": b"<html>", **parts}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def mat(X, y):
    file = io.BytesIO()
    labels = np.where(y == 0, 10, y)[:, None]
    savemat(file, {"X": X.transpose(1, 2, 3, 0), "y": labels})
    return file.getvalue()


def original_files(name, arrays):
    """File name -> bytes, in the format of the set's source."""
    if name == "cifar10":
        return {"cifar-10-binary.tar.gz": cifar(arrays)}
    if name == "svhn":
        parts = {p: (arrays[f"X_{p}"], arrays[f"y_{p}"]) for p in ("train", "test")}
        return {f"{part}_32x32.mat": mat(*pair) for part, pair in parts.items()}
    return {file: idx(arrays[part]) for file, part in zip(IMAGE_SETS[name].md5, NAMES, strict=True)}


@pytest.fixture
def shrink(monkeypatch, cache):
    """Return a function that makes a set tiny, with a fake download of its files."""

    def make(name, *, shape=None, spoiled=None):
        described = IMAGE_SETS[name]
        arrays = tiny_arrays(described.shape)
        files = original_files(name, arrays)
        md5 = {file: hashlib.md5(files[file]).hexdigest() for file in described.md5}
        if spoiled:
            files[spoiled] += b" "
        tiny = replace(
            described,
            n_train=6,
            n_test=2,
            shape=shape or described.shape,
            content_hash=None,
            subset=None,
            md5=md5,
        )
        monkeypatch.setitem(IMAGE_SETS, name, tiny)
        asked = []

        def download(url, path, *, known_hash):
            asked.append(url)
            content = files[url.rsplit("/", 1)[-1]]
            if f"md5:{hashlib.md5(content).hexdigest()}" != known_hash:
                raise DataFileError(f"Downloading {url} failed: its md5 is another.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

        monkeypatch.setattr(store, "download", download)
        return arrays, files, asked

    return make


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_set_is_read_from_its_original_files_and_cached(name, shrink, cache):
    arrays, files, asked = shrink(name)
    if name == "cifar10":  # the batches take every fifth image
        order = [i for start in range(5) for i in range(start, 6, 5)]
        arrays |= {part: arrays[part][order] for part in ("X_train", "y_train")}
    data = load_images(name)
    assert len(asked) == len(files) and all(url.startswith("http") for url in asked)
    assert sorted(path.name for path in cache.iterdir() if path.is_file()) == [f"{name}.npz"]
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".npz"]
    assert data.X_train.dtype == np.float32 and data.X_train.shape == (6, np.prod(data.shape))
    np.testing.assert_array_equal(np.rint(255 * data.X_train), arrays["X_train"].reshape(6, -1))
    np.testing.assert_array_equal(np.rint(255 * data.X_test), arrays["X_test"].reshape(2, -1))
    np.testing.assert_array_equal(data.y_train, arrays["y_train"])
    np.testing.assert_array_equal(data.y_test, arrays["y_test"])
    assert not data.note and data.content_hash == hash_of(arrays)
    again = load_images(name)  # from the cache, without the net
    assert len(asked) == len(files)
    np.testing.assert_array_equal(again.X_train, data.X_train)


def test_original_files_on_disk_are_used_and_kept(shrink, cache):
    _, files, asked = shrink("mnist")
    (cache / "mnist").mkdir(parents=True)
    for name, content in files.items():
        (cache / "mnist" / name).write_bytes(content)
    load_images("mnist")
    assert not asked and len(list((cache / "mnist").iterdir())) == 4


def test_error_of_a_wrong_checksum_names_the_folder_for_the_set(shrink, cache):
    shrink("svhn", spoiled="test_32x32.mat")
    with pytest.raises(DataFileError, match=r"md5.*already, put svhn\.npz, with the uint8 arrays"):
        load_images("svhn")
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_arrays_of_another_shape_or_content_raise_an_error(shrink, cache, monkeypatch):
    shrink("cifar10", shape=(16, 64, 3))
    with pytest.raises(
        DataFileError, match=r"downloaded set is not CIFAR10: X_train has.* \(6, 32, 32"
    ):
        load_images("cifar10")
    arrays, _, _ = shrink("mnist")
    tiny = replace(IMAGE_SETS["mnist"], content_hash="0" * 16)
    monkeypatch.setitem(IMAGE_SETS, "mnist", tiny)
    np.savez(cache / "mnist.npz", **arrays)
    with pytest.raises(DataFileError, match=r"replace or remove it.*content hash"):
        load_images("mnist")
    np.savez(cache / "mnist.npz", **(arrays | {"y_test": arrays["y_test"].astype(float)}))
    with pytest.raises(DataFileError, match="y_test has the type float64, not uint8"):
        load_images("mnist")


def test_known_subset_is_loaded_with_a_note_if_there_is_no_whole_set(shrink, cache, monkeypatch):
    subset = IMAGE_SETS["svhn"].subset
    assert subset is not None
    whole, _, asked = shrink("svhn")
    part = tiny_arrays((32, 32, 3), 4, 1)
    subset = replace(subset, n_train=4, n_test=1, content_hash=hash_of(part))
    monkeypatch.setitem(IMAGE_SETS, "svhn", replace(IMAGE_SETS["svhn"], subset=subset))
    cache.mkdir(parents=True)
    np.savez(cache / subset.file, **part)
    data = load_images("svhn")
    assert not asked and data.note.startswith("a subset")
    assert data.X_train.shape == (4, 3072)
    np.savez(cache / "svhn.npz", **whole)
    assert not load_images("svhn").note
    (cache / "svhn.npz").unlink()
    np.savez(cache / subset.file, **tiny_arrays((32, 32, 3), 4, 1))
    with pytest.raises(DataFileError, match="is not the known subset of SVHN: its content hash"):
        load_images("svhn")


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip file",
        idx(np.zeros((2, 2), np.uint8))[:20],
        gzip.compress(b"\x00\x00\x0d\x01" + bytes(4), mtime=0),
        gzip.compress(struct.pack(">BBBBI", 0, 0, 8, 1, 5) + bytes(4), mtime=0),
        gzip.compress(b"\x00", mtime=0),
    ],
    ids=["no gzip", "cut short", "not bytes", "fewer values than said", "no head"],
)
def test_broken_idx_files_raise_an_error(tmp_path, content):
    (tmp_path / "file.gz").write_bytes(content)
    with pytest.raises(DataFileError, match=r"file\.gz cannot be read"):
        read_idx(tmp_path / "file.gz")


def test_cifar_stores_one_plane_per_colour():
    image = np.arange(3072, dtype=np.uint16).astype(np.uint8).reshape(32, 32, 3)
    X, y = read_cifar(cifar_batch(image[None], [7]))
    np.testing.assert_array_equal(X[0], image)
    assert y.tolist() == [7]


@pytest.mark.parametrize("content", [b"", b"no tar file", cifar(tiny_arrays((32, 32, 3)))[:2000]])
def test_broken_cifar_and_svhn_files_raise_an_error(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match="cannot be read"):
        FORMATS["cifar"]([path])
    with pytest.raises(DataFileError, match="cannot be read"):
        FORMATS["svhn"]([path, path])


def test_unknown_name_raises_an_error():
    with pytest.raises(InvalidArgumentError, match=r"`name` must be one of .*mnist, .*'emnist'"):
        load_images("emnist")


def test_files_of_the_data_folder_are_the_published_sets(data_folder):
    """Two whole sets and two parts; the shape, the hash and the mean grey that are published."""
    mnist = load_images("mnist")
    assert not mnist.note
    assert mnist.X_train.mean() == pytest.approx(0.1307, abs=1e-4)
    assert mnist.X_train.std() == pytest.approx(0.3081, abs=1e-4)
    svhn = load_images("svhn")
    assert svhn.X_train.shape[1] == 3072 and 0 <= svhn.X_train.min() and svhn.X_train.max() <= 1
