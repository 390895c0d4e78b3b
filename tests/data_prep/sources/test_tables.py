"""Import of tables and of MUSAE folders: ids of any kind, columns by name, splits, classes."""

import json
import os
import sys

import numpy as np
import pytest

from leapmpi.dataset.graph_file import open_graph
from leapmpi.errors import DataError
from tests.data_prep.conftest import neighbours
from tests.support.graphs import read_names

VERTICES = """id,kind,age,"height",split,remark
ann,tree,1,0.5,train,"a ""quoted"", text"
bob,rock,2,1.5,val,
"eve, jr",tree,3,2.5,test,x
dan,,4,-1,,y
"""
EDGES = 'source,target,weight\nann,bob,1\nbob,"eve, jr",2\nann,ann,3\n'


@pytest.fixture
def folder(tmp_path):
    """Write files into a folder, those of the example unless replaced; None leaves one out. Returns the folder."""

    def write(**replaced):
        path = tmp_path / "tables"
        path.mkdir(exist_ok=True)
        for file in path.iterdir():
            file.unlink()
        for name, text in ({"edges": EDGES, "vertices": VERTICES} | replaced).items():
            if text is not None:
                (path / (name if "." in name else f"{name}.csv")).write_text(text)
        return path

    return write


def test_tables(imported, folder, tmp_path):
    graph = imported(folder(), "--label-column", "kind")
    assert neighbours(graph) == [[1], [0, 2], [1], []]
    assert graph.features.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5], [4, -1]]
    assert graph.labels.tolist() == [1, 0, 1, -1]
    assert json.loads(graph.attributes["class_names"]) == ["rock", "tree"]
    assert graph.split.tolist() == [1, 2, 3, 0]
    assert read_names(tmp_path / "out.h5", graph) == ["ann", "bob", "eve, jr", "dan"]
    assert "not used as features: remark" in graph.table
    assert graph.edge_data.weight.tolist() == [1, 1, 2, 2]
    assert "further columns" not in graph.table


def test_tables_under_other_names(imported, folder):
    nodes = "node_id;Label;train_mask;test_mask\n3;0;True;0\n9;1;False;1\n4;;0;0\n"
    graph = imported(folder(**{"vertices": None, "nodes.csv": nodes, "edges.csv": "dst;src\n3;9\n9;4\n"}), "--directed")
    assert neighbours(graph) == [[1], [2], []]
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.split.tolist() == [1, 3, 0]
    assert graph.features is None


@pytest.mark.parametrize(
    ("text", "names", "edges"),
    [
        ("bob,ann\nann,eve\n", ["ann", "bob", "eve"], [[1], [], [0]]),
        ("paper,cites\n10,9\n9,30\n", ["9", "10", "30"], [[1], [], [0]]),
        ("from,to\nx,9\n9,10\n", ["10", "9", "x"], [[1], [2], []]),
    ],
)
def test_edges_alone(imported, tmp_path, text, names, edges):
    (tmp_path / "e.csv").write_text(text)
    graph = imported(tmp_path / "e.csv", "--format", "table", "--directed")
    assert neighbours(graph) == edges
    assert read_names(tmp_path / "out.h5", graph) == names


def test_batches_of_a_row_give_what_whole_tables_give(imported, folder, tmp_path, monkeypatch):
    def found():
        graph = imported(folder(), "--label-column", "kind")
        alone = imported(folder() / "edges.csv", "--format", "table", "--directed")
        arrays = graph.features, graph.labels, graph.split
        names = read_names(tmp_path / "out.h5", alone)
        return neighbours(graph), [array.tolist() for array in arrays], neighbours(alone), names

    whole = found()
    monkeypatch.setattr("data_prep.formats.columns.ROWS_AT_ONCE", 1)
    assert found() == whole


