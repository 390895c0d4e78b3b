"""A host cut off the network: healed in time the job goes on; otherwise every rank ends itself and one says why."""

import re
import subprocess
import sys
import time

import pytest

from leapmpi.runs.run import load_run
from tests.jobs.test_hosts import AGENT, HOSTS
from tests.support import cluster as clusters
from tests.support.cluster import Cluster, wait_for

TIMEOUT = 12
"""--comm-timeout; a link that is down for a moment comes back to life after the network's own pauses, which double."""


@pytest.fixture
def cluster(tmp_path):
    if why := clusters.lacking():
        pytest.skip(why)
    made = Cluster(tmp_path, 2)
    yield made
    made.stop()


def ranks_of(cluster):
    """The living ranks on all hosts; launchers and their shells have the same words in their command lines."""
    rank = [sys.executable, "-m", "leapmpi.cli"]
    return [line for line in cluster.programs("leapmpi.cli") if line.split()[2:5] == rank]


def start(cluster, command, settings, output, run):
    """The running job. Slurm's first step on a host that has just come up may fail, which is not what is tested."""
    for _ in range(3):
        with output.open("w") as said:
            job = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                env={**cluster.environment, **settings}, start_new_session=True,
            )  # fmt: skip
        wait_for(lambda job=job: (run / "config.toml").exists() or job.poll() is not None, 120, "the job's start")
        if job.poll() is None:
            return job
    pytest.fail(output.read_text()[-3000:])


@pytest.mark.timeout(400)
def test_a_link_that_heals_in_time_is_no_failure_and_one_that_does_not_ends_every_rank(cluster, small_data, tmp_path):
    run, output = tmp_path / "run", tmp_path / "output"
    (tmp_path / "agent").write_text(AGENT)
    (tmp_path / "agent").chmod(0o755)
    (tmp_path / "hostfile").write_text("10.99.0.1\n10.99.0.2\n")
    # The hosts share /tmp, and clusters of other tests have hosts of the same names.
    settings = {"PRTE_MCA_plm_ssh_agent": str(tmp_path / "agent"), "PRTE_MCA_prte_tmpdir_base": str(tmp_path)}
    settings["OMP_NUM_THREADS"] = "1"
    train = [sys.executable, "-m", "leapmpi.cli", "train", small_data, "--run", run, "--epochs", "100000"]
    train += ["--eval-every", "0", "--device", "cpu", "--comm-timeout", str(TIMEOUT)]
    inside = ["bash", "-c", 'cd "$0" && exec "$@"', tmp_path, HOSTS, tmp_path / "hostfile", *train]

    def epochs():
        return sum(each["event"] == "epoch" for each in load_run(run).metrics())

    job = start(cluster, [*cluster._enter(0), *inside], settings, output, run)
    try:
        assert len(ranks_of(cluster)) == 2
        wait_for(lambda: (run / "config.toml").exists() and epochs() > 3, 120, "the first epochs")
        cluster.link(1, "down")
        time.sleep(2)
        before = epochs()
        cluster.link(1, "up")
        wait_for(lambda: epochs() > before + 3, 60, "epochs after the link was healed")
        assert job.poll() is None

        cluster.link(1, "down")
        cut = time.monotonic()
        wait_for(lambda: not ranks_of(cluster), TIMEOUT + 60, "the ranks of both hosts to end themselves")
        # Left alone, the launcher would wait a quarter of an hour for its daemon on the other host.
        wait_for(lambda: job.poll() is not None, 60, "the end of the launcher")
        assert job.returncode not in (0, 75)
    except AssertionError as error:
        raise AssertionError(f"{error}:\n{output.read_text()[-3000:]}") from error
    finally:
        job.kill()
    text = output.read_text()
    assert time.monotonic() - cut > TIMEOUT / 2, text
    told = [line for line in text.splitlines() if "leapmpi: error: " in line]
    assert len(told) == 1, text
    failure = load_run(run).failure
    assert re.match(rf"no progress for [\d.]+ s \(--comm-timeout {TIMEOUT}\)", failure["why"]), (failure, text)
    assert "rank 1" in failure["why"]
    assert "node1" in failure["why"]
