"""Features in fewer bytes: how far off they are, what the tools say of it, and what is refused."""

import numpy as np
import pytest

from data_prep.assembly.stored_dtype import as_stored, decoded
from data_prep.cli import main
from data_prep.workspace import Workspace
from leapmpi.dataset.graph_file import open_graph, write_graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import DataError
from tests.support.graphs import random_graph


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path, 2**30, 1)


@pytest.fixture
def columns():
    """Columns of unlike sizes: far from zero, of one value, with an outlier, whole numbers."""
    rng = np.random.default_rng(0)
    found = rng.standard_normal((500, 5)).astype(np.float32)
    found[:, 1] = 1990 + rng.integers(0, 30, 500)
    found[:, 2] = 0.1
    found[3, 3] = 1e4
    found[:, 4] = rng.integers(0, 2, 500)
    return found


def test_int8_is_off_by_half_a_step_of_its_column_at_most(columns, workspace, monkeypatch):
    monkeypatch.setattr("leapmpi.dataset.hdf5.row_blocks.BLOCK_BYTES", 1000)
    small = as_stored(columns, "int8", "here", workspace)
    lost = np.abs(decoded(small.rows, small.scale) - columns)
    span = np.ptp(columns, axis=0)
    assert (lost <= span / 508 * 1.001 + 1e-6 * np.abs(columns)).all()
    assert not lost[:, [1, 2, 4]].any()
    shares = lost[:, span > 0] / span[span > 0]
    assert small.largest_error == pytest.approx(shares.max(), rel=1e-4)
    assert small.mean_error == pytest.approx(np.sqrt((shares**2).sum() / columns.size), rel=1e-4)


def test_int8_keeps_zero_and_holds_bags_of_words_exactly(workspace, monkeypatch):
    monkeypatch.setattr("leapmpi.dataset.hdf5.row_blocks.BLOCK_BYTES", 1000)
    rng = np.random.default_rng(0)
    words = (rng.random((500, 6)) < 0.1).astype(np.float32)
    counts = rng.integers([0, -127, 7_000_000, -90], [255, 128, 7_000_255, 3], (500, 4)).astype(np.float32)
    weighted = words * np.float32([0.1, 3e-30, 7.3, -1e20, 1 / 3, 254.7])
    signs = np.sign(counts[:, :1] - 99) * np.float32(0.37)
    exact = np.concatenate([words, weighted, counts, signs, np.zeros((500, 1), np.float32)], axis=1)
    small = as_stored(exact, "int8", "here", workspace)
    np.testing.assert_array_equal(decoded(small.rows, small.scale), exact)
    assert small.largest_error == 0

    # Other columns keep 0 alone: above, below and among their values.
    mixed = rng.standard_normal((500, 4)).astype(np.float32) * (rng.random((500, 4)) < 0.3)
    mixed[:, 0], mixed[:, 1] = np.abs(mixed[:, 0]), -np.abs(mixed[:, 1])
    mixed[:, 3] += np.where(mixed[:, 3] > 0, 1e4, 0)
    small = as_stored(mixed, "int8", "here", workspace)
    lost = decoded(small.rows, small.scale) - mixed
    assert not lost[mixed == 0].any()
    assert (np.abs(lost) <= np.ptp(mixed, axis=0) / 506 * 1.001).all()


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_sixteen_bits_are_the_nearest(dtype, bits, columns, workspace):
    small = as_stored(columns, dtype, "here", workspace)
    lost = np.abs(decoded(small.rows, None) - columns)
    assert (lost <= np.abs(columns) * 2.0**-bits * 1.001 + 2.0**-25).all()
    assert small.rows.nbytes == columns.nbytes // 2


def test_what_float16_cannot_hold_is_named(columns, workspace):
    columns[7, 3] = -70000
    with pytest.raises(DataError, match=r"here: features, row 7, column 3 is -70000.0, beyond .* bfloat16 or int8"):
        as_stored(columns, "float16", "here", workspace)
    small = as_stored(np.full((2, 1), np.finfo(np.float32).max, np.float32), "bfloat16", "here", workspace)
    assert np.isfinite(decoded(small.rows, None)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_import_and_partition_write_the_same(dtype, tmp_path, capsys):
    size = ["--vertices", "300", "--edges", "900", "--features", "9"]
    exact, small, cut, again = (str(tmp_path / name) for name in ("g.h5", "s.h5", "cut", "again"))
    for path, more in ((exact, []), (small, ["--feature-dtype", dtype])):
        assert main(["synth", path, *size, *more]) == 0
    assert main(["partition", exact, cut, "--parts", "3", "--feature-dtype", dtype, "--layout", "columns"]) == 0
    assert f"features as {dtype}: {300 * 9 * (1 if dtype == 'int8' else 2):,} bytes" in capsys.readouterr().out
    assert main(["partition", small, again, "--parts", "2"]) == 0
    for path in (small, cut, again):
        assert main(["check", path]) == 0
    found = [open_graph(small), open_dataset(cut), open_dataset(again)]
    assert len({each.uuid if each is found[0] else each.graph_uuid for each in found}) == 1
    assert found[1].feature_dtype == dtype
    assert found[2].attributes["feature_error_rms"] == found[1].attributes["feature_error_rms"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "cut", "g.h5", "s.h5"]


def test_what_cannot_be_stored_so_is_refused(tmp_path, capsys):
    sparse, none, small = (tmp_path / name for name in ("sparse.h5", "none.h5", "small.h5"))
    write_graph(sparse, random_graph(sparse=True))
    graph = random_graph()
    graph.features = None
    write_graph(none, graph)
    assert (
        main(["synth", str(small), *["--vertices", "30", "--edges", "90", "--classes", "3", "--feature-dtype", "int8"]])
        == 0
    )
    for path, said in ((sparse, "stores features sparse"), (none, "has no features"), (small, "as int8 already")):
        assert (
            main(["partition", str(path), str(tmp_path / "data"), "--parts", "2", "--feature-dtype", "bfloat16"]) != 0
        )
        assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("row", "value", "said"), [(0, -1.0, "expected a finite step"), (1, np.nan, "finite middle")])
def test_a_wrong_scale_is_named(row, value, said, workspace):
    graph = random_graph()
    small = as_stored(graph.features, "int8", "here", workspace)
    graph.features, graph.feature_scale = small.rows, small.scale
    graph.feature_scale[row, 2] = value
    with pytest.raises(DataError, match=rf"feature_scale, row {row}, column 2 is .*{said}"):
        write_graph(workspace.path("graph.h5"), graph)
