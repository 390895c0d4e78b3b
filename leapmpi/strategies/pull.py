"""`pull`: model-centric training, the baseline that LeapGNN calls DGL.

Roots are assigned to ranks at random. Each rank pulls every distinct row that its blocks read and that it does not
hold.
"""

from __future__ import annotations

from leapmpi.engine.dealt_placement import DealtPlacement
from leapmpi.engine.placement import StrategyMember


class Pull(DealtPlacement):
    """Equal shares of the shuffled batch for all ranks; rows come as `--remote` says."""

    takes_full_batch = True


MEMBER = StrategyMember(Pull)
