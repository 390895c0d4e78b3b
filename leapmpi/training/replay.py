"""`--replay RUN`: the tuning records of an earlier run, if it is one that this run repeats."""

from __future__ import annotations

from leapmpi.config.schema import Config
from leapmpi.config.sections import fields, flattened
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.tuning_log import TuningRecord, from_records
from leapmpi.errors import ConfigError, RunFolderError
from leapmpi.runs.run import load_run

_SAME = ("model.", "sampling.", "strategy.", "train.")


def replayed_records(config: Config, dataset: Dataset, ranks: int) -> list[TuningRecord]:
    """What the run in config.run.replay chose by measured times.

    Raises ConfigError when that run had other settings, another dataset or another number of ranks at any time,
    RunFolderError when it has no epoch.
    """
    run = load_run(config.run.replay)
    theirs, ours = flattened(run.config.to_values()), flattened(config.to_values())
    for key, _ in fields():
        if key.startswith(_SAME) and theirs[key] != ours[key]:
            raise ConfigError(
                f"--replay {config.run.replay}: that run had {key} = {theirs[key]}, this one has {ours[key]}; "
                "give the same settings"
            )
    records = run.metrics()
    banners = [record for record in records if record["event"] == "banner"]
    if not banners or not any(record["event"] == "epoch" for record in records):
        raise RunFolderError(f"--replay {config.run.replay}: the run has recorded no whole epoch")
    first, *others = (len(banner["ranks"]) for banner in banners)
    if first != ranks:
        raise ConfigError(f"--replay {config.run.replay}: that run had {first} ranks, this one {ranks}")
    if moved := next((each for each in others if each != first), None):
        raise ConfigError(
            f"--replay {config.run.replay}: that run went on on {moved} ranks after it had begun on {first}; only a "
            "run on the same ranks throughout can be replayed"
        )
    # Runs of earlier versions do not say.
    if any(banner.get("uuid", dataset.uuid) != dataset.uuid for banner in banners):
        raise ConfigError(
            f"--replay {config.run.replay}: that run was trained on another dataset than {config.data}; name its own"
        )
    return from_records(records)
