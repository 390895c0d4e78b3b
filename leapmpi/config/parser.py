"""The command lines of both programs: a table of commands, and errors as one sentence with the nearest known name.

A command is a module with `HELP`, `add_arguments(parser)` and `run(arguments) -> int`. Only the command that runs is
imported.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn, TextIO, cast

from leapmpi.config.other_names import about_former_flag, about_other_name
from leapmpi.errors import ConfigError, nearest
from leapmpi.system.allocator import leave_garbage
from leapmpi.version import VERSION

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|(?<!\\A)\r(?!\\Z)")
"""Characters that act on a terminal or cannot be encoded, and carriage returns but of lines that are rewritten."""


class _Escaped:
    """A text stream to which control characters, which names in files may hold, go as `\\x1b` and the like."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def unescaped(self) -> TextIO:
        """The stream itself, for colours of our own."""
        return self._stream

    def write(self, text: str) -> int:
        self._stream.write(_CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Keep the stream open, to which the program writes on, whatever code of the user closes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _controls_escaped() -> Iterator[None]:
    """Escape control characters in all that the body prints."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Escaped(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


class _HelpFormatter(argparse.HelpFormatter):
    """Shows defaults, but not those that only say that a flag was left out; keeps the lines of the last paragraph."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, "", [], argparse.SUPPRESS) or "%(default)" in (action.help or ""):
            return action.help
        return f"{action.help} (default %(default)s)"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        # Lines of a list, which begin with blanks, go on below their text.
        return "\n".join(
            textwrap.fill(line, width, subsequent_indent="    " * line.startswith(" "), break_on_hyphens=False)
            for line in text.splitlines()
        )


class _HelpAll(argparse.Action):
    """--help-all: print the help with the flags that --help leaves out."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, CommandParser), "add_help_all alone adds this flag"
        parser.show_hidden()
        parser.print_help()
        parser.exit()


class CommandParser(argparse.ArgumentParser):
    """An argument parser that raises ConfigError where argparse would print usage and exit.

    Flags that are hidden are explained by --help-all only; --help lists their names.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_HelpFormatter, **settings)
        self._hidden: dict[str, list[tuple[argparse.Action, str | None]]] = {}
        self._more: Callable[[], Iterable[str]] = tuple

    def hide(self, action: argparse.Action, group: str) -> None:
        """Leave the flag of `action` out of --help, where only its name is listed, after `group`."""
        self._hidden.setdefault(group, []).append((action, action.help))
        action.help = argparse.SUPPRESS

    def show_hidden(self) -> None:
        """Explain all flags from now on."""
        for actions in self._hidden.values():
            for action, help in actions:
                action.help = help
        self._hidden.clear()
        self.epilog = "\n".join(self._more()) or None

    def actions(self) -> list[argparse.Action]:
        """List every flag and argument, in the order in which they were added."""
        return list(self._actions)

    def add_help_all(self, more: Callable[[], Iterable[str]] = tuple) -> None:
        """Add --help-all, which ends with the lines of `more`, and the names of the hidden flags to --help."""
        self._more = more
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every flag and exit")
        # argparse would print all flags as usage, so a short one replaces it.
        positionals = [action for action in self._actions if not action.option_strings]
        words = [f"[{each.metavar}]" if each.nargs == "?" else str(each.metavar) for each in positionals]
        self.usage = " ".join(["%(prog)s", *words, "[--FLAG VALUE ...]"])
        lines = [
            f"  {group}: {', '.join(action.option_strings[0] for action, _ in actions)}"
            for group, actions in self._hidden.items()
        ]
        self.epilog = "\n".join(["more flags, which --help-all explains:", *lines])

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with argparse's message."""
        raise ConfigError(f"{message}; see {self.prog} --help")

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse `argv`. Raises ConfigError, suggesting the nearest flag for one that does not exist."""
        # Not where words of another command, with other flags, may follow.
        takes_rest = any(action.nargs == argparse.REMAINDER for action in self._actions)
        for word in () if takes_rest else argv:
            if word.startswith("--") and len(word) > 2 and word.partition("=")[0] not in self._option_string_actions:
                raise ConfigError(f"unknown flag {word}; {self._hint(word)}")
        arguments, rest = self.parse_known_args(argv)
        if rest:
            raise ConfigError(f"unexpected argument {rest[0]!r}; {self._hint(rest[0])}")
        return arguments

    def _hint(self, word: str) -> str:
        """Explain the unknown `word` in a clause: a flag of that meaning, the nearest one, or a place to read on."""
        if not word.startswith("-"):
            return f"see {self.prog} --help"
        flags, name = {flag.lstrip("-"): flag for flag in self._option_string_actions}, word.split("=")[0].lstrip("-")
        # Settings are those of commands with --set.
        if found := about_other_name(name, flags) or ("set" in flags and about_former_flag(name)):
            return found
        close = difflib.get_close_matches(name, flags, n=1)
        return f"did you mean {flags[close[0]]!r}?" if close else f"see {self.prog} --help"


def usage(program: str, about: str, commands: Mapping[str, str]) -> str:
    """Return the text of `PROGRAM --help`; `commands` maps names to modules."""
    lines = [f"usage: {program} COMMAND ...", "", about, "", "commands:"]
    lines += [f"  {name:<12}{importlib.import_module(module).HELP}" for name, module in commands.items()]
    return "\n".join([*lines, "", f"'{program} COMMAND --help' explains one command."])


def parser_of(program: str, name: str, module: ModuleType) -> CommandParser:
    """Build the parser of command `name`."""
    parser = CommandParser(prog=f"{program} {name}", description=module.HELP)
    module.add_arguments(parser)
    return parser


def as_program(run: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Return the result of `run` for `argv`; for None, of the arguments of this process, which ends then.

    Control characters in what it prints are escaped.
    """
    with _controls_escaped():
        code = run(sys.argv[1:] if argv is None else argv)
    if argv is None:
        leave_garbage()
    return code


