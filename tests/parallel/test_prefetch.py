"""Running ahead: the same bits at any depth, overlap with training, and an orderly end whatever goes wrong."""

import json
import threading
from itertools import pairwise

import numpy as np
import pytest
import torch

import leapmpi
from leapmpi.comm.flow_control import FRAGMENT, WINDOW, wait_for
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.comm.progress_thread import ProgressThread, ProgressThreadStopped
from leapmpi.config.schema import Config
from leapmpi.engine.ahead.prefetch_depth import prefetcher
from leapmpi.engine.ahead.prefetch_task import PrefetchTask
from leapmpi.engine.ahead.thread_prefetcher import ThreadPrefetcher
from leapmpi.engine.engine import Preparation
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.features.row_exchange import RowExchange
from leapmpi.system import channels
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.system.trace import NAMES
from tests.support import datasets
from tests.support.equality import here

DATA = datasets.Variant("single", "metis", 4)
PATIENCE = 30.0
BATCH = 64
JOBS = [PrefetchTask(None, 0, number) for number in range(6)]


@pytest.fixture(scope="module")
def base(world, folder):
    datasets.build(world.comm, folder, {DATA})
    return folder


def names_of_threads():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("leapmpi-")}


def train(world, base, depth, **values):
    values = {"data": str(DATA.folder(base)), "train.epochs": 2, "train.batch_size": BATCH, "model.hidden": 8,
              "run.folder": str(base / f"run-{len(list(base.glob('run-*')))}"), "run.log_level": "error",
              "run.device": "cpu", "run.threads": 1, "strategy.prefetch": str(depth), "run.timeline": True,
              "strategy.remote": "raw"} | values  # fmt: skip
    world.comm.barrier()
    return leapmpi.train(Config.from_values(values), world.comm)


SETTINGS = {
    "pull": {"strategy.name": "pull"},
    "leap, partial sums": {"strategy.remote": "partial"},
    "leap on a ring": {"strategy.time_steps": "N", "model.dropout": 0.5},
}


@pytest.mark.parametrize("settings", here(list(SETTINGS)))
def test_any_depth_gives_the_same_bits_and_counts(world, base, settings):
    settings = SETTINGS[settings]
    runs = [train(world, base, depth, **settings).summary for depth in (0, 1, 2)]
    assert len({run["parameters_digest"] for run in runs}) == 1
    for name in ("loss", "bytes", "rows", "accuracy"):
        assert len({json.dumps([epoch[name] for epoch in run["epochs"]]) for run in runs}) == 1, name
    assert [run["epochs"][0]["prefetch"] for run in runs] == [0, 1, 2]
    assert not names_of_threads()


WAYS = [(0, False), (1, False), (1, True), (2, False), (2, True)]
"""How many mini-batches are prepared ahead, and whether the thread that trains prepares them."""

SENT = WINDOW // 8 + FRAGMENT // 8
"""Numbers that every rank gets of each other: more than may be under way at once."""


def shipment_of(communicator, kind, number, count):
    send, counts = np.full(communicator.size * count, number), np.full(communicator.size, count)
    return RowExchange(
        communicator, kind, (send, counts), (np.zeros_like(send), counts), lambda arrived: set(arrived.tolist())
    )


class Work(MiniBatch):
    """A mini-batch that is its number, and moves much of it."""

    def __init__(self, number, communicator):
        super().__init__(None, None, [], row_exchange=shipment_of(communicator, "features", number, SENT))
        self.number = number


class Recorder:
    """An engine whose mini-batches are numbers. Hooks run in the thread that plans, requests or trains."""

    overlaps = False
    preparation = Preparation
    rows_change = False

    def __init__(self, world, hook=lambda what, number: None, interleaves=False):
        self.interleaves = interleaves
        self.communicator, self.hook, self.trained = MPICommunicator(world.comm, ahead=world.ahead_comms), hook, []
        self.ctx = self
        self.phases, self.device, self.sampler, self.threads = PhaseTimers(), torch.device("cpu"), self, 1

    def plan(self, batch, epoch, iteration):
        with self.phases("plan"):
            self.hook("plan", iteration)
            number = self.communicator.broadcast(
                np.array([iteration]) if self.communicator.rank == 0 else None, "schedule"
            )
        return Work(int(number[0]), self.communicator)

    def request(self, work):
        """Ids and labels travel at once, while rows of the iteration before may be on their way."""
        with self.phases("exchange"):
            assert (
                self.communicator.all_gather_rows(np.array([work.number])).tolist()
                == [[work.number]] * self.communicator.size
            )
            assert shipment_of(self.communicator, "labels", work.number, 5).complete() == {work.number}
            self.hook("asked", work.number)

    def fetch(self, work):
        self.request(work)
        work.complete()

    def step(self, work):
        assert work.features == {work.number}
        with self.phases("compute"):
            self.hook("step", work.number)
            total = np.array([float(work.number)])
        with self.phases("reduce"):
            self.communicator.all_reduce(total)
        assert total[0] == work.number * self.communicator.size
        self.trained.append(work.number)


