"""Models for typed graphs as users of PyTorch Geometric write them."""

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, HeteroConv, HGTConv, Linear, SAGEConv, to_hetero

RELATIONS = [
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "rev_writes", "author"),
    ("author", "reviews", "paper"),
    ("field", "topic", "paper"),
    ("venue", "hosts", "field"),
]
"""Those that the model names itself; the schema has two more."""


class Hetero(torch.nn.Module):
    """HeteroConv with lazy widths, as in PyG's documentation."""

    def __init__(self, hidden_channels, out_channels, num_layers, dropout):
        super().__init__()
        self.convs = torch.nn.ModuleList()
        for number in range(num_layers):
            convs = {}
            # Nothing ends at a venue, so it has no hidden rows.
            for relation in RELATIONS[: len(RELATIONS) - (number > 0)]:
                if relation == ("author", "writes", "paper"):
                    convs[relation] = GATConv((-1, -1), hidden_channels, heads=2, concat=False, add_self_loops=False)
                else:
                    convs[relation] = SAGEConv((-1, -1), hidden_channels)
            self.convs.append(HeteroConv(convs, aggr="sum"))
        self.lin, self.dropout = Linear(hidden_channels, out_channels), dropout

    def forward(self, x_dict, edge_index_dict):
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
            x_dict = {key: F.dropout(x.relu(), self.dropout, self.training) for key, x in x_dict.items()}
        return self.lin(x_dict["paper"])


class Plain(torch.nn.Module):
    """A model of a plain graph, which to_hetero copies by type and relation."""

    def __init__(self, hidden_channels, out_channels, dropout):
        super().__init__()
        self.conv1, self.conv2 = SAGEConv((-1, -1), hidden_channels), SAGEConv((-1, -1), hidden_channels)
        self.lin, self.drop = Linear(-1, out_channels), torch.nn.Dropout(dropout)

    def forward(self, x, edge_index):
        x = self.drop(self.conv1(x, edge_index).relu())
        x = self.conv2(x, edge_index).relu()
        return self.lin(x)


def copied(hidden_channels, out_channels, dropout, metadata):
    # PyG wants every type to end some relation in every layer.
    types = [each for each in metadata[0] if each not in ("venue", "field")]
    relations = [each for each in metadata[1] if {each[0], each[2]} <= set(types)]
    return to_hetero(Plain(hidden_channels, out_channels, dropout), (types, relations), aggr="mean")


class Transformer(torch.nn.Module):
    """HGT, whose layers take all relations."""

    def __init__(self, in_channels, hidden_channels, out_channels, num_layers, metadata):
        super().__init__()
        self.inputs = torch.nn.ModuleDict({name: Linear(width, hidden_channels) for name, width in in_channels.items()})
        self.convs = torch.nn.ModuleList(
            HGTConv(hidden_channels, hidden_channels, metadata, heads=2) for _ in range(num_layers)
        )
        self.lin = Linear(hidden_channels, out_channels)

    def forward(self, x_dict, edge_index_dict):
        x_dict = {name: self.inputs[name](x).relu() for name, x in x_dict.items()}
        for conv in self.convs:
            out = conv(x_dict, edge_index_dict)
            x_dict = {name: x_dict[name] if out.get(name) is None else out[name] for name in x_dict}
        return self.lin(x_dict["paper"])
