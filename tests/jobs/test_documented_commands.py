"""Every command of the pages: run by a test, or taken by the parser of its program, or said to need what tests lack."""

import argparse
import importlib.util
import re
import runpy
import shutil
import sys

import numpy as np
import pytest

from data_prep.cli import COMMANDS as PREPARATION
from data_prep.cli import main as prepare
from leapmpi.cli.main import COMMANDS as TRAINING
from leapmpi.cli.main import main as train
from leapmpi.config.flags import config_from, parse_strategies
from leapmpi.config.parser import parser_of
from leapmpi.config.sweep_file import read_sweep
from leapmpi.errors import ConfigError
from tests.support.documentation import commands, inline_commands, pages
from tests.support.launch import PROJECT

PROGRAMS = {"leapmpi": (TRAINING, train), "leapmpi-prep": (PREPARATION, prepare)}
RUN_BY = {
    "jobs/environment": "tests/jobs/test_environment.py",
    "jobs/lab/distdgl/partition": "tests/jobs/test_lab.py",
    "tests.parallel": "tests/test_parallel.py",
}
"""Programs whose words are not parsed here, and the test that runs them."""
BY_HAND = ("jobs/quickstart", "tests/run", "source", "eval", "cat", "sleep", "-", "-c")
"""Those that make an environment and run all tests, and words of the shell."""
LONG = re.compile(r"\b(on a cluster|Slurm|[Nn]eeds root|PyPI|internet|connected machine|site's own MPI|Long runs)\b")
"""What tells a reader that a command needs more than tests have."""
FLOW = {
    "leapmpi/report/README.md": "",
    "leapmpi/tools/export/README.md": "",
    "leapmpi/inference/README.md": "runs/a",  # pairs and partners: tests/cli/test_predict_names.py
    "leapmpi/fault_tolerance/README.md": "--epochs 20|--init",  # tests/parallel/test_restart.py stops a run
    "leapmpi/training/README.md": "runs/",
}
"""Pages whose commands that match are run after those of README.md, each page in a copy of what those left."""
STANDS_FOR = {"SOURCE": "source.npz", "RUN": "runs/a", "DATA": "data", "other": "data", "/local/tmp": "."}
EXTRAS = {
    "--png": "matplotlib", "--pdf": "matplotlib", ".parquet": "pyarrow", ".safetensors": "safetensors",
    "tensorboard": "tensorboard",
}  # fmt: skip
"""Words of commands that need a library which is not always there."""


class Parsed(Exception):
    """The parser of a script has taken its words."""


