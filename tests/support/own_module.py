"""A user's module without any library: two kinds of dropout, a residual, and a layer of its own."""

import torch
import torch.nn.functional as F
from torch import nn


class Maximum(nn.Module):
    """The maximum of projected in-neighbours, and the vertex itself."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.neighbour, self.own = nn.Linear(in_channels, out_channels), nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        source, target = edge_index
        rows = F.dropout(self.neighbour(x), 0.1, self.training)[source]
        place = target.unsqueeze(1).expand_as(rows)
        largest = rows.new_zeros(len(x), rows.shape[1]).scatter_reduce(0, place, rows, "amax", include_self=False)
        return self.own(x) + largest


class Net(nn.Module):
    """A stack of them, written for a whole graph."""

    def __init__(self, in_channels, hidden_channels, out_channels, num_layers, dropout):
        super().__init__()
        widths = [hidden_channels] * num_layers + [out_channels]
        self.first = nn.Linear(in_channels, hidden_channels)
        self.layers = nn.ModuleList(Maximum(widths[n], widths[n + 1]) for n in range(num_layers))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, edge_index):
        h = self.drop(torch.tanh(self.first(x)))
        for layer in self.layers[:-1]:
            h = h + self.drop(torch.tanh(layer(h, edge_index)))
        return self.layers[-1](h, edge_index)


class Enabling(Net):
    """The stack, with gradients whatever the caller wants, as of a module that takes forces from them."""

    def forward(self, x, edge_index):
        with torch.enable_grad():
            return super().forward(x, edge_index)


class Weighing(nn.Module):
    """Weighted sums along edges, which need weights."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.own, self.neighbour = nn.Linear(in_channels, out_channels), Weighted(in_channels, out_channels)

    def forward(self, x, edge_index, edge_weight):
        return self.own(x) + self.neighbour(x, edge_index, edge_weight)


class Weighted(nn.Linear):
    """The sum over in-neighbours, projected and weighted."""

    def forward(self, x, edge_index, edge_weight):
        rows = super().forward(x)
        return torch.zeros_like(rows).index_add(0, edge_index[1], rows[edge_index[0]] * edge_weight.unsqueeze(1))
