"""The flags that say for what sampled training a cut is reported: --report, --fanout, --batch-size."""

from __future__ import annotations

import argparse

from leapmpi.config.flags import add_flag, given
from leapmpi.config.schema import Config
from leapmpi.config.sections import fields

_SETTINGS = {key: setting for key, setting in fields() if key in ("sampling.fanout", "train.batch_size")}


def add_report_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags; the last two are those of leapmpi train."""
    report = "also rehearse sampled training, as --fanout and --batch-size say: R_micro and remote rows"
    parser.add_argument("--report", action="store_true", help=report)
    for setting in _SETTINGS.values():
        add_flag(parser, setting)


def reported_training(arguments: argparse.Namespace) -> tuple[tuple[int, ...], int] | None:
    """Fan-outs and batch size to report for; None where no flag asks for it. Raises ConfigError."""
    values = given(arguments)
    if not arguments.report and not values:
        return None
    config = Config()
    for key, value in values.items():
        config = config.assigned({key: value}, f"--{_SETTINGS[key].flag}")
    return config.sampling.fanout, config.train.batch_size
