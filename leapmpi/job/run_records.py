"""Records of the start and the end of a run: for people, in the log, in metrics.jsonl and in summary.json."""

from __future__ import annotations

import logging
import platform
import shlex
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from leapmpi.comm.world import library_name, load_mpi
from leapmpi.config.schema import model_names
from leapmpi.config.setting import names_code
from leapmpi.engine.ahead.prefetch_depth import about_depth
from leapmpi.engine.own_model import code_of
from leapmpi.errors import LeapmpiError
from leapmpi.exchange.selection import refused_modes
from leapmpi.job import banner, resume
from leapmpi.job.exact_scores import command
from leapmpi.job.resume import SavedRun
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.report.learning_light import few_updates
from leapmpi.report.run_data import RunData
from leapmpi.report.sections.verdict import verdict
from leapmpi.runs.file_names import CONFIG
from leapmpi.runs.over_seeds import spread_text
from leapmpi.runs.run import FAILED, FINISHED, Run
from leapmpi.runs.run_folder import RunFolder, forget_end, without_losses
from leapmpi.runs.text import scores_text, size_text
from leapmpi.system.memory import peak_bytes
from leapmpi.training.checkpointer import Checkpointer
from leapmpi.training.trainer import Trainer
from leapmpi.version import VERSION

log = logging.getLogger("leapmpi")


def open_records(checkpointer: Checkpointer, saved: SavedRun | None, before: dict[str, Any] | None) -> None:
    """Open log and metrics, and record that the run starts, or that it goes on; and how the start before ended."""
    folder, trainer = checkpointer.folder, checkpointer.trainer
    finished = Run(folder.path).finished
    forget_end(folder.path, resumes=saved is not None)
    # Records after the checkpoint are cut off: the resumed run writes them again.
    whole = folder.open_metrics(saved.state.values["metrics_bytes"] if saved else None)
    handler = _LogFile(folder.open_log())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    if before and before["status"] == FAILED:
        log.info("the start before this one failed: %s", before["why"])
    if saved is None:
        folder.record("start", **_about_program(), config=trainer.config.to_values())
        return

    # A resumed run: drop newer checkpoints, and say where it goes on.
    checkpointer.checkpoints.tidy(saved.name)
    _report_damage(folder, saved, trainer, whole)
    ended = {key: before[key] for key in ("status", "why")} if before else {"status": FINISHED} if finished else None
    progress = trainer.progress
    where = {**progress.position, "checkpoint": saved.name, "ranks": trainer.world.size}
    folder.record("resumed", **_about_program(), **where, after=ended)
    if finished:
        log.info("the finished run of %d epochs continues to epoch %d", progress.epoch, trainer.config.train.epochs)
    log.info(
        "resumed in epoch %d, after iteration %d of %d, from %s",
        *(progress.epoch + 1, progress.iteration, trainer.per_epoch, checkpointer.checkpoints.path / saved.name),
    )
    changed = resume.changes(saved.state.values, trainer.config, trainer.loaded.dataset, trainer.world.size)
    if text := ", ".join(changed):
        log.info("resumed with %s", text)


def _about_program() -> dict[str, Any]:
    """Return the version, the command line of this process, and the versions of what it stands on."""
    versions = {"python": platform.python_version()}
    for name in ("numpy", "torch", "mpi4py", "numba", "h5py"):
        # A library that was copied instead of installed does not say its version.
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    versions["mpi"] = library_name(load_mpi())
    # As people type it, wherever the program is installed.
    program = Path(sys.argv[0]).name
    command = shlex.join(["leapmpi" if program == "__main__.py" else program, *sys.argv[1:]])
    return {"version": VERSION, "command": command, "versions": versions}


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


def announce(trainer: Trainer, folder: RunFolder) -> None:
    """Show and record what the run starts with. Collective."""
    # Every rank reports its host, device, parts and memory; rank 0 shows them.
    world, loaded, engine, origin = trainer.world, trainer.loaded, trainer.engine, trainer.origin
    facts = loaded.ctx.communicator.all_gather_objects(banner.rank_facts(world, loaded))
    if world.rank != 0:
        return
    for line in (*banner.summary_lines(trainer, facts), f"run     {folder.path}"):
        log.info(line)
    for line in (*banner.lines(trainer, facts), *_choices(trainer)):
        log.debug("%s", line)
    for line in (*banner.ignored(trainer), *banner.unverified(trainer.config, facts), *_notices(trainer)):
        log.info("%s", line)
    if world.size == 1 and loaded.dataset.parts > 1:
        # Code runs only when the command line names it.
        name = trainer.config.model.name
        code = f" --model {name}" if names_code(name) else ""
        log.log(
            logging.INFO if code else logging.DEBUG,
            "one process; the same training on %d ranks: mpirun -n %d leapmpi train --config %s%s --run FOLDER",
            *(loaded.dataset.parts, loaded.dataset.parts, folder.path / CONFIG, code),
        )

    # The same for programs.
    remote = {"chosen": engine.mode_name, "predicted_bytes": trainer.prepared.predicted_bytes}
    folder.record(
        "banner",
        uuid=loaded.dataset.uuid,
        metric=trainer.evaluator.metric.name,
        ranks=facts,
        remote=remote,
        economy=trainer.feature_cache.about,
        strategy_choice=origin.choice and origin.choice.to_values(),
        init=origin.initial,
        roles=banner.roles_record(trainer),
        code=code_of(trainer.config),
        rates={**trainer.ctx.machine.to_values(), "measured": trainer.ctx.machine != MachineRates()},
    )


