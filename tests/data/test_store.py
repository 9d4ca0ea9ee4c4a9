"""Data files: folders, downloads and errors."""

import hashlib
import re
import sys

import numpy as np
import pytest

from sigmax.data import load_uci, store
from sigmax.data.store import cache_folder, download, find_file, read_npz, write_npz
from sigmax.errors import DataFileError, MissingExtraError

CONTENT = bytes(range(256)) * 1000


def test_data_folder_comes_before_the_cache(tmp_path, cache, monkeypatch):
    cache.mkdir()
    (cache / "a.npz").touch()
    assert find_file("a.npz") == cache / "a.npz"
    monkeypatch.setenv("SIGMAX_DATA", str(tmp_path))
    assert find_file("a.npz") == cache / "a.npz"
    (tmp_path / "a.npz").touch()
    assert find_file("a.npz") == tmp_path / "a.npz"


def test_error_of_a_missing_file_names_the_folders(tmp_path, cache, monkeypatch):
    with pytest.raises(DataFileError, match=rf"a\.npz.*{re.escape(str(cache))}.*SIGMAX_DATA"):
        find_file("a.npz")
    monkeypatch.setenv("SIGMAX_DATA", str(tmp_path))
    with pytest.raises(DataFileError, match=rf"a\.npz.*{re.escape(str(tmp_path))}"):
        find_file("a.npz")


def test_cache_is_the_folder_of_the_user_or_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SIGMAX_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / "home" / ".cache" / "sigmax"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_folder() == tmp_path / "caches" / "sigmax"
    monkeypatch.setenv("SIGMAX_CACHE", str(tmp_path / "ours"))
    assert cache_folder() == tmp_path / "ours"


def test_download_writes_the_complete_file_and_nothing_else(cache, serve):
    url = serve(CONTENT) + "/file"
    download(url, cache / "file", known_hash=f"sha256:{hashlib.sha256(CONTENT).hexdigest()}")
    assert (cache / "file").read_bytes() == CONTENT
    assert [path.name for path in cache.iterdir()] == ["file"]


def fails(url, path, *, message, **settings):
    """Check that a download fails with a reason and advice, and leaves nothing behind."""
    with pytest.raises(DataFileError, match=message) as caught:
        download(url, path, **settings)
    assert url in str(caught.value)
    assert f"save it as {path}" in str(caught.value)
    assert not path.parent.exists() or not list(path.parent.iterdir())


def test_truncated_file_raises_an_error(cache, serve):
    url = serve(CONTENT, length=len(CONTENT) + 1) + "/file"
    fails(url, cache / "file", message="256000 bytes read, 1 more expected")


def test_wrong_checksum_raises_an_error(cache, serve):
    url = serve(CONTENT) + "/file"
    wrong = {"sha256": "0" * 64, "md5": "0" * 32}
    for kind, digits in wrong.items():
        message = f"(?i){kind} hash .* expected {kind}:{digits} but got"
        fails(url, cache / "file", message=message, known_hash=f"{kind}:{digits}")
    right = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    download(url, cache / "file", known_hash=f"md5:{right}")


def test_refused_connection_is_reported(cache, closed_url):
    fails(closed_url + "/file", cache / "file", message="refused")


def test_http_error_is_reported(cache, serve):
    fails(serve(CONTENT) + "/other", cache / "file", message="404")


def test_server_that_does_not_answer_raises_an_error(cache, serve, monkeypatch):
    monkeypatch.setattr(store, "TIMEOUT", 0.2)
    fails(serve("stall") + "/file", cache / "file", message="timed out")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "nonsense"])
def test_other_addresses_raise_an_error(cache, url):
    fails(url, cache / "file", message="No connection adapters|No scheme")


def test_folder_that_cannot_be_written_is_reported(tmp_path, serve):
    (tmp_path / "taken").touch()
    with pytest.raises(DataFileError, match=r"failed: .*taken"):
        download(serve(CONTENT) + "/file", tmp_path / "taken" / "file")
    with pytest.raises(DataFileError, match="cannot be written"):
        write_npz(tmp_path / "taken" / "a.npz", X=np.zeros(2))


def test_download_without_pooch_names_the_extra(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r'save it as.* pip install "sigmax\[paper\]"'):
        download("http://127.0.0.1/file", cache / "file")
    with pytest.raises(MissingExtraError, match=r"sigmax\[paper\]"):
        load_uci("yacht")


def test_failed_download_keeps_an_older_file(cache, serve):
    cache.mkdir()
    (cache / "file").write_bytes(b"old")
    with pytest.raises(DataFileError, match="SHA256"):
        download(serve(CONTENT) + "/file", cache / "file", known_hash="sha256:" + "0" * 64)
    assert (cache / "file").read_bytes() == b"old"


def test_written_arrays_are_read_back(cache):
    X, y = np.eye(3), np.arange(3)
    write_npz(cache / "a.npz", X=X, y=y)
    for read, written in zip(read_npz(cache / "a.npz", "X", "y"), (X, y), strict=True):
        np.testing.assert_array_equal(read, written)


class Dangerous:
    """Something whose pickle runs code when it is loaded."""

    def __reduce__(self):
        return pytest.fail, ("the pickle ran",)


def test_pickles_broken_files_and_missing_arrays_raise_an_error(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.array([Dangerous()], dtype=object), y=np.zeros(1))
    with pytest.raises(DataFileError, match=r"cannot be read.*allow_pickle"):
        read_npz(path, "X", "y")
    np.savez(path, X=np.zeros(1))
    with pytest.raises(DataFileError, match=r"cannot be read.*y"):
        read_npz(path, "X", "y")
    for content in (b"", b"no zip file", path.read_bytes()[:40]):
        path.write_bytes(content)
        with pytest.raises(DataFileError, match="cannot be read"):
            read_npz(path, "X")
    np.save(tmp_path / "a.npy", np.zeros(1))
    with pytest.raises(DataFileError, match="cannot be read"):
        read_npz(tmp_path / "a.npy", "X")
