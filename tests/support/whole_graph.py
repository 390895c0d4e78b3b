"""The outputs of a model for all vertices of a graph, by one process, in one block of the whole graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import from_graph
from leapmpi.nn.model import model_of
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.tensors import BlockTensors, Edges, EdgeWeights


def whole_outputs(config: Config, graph: Graph, weights: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
    """float[n, out]: outputs of the model of `config` with its first, or other, weights, by vertices of the graph."""
    dataset = open_dataset(config.data)
    model = model_of(config, dataset).eval()
    if weights is not None:
        ParameterLayout(model).assign(weights, "the test")
    topology, n = from_graph(graph), graph.vertices
    edges = Edges(torch.from_numpy(np.array(topology.indptr)), torch.from_numpy(np.array(topology.indices)), n)
    names = torch.from_numpy(np.array(topology.original_id))
    carried = features = None
    if topology.edge_weight is not None:
        sums = torch.from_numpy(topology.weight_sum)
        carried = EdgeWeights(torch.from_numpy(np.array(topology.edge_weight)), sums, sums, sums)
    if graph.edge_data.features is not None:
        features = torch.from_numpy(np.array(graph.edge_data.features))
    dtype = getattr(torch, config.train.dtype)
    block = BlockTensors(0, n, edges, names, edges.counts, None, carried, features)
    with torch.no_grad():
        x = torch.from_numpy(np.array(graph.features)).to(dtype)
        return model([block] * len(model.layers), x).numpy()
