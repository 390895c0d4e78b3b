"""One rank of the full product of options, or of every n-th case of it:

jobs/mpirun/local 4 python -m mpi4py -m tests.soak.product
jobs/mpirun/local 4 python -m mpi4py -m tests.soak.product --every 41
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from leapmpi.comm.world import World, start
from tests.support import datasets
from tests.support.equality import DEEP, EXCLUDED, OPTIONS, OWN, Case, Runner, check, references
from tests.support.pairs import full_product, pair

# Batch, strategy, remote mode, merge rule, how rows are read and prefetch vary fastest: a dataset is loaded once for
# all of them.
PRODUCT = {
    "partition": ("metis", "hash", "uneven"),
    "labels": ("single", "multi"),
    "fanout": ("3,2", "10,10", "all,all"),
    "model": (*OPTIONS["model"], *DEEP),
    "dropout": ("none", "everywhere"),
    "shape": ("plain", "both"),
    "batch": ("even", "one root in the last batch", "three roots"),
    "strategy": OPTIONS["strategy"],
    "remote": OPTIONS["remote"],
    "cache": ("none", "kept"),
    "merge": OPTIONS["merge"],
    "rows": OPTIONS["rows"],
    "prefetch": OPTIONS["prefetch"],
}
# Rules matter where steps are merged; those of one strategy are left to the other.
UNMERGED = {
    pair("strategy", strategy, "merge", merge)
    for strategy in OPTIONS["strategy"]
    for merge in OPTIONS["merge"]
    if merge
    not in {
        "leap, ring of all steps but one": ("paper", "balanced"),
        "leap, two steps": ("random",),
    }.get(strategy, ("paper",))
}
# Rows that do not travel raw are not cached.
UNCACHED = {pair("remote", mode, "cache", "kept") for mode in ("projected", "partial")}

# A second product: what owners compute layer by layer, statistics of the batch, other samplers, what edges carry, and a
# topology in shards.
EDGES = "single, edges with data"
SECOND = {
    "partition": ("metis", "uneven"),
    "labels": ("single", "multi", EDGES, "single, sparse features"),
    "model": PRODUCT["model"],
    "dropout": PRODUCT["dropout"],
    "shape": ("plain", "batch norm"),
    "sampler": ("node-wise", "labor-0", "with-replacement"),
    "topology": ("node", "sharded"),
    "strategy": ("leap", "pull", "p3", "owner"),
    "remote": ("raw", "projected", "partial", OWN),
}
WEIGHTING = SECOND["sampler"][1:]
SECOND_EXCLUDED = {
    *(pair("strategy", name, "remote", OWN) for name in ("leap", "pull")),
    *(pair("strategy", name, "remote", kind) for name in ("p3", "owner") for kind in ("raw", "projected", "partial")),
    *(pair("strategy", name, "topology", "sharded") for name in ("p3", "owner")),
    pair("strategy", "owner", "shape", "batch norm"),
    # Edges are sent without weights, maxima cannot use them, and features of edges stay with whole rows.
    *(pair("strategy", "p3", "sampler", sampler) for sampler in WEIGHTING),
    *(pair("model", model, "sampler", sampler) for model in ("sage max", "deepgcn max") for sampler in WEIGHTING),
    *(pair("remote", "partial", "model", model) for model in ("gat", "gatv2")),
    pair("remote", "partial", "labels", EDGES),
    pair("model", "gin", "labels", EDGES),
}
SECOND_FIXED = {
    "fanout": "4,3,2", "batch": "one root in the last batch", "parts": 4, "merge": "paper", "rows": "copied",
    "cache": "none", "prefetch": 0, "threads": 1,
}  # fmt: skip


def cases() -> list[Case]:
    """All combinations, those of the first product on 4 and 7 parts in turn."""
    first = [
        Case(**values, parts=(4, 7)[number // 36 % 2], threads=1)
        for number, values in enumerate(full_product(PRODUCT, EXCLUDED | UNMERGED | UNCACHED))
    ]
    return first + [Case(**values, **SECOND_FIXED) for values in full_product(SECOND, SECOND_EXCLUDED)]


def run_all(world: World, base: Path, chosen: list[Case]) -> tuple[int, float]:
    """Run and check `chosen`; their number and the largest relative difference of a gradient. Collective."""
    datasets.build(world.comm, base, {case.dataset for case in chosen} | {case.alone().dataset for case in chosen})
    alone = references(chosen, base, world.comm)
    runner, worst, begin = Runner(base, world), 0.0, time.monotonic()
    for number, case in enumerate(chosen, 1):
        worst = max(worst, check(case, runner.run(case), alone[case.alone()], world.comm))
        if world.rank == 0 and number % 200 == 0:
            print(f"{number}/{len(chosen)} after {time.monotonic() - begin:.0f} s, worst {worst:.1e}", flush=True)
    return len(chosen), worst


def main() -> None:
    """Run on this rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="a case in so many; with a prime, all options vary")
    every = parser.parse_args().every
    world = start(threads=1)
    base = Path(world.comm.bcast(tempfile.mkdtemp(prefix="leapmpi-soak-") if world.rank == 0 else None))
    try:
        count, worst = run_all(world, base, cases()[::every])
    finally:
        if world.rank == 0:
            shutil.rmtree(base)
    if world.rank == 0:
        print(f"{count} cases on {world.size} ranks, largest relative difference {worst:.1e}", flush=True)


if __name__ == "__main__":
    main()
