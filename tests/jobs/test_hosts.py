"""jobs/mpirun/hosts: ranks on the machines of a host file, and host files that are refused."""

import subprocess
import sys

import pytest

from tests.support import cluster as clusters
from tests.support.cluster import Cluster
from tests.support.launch import PROJECT, child_environment

HOSTS = PROJECT / "jobs/mpirun/hosts"

# Takes the place of ssh, which has no server here: AGENT ADDRESS COMMANDLINE, in a bare environment.
AGENT = """#!/bin/bash
host=node$((${1##*.} - 1))
shift
exec srun --nodelist="$host" env -i PATH=/usr/bin:/bin HOME=/root USER=root SHELL=/bin/bash bash -c "$*"
"""

RANK = "from leapmpi.comm.world import start; w = start(); print('rank', w.rank, w.host, w.nodes, w.threads)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no machine"),
        ("# nothing\n\n", "names no machine"),
        ("one\ntwo slots=0\n", "line 2: write NAME or NAME slots=RANKS, not 'two slots=0'"),
        ("one two\n", "line 1: write NAME"),
        ("one; rm -rf x\n", "line 1: write NAME"),
    ],
)
def test_bad_host_files_are_refused(text, message, tmp_path):
    (tmp_path / "hosts").write_text(text)
    command = [HOSTS, tmp_path / "hosts", "true"]
    job = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=20)
    assert (job.returncode, job.stdout) == (2, "")
    assert message in job.stderr
    assert job.stderr.count("\n") == 1


def test_ranks_start_on_the_machines_named(tmp_path):
    if why := clusters.lacking():
        pytest.skip(why)
    cluster = Cluster(tmp_path, 2)
    try:
        agent = tmp_path / "agent"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        (tmp_path / "hostfile").write_text("10.99.0.1 slots=2  # this one\n\n10.99.0.2\n")
        environment = {**cluster.environment, "PRTE_MCA_plm_ssh_agent": str(agent), "OMP_NUM_THREADS": "3"}
        job = cluster.run([HOSTS, tmp_path / "hostfile", sys.executable, "-c", RANK], env=environment)
    finally:
        cluster.stop()
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == ["rank 0 node0 2 3", "rank 1 node0 2 3", "rank 2 node1 2 3"]
