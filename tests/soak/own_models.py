"""One rank of the equality of all of PyTorch Geometric's layers, each under three strategies:

jobs/mpirun/local 4 python -m mpi4py -m tests.soak.own_models
"""

import shutil
import tempfile
from pathlib import Path

from leapmpi.comm.world import start
from tests.soak.product import run_all
from tests.support.equality import Case
from tests.support.launch import PROJECT
from tests.support.pyg_layers import COUNTING, LAYERS

STRATEGIES = ("leap", "pull", "leap, ring")
COMMON = {
    "parts": 4, "batch": "even", "dropout": "hidden", "shape": "plain", "labels": "single", "threads": 1,
    "remote": "raw", "merge": "paper", "rows": "copied", "cache": "none", "prefetch": 0,
}  # fmt: skip


def cases() -> list[Case]:
    """Each layer that does not count degrees inside a block, under each strategy."""
    return [
        Case(strategy=strategy, model=f"{PROJECT}/tests/support/pyg_layers.py:{name}", **COMMON, **cut)
        for number, name in enumerate(LAYERS)
        for strategy in STRATEGIES
        for cut in [{"partition": ("metis", "uneven")[number % 2], "fanout": ("3,2", "4,3,2")[number // 2 % 2]}]
        if name not in COUNTING
    ]


def main() -> None:
    """Run on this rank."""
    world = start(threads=1)
    base = Path(world.comm.bcast(tempfile.mkdtemp(prefix="leapmpi-soak-") if world.rank == 0 else None))
    try:
        count, worst = run_all(world, base, cases())
    finally:
        if world.rank == 0:
            shutil.rmtree(base)
    if world.rank == 0:
        print(f"{count} cases on {world.size} ranks, largest relative difference {worst:.1e}", flush=True)


if __name__ == "__main__":
    main()
