"""Rows from the owners of vertices to the order of a file: each rank receives a range of the file, in windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.id_codec import IdCodec
from leapmpi.dataset.topology import places_among
from leapmpi.plan.homes import home_of

KIND = "embeddings"
"""The kind under which delivered rows are counted."""

WINDOW_BYTES = 32 << 20
"""Bytes of rows that a rank puts in order at a time."""


@dataclass(frozen=True)
class Window:
    """Consecutive rows of a file from `first` on, in order, on one rank."""

    first: int
    rows: np.ndarray
    """(count, ...): rows without a vertex are filled with NaN, or -1 where they are whole numbers."""
    vertices: np.ndarray
    """int64[count]: original ids, -1 where there is no vertex."""


def deliver(
    communicator: Communicator,
    places: np.ndarray,
    rows: np.ndarray,
    order: np.ndarray,
    vertices: np.ndarray,
    total: int,
    write: Callable[[Window], None],
) -> None:
    """Bring `rows` to the ranks that write them and hand them to `write`, window by window. Collective.

    places: int64[k] ascending, places of this rank's rows in the file of `total` rows, each place on one rank; order:
    int64[k], the number in `rows` (n, ...) of each; vertices: int64[k], their original ids.
    """
    # A rank may have no rows at all, so the width is given.
    ranks, flat = communicator.size, rows.reshape(len(rows), math.prod(rows.shape[1:]))
    bounds = np.arange(ranks + 1, dtype=np.int64) * total // ranks
    step = max(1, WINDOW_BYTES // max(1, flat.shape[1] * flat.itemsize + 16))
    for number in range(-(-int(np.diff(bounds).max()) // step)):
        # Every rank takes its next window at once: the number of windows is the same on all, and so are collectives.
        starts = np.minimum(bounds[:-1] + number * step, bounds[1:])
        ends = np.minimum(starts + step, bounds[1:])
        chosen = _between(places, starts, ends)
        window = int(starts[communicator.rank]), int(ends[communicator.rank])
        found, names = _gathered(communicator, bounds, places[chosen], flat[order[chosen]], vertices[chosen], window)
        if len(found):
            write(Window(window[0], found.reshape(-1, *rows.shape[1:]), names))


def _between(places: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the numbers of those `places` that are in one of the ranges, in order. Local."""
    pairs = zip(np.searchsorted(places, starts), np.searchsorted(places, ends), strict=True)
    return np.concatenate([np.arange(first, end) for first, end in pairs])


def _gathered(
    communicator: Communicator,
    bounds: np.ndarray,
    places: np.ndarray,
    rows: np.ndarray,
    vertices: np.ndarray,
    window: tuple[int, int],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of this rank's window, and the vertices that they belong to. Collective."""
    counts = np.bincount(home_of(places, bounds), minlength=communicator.size).astype(np.int64)
    arrived, theirs = communicator.exchange_ids(places, counts, IdCodec.home_ranks(bounds))
    received, ids = np.empty((len(arrived), rows.shape[1]), rows.dtype), np.empty(len(arrived), np.int64)
    communicator.exchange(np.ascontiguousarray(rows), counts, received, theirs, KIND)
    communicator.exchange(np.ascontiguousarray(vertices), counts, ids, theirs, "ids")

    # Rows arrive by sender; the file wants them by place. Places without a vertex keep the filler.
    count, missing = window[1] - window[0], np.nan if rows.dtype.kind == "f" else -1
    ordered, names = np.full((count, rows.shape[1]), missing, rows.dtype), np.full(count, -1, np.int64)
    ordered[arrived - window[0]], names[arrived - window[0]] = received, ids
    return ordered, names


def places_of(own: np.ndarray, wanted: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the requested vertices of this rank, and the place of each in the file: int64 each, places ascending.

    own: int64[n] ascending, the original ids of this rank's vertices; wanted: int64, original ids in the order of the
    file, repeats allowed, or None: all, each in the row of its id. The first result numbers `own`, with repeats.
    """
    order = np.argsort(own, kind="stable")
    if wanted is None:
        return order, own[order]
    place = places_among(wanted, own, order)
    found = np.flatnonzero(place >= 0)
    return place[found], found
