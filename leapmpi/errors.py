"""The errors a user may meet. Each is one sentence that says what is wrong, where, and what to do about it.

The command lines print the message without a traceback and end with `exit_code`.
Anything else that escapes is a defect of leapmpi and is reported as one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LeapmpiError(Exception):
    """Base of all errors that the user can do something about."""

    exit_code = 1
    label = "error: "
    """Label printed before the sentence."""
    agreed = False
    """Whether all ranks of the job raised this error in step, so that one of them reports it."""
    rank: int
    """The lowest rank on which it arose, of an error that is `agreed`; not set in others."""


class ConfigError(LeapmpiError):
    """A flag, TOML key or value that cannot be used."""

    exit_code = 2


class DataError(LeapmpiError):
    """An input file, graph file or dataset that is missing, foreign, damaged or unsuitable."""

    exit_code = 3


class RunFolderError(LeapmpiError):
    """A run folder that may not be used."""

    exit_code = 4


class LaunchError(LeapmpiError):
    """The process was not started in a way MPI can work with."""

    exit_code = 5


class ResourceError(LeapmpiError):
    """Disk, memory or device does not suffice."""

    exit_code = 6


RESUMABLE = 75
"""Exit code of a run that the same command continues (EX_TEMPFAIL of sysexits.h)."""


class Interrupted(LeapmpiError):
    """The job ends early: a signal came, or its time is running out.

    `exit_code` is RESUMABLE when the same command, started again, goes on or starts over by itself.
    """

    label = ""

    def __init__(self, sentence: str, exit_code: int = RESUMABLE) -> None:
        """Take a `sentence` that is printed without a label."""
        super().__init__(sentence)
        self.exit_code = exit_code


def error_of(kind: str, text: str) -> LeapmpiError:
    """Make the error of the class named `kind` with `text`; a plain LeapmpiError where no such class is loaded."""
    kinds = [LeapmpiError]
    for known in kinds:
        kinds += known.__subclasses__()
    return next((known for known in kinds if known.__name__ == kind), LeapmpiError)(text)


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest, as a clause for error messages, the nearest known name, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known: " + ", ".join(known)


def one_line(text: object) -> str:
    """Put `text` on one line, for a log or a terminal."""
    return " ".join(str(text).split())


def counted(number: int, noun: str) -> str:
    """Format a number of things: '1 rank', '3,000 vertices', '2 classes'."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def there_are(number: int, noun: str) -> str:
    """Format that so many things exist: 'there is 1 weight', 'there are 3 weights'."""
    return f"there {'is' if number == 1 else 'are'} {counted(number, noun)}"


def plural(noun: str) -> str:
    """Return the plural of `noun`: 'ranks', 'vertices', 'classes', 'entries'."""
    if noun.endswith("vertex"):
        return f"{noun[:-2]}ices"
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith(("s", "ch", "x")) else "s")
