"""Manifests for Kubernetes: an MPIJob (kubeflow.org/v2beta1) of Kubeflow's MPI operator; not tried on a cluster.

JSON, which is also YAML, and which kubectl takes as it is.
"""

from __future__ import annotations

import json
import re
from typing import Any

from leapmpi.errors import ConfigError
from leapmpi.tools.batch.shell import words
from leapmpi.tools.batch.site import Job, Site, memory_of, seconds_of

_MOUNT = "/data"
_ATTEMPTS = 3

_LABEL = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_LONGEST_LABEL = 63
"""Names of hosts, by RFC 1035 and 1123; those of services begin with a letter."""

_CLAIM = r"(?=.{1,253}$)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = (
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?(?::\d{1,5})?/)?"
    rf"{_PART}(?:/{_PART})*"
    r"(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
"""An image: a registry, the path in it, a tag and a digest, as in registry.site:5000/graphs/leapmpi:1."""


def manifest(site: Site, job: Job) -> str:
    """Return the manifest of a job of ranks connected by MPI: a launcher, and a worker for each node.

    Raises ConfigError for what an MPIJob cannot have.
    """
    _check(site, job)
    mpirun = ["mpirun", "-n", str(site.ranks), "--bind-to", "none", "-x", f"OMP_NUM_THREADS={site.cores_per_rank}"]
    launch = words(*mpirun, *site.launcher_options, job.program, *job.command)
    lines = [*site.commands, *([f"cd {_MOUNT}"] if site.volume_claim else []), f"exec {launch}"]
    limits: dict[str, Any] = {"cpu": site.ranks_per_node * site.cores_per_rank}
    number, unit = memory_of(site)
    limits |= {"memory": f"{number}{unit}i"} if number else {}
    limits |= {"nvidia.com/gpu": site.gpus_per_node} if site.gpus_per_node else {}
    launcher = {"command": ["bash", "-c", " && ".join(lines)], "resources": {"limits": {"cpu": 1}}}
    found = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": job.name, "annotations": {"leapmpi/command": job.about.partition(": ")[2]}},
        "spec": {
            "slotsPerWorker": site.ranks_per_node,
            "mpiImplementation": "OpenMPI",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "activeDeadlineSeconds": seconds_of(site.time),
                "backoffLimit": _ATTEMPTS if site.requeue else 0,
            },
            "mpiReplicaSpecs": {
                "Launcher": _replicas(site, 1, "launcher", launcher),
                "Worker": _replicas(site, site.nodes, "worker", {"resources": {"limits": limits}}),
            },
        },
    }
    return json.dumps(found, indent=2) + "\n"


def _check(site: Site, job: Job) -> None:
    """Raise ConfigError for names, images and jobs that Kubernetes or the MPI operator would refuse."""
    if not site.image:
        raise ConfigError("--scheduler kubernetes: name the container image that has leapmpi and sshd by --image")
    if not re.fullmatch(_IMAGE, site.image, re.ASCII):
        raise ConfigError(f"--image {site.image!r} is not the name of an image, such as registry.site:5000/leapmpi:1")
    if job.runs:
        raise ConfigError("--scheduler kubernetes: an MPIJob has no array; submit a job for each --index of the sweep")
    # Hosts of the last worker have the longest name.
    longest = _LONGEST_LABEL - len(f"-worker-{site.nodes - 1}")
    if not re.fullmatch(_LABEL, job.name) or len(job.name) > longest:
        raise ConfigError(
            f"--name {job.name}: Kubernetes allows at most {longest} lower-case letters, digits and dashes here, with "
            "a letter first and no dash at the end"
        )
    if site.volume_claim and not re.fullmatch(_CLAIM, site.volume_claim):
        raise ConfigError(
            f"--volume-claim {site.volume_claim!r} is not the name of a claim; it has lower-case letters, digits, "
            "dashes and dots"
        )


def _replicas(site: Site, count: int, name: str, container: dict[str, Any]) -> dict[str, Any]:
    """Return pods of one kind, with the shared volume of datasets and runs where there is one."""
    container = {"name": name, "image": site.image, **container}
    pod: dict[str, Any] = {"containers": [container]}
    if site.volume_claim:
        container["volumeMounts"] = [{"name": "data", "mountPath": _MOUNT}]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": site.volume_claim}}]
    # A launcher that ended with 75 is started again, and goes on from its checkpoint.
    policy = "OnFailure" if name == "launcher" and site.requeue else "Never"
    return {"replicas": count, "restartPolicy": policy, "template": {"spec": pod}}
