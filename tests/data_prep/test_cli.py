"""The command line leapmpi-prep as a whole: help, light start, and errors that are no fault of the input."""

import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest

from data_prep import cli
from tests.support.file_size import largest_file

PROJECT = Path(__file__).parents[2]
HEAVY = ("numpy", "h5py", "numba", "torch", "mpi4py", "scipy", "pymetis")


def run_python(*arguments, **more):
    return subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False, **more
    )


def test_help_lists_all_commands(prep):
    outcome = prep("--help")
    assert outcome.code == 0
    for command in cli.COMMANDS:
        assert f"  {command} " in outcome.out
    assert prep().code == 2


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_help_of_a_command(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert f"leapmpi-prep {command}" in capsys.readouterr().out


CONTROLS = "\x1b]0;title\x07 \x1b[31mred\x9b2J\u202edesrever\x7f"
ESCAPED = r"\x1b]0;title\x07 \x1b[31mred\x9b2J\u202edesrever\x7f"


def test_control_characters_are_escaped_where_lines_are_printed(prep, tmp_path, small):
    source = tmp_path / f"{CONTROLS}.npz"
    np.savez(source, **small.arrays())
    outcome = prep("import", source, tmp_path / "g.h5")
    assert outcome.code == 0
    assert ESCAPED in outcome.out
    with h5py.File(tmp_path / "g.h5") as file:
        assert file.attrs["source"].decode() == str(source)  # as it is called
    for command in ("info", "check"):
        printed = prep(command, tmp_path / "g.h5").out
        assert printed.replace("\n", "").isprintable()
        assert (ESCAPED in printed) == (command == "info")
    assert ESCAPED in prep("import", tmp_path / f"{CONTROLS}.txt", tmp_path / "h.h5").error


def test_messages_stay_on_one_line_whatever_a_file_holds(prep, tmp_path):
    (tmp_path / "g\nh.csv").write_text("0,\x1b[31m\n1,\x07\n")
    error = prep("import", tmp_path / "g\nh.csv", tmp_path / "g.h5").error
    assert error.count("\n") == 1
    assert error[:-1].isprintable()


def test_what_cannot_be_encoded_is_printed_all_the_same():
    code = "from data_prep.cli import main; main(['info', 'a\\udc80'])"
    found = run_python("-c", code)
    assert found.stderr == "leapmpi-prep: error: a\\udc80 does not exist; check the path\n"


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from data_prep.cli import main; main(['--help'])\n"
        "try: main(['import', '--help'])\nexcept SystemExit: pass\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = run_python("-c", code)
    assert found.stdout.splitlines()[-1] == "LOADED []", found.stderr


def test_help_is_quick():
    def seconds():
        """Of processor time, which other work on the machine bears on less than on the clock."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run_python("-m", "data_prep.cli", "--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


def test_importing_everything_starts_neither_mpi_nor_torch():
    modules = [
        str(path.relative_to(PROJECT).with_suffix("")).replace(os.sep, ".")
        for path in (PROJECT / "data_prep").rglob("*.py")
        if path.stem != "__init__" and (path.stem != "parquet_table" or find_spec("pyarrow"))
    ]
    code = (
        "import sys, importlib\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print([name for name in ('torch', 'mpi4py') if name in sys.modules])"
    )
    found = run_python("-c", code)
    assert found.stdout.strip() == "[]", found.stderr


def test_pickled_matrices_need_no_scipy(real_graph, tmp_path):
    source = real_graph("graphdata-amazon_photo")
    code = (
        "import sys; sys.modules['scipy'] = None\n"
        f"from data_prep.cli import main; sys.exit(main(['import', {str(source)!r}, {str(tmp_path / 'g.h5')!r}]))"
    )
    found = run_python("-c", code)
    assert found.returncode == 0, found.stderr


def test_no_reader_is_no_error():
    code = "import sys; from data_prep.cli import main; sys.exit(main(['--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        found = subprocess.run(
            [sys.executable, "-c", code], cwd=PROJECT, stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert found.stderr == b""


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (MemoryError("Unable to allocate 7 TiB"), 6, "not enough memory (Unable to allocate 7 TiB)"),
        (PermissionError(13, "Permission denied", "secret.npz"), 3, "secret.npz: Permission denied"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_is_not_the_inputs_fault(prep, monkeypatch, tmp_path, raised, code, said):
    def fail(*_):
        raise raised

    monkeypatch.setattr("data_prep.detection.locate", fail)
    monkeypatch.setattr("data_prep.detection.locate", fail)
    outcome = prep("import", tmp_path, tmp_path / "g.h5")
    assert outcome.code == code
    assert said in outcome.error
    assert outcome.error.count("\n") == 1


def test_full_disk_leaves_nothing(prep, tmp_path):
    small = tmp_path / "full"
    small.mkdir()
    with largest_file(50_000):
        outcome = prep("synth", small / "g.h5", "--vertices", 1000, "--edges", 5000, "--classes", 4)
    assert outcome.code == 6
    assert "disk is full or a quota is reached" in outcome.error
    assert list(small.iterdir()) == []
