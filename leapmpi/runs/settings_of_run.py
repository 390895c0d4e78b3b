"""Settings of a run that is continued by naming only its folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from leapmpi.config.flags import given, parse_assignment
from leapmpi.config.schema import Config
from leapmpi.runs.file_names import CONFIG
from leapmpi.runs.run import load_run


def settings_of_run(arguments: argparse.Namespace) -> Config | None:
    """Return the settings of the run named by --run if DATA is given nowhere; else None.

    DATA counts as given on the command line, by --set, or in a config file.
    """
    folder = given(arguments).get("run.folder")
    named = {parse_assignment(text)[0] for text in arguments.set}
    if arguments.data is not None or arguments.config is not None or "data" in named or not folder:
        return None
    if not (Path(folder) / CONFIG).exists():
        return None
    # These two settings described only that start.
    return load_run(folder).config.replaced({"run.overwrite": False, "run.replay": ""})
