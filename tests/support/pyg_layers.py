"""PyTorch Geometric's layers as people stack them: the models of the table in leapmpi/nn/README.md.

tests/support/pyg_layers.py:NAME, as a setting names it, is a stack of the layer NAME.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn

LAYERS = {
    "AGNNConv": lambda i, o: Projected(i, o, pyg.AGNNConv()),
    "AntiSymmetricConv": lambda i, o: Projected(i, o, pyg.AntiSymmetricConv(o, pyg.SimpleConv("mean"))),
    "APPNP": lambda i, o: Projected(i, o, pyg.APPNP(K=1, alpha=0.1)),
    "ARMAConv": lambda i, o: pyg.ARMAConv(i, o),
    "CGConv": lambda i, o: Projected(i, o, pyg.CGConv(o)),
    "ChebConv": lambda i, o: pyg.ChebConv(i, o, K=2),
    "ClusterGCNConv": lambda i, o: pyg.ClusterGCNConv(i, o),
    "EdgeConv": lambda i, o: pyg.EdgeConv(nn.Linear(2 * i, o)),
    "EGConv": lambda i, o: pyg.EGConv(i, o, aggregators=["mean", "max"], num_heads=1, add_self_loops=False),
    "FAConv": lambda i, o: Initial(i, o, pyg.FAConv(o, dropout=0.2)),
    "FeaStConv": lambda i, o: pyg.FeaStConv(i, o, heads=2),
    "FiLMConv": lambda i, o: pyg.FiLMConv(i, o),
    "GATConv": lambda i, o: pyg.GATConv(i, o, heads=2, concat=False, dropout=0.3),
    "GatedGraphConv": lambda i, o: Projected(i, o, pyg.GatedGraphConv(o, num_layers=1)),
    "GATv2Conv": lambda i, o: pyg.GATv2Conv(i, o, heads=2, concat=False, dropout=0.3),
    "GCN2Conv": lambda i, o: Initial(i, o, pyg.GCN2Conv(o, alpha=0.1)),
    "GCNConv": lambda i, o: pyg.GCNConv(i, o),
    "GeneralConv": lambda i, o: pyg.GeneralConv(i, o, heads=2, attention=True),
    "GENConv": lambda i, o: pyg.GENConv(i, o, learn_t=True, norm="layer"),
    "GINConv": lambda i, o: pyg.GINConv(nn.Linear(i, o), train_eps=True),
    "GraphConv": lambda i, o: pyg.GraphConv(i, o),
    "LEConv": lambda i, o: pyg.LEConv(i, o),
    "LGConv": lambda i, o: Projected(i, o, pyg.LGConv()),
    "MFConv": lambda i, o: pyg.MFConv(i, o, max_degree=3),
    "MixHopConv": lambda i, o: Summed(pyg.MixHopConv(i, o, powers=[0, 1])),
    "PNAConv": lambda i, o: pyg.PNAConv(i, o, ["mean", "max", "std"], ["identity", "linear"], torch.tensor([1, 9, 5])),
    "ResGatedGraphConv": lambda i, o: pyg.ResGatedGraphConv(i, o),
    "SAGEConv": lambda i, o: pyg.SAGEConv(i, o, project=True),
    "SGConv": lambda i, o: pyg.SGConv(i, o, K=1),
    "SimpleConv": lambda i, o: Projected(i, o, pyg.SimpleConv("mean", combine_root="sum")),
    "SSGConv": lambda i, o: pyg.SSGConv(i, o, alpha=0.1, K=1),
    "SuperGATConv": lambda i, o: pyg.SuperGATConv(i, o, heads=2, concat=False, dropout=0.3),
    "TAGConv": lambda i, o: pyg.TAGConv(i, o, K=1),
    "TransformerConv": lambda i, o: pyg.TransformerConv(i, o, heads=2, concat=False, dropout=0.3, beta=True),
    "WLConvContinuous": lambda i, o: Projected(i, o, pyg.WLConvContinuous()),
}
"""By name, a layer from i to o columns."""

ON_EDGES = {
    "CGConv": lambda i, o, e: Projected(i, o, pyg.CGConv(o, dim=e)),
    "GATConv": lambda i, o, e: pyg.GATConv(i, o, heads=2, concat=False, edge_dim=e),
    "GATv2Conv": lambda i, o, e: pyg.GATv2Conv(i, o, heads=2, concat=False, edge_dim=e, dropout=0.3),
    "GCNConv": lambda i, o, e: Weighted(pyg.GCNConv(i, o)),
    "GENConv": lambda i, o, e: pyg.GENConv(i, o, edge_dim=e, norm="layer"),
    "GINEConv": lambda i, o, e: pyg.GINEConv(nn.Linear(i, o), edge_dim=e),
    "GraphConv": lambda i, o, e: Weighted(pyg.GraphConv(i, o)),
    "NNConv": lambda i, o, e: pyg.NNConv(i, o, nn.Linear(e, i * o), aggr="mean"),
    "PDNConv": lambda i, o, e: pyg.PDNConv(i, o, e, 4, add_self_loops=False, normalize=False),
    "ResGatedGraphConv": lambda i, o, e: pyg.ResGatedGraphConv(i, o, edge_dim=e),
    "TransformerConv": lambda i, o, e: pyg.TransformerConv(i, o, heads=2, concat=False, edge_dim=e),
}
"""By name, a layer from i to o columns that reads e features of edges, or their weights; it is called NAMEOnEdges."""

COUNTING = ("ARMAConv", "ChebConv", "MixHopConv", "SGConv", "SSGConv")
"""Those that count degrees inside a block, and so depend on where roots are trained."""


class Projected(nn.Module):
    """A layer that keeps the width, after a linear map."""

    def __init__(self, in_channels, out_channels, conv):
        super().__init__()
        self.lin, self.conv = nn.Linear(in_channels, out_channels), conv

    def forward(self, x, edge_index, *carried):
        return self.conv(self.lin(x), edge_index, *carried)


class Weighted(nn.Module):
    """A layer that reads weights of edges, and not their features."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index, edge_attr, edge_weight):
        return self.conv(x, edge_index, edge_weight)


