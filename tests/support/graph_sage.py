"""The GraphSAGE sampler of Hamilton et al. (2017), as a user would write it: see leapmpi/sampling/README.md."""

from leapmpi.sampling.user_samplers.api import OwnSampler, below, holds


class GraphSage(OwnSampler):
    """25 distinct in-neighbours of a root, and 10 of each of those."""

    sizes = (25, 10)

    def next(neighbours, number, size, drawn, word):
        """Floyd's draw of distinct positions, the same as the built-in sampler's."""
        last = len(neighbours) - size + number
        vertex = neighbours[below(word, last + 1)]
        return neighbours[last] if holds(drawn, vertex) else vertex
