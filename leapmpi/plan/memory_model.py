"""How many bytes a micro-batch takes while it is trained, by the shapes of its blocks."""

from __future__ import annotations

from collections.abc import Sequence

from leapmpi.sampling.block import Block

_KEPT = 4
"""Values held per hidden value: the aggregate, the sum, its activation and the gradient."""


def block_bytes(blocks: Sequence[Block]) -> int:
    """Bytes of the arrays of `blocks` of one sample, which share the arrays of vertices."""
    last = blocks[-1]
    shared = last.src.nbytes + last.src_original.nbytes + last.src_degree.nbytes
    return shared + sum(block.indptr.nbytes + block.indices.nbytes for block in blocks)


def hidden_bytes(blocks: Sequence[Block], widths: Sequence[int], size: int) -> int:
    """Bytes of hidden values and gradients.

    widths: of the layers' outputs, from the input on; size: bytes of a value.
    """
    rows = [block.n_dst for block in reversed(blocks)]
    return sum(_KEPT * size * count * width for count, width in zip(rows, widths, strict=True))
