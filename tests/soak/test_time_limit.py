"""A real time limit on the Slurm of tests/support/cluster.py: signalled, saved, queued again, resumed, finished.."""

import json
import re
import sys

import pytest

from leapmpi.runs.run import load_run
from tests.support import cluster as clusters
from tests.support.cluster import Cluster, wait_for

SECONDS = 120
"""What a run should take: two or three of the minutes that each start gets."""

TRIAL_EPOCHS = 40
SETTINGS = ["--hidden", 8, "--batch-size", 4, "--eval-every", 50, "--threads", 1, "--log-level", "warning"]
SETTINGS += ["--time-steps", 1, "--remote", "partial"]
"""Nothing is settled by clocks, so that a resumed run and a whole one are the same to the last bit."""


class Site:
    """A cluster, and a folder to submit from."""

    def __init__(self, folder, data):
        self.folder, self.data = folder, data
        program = folder / "leapmpi"
        program.write_text(f'#!/bin/bash\nexec {sys.executable} -m leapmpi.cli "$@"\n')
        program.chmod(0o755)
        commands = json.dumps([f"export PATH={folder}:$PATH"])
        # Slurm counts time limits in minutes and looks every 30 s: the signal comes 60 to 90 s after the start.
        (folder / "site.toml").write_text(f"nodes = 4\ntime = '2'\nsignal_before = 60\ncommands = {commands}\n")
        self.cluster = Cluster(folder, 4)

    def undisturbed(self, name, epochs):
        """Train to the end under no limit; returns the run."""
        command = " ".join(map(str, [self.folder / "leapmpi", *self._training(name, epochs)]))
        words = ["sbatch", "--wait", "--nodes=4", "--ntasks=4", f"--output={name}.out", "--wrap"]
        self.cluster.run([*words, f"mpirun --bind-to none {command}"], timeout=3000)
        return load_run(self.folder / name)

    def limited(self, name, epochs, launcher):
        """Train to the end under the limit; returns the run, and how often it was queued again."""
        words = ["submit", "--site", "site.toml", "--launcher", launcher, "--yes", *self._training(name, epochs)]
        job = re.search(r"submitted as job (\d+)", self.cluster.run([self.folder / "leapmpi", *words]).stderr)[1]
        wait_for(lambda: self.cluster.state(job).split()[0] == "COMPLETED", 3000, "the end of the job")
        return load_run(self.folder / name), int(self.cluster.state(job).split()[1])

    def _training(self, name, epochs):
        return ["train", self.data, "--run", self.folder / name, "--epochs", epochs, *SETTINGS]


@pytest.fixture(scope="module")
def site(tmp_path_factory, small_data):
    if why := clusters.lacking():
        pytest.skip(why)
    site = Site(tmp_path_factory.mktemp("site"), small_data)
    yield site
    site.cluster.stop()


@pytest.fixture(scope="module")
def whole(site):
    """An undisturbed run about as long as is wanted on this machine today, and its epochs."""
    seconds = site.undisturbed("trial", TRIAL_EPOCHS).summary["seconds"]
    epochs = max(TRIAL_EPOCHS, int(TRIAL_EPOCHS * SECONDS / seconds))
    return site.undisturbed("whole", epochs).summary, epochs


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_run_longer_than_its_time_limit_comes_to_its_end(launcher, site, whole):
    theirs, epochs = whole
    run, restarts = site.limited(f"limited-{launcher}", epochs, launcher)
    assert restarts >= 1
    assert run.summary["parameters_digest"] == theirs["parameters_digest"]
    assert run.summary["best"] == theirs["best"]
