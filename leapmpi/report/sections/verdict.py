"""Verdict on a run by fixed rules: how it ended, did it learn, was it fast; each with a sentence and advice."""

from __future__ import annotations

from dataclasses import dataclass

from leapmpi.errors import counted
from leapmpi.report.learning_light import learning
from leapmpi.report.lights import BAD, FAIR, GOOD, UNKNOWN, Light, worst
from leapmpi.report.markup import Markup, bullets, element, flags_apart
from leapmpi.report.numbers import SECONDS, shown
from leapmpi.report.run_data import RUNNING, RunData
from leapmpi.report.speed_light import speed
from leapmpi.runs.run import FAILED, INTERRUPTED

_WORDS = {GOOD: "Good", FAIR: "Fair", BAD: "Bad", UNKNOWN: "Unknown"}


@dataclass(frozen=True)
class Verdict:
    """Verdict on one run: how far it came, and the two lights."""

    ended: str
    """Epochs, ranks and seconds; why it failed, if it did."""

    end: str
    """BAD for a failed run, FAIR for an interrupted one, else UNKNOWN."""

    learning: Light
    speed: Light

    @property
    def level(self) -> str:
        """The worst level of all."""
        return worst([self.end, self.learning.level, self.speed.level])

    def lines(self) -> list[tuple[str, str]]:
        """Return the level of each light and a line about it, with its most useful advice."""
        return [
            (each.level, " ".join([f"{each.name}: {_WORDS[each.level].lower()}. {each.sentence}", *each.advice[:1]]))
            for each in (self.learning, self.speed)
        ]


def verdict(run: RunData) -> Verdict:
    """Return the verdict on a run, from its records alone."""
    end = {FAILED: BAD, INTERRUPTED: FAIR}.get(run.status, UNKNOWN)
    return Verdict(_ended(run), end, learning(run), speed(run))


def box(run: RunData, several: bool) -> Markup:
    """Return the verdict box at the top of a page."""
    found = verdict(run)
    lines = [element("p", f"{run.label}: " * several, found.ended)]
    for each in (found.learning, found.speed):
        word = element("span", f"{each.name}: {_WORDS[each.level]}. ", class_="light")
        part = [element("p", word, *flags_apart(each.sentence)), bullets(each.advice) if each.advice else None]
        lines.append(element("div", *(each for each in part if each is not None), class_=each.level))
    return element("div", *lines, class_=f"verdict {found.level}")


def _ended(run: RunData) -> str:
    """Describe how far the run came, and what mends its end."""
    wanted = run.config.train.epochs if run.config else None
    of = f" of {wanted}" if wanted and wanted != len(run.epochs) else ""
    done = f"{len(run.epochs)}{of} epochs on {counted(run.size, 'rank')}"
    seconds = run.ended.get("seconds")
    took = f", {shown(seconds, SECONDS)} in all" if seconds is not None else ""
    if run.status == FAILED:
        return (
            f"It failed after {done}: {run.ended.get('why')}. Correct the cause; the same command with --run resumes "
            "from the last checkpoint."
        )
    if run.status == INTERRUPTED:
        return (
            f"It was interrupted after {done}: {run.ended.get('why')}. The same command with --run and this folder "
            "resumes it."
        )
    if run.status == RUNNING:
        return f"{done} so far; it has not ended (still running, or killed)."
    noted = f" The log holds {len(run.warnings)} warnings, listed below." if run.warnings else ""
    return f"{done}{took}.{noted}"
