"""Manifests for Kubernetes: an MPIJob (kubeflow.org/v2beta1) of Kubeflow's MPI operator; not tried on a cluster.

JSON, which is also YAML, and which kubectl takes as it is.
"""

from __future__ import annotations

import json
from typing import Any

from leapmpi.errors import ConfigError
from leapmpi.tools.batch.shell import words
from leapmpi.tools.batch.site import Job, Site, seconds_of

_MOUNT = "/data"
_ATTEMPTS = 3


def manifest(site: Site, job: Job) -> str:
    """Return the manifest of a job of ranks connected by MPI: a launcher, and a worker for each node.

    Raises ConfigError for what an MPIJob cannot have.
    """
    if not site.image:
        raise ConfigError("--scheduler kubernetes: name the container image that has leapmpi and sshd by --image")
    if job.runs:
        raise ConfigError("--scheduler kubernetes: an MPIJob has no array; submit a job for each --index of the sweep")
    if not job.name.islower() or not all(letter.isalnum() or letter == "-" for letter in job.name):
        raise ConfigError(f"--name {job.name}: Kubernetes allows lower-case letters, digits and dashes")
    mpirun = ["mpirun", "-n", str(site.ranks), "--bind-to", "none", "-x", f"OMP_NUM_THREADS={site.cores_per_rank}"]
    launch = words(*mpirun, *site.launcher_options, job.program, *job.command)
    lines = [*site.commands, *([f"cd {_MOUNT}"] if site.volume_claim else []), f"exec {launch}"]
    limits: dict[str, Any] = {"cpu": site.ranks_per_node * site.cores_per_rank}
    limits |= {"memory": _memory(site.memory_per_node)} if site.memory_per_node else {}
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


def _memory(text: str) -> str:
    """Return a size such as 200G as Kubernetes writes it: 200Gi."""
    return f"{text}i" if text[-1] in "KMGT" else text
