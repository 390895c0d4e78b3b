"""A cluster of its own for a test: hosts made of Linux namespaces on one bridge, and a real Slurm that runs on them.

Every host has its own network, name, processes, /dev/shm and /mnt; the rest of the file system and the processors are
shared. Jobs of the partition `urgent` preempt those of `test`.

Nothing outside the namespaces is touched, so several clusters, and a Slurm of the machine itself, may run side by side.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.launch import child_environment

PROGRAMS = ("ip", "setpriv", "unshare", "nsenter", "munged", "slurmctld", "slurmd", "sbatch", "scontrol")

# The first process of a host. It reaps orphans, which Slurm would take for living processes.
REAPER = "while :; do sleep 3600 & wait; done"

CONFIGURATION = """\
ClusterName=test
SlurmctldHost=node0(10.99.0.1)
SlurmUser=root
AuthType=auth/munge
# A job that is put back into the queue waits until its old credentials have expired, by default two minutes.
AuthInfo=socket={base}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool-%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd-%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd-%n.log
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
"""

# Open MPI would take hosts whose addresses lie on one bridge for one machine's, and MPICH's UCX does by the kernel.
MPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Open MPI names its folders by process numbers, which hosts with process namespaces have in common.
    "TMPDIR": "/mnt",
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "eth0",
}


def lacking() -> str | None:
    """Why no cluster can be made on this machine; None where it can."""
    if os.geteuid() != 0:
        return "a cluster of namespaces needs root"
    path = _search_path()
    missing = [each for each in PROGRAMS if shutil.which(each, path=path) is None]
    if missing:
        return f"no {', '.join(missing)}: Debian's iproute2, slurm-wlm and munge have them"
    trial = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc"]
    trial += ["ip", "link", "add", "probe0", "type", "veth"]
    tried = subprocess.run(trial, capture_output=True, env={**os.environ, "PATH": path})
    return None if tried.returncode == 0 else "no namespaces with networks of their own can be made here"


def _search_path() -> str:
    return os.pathsep.join([child_environment()["PATH"], "/usr/sbin", "/sbin"])


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Return as soon as `condition` holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)


class Cluster:
    """`hosts` hosts named node0, node1, ..., with Slurm's files in `base`. To be ended by `stop`."""

    def __init__(self, base: Path, hosts: int, cores: int = 2) -> None:
        self.base, self.size = base, hosts
        settings = {"PATH": _search_path(), "SLURM_CONF": str(base / "slurm.conf"), "USER": "root"}
        self.environment = {**child_environment(MPI_SETTINGS), **settings}
        self._holders: list[subprocess.Popen] = []
        try:
            self._make_hosts()
            self._start_slurm(cores)
        except BaseException:
            self.stop()
            raise

    def run(self, command: Sequence[str | Path], host: int = 0, **settings) -> subprocess.CompletedProcess[str]:
        """Run `command` on a host to its end, in `cwd`; keywords are those of subprocess.run."""
        folder = str(settings.pop("cwd", self.base))
        given = {"env": self.environment, "capture_output": True, "text": True, "timeout": 60, **settings}
        # nsenter's own --wd would stay in the mounts outside.
        inside = ["bash", "-c", 'cd "$0" && exec "$@"', folder, *map(str, command)]
        return subprocess.run([*self._enter(host), *inside], **given)

    def said(self, *command: str | Path, **settings) -> str:
        """What `command` prints on host 0; it must succeed."""
        done = self.run(command, **settings)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """The state of a job, such as RUNNING, and its number of restarts: 'RUNNING 1'."""
        words = dict(word.split("=", 1) for word in self.said("scontrol", "show", "job", job).split() if "=" in word)
        return f"{words['JobState']} {words['Restarts']}"

    def programs(self, name: str) -> list[str]:
        """Command lines, on all hosts, of living processes that have `name` in theirs."""
        found = []
        for host in range(self.size):
            lines = self.run(["ps", "-wweo", "stat=,args="], host, check=True).stdout.splitlines()
            found += [f"node{host}: {line}" for line in lines if name in line and line[0] != "Z"]
        return found

    def link(self, host: int, state: str) -> None:
        """Take the network link of a host `down`, or `up` again."""
        self._shell(self.size, f"ip link set port{host} {state}")

    def stop(self) -> None:
        """End every process of the cluster; its networks go with them."""
        for holder in self._holders:
            holder.kill()
            holder.wait()
        self._holders.clear()

    def _make_hosts(self) -> None:
        names = "".join(f"10.99.0.{host + 1} node{host}\n" for host in range(self.size))
        (self.base / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        for _ in range(self.size + 1):
            # With its first process, everything in a process namespace is killed; with this process, the first one.
            spaces = ["--net", "--uts", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
            bound = ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces]
            self._holders.append(subprocess.Popen([*bound, "bash", "-c", REAPER]))
        switch = self.size
        self._shell(switch, "ip link add bridge0 type bridge && ip link set bridge0 up")
        for host in range(self.size):
            inside = f"/proc/{self._first_process(host)}/ns/net"
            # Seen from outside, where a host's process numbers mean something.
            self._shell(switch, f"ip link add port{host} type veth peer name eth0 netns {inside}", "--net")
            self._shell(switch, f"ip link set port{host} master bridge0 up")
            self._shell(
                host,
                f"hostname node{host} && ip link set lo up && ip link set eth0 up && "
                f"ip address add 10.99.0.{host + 1}/24 dev eth0 && "
                f"mount --bind {self.base}/hosts /etc/hosts && mount -t tmpfs tmpfs /dev/shm && "
                "mount -t tmpfs tmpfs /mnt",
            )

    def _start_slurm(self, cores: int) -> None:
        base = self.base
        for name in ("state", *(f"spool-node{host}" for host in range(self.size))):
            (base / name).mkdir()
        key = base / "munge.key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o600)
        nodes = "\n".join(
            f"NodeName=node{host} NodeAddr=10.99.0.{host + 1} CPUs={cores} RealMemory=2000" for host in range(self.size)
        )
        (base / "slurm.conf").write_text(CONFIGURATION.format(base=base, nodes=nodes))
        (base / "mpi.conf").write_text("PMIxCliTmpDirBase=/mnt\n")
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        places = [f"--{option}={base}/munge.{suffix}" for option, suffix in files.items()]
        self.said("munged", "--force", f"--key-file={key}", *places)
        self.said("slurmctld")
        for host in range(self.size):
            self.said("slurmd", "-N", f"node{host}", host=host)
        ready = f"idle {self.size}"
        wait_for(lambda: self.said("sinfo", "-h", "-o", "%T %D") == ready, 30, "Slurm's nodes")

    def _enter(self, host: int, *spaces: str) -> list[str]:
        return ["nsenter", "--target", str(self._first_process(host)), *(spaces or ("--all",))]

    def _first_process(self, host: int) -> int:
        """The host's first process, as it is numbered outside."""
        holder = self._holders[host].pid
        children = Path(f"/proc/{holder}/task/{holder}/children")
        wait_for(lambda: children.read_text().split(), 10, "a namespace")
        return int(children.read_text().split()[0])

    def _shell(self, host: int, script: str, *spaces: str) -> None:
        command = [*self._enter(host, *spaces), "bash", "-c", script]
        subprocess.run(command, check=True, env=self.environment, timeout=30)


def interactive() -> None:
    """Make a cluster of four hosts and open a shell on the first: python -m tests.support.cluster [SCRIPT]."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="leapmpi-cluster-") as folder:
        cluster = Cluster(Path(folder), 4)
        with suppress(KeyboardInterrupt):
            cluster.run(["bash", *sys.argv[1:]], cwd=Path.cwd(), capture_output=False, timeout=None)
        cluster.stop()


if __name__ == "__main__":
    interactive()