@pytest.fixture
def parse_in_script(monkeypatch):
    """A function that runs a script of Python until its parser has taken the words."""
    parser, before = argparse.ArgumentParser, set(sys.modules)
    parse, parse_known, path = parser.parse_args, parser.parse_known_args, list(sys.path)

    def stop(self, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(parser, "parse_known_args", parse_known)
            parse(self, *arguments)
        raise Parsed

    def stop_known(self, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(parser, "parse_known_args", parse_known)
            _, rest = parse_known(self, *arguments)
            take(("leapmpi", "train", *rest))  # as jobs/lab/roles hands the rest on
        raise Parsed

    def until_parsed(script, words):
        with monkeypatch.context() as patch:
            patch.setattr(parser, "parse_args", stop)
            patch.setattr(parser, "parse_known_args", stop_known)
            patch.setattr(sys, "argv", [str(script), *words])
            patch.setattr(sys, "path", [str(script.parent), *path])
            with pytest.raises(Parsed):
                runpy.run_path(str(script), run_name="__main__")

    yield until_parsed
    for name in set(sys.modules) - before:
        if str(PROJECT / "jobs") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def started(words):
    """The command that is started, on each rank or where it stands: without launchers and settings of the shell."""
    if words[:2] == ("mpirun", "-n"):
        return started(words[3:])
    if words[0] == "jobs/mpirun/local":
        return started(words[2:])
    if re.match(r"\w+=\S*$", words[0]):
        return started(words[1:]) if words[1:] else ("source",)
    if words[:3] == ("python", "-m", "mpi4py"):
        return started(("python", *words[3:]))
    if words[0].endswith("python"):
        return started(words[2:] if words[1] == "-m" else words[1:])
    return tuple(word for word in words if word != "...")


def take(words):
    """Raise ConfigError where the program of leapmpi that `words` name does not take them."""
    program, name, *rest = words
    parser = parser_of(program, name, importlib.import_module(PROGRAMS[program][0][name]))
    given = parser.parse_strictly(rest)
    if name == "submit" and given.command:
        take((program, *given.command))
    if hasattr(given, "set"):
        config = config_from(given)
        if getattr(given, "strategies", None):
            parse_strategies(given.strategies, config)
    if name == "sweep" and given.file != "FILE":
        assert read_sweep(given.file).points


def check(command, words, parse_in_script):
    """Hold a command to one of the three."""
    name, *rest = words = started(words)
    name = name.removeprefix("./")
    script = PROJECT / (f"{name.replace('.', '/')}.py" if name.startswith("tests.") else name)
    if name in PROGRAMS:
        take(words)
    elif name in RUN_BY:
        assert name.rpartition("/")[2] in (PROJECT / RUN_BY[name]).read_text()
    elif script.is_file() and re.search(r"import argparse|argument_parser", script.read_text()):
        parse_in_script(script, rest)
        if rest[:1] == ["mpirun"]:
            check(command, tuple(rest[2:]), parse_in_script)
    elif name not in BY_HAND:
        assert LONG.search(command.told), f"{command}: say what it needs, such as: on a cluster"


@pytest.mark.parametrize("page", pages())
def test_a_page_names_commands_that_are_there(page, parse_in_script, monkeypatch):
    monkeypatch.chdir(PROJECT)
    wrong = []
    for command in commands(page):
        try:
            check(command, command.words, parse_in_script)
        except (ConfigError, KeyError, SystemExit) as error:
            wrong.append(f"{command}: {error}")
    # In the text a command may be cut short.
    for command in inline_commands(page):
        words = started(command.words)
        try:
            if {"COMMAND", "--help", "--help-all"}.isdisjoint(words):
                take(words)
        except (ConfigError, KeyError) as error:
            if not re.search(r"arguments are required|expected one argument|--strategies", str(error)):
                wrong.append(f"{command}: {error}")
    assert not wrong, "\n".join(wrong)


def run(command):
    """Run a command of either program in this process, on one rank."""
    program, *words = (STANDS_FOR.get(word, word) for word in started(command.words))
    for word, library in EXTRAS.items():
        if any(each.endswith(word) for each in words) and importlib.util.find_spec(library) is None:
            return
    assert PROGRAMS[program][1]([*words, *(["--threads", "1"] if words[0] == "train" else [])]) == 0, str(command)


@pytest.mark.long(20)
def test_the_flow_runs_as_written(tmp_path, monkeypatch):
    rng, rows = np.random.default_rng(0), np.arange(240)
    place = tmp_path / "first"
    place.mkdir()
    monkeypatch.chdir(place)
    edges, features = rng.integers(0, 240, (2, 900)), rng.normal(size=(240, 5)).astype(np.float32)
    splits = dict(zip(("train", "val", "test"), np.split(rng.permutation(240), [140, 190]), strict=True))
    np.savez("source.npz", edge_index=edges, features=features, labels=rows % 3, **splits)
    np.save("ids.npy", rows[:9])
    for command in commands("README.md"):
        if started(command.words)[0] in PROGRAMS:
            run(command)
    for number, (page, chosen) in enumerate(FLOW.items()):
        copy = tmp_path / str(number)
        shutil.copytree(place, copy)
        (copy / "model.safetensors").unlink(missing_ok=True)
        monkeypatch.chdir(copy)
        for command in commands(page):
            if started(command.words)[0] in PROGRAMS and re.search(chosen, str(command)):
                run(command)

    # From Python.
    copy = tmp_path / "python"
    shutil.copytree(place / "data", copy / "data")
    monkeypatch.chdir(copy)
    (code,) = re.findall(r"```python\n(.+?)```", (PROJECT / "leapmpi/PYTHON.md").read_text(), re.DOTALL)
    exec(code, {})