def run_all(engine, depth):
    with prefetcher(engine, JOBS, depth) as ahead:
        for _ in JOBS:
            engine.step(ahead.next())


def test_training_and_work_ahead_overlap(world):
    """Iteration i is not through before i + 1 has begun: without overlap this would never end."""
    begun = [threading.Event() for _ in JOBS]

    def hook(what, number):
        if what == "plan":
            begun[number].set()
        elif what == "step" and number + 1 < len(JOBS):
            assert begun[number + 1].wait(PATIENCE)

    engine, spans = Recorder(world, hook), []
    engine.phases.span = lambda *span: spans.append(span)
    run_all(engine, 1)
    assert engine.trained == list(range(len(JOBS)))
    for number in range(1, len(JOBS)):
        planned = next(span for span in spans if span[:2] == (channels.AHEAD, "plan") and span[3] == number)
        computed = [span for span in spans if span[:2] == (channels.FOREGROUND, "compute")][number - 1]
        assert planned[4] < computed[5], f"iteration {number} was planned after the one before was computed"
    spent, hidden = engine.phases.take_ahead()
    assert 0 < hidden <= sum(spent.values())
    assert not names_of_threads()


def test_an_iteration_is_prepared_while_the_rows_of_the_one_before_travel(world):
    """Rows arrive only once those of the next iteration are asked for: else this would never end."""
    asked = [threading.Event() for _ in JOBS]
    engine = Recorder(world, lambda what, number: asked[number].set() if what == "asked" else None)
    carry = engine.communicator.start_exchange

    def slow_to_arrive(*arguments):
        finish, following = carry(*arguments), len(JOBS)
        if arguments[-1] == "features":
            following = int(arguments[0][0]) + 1

        def finish_late():
            assert following == len(JOBS) or asked[following].wait(PATIENCE)
            finish()

        return finish_late

    engine.communicator.start_exchange = slow_to_arrive
    run_all(engine, 2)
    assert engine.trained == list(range(len(JOBS)))


@pytest.mark.parametrize(("depth", "interleaves"), WAYS[1:])
def test_ranks_may_differ_in_how_far_ahead_they_are(world, depth, interleaves):
    delay = threading.Event()

    def hook(what, number):
        if (number + world.rank) % 3 == 0:
            delay.wait(0.01 * (1 + world.rank))

    engine = Recorder(world, hook, interleaves)
    run_all(engine, depth)
    assert engine.trained == list(range(len(JOBS)))


@pytest.mark.parametrize(("depth", "interleaves"), WAYS)
def test_work_left_early_is_dropped_by_all_ranks_alike(world, depth, interleaves):
    planned = []
    engine = Recorder(world, lambda what, number: planned.append(number) if what == "plan" else None, interleaves)
    with prefetcher(engine, JOBS, depth) as ahead:
        for _ in range(2):
            engine.step(ahead.next())
    assert engine.trained == [0, 1]
    assert planned == list(range(2 + depth))
    assert engine.communicator.byte_counters.take()[0] == sent_by(world, 2)
    assert not names_of_threads()
    engine.communicator.barrier()


def sent_by(world, iterations):
    """What `iterations` of Recorder send, planned, fetched and stepped, whatever else was prepared."""
    engine = Recorder(world)
    for number in range(iterations):
        work = engine.plan(None, 0, number)
        engine.fetch(work)
        engine.step(work)
    return engine.communicator.byte_counters.take()[0]