def test_ids_that_memory_cannot_hold(prep, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.assembly.id_map.BYTES_PER_TEXT", 2**29)
    monkeypatch.setattr("data_prep.assembly.vertex_rows.BYTES_PER_TEXT", 2**29)
    source, out = folder(), tmp_path / "made" / "out.h5"
    out.parent.mkdir()
    said = [
        "vertices.csv: holding the ids of 4 rows or more needs 2.3 GiB of memory",
        "edges.csv, line 4: 2 vertices up to here, whose ids are held as texts, need 1.0 GiB of memory",
    ]
    for path, sentence in zip(([source], [source / "edges.csv", "--format", "table"]), said, strict=True):
        outcome = prep("import", path[0], out, *path[1:], "--max-mem", "1G")
        assert outcome.code == 6
        assert sentence in outcome.error
        assert list(out.parent.iterdir()) == []


def test_names_stay_with_the_largest_component(imported, folder, tmp_path, prep):
    graph = imported(
        folder(edges="source,target\nbob,dan\ndan,ann\n", vertices=VERTICES.replace("test", "")), "--largest-component"
    )
    names = read_names(tmp_path / "out.h5", graph)
    assert [names[row] for row in graph.original_id] == ["ann", "bob", "dan"]
    assert "with names of its vertices" in prep("check", tmp_path / "out.h5").out


def test_names_of_another_graph_are_noticed(imported, folder, tmp_path, prep):
    imported(folder())
    names = tmp_path / "out.names.txt"
    names.write_text(names.read_text().replace("bob", "rob"))
    assert "does not hold the names" in prep("check", tmp_path / "out.h5").error
    names.unlink()
    assert "is missing; keep the two files together" in prep("check", tmp_path / "out.h5").error


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "a/b", "", "..", "x\x1by/"])
def test_names_are_read_from_beside_the_graph_alone(imported, folder, tmp_path, name):
    graph = imported(folder())
    graph.attributes["vertex_names"] = name
    with pytest.raises(
        DataError, match=r"as the file of its vertices' names, which is not a file beside it|is missing"
    ):
        read_names(tmp_path / "out.h5", graph)


def test_existing_names_are_kept_unless_overwritten(imported, folder, tmp_path, prep):
    (tmp_path / "out.names.txt").write_text("precious")
    outcome = prep("import", folder(), tmp_path / "out.h5")
    assert outcome.code == 3
    assert "out.names.txt exists already" in outcome.error
    assert (tmp_path / "out.names.txt").read_text() == "precious"
    assert not (tmp_path / "out.h5").exists()


def test_tables_refused(refused, folder):
    assert "edges.csv, line 3: vertex 'zoe' is not in the table of vertices" in refused(
        folder(edges="source,target\nann,bob\nbob,zoe\n")
    )
    assert "edges.csv, line 3: 1 field, but the first line has 2" in refused(
        folder(edges="source,target\nann,bob\nx\n")
    )
    assert "edges.csv, line 2: a vertex id is missing" in refused(folder(edges="source,target\nann,\n"))
    assert "holds no edges" in refused(folder(edges="source,target\n"))
    assert "edges.csv is empty" in refused(folder(edges=""))
    assert "has one column" in refused(folder(edges="source\nann\n"))
    assert "vertices.csv, line 6: vertex 'ann' is listed twice" in refused(folder(vertices=VERTICES + "ann,,0,0,,\n"))
    assert "vertices.csv, line 6: 'q' in column 'age' is not a number" in refused(
        folder(vertices=VERTICES + "zoe,,q,0,,\n")
    )
    assert "vertices.csv, line 6: -1e+300 in column 'age' is too large" in refused(
        folder(vertices=VERTICES + "zoe,,-1e300,0,,\n")
    )
    assert "vertices.csv, line 6: split 'rest' is none of" in refused(folder(vertices=VERTICES + "zoe,,0,0,rest,\n"))
    assert "features, row 4, column 0 is nan" in refused(folder(vertices=VERTICES + "zoe,,nan,0,,\n"))
    assert "cannot be read as CSV" in refused(folder(vertices=VERTICES + 'zoe,"x'))
    assert "the name of vertex 4, 'z\\nq', holds a line break" in refused(folder(vertices=VERTICES + '"z\nq",,0,0,,\n'))
    assert "--label-column colour: " in refused(folder(), "--label-column", "colour")
    assert "two columns are called 'a'" in refused(folder(vertices="a,a\n1,2\n"))


