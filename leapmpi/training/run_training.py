"""A whole run: start MPI, load, train, record. `leapmpi.train` and the command line call this module."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.config.schema import Config, model_names
from leapmpi.engine.context import Loaded
from leapmpi.engine.exchange.selection import refused_modes
from leapmpi.engine.own_model import changed_code, code_of, findings
from leapmpi.engine.placement import placement_class
from leapmpi.engine.prefetch import about_depth
from leapmpi.engine.tuning_log import STRATEGY, TuningRecord
from leapmpi.errors import RESUMABLE, DataError
from leapmpi.fault_tolerance.report import how_it_ended
from leapmpi.features.learned_rows import without_rows
from leapmpi.nn.model import input_width
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.runs import schemas
from leapmpi.runs.file_names import timeline_file, weights_file
from leapmpi.runs.run import FAILED, FINISHED, Run
from leapmpi.runs.run_folder import RunFolder, check, claim, forget_end, without_losses
from leapmpi.runs.tables.text import score_text, scores_text, size_text
from leapmpi.runs.weights import read_weights
from leapmpi.sampling.edge_lookup import reads_times
from leapmpi.system.memory import peak_bytes
from leapmpi.system.trace import record_timeline
from leapmpi.training import banner, resume
from leapmpi.training.checkpointer import Checkpointer
from leapmpi.training.edges.edge_trainer import EdgeReplicaTrainer, EdgeTrainer, evaluator_class
from leapmpi.training.ensemble_trainer import ReplicaTrainer
from leapmpi.training.evaluation import Evaluator
from leapmpi.training.label_statistics import set_scale
from leapmpi.training.model_state import below
from leapmpi.training.resume import SavedRun
from leapmpi.training.session import Session, in_session
from leapmpi.training.setup import open_for_training, with_new_model
from leapmpi.training.simulation.settled import settle
from leapmpi.training.trainer import Trainer
from leapmpi.version import VERSION

if TYPE_CHECKING:
    from leapmpi.comm.world import Comm

log = logging.getLogger("leapmpi")


def train(config: Config, comm: Comm | None = None) -> Run:
    """Train as `config` says and return the finished run. Collective over `comm` (mpi4py; COMM_WORLD when None).

    MPI is started when it does not run yet and ends with the process. On every rank the result reads the run folder,
    which rank 0 wrote.

    A run folder that holds an unfinished run with a checkpoint, or a finished one of fewer epochs, goes on. Raises
    Interrupted when a signal or the end of the job stopped training, LeapmpiError for what the user can mend, on all
    ranks alike; any other failure of a rank of several ends the whole job through MPI.
    """
    return in_session(config, comm, lambda session: _train(config, session))


def evaluate(
    models: Sequence[tuple[Config, Run]],
    which: str = "best",
    comm: Comm | None = None,
    metrics: Sequence[str] = (),
    by_class: bool = False,
) -> list[dict[str, Any]]:
    """Score the saved weights (`which`: best or final) of runs on val and test. Collective.

    Each run comes with the config it is scored by; all must name the same dataset, sampler and fan-outs. Returns
    {"metric", "epoch" (from 1), "val", "test"} for each; a split without vertices has None. With `metrics`, the first
    of which takes the place of the config's, also {"metrics": {NAME: {"val", "test"}}}; with `by_class` also
    {"classes": {"val", "test"}}, what training/scoring/class_report.py says of each class, label or target, and
    {"class_names"} where they are known.

    Raises DataError when weights belong to another kind of dataset.
    """
    return in_session(models[0][0], comm, lambda session: _evaluate(models, which, session, metrics, by_class))


def make_trainer(config: Config, world: World, loaded: Loaded, begun: float) -> Trainer:
    """A trainer of `config` that is not prepared yet. Collective. Raises ConfigError and ResourceError on all ranks
    alike.

    `begun` is when this start began, on the clock time.perf_counter.
    """
    several, edges = config.strategy.replicas == "independent", loaded.ctx.task.roots == "edges"
    kind: type[Trainer] = ReplicaTrainer if several else Trainer
    if edges:
        kind = EdgeReplicaTrainer if several else EdgeTrainer
    placement = placement_class(config.strategy.name)
    return world.on_all(lambda: kind(config, world, placement.place(world, loaded), begun))


def build_trainer(config: Config, world: World, loaded: Loaded, saved: SavedRun | None, begun: float) -> Trainer:
    """A trainer that is ready to run: kernels compiled, open settings chosen, the state of `saved` restored.

    Collective. Raises ConfigError, DataError and ResourceError, on all ranks alike.
    """
    trainer = make_trainer(config, world, loaded, begun)

    # Choices of an earlier run take the place of measured times; those of this run hold from where it goes on.
    if config.run.replay:
        records = world.on_root(lambda: resume.replayed_records(config, loaded.dataset, world.size))
        trainer.engine.tuning_log.replay(records or [])
    if saved:
        values = saved.state.values
        trainer.engine.tuning_log.begin = values["progress"]["epoch"], values["progress"]["iteration"]
        trainer.prepare({**values["strategy"], **below("strategy", saved.state.arrays)})
        resume.restore(trainer, saved)
    else:
        trainer.prepare()
        if config.train.init:
            trainer.started_from = resume.start_from(trainer)
    return trainer


def _train(config: Config, session: Session) -> Run:
    begun, world = time.perf_counter(), session.world
    # A start that is ended before it trains has changed nothing: the same command may try again.
    session.signals.exit_code = RESUMABLE

    # All that can be refused is refused before a run folder is made.
    dataset = session.open(config)
    run = config.run
    place = run.folder, run.overwrite, config.train.epochs
    found = world.on_root(lambda: resume.find(config, dataset) if check(*place) else None)
    world.on_root(lambda: resume.initial_weights(config) if config.train.init and found is None else None)
    before = how_it_ended(Path(run.folder)) if world.rank == 0 and run.folder else None
    loaded = session.load(config, dataset)
    found_in_models = findings(config, loaded, world)
    saved = resume.broadcast_saved(found, loaded.ctx.communicator)
    config, choice = settle(config, world, loaded, saved)
    trainer = build_trainer(config, world, loaded, saved, begun)
    trainer.strategy_choice = choice
    if choice and not saved:
        trainer.engine.tuning_log.make(TuningRecord(STRATEGY, 0, 0, choice.strategy, choice.to_values()))

    # The run folder. From here on failures and heartbeats are written there, and a signal is noted, to be noticed in
    # the first iteration.
    claimed = world.on_root(lambda: claim(run.folder, run.overwrite, epochs=config.train.epochs))
    path = Path(all_gather_values(world.comm, str(claimed.path) if claimed else "")[0])
    folder = claimed or RunFolder(path)
    session.folder.append(folder.path)
    session.watchdog.write_heartbeats_to(folder.path)
    session.signals.polled = True
    checkpointer = Checkpointer(trainer, folder, session.signals, session.job_end)
    world.on_root(lambda: _open_records(checkpointer, saved, before))
    if saved:
        checkpointer.last = saved.name
    # The run can be resumed from its first moment on.
    elif (checkpointer.every or checkpointer.seconds) and (error := checkpointer.save()):
        raise error
    world.on_root(lambda: folder.start(config))

    _announce(trainer, folder)
    for sentence in found_in_models:
        log.warning("warning: %s", sentence)
    timeline = folder.path / timeline_file(world.rank) if run.timeline else None
    with record_timeline(timeline, session.phases, world.rank, world.name), checkpointer.counting_failures():
        trainer.run(folder, checkpointer)
    checkpointer.save_end()
    summary = _summary(trainer)
    world.on_root(lambda: folder.finish(summary, len(trainer.epochs)))
    if world.rank == 0:
        _announce_end(trainer, summary, folder.path)
    return Run(folder.path)


def _evaluate(
    models: Sequence[tuple[Config, Run]], which: str, session: Session, metrics: Sequence[str], by_class: bool
) -> list[dict[str, Any]]:
    world = session.world
    files = world.on_all(lambda: [read_weights(run.path / weights_file(which), schemas.WEIGHTS) for _, run in models])

    # Evaluation draws as it does while training: node-wise, unless it must not see later edges.
    draws = {} if reads_times(models[0][0]) else {"sampling.sampler": "node-wise", "sampling.options": ()}
    plain = models[0][0].replaced({**draws, "train.class_weights": ""})
    # It leaves nothing to be chosen by the rates of the machine.
    loaded = session.load(plain, world.on_all(lambda: open_for_training(plain)), MachineRates())
    outcomes: list[dict[str, Any]] = []
    for (config, run), (arrays, about) in zip(models, files, strict=True):
        if outcomes:
            loaded = with_new_model(config, loaded)
        world.on_all(partial(_assign, config, run, loaded, arrays, about))
        task = loaded.ctx.task
        scorer = evaluator_class(task) if task.roots == "edges" else Evaluator
        evaluator = world.on_all(partial(scorer, config, loaded.dataset, loaded.topology, loaded.ctx))
        chosen = world.on_all(partial(evaluator.choose, metrics or [evaluator.metric.name]))
        with session.phases("evaluate"):
            found = evaluator.full_report(chosen, by_class)
        name, scores = next(iter(found["metrics"].items()))
        further: dict[str, Any] = {key: each for key, each in found.items() if key != "metrics" or len(metrics) > 1}
        named = "edge_class_names" if task.reads_edge_labels else "class_names"
        if by_class and (class_names := loaded.dataset.attributes.get(named)):
            further["class_names"] = list(map(str, json.loads(str(class_names))))
        outcomes.append({"metric": name, "epoch": about["epoch"] + 1, **scores, **further})
    if world.rank == 0 and files[0][1]["graph_uuid"] != loaded.dataset.graph_uuid:
        log.warning("note: %s holds another graph than the one the run was trained on", models[0][0].data)
    if world.rank == 0:
        for sentence in {
            each for (config, _), (_, about) in zip(models, files, strict=True) for each in changed_code(config, about)
        }:
            log.warning("note: %s", sentence)
    return outcomes


def _assign(config: Config, run: Run, loaded: Loaded, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Give the model in `loaded` the weights of `run`. Raises DataError when they do not fit. Local."""
    dataset = loaded.dataset
    if about.get("task", task := loaded.ctx.task.name) != task:
        raise DataError(f"{run.path} was trained on the task {about['task']}, which is not {task}; give --task")
    width = input_width(config, dataset)
    classes = loaded.ctx.task.classes
    if (about["feature_dim"], about["classes"]) != (width, classes):
        raise DataError(
            f"{config.data} has {width} features and {classes} classes, the run was trained "
            f"on {about['feature_dim']} and {about['classes']}; evaluate it on its own dataset"
        )
    loaded.ctx.parameters.assign(without_rows(arrays), str(run.path))
    if loaded.ctx.learned:
        loaded.ctx.learned.assign(arrays, str(run.path))
    if scale := about.get("target_scale"):
        set_scale(loaded.ctx, np.array(scale))


