"""The settings with which a run goes on when the command line names nothing but its folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from leapmpi.config.flags import given, parse_assignment
from leapmpi.config.schema import Config
from leapmpi.runs.file_names import CONFIG
from leapmpi.runs.run import load_run


def settings_of_run(arguments: argparse.Namespace) -> Config | None:
    """Without DATA on the command line or in a file: the settings of the run in the folder that --run names, if any."""
    folder = given(arguments).get("run.folder")
    named = {parse_assignment(text)[0] for text in arguments.set}
    if arguments.data is not None or arguments.config is not None or "data" in named or not folder:
        return None
    if not (Path(folder) / CONFIG).exists():
        return None
    # What says how that start began says nothing about this one.
    return load_run(folder).config.replaced({"run.overwrite": False, "run.replay": ""})
