"""Text files of edges: by numbers or names, with relations in a typed graph, and what is wrong with a line."""

from types import SimpleNamespace

import numpy as np
import pytest

from leapmpi.dataset.named_triples import read_triples
from leapmpi.dataset.names_of_vertices import digest_of
from leapmpi.errors import DataError
from tests.support.typed_draws import SCHOLARS


@pytest.fixture
def file(tmp_path):
    return tmp_path / "false.txt"


def dataset(tmp_path, types=None, names=None):
    attributes = {}
    if names is not None:
        (tmp_path / "names.txt").write_text("".join(f"{each}\n" for each in names))
        attributes = {"vertex_names": "names.txt", "vertex_names_digest": digest_of(tmp_path / "names.txt")}
    return SimpleNamespace(folder=tmp_path, attributes=attributes, types=types)


def test_pairs_of_a_plain_graph(file, tmp_path):
    file.write_text("3 5\n\n4,6\n7\t8\n")
    assert read_triples(file, dataset(tmp_path), "--flag").tolist() == [[3, 0, 5], [4, 0, 6], [7, 0, 8]]


def test_triples_of_a_typed_graph(file, tmp_path):
    known = SCHOLARS.relations
    first = next(each for each in known if [one.name for one in known].count(each.name) == 1)
    r = known.index(first)
    ends = SCHOLARS.bases[SCHOLARS.ends[r]].tolist()
    file.write_text(f"{ends[0]}\t{first.name}\t{ends[1]}\n{ends[0] + 1}\t{first}\t{ends[1]}\n")
    found = read_triples(file, dataset(tmp_path, SCHOLARS), "--flag")
    assert found.tolist() == [[ends[0], r, ends[1]], [ends[0] + 1, r, ends[1]]]
    other = next(i for i in range(len(SCHOLARS.vertices)) if i != SCHOLARS.ends[r, 0])
    file.write_text(f"{SCHOLARS.bases[other]} {first} {ends[1]}\n")
    with pytest.raises(DataError, match=f"line 1: an end is not of the types of relation {first}"):
        read_triples(file, dataset(tmp_path, SCHOLARS), "--flag")


def test_names_of_the_source(file, tmp_path):
    file.write_text("Ada\tBob\n")
    assert read_triples(file, dataset(tmp_path, names=["Bob", "Cy", "Ada"]), "--flag").tolist() == [[2, 0, 0]]
    file.write_text("Ada\tBob\nAda\tDan\n")
    with pytest.raises(DataError, match="line 2: 'Dan' is not a name of a vertex"):
        read_triples(file, dataset(tmp_path, names=["Bob", "Cy", "Ada"]), "--flag")


def test_one_rank_checks_the_names(file, tmp_path):
    """Their digest is that of the whole file, which may be large."""
    file.write_text("Ada\tBob\n")
    named = dataset(tmp_path, names=["Bob", "Cy", "Ada"])
    named.attributes["vertex_names_digest"] = "of another file"
    with pytest.raises(DataError, match="their digests differ"):
        read_triples(file, named, "--flag")
    assert read_triples(file, named, "--flag", check=False).tolist() == [[2, 0, 0]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 2\n3\n", "line 2: expected a source and a destination, found 1 field"),
        ("1 2 3\n", "line 1: expected a source and a destination, found 3 fields"),
        ("\n1 -2\n", "line 2: '-2' is not an original id, a whole number from 0 on"),
    ],
)
def test_a_wrong_line_is_named(text, sentence, file, tmp_path):
    file.write_text(text)
    with pytest.raises(DataError, match=sentence):
        read_triples(file, dataset(tmp_path), "--flag")


def test_relations_are_known(file, tmp_path):
    file.write_text("1 likes 2\n")
    with pytest.raises(DataError, match="line 1: the graph has no relation 'likes', or several"):
        read_triples(file, dataset(tmp_path, SCHOLARS), "--flag")


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_triples(tmp_path / "none.txt", dataset(tmp_path), "--flag")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        read_triples(tmp_path / "bytes.txt", dataset(tmp_path), "--flag")


def test_an_empty_file_names_nothing(file, tmp_path):
    file.write_text("")
    assert read_triples(file, dataset(tmp_path), "--flag").shape == (0, 3)
    assert read_triples(file, dataset(tmp_path), "--flag").dtype == np.int64