def _open_records(checkpointer: Checkpointer, saved: SavedRun | None, before: dict[str, Any] | None) -> None:
    """Open log and metrics, and record that the run starts, or that it goes on; and how the start before ended."""
    folder, trainer = checkpointer.folder, checkpointer.trainer
    finished = Run(folder.path).finished
    forget_end(folder.path, goes_on=saved is not None)
    whole = folder.open_metrics(saved.state.values["metrics_bytes"] if saved else None)
    handler = _LogFile(folder.open_log())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    if before and before["status"] == FAILED:
        log.info("the start before this one failed: %s", before["why"])
    if saved is None:
        folder.record("start", version=VERSION, config=trainer.config.to_values())
        return

    # A resumed run: drop newer checkpoints, and say where it goes on.
    checkpointer.checkpoints.tidy(saved.name)
    _report_damage(folder, saved, trainer, whole)
    ended = {key: before[key] for key in ("status", "why")} if before else {"status": FINISHED} if finished else None
    progress = trainer.progress
    where = {**progress.position, "checkpoint": saved.name, "ranks": trainer.world.size}
    folder.record("resumed", version=VERSION, **where, after=ended)
    if finished:
        log.info("the finished run of %d epochs goes on to epoch %d", progress.epoch, trainer.config.train.epochs)
    log.info(
        "resumed in epoch %d, after iteration %d of %d, from %s",
        *(progress.epoch + 1, progress.iteration, trainer.per_epoch, checkpointer.checkpoints.path / saved.name),
    )
    changed = resume.changes(saved.state.values, trainer.config, trainer.loaded.dataset, trainer.world.size)
    if text := ", ".join(changed):
        log.info("resumed with %s", text)