_OTHER_COMMANDS = {
    **dict.fromkeys(("resume", "restart", "continue"), "train --run FOLDER, which continues the run there"),
    **dict.fromkeys(("test", "eval", "score", "validate"), "evaluate"),
    **dict.fromkeys(("infer", "inference"), "predict"),
    **dict.fromkeys(("run", "fit"), "train"),
    **dict.fromkeys(("tune", "grid", "search"), "sweep"),
}
"""Commands of other programs, and what does the same here."""


def dispatch(
    program: str, about: str, commands: Mapping[str, str], argv: Sequence[str], before: Callable[[str], None]
) -> int:
    """Run the command that `argv` names and return its exit code; `before` is called with its name before it runs.

    Raises LeapmpiError for the user's errors.
    """
    # Flags of the program itself.
    if not argv or argv[0] in ("-h", "--help"):
        print(usage(program, about, commands))
        return 0 if argv else ConfigError.exit_code
    if argv[0] == "--version":
        print(f"{program} {VERSION}")
        return 0
    if argv[0] not in commands:
        if argv[0].startswith("-"):
            raise ConfigError(f"unknown flag {argv[0]}; see {program} --help")
        other = _OTHER_COMMANDS.get(argv[0])
        mend = f"use {program} {other}" if other and other.split()[0] in commands else nearest(argv[0], commands)
        raise ConfigError(f"unknown command {argv[0]!r}; {mend}")

    # The command; records keep the whole command line.
    module = importlib.import_module(commands[argv[0]])
    arguments = parser_of(program, argv[0], module).parse_strictly(argv[1:])
    arguments.command_line = shlex.join([program, *argv])
    arguments.program, arguments.commands = program, commands
    before(argv[0])
    return module.run(arguments)


def weights_of_run(text: str) -> str:
    """Parse as an argparse type: `best`, `final`, or a file of weights, FILE.h5."""
    if text in ("best", "final") or text.endswith(".h5"):
        return text
    raise argparse.ArgumentTypeError(f"invalid choice: '{text}' (best, final or a file FILE.h5)")


def number_between(low: float, high: float | None = None, kind: type = int) -> Callable[[str], int | float]:
    """Build an argparse type: a number of `kind` from `low` to `high` (no upper bound if None)."""

    def convert(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        # Negated, so that NaN fails too.
        if value is None or not value >= low or (high is not None and not value <= high):
            bounds = f"from {low} on" if high is None else f"from {low} to {high}"
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun} {bounds}")
        return value

    return convert
