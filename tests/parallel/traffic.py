"""What an iteration must read and send, counted by hand from its schedule and blocks."""

import numpy as np

from leapmpi.ledger import KINDS, ROWS


def expected_traffic(work, loaded, strategy) -> dict[str, int]:
    """Bytes by kind that this rank sends and rows by place that it reads in one iteration. Collective."""
    at, wire = loaded.at, loaded.at.wire
    rank, size = wire.rank, wire.size
    home = home_ranks(loaded.dataset, size)
    counts = dict.fromkeys((*KINDS, *ROWS), 0)

    read = {int(vertex) for cell in work.cells for vertex in cell.blocks[-1].src}
    roots = [int(vertex) for cell in work.cells for vertex in cell.roots]
    away = [vertex for vertex in read if home[vertex] != rank]
    roots_away = [vertex for vertex in roots if home[vertex] != rank]
    counts["local"], counts["remote"] = len(read) - len(away), len(away)

    # Ids are asked for by this rank; rows and labels go out from here to whoever asked.
    counts["ids"] = 8 * (len(away) + len(roots_away))
    asked = [count_at(rank, each, home) for each in wire.comm.allgather(away)]
    asked_labels = [count_at(rank, each, home) for each in wire.comm.allgather(roots_away)]
    part = loaded.dataset.part(0)
    counts["features"] = sum(asked) * part.features.shape[1] * part.features.itemsize
    label_bytes = part.labels.itemsize * (part.labels.shape[1] if part.labels.ndim == 2 else 1)
    counts["labels"] = sum(asked_labels) * label_bytes

    # Two requests, each preceded by how many rows are wanted of every other rank.
    counts["control"] = 2 * 8 * (size - 1)
    if rank == 0:
        cells = size * strategy.time_steps
        header = 7
        counts["schedule"] = 8 * (size - 1) * (header + (cells + 1) + cells + sum_of_roots(work))

    numbers, width = at.parameters.count, at.parameters.gradients.element_size()
    if size > 1:
        bounds = [numbers * each // size for each in range(size + 1)]
        own = bounds[rank + 1] - bounds[rank]
        counts["gradients"] = width * ((numbers - own) + own * (size - 1))
        if strategy.config.name == "leap" and strategy.config.migrate == "ring":
            hops = strategy.time_steps - 1
            counts["parameters"] += hops * width * numbers
            counts["gradients"] += hops * width * numbers
    return counts


def home_ranks(dataset, size: int) -> np.ndarray:
    """The rank that is home to each vertex: part p of P is on rank p * size // P."""
    return np.repeat([part * size // dataset.parts for part in range(dataset.parts)], np.diff(dataset.offsets))


def count_at(rank: int, vertices: list[int], home: np.ndarray) -> int:
    """How many of `vertices` are at home on `rank`."""
    return sum(int(home[vertex]) == rank for vertex in vertices)


def sum_of_roots(work) -> int:
    """Roots of the iteration over all cells of all ranks."""
    schedule = work.schedule
    return sum(len(schedule.cell(r, t)) for r in range(schedule.ranks) for t in range(schedule.time_steps))
