"""Memory model: bytes of a micro-batch in training, from the shapes of its blocks, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leapmpi.errors import ResourceError
from leapmpi.runs.text import size_text
from leapmpi.sampling.block import Block

_KEPT = 4
"""Values held per hidden value: the aggregate, the sum, its activation and the gradient."""


def block_bytes(blocks: Sequence[Block]) -> int:
    """Return the bytes of the arrays of `blocks` of one sample, which share the arrays of vertices."""
    last = blocks[-1]
    shared = last.src.nbytes + last.src_original.nbytes + last.src_degree.nbytes
    return shared + sum(block.indptr.nbytes + block.indices.nbytes for block in blocks)


def hidden_bytes(blocks: Sequence[Block], widths: Sequence[int], size: int) -> int:
    """Return the bytes of hidden values and gradients.

    widths: of the layers' outputs, from the input on; size: bytes of a value.
    """
    rows = [block.n_dst for block in reversed(blocks)]
    return sum(_KEPT * size * count * width for count, width in zip(rows, widths, strict=True))


class TooLarge(ResourceError):
    """Error for an iteration that exceeds the `room` of a rank, in bytes. The same on all ranks."""

    def __init__(self, message: str, room: float) -> None:
        super().__init__(message)
        self.room = room
        self.agreed = True


@dataclass(frozen=True)
class Needs:
    """Bytes on one rank: need of an iteration, the part `kept` for feature rows, and the host's free memory."""

    host: str
    bytes: int
    kept: int
    free: int | None


def too_much(what: str, ranks: Sequence[Needs], limit: float) -> tuple[str, float]:
    """Return the reason why `what` does not fit, by rank (`limit`, bytes) and by host, and the bytes per rank.

    The reason is empty if all fits.
    """
    largest = max(range(len(ranks)), key=lambda rank: ranks[rank].bytes)
    needs = ranks[largest]
    what = f"{what} takes about {size_text(needs.bytes)} on rank {largest}"
    if needs.kept:
        what += f", {size_text(needs.kept)} of it for kept feature rows"
    if needs.bytes > limit:
        return f"{what}, more than --memory-limit {size_text(int(limit))}", limit
    # Ranks of a host share its memory: each may fit alone, and all together not.
    for host in dict.fromkeys(each.host for each in ranks):
        here = [each for each in ranks if each.host == host]
        free = min((each.free for each in here if each.free is not None), default=None)
        if free is not None and sum(each.bytes for each in here) > free:
            needed = size_text(sum(each.bytes for each in here))
            return f"{what}; the ranks on {host} need {needed} of {size_text(free)}", free / len(here)
    return "", limit
