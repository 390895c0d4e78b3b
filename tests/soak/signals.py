"""Sends ranks of real jobs SIGTERM and SIGUSR2, one a trial, in every phase, and lets the next start go on:

    python -m tests.soak.signals --trials 40 --ranks 3 --seed 0
    python -m tests.soak.signals --trials 20 --ranks 4 --prepare-ranks 2 --seed 0

A trial is one of tests/soak/kills.py but for the signal: the job must end with exit code 75 and say which signal came
to which rank, or that it ended the job while loading; the run must end with the weights of an undisturbed one. While
Python itself starts nobody listens: there the signal may end the job as it ends any program.
"""

import argparse
import itertools
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.runs.run import Run
from tests.soak.kills import Job, cells_of, kill, weights_of
from tests.support.datasets import assign, make_graph

SIGNALS = (signal.SIGTERM, signal.SIGUSR2)


def check_end(code, text, left, number, rank, phase):
    """The job has ended as it should after `rank` was sent signal `number` in `phase`."""
    assert not left, f"{left} outlived the job"
    assert "Traceback" not in text, text[-3000:]
    if phase == "load" and code != 75:
        assert code == 128 + number, (code, text[-3000:])
        return
    assert code == 75, (code, text[-3000:])
    name = signal.Signals(number).name
    assert f"{name} on rank {rank}: training stopped" in text or f"{name} ended the job" in text, text[-3000:]


def soak(trials, ranks, seed, base, epochs=6, say=print, preparing=0):
    """Run the trials, the last `preparing` ranks preparing for the others.

    Returns how many signals met each (phase, rank), and how many runs were finished and compared.
    """
    chance, data = random.Random(seed), base / "data"
    graph = make_graph("single")
    write_dataset(data, graph, assign(graph, "random", 4), 4, method="random", figures={}, seed=0)
    code, text, _ = Job(ranks, data, base / "reference", epochs, preparing).finish()
    assert code == 0, text[-4000:]
    expected, compared, hits = weights_of(base / "reference"), 0, Counter()
    cells = list(itertools.product(cells_of(ranks, preparing), SIGNALS))
    chance.shuffle(cells)
    runs = (base / f"run-{number}" for number in itertools.count())
    run = next(runs)
    for (phase, rank), number in itertools.islice(itertools.cycle(cells), trials):
        job = Job(ranks, data, run, epochs, preparing)
        met = kill(job, rank, phase, chance, number)
        code, text, left = job.finish()
        # A signal in the last moments comes too late to stop the run.
        if met is not None and code != 0:
            check_end(code, text, left, number, rank, met)
            hits[met, rank] += 1
            say(f"{number.name} to rank {rank} in {met} (meant: {phase}): exit code {code}")
        if Run(run).finished:
            compared += 1
            assert weights_of(run) == expected, f"{run} ended with other weights"
            run = next(runs)
    code, text, _ = Job(ranks, data, run, epochs, preparing).finish()
    assert code == 0, text[-4000:]
    assert weights_of(run) == expected, f"{run} ended with other weights"
    return hits, compared + 1


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--prepare-ranks", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leapmpi-signals-") as base:
        hits, compared = soak(given.trials, given.ranks, given.seed, Path(base), preparing=given.prepare_ranks)
    print(f"{sum(hits.values())} signals on {given.ranks} ranks, {compared} runs went on to the same weights: {hits}")


if __name__ == "__main__":
    main()
