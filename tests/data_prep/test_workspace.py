"""What temporary files may take: counted before they are written, and refused in one sentence."""

import zipfile

import numpy as np
import pytest

from data_prep.edges import edge_sort
from data_prep.formats import npz_reader
from data_prep.workspace import Workspace
from leapmpi.errors import ResourceError

KIB = 1 << 10


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "work").mkdir()
    return Workspace(tmp_path / "work", 1 << 30, disk=100 * KIB)


def test_files_that_have_gone_count_no_more(workspace):
    for _ in range(5):
        path = workspace.path("file")
        with workspace.written(path) as file:
            file.write(bytes(60 * KIB))
        path.unlink()
    with workspace.written(workspace.path("file")) as file:
        file.write(np.zeros(60 * KIB, np.uint8))
        with pytest.raises(ResourceError, match=r"file takes 61,440 bytes in .* 122,880, but they may take"):
            file.write(np.zeros(60 * KIB, np.uint8))


def test_arrays_are_counted(workspace):
    workspace.array("small", (10, KIB), np.float32)
    with pytest.raises(ResourceError, match="takes 81,920 bytes"):
        workspace.array("large", (20, KIB), np.float32)
    assert len(list(workspace.folder.iterdir())) == 1


def refused(prep, tmp_path, source, size, said):
    """Import within `size` bytes, which must end with code 6, a sentence, and nothing left."""
    folder = tmp_path / "refused"
    folder.mkdir(exist_ok=True)
    outcome = prep("import", source, folder / "g.h5", "--max-disk", size)
    assert outcome.code == 6
    assert said in outcome.error
    assert "--max-disk" in outcome.error
    assert outcome.error.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_an_archive_is_refused_before_it_is_unpacked(prep, tmp_path):
    with zipfile.ZipFile(tmp_path / "g.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("g/edges.csv", "0,1\n" * (4 << 20))
    assert (tmp_path / "g.zip").stat().st_size < 1 << 20
    refused(prep, tmp_path, tmp_path / "g.zip", "10M", "g.zip: unpacking it takes 16,777,216 bytes")


def test_members_of_an_archive_are_refused_before_they_are_unpacked(prep, tmp_path, small, monkeypatch):
    monkeypatch.setattr(npz_reader, "MAPPED_FROM", 1)
    np.savez_compressed(tmp_path / "g.npz", **small.arrays() | {"features": np.zeros((6, 1 << 20))})
    assert (tmp_path / "g.npz").stat().st_size < 1 << 20
    refused(prep, tmp_path, tmp_path / "g.npz", "10M", "g.npz: unpacking features.npy takes 50,331,776 bytes")


@pytest.mark.parametrize("held", [1, 1 << 20])
def test_an_import_keeps_within_what_it_may_take(prep, tmp_path, held, monkeypatch):
    monkeypatch.setattr(edge_sort, "_EDGES_IN_MEMORY", held)
    edges = np.stack([np.arange(1000), np.arange(1000) * 7 % 1000])
    np.savez(tmp_path / "g.npz", edge_index=edges, edge_weight=np.ones(1000), num_nodes=1000)
    for size in ("1K", "10K", "30K"):
        refused(prep, tmp_path, tmp_path / "g.npz", size, " bytes in ")
    assert prep("import", tmp_path / "g.npz", tmp_path / "g.h5", "--max-disk", "1M").code == 0
    assert (
        "--max-disk: '1X' is not a size"
        in prep("import", tmp_path / "g.npz", tmp_path / "h.h5", "--max-disk", "1X").error
    )