def _choices(trainer: Trainer) -> Iterator[str]:
    """Yield sentences on what was chosen for the run."""
    origin, prepared, engine, ctx = trainer.origin, trainer.prepared, trainer.engine, trainer.loaded.ctx
    if choice := origin.choice:
        yield f"strategy auto: {choice.strategy}, as at first" if origin.restarts else choice.sentence()
    if prepared.predicted_bytes:
        sizes = ", ".join(f"{name} {size_text(count)}" for name, count in prepared.predicted_bytes.items())
        yield f"remote {engine.mode_name}: bytes for the first layer in the first iteration: {sizes}"
        for name, reason in refused_modes(ctx.model.layers[0], ctx.features).items():
            yield f"remote {name} does not apply to {model_names(trainer.config)}: {reason}"
    yield from banner.about_roles(trainer)
    yield from engine.preparation.sentences()
    yield from about_depth(engine, prepared.prefetch_depth)
    yield from trainer.feature_cache.sentences()
    yield from banner.own_modules(trainer)
    if trainer.config.train.early_stop:
        yield f"training stops early after {banner.about_early_stop(trainer)}"


def _notices(trainer: Trainer) -> Iterator[str]:
    """Yield sentences on first weights, models, a missing validation split, and too few updates."""
    if taken := trainer.origin.initial:
        epoch = "" if taken["epoch"] is None else f" of epoch {taken['epoch'] + 1}"
        yield (
            f"first weights: those{epoch} in {taken['from']}, {taken['arrays']} arrays of {taken['parameters']:,} "
            "numbers; optimizer and learning rate start afresh"
        )
    yield from trainer.models.sentences()
    if not trainer.evaluator.size("val"):
        yield banner.about_no_validation(trainer)
    train = trainer.config.train
    if few := few_updates(train.epochs, trainer.per_epoch, train.batch_size == trainer.components.batches.count):
        yield from _wrapped(few)


def _wrapped(sentence: str) -> list[str]:
    """Return lines of at most 80 columns; a number and its percent sign stay together."""
    lines = textwrap.wrap(sentence.replace(" %", "\0%"), 80, subsequent_indent="  ", break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def announce_end(trainer: Trainer, summary: dict[str, Any], path: Path) -> None:
    """Log the best scores, the verdict and how long the run took; `path` is the run folder. Called on rank 0."""
    best = summary["best"]
    scores = scores_text({split: best[split] for split in ("val", "test")})
    if stopped := summary.get("stopped_early"):
        log.info("stopped early at epoch %d: %s", stopped, banner.about_early_stop(trainer))
    metric, sampled = trainer.evaluator.metric.name, trainer.config.evaluation_samples
    of = " of sampled neighbourhoods" if sampled and scores else ""
    log.info("best epoch %d  %s %s%s", best["epoch"] + 1, metric, scores or "not scored", of)
    # Records that cannot be read again, such as those on a full disk, must not spoil the end of a run.
    with suppress(LeapmpiError, ArithmeticError, LookupError, TypeError, ValueError):
        for light, line in verdict(RunData.read(path)).lines():
            for part in _wrapped(line):
                log.info("%s", part, extra={"light": light})
    log.info("finished in %.1f s: %s", summary["seconds"], path / "summary.json")
    if exact := summary.get("exact"):
        log.info("exact scores of the best weights  %s %s", metric, scores_text(exact))
    elif of:
        # The command stays on one line, for whoever copies it.
        log.info("exact scores of the best weights, by:")
        log.info("  %s", command(trainer.config.data, str(path)))
    if found := summary.get("scores_of_models"):
        scored = "  ".join(f"{split} {spread_text(each)}" for split, each in found.items())
        log.info("mean and deviation of %d models  %s %s", len(summary["models"]), metric, scored)


def summary_of(trainer: Trainer) -> dict[str, Any]:
    """Return the content of summary.json, the same on all ranks. Collective."""
    config, world, dataset = trainer.config, trainer.world, trainer.loaded.dataset
    # Collective calls come before the dict, whose values are then the same on all ranks.
    peaks = trainer.ctx.communicator.all_gather_objects(peak_bytes())
    choice, seconds = trainer.origin.choice, trainer.run_seconds()
    return {
        "version": VERSION,
        "strategy": config.strategy.name,
        "strategy_choice": choice and choice.to_values(),
        "ranks": world.size,
        "graph_uuid": dataset.graph_uuid,
        "uuid": dataset.uuid,
        "model": model_names(config),
        "code": code_of(config),
        "metric": trainer.evaluator.metric.name,
        "seconds": seconds,
        "restarts": trainer.origin.restarts,
        "peak_memory_bytes": peaks,
        "parameters_digest": trainer.models.digest(),
        "best": trainer.models.best.to_values(),
        **({"stopped_early": len(trainer.epochs)} if trainer.stops_early else {}),
        "verify": config.run.verify,
        **trainer.models.summary(seconds),
        "epochs": without_losses(trainer.epochs),
    }
