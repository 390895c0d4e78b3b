"""What assembling keeps of its source."""

import weakref

import numpy as np

from data_prep.assembly.assemble import AssemblyOptions, make_graph
from data_prep.assembly.splits import SplitRule
from data_prep.edges.raw_graph import RawGraph
from data_prep.workspace import Workspace


def test_the_edges_of_a_source_are_let_go_once_they_are_sorted(tmp_path):
    raw = RawGraph(vertices=3, edges=np.array([[0, 1], [1, 2]]))
    edges = weakref.ref(raw.edges)
    graph, _ = make_graph(raw, AssemblyOptions(SplitRule("source", "source")), "it", Workspace(tmp_path, 2**30, 1))
    assert graph.indices.tolist() == [1, 0, 2, 1]
    assert edges() is None