class Initial(Projected):
    """A layer that reads two kinds of rows of the sources."""

    def forward(self, x, edge_index):
        x = self.lin(x)
        return self.conv(x, torch.tanh(x), edge_index)


class Summed(nn.Module):
    """A layer that returns one result beside the other."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        a, b = self.conv(x, edge_index).chunk(2, dim=1)
        return a + b


class Stack(nn.Module):
    """Equal layers, with dropout and a residual, written for a whole graph."""

    def __init__(self, layer, in_channels, hidden_channels, out_channels, num_layers, dropout):
        super().__init__()
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(layer(i, o) for i, o in pairwise(widths))
        self.skip = nn.Linear(in_channels, out_channels)
        self.dropout = dropout

    def forward(self, x, edge_index):
        return self.run(x, edge_index)

    def run(self, x, edge_index, *carried):
        h = x
        for layer in self.layers[:-1]:
            h = F.elu(layer(h, edge_index, *carried))
            h = F.dropout(h, self.dropout, training=self.training)
        return self.layers[-1](h, edge_index, *carried) + self.skip(x)


class StackOnEdges(Stack):
    """One whose layers read what edges carry."""

    def forward(self, x, edge_index, edge_attr, edge_weight):
        weights = [edge_weight] if isinstance(self.layers[0], Weighted) else []
        return self.run(x, edge_index, edge_attr, *weights)


def stack_of(name):
    """A function that makes a stack of the layer called `name`, with the arguments that models are given."""

    def make(in_channels, hidden_channels, out_channels, num_layers, dropout):
        return Stack(LAYERS[name], in_channels, hidden_channels, out_channels, num_layers, dropout)

    return make


def stack_on_edges(name):
    """As `stack_of`, of a layer of ON_EDGES."""

    def make(in_channels, hidden_channels, out_channels, num_layers, dropout, edge_dim):
        def layer(i, o):
            return ON_EDGES[name](i, o, edge_dim)

        return StackOnEdges(layer, in_channels, hidden_channels, out_channels, num_layers, dropout)

    return make


globals().update({name: stack_of(name) for name in LAYERS})
globals().update({f"{name}OnEdges": stack_on_edges(name) for name in ON_EDGES})
