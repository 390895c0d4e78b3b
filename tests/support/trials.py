"""The command of a soak test that makes numbered random trials."""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path


def trials_main(about: str, soak: Callable[[int, int, Path], tuple[Counter[str], list[str]]], trials: int) -> int:
    """Run `soak` of (trials, seed, an empty folder), as the command line says; print its counts and first faults."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leapmpi-fuzz-") as base:
        counts, faults = soak(given.trials, given.seed, Path(base))
    for fault in faults[:20]:
        print(fault)
    print(dict(counts), f"{time.monotonic() - begin:.0f} s")
    return 1 if faults else 0
