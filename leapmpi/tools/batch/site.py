"""Site profiles: what a scheduler needs to know about jobs on a cluster, in a short TOML file.

partition = "cpu"
nodes = 4
ranks_per_node = 2
cores_per_rank = 16
modules = ["openmpi/5.0"]
venv = "/home/me/leapmpi/.venv"
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leapmpi.config.setting import Setting, parse_value, setting, settings_of
from leapmpi.config.toml import read_toml
from leapmpi.errors import ConfigError, counted, nearest

LAUNCHERS = ("mpirun", "srun")
_SHOWN = {"slurm": "Slurm", "pbs": "PBS", "flux": "Flux", "kubernetes": "Kubernetes"}
NAMES = tuple(_SHOWN)
_BATCH = ("slurm", "pbs", "flux")
_ONLY_OF = {
    **dict.fromkeys(("stage", "prepare_nodes", "prepare_sbatch", "qos", "sbatch"), ("slurm",)),
    **dict.fromkeys(("account", "partition", "modules"), _BATCH),
    "memory_per_node": ("slurm", "pbs", "kubernetes"),
    **dict.fromkeys(("image", "volume_claim"), ("kubernetes",)),
}
"""Settings that not every scheduler has, with those that have them."""

_MEMORY = re.compile(r"(\d{1,9})(?:([KMGT])(?:i?B?))?", re.IGNORECASE)
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")

_UNLIMITED = ("0", "infinite", "unlimited")
"""Times of Slurm that are no limit."""


@dataclass(frozen=True)
class Site:
    """Profile of a cluster for batch scripts.

    Every field is a key of the profile; `leapmpi submit` takes the scalar ones as flags too.
    """

    scheduler: str = setting("slurm", "scheduler that the job is for", choices=NAMES)
    nodes: int = setting(1, "nodes", least=1)
    ranks_per_node: int = setting(1, "ranks on each node; with GPUs, one per GPU", least=1)
    cores_per_rank: int = setting(1, "cores of each rank", least=1)
    prepare_nodes: int = setting(0, "extra nodes, whose ranks prepare mini-batches for the others", least=0)
    prepare_ranks_per_node: int = setting(1, "ranks on each of these nodes", least=1)
    prepare_cores_per_rank: int = setting(1, "cores of each of these ranks", least=1)
    prepare_sbatch: tuple[str, ...] = setting((), "extra #SBATCH options of these nodes, such as --partition=cpu")
    gpus_per_node: int = setting(0, "GPUs on each node", least=0)
    memory_per_node: str = setting("", "memory of each node, such as 200G; without a unit MiB; 0 for all of it")
    time: str = setting("01:00:00", "time limit, in Slurm's [days-]hours:minutes:seconds or minutes")
    account: str = setting("", "account to charge")
    partition: str = setting("", "partition")
    qos: str = setting("", "quality of service")
    signal_before: int = setting(300, "seconds before the time limit at which a checkpoint is requested", least=10)
    requeue: bool = setting(True, "requeue a job that ends unfinished, with a checkpoint")
    array_limit: int = setting(4, "runs of a sweep at the same time", least=1)
    launcher: str = setting("mpirun", "launcher of the ranks", choices=LAUNCHERS)
    srun_mpi: str = setting("pmix", "MPI interface of srun: pmix (Open MPI), pmi2 (MPICH), cray_shasta")
    stage: str = setting("", "folder on each node's own disk to copy the dataset to, such as /tmp")
    image: str = setting("", "Kubernetes: container image with leapmpi and sshd")
    volume_claim: str = setting("", "Kubernetes: claim of the volume of datasets and runs; jobs work in its folder")
    venv: str = setting("", "virtual environment to activate")
    modules: tuple[str, ...] = setting((), "modules to load")
    commands: tuple[str, ...] = setting((), "extra shell lines before the launch")
    launcher_options: tuple[str, ...] = setting((), "extra options of the launcher")
    sbatch: tuple[str, ...] = setting((), "extra #SBATCH options, such as --constraint=ib")

    @property
    def ranks(self) -> int:
        """Ranks of a job that compute."""
        return self.nodes * self.ranks_per_node

    @property
    def prepare_ranks(self) -> int:
        """Ranks of a job that only prepare."""
        return self.prepare_nodes * self.prepare_ranks_per_node


@dataclass(frozen=True)
class Job:
    """Job of a batch script.

    `command`: words after `program`. `data_at`: position of the dataset's folder among them, or None. `runs`: runs or
    tasks of a job array, 0 for a plain job. `about`: comment at the top of the script.
    """

    name: str
    command: tuple[str, ...]
    program: str = "leapmpi"
    data: str = ""
    data_at: int | None = None
    runs: int = 0
    about: str = ""


def scalars() -> list[Setting]:
    """Return the profile fields that can be flags too, as settings with keys 'site.NAME'."""
    return [each for each in settings_of(Site, "site.").values() if each.type in (int, str, bool)]


def read_site(path: str | Path | None, over: Mapping[str, Any] | None = None) -> Site:
    """Read a profile; `over` ('site.NAME' -> value) takes precedence.

    Without a profile (None) a job is one rank on one node, in the active virtual environment. Raises ConfigError for
    unknown keys and unusable values, naming file and key or the flag.
    """
    # Flags take precedence over the profile.
    known = settings_of(Site, "site.")
    profile = {"venv": _active_venv()} if path is None else read_toml(path)
    given = {f"site.{key}": (value, f"{path}: {key}") for key, value in profile.items()}
    given |= {key: (value, f"--{known[key].flag}") for key, value in (over or {}).items()}

    # Remember the origin of each value, for messages.
    values: dict[str, Any] = {}
    for key, (value, where) in given.items():
        if key not in known:
            names = [name.removeprefix("site.") for name in known]
            raise ConfigError(f"{path}: unknown key {key[5:]!r}; {nearest(key[5:], names)}")
        texts = known[key].type == tuple[str, ...]
        values[key.removeprefix("site.")] = _texts(value, where) if texts else parse_value(known[key], value, where)
    site = Site(**values)
    _check(site, {key.removeprefix("site."): where for key, (_, where) in given.items()})
    return site


def seconds_of(time: str, where: str = "time") -> int:
    """Return the seconds of a time limit: minutes, minutes:seconds, hours:minutes:seconds or days-hours[:...].

    Raises ConfigError, naming `where` it is from, for anything else.
    """
    found = _TIME.fullmatch(time)
    if not found:
        raise ConfigError(f"{where}: {time!r} is not a time limit such as 01:30:00 or 2-00:00:00")
    numbers = [int(each) for each in found["rest"].split(":")]
    if found["days"]:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return ((int(found["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(numbers) == 3:
        return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)


def memory_of(site: Site, where: str = "memory_per_node") -> tuple[int, str]:
    """Return the memory of a node as a number and its unit, K, M, G or T in powers of 1024; 0 where none is set.

    Raises ConfigError, naming `where` it is from, for a text that is no size.
    """
    if not site.memory_per_node:
        return 0, "M"
    if not (found := _MEMORY.fullmatch(site.memory_per_node)):
        raise ConfigError(
            f"{where}: {site.memory_per_node!r} is not a size of memory; give a whole number with K, M, G or "
            "T, such as 200G"
        )
    return int(found[1]), (found[2] or "M").upper()


def _active_venv() -> str:
    """Return the active virtual environment, '' if there is none."""
    return sys.prefix if sys.prefix != sys.base_prefix else ""


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f'{where}: give a list of strings, such as ["one", "two"], not {value!r}')
    return tuple(value)


def _check(site: Site, where: Mapping[str, str]) -> None:
    """Raise ConfigError for values that no job can have; `where` names the origin of each value."""
    for name, value in dataclasses.asdict(site).items():
        texts = value if isinstance(value, tuple) else (str(value),)
        # A line break would begin a line of the script that no one has quoted.
        if any("\n" in text for text in texts):
            raise ConfigError(f"{where[name]}: line breaks are not allowed; give several strings in a list instead")
    for name in ("account", "partition", "qos", "time", "srun_mpi"):
        # These stand in comments of the script, in which bash's quotes mean nothing.
        if not re.fullmatch(r"[\w.,:@+-]*", value := getattr(site, name)):
            raise ConfigError(f"{where[name]}: {value!r} is not a value for sbatch")
    _check_time(site, where)
    memory_of(site, where.get("memory_per_node", ""))
    for name, schedulers in _ONLY_OF.items():
        if site.scheduler not in schedulers and getattr(site, name):
            *others, last = (_SHOWN[each] for each in schedulers)
            having = f"{', '.join(others)} and {last}" if others else last
            raise ConfigError(
                f"{where[name]}: only jobs of {having} have it, not those of {_SHOWN[site.scheduler]}; leave it out"
            )
    if site.scheduler != "slurm" and site.launcher != "mpirun":
        raise ConfigError(f"{where['launcher']}: {site.launcher} is Slurm's, not of {site.scheduler}; leave it out")
    if site.prepare_nodes and site.stage:
        raise ConfigError(f"{where['stage']}: ranks that prepare read the dataset where it is; omit stage")
    if site.prepare_nodes and site.launcher != "srun":
        raise ConfigError(
            f"{where['prepare_nodes']}: nodes of a heterogeneous job are reached by srun; give launcher = 'srun'"
        )
    if site.gpus_per_node and site.ranks_per_node > site.gpus_per_node:
        raise ConfigError(
            f"{where['gpus_per_node']}: {counted(site.ranks_per_node, 'rank')} on a node of "
            f"{counted(site.gpus_per_node, 'GPU')} would "
            "share a GPU; give one rank per GPU, or gpus_per_node = 0 to train on CPUs"
        )


def _check_time(site: Site, where: Mapping[str, str]) -> None:
    """Raise ConfigError for a time limit that is none, or leaves nothing before the request of a checkpoint."""
    if site.scheduler == "slurm" and site.time.lower() in _UNLIMITED:
        return
    # Such a job would be stopped at its start, and queued again and again.
    if seconds_of(site.time, where.get("time", "time")) <= site.signal_before:
        raise ConfigError(
            f"{where.get('time', where.get('signal_before'))}: a job of time {site.time} would be stopped at once, as "
            f"a checkpoint is requested {site.signal_before} s before its end; give a longer --time or a smaller "
            "--signal-before"
        )
