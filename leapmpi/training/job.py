"""A whole run: start MPI, load, train, record. `leapmpi.train` and the command line are this module."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from leapmpi import __version__
from leapmpi.config import Config
from leapmpi.errors import DataError
from leapmpi.files import explain
from leapmpi.gathering import gather_values
from leapmpi.run import Run
from leapmpi.training import banner
from leapmpi.training.evaluation import Evaluator
from leapmpi.training.loading import Loaded
from leapmpi.training.loop import Trainer, size_text
from leapmpi.training.memory import peak_bytes
from leapmpi.training.parameters import read_weights
from leapmpi.training.run_folder import RunFolder, check, claim, forget_failure
from leapmpi.training.session import Session, check_settings, in_session
from leapmpi.world import World, together

log = logging.getLogger("leapmpi")


def train(config: Config, comm: Any = None) -> Run:
    """Train as `config` says and return the finished run. Collective over `comm` (mpi4py; COMM_WORLD when None).

    MPI is started when it does not run yet and ends with the process. On every rank the result reads the run folder,
    which rank 0 wrote.

    Raises LeapmpiError on all ranks alike for what the user can mend; any other failure of a rank of several ends
    the whole job through MPI.
    """
    return in_session(config, comm, lambda session: _train(config, session))


def evaluate(config: Config, run: Run, which: str = "best", comm: Any = None) -> dict[str, Any]:
    """Score the saved weights (`which`: best or final) of `run` on val and test of config.data. Collective.

    Returns {"metric", "epoch", "val", "test"}; a split without vertices has None.

    Raises DataError when the weights belong to another kind of dataset.
    """
    return in_session(config, comm, lambda session: _evaluate(config, run, which, session))


def _train(config: Config, session: Session) -> Run:
    begin, world = time.perf_counter(), session.world
    # All that can be refused is refused before a run folder is made.
    together(world, lambda: check_settings(config, world))
    together(world, lambda: check(config.run.folder, config.run.overwrite) if world.rank == 0 else None)
    loaded = session.load(config)
    trainer = together(world, lambda: Trainer(config, world, loaded))
    loaded = trainer.loaded
    trainer.prepare()
    claimed = together(world, lambda: claim(config.run.folder, config.run.overwrite) if world.rank == 0 else None)
    path = gather_values(world.comm, str(claimed.path) if claimed else None)[0]
    folder = claimed or RunFolder(Path(path))
    session.folder.append(folder.path)
    together(world, lambda: _open_records(config, folder) if world.rank == 0 else None)
    trainer.folder = folder
    _announce(config, world, loaded, trainer, folder.path)
    trainer.run()
    summary = _summary(config, world, loaded, trainer, time.perf_counter() - begin)
    together(world, lambda: folder.finish(summary) if world.rank == 0 else None)
    if world.rank == 0:
        _announce_end(trainer, summary, folder.path)
    return Run(folder.path)


def _evaluate(config: Config, run: Run, which: str, session: Session) -> dict[str, Any]:
    world = session.world
    arrays, about = together(world, lambda: read_weights(run.path / f"weights-{which}.h5"))
    loaded = session.load(config)

    def assign() -> None:
        dataset = loaded.dataset
        if (about["feature_dim"], about["classes"]) != (dataset.feature_dim, dataset.classes):
            raise DataError(
                f"{config.data} has {dataset.feature_dim} features and {dataset.classes} classes, the run was trained "
                f"on {about['feature_dim']} and {about['classes']}; evaluate it on its own dataset"
            )
        loaded.at.parameters.assign(arrays, str(run.path))
        if world.rank == 0 and about["graph_uuid"] != dataset.graph_uuid:
            log.warning("note: %s holds another graph than the one the run was trained on", config.data)

    together(world, assign)
    evaluator = together(world, lambda: Evaluator(config, loaded.dataset, loaded.topology, loaded.at))
    with session.phases("evaluate"):
        return {"metric": evaluator.metric, "epoch": about["epoch"], **evaluator.scores()}


def _open_records(config: Config, folder: RunFolder) -> None:
    forget_failure(folder.path)
    folder.start(config)
    try:
        handler = logging.FileHandler(folder.log, encoding="utf-8")
    except OSError as error:
        raise explain(error, folder.log) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    folder.record("start", version=__version__, config=config.to_values())


def _announce(config: Config, world: World, loaded: Loaded, trainer: Trainer, path: Path) -> None:
    facts = loaded.at.wire.gather_objects(banner.rank_facts(world, loaded))
    if world.rank != 0:
        return
    for line in banner.lines(config, world, loaded, trainer.strategy, facts):
        log.info(line)
    if trainer.predicted:
        sizes = ", ".join(f"{name} {size_text(count)}" for name, count in trainer.predicted.items())
        log.info("remote %s: bytes for the first layer in the first iteration: %s", trainer.strategy.remote_name, sizes)
    log.info("run folder %s", path)
    if not len(loaded.dataset.splits.val):
        log.info("no validation vertices: the last epoch counts as the best")
    remote = {"chosen": trainer.strategy.remote_name, "predicted_bytes": trainer.predicted}
    trainer.folder.record("banner", ranks=facts, remote=remote)


def _announce_end(trainer: Trainer, summary: dict[str, Any], path: Path) -> None:
    best = summary["best"]
    known = {split: best[split] for split in ("val", "test") if best[split] is not None}
    scores = " ".join(f"{split} {score:.4f}" for split, score in known.items())
    log.info("best epoch %d  %s %s", best["epoch"] + 1, trainer.evaluator.metric, scores or "not scored")
    log.info("finished in %.1f s: %s", summary["seconds"], path / "summary.json")


def _summary(config: Config, world: World, loaded: Loaded, trainer: Trainer, seconds: float) -> dict[str, Any]:
    """What summary.json holds, the same on all ranks. Collective."""
    best, dataset = trainer.best, loaded.dataset
    peaks = loaded.at.wire.gather_objects(peak_bytes())
    return {
        "version": __version__,
        "strategy": config.strategy.name,
        "ranks": world.size,
        "graph_uuid": dataset.graph_uuid,
        "uuid": dataset.uuid,
        "model": config.model.name,
        "metric": trainer.evaluator.metric,
        "seconds": seconds,
        "peak_memory_bytes": peaks,
        "parameters_digest": loaded.at.parameters.digest(),
        "best": {"epoch": best.epoch, "val": best.val, "test": best.test},
        "epochs": [{key: value for key, value in each.items() if key != "losses"} for each in trainer.epochs],
    }