class _LogFile(logging.StreamHandler[TextIO]):
    """Writes to a file that is closed with it."""

    def close(self) -> None:
        self.stream.close()
        super().close()


def _report_damage(folder: RunFolder, saved: SavedRun, trainer: Trainer, whole: bool) -> None:
    """Warn of damaged checkpoints and records; write the records of epochs again that are lost."""
    for complaint in saved.complaints:
        log.warning("warning: a checkpoint is damaged (%s); %s, the one before, is used", complaint, saved.name)
    if not whole:
        log.warning("warning: metrics.jsonl has lost records; those of epochs are written again, without batch losses")
        kept = {record["epoch"] - 1 for record in Run(folder.path).metrics() if record["event"] == "epoch"}
        for record in trainer.epochs:
            if record["epoch"] not in kept:
                folder.record("epoch", **record)


def _announce(trainer: Trainer, folder: RunFolder) -> None:
    """Show and record what the run starts with. Collective."""
    # Every rank reports its host, device, parts and memory; rank 0 shows them.
    world, loaded, engine = trainer.world, trainer.loaded, trainer.engine
    facts = loaded.ctx.communicator.all_gather_objects(banner.rank_facts(world, loaded))
    if world.rank != 0:
        return
    for line in banner.lines(trainer, facts):
        log.info(line)

    # What was chosen, and which settings do not act.
    if choice := trainer.strategy_choice:
        log.info(f"strategy auto: {choice.strategy}, as at first" if trainer.restarts else choice.sentence())
    if trainer.predicted_bytes:
        sizes = ", ".join(f"{name} {size_text(count)}" for name, count in trainer.predicted_bytes.items())
        log.info("remote %s: bytes for the first layer in the first iteration: %s", engine.mode_name, sizes)
        for name, reason in refused_modes(loaded.ctx.model.layers[0]).items():
            log.info("remote %s is left out: %s", name, reason)
    told = *about_depth(engine, trainer.prefetch_depth), *trainer.feature_cache.sentences(), *banner.ignored(trainer)
    for sentence in (*told, *banner.own_modules(trainer), *banner.unverified(trainer.config, facts)):
        log.info(sentence)
    if taken := trainer.started_from:
        epoch = "" if taken["epoch"] is None else f" of epoch {taken['epoch'] + 1}"
        log.info(
            "first weights: those%s in %s, %d arrays of %s numbers; optimizer and learning rate begin anew",
            *(epoch, taken["from"], taken["arrays"], f"{taken['parameters']:,}"),
        )
    if trainer.config.train.early_stop:
        log.info("training stops early after %s", banner.about_early_stop(trainer))
    if isinstance(trainer, ReplicaTrainer):
        log.info("%d models that differ: %s", len(trainer.replicas), ", ".join(r.label for r in trainer.replicas))
    log.info("run folder %s", folder.path)
    if not trainer.evaluator.size("val"):
        roots = loaded.ctx.task.roots
        log.info("no validation %s: the last epoch counts as the best", roots)

    # The same for programs.
    remote = {"chosen": engine.mode_name, "predicted_bytes": trainer.predicted_bytes}
    folder.record(
        "banner",
        uuid=loaded.dataset.uuid,
        ranks=facts,
        remote=remote,
        economy=trainer.feature_cache.about,
        strategy_choice=trainer.strategy_choice and trainer.strategy_choice.to_values(),
        init=trainer.started_from,
        code=code_of(trainer.config),
    )


