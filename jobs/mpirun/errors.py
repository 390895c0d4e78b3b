"""Copies standard input to standard output, but for Open MPI's reports of ended ranks once leapmpi has said why.

    errors.py < what mpirun and its ranks write to standard error

Such a report stands between two lines of dashes and gives numbers only, which are the launcher's exit code anyway.
"""

import os
import re
import sys

DASHES = b"-" * 74 + b"\n"
PROGRAM = rb"(?:prterun|mpirun) "
REPORT = re.compile(
    PROGRAM + rb"(?:detected that one or more processes exited|has exited due to process rank)|MPI_ABORT was invoked"
)
REASON = re.compile(rb"\s*leapmpi(?:-prep)?: ")


def main() -> None:
    """Copy line by line; what ends without a line break is copied at once, unless it may begin a report."""
    waiting, at_start, explained = b"", True, False
    while chunk := os.read(0, 1 << 16):
        # Open MPI ends some reports by a zero, which would make a log a binary file.
        waiting += chunk.replace(b"\0", b"")
        while waiting:
            # A report, or a beginning of one, waits for its end.
            if at_start and may_be_report(waiting):
                end = waiting.find(b"\n" + DASHES, len(DASHES))
                if end < 0:
                    break
                end += 1 + len(DASHES)
                report, waiting = waiting[:end], waiting[end:]
                write(b"" if explained else report)
                continue
            line, newline, waiting = waiting.partition(b"\n")
            explained = explained or (at_start and REASON.match(line) is not None)
            write(line + newline)
            at_start = newline != b""
    write(waiting)


def may_be_report(text: bytes) -> bool:
    """Return whether `text` is, or may become, a report."""
    if not text.startswith(DASHES):
        return DASHES.startswith(text)
    first, newline, _ = text[len(DASHES) :].partition(b"\n")
    return not newline or REPORT.match(first) is not None


def write(text: bytes) -> None:
    """Write all of `text` at once."""
    while text:
        text = text[os.write(1, text) :]


if __name__ == "__main__":
    sys.exit(main())
