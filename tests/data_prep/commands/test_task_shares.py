"""--share I/N: tasks of a job array do the work together, to the same bytes as one process."""

import gzip
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.formats.integer_lines import whole_lines
from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.verify import compare_content, verify_share
from tests.data_prep.commands.test_workers import content
from tests.data_prep.small_sources import write_sources
from tests.dataset.test_damage import flip_in_array

FLAGS = {"edges.csv": ["--edge-columns", "weight"], "typed": ["--add-reverse"], "triples": ["--add-reverse"]}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_sources(tmp_path_factory.mktemp("source"))


def shared(prep, count, *words):
    """Run all tasks of each stage; return their last lines."""
    said = []
    for _ in range(2):
        for index in range(count):
            outcome = prep(*words, "--share", f"{index}/{count}")
            assert outcome.code == 0, outcome.error
            said.append(outcome.out)
    return said


def facts(table):
    """The lines of a final table that do not depend on how it was made."""
    return [line for line in table.splitlines() if line.startswith(("  edges", "  dup", "  self", "  note: dup"))]


@pytest.mark.parametrize("name", ["edges.csv", "snap.txt", "edges.npy", "table.csv", "typed", "triples"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_tasks_import_the_same_graph(prep, tmp_path, source, name, count):
    words = [source / name, tmp_path / "g.h5", *FLAGS.get(name, [])]
    said = shared(prep, count, "import", *words)
    assert said[-1].rstrip().endswith(f"without --share the same command makes {tmp_path / 'g.h5'}")
    outcome = prep("import", *words)
    assert outcome.code == 0, outcome.error
    assert f"shares taken: edges-sorted of {count} tasks" in outcome.out
    whole = prep("import", words[0], tmp_path / "whole.h5", *words[2:])
    assert facts(outcome.out) == facts(whole.out)
    assert content(tmp_path / "g.h5") == content(tmp_path / "whole.h5")
    assert {each.suffix for each in tmp_path.iterdir()} <= {".h5", ".txt"}


@pytest.fixture
def pieces(tmp_path):
    """Write sources that are read in pieces: Parquet by row groups, a table in several files, and lines of METIS."""
    pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    pairs = np.unique(np.random.default_rng(5).integers(0, 900, (6_000, 2)), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    columns = {"src": pairs[:, 0], "dst": pairs[:, 1], "weight": pairs[:, 0] % 5}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", row_group_size=700)
    parquet.write_table(pyarrow.table({"id": np.arange(900)[::-1]}), tmp_path / "ids.parquet")

    # A typed graph, whose edges are in three files.
    rows = [f"v{s},v{d}\n" for s, d in pairs.tolist()]
    for number, name in enumerate(("a.csv", "b.csv.gz", "c.csv")):
        text = "from,to\n" + "".join(rows[number::3])
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    (tmp_path / "v.csv").write_text("id\n" + "".join(f"v{v}\n" for v in range(900)))
    (tmp_path / "schema.toml").write_text(
        '[vertices.v]\nfiles = "v.csv"\nid = "id"\n'
        '[edges."v:to:v"]\nfiles = ["a.csv", "b.csv.gz", "c.csv"]\nsource = "from"\ndestination = "to"\n'
    )

    # A line per vertex, with a weight after each neighbour; comments, blanks and empty lines.
    lists = [[] for _ in range(901)]
    for s, d in pairs.tolist():
        lists[s].append(f"{d + 1} {s % 5 + 1}")
        lists[d].append(f"{s + 1} {s % 5 + 1}")
    lines = [" ".join(each) for each in lists[:900]]
    lines[450:450] = ["% half", "  # of them"]
    (tmp_path / "g.graph").write_text("\n".join(["% comment", f"900 {len(pairs)} 1", *lines]) + "\n\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("t.parquet", []),
        ("t.parquet", ["--vertex-table", "ids.parquet"]),
        ("schema.toml", []),
        ("g.graph", []),
    ],
)
@pytest.mark.parametrize("count", [2, 3, 7])
def test_tasks_read_pieces_of_one_source(prep, pieces, monkeypatch, name, flags, count):
    monkeypatch.chdir(pieces)
    words = [name, "g.h5", *flags]
    for index in range(count):
        assert prep("import", *words, "--share", f"{index}/{count}").code == 0
    # No task reads all of it.
    staged = [sum(each.stat().st_size for each in share.glob("staged-*")) for share in pieces.glob(".g.h5.shares-*/*")]
    assert len(staged) == count
    assert max(staged) < 0.7 * sum(staged)
    for index in range(count):
        assert prep("import", *words, "--share", f"{index}/{count}").code == 0
    outcome = prep("import", *words)
    assert f"shares taken: edges-sorted of {count} tasks" in outcome.out
    assert prep("import", name, "whole.h5", *flags).code == 0
    assert content(pieces / "g.h5") == content(pieces / "whole.h5")


@pytest.mark.parametrize(
    ("old", "new"),
    [("900 ", "950 "), ("900 ", "899 "), (" 1\n", " 1\n1 1 "), ("% half", "1"), ("% half", "1 1 x")],
)
def test_a_fault_of_metis_text_is_named_as_by_one_process(prep, pieces, old, new):
    text = (pieces / "g.graph").read_text()
    assert old in text
    (pieces / "g.graph").write_text(text.replace(old, new, 1))
    words = ["import", pieces / "g.graph", pieces / "g.h5"]
    whole = prep(*words)
    assert whole.code == 3
    ends = [prep(*words, "--share", f"{index}/3") for _ in range(2) for index in range(3)]
    assert {each.error for each in ends if each.code} == {whole.error}


def test_tasks_may_run_at_the_same_time(prep, tmp_path, source):
    words = ["import", source / "edges.csv", tmp_path / "g.h5"]
    for _ in range(2):
        tasks = [
            subprocess.Popen([sys.executable, "-m", "data_prep.cli", *map(str, words), "--share", f"{index}/3"])
            for index in range(3)
        ]
        assert [task.wait(120) for task in tasks] == [0, 0, 0]
    assert "shares taken: edges-sorted of 3 tasks" in prep(*words).out
    assert prep(*words[:2], tmp_path / "whole.h5").code == 0
    assert content(tmp_path / "g.h5") == content(tmp_path / "whole.h5")


@pytest.mark.parametrize("flags", [["--method", "ldg", "--order", "communities"], ["--method", "hash"]])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_tasks_write_the_same_dataset(prep, tmp_path, source, count, flags):
    flags = ["--parts", 4, *flags, *(["--layout", "columns"] if "hash" in flags else [])]
    assert prep("import", source / "edges.npy", tmp_path / "g.h5", "--features", "random:6").code == 0
    said = shared(prep, count, "partition", tmp_path / "g.h5", tmp_path / "data", *flags)
    assert "parts-written" in said[-1]
    outcome = prep("partition", tmp_path / "g.h5", tmp_path / "data", *flags)
    assert f"shares taken: parts-found of {count} tasks, parts-written of {count} tasks" in outcome.out, outcome.error
    assert prep("partition", tmp_path / "g.h5", tmp_path / "whole", *flags).code == 0
    same_files(tmp_path / "data", tmp_path / "whole")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "g.h5", "whole"]


def same_files(folder, whole):
    assert {each.name for each in folder.iterdir()} == {each.name for each in whole.iterdir()}
    for file in whole.iterdir():
        if file.suffix == ".h5":
            assert content(file) == content(folder / file.name)


def test_tasks_write_a_typed_dataset(prep, tmp_path, source):
    assert prep("import", source / "triples", tmp_path / "g.h5").code == 0
    words = ["partition", tmp_path / "g.h5", tmp_path / "data", "--parts", 3]
    shared(prep, 2, *words)
    assert prep(*words).code == 0
    assert prep(*words[:2], tmp_path / "whole", *words[3:]).code == 0
    same_files(tmp_path / "data", tmp_path / "whole")


def test_shares_that_are_missing_are_not_needed(prep, tmp_path, source):
    words = ["import", source / "edges.csv", tmp_path / "g.h5"]
    outcome = prep(*words, "--share", "1/3")
    assert "of the 3 shares of this stage these are missing: 0, 2" in outcome.out
    assert "is there already" in prep(*words, "--share", "1/3").out
    outcome = prep(*words)
    assert outcome.code == 0, outcome.error
    assert "shares of tasks are not complete, or of other flags or another source, and were not used" in outcome.out
    assert [each.name for each in tmp_path.iterdir()] == ["g.h5"]


def test_a_damaged_share_is_not_taken(prep, tmp_path, source):
    words = ["import", source / "edges.npy", tmp_path / "g.h5"]
    shared(prep, 2, *words)
    (damaged,) = tmp_path.glob(".g.h5.shares-*/edges-sorted-1-of-2/indices-*")
    with damaged.open("r+b") as file:
        file.write(b"\xff")
    assert "were not used" in prep(*words).out


def test_a_fault_is_named_as_by_one_process(prep, tmp_path, source):
    lines = (source / "edges.csv").read_text().splitlines(keepends=True)
    lines[9_000] = "17,x,1\n"
    (tmp_path / "bad.csv").write_text("".join(lines))
    words = ["import", tmp_path / "bad.csv", tmp_path / "g.h5"]
    whole = prep(*words)
    assert whole.code == 3
    assert "data row 9000" in whole.error
    assert prep(*words, "--share", "0/4").code == 0
    assert prep(*words, "--share", "3/4").error == whole.error
    assert not (tmp_path / "g.h5").exists()


@pytest.mark.parametrize("text", ["3/3", "1", "-1/2", "a/b", "0/0"])
def test_a_share_is_a_number_below_their_count(prep, tmp_path, source, text):
    outcome = prep("import", source / "edges.npy", tmp_path / "g.h5", f"--share={text}")
    assert outcome.code == 2
    assert "expected I/N with I from 0 to N - 1" in outcome.error


def test_ids_that_are_texts_are_not_shared(prep, tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    outcome = prep("import", tmp_path / "edges.csv", tmp_path / "g.h5", "--format", "table", "--share", "0/2")
    assert outcome.code == 2
    assert "ids that are texts are numbered in one go" in outcome.error
    assert [each.name for each in tmp_path.iterdir()] == ["edges.csv"]


@given(
    st.lists(st.text("ab \r", max_size=5), max_size=12),
    st.booleans(),
    st.integers(1, 6),
    st.integers(0, 2),
    st.sampled_from([1, 3, 1000]),
)
def test_shares_of_a_text_are_its_lines(tmp_path_factory, lines, ended, count, skip, block):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_text("\n".join(lines) + "\n" * ended, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.formats.integer_lines._BLOCK_BYTES", block)
        shares = [b"".join(whole_lines(path, skip, (index, count))) for index in range(count)]
        assert b"".join(shares) == b"".join(whole_lines(path, skip))
    # A line is in one share as a whole.
    filled = [each for each in shares if each]
    assert all(each.endswith(b"\n") for each in filled[:-1])


@pytest.mark.parametrize(
    ("array", "element", "value"),
    [("features", 11_000, np.nan), ("features", 3, 0.5), ("topology/indices", 9_000, 1999), ("original_id", 1_500, 0)],
)
def test_tasks_refuse_a_damaged_graph_as_one_process_does(prep, tmp_path, source, array, element, value):
    assert prep("import", source / "edges.npy", tmp_path / "g.h5", "--features", "random:6").code == 0
    flip_in_array(tmp_path / "g.h5", array, element, value)
    words = ["partition", tmp_path / "g.h5", tmp_path / "data", "--parts", 4, "--method", "hash"]
    whole = prep(*words)
    assert whole.code == 3
    found = [prep(*words, "--share", f"{index}/4") for index in range(4)]
    # Another task may find that the digest differs, too.
    assert whole.error in {each.error for each in found if each.code == 3}
    # A share is missing, so the last command verifies, too.
    assert prep(*words).error == whole.error
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("count", [2, 3, 9])
def test_shares_of_verification_make_up_the_whole(prep, tmp_path, source, count):
    for name in ("edges.csv", "typed", "triples"):
        path = tmp_path / f"{name}.h5"
        assert prep("import", source / name, path, *FLAGS.get(name, [])).code == 0
        graph = open_graph(path)
        compare_content(path, graph, [verify_share(path, graph, index, count) for index in range(count)])