def _announce_end(trainer: Trainer, summary: dict[str, Any], path: Path) -> None:
    best = summary["best"]
    scores = scores_text({split: best[split] for split in ("val", "test")})
    trivial: dict[str, Any] = next((each["trivial"] for each in trainer.epochs if "trivial" in each), {})
    val = trivial.get("val")
    if None not in (best["val"], val) and not trainer.evaluator.metric.better(best["val"], val):
        scores += f" (no better than one answer for all, {trivial['answer']}: val {score_text(trivial['val'])})"
    if stopped := summary.get("stopped_early"):
        log.info("stopped early at epoch %d: %s", stopped, banner.about_early_stop(trainer))
    log.info("best epoch %d  %s %s", best["epoch"] + 1, trainer.evaluator.metric.name, scores or "not scored")
    for split, figures in summary.get("scores_of_models", {}).items():
        log.info("%s: mean %.4f, deviation %.4f over %d models", split, *figures.values(), len(summary["models"]))
    if lossy := summary["row_error"]:
        log.info(
            "lossy: %s rows were sent as %s, with a relative error of %.1e in the mean, %.1e at most",
            *(f"{lossy['rows']:,}", lossy["wire_dtype"], lossy["mean"], lossy["max"]),
        )
    log.info("finished in %.1f s: %s", summary["seconds"], path / "summary.json")


def _summary(trainer: Trainer) -> dict[str, Any]:
    """What summary.json holds, the same on all ranks. Collective."""
    config, world, dataset = trainer.config, trainer.world, trainer.loaded.dataset
    peaks = trainer.ctx.communicator.all_gather_objects(peak_bytes())
    models: dict[str, Any] = {}
    if isinstance(trainer, ReplicaTrainer):
        models = {"models": trainer.about_models(), "scores_of_models": trainer.scores_of_models()}
    return {
        "version": VERSION,
        "strategy": config.strategy.name,
        "strategy_choice": trainer.strategy_choice and trainer.strategy_choice.to_values(),
        "ranks": world.size,
        "graph_uuid": dataset.graph_uuid,
        "uuid": dataset.uuid,
        "model": model_names(config),
        "code": code_of(config),
        "metric": trainer.evaluator.metric.name,
        "seconds": trainer.run_seconds(),
        "restarts": trainer.restarts,
        "peak_memory_bytes": peaks,
        "parameters_digest": trainer.digest(),
        "best": trainer.best.to_values(),
        **({"stopped_early": len(trainer.epochs)} if trainer.stops_early else {}),
        "verify": config.run.verify,
        "row_error": trainer.feature_cache.measured_error(trainer.epochs),
        **models,
        "epochs": without_losses(trainer.epochs),
    }