def test_parquet_without_pyarrow(refused, tmp_path, monkeypatch):
    # The package itself: its submodule would still be found there, where another test has loaded it.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "data_prep.formats.parquet_table", raising=False)
    (tmp_path / "e.parquet").write_bytes(b"PAR1")
    assert "pip install pyarrow" in refused(tmp_path / "e.parquet")


def test_parquet(imported, refused, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, of the extra 'tables', is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "tables"
    folder.mkdir()
    vertices = {
        "id": ["ann", "bob", "eve"],
        "x": pyarrow.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pyarrow.list_(pyarrow.float32(), 2)),
        "age": [7, 8, 9],
        "label": ["a", None, "b"],
        "train_mask": [True, False, False],
        "born": pyarrow.array([0, 1, 2], pyarrow.date32()),
    }
    parquet.write_table(pyarrow.table(vertices), folder / "vertices.parquet")
    parquet.write_table(pyarrow.table({"src": ["ann", "bob"], "dst": ["eve", "ann"]}), folder / "edges.parquet")
    graph = imported(folder, "--directed")
    assert neighbours(graph) == [[1], [], [0]]
    assert graph.features.tolist() == [[1, 2, 7], [3, 4, 8], [5, 6, 9]]
    assert graph.labels.tolist() == [0, -1, 1]
    assert graph.split.tolist() == [1, 0, 0]
    assert "vertices.parquet: not used: born" in graph.table
    edges = tmp_path / "e.parquet"
    parquet.write_table(pyarrow.table({"a": [70, 5], "b": [5, 2**40]}), edges)
    assert neighbours(imported(edges, "--directed")) == [[1], [], [0]]
    assert read_names(tmp_path / "out.h5", open_graph(tmp_path / "out.h5")) == ["5", "70", str(2**40)]
    parquet.write_table(pyarrow.table({"a": [70, 5], "b": [5, None]}), edges)
    assert "must be texts or whole numbers, none missing" in refused(edges)
    parquet.write_table(pyarrow.table({"a": [70, 5], "b": pyarrow.array([5, 2**63], pyarrow.uint64())}), edges)
    assert "e.parquet, row 1 (counted from 0): vertex id 9223372036854775808 is too large" in refused(edges)
    whole = edges.read_bytes()
    for size in (0, 20, len(whole) // 2, len(whole) - 3):
        edges.write_bytes(whole[:size])
        assert "damaged or truncated, or no Parquet file" in refused(edges)


MUSAE = {
    "edges.csv": "id_1,id_2\n0,1\n1,2\n3,3\n",
    "features.json": '{"2": [4], "0": [1, 0, 1], "1": []}',
    "target.csv": 'id,site_id,page_name,page_type\n0,77,"The ""A"", b",tv\n1,5,x,shop\n3,6,y,tv\n2,8,z,shop\n',
}


def test_musae(imported, folder):
    graph = imported(folder(**{"edges": None, "vertices": None} | MUSAE))
    assert neighbours(graph) == [[1], [0, 2], [1], []]
    assert graph.features.tolist() == [[1, 1, 0, 0, 0], [0] * 5, [0, 0, 0, 0, 1], [0] * 5]
    assert graph.labels.tolist() == [1, 0, 0, 1]
    assert json.loads(graph.attributes["class_names"]) == ["shop", "tv"]
    assert graph.attributes["source_format"] == "musae"


def test_musae_of_twitch(imported, folder):
    twitch = "id,days,mature,views,partner,new_id\n73,5,True,1,False,1\n74,6,False,2,False,0\n75,7,True,3,True,2\n"
    files = {f"musae_PT_{name}": text for name, text in (MUSAE | {"target.csv": twitch}).items()}
    graph = imported(folder(**{"edges": None, "vertices": None} | files), "--label-column", "partner")
    assert graph.vertices == 4
    assert graph.labels.tolist() == [0, 0, 1, -1]


def test_musae_refused(refused, folder):
    def said(*arguments, **replaced):
        files = MUSAE | {name.replace("_", "."): text for name, text in replaced.items()}
        return refused(folder(**{"edges": None, "vertices": None} | files), *arguments)

    assert "features.json, line 1, character 6: not JSON" in said(features_json='{"2":')
    assert "features.json cannot be read as JSON" in said(features_json="[" * 100_000)
    assert "must hold an object" in said(features_json="[1, 2]")
    for features in ('{"a": [1]}', '{"1": [-1]}', '{"1": 1}', '{"1": [1.5]}', '{"1": [true]}', '{"1": ["x"]}'):
        assert "expected a vertex number with a list" in said(features_json=features)
    assert "feature 999,999,999 occurs, but the file has only 1 entry" in said(features_json='{"1": [999999999]}')
    assert "vertex 999,999,999 occurs" in said(features_json='{"999999999": [1]}')
    assert "target.csv, line 3: 'b' is not a vertex number" in said(target_csv="id,page_type\n0,x\nb,y\n")
    assert "has no column id" in said(target_csv="page,type\n0,x\n")
    assert "choose by --label-column from id, a, b" in said(target_csv="id,a,b\n0,x,y\n")
    assert "--label-column colour: no such column" in said("--label-column", "colour")
    assert "'z' is not a vertex id" in said(edges_csv="id_1,id_2\n0,z\n")


def test_musae_rows_listed_twice(imported, refused, folder):
    def changed(**files):
        return folder(**{"edges": None, "vertices": None} | MUSAE | files)

    # Equal content is told, other content refused unless a flag says which row counts.
    equal = {"target.csv": "id,page_type\n0,x\n1,y\n0,x\n", "features.json": '{"0": [1], "1": [0], "0": [1]}'}
    graph = imported(changed(**equal))
    assert graph.labels.tolist() == [0, 1, -1, -1]
    assert "note: target.csv: listed twice with equal content, and counted once: 1 row" in graph.table
    assert "note: features.json: listed twice" in graph.table
    assert "target.csv, line 4: vertex 0)" in graph.table
    differ = "is listed twice with different content; choose by --duplicate-rows first or last"
    classes, lists = "id,page_type\n0,x\n1,y\n0,y\n", '{"0": [1], "1": [0], "0": [0]}'
    assert f"target.csv, line 4: vertex 0 {differ}" in refused(changed(**{"target.csv": classes}))
    assert f"features.json: vertex '0' {differ}" in refused(changed(**{"features.json": lists}))
    both = {"target.csv": classes, "features.json": lists}
    first = imported(changed(**both), "--duplicate-rows", "first")
    assert first.labels.tolist() == [0, 1, -1, -1]
    assert first.features.tolist()[0] == [0, 1]
    last = imported(changed(**both), "--duplicate-rows", "last")
    assert last.labels.tolist() == [1, 1, -1, -1]
    assert last.features.tolist()[0] == [1]


def test_musae_of_a_stated_width(imported, refused, folder):
    source = folder(**{"edges": None, "vertices": None} | MUSAE)
    assert imported(source, "--feature-dim", 7).features.shape == (4, 7)
    assert imported(source, "--feature-dim", 5).features.shape == (4, 5)
    assert "feature 4 occurs; --feature-dim must be at least 5" in refused(source, "--feature-dim", 4)


GENRES = '{"0": ["Rock", "Pop"], "3": ["Jazz"], "1": []}'


def test_musae_genres(imported, refused, folder):
    none = np.full(3, np.nan)
    expected = [[0, 1, 1], none, none, [1, 0, 0]]
    base = {"edges": None, "vertices": None, "features.json": None, "target.csv": None, "genres.json": GENRES}
    graph = imported(folder(**{"edges.csv": MUSAE["edges.csv"]} | base))
    np.testing.assert_array_equal(graph.labels, expected)
    assert json.loads(graph.attributes["class_names"]) == ["Jazz", "Pop", "Rock"]
    assert graph.features is None

    # Beside a table of classes they are labels where a flag says so.
    source = folder(**{"edges": None, "vertices": None, "genres.json": GENRES} | MUSAE)
    graph = imported(source)
    assert graph.labels.tolist() == [1, 0, 0, 1]
    assert "not used: genres.json" in graph.table
    assert "target.csv: not used: site_id, page_name (--label-column takes one)" in graph.table
    np.testing.assert_array_equal(imported(source, "--labels", "genres").labels, expected)
    assert "it has features.json, genres.json" in refused(source, "--labels", "genre")
    for text in ('{"0": "Rock"}', '{"0": [[1]]}', '{"0": [1.5]}'):
        source = folder(**{"edges": None, "vertices": None, "genres.json": text} | MUSAE)
        assert "expected a vertex number with a list" in refused(source, "--labels", "genres")
    source = folder(**{"edges": None, "vertices": None, "genres.json": "{}"} | MUSAE)
    assert "names 0 groups" in refused(source, "--labels", "genres")


def test_a_folder_that_memory_cannot_hold_whole_is_not_begun(prep, folder, tmp_path):
    source = folder(**{"edges": None, "vertices": None} | MUSAE)
    os.truncate(source / "features.json", 30 * 2**20)
    outcome = prep("import", source, tmp_path / "out.h5", "--max-mem", "512M")
    assert outcome.code == 6
    assert "tables: reading 31,45" in outcome.error
    assert "bytes of a format that is held whole needs 0.5 GiB of memory" in outcome.error
    assert not (tmp_path / "out.h5").exists()


def test_both_tables_are_named(imported, refused, folder, tmp_path):
    made = folder(**{"edges": None, "vertices": None, "cites.csv": "citing,cited\nann,bob\n", "people.csv": VERTICES})
    graph = imported(made / "cites.csv", "--vertex-table", made / "people.csv", "--label-column", "kind")
    assert neighbours(graph) == [[1], [0], [], []]
    assert graph.labels.tolist() == [1, 0, 1, -1]
    # Without names of columns; and a vertex that the table lacks.
    (made / "cites.csv").write_text("ann,bob\nbob,dan\n")
    assert neighbours(imported(made / "cites.csv", "--vertex-table", made / "people.csv")) == [[1], [0, 3], [], [1]]
    (made / "cites.csv").write_text("ann,bob\nbob,joe\n")
    assert "line 2: vertex 'joe' is not in the table of vertices" in refused(
        made / "cites.csv", "--vertex-table", made / "people.csv"
    )
    assert "none.csv does not exist" in refused(made / "cites.csv", "--vertex-table", tmp_path / "none.csv")
    np.savez(tmp_path / "g.npz", edges=np.array([[0, 1]]))
    assert "g.npz: unknown kind of table" in refused(tmp_path / "g.npz", "--vertex-table", made / "people.csv")


def test_parquet_tables_are_named(imported, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": ["x", "y"], "b": ["y", "z"]}), tmp_path / "e.parquet")
    vertices = {"id": ["x", "y", "z"], "f": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "label": [0, 1, 0]}
    parquet.write_table(arrow.table(vertices), tmp_path / "v.parquet")
    graph = imported(tmp_path / "e.parquet", "--vertex-table", tmp_path / "v.parquet")
    assert neighbours(graph) == [[1], [0, 2], [1]]
    assert graph.features.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_features_of_a_file_have_the_order_of_the_table(imported, folder, tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))
    graph = imported(folder(), "--features", tmp_path / "x.npy", "--label-column", "kind")
    assert graph.features.tolist() == np.eye(4).tolist()
