"""The doctor on several hosts: addresses, names and links that are set up wrong. Half a minute."""

import re
import shlex
import subprocess

import pytest

from tests.support import cluster as clusters
from tests.support.cluster import Cluster, wait_for
from tests.tools.doctor.test_provoked import DOCTOR, found


def test_hosts_with_a_shared_address_a_wrong_name_and_a_slow_link(tmp_path):
    if why := clusters.lacking():
        pytest.skip(why)
    bridge = "ip link add docker0 type bridge && ip link set docker0 up && ip address add 172.17.0.1/16 dev docker0"
    slow = "tc qdisc add dev eth0 root tbf rate 80mbit burst 64kb latency 20ms"
    (tmp_path / "wrong").write_text("127.0.0.1 localhost\n127.0.1.1 node1\n")
    (tmp_path / "job").write_text(
        f"#!/bin/bash\n#SBATCH --nodes=3 --ntasks=3 --output=out\nmpirun --bind-to none {shlex.join(DOCTOR)} 2>err\n"
    )
    cluster = Cluster(tmp_path, 3)
    try:
        for host in (0, 1):
            cluster.said("bash", "-c", bridge, host=host)
        cluster.said("mount", "--bind", tmp_path / "wrong", "/etc/hosts", host=1)
        cluster.said("bash", "-c", slow, host=2)
        # Open MPI itself is told by a file, so that the job runs all the same.
        (tmp_path / "settings").write_text("btl_tcp_if_include = eth0\n")
        environment = {**cluster.environment, "OMPI_MCA_mca_base_param_files": str(tmp_path / "settings")}
        del environment["OMPI_MCA_btl_tcp_if_include"]
        job = cluster.said("sbatch", "--parsable", "job", env=environment)
        wait_for(lambda: cluster.state(job).split()[0] in ("COMPLETED", "FAILED"), 100, "the doctor")
        state = cluster.state(job)
    finally:
        cluster.stop()
    assert state == "FAILED 0", (tmp_path / "err").read_text()
    said = found(subprocess.CompletedProcess("", 1, (tmp_path / "out").read_text()))
    assert "node0, node1 have the same address 172.17.0.1 (docker0)" in said
    assert "node1 resolves its own name to 127.0.1.1" in said
    assert re.search(r"rank 2 sends to rank [01] at \d+ MB/s; [\d,]+ MB/s are usual between nodes", said)
