"""Damaged files of every kind: a graph or one sentence, never a crash, an endless loop or memory beyond all measure."""

import json
import os
import pickle
import random
import shutil
import tracemalloc

import networkx
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch

from data_prep.assembly.assemble import AssemblyOptions, make_graph
from data_prep.assembly.splits import SplitRule
from data_prep.assembly.typed_assembly import make_typed_graph
from data_prep.detection import SOURCES
from data_prep.edges.raw_graph import ReadOptions
from data_prep.edges.typed_graph import TypedRawGraph
from data_prep.workspace import Workspace
from leapmpi.errors import LeapmpiError
from tests.data_prep.commands.test_import import write_planetoid
from tests.data_prep.sources.test_distdgl import write as write_partitions
from tests.data_prep.sources.test_gconstruct import write_tables
from tests.data_prep.sources.test_graph_texts import SNAP, metis_text
from tests.data_prep.sources.test_hetero_data import stores
from tests.data_prep.sources.test_tables import EDGES, MUSAE, VERTICES
from tests.data_prep.sources.test_triples import RDF, TRAIN
from tests.data_prep.sources.test_typed_folders import write_chunks, write_hgb, write_igb, write_ogb
from tests.data_prep.sources.test_typed_tables import write_gconstruct
from tests.data_prep.sources.test_typed_tables import write_tables as write_tables_of_types
from tests.data_prep.sources.test_webgraph import random_lists
from tests.data_prep.typed_folders import write_folder
from tests.support.bv_streams import write_graph

CASES = 1200 if "LEAPMPI_SOAK" in os.environ else 72
"""Damages of each kind of file."""
MOST_BYTES = 64 * 2**20


def webgraph(folder):
    return write_graph(folder / "g", random_lists(2, 30)), ["g.graph", "g.properties"]


def metis(folder):
    (folder / "g.graph").write_text(metis_text("011 2", weights=2, edge_weight=True))
    return folder / "g.graph", ["g.graph"]


def matrix_market(folder):
    scipy.io.mmwrite(folder / "g.mtx", sp.random(9, 9, 0.3, random_state=1))
    return folder / "g.mtx", ["g.mtx"]


def snap(folder):
    (folder / "g.txt").write_text(SNAP + "900\t7\n7\t30\n30\t900\n")
    return folder / "g.txt", ["g.txt"]


def table(folder):
    (folder / "edges.csv").write_text(EDGES)
    (folder / "vertices.csv").write_text(VERTICES)
    return folder, ["edges.csv", "vertices.csv"]


def musae(folder):
    for name, text in MUSAE.items():
        (folder / name).write_text(text)
    return folder, list(MUSAE)


def pyg(folder):
    tensors = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]]), "x": torch.ones(4, 2), "y": torch.arange(4) % 2}
    torch.save(tensors | {"train_mask": torch.arange(4) < 2}, folder / "g.pt")
    return folder / "g.pt", ["g.pt"]


def planetoid(folder):
    write_planetoid(folder / "tiny")
    return folder / "tiny", ["tiny/ind.tiny.test.index"]


def npy(folder):
    arrays = {"edges": np.array([[0, 1], [1, 2]]), "features": np.ones((3, 2)), "labels": np.arange(3), "train": [0]}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder, [f"{name}.npy" for name in arrays]


def matlab(folder):
    group = sp.csc_matrix(np.array([[1, 0], [1, 1], [0, 1]], float))
    scipy.io.savemat(
        folder / "g.mat", {"network": sp.csc_matrix(np.eye(3)[::-1]), "group": group, "x": np.ones((3, 2))}
    )
    return folder / "g.mat", ["g.mat"]


def packed_matlab(folder):
    matlab(folder)
    variables = {name: value for name, value in scipy.io.loadmat(folder / "g.mat").items() if name[0] != "_"}
    scipy.io.savemat(folder / "g.mat", variables, do_compression=True)
    return folder / "g.mat", ["g.mat"]


def distdgl(folder):
    write_partitions(folder, graphs="npz")
    return folder / "five.json", ["five.json", "part0/node_feat.dgl", "part1/edge_feat.dgl", "part1/graph.npz"]


def distdgl_of_graphbolt(folder):
    write_partitions(folder, graphs="graphbolt")
    return folder / "five.json", ["five.json", "part0/fused_csc_sampling_graph.pt"]


def gconstruct(folder):
    write_tables(folder)
    return folder / "graph.json", ["graph.json", "nodes-1.csv", "edges.csv"]


def typed_npy(folder):
    write_folder(folder)
    return folder, ["meta.json", "edges/paper__cites__paper/edge_index.npy", "nodes/paper/label.npy", "split/val.npy"]


def triples(folder):
    for name, text in {"train": TRAIN, "valid": "c\tlikes\tb\n", "test": "d\tknows\ta\n"}.items():
        (folder / f"{name}.txt").write_text(text)
    (folder / "entities.dict").write_text("0\ta\n1\tb\n2\tc\n3\td\n")
    return folder, ["train.txt", "valid.txt", "entities.dict"]


def ntriples(folder):
    (folder / "g.nt").write_text(RDF)
    (folder / "trainingSet.tsv").write_text("person\tlabel_x\nhttp://x/p1\tgroup b\nhttp://x/p2\tgroup a\n")
    return folder, ["g.nt", "trainingSet.tsv"]


def pyg_of_types(folder):
    torch.save(stores(), folder / "g.pt")
    return folder / "g.pt", ["g.pt"]


