"""Commands that were stopped go on from their finished stages, to the same bytes."""

import subprocess
import sys
import time

import numpy as np
import pytest

from data_prep.cli import main
from leapmpi.errors import ResourceError
from tests.data_prep.commands.test_workers import content
from tests.data_prep.small_sources import write_sources
from tests.support.file_size import largest_file

EDGES = "data_prep.edges.edge_sort.EdgeSorter.finish"
COMPONENTS = "data_prep.assembly.assemble.components"
TYPED_COMPONENTS = "data_prep.assembly.typed_assembly.components"
WRITE = "data_prep.assembly.output.write_graph"
CUT = "data_prep.partitioning.partition_graph.partition_graph"
DATASET = "leapmpi.dataset.dataset_writer.write_dataset"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_sources(tmp_path_factory.mktemp("source"))


def killed_in(place: str, *words: object) -> None:
    """Run the command in a process of its own, and kill it when it calls `place`."""
    module, name = place.rsplit(".", 1)
    code = (
        "import sys, time, importlib\n"
        "from data_prep.cli import main\n"
        f"path, left = {module!r}, []\n"
        "while True:\n"
        "    try:\n        owner = importlib.import_module(path)\n        break\n"
        "    except ModuleNotFoundError:\n        path, _, last = path.rpartition('.')\n        left.append(last)\n"
        "for each in reversed(left): owner = getattr(owner, each)\n"
        "def stop(*_, **__): print('here', flush=True); time.sleep(60)\n"
        f"setattr(owner, {name!r}, stop)\n"
        f"main({[str(word) for word in words]!r})"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"here\n"
        time.sleep(0.02)
        process.kill()


@pytest.mark.parametrize("name", ["edges.csv", "snap.txt", "edges.npy", "table.csv"])
@pytest.mark.parametrize(
    ("place", "taken"), [(EDGES, "edges-read"), (COMPONENTS, "edges-sorted"), (WRITE, "edges-sorted")]
)
def test_a_killed_import_goes_on_from_its_last_stage(prep, tmp_path, source, name, place, taken):
    words = ["import", source / name, tmp_path / "g.h5", *(["--edge-columns", "weight"] if name == "edges.csv" else [])]
    killed_in(place, *words)
    outcome = prep(*words)
    assert outcome.code == 0, outcome.error
    went_on = f"an earlier run was stopped; taken from it: {taken}" in outcome.out
    assert went_on or (name == "edges.npy" and place == EDGES), outcome.out
    assert prep("import", *words[1:2], tmp_path / "whole.h5", *words[3:]).code == 0
    assert content(tmp_path / "g.h5") == content(tmp_path / "whole.h5")
    assert {each.suffix for each in tmp_path.iterdir()} <= {".h5", ".txt"}


@pytest.mark.parametrize("name", ["typed", "triples"])
@pytest.mark.parametrize("place", [TYPED_COMPONENTS, WRITE])
def test_a_killed_import_of_a_typed_graph_goes_on_from_its_sorted_edges(prep, tmp_path, source, name, place):
    words = ["import", source / name, tmp_path / "g.h5", "--add-reverse"]
    killed_in(place, *words)
    outcome = prep(*words)
    assert outcome.code == 0, outcome.error
    assert "an earlier run was stopped; taken from it: edges-sorted" in outcome.out
    whole = prep("import", source / name, tmp_path / "whole.h5", "--add-reverse")
    assert content(tmp_path / "g.h5") == content(tmp_path / "whole.h5")
    # The table too says the same of the source.
    assert lines_about_edges(outcome.out) == lines_about_edges(whole.out)


def lines_about_edges(table):
    return [line for line in table.splitlines() if "edges" in line and "sort" not in line]


@pytest.fixture(scope="module")
def graph(source, tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "g.h5"
    assert main(["import", str(source / "edges.npy"), str(path), "--features", "degree"]) == 0
    return path


@pytest.mark.parametrize(("place", "taken"), [(CUT, "verified"), (DATASET, "verified, cut, ordered")])
def test_a_killed_partition_goes_on_from_its_last_stage(prep, tmp_path, graph, place, taken):
    words = ["--parts", 3, "--method", "ldg", "--order", "communities"]
    killed_in(place, "partition", graph, tmp_path / "data", *words)
    outcome = prep("partition", graph, tmp_path / "data", *words)
    assert outcome.code == 0, outcome.error
    assert f"taken from it: {taken}\n" in outcome.out
    assert prep("partition", graph, tmp_path / "whole", *words).code == 0
    for file in (tmp_path / "whole").iterdir():
        assert content(file) == content(tmp_path / "data" / file.name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "whole"]


def test_a_full_disk_leaves_the_finished_stages_on_request(prep, tmp_path, source):
    words = ["import", source / "edges.csv", tmp_path / "g.h5", "--features", "random:64", "--keep-work"]
    with largest_file(300_000):
        assert prep(*words).code == ResourceError.exit_code
    assert [each.name.startswith(".g.h5.work-") for each in tmp_path.iterdir()] == [True]
    outcome = prep(*words)
    assert outcome.code == 0, outcome.error
    assert "taken from it: edges-sorted" in outcome.out
    assert [each.name for each in tmp_path.iterdir()] == ["g.h5"]


def test_another_command_or_source_begins_again(prep, tmp_path, source):
    copy = tmp_path / "edges.npy"
    copy.write_bytes((source / "edges.npy").read_bytes())
    killed_in(COMPONENTS, "import", copy, tmp_path / "g.h5")
    outcome = prep("import", copy, tmp_path / "g.h5", "--directed")
    assert outcome.code == 0
    assert "earlier run" not in outcome.out
    killed_in(COMPONENTS, "import", copy, tmp_path / "h.h5")
    np.save(copy, np.load(copy)[:, :-5])
    outcome = prep("import", copy, tmp_path / "h.h5")
    assert outcome.code == 0
    assert "earlier run" not in outcome.out


def test_a_damaged_stage_is_made_again(prep, tmp_path, source):
    words = ["import", source / "edges.csv", tmp_path / "g.h5"]
    killed_in(COMPONENTS, *words)
    (work,) = tmp_path.iterdir()
    (indices,) = work.glob("indices-*")
    with indices.open("r+b") as file:
        file.write(b"\xff")
    outcome = prep(*words)
    assert outcome.code == 0, outcome.error
    assert "earlier run" not in outcome.out
