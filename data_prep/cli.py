"""`leapmpi-prep COMMAND`: finds the command's module, runs it, and turns errors into one sentence and an exit code.

Every command is a module with `HELP`, `add_arguments(parser)` and `run(arguments) -> int`, which alone imports
anything heavy.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Sequence

from data_prep.arguments import CommandParser
from leapmpi import __version__
from leapmpi.errors import ConfigError, LeapmpiError, nearest

PROGRAM = "leapmpi-prep"

COMMANDS = {
    "import": "data_prep.import_graph",
    "synth": "data_prep.synth",
    "partition": "data_prep.partition",
    "info": "data_prep.info",
    "check": "data_prep.check",
}


def usage() -> str:
    """The text of `leapmpi-prep --help`."""
    lines = [f"usage: {PROGRAM} COMMAND ...", "", "Prepares graphs for leapmpi.", "", "commands:"]
    lines += [f"  {name:<12}{importlib.import_module(module).HELP}" for name, module in COMMANDS.items()]
    return "\n".join([*lines, "", f"'{PROGRAM} COMMAND --help' tells more about one command."])


def dispatch(argv: Sequence[str]) -> int:
    """Run the command that `argv` names and return its exit code. Raises LeapmpiError for the user's errors."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else ConfigError.exit_code
    if argv[0] == "--version":
        print(f"{PROGRAM} {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        raise ConfigError(f"unknown command {argv[0]!r}; {nearest(argv[0], COMMANDS)}")
    module = importlib.import_module(COMMANDS[argv[0]])
    parser = CommandParser(prog=f"{PROGRAM} {argv[0]}", description=module.HELP)
    module.add_arguments(parser)
    arguments = parser.parse_strictly(argv[1:])
    arguments.command_line = shlex.join([PROGRAM, *argv])
    return module.run(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of the console script; returns the exit code."""
    try:
        code = dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except LeapmpiError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader has gone: nothing may be written any more, not even by the interpreter at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError as error:
        return _fail(f"not enough memory ({error or 'no details'}); use a machine with more, or a smaller graph", 6)
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 3)


def _fail(sentence: str, code: int) -> int:
    print(f"{PROGRAM}: error: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