def ogb_of_types(folder):
    raw = "mag/raw/num-node-dict.csv.gz", "mag/raw/relations/paper___in___venue/edge.csv.gz"
    return write_ogb(folder / "mag"), [*raw, "mag/split/time/paper/valid.csv.gz"]


def igb_of_types(folder):
    index = "tiny/processed/paper__in__venue/edge_index.npy"
    return write_igb(folder / "tiny"), [index, "tiny/processed/paper/node_label_19.npy"]


def chunked(folder):
    write_chunks(folder / "chunks")
    return folder / "chunks/metadata.json", [f"chunks/{name}" for name in ("metadata.json", "label-1.npy")]


def hgb(folder):
    return write_hgb(folder / "acm"), [f"acm/{name}" for name in ("node.dat", "link.dat", "label.dat", "info.dat")]


def typed_table(folder):
    write_tables_of_types(folder / "tables")
    return folder / "tables/graph.toml", [f"tables/{name}" for name in ("graph.toml", "papers-0.csv", "writes.csv")]


def gconstruct_of_types(folder):
    features = [{"feature_col": "size", "transform": {"name": "bucket_numerical", "bucket_cnt": 3, "range": [0, 25]}}]
    write_gconstruct(folder / "tables", features)
    return folder / "tables/graph.json", [f"tables/{name}" for name in ("graph.json", "more.csv", "val.json")]


def graph_of_networkx():
    """A small graph with attributes of vertices and edges."""
    made = networkx.Graph([(vertex, (vertex + 1) % 9, {"weight": vertex + 0.5}) for vertex in range(9)])
    networkx.set_node_attributes(made, {vertex: {"x": vertex / 2, "y": vertex % 2} for vertex in made})
    return made


def graphml(folder):
    networkx.write_graphml(graph_of_networkx(), folder / "g.graphml")
    return folder / "g.graphml", ["g.graphml"]


def gexf(folder):
    networkx.write_gexf(graph_of_networkx(), folder / "g.gexf")
    return folder / "g.gexf", ["g.gexf"]


def gml(folder):
    networkx.write_gml(graph_of_networkx(), folder / "g.gml")
    return folder / "g.gml", ["g.gml"]


def node_link(folder):
    (folder / "g.json").write_text(json.dumps(networkx.node_link_data(graph_of_networkx(), edges="links")))
    return folder / "g.json", ["g.json"]


def adjacency_list(folder):
    networkx.write_multiline_adjlist(graph_of_networkx(), folder / "g.multiline_adjlist")
    return folder / "g.multiline_adjlist", ["g.multiline_adjlist"]


def gpickle(folder):
    (folder / "g.gpickle").write_bytes(pickle.dumps(graph_of_networkx()))
    return folder / "g.gpickle", ["g.gpickle"]


WRITERS = [webgraph, metis, matrix_market, snap, table, musae, pyg, npy, planetoid, matlab, packed_matlab]
WRITERS += [distdgl, distdgl_of_graphbolt, gconstruct, typed_npy, triples, ntriples]
WRITERS += [graphml, gexf, gml, node_link, adjacency_list, gpickle]
WRITERS += [pyg_of_types, ogb_of_types, igb_of_types, chunked, hgb, typed_table, gconstruct_of_types]


def damaged(content, choice):
    """`content` with some bytes changed, a piece cut out or doubled, its end missing, or a number replaced."""
    kind, at = choice.randrange(6), choice.randrange(len(content))
    if kind == 0:
        return content[:at]
    if kind == 1:
        stop = at + choice.randint(1, 16)
        return content[:at] + content[stop:]
    if kind == 2:
        stop = at + choice.randint(1, 16)
        return content[:stop] + content[at:]
    if kind == 3:
        return (
            content[:at]
            + choice.choice([b"999999999", b"-1", b"\xff\xff\xff\x7f", b"\0" * 8, b"\n"])
            + content[at + 1 :]
        )
    changed = bytearray(content)
    for _ in range(choice.choice([1, 1, 1, 4, 20])):
        changed[choice.randrange(len(changed))] = choice.choice([choice.randrange(256), 0, 255, 0x39])
    return bytes(changed)


def outcome_of(source, path, workspace):
    """None for a graph, the sentence of the error otherwise; any other exception is a failure of the test."""
    try:
        raw = source.read(path, ReadOptions())
        make = make_typed_graph if isinstance(raw, TypedRawGraph) else make_graph
        graph, _ = make(raw, AssemblyOptions(SplitRule("source", "source")), str(path), workspace)
        if graph.features is not None:
            assert graph.features[: graph.vertices].shape == graph.features.shape
    except LeapmpiError as error:
        return str(error)
    return None


@pytest.mark.timeout(max(120, CASES))
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_damage(tmp_path, writer):
    name = (
        writer.__name__.removeprefix("packed_")
        .removesuffix("_of_graphbolt")
        .removesuffix("_of_types")
        .replace("_", "-")
    )
    source = SOURCES.load(name)
    whole = tmp_path / "whole"
    whole.mkdir()
    path, files = writer(whole)
    (tmp_path / "work").mkdir()
    workspace = Workspace(tmp_path / "work", 2**30)
    assert outcome_of(source, path, workspace) is None  # compiles kernels as well
    choice, sentences = random.Random(writer.__name__), set()
    for case in range(CASES):
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        file = folder / choice.choice(files)
        file.write_bytes(damaged(file.read_bytes(), choice))
        tracemalloc.start()
        said = outcome_of(source, folder / path.relative_to(whole), workspace)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MOST_BYTES, (case, peak, said)
        if said is not None:
            assert "\n" not in said, said
            assert str(folder) in said, said
            sentences.add(said)
    assert len(sentences) > 10
