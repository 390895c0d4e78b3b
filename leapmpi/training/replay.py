"""`--replay RUN`: the decisions of an earlier run, if it is one that this run repeats."""

from __future__ import annotations

from leapmpi.config import Config, fields
from leapmpi.decisions import Decision, from_records
from leapmpi.errors import ConfigError, RunFolderError
from leapmpi.run import load_run

_SAME = ("model.", "sampling.", "strategy.", "train.")


def decisions_of(config: Config, ranks: int) -> list[Decision]:
    """What the run in config.run.replay decided by its clocks.

    Raises ConfigError when that run had other settings or another number of ranks, RunFolderError when it has no epoch.
    """
    run = load_run(config.run.replay)
    theirs, ours = _flat(run.config), _flat(config)
    for key, _ in fields():
        if key.startswith(_SAME) and theirs[key] != ours[key]:
            raise ConfigError(
                f"--replay {config.run.replay}: that run had {key} = {theirs[key]}, this one has {ours[key]}; "
                "give the same settings"
            )
    records = run.metrics()
    banner = next((record for record in records if record["event"] == "banner"), None)
    if banner is None or not any(record["event"] == "epoch" for record in records):
        raise RunFolderError(f"--replay {config.run.replay}: the run has recorded no whole epoch")
    if len(banner["ranks"]) != ranks:
        raise ConfigError(f"--replay {config.run.replay}: that run had {len(banner['ranks'])} ranks, this one {ranks}")
    return from_records(records)


def _flat(config: Config) -> dict[str, object]:
    return {
        f"{section}.{key}": value
        for section, values in config.to_values().items()
        if isinstance(values, dict)
        for key, value in values.items()
    }
