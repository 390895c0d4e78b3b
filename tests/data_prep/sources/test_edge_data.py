"""What edges carry, from every source that can say it: the same values lie with the same edges."""

import gzip

import numpy as np
import pytest

PAIRS = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
WEIGHT = [0.5, 2.0, 3.25, 1.0, 4.0]
TIME = [50, 40, 1_600_000_000, 20, 10]


def by_ends(graph, array):
    """By edge (source, destination), what it carries; vertices by their original ids."""
    destination = np.repeat(graph.original_id, np.diff(graph.indptr))
    ends = zip(graph.original_id[graph.indices].tolist(), destination.tolist(), strict=True)
    return dict(zip(ends, np.asarray(array).tolist(), strict=True))


def carried(graph, values=WEIGHT, field="weight"):
    assert by_ends(graph, getattr(graph.edge_data, field)) == dict(zip(PAIRS, values, strict=True))


def lines(*columns, separator=" ", header=()):
    rows = [*([header] if header else []), *zip(*columns, strict=True)]
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def ends():
    return zip(*PAIRS, strict=True)


def test_arrays_under_their_names(tmp_path, imported):
    features = np.arange(10).reshape(5, 2)
    arrays = {"edge_weight": np.array(WEIGHT), "edge_attr": features, "edge_time": np.array(TIME)}
    (tmp_path / "folder").mkdir()
    np.savez(tmp_path / "g.npz", edges=np.array(PAIRS), **arrays)
    for name, array in {"edges": np.array(PAIRS), **arrays}.items():
        np.save(tmp_path / "folder" / f"{name}.npy", array)
    for source in ("g.npz", "folder"):
        graph = imported(tmp_path / source, "--directed")
        carried(graph)
        carried(graph, TIME, "time")
        carried(graph, features.tolist(), "features")
        assert graph.edge_data.features.dtype == np.int32
    assert not imported(tmp_path / "g.npz", "--directed", "--edge-data", "drop").edge_data.arrays()


def test_reverse_edges_carry_the_same(tmp_path, imported):
    np.savez(tmp_path / "g.npz", edges=np.array(PAIRS), edge_weight=np.array(WEIGHT))
    found = by_ends(graph := imported(tmp_path / "g.npz"), graph.edge_data.weight)
    assert found == {
        **dict(zip(PAIRS, WEIGHT, strict=True)),
        **{(v, u): w for (u, v), w in zip(PAIRS, WEIGHT, strict=True)},
    }


@pytest.mark.parametrize(("header", "separator"), [(("src", "dst", "Weight", "timestamp"), ","), ((), " "), ((), "\t")])
def test_columns_of_edge_lists(tmp_path, imported, header, separator):
    name = "e.csv" if separator == "," else "e.txt"
    (tmp_path / name).write_text(lines(*ends(), WEIGHT, TIME, separator=separator, header=header))
    graph = imported(tmp_path / name, "--directed", *(() if header else ("--edge-columns", "weight,time")))
    carried(graph)
    carried(graph, TIME, "time")
    assert graph.edge_data.time.dtype == np.int64


def test_columns_without_names_are_not_guessed(tmp_path, imported):
    (tmp_path / "e.txt").write_text(lines(*ends(), WEIGHT))
    graph = imported(tmp_path / "e.txt")
    assert not graph.edge_data.arrays()
    assert "only the first two of 3 columns are used (--edge-columns names others)" in graph.table


def test_times_of_snap_and_features(tmp_path, imported):
    (tmp_path / "e.txt").write_text("# FromNodeId ToNodeId\n" + lines(*ends(), TIME, WEIGHT, WEIGHT))
    graph = imported(tmp_path / "e.txt", "--directed", "--edge-columns", "time,feature,feature")
    carried(graph, TIME, "time")
    carried(graph, [[w, w] for w in WEIGHT], "features")


def test_times_above_2_to_the_53_are_kept_exactly(tmp_path, imported):
    """Nanoseconds, beside a weight that makes the other columns floats."""
    first = 1_700_000_000_123_456_789
    text = f"source,target,weight,time\n0,1,0.5,{first}\n1,2,1.5,{first + 1}\n"
    (tmp_path / "e.csv").write_text(text)
    graphs = [imported(tmp_path / "e.csv", "--directed")]
    (tmp_path / "v.csv").write_text("id,x\n0,1\n1,2\n2,3\n")
    graphs.append(imported(tmp_path / "e.csv", "--directed", "--vertex-table", tmp_path / "v.csv"))
    for graph in graphs:
        assert graph.edge_data.time.tolist() == [first, first + 1]


def test_columns_of_tables(tmp_path, imported):
    names = "abcd"
    (tmp_path / "t").mkdir()
    texts = [[names[end] for end in side] for side in ends()]
    rows = lines(*texts, WEIGHT, TIME, WEIGHT, separator=",", header=("source", "target", "rating", "time", "extra"))
    (tmp_path / "t" / "edges.csv").write_text(rows)
    (tmp_path / "t" / "vertices.csv").write_text("id,x\n" + "".join(f"{name},1\n" for name in names))
    graph = imported(tmp_path / "t", "--directed", "--edge-columns", "rating=weight,time=time,extra=feature")
    carried(graph)
    carried(graph, TIME, "time")
    carried(graph, [[w] for w in WEIGHT], "features")
    graph = imported(tmp_path / "t", "--directed")
    carried(graph, TIME, "time")
    assert graph.edge_data.weight is None
    assert "2 further columns are not used (--edge-columns names them)" in graph.table


