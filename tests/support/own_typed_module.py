"""A user's module for typed graphs without any library: a layer by relation, then one that takes all relations."""

import torch
import torch.nn.functional as F
from torch import nn


class Mean(nn.Module):
    """The mean of projected in-neighbours of one relation, and the vertex itself."""

    def __init__(self, source, destination, out_channels):
        super().__init__()
        self.neighbour = nn.Linear(source, out_channels, bias=False)
        self.own = nn.Linear(destination, out_channels)

    def forward(self, x: tuple[torch.Tensor, torch.Tensor], edge_index):
        (sources, destinations), (source, target) = x, edge_index
        rows = F.dropout(self.neighbour(sources), 0.1, self.training)[source]
        sums = rows.new_zeros(len(destinations), rows.shape[1]).index_add(0, target, rows)
        counts = torch.bincount(target, minlength=len(destinations)).clamp(min=1)
        return self.own(destinations) + sums / counts.unsqueeze(1)


class Maxima(nn.Module):
    """The maximum over all in-neighbours, whichever relation they have."""

    def __init__(self, metadata, width):
        super().__init__()
        types, relations = metadata
        self.own = nn.ModuleDict({t: nn.Linear(width, width) for t in types})
        self.neighbour = nn.ModuleDict({"-".join(r): nn.Linear(width, width, bias=False) for r in relations})

    def forward(self, x_dict, edge_index_dict):
        found = {t: [self.own[t](x)] for t, x in x_dict.items()}
        for relation, (source, target) in edge_index_dict.items():
            rows = self.neighbour["-".join(relation)](x_dict[relation[0]])[source]
            place, own = target.unsqueeze(1).expand_as(rows), found[relation[2]]
            own.append(torch.zeros_like(own[0]).scatter_reduce(0, place, rows, "amax", include_self=False))
        return {t: torch.stack(each).sum(0) for t, each in found.items()}


class Net(nn.Module):
    """Both kinds of layers, with residuals by type; the last has a row of classes."""

    def __init__(self, in_channels, hidden_channels, out_channels, metadata, dropout):
        super().__init__()
        types, self.relations = metadata
        width = hidden_channels
        self.inputs = nn.ModuleDict({t: nn.Linear(in_channels[t], width) for t in types})
        self.first = nn.ModuleDict({"-".join(r): Mean(width, width, width) for r in self.relations})
        self.last = Maxima(metadata, width)
        self.drop, self.out = nn.Dropout(dropout), nn.Linear(width, out_channels)

    def forward(self, x_dict, edge_index_dict):
        h = {t: self.drop(torch.tanh(self.inputs[t](x))) for t, x in x_dict.items()}
        sums = {t: [x] for t, x in h.items()}
        for relation, edges in edge_index_dict.items():
            source, _, destination = relation
            sums[destination].append(self.first["-".join(relation)]((h[source], h[destination]), edges))
        h = {t: self.drop(sum(each[1:], each[0])) for t, each in sums.items()}
        return {t: self.out(torch.tanh(x)) for t, x in self.last(h, edge_index_dict).items()}
