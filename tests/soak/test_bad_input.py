"""The bad input of tests/cli/test_command_line.py again, under mpirun with 4 ranks: one sentence, nothing left."""

import re
import shutil
import sys

import pytest

from tests.cli.test_command_line import BAD_WORDS, CONFIG, DATA, SPOILT_DATA
from tests.support.launch import mpirun

RANKS = 4
WORDS = [each for each in BAD_WORDS if "on 1 rank" not in each[1]]


def refused(code, message, folder, *arguments):
    """All ranks end with `code`, one of them says `message` in one sentence, and nothing stands in `folder`."""
    job = mpirun(RANKS, [sys.executable, "-m", "leapmpi.cli", *arguments], cwd=folder)
    assert job.returncode == code, job.stderr
    assert job.stdout == ""
    (sentence,) = (line for line in job.stderr.splitlines() if line.startswith("leapmpi: "))
    assert re.fullmatch(r"leapmpi: error: .+", sentence)
    assert message in sentence
    assert "Traceback" not in job.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("arguments", "message"), WORDS)
def test_flags_and_values(small_data, tmp_path, arguments, message):
    refused(CONFIG, message, tmp_path, *(str(small_data) if word == "DATA" else word for word in arguments.split()))


@pytest.mark.parametrize(("spoil", "message"), SPOILT_DATA)
def test_damaged_and_foreign_datasets(small_data, tmp_path, tmp_path_factory, spoil, message):
    copy = shutil.copytree(small_data, tmp_path_factory.mktemp("spoilt") / "copy")
    spoil(copy)
    refused(DATA, message, tmp_path, "train", copy)
