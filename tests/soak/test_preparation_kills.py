"""Import and partition killed with SIGKILL at random times go on, to the bytes of an undisturbed run.

30 kills by default; LEAPMPI_KILLS names another number, LEAPMPI_SEED another order of times.
"""

import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.data_prep.commands.test_workers import content
from tests.support.launch import PROJECT, child_environment

KILLS = int(os.environ.get("LEAPMPI_KILLS", "30"))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "edges.csv"
    ends = np.random.default_rng(1).integers(0, 100_000, (2, 800_000))
    with path.open("w") as file:
        file.writelines(f"{s},{d}\n" for s, d in zip(*ends.tolist(), strict=True))
    return path


def start(words):
    command = [sys.executable, "-m", "data_prep.cli", *map(str, words)]
    return subprocess.Popen(command, env=child_environment(), cwd=PROJECT, stdout=subprocess.PIPE, text=True)


@pytest.mark.timeout(1800)
def test_killed_at_random_times(source, tmp_path):
    draw = random.Random(int(os.environ.get("LEAPMPI_SEED", "0")))
    tmp_path.joinpath("whole").mkdir()
    steps = [("import", source, "g.h5"), ("partition", tmp_path / "whole/g.h5", "data")]
    flags = {"import": ["--features", "random:16"], "partition": ["--parts", "4", "--method", "grem"]}
    killed, taken = 0, 0

    # An undisturbed run of each command, and how long it takes.
    seconds = {}
    for name, given, made in steps:
        begin = time.monotonic()
        assert start([name, given, tmp_path / "whole" / made, *flags[name]]).wait() == 0
        seconds[name] = time.monotonic() - begin

    # Killed again and again; a command that ends is compared and begun again.
    while killed < KILLS:
        name, given, made = draw.choice(steps)
        output = tmp_path / made
        while True:
            process = start([name, given, output, *flags[name]])
            try:
                printed, _ = process.communicate(timeout=draw.uniform(0.1, 1.1) * seconds[name])
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
                continue
            assert process.returncode == 0
            taken += "an earlier run was stopped" in printed
            break
        files = sorted(output.iterdir()) if output.is_dir() else [output]
        for file in files:
            assert content(file) == content(tmp_path / "whole" / file.relative_to(tmp_path))
            file.unlink()
        if output.is_dir():
            output.rmdir()
        assert [each.name for each in tmp_path.iterdir()] == ["whole"]
    print(f"{killed} kills; {taken} commands went on from finished stages")
    assert taken > 0