def test_tensors_of_pyg(tmp_path, imported):
    torch = pytest.importorskip("torch")
    tensors = {"edge_index": torch.tensor(PAIRS).T, "edge_weight": torch.tensor(WEIGHT), "num_nodes": 4}
    tensors |= {"edge_attr": torch.tensor(WEIGHT)[:, None], "time": torch.tensor(TIME), "x": torch.ones(4, 1)}
    torch.save(tensors, tmp_path / "g.pt")
    graph = imported(tmp_path / "g.pt", "--directed")
    carried(graph)
    carried(graph, TIME, "time")
    carried(graph, [[w] for w in WEIGHT], "features")


def test_features_of_ogb(tmp_path, imported):
    raw = tmp_path / "raw"
    raw.mkdir()
    for name, text in {
        "edge": lines(*ends(), separator=","), "num-node-list": "4\n", "num-edge-list": "5\n",
        "edge-feat": lines(WEIGHT, TIME, separator=","),
    }.items():  # fmt: skip
        with gzip.open(raw / f"{name}.csv.gz", "wt") as file:
            file.write(text)
    graph = imported(tmp_path, "--directed", "--format", "ogb")
    carried(graph, [[w, float(np.float32(t))] for w, t in zip(WEIGHT, TIME, strict=True)], "features")


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
def test_values_of_matrix_market(tmp_path, imported, symmetry):
    rows = lines([u + 1 for u, _ in PAIRS], [v + 1 for _, v in PAIRS], WEIGHT)
    (tmp_path / "m.mtx").write_text(f"%%MatrixMarket matrix coordinate real {symmetry}\n% one\n4 4 5\n{rows}")
    found = by_ends(graph := imported(tmp_path / "m.mtx", "--directed"), graph.edge_data.weight)
    sign = {"general": None, "symmetric": 1, "skew-symmetric": -1}[symmetry]
    wanted = dict(zip(PAIRS, WEIGHT, strict=True))
    assert found == wanted | ({} if sign is None else {(v, u): sign * w for (u, v), w in wanted.items()})


def test_integer_and_pattern_matrices(tmp_path, imported):
    head = "%%MatrixMarket matrix coordinate {} general\n3 3 2\n"
    (tmp_path / "i.mtx").write_text(head.format("integer") + "1 2 7\n\n3 2 -5\n")
    graph = imported(tmp_path / "i.mtx", "--directed")
    assert by_ends(graph, graph.edge_data.weight) == {(0, 1): 7, (2, 1): -5}
    (tmp_path / "p.mtx").write_text(head.format("pattern") + "1 2\n3 2\n")
    assert not imported(tmp_path / "p.mtx").edge_data.arrays()


@pytest.mark.parametrize(("form", "before"), [("001", ""), ("011 2", "9 8 "), ("111 1", "3 9 ")])
def test_edge_weights_of_metis(tmp_path, imported, form, before):
    # Vertex 0 -- 1 weighs 5, 1 -- 2 weighs 6, 0 -- 3 weighs 7.
    rows = ["2 5 4 7", "1 5 3 6", "2 6", "1 7"]
    (tmp_path / "m.graph").write_text(f"4 3 {form}\n" + "".join(f"{before}{row}\n" for row in rows))
    found = by_ends(graph := imported(tmp_path / "m.graph"), graph.edge_data.weight)
    wanted = {(0, 1): 5, (1, 2): 6, (0, 3): 7}
    assert found == wanted | {(v, u): w for (u, v), w in wanted.items()}


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("0 1 2\n1 2 x\n", ("--edge-columns", "weight"), "'x' is not a number"),
        ("0 1 2\n1 2 nan\n", ("--edge-columns", "weight"), "weight of edge 1 .counted from 0. is nan"),
        ("0,1,\n1,2,3\n", ("--edge-columns", "weight"), "weight of edge 0 .counted from 0. is nan"),
        ("0 1 2\n1 2 2.5\n", ("--edge-columns", "time"), "the time 2.5 is not whole"),
        ("0 1 2\n1 2 -1e300\n", ("--edge-columns", "weight"), "row 1 .*: weight in column 2 is -1e.300, which float32"),
        ("0 1 1\n1 2 1e300\n", ("--edge-columns", "feature"), "row 1 .*: features are 1e.300, which float32"),
        ("0 1 2\n1 2 9223372036854775808\n", ("--edge-columns", "time"), "'9223372036854775808' is not a whole number"),
        ("0 1 2\n1 2\n", ("--edge-columns", "weight"), "too few fields"),
        ("0 1 2\n", ("--edge-columns", "heavy"), "'heavy' is none of weight, time, feature, label, -"),
        ("0 1 2\n", ("--edge-columns", "weight,time"), "have 1 column besides their ends"),
        ("0 1 2\n", ("--edge-columns", "a=weight"), "have no column 'a'"),
        ("0 1 2 3\n", ("--edge-columns", "weight,weight"), "an edge has one weight"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 7\n3 2 x\n", (), "line 4: 'x' is not a number"),
    ],
)
def test_bad_columns_are_named(tmp_path, refused, text, arguments, message):
    import re

    name = "e.mtx" if text.startswith("%%") else "e.txt"
    (tmp_path / name).write_text(text)
    assert re.search(message, refused(tmp_path / name, *arguments))
