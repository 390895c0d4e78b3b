"""Position and cost of a running epoch; its record in metrics.jsonl, and the line for people."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS
from leapmpi.comm.communicator import Communicator
from leapmpi.comm.mpi_communicator import of_job
from leapmpi.errors import LeapmpiError
from leapmpi.runs.text import scores_text, size_text, three_digits
from leapmpi.system.memory import peak_bytes
from leapmpi.system.phase_timers import PHASES, PhaseTimers

_COUNTS = (*KINDS, *ROWS)

MOST_RANKS = 64
"""Entries of lists by rank in a record; with more ranks, an entry stands for several."""


@dataclass
class EpochProgress:
    """Position of training, the next `iteration` of an `epoch`, and this rank's share of the epoch so far.

    losses: float64[iterations], this rank's share of each batch's loss; seconds: of the epoch; core_seconds: of the
    processor, all threads of this rank; phases: seconds of this rank by phase; counts: bytes by kind and rows by place.
    """

    losses: np.ndarray
    epoch: int = 0
    iteration: int = 0
    seconds: float = 0.0
    core_seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))

    def add(self, seconds: float, core_seconds: float, phases: dict[str, float], *counts: dict[str, int]) -> None:
        """Add what was spent and counted since the last call."""
        self.seconds += seconds
        self.core_seconds += core_seconds
        for phase, spent in phases.items():
            self.phases[phase] += spent
        for each in counts:
            for name, count in each.items():
                self.counts[name] += count

    def summed(self, communicator: Communicator) -> tuple[np.ndarray, dict[str, int], np.ndarray, np.ndarray]:
        """Return losses and counts of all ranks together, seconds float64[ranks, phases], core seconds float64[ranks].

        Collective.
        """
        losses = communicator.all_gather_rows(self.losses).sum(axis=0)
        counts = communicator.all_gather_rows(np.array(list(self.counts.values()), np.int64)).sum(axis=0)
        phases = communicator.all_gather_rows(np.array([self.phases[phase] for phase in PHASES]))
        cores = communicator.all_gather_rows(np.array([self.core_seconds]))[:, 0]
        return losses, dict(zip(self.counts, counts.tolist(), strict=True)), phases, cores

    @property
    def position(self) -> dict[str, int]:
        """Epoch and iteration, as records hold them."""
        return {"epoch": self.epoch, "iteration": self.iteration}

    @classmethod
    def restored(
        cls,
        values: dict[str, Any],
        losses: np.ndarray,
        phases: np.ndarray,
        core_seconds: np.ndarray,
        communicator: Communicator,
    ) -> EpochProgress:
        """Return progress whose sums over the ranks are those of the checkpoint, on any number of ranks. Local.

        Where the number of ranks differs from the checkpoint's, each has spent the mean of its ranks.
        """
        # Losses and counts of the checkpoint are sums over ranks, so rank 0 alone takes them up.
        spent = np.column_stack([core_seconds, phases])
        cores, *own = (spent[communicator.rank] if len(spent) == communicator.size else spent.mean(axis=0)).tolist()
        progress = cls(np.zeros(len(losses)), values["epoch"], values["iteration"], values["seconds"], cores)
        progress.phases.update(zip(PHASES, own, strict=True))
        if communicator.rank == 0:
            progress.losses += losses
            progress.counts.update({name: count for name, count in values["counts"].items() if name in progress.counts})
        return progress


class EpochMeter:
    """Measures what a running epoch costs this rank."""

    def __init__(self, phases: PhaseTimers, communicator: Communicator) -> None:
        self._phases = phases
        self._communicator = of_job(communicator)
        self._since: float | None = None
        self._processor = 0.0
        self._sent_to: np.ndarray | None = None
        """int64[ranks]: bytes of the epoch to each rank; None where an earlier start began it."""

    def begin(self, whole: bool = True) -> None:
        """Begin an epoch: forget what was spent and counted before. `whole`: it has not begun before. Local."""
        self._phases.take()
        self._phases.take_ahead()
        self.forget()
        self._sent_to = np.zeros(self._communicator.size, np.int64) if whole else None
        self._since = self._phases.since
        self._processor = time.process_time()

    def account(self, progress: EpochProgress) -> None:
        """Add what was spent and counted since the last call to `progress`; between epochs, nothing. Local."""
        if self._since is not None:
            spent = self._phases.take()
            now, processor = self._phases.since, time.process_time()
            cores, self._processor = processor - self._processor, processor
            progress.add(now - self._since, cores, spent, *self._communicator.byte_counters.take())
            sent_to = self._communicator.take_sent_to()
            if self._sent_to is not None:
                self._sent_to += sent_to
            self._since = now

    def forget(self) -> None:
        """Drop what was counted since the last call of `account`: it belongs to no epoch. Local."""
        self._communicator.byte_counters.take()
        self._communicator.take_sent_to()

    def end(self, progress: EpochProgress) -> tuple[np.ndarray, dict[str, Any], dict[str, int]]:
        """End the epoch; return losses float64[iterations], figures for its record, and counts, all of all ranks.
        Collective.
        """
        self._since = None
        losses, counts, spent, cores = progress.summed(self._communicator)
        ranks = self._communicator.size
        figures = {
            "seconds": progress.seconds,
            # Of all ranks and threads, waiting included.
            "core_seconds": float(cores.sum()),
            "phases": mean_and_max(spent),
            "bytes": {kind: counts[kind] for kind in KINDS},
            "rows": {place: counts[place] for place in ROWS},
            "ahead": work_ahead(self._phases, self._communicator),
            **({"by_rank": by_rank(progress, spent, cores, self._sent_to, self._communicator)} if ranks > 1 else {}),
        }
        return losses, figures, counts


def of_losses(losses: np.ndarray, sizes: np.ndarray, epoch: int) -> dict[str, Any]:
    """Return the mean loss over all roots of `epoch`, and that of every batch: float64[iterations], as are their
    `sizes`.

    Raises LeapmpiError, the same on all ranks, for a loss that is not a number any more.
    """
    if len(diverged := np.flatnonzero(~np.isfinite(losses))):
        error = LeapmpiError(
            f"the loss became infinite or undefined in epoch {epoch + 1}, iteration {diverged[0] + 1}; lower --lr, "
            "limit the gradient with --clip-norm, or look for odd features with leapmpi-prep check"
        )
        error.agreed = True
        raise error
    return {"loss": float((losses * sizes).sum() / sizes.sum()), "losses": losses.tolist()}


def mean_and_max(seconds: np.ndarray) -> dict[str, dict[str, float]]:
    """Return mean and maximum over the ranks, by phase, of float64[ranks, phases]."""
    return {
        phase: {"mean": float(column.mean()), "max": float(column.max())}
        for phase, column in zip(PHASES, seconds.T, strict=True)
    }


def by_rank(
    progress: EpochProgress,
    spent: np.ndarray,
    cores: np.ndarray,
    sent_to: np.ndarray | None,
    communicator: Communicator,
) -> dict[str, Any]:
    """Return figures of an epoch by rank, or by groups of ranks where there are more than MOST_RANKS. Collective.

    spent: float64[ranks, phases] seconds; cores: float64[ranks] seconds of the processor; sent_to: int64[ranks]
    bytes that this rank sent to each, or None. Returns `ranks` and how many of them `each` entry stands for, then lists
    by entry: `phases` and `core_seconds` (means), `sent` (bytes to each entry, sums), `rows` by place (sums), `memory`
    (bytes, peak so far, the most).
    """
    # Groups keep a record of a thousand ranks as short as one of MOST_RANKS.
    size = communicator.size
    each = -(-size // MOST_RANKS)
    firsts = np.arange(0, size, each)
    members = np.diff([*firsts, size])
    seconds = np.add.reduceat(spent, firsts) / members[:, None]
    own = np.array([peak_bytes(), *(progress.counts[place] for place in ROWS)], np.int64)
    gathered = communicator.all_gather_rows(own)
    rows = np.add.reduceat(gathered[:, 1:], firsts)
    found: dict[str, Any] = {
        "ranks": size,
        "each": each,
        "phases": {
            phase: [round(value, 6) for value in column.tolist()]
            for phase, column in zip(PHASES, seconds.T, strict=True)
            if column.any()
        },
        "core_seconds": (np.add.reduceat(cores, firsts) / members).round(6).tolist(),
        "rows": {place: column.tolist() for place, column in zip(ROWS, rows.T, strict=True) if column.any()},
        "memory": np.maximum.reduceat(gathered[:, 0], firsts).tolist(),
    }
    # `sent_to` is None on all ranks or on none, so this gather stays collective (rule R4).
    if sent_to is not None:
        to_groups = communicator.all_gather_rows(np.add.reduceat(sent_to, firsts))
        found["sent"] = np.add.reduceat(to_groups, firsts).tolist()
    return found


def work_ahead(phases: PhaseTimers, communicator: Communicator) -> dict[str, Any]:
    """Return seconds of work ahead of training since the epoch, or this start, began, by phase. Collective.

    `hidden` says how many of them were hidden: spent while training did something else than wait.
    """
    spent, hidden = phases.take_ahead()
    seconds = communicator.all_gather_rows(np.array([*(spent[phase] for phase in PHASES), hidden]))
    return {"phases": mean_and_max(seconds[:, :-1]), "hidden": float(seconds[:, -1].mean())}


def epoch_line(record: dict[str, Any], epochs: int) -> str:
    """Return one line of at most 80 columns: `epoch 5/5  loss 0.998  val 0.822  test 0.816  0.22 s  24.0 MiB`.

    The bytes are those sent between ranks, if there are any. Several models have a mean loss, and the best scores.
    """
    parts = [f"epoch {record['epoch'] + 1}/{epochs}", f"loss {three_digits(record['loss'])}"]
    parts += [f"{split} {three_digits(each)}" for split, each in record["accuracy"].items() if each is not None]
    if models := record.get("models", ()):
        parts.append(f"({len(models)} models)")
    parts.append(f"{record['seconds']:.2f} s")
    sent = sum(record["bytes"].values())
    return "  ".join([*parts, *([size_text(sent)] if sent else [])])


def baseline_line(record: dict[str, Any]) -> str:
    """Return the scores of the constant baseline, if `record` is the first that was scored; else ''."""
    trivial = record.get("trivial")
    if not trivial:
        return ""
    scores = (f"{split} {three_digits(trivial[split])}" for split in ("val", "test") if trivial.get(split) is not None)
    return "  ".join(["constant baseline", *scores, f"({trivial['answer']})"])


def epoch_details(record: dict[str, Any], epochs: int, metric: str) -> str:
    """Return a line with all figures: `epoch 3/10  loss 1.2345  accuracy val 0.8120 test 0.8010  2.31 s ...`."""
    models = record.get("models", ())
    text = f"epoch {record['epoch'] + 1}/{epochs}  loss {record['loss']:.4f}"
    if models:
        text += f" (mean of {len(models)} models)"
    known = {split: score for split, score in record["accuracy"].items() if score is not None}
    if known:
        text += f"  {metric} {scores_text(known)}"
        # The scores of several models are those of one of them: the first that has them.
        text += next((f" (best: {each['model']})" for each in models if each.items() >= known.items()), "")
    if known and (trivial := record.get("trivial")):
        text += f" ({trivial['answer']}: {scores_text({split: trivial[split] for split in known})})"

    # Seconds, rows and bytes.
    rows = record["rows"]
    remote = rows["remote"] / max(1, sum(rows.values()))
    text += f"  {record['seconds']:.2f} s"
    if "evaluation_seconds" in record:
        text += f", evaluation {record['evaluation_seconds']:.2f} s"
    text += f"  remote rows {remote:.0%}"
    if cache := record.get("cache"):
        text += f" (cache spared {cache['hit_rate']:.0%})"
    text += f"  sent {size_text(sum(record['bytes'].values()))}"

    if "busy" in record:
        text += f"  compute ranks busy {record['busy']:.0%}"

    # Where the time went, and what ran ahead of training.
    spent = {phase: times["mean"] for phase, times in record["phases"].items() if times["mean"] >= 0.005}
    if spent:
        text += "  (" + " ".join(f"{phase} {seconds:.2f}" for phase, seconds in spent.items()) + ")"
    if record.get("prefetch"):
        ahead = record["ahead"]
        text += f"  prefetch {ahead_seconds(ahead):.2f} s, {ahead['hidden']:.2f} s overlapped"
    return text


def ahead_seconds(ahead: dict[str, Any]) -> float:
    """Return seconds, mean over ranks, that an epoch's record says were spent ahead of training."""
    return sum(times["mean"] for times in ahead["phases"].values())
