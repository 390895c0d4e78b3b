"""`pull`: model-centric training, the baseline that LeapGNN calls DGL.

Roots are assigned to ranks at random. Each rank pulls every distinct row that its blocks read and that it does not
hold.
"""

from __future__ import annotations

from leapmpi.engine.even_placement import EvenPlacement, one_time_step
from leapmpi.engine.placement import Strategy

MEMBER = Strategy(EvenPlacement, one_time_step, roots_are_local=False, takes_full_batch=True)
"""Equal shares of the shuffled batch for all ranks; rows come as `--remote` says."""
