"""WebGraph's BVGraph: against an own encoder with every code, a hand-made stream, and a real crawl with its offsets."""

import random

import numpy as np
import pytest

from data_prep.detection import locate
from data_prep.edges.raw_graph import ReadOptions
from data_prep.formats import bvgraph
from data_prep.sources import webgraph
from leapmpi.dataset.graph_file import open_graph
from tests.support.bv_streams import Bits, encoded, successors, write_graph


def lists_of(path):
    """Successors by vertex as the source reads them."""
    raw = webgraph.read(path, ReadOptions())
    lists = [[] for _ in range(raw.vertices)]
    for chunk in raw.edges.chunks():
        for source, destination in chunk.T.tolist():
            lists[source].append(destination)
    return lists


def random_lists(seed, vertices=60):
    """Lists with runs, hubs, empty ones, self-loops and much in common with their predecessors."""
    choice = random.Random(seed)
    lists = []
    for vertex in range(vertices):
        targets = set(choice.sample(range(vertices), choice.choice([0, 0, 1, 3, 10])))
        if choice.random() < 0.5:
            start = choice.randrange(vertices)
            targets |= set(range(start, min(vertices, start + choice.randint(1, 12))))
        if vertex and choice.random() < 0.7:
            targets |= {target for target in lists[-1] if choice.random() < 0.8}
        if choice.random() < 0.1:
            targets.add(vertex)
        lists.append(sorted(targets))
    return lists