def test_in_a_pause_the_training_thread_has_mpi_to_itself(world):
    engine = Recorder(world)
    with ThreadPrefetcher(engine, JOBS, 2) as ahead:
        for number in range(len(JOBS)):
            engine.step(ahead.next())
            if number == 1:
                with pytest.raises(RuntimeError, match="does not own MPI"):
                    wait_for(world.comm.Ibarrier)
                with ahead.paused():
                    wait_for(world.comm.Ibarrier)
    assert engine.trained == list(range(len(JOBS)))


def test_interleaved_work_is_begun_in_no_call_but_a_wait_and_is_complete_in_a_pause(world):
    planned = []
    engine = Recorder(world, lambda what, number: planned.append(number) if what == "plan" else None, True)
    with prefetcher(engine, JOBS, 1) as ahead:
        for number in range(len(JOBS)):
            work = ahead.next()
            assert planned == list(range(number + 1)), "the next is not begun before something is waited for"
            engine.step(work)
            with ahead.paused():
                assert planned == list(range(min(number + 2, len(JOBS))))
                wait_for(world.comm.Ibarrier)
    assert engine.trained == list(range(len(JOBS)))
    assert not names_of_threads()
    # How much of it a step hides depends on how long it waits (tests/comm/test_interleaving.py).
    spent, hidden = engine.phases.take_ahead()
    assert 0 <= hidden <= sum(spent.values())


@pytest.mark.parametrize(("depth", "interleaves"), WAYS[1:])
def test_what_fails_ahead_is_raised_in_training_and_named_by_its_place(world, depth, interleaves):
    def hook(what, number):
        if (what, number) == ("plan", 3):
            raise OSError("the disk is on fire")

    engine = Recorder(world, hook, interleaves)
    with pytest.raises(OSError, match="on fire"):
        run_all(engine, depth)
    assert engine.trained == [0, 1, 2]
    assert engine.phases.where() == "phase plan, epoch 1, iteration 4"
    assert not names_of_threads()
    engine.communicator.barrier()


@pytest.mark.parametrize("interleaves", [False, True])
def test_when_training_fails_the_threads_end_though_others_never_answer(world_comm, world, interleaves):
    ahead_comms = world_comm.Dup(), world_comm.Dup()
    engine = Recorder(world, lambda what, number: 1 / 0 if (what, number) == ("step", 0) else None, interleaves)
    engine.communicator = MPICommunicator(world_comm, ahead=ahead_comms)
    if world.rank == 0:
        with pytest.raises(ZeroDivisionError):
            run_all(engine, 1)
        assert not names_of_threads()
    else:
        with prefetcher(engine, JOBS[:1], 1) as ahead:
            ahead.next()
    world.comm.barrier()


def test_a_progress_thread_that_has_stopped_takes_nothing(world):
    communicator = MPICommunicator(world.comm)
    communicator.progress_thread = ProgressThread()
    with pytest.raises(ProgressThreadStopped):
        communicator.barrier()


def test_the_timeline_holds_every_phase_of_both_lanes(world, base):
    run = train(world, base, 1)
    events = json.loads((run.path / f"timeline-rank-{world.rank}.json").read_text())
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in events} == {world.rank}
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == set(NAMES.values())
    ahead = [each for each in spans if each["tid"] == channels.AHEAD]
    assert {"plan", "sample", "exchange"} <= {each["name"] for each in ahead}
    iterations = -(-datasets.TRAINING // BATCH)
    sampled = [(each["args"]["epoch"], each["args"]["iteration"]) for each in ahead if each["name"] == "sample"]
    assert sampled == [(epoch, number) for epoch in range(2) for number in range(iterations)]
    for number in NAMES:
        own = [each for each in spans if each["tid"] == number]
        assert all(a["ts"] + a["dur"] <= b["ts"] + 2 for a, b in pairwise(own))


@pytest.mark.parametrize("remote", here(["raw", "partial"]))
def test_the_start_says_why_nothing_is_prepared_ahead(remote, world, base, monkeypatch):
    monkeypatch.setattr("leapmpi.engine.ahead.prefetch_depth.threads_may_call", lambda mpi: False)
    run = train(world, base, "auto", **{"strategy.remote": remote, "run.log_level": "info", "run.timeline": False})
    # Where computed rows travel no threads are needed.
    assert run.summary["epochs"][0]["prefetch"] == (world.size > 1 and remote == "partial")
    told = "no iterations are prepared ahead, where --prefetch auto would take 2: this MPI"
    assert (told in (run.path / "log.txt").read_text()) == (world.size > 1 and remote == "raw")
