"""Model folders: what was written comes back, and whatever has changed is refused."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from sigmax import files
from sigmax.errors import ModelFileError

HEADER = {"estimator": "Some", "params": {"name": "é", "rate": 0.1}, "facts": {"n": 3}}
ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b.c": np.array([1, 2], dtype=np.int64)}


@pytest.fixture
def folder(tmp_path) -> Path:
    files.write_model(tmp_path / "model", HEADER, ARRAYS)
    return tmp_path / "model"


def rewrite(folder: Path, arrays=None, **changes) -> None:
    """Other content with checksums that fit it, as only a program would write it."""
    header = json.loads((folder / files.HEADER).read_text())
    header |= changes
    if arrays is not None:
        content = safetensors.numpy.save(arrays)
        (folder / files.ARRAYS).write_bytes(content)
        header["arrays_sha256"] = hashlib.sha256(content).hexdigest()
    del header["sha256"]
    header["sha256"] = files.header_checksum(header)
    (folder / files.HEADER).write_bytes(files.render(header))


def test_what_was_written_comes_back(folder):
    header, arrays = files.read_model(folder)
    assert HEADER.items() <= header.items() and header["format"] == files.FORMAT
    assert sorted(arrays) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model"]  # nothing is left


def test_the_checksums_are_sha256_of_the_arrays_and_of_canonical_json(folder):
    header = json.loads((folder / files.HEADER).read_text())
    content = (folder / files.ARRAYS).read_bytes()
    assert header["arrays_sha256"] == hashlib.sha256(content).hexdigest()
    found = header.pop("sha256")
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    assert found == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", [files.HEADER, files.ARRAYS])
def test_a_change_of_any_byte_is_refused_by_the_name_of_the_file(folder, name):
    content = (folder / name).read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        (folder / name).write_bytes(changed)
        with pytest.raises(ModelFileError, match=name):
            files.read_model(folder)
    for changed in (content + b" ", content[:-1], b""):
        (folder / name).write_bytes(changed)
        with pytest.raises(ModelFileError, match=name):
            files.read_model(folder)


def test_other_spaces_in_the_header_are_a_change_too(folder):
    header = json.loads((folder / files.HEADER).read_text())
    (folder / files.HEADER).write_text(json.dumps(header))
    with pytest.raises(ModelFileError, match=r"model\.json' is damaged"):
        files.read_model(folder)


@pytest.mark.parametrize("name", [files.HEADER, files.ARRAYS])
def test_a_missing_file_is_refused_by_its_name(folder, name):
    (folder / name).unlink()
    with pytest.raises(ModelFileError, match=name):
        files.read_model(folder)


def test_an_extra_file_is_refused_by_its_name(folder):
    (folder / "code.py").write_text("print('hello')")
    with pytest.raises(ModelFileError, match=r"not belong to the model: code\.py"):
        files.read_model(folder)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": ARRAYS["a"]}, "'b.c' is missing"),
        (ARRAYS | {"z": np.zeros(1)}, "'z' does not belong"),
        (ARRAYS | {"a": np.zeros((3, 2))}, "'a' is .*float64.*not"),
        (ARRAYS | {"a": ARRAYS["a"].astype(np.float32)}, "'a' is .*float32.*not"),
    ],
)
def test_arrays_that_the_header_does_not_list_are_refused(folder, arrays, message):
    rewrite(folder, arrays)
    with pytest.raises(ModelFileError, match=rf"arrays\.safetensors' is damaged: .*{message}"):
        files.read_model(folder)


def test_another_format_is_refused_with_what_to_do(folder):
    rewrite(folder, format=1)
    with pytest.raises(ModelFileError, match=r"format 1, this one reads 4\): fit and save"):
        files.read_model(folder)
    rewrite(folder, format=5)
    with pytest.raises(ModelFileError, match=r"format 5, .*pip install -U sigmax"):
        files.read_model(folder)
    for text in ("[]", "{}", "not json", '{"format": 2, "x": NaN}', "[" * 100_000):
        (folder / files.HEADER).write_text(text)
        with pytest.raises(ModelFileError, match=r"model\.json"):
            files.read_model(folder)


def test_a_model_is_replaced_whole(folder):
    files.write_model(folder, HEADER | {"estimator": "Other"}, {"c": np.zeros(2)})
    header, arrays = files.read_model(folder)
    assert header["estimator"] == "Other" and list(arrays) == ["c"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model"]


def test_no_file_but_those_of_a_model_is_ever_deleted(folder):
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(ModelFileError, match=r"also holds notes\.txt, which would be lost"):
        files.write_model(folder, HEADER, ARRAYS)
    assert (folder / "notes.txt").read_text() == "precious"
    other = folder.parent / "web"
    other.mkdir()
    (other / files.HEADER).write_text("{}")  # a name that other programs use, too
    with pytest.raises(ModelFileError, match="not a sigmax model folder"):
        files.write_model(other, HEADER, ARRAYS)
    assert (other / files.HEADER).read_text() == "{}"
    with pytest.raises(ModelFileError, match="not a sigmax model folder"):
        files.write_model(folder / "notes.txt", HEADER, ARRAYS)


def test_a_failed_write_leaves_the_older_model(folder, monkeypatch):
    before = files.read_model(folder)
    with pytest.raises(ModelFileError, match="Cannot write the model"):
        files.write_model(folder, {"params": {"f": print}}, ARRAYS)
    with pytest.raises(ModelFileError, match="Cannot write the model"):
        files.write_model(folder, {"params": {"x": float("nan")}}, ARRAYS)
    rename = Path.rename

    def fail(path, target):
        if path.name == "new":
            raise OSError("the disk is full")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(ModelFileError, match="the disk is full"):
        files.write_model(folder, HEADER, {"c": np.zeros(2)})
    assert files.read_model(folder)[0] == before[0]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model"]