def test_stream_made_by_hand(tmp_path):
    # 0 -> 1, 3; 1 -> none; 2 -> 0; 3 -> 1, 3 copied from three before. Bits by the format's own description:
    # outdegree gamma, reference unary, no intervals (gamma 0), first residual by sign, then gaps, in zeta 3.
    rows = [
        "011" + "1" + "1" + encoded(2, "ZETA") + encoded(1, "ZETA"),
        "1",
        "010" + "1" + "1" + encoded(3, "ZETA"),
        "011" + "0001" + "1",
    ]
    path = write_graph(tmp_path / "g", [[1, 3], [], [0], [1, 3]])
    bits = "".join(rows)
    bits += "0" * (-len(bits) % 8)
    path.write_bytes(int(bits, 2).to_bytes(len(bits) // 8, "big"))
    assert lists_of(path) == [[1, 3], [], [0], [1, 3]]


def test_codewords():
    # The tables of Boldi and Vigna's paper on zeta codes, and of Elias'.
    assert [encoded(n, "GAMMA") for n in range(4)] == ["1", "010", "011", "00100"]
    assert [encoded(n, "DELTA") for n in range(4)] == ["1", "0100", "0101", "01100"]
    assert [encoded(n, "ZETA", 3) for n in range(8)] == [
        "100", "1010", "1011", "1100", "1101", "1110", "1111", "0100000",
    ]  # fmt: skip
    assert [encoded(n, "NIBBLE") for n in (0, 7, 8)] == ["1000", "1111", "00011000"]


@pytest.mark.parametrize("seed", range(4))
def test_default_codes(tmp_path, seed):
    lists = random_lists(seed)
    assert lists_of(write_graph(tmp_path / "g", lists, seed=seed)) == lists


@pytest.mark.parametrize(
    "codes",
    [
        {"OUTDEGREES": "DELTA", "REFERENCES": "GAMMA", "BLOCK_COUNT": "UNARY", "BLOCKS": "DELTA", "RESIDUALS": "GAMMA"},
        {"REFERENCES": "DELTA", "BLOCK_COUNT": "DELTA", "BLOCKS": "UNARY", "RESIDUALS": "DELTA"},
        {"RESIDUALS": "GOLOMB"},
        {"RESIDUALS": "NIBBLE"},
    ],
    ids=lambda codes: codes["RESIDUALS"],
)
def test_other_codes(tmp_path, codes):
    lists = random_lists(9)
    for k in (1, 5):
        assert lists_of(write_graph(tmp_path / "g", lists, codes=codes, k=k)) == lists


@pytest.mark.parametrize("chunk", [1 << 20, 10])
@pytest.mark.parametrize(("window", "shortest"), [(0, 4), (7, 0), (0, 0), (1, 2), (30, 1)])
def test_windows_and_intervals(tmp_path, monkeypatch, window, shortest, chunk):
    monkeypatch.setattr(bvgraph, "_ARCS_AT_ONCE", chunk)
    lists = random_lists(5)
    assert lists_of(write_graph(tmp_path / "g", lists, window=window, shortest=shortest)) == lists


def test_dense_rows_take_few_bits(tmp_path):
    # Intervals and copies: far more arcs than bits, so that memory must grow while decoding.
    lists = [list(range(400))] * 400
    path = write_graph(tmp_path / "g", lists)
    assert path.stat().st_size * 8 < 160_000 / 10
    assert lists_of(path) == lists


def test_import_goes_from_vertex_to_successor(prep, tmp_path):
    write_graph(tmp_path / "g", [[1], [2], [], []])
    (tmp_path / "g.offsets").write_bytes(b"")
    assert prep("import", tmp_path, tmp_path / "out.h5", "--directed").code == 0
    graph = open_graph(tmp_path / "out.h5")
    assert (graph.vertices, graph.indptr.tolist(), graph.indices.tolist()) == (4, [0, 0, 1, 2, 2], [0, 1])
    assert graph.attributes["source_format"] == "webgraph"


def test_cnr_2000(real_graph):
    name, path = locate(real_graph("webgraph-cnr-2000"))
    raw = webgraph.read(path, ReadOptions())
    source, destination = np.concatenate(list(raw.edges.chunks()), axis=1)
    assert name == "webgraph"
    assert (raw.vertices, raw.edges.count) == (325_557, 3_216_152)
    assert int((source == destination).sum()) == 87_442
    # Each row stands where the file of offsets, which the source does not read, says that it does.
    gaps = Bits(path.with_suffix(".offsets").read_bytes())
    offsets = np.cumsum([gaps.gamma() for _ in range(40_000)]).tolist()
    data = path.read_bytes()
    starts = np.searchsorted(source, np.arange(raw.vertices + 1))
    for vertex in [*range(40), *random.Random(0).sample(range(40_000), 300)]:
        found = destination[starts[vertex] : starts[vertex + 1]].tolist()
        assert found == sorted(successors(data, offsets, vertex)), vertex


def test_refused(refused, tmp_path):
    lists = random_lists(1)
    path = write_graph(tmp_path / "g", lists)
    whole, properties = path.read_bytes(), path.with_suffix(".properties")
    text = properties.read_text()

    def said(content=whole, **changed):
        path.write_bytes(content)
        lines = [line for line in text.splitlines() if line.partition("=")[0] not in changed]
        properties.write_text("\n".join(lines + [f"{name}={value}" for name, value in changed.items()]))
        return refused(path)

    arcs = sum(map(len, lists))
    assert "g.graph: vertex 5" in said(whole[:-1])
    assert "the bit stream ends within a record" in said(whole[: len(whole) // 2])
    assert "0 bytes cannot hold as many" in said(b"")
    assert "but more data follow" in said(whole + b"\1")
    assert "1,000,000,000,000 vertices are stated" in said(nodes=10**12)
    assert f"more than is left of the {arcs - 1} arcs stated" in said(arcs=arcs - 1)
    assert f"{arcs} arcs were decoded, but 1,000,000,000,000 are stated" in said(arcs=10**12)
    assert "g.properties: arcs is '-3'" in said(arcs=-3)
    assert "does not state 'nodes'" in said(nodes="")
    assert "the graph's class is EFGraph" in said(graphclass="it.unimi.dsi.webgraph.EFGraph")
    assert "little-endian" in said(endianness="little")
    assert "unknown compression flag 'BLOCKS_ZETA'" in said(compressionflags="BLOCKS_ZETA")
    assert "zetak is 40" in said(zetak=40)
    assert "version 1 of BVGraph" in said(version=1)
    properties.unlink()
    assert "a WebGraph needs its .properties beside it" in refused(path)
    assert "g.properties is missing" in refused(path, "--format", "webgraph")
