"""The command line `leapmpi`: train, evaluate, compare, doctor. Starts nothing by itself; imports are light."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from leapmpi import __version__
from leapmpi.config import Config, Setting, fields, parse_assignment, read_toml
from leapmpi.errors import ConfigError, LeapmpiError, nearest, one_line

_REPEAT_DELAY = 2.0
"""Seconds that ranks other than 0 wait before they report an error that MPI has not agreed on."""


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are ConfigErrors that suggest the nearest flag or command."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")

    def parse_known(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse `arguments`. Raises ConfigError for unknown flags, with the nearest one that the command knows."""
        parsed, unknown = self.parse_known_args(arguments)
        if unknown:
            command = self._commands().get(parsed.command, self)
            raise ConfigError(f"unknown argument {unknown[0]!r}; {command.hint(unknown[0])}")
        return parsed

    def hint(self, odd: str) -> str:
        """A clause on what may have been meant by the unknown argument `odd`."""
        flags = {flag.lstrip("-"): flag for flag in self._option_string_actions}
        close = difflib.get_close_matches(odd.split("=")[0].lstrip("-"), flags, n=1) if odd.startswith("-") else []
        return f"did you mean {flags[close[0]]}?" if close else f"see {self.prog} --help"

    def _commands(self) -> dict[str, _Parser]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}


def build_parser() -> _Parser:
    """The parser of all commands; every config field of `leapmpi.config` has a flag of `train`."""
    parser = _Parser(
        prog="leapmpi",
        description="Train graph neural networks where the features are, over MPI.",
        epilog="Start it on N ranks with: mpirun -n N leapmpi train DATA",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"leapmpi {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    train = commands.add_parser("train", help="train a model on a partitioned dataset", allow_abbrev=False)
    train.add_argument("data", nargs="?", help="dataset folder made by leapmpi-prep partition")
    _add_settings(train, [setting for key, setting in fields() if key != "data"])
    evaluate = commands.add_parser("evaluate", help="score the weights of a run again", allow_abbrev=False)
    evaluate.add_argument("data", help="dataset folder")
    evaluate.add_argument("folder", metavar="RUN", help="run folder")
    evaluate.add_argument("--weights", choices=("best", "final"), default="best", help="which epoch's (default best)")
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = ("evaluate.fanout", "evaluate.batch_size", "evaluate.metric", "run.device", "run.threads", "run.log_level")
    _add_settings(evaluate, [setting for key, setting in fields() if key in chosen], config_file=False)
    compare = commands.add_parser("compare", help="print finished runs side by side", allow_abbrev=False)
    compare.add_argument("runs", nargs="+", metavar="RUN", help="run folders; ratios are to the first")
    compare.add_argument("--json", action="store_true", help="print one JSON list")
    doctor = commands.add_parser("doctor", help="show which MPI, devices and versions are in use", allow_abbrev=False)
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _add_settings(parser: argparse.ArgumentParser, settings: list[Setting], config_file: bool = True) -> None:
    if config_file:
        parser.add_argument("--config", metavar="FILE.toml", help="read settings from a TOML file")
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", help="set any key, such as train.lr=0.01"
        )
    for setting in settings:
        keywords: dict[str, Any] = {"dest": setting.key, "default": None, "metavar": "VALUE"}
        if setting.type is bool:
            keywords = {"dest": setting.key, "default": None, "action": argparse.BooleanOptionalAction}
        default = ",".join(map(str, setting.default)) if isinstance(setting.default, tuple) else setting.default
        shown = f" (default {default})" if default not in ("", None, False) else ""
        choices = f": {', '.join(setting.choices())}" if setting.choices() else ""
        parser.add_argument(f"--{setting.flag}", help=f"{setting.limits['help']}{choices}{shown}", **keywords)


def config_from(arguments: argparse.Namespace) -> Config:
    """Defaults, then the TOML file, then --set, then flags. Raises ConfigError."""
    config, known = Config(), dict(fields())
    if (path := getattr(arguments, "config", None)) is not None:
        config = config.assigned(read_toml(path), path)
    if assignments := getattr(arguments, "set", None):
        config = config.assigned(dict(parse_assignment(text) for text in assignments), "--set")
    for key, value in vars(arguments).items():
        if "." in key and value is not None:
            config = config.assigned({key: value}, f"--{known[key].flag}")
    if arguments.data is not None:
        config = config.assigned({"data": arguments.data}, "dataset folder")
    config.check()
    return config


def _train(arguments: argparse.Namespace) -> int:
    config = config_from(arguments)
    from leapmpi.training.job import train

    train(config)
    return 0


def _evaluate(arguments: argparse.Namespace) -> int:
    from leapmpi.report.evaluate import evaluate

    return evaluate(arguments)


def _compare(arguments: argparse.Namespace) -> int:
    from leapmpi.report.compare import compare

    return compare(arguments.runs, arguments.json)


def _doctor(arguments: argparse.Namespace) -> int:
    from leapmpi.doctor import doctor

    return doctor(arguments.json)


COMMANDS = {"train": _train, "evaluate": _evaluate, "compare": _compare, "doctor": _doctor}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `leapmpi`; returns the exit code. A user's error is one line on standard error."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = build_parser()
        commands = list(COMMANDS)
        if argv and not argv[0].startswith("-") and argv[0] not in commands:
            raise ConfigError(f"unknown command {argv[0]!r}; {nearest(argv[0], commands)}")
        arguments = parser.parse_known(argv)
        if arguments.command is None:
            parser.print_help()
            return 2
        return COMMANDS[arguments.command](arguments)
    except LeapmpiError as error:
        _report(error)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("leapmpi: interrupted\n")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _report(error: LeapmpiError) -> None:
    """One line on standard error from one rank, also when MPI has not started."""
    from leapmpi.world import job_rank, meet_before_the_end

    first = job_rank() == 0
    if not first and not error.agreed:
        # Where rank 0 failed too, its exit ends this process before it repeats the same sentence.
        time.sleep(_REPEAT_DELAY)
    if first or not error.agreed:
        sys.stderr.write(f"leapmpi: error: {one_line(error)}\n")
        sys.stderr.flush()
    if error.agreed:
        meet_before_the_end()


if __name__ == "__main__":
    sys.exit(main())
