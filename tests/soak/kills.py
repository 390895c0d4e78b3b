"""Kills ranks of real jobs with SIGKILL, one a trial, in every phase, and lets the next start go on:

    python -m tests.soak.kills --trials 100 --ranks 3 --seed 0
    python -m tests.soak.kills --trials 50 --ranks 4 --prepare-ranks 2 --seed 0

A trial watches the heartbeats in the run folder until the chosen rank is in the chosen phase (while loading there are
none: there it waits a random time), waits a moment more, stops it to see that it is still there, and kills it. The job
must end by itself with an error, name the rank and its phase, and leave no process and nothing in shared memory. The
next trial starts the same command again, which goes on from the checkpoint. When the run is finished its weights must
be, bit for bit, those of a run that nobody disturbed; then a new run is begun.
"""

import argparse
import itertools
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.fault_tolerance.heartbeats import RUNNING, read_heartbeats
from leapmpi.fault_tolerance.report import how_it_ended
from leapmpi.runs.file_names import HEARTBEATS_FILE
from leapmpi.runs.run import Run, load_run
from tests.support.datasets import assign, make_graph
from tests.support.launch import PROJECT, child_environment, end_session, session_members

PHASES = ("load", "plan", "sample", "gather", "compute", "migrate", "reduce", "evaluate", "checkpoint")
OPTIONS = [
    *("--strategy", "leap", "--time-steps", "N", "--remote", "raw", "--checkpoint-every", "2", "--eval-every", "1"),
    *("--batch-size", "64", "--hidden", "8", "--fanout", "3,2", "--device", "cpu", "--comm-timeout", "30"),
]
BY_ROLE = ("load", "compute", "checkpoint"), ("load", "sample", "gather", "evaluate", "checkpoint")
"""The phases in which ranks are killed that compute, and those that prepare, where they are not the same."""
TIME_LIMIT = 120.0
"""Seconds after which a job counts as one that hangs."""


class Job:
    """A training job on this machine, in a session of its own, of which nothing is left in the end."""

    def __init__(self, ranks, data, run, epochs, preparing=0):
        self.run = run
        self.ended = float("inf")
        self.output = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `finish`)
        command = [str(PROJECT / "jobs/mpirun/local"), str(ranks), sys.executable, "-m", "tests.soak.slowed"]
        options = [*OPTIONS, "--time-steps", "1", "--prepare-ranks", str(preparing)] if preparing else OPTIONS
        command += ["train", str(data), "--run", str(run), "--epochs", str(epochs), *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT, cwd=PROJECT,
            env=child_environment({"OMP_NUM_THREADS": "1"}), start_new_session=True,
        )  # fmt: skip

    def rank_process(self, rank):
        """The process of `rank`, found by what its launcher put into its environment; None while there is none."""
        for process in session_members(self.process.pid):
            with suppress(OSError):
                found = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                if f"OMPI_COMM_WORLD_RANK={rank}".encode() in found or f"PMI_RANK={rank}".encode() in found:
                    return process
        return None

    def finish(self):
        """Wait for the end; returns the exit code, the output, and what is left: processes, folders, shared memory."""
        try:
            code = self.process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            code = None
        self.ended = time.monotonic()
        left = session_members(self.process.pid)
        # Ranks that the launcher has just killed may take a moment to go.
        deadline = time.monotonic() + 5
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = session_members(self.process.pid)
        end_session(self.process)
        # The launcher names its folders by its own process.
        for place in (Path("/dev/shm"), Path(tempfile.gettempdir())):
            left += [str(each) for each in place.glob(f"leapmpi-local.*.{self.process.pid}.*")]
        self.output.seek(0)
        text = self.output.read()
        self.output.close()
        assert code is not None, f"the job hung:\n{text[-4000:]}"
        return code, text, left


def kill(job, rank, phase, chance, number=signal.SIGKILL):
    """Send `rank` of `job` the signal `number` in `phase`; returns the phase it met, None when the job ended before."""
    process = None
    while process is None:
        if job.process.poll() is not None:
            return None
        time.sleep(0.02)
        process = job.rank_process(rank)
    if phase == "load":
        time.sleep(chance.uniform(0.0, 1.5))
    elif not held(job, rank, process, phase, chance):
        return None
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return None
    # The launcher may have collected the process already.
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGCONT)
    heartbeat = heartbeat_of(job, rank, process)
    return heartbeat.phase if heartbeat and heartbeat.state == RUNNING else "load" if heartbeat is None else None


def heartbeat_of(job, rank, process):
    """The heartbeat of `rank` of this start in the run folder; None while there is none."""
    try:
        heartbeat = read_heartbeats(job.run / HEARTBEATS_FILE).get(rank)
    except (OSError, ValueError):
        return None
    return heartbeat if heartbeat and heartbeat.process == process else None


