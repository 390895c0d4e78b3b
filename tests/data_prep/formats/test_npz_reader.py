"""Archives of .npy members whose headers promise what is not there, or addresses for numbers."""

import io
import zipfile

import numpy as np
import pytest

from data_prep.formats import npz_reader
from data_prep.formats.npz_reader import NpzFile
from data_prep.workspace import Workspace
from leapmpi.errors import DataError


def member(version, descr, shape, content):
    """An .npy file with any header over any content."""
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b" " * 20 + b"\n"
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + content


@pytest.fixture(params=["read", "mapped"])
def read(request, tmp_path, monkeypatch):
    """Read an array from an archive with the given member, small arrays mapped as well as large ones."""
    monkeypatch.setattr(npz_reader, "MAPPED_FROM", 1 if request.param == "mapped" else 1 << 60)

    def run(content):
        with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
            archive.writestr("x.npy", content)
        return NpzFile(tmp_path / "g.npz", Workspace(tmp_path, 1 << 30)).read("x")

    return run


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_is_read(read, version):
    assert read(member(version, "<i8", (3,), np.arange(3).tobytes())).tolist() == [0, 1, 2]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("descr", ["|O", [("a", "|O"), ("b", "<i8")]])
def test_addresses_are_never_taken_for_objects(read, version, descr):
    with pytest.raises(DataError, match="its pickle is damaged"):
        read(member(version, descr, (4,), b"A" * 4096))


@pytest.mark.parametrize("shape", [(1 << 40,), (-1,), (1 << 62, 1 << 62), (3, -3), (0, 1 << 62, 1 << 62)])
def test_headers_that_promise_more_than_there_is(read, shape):
    with pytest.raises(DataError, match=r"it is shorter than its header says|its header states no shape"):
        read(member(1, "<f8", shape, bytes(80)))


HEADERS = [b"(" * 9000, b"{[]: 1}", b"{'descr': '<f8'}", b"1+1", b"\0" * 50, b"{1:2", b"-" * 9000 + b"1", b"'\\d'"]
HEADERS += [b"1" + b"+1" * 4900, b"x" * 20_000, b"{'descr': 1j, 'fortran_order': 2, 'shape': (True, 'a')}"]


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_are_none(read, header):
    with pytest.raises(DataError, match="array 'x' is truncated or damaged"):
        read(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)


def test_an_unknown_version(read):
    with pytest.raises(DataError, match=r"its \.npy version 7\.0 is unknown"):
        read(member(7, "<f8", (1,), bytes(8)))


def test_numpy_s_own_archives(tmp_path):
    out = io.BytesIO()
    np.savez_compressed(out, x=np.zeros((0, 3)), y=np.array(["a", "bc"]))
    (tmp_path / "g.npz").write_bytes(out.getvalue())
    file = NpzFile(tmp_path / "g.npz")
    assert file.read("x").shape == (0, 3)
    assert file.read("y").tolist() == ["a", "bc"]
