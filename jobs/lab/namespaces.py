"""Hosts made of network namespaces on one switch, whose links a token bucket limits. `hosts` is the program."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

SUBNET = "10.76.0"
SWITCH, HOST = (f"leapmpi-{os.environ.get('LEAPMPI_LAB', 'lab')}-{kind}" for kind in ("switch", "host"))
MOST = 200
"""Largest number of hosts: their addresses share one byte."""

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""


class LabError(Exception):
    """An error, in one sentence."""


def up(hosts: int, rate: str) -> None:
    """Make the hosts; all of them or none. Raises LabError."""
    burst = burst_of(rate)
    if not 1 <= hosts <= MOST:
        raise LabError(f"the number of hosts must be 1 to {MOST}, not {hosts}")
    if SWITCH in namespaces():
        raise LabError(f"{count()} hosts are up already; remove them with: jobs/lab/hosts down")
    run("ip", "netns", "add", SWITCH)  # fails where another `up` was first; then there is nothing to remove
    try:
        run("ip", "-n", SWITCH, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", SWITCH, "link", "set", "bridge", "up")
        for host in range(hosts):
            make_host(host)
        shape(rate, burst)
    except BaseException:
        down()
        raise


def make_host(host: int) -> None:
    """Make a namespace whose eth0 is plugged into the switch."""
    name, port = f"{HOST}{host}", f"port{host}"
    run("ip", "netns", "add", name)
    run("ip", "-n", SWITCH, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "-n", SWITCH, "link", "set", port, "master", "bridge", "up")
    run("ip", "-n", name, "addr", "add", f"{address(host)}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        run("ip", "-n", name, "link", "set", device, "up")


def shape(rate: str, burst: int) -> None:
    """Limit what every host sends, and what the switch sends to it, by a token bucket."""
    for host in range(count()):
        for name, device in ((f"{HOST}{host}", "eth0"), (SWITCH, f"port{host}")):
            bucket = ("tbf", "rate", rate, "burst", str(burst), "latency", "20ms")
            run("tc", "-n", name, "qdisc", "replace", "dev", device, "root", *bucket)


def burst_of(rate: str) -> int:
    """Return the bytes that may pass at once: those of 4 ms, a tick of a slow kernel clock, and at least 128 KiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", rate)
    if not found or not float(found[1]):
        raise LabError(f"give a rate such as 1gbit or 200mbit, not {rate!r}")
    return max(2**17, int(float(found[1]) * UNITS[found[2]] / 8 * 0.004))


def down() -> None:
    """End what runs on the hosts, and remove hosts and switch, also those that a killed `up` left."""
    names = namespaces()
    for kind, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        end = time.monotonic() + seconds
        for process in processes(names):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, kind)
        while processes(names) and time.monotonic() < end:
            time.sleep(0.05)
    for name in names:
        run("ip", "netns", "del", name)


def processes(names: Sequence[str]) -> list[int]:
    """List the processes in namespaces."""
    return [int(word) for name in names for word in run("ip", "netns", "pids", name).split()]


def namespaces() -> list[str]:
    """List the names of the hosts that are up, in order, and of the switch."""
    known = {line.split()[0] for line in run("ip", "netns", "list").splitlines() if line}
    return [name for name in (*(f"{HOST}{host}" for host in range(MOST)), SWITCH) if name in known]


def count() -> int:
    """Count the hosts that are up."""
    return sum(name.startswith(HOST) for name in namespaces())


def check(host: int) -> str:
    """Return the namespace of a host. Raises LabError for one that is not up."""
    hosts = count()
    if not hosts:
        raise LabError("no hosts are up; make some with: jobs/lab/hosts up 4 1gbit")
    if not 0 <= host < hosts:
        raise LabError(f"there is no host {host}: {hosts} are up, numbered from 0")
    return f"{HOST}{host}"


def address(host: int) -> str:
    """Return the host's address."""
    return f"{SUBNET}.{host + 1}"


def run(*command: str) -> str:
    """Run a command; return its standard output. Raises LabError with the command's message when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise LabError(f"`{' '.join(command)}` failed: {message}")
    return done.stdout


def check_machine() -> None:
    """Raise LabError where hosts cannot be made."""
    if os.geteuid() != 0:
        raise LabError("network namespaces need root; start this with sudo")
    if not re.fullmatch(r"[A-Za-z0-9_]{1,40}", os.environ.get("LEAPMPI_LAB", "lab")):
        raise LabError(f"LEAPMPI_LAB must be of letters and digits, not {os.environ['LEAPMPI_LAB']!r}")
    missing = [program for program in ("ip", "tc", "nsenter", "unshare") if not shutil.which(program)]
    if missing:
        raise LabError(f"no {', '.join(missing)} on PATH; install iproute2 and util-linux")