def held(job, rank, process, phase, chance):
    """Stop `rank` by SIGSTOP at a random moment of `phase`; False when the job ends before."""
    skip = chance.randrange(4)
    while met(job, rank, process, phase, skip):
        time.sleep(chance.uniform(0, 0.002))
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
            while job.process.poll() is None and state_of(process) not in "TtZX":
                time.sleep(0.001)
        # On a busy machine the phase may be over before the signal arrives.
        heartbeat = heartbeat_of(job, rank, process)
        if heartbeat and (heartbeat.phase, heartbeat.state) == (phase, RUNNING):
            return True
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
        skip = 0
    return False


def state_of(process):
    """The letter of the state of a process, T where it is stopped; X where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def met(job, rank, process, phase, skip):
    """Wait until `rank` enters `phase` for the time after `skip` others; False when the job ends before."""
    seen, deadline = None, time.monotonic() + TIME_LIMIT
    while time.monotonic() < deadline:
        heartbeat = heartbeat_of(job, rank, process)
        if heartbeat is None:
            if job.process.poll() is not None:
                return False
            time.sleep(0.01)
        elif heartbeat.phase == phase and heartbeat.changes != seen:
            if not skip:
                return True
            seen, skip = heartbeat.changes, skip - 1
        elif heartbeat.state != RUNNING or job.process.poll() is not None:
            return False
    return False


def check_end(code, text, left, run, ranks, rank, phase):
    """The job has ended as it should after `rank` was killed in `phase`."""
    assert code not in (0, None), text[-3000:]
    assert not left, f"{left} outlived the job"
    reported = re.findall(rf"leapmpi: error: lost rank {rank}/{ranks} on \S+ in phase (\w+)", text)
    after = how_it_ended(run) or {}
    if phase == "load":
        # Before MPI runs there is nobody to tell but the launcher.
        assert reported in (["load"], ["start"], []), reported
        assert reported or f"rank {rank}" in text, text[-3000:]
        return bool(reported)
    assert reported == [phase] or not reported, (reported, phase)
    assert (after.get("rank"), after.get("phase")) == (rank, phase), (after, phase, text[-3000:])
    return bool(reported)


def weights_of(run):
    """The digest of the final weights."""
    return load_run(run).summary["parameters_digest"]


def cells_of(ranks, preparing):
    """The phases and ranks that are to be met."""
    if not preparing:
        return list(itertools.product(PHASES, range(ranks)))
    return [(phase, rank) for rank in range(ranks) for phase in BY_ROLE[rank >= ranks - preparing]]


def soak(trials, ranks, seed, base, epochs=6, say=print, preparing=0):
    """Run the trials, the last `preparing` ranks preparing for the others.

    Returns how many ended in each (phase, rank), how many of them survivors reported, how many runs were finished and
    compared, and the seconds from each kill to the end of its job.
    """
    chance = random.Random(seed)
    data = base / "data"
    graph = make_graph("single")
    write_dataset(data, graph, assign(graph, "random", 4), 4, method="random", figures={}, seed=0)
    code, text, _ = Job(ranks, data, base / "reference", epochs, preparing).finish()
    assert code == 0, text[-4000:]
    expected = weights_of(base / "reference")

    cells, hits, reported, compared = cells_of(ranks, preparing), Counter(), 0, 0
    seconds = []
    chance.shuffle(cells)
    targets, runs = itertools.cycle(cells), itertools.count()
    run, misses = base / f"run-{next(runs)}", 0
    while sum(hits.values()) < trials:
        phase, rank = next(targets)
        job = Job(ranks, data, run, epochs, preparing)
        died_in, killed = kill(job, rank, phase, chance), time.monotonic()
        code, text, left = job.finish()
        if died_in is None:
            misses += 1
            assert code == 0, text[-4000:]
            assert misses <= trials + 3, "the chosen phase is missed again and again"
        else:
            reported += check_end(code, text, left, run, ranks, rank, died_in)
            hits[died_in, rank] += 1
            seconds.append(job.ended - killed)
            say(
                f"trial {sum(hits.values())}: rank {rank} killed in {died_in} (meant: {phase}), "
                f"exit code {code} after {seconds[-1]:.1f} s"
            )
        if Run(run).finished:
            compared += 1
            assert weights_of(run) == expected, f"{run} ended with other weights"
            run = base / f"run-{next(runs)}"
    code, text, _ = Job(ranks, data, run, epochs, preparing).finish()
    assert code == 0, text[-4000:]
    assert weights_of(run) == expected, f"{run} ended with other weights"
    return hits, reported, compared + 1, seconds


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--prepare-ranks", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leapmpi-kills-") as base:
        hits, reported, compared, seconds = soak(
            given.trials, given.ranks, given.seed, Path(base), preparing=given.prepare_ranks
        )
    table = {phase: [hits[phase, rank] for rank in range(given.ranks)] for phase, _ in sorted(hits)}
    print("kills by phase and rank:", json.dumps(table))
    print(
        f"{sum(hits.values())} kills on {given.ranks} ranks, {reported} reported by survivors, {compared} runs went on "
        f"to the same weights, {time.monotonic() - begin:.0f} s; "
        f"seconds from kill to end: median {statistics.median(seconds):.1f}, longest {max(seconds):.1f}"
    )


if __name__ == "__main__":
    main()
