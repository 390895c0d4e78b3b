"""`leapmpi-prep COMMAND`: finds the command's module, runs it, and turns errors into one sentence and an exit code.

Every command is a module with `HELP`, `add_arguments(parser)` and `run(arguments) -> int`, which alone imports
anything heavy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from leapmpi.config.parser import as_program, dispatch
from leapmpi.errors import LeapmpiError, one_line
from leapmpi.system.process_limits import PREPARATION, check_limits, memory_limits, too_little

PROGRAM = "leapmpi-prep"
ABOUT = "Prepares graphs for leapmpi."

COMMANDS = {
    "import": "data_prep.commands.import_graph",
    "synth": "data_prep.commands.synth",
    "partition": "data_prep.commands.partition",
    "compare": "data_prep.commands.compare",
    "info": "data_prep.commands.info",
    "check": "data_prep.commands.check",
    "report": "data_prep.commands.report",
    "task-table": "data_prep.commands.task_table",
    "completion": "leapmpi.config.completion",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console script; returns the exit code.

    Without `argv` it is the program: the process ends with it.
    """
    return as_program(_run, argv)


def _run(argv: Sequence[str]) -> int:
    try:
        code = dispatch(PROGRAM, ABOUT, COMMANDS, argv, _check_limits)
        sys.stdout.flush()
        return code
    except LeapmpiError as error:
        return _fail(str(error), error.exit_code)
    except ImportError as error:
        if not (refused := too_little(error)):
            raise
        return _fail(str(refused), refused.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader has gone: nothing may be written any more, not even by the interpreter at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError as error:
        why = f"not enough memory ({error or 'no details'}){memory_limits()}"
        return _fail(f"{why}; use a machine with more, or a smaller graph", 6)
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 3)


def _check_limits(command: str) -> None:
    """Raise ResourceError for limits of this process under which libraries would die."""
    check_limits(PREPARATION, f"{PROGRAM} {command}")


def _fail(sentence: str, code: int) -> int:
    print(f"{PROGRAM}: error: {one_line(sentence)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
