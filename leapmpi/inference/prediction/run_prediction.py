"""`leapmpi predict`: load weights and data, compute layer by layer, write in the order of the source graph."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.config.setting import parse_size
from leapmpi.dataset.partitioned import Dataset, Splits, open_dataset
from leapmpi.dataset.task_rows import RowTexts, with_task_rows
from leapmpi.dataset.topology import Topology
from leapmpi.engine.own_model import code_of
from leapmpi.errors import RESUMABLE, DataError, counted
from leapmpi.exchange.feeds.share_routes import HIDDEN, TOPOLOGY
from leapmpi.inference.batch_outputs import bounded_outputs
from leapmpi.inference.drawn_lists import lists_of_schema
from leapmpi.inference.layer_work import FEATURES, Expectation
from leapmpi.inference.layerwise import LayerReport
from leapmpi.inference.output.csv_file import CsvFile
from leapmpi.inference.output.delivery import WINDOW_BYTES, deliver, places_of
from leapmpi.inference.output.parquet import ParquetFolder
from leapmpi.inference.output.raw_files import HDF5File, RawFile, Shape
from leapmpi.inference.output.words import Words, class_names, vertex_names
from leapmpi.inference.own_inference import inference_for
from leapmpi.inference.prediction.pair_prediction import PredictionJob, named_pairs, own_ids, write_pairs
from leapmpi.inference.prediction.prediction_request import PredictionRequest
from leapmpi.inference.row_store import RowStore, StagedRows
from leapmpi.nn.model import input_width
from leapmpi.nn.task import TASKS
from leapmpi.plan.homes import home_of, part_starts
from leapmpi.runs.run import Run
from leapmpi.runs.text import listed, size_text
from leapmpi.sampling.edge_lookup import bounds_by_root, reads_times
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.relation_lists import scoring_fanouts
from leapmpi.session.saved_model import SavedModel, notes, read_models, without_training
from leapmpi.session.session import Session, in_session
from leapmpi.system.atomic_files import check_place, remove_abandoned, written_aside
from leapmpi.system.memory import peak_bytes, used_bytes
from leapmpi.version import VERSION

if TYPE_CHECKING:
    from leapmpi.comm.world import Comm, World
    from leapmpi.exchange.context import Loaded, RankContext

log = logging.getLogger("leapmpi")

KINDS = (TOPOLOGY, "ids", FEATURES, HIDDEN)
"""Kinds of bytes in the expectation."""

PER_ANSWER, WINDOWS = 24, 4
"""Bytes of the place and name of a written row; windows of rows held while they are ordered."""

FORMATS: dict[str, type[RawFile]] = {".h5": HDF5File, ".npy": RawFile, ".csv": CsvFile, ".parquet": ParquetFolder}
"""Formats by suffix of the file's name."""

_OF_TIMES = (
    "the run bounds what vertices read by times; predict reads edges of all times, so give it data that end before the "
    "rows to predict"
)


def predict(config: Config, run: Run, request: PredictionRequest, comm: Comm | None = None) -> dict[str, Any]:
    """Write the prediction `request`, by the weights of `run`, for the dataset of `config`. Collective.

    Returns {"out", "what", "rows", "columns", "dtype", "epoch" (from 1), "seconds", "rows_per_second", "bytes" and
    "bytes_of_writing" (by kind, of all ranks), "peak_memory_bytes" (by rank), "layers"}. Raises LeapmpiError for
    mistakes of the user, and leaves `request.out` unchanged.
    """
    return in_session(config, comm, lambda session: _predict(config, run, request, session))


def _predict(config: Config, run: Run, request: PredictionRequest, session: Session) -> dict[str, Any]:
    begun, world = time.perf_counter(), session.world
    if request.stage is not None:
        # Staged rows outlive a stopped job, whose exit code says that --resume continues from them.
        session.signals.exit_code = RESUMABLE
    (saved,) = read_models(world, [(config, run)], request.weights)
    world.on_all(FORMATS[request.out.suffix].check)
    world.on_root(lambda: check_place(request.out, request.overwrite))
    # Each check runs before the next costs more: files first, then the dataset, the weights, the request.
    dataset, texts = world.on_all(lambda: _with_rows(_opened(config, saved.about), request))
    bounded = bounds_by_root(config)
    world.on_all(lambda: request.check_bounded() if bounded else None)
    starts = _starts(dataset, world.size) if texts else None
    loaded = session.load(_plain(saved, bounded), dataset, starts=starts, reads_all_lists=not bounded)
    world.on_all(lambda: saved.give_to(loaded))
    ctx, (names, missing) = loaded.ctx, world.on_all(lambda: vertex_names(dataset, check=world.rank == 0))
    request = world.on_all(lambda: request.for_task(ctx.task))
    layer = world.on_all(lambda: request.layer_of(ctx))
    kind = world.on_all(lambda: request.type_of(dataset, config, layer))
    if world.rank == 0:
        for note in [*notes([saved], loaded), *missing, *[_OF_TIMES] * (reads_times(config) and not bounded)]:
            log.warning("note: %s", note)

    # Bytes of computing and of writing are counted apart: only the first are predicted.
    facts = {"what": request.what, "layer": layer or 0, "epoch": saved.epoch, **_facts(dataset, kind, run)}
    job = PredictionJob(request, dataset, loaded, world, names, facts, kind, texts)
    pairs = named_pairs(job) if request.scores_pairs else None
    wanted = world.on_all(lambda: request.wanted(dataset, names, kind)) if pairs is None else pairs.computed
    rows = _requested_rows(request, dataset, loaded, wanted, kind) if texts is None else _new_rows(loaded, texts)
    store = world.on_all(lambda: _store(saved, request, loaded, wanted, layer, world))
    record = _Record(ctx, layer or len(ctx.model.layers), store.on_disk, len(rows.vertices))
    try:
        with session.phases("evaluate"):
            outputs = _computed(request, config, loaded, layer, rows, store, record)
            computing = _total(ctx, ctx.communicator.byte_counters.take()[0])
            written = _write(job, rows, outputs) if pairs is None else write_pairs(job, pairs, outputs)
            writing = _total(ctx, ctx.communicator.byte_counters.take()[0])
        store.close()
    finally:
        store.release()
    seconds = time.perf_counter() - begun
    peaks = [int(each) for each in ctx.communicator.all_gather_rows(np.array([peak_bytes()]))[:, 0]]
    return {
        "out": str(request.out),
        "what": "scores" if request.scores_pairs else request.what,
        "rows": written.shape[0],
        "columns": written.shape[1] if len(written.shape) > 1 else 1,
        "dtype": str(written.dtype),
        "epoch": saved.epoch,
        "seconds": seconds,
        "rows_per_second": written.shape[0] / seconds,
        "bytes": computing,
        "bytes_of_writing": writing,
        "peak_memory_bytes": peaks,
        "predicted": record.predicted,
        "layers": record.layers,
    }


def _facts(dataset: Dataset, kind: int | None, run: Run) -> dict[str, Any]:
    """Return what the file says about its rows, whatever was computed; `kind` is the number of their type."""
    named = {} if dataset.types is None or kind is None else {"type": dataset.types.vertices[kind].name}
    whole = {"graph_uuid": dataset.graph_uuid, "data": str(dataset.folder), "run": str(run.path)}
    return {"version": VERSION, **named, **whole}


@dataclass(frozen=True)
class _RequestedRows:
    """Rows of the file, and the vertices of this rank that they describe.

    own: int64, original ids of this rank's vertices. vertices: int64 ascending, those to compute. total: rows of the
    file. wanted: int64[total], original ids in the order of the file; None for all vertices. order, places: int64, for
    each row of this rank, the number of its vertex among `vertices`, and its place in the file; None for all.
    """

    own: np.ndarray
    vertices: np.ndarray
    total: int
    wanted: np.ndarray | None = None
    order: np.ndarray | None = None
    places: np.ndarray | None = None


def _requested_rows(
    request: PredictionRequest, dataset: Dataset, loaded: Loaded, wanted: np.ndarray | None, kind: int | None
) -> _RequestedRows:
    """Find the rows of this rank; in a typed graph those of the type `kind`, by number within it. Collective.

    Raises DataError for unknown vertices.
    """
    ctx = loaded.ctx
    own, vertices = own_ids(loaded), np.arange(*ctx.local_range)
    if dataset.types is not None and kind is not None:
        chosen = dataset.types.of_original(own) == kind
        own, vertices = own[chosen] - dataset.types.bases[kind], vertices[chosen]
    if wanted is None:
        total = int(ctx.communicator.all_gather_rows(np.array([own.max(initial=-1)])).max()) + 1
        return _RequestedRows(own, vertices, total)
    found, places = places_of(own, wanted)
    request.check_known(wanted, places, dataset, ctx)
    distinct, order = np.unique(found, return_inverse=True)
    return _RequestedRows(own, vertices[distinct], len(wanted), wanted, order, places)


def _new_rows(loaded: Loaded, texts: RowTexts) -> _RequestedRows:
    """Return the new rows of a task table that this rank computes: where one neighbour is, if roots bound draws. Local.

    Otherwise the last rank owns and computes all of them.
    """
    ctx, topology, count = loaded.ctx, loaded.topology, len(texts.rows)
    ids = np.arange(ctx.vertices - count, ctx.vertices)
    homes = np.full(count, ctx.ranks - 1)
    if isinstance(topology, Topology):
        joined = np.flatnonzero(topology.degree(ids))
        homes[joined] = home_of(topology.indices[topology.indptr[ids[joined]]], ctx.rank_offsets)
    mine = np.flatnonzero(homes == ctx.rank)
    return _RequestedRows(ids[mine], ids[mine], count, None, np.arange(len(mine)), mine)


class _Record:
    """Reports of the layers, with the traffic and memory expected before the first one. Collective to fill."""

    def __init__(self, ctx: RankContext, count: int, on_disk: bool, answers: int) -> None:
        self._ctx, self._count, self._on_disk, self._answers = ctx, count, on_disk, answers
        self.layers: list[dict[str, Any]] = []
        self.predicted: dict[str, Any] = {}

    def report(self, layer: LayerReport) -> None:
        """Add a layer, and show it."""
        self.layers.append(_reported(layer, self._count, self._ctx, self._on_disk))

    def expect(self, expectation: Expectation) -> None:
        """Keep the expectation, and show it."""
        self.predicted.update(_expected(expectation, self._ctx, self._answers))


def _computed(
    request: PredictionRequest,
    config: Config,
    loaded: Loaded,
    layer: int | None,
    rows: _RequestedRows,
    store: RowStore,
    record: _Record,
) -> np.ndarray:
    """Compute the answers for the vertices of this rank. Bytes are counted from here on. Collective."""
    ctx = loaded.ctx
    # Roots with bounds of their own share no hidden rows: a pass layer by layer would not serve them.
    if ctx.sampler.drawing.by_root:
        ctx.communicator.byte_counters.take()
        return request.answers(ctx, bounded_outputs(config, ctx, rows.vertices))
    limit = parse_size(request.memory_limit, "--memory-limit") if request.memory_limit else None
    lists_of, types = None, loaded.dataset.types
    if types is not None:
        layers = (ALL,) * len(ctx.model.layers)
        lists_of = lists_of_schema(ctx, loaded.topology, scoring_fanouts(types, config.sampling, layers))
    given = {"report": record.report, "expect": record.expect, "lists_of": lists_of}
    inference = inference_for(ctx, loaded.topology, limit, store, **given)
    ctx.communicator.byte_counters.take()
    return inference.outputs(rows.vertices, layer, partial(request.answers, ctx))


def _write(job: PredictionJob, rows: _RequestedRows, outputs: np.ndarray) -> Shape:
    """Write `outputs`, one for each vertex of this rank, to the file; return the shape of its rows. Collective."""
    request, world, ctx = job.request, job.world, job.loaded.ctx
    order, places = rows.order, rows.places
    if order is None or places is None:
        # Of all vertices, each has the row of its original id.
        order, places = places_of(rows.own, None)
    named = places if rows.wanted is None else rows.wanted[places]
    shape = Shape((rows.total, *outputs.shape[1:]), outputs.dtype)
    types = job.dataset.types
    first = 0 if types is None or job.kind is None else int(types.bases[job.kind])
    words = Words(job.names, class_names(job.dataset), request.column(ctx.task, outputs.ndim), first, job.texts)
    file = FORMATS[request.out.suffix](shape, world.rank, words)
    with _written(ctx, world, request, file, job.facts):
        deliver(ctx.communicator, places, outputs, order, named, rows.total, file.write)
    return shape


def _opened(config: Config, about: dict[str, Any]) -> Dataset:
    """Open the dataset, which may lack labels, or have other classes than the training data. Raises DataError."""
    dataset = open_dataset(config.data, typed=True)
    task = about.get("task")
    reads = TASKS.load(task).task.reads if task else ()
    kind = dataset.label_kind if not reads or dataset.label_kind in reads else reads[0]
    if not input_width(config, dataset):
        raise DataError(f"{config.data} has no features, which the model reads; import the graph again with features")
    nothing = np.empty(0, np.int64)
    if not dataset.classes:
        dataset = replace(dataset, splits=Splits(nothing, dataset.splits.val, dataset.splits.test))
    # The classes of an edge task are those of its edges.
    of_vertices = not task or TASKS.load(task).task.roots == "vertices"
    dataset = dataset if of_vertices else dataset.of_edges()
    return replace(dataset, classes=about["classes"] if of_vertices else dataset.classes, label_kind=kind)


def _with_rows(dataset: Dataset, request: PredictionRequest) -> tuple[Dataset, RowTexts | None]:
    """Return the dataset with the new rows of the request, and their texts; None without such rows."""
    return (dataset, None) if request.task_table is None else with_task_rows(dataset, request.task_table)


def _starts(dataset: Dataset, ranks: int) -> np.ndarray:
    """Return the first part of each rank, int64[ranks + 1]; new rows are a part more of the last rank."""
    starts = part_starts(dataset.parts - 1, ranks)
    starts[-1] += 1
    return starts


def _plain(saved: SavedModel, keeps_sampler: bool) -> Config:
    """Return the config without settings that affect training alone, for the task of the weights."""
    plain = without_training(saved.config, keeps_sampler)
    return plain.replaced({"train.task": saved.about["task"]}) if "task" in saved.about else plain


def _store(
    saved: SavedModel,
    request: PredictionRequest,
    loaded: Loaded,
    wanted: np.ndarray | None,
    layer: int | None,
    world: World,
) -> RowStore:
    """Make the store of rows of layers. Local. Raises DataError."""
    if request.stage is None:
        return RowStore()
    # Staged rows are used again only where nothing that they depend on has changed.
    weights = hashlib.blake2b(digest_size=16)
    for name in sorted(saved.arrays):
        weights.update(name.encode())
        weights.update(np.ascontiguousarray(saved.arrays[name]))
    vertices = "all" if wanted is None else hashlib.blake2b(np.ascontiguousarray(wanted), digest_size=16).hexdigest()
    values = saved.config.to_values()
    key = {
        "version": VERSION,
        "dataset": loaded.dataset.uuid,
        "weights": weights.hexdigest(),
        "model": {name: str(value) for name, value in values["model"].items()},
        "edge_weights": values["sampling"]["edge_weights"],
        "layers": len(values["sampling"]["fanout"]),
        "dtype": values["train"]["dtype"],
        "code": code_of(saved.config),
        "vertices": vertices,
        "keeps_all": layer is None,
        "ranks": world.size,
    }
    return StagedRows(request.stage, world.rank, key, request.resume)


@contextmanager
def _written(
    ctx: RankContext, world: World, request: PredictionRequest, file: RawFile, facts: dict[str, Any]
) -> Iterator[None]:
    """Create `file` for all ranks to write, and name it when all have. A failure leaves no file. Collective."""
    with ExitStack() as stack:

        def begin() -> list[Any]:
            remove_abandoned(request.out)
            aside = stack.enter_context(written_aside(request.out, overwrite=request.overwrite))
            places = file.create(aside, facts)
            return [str(aside), places]

        path, places = ctx.communicator.all_gather_objects(world.on_root(begin))[0]
        if world.rank == 0:
            stack.callback(file.drop, Path(path), world.size)
        world.on_all(lambda: file.open(Path(path), places))
        yield
        world.on_all(file.close)
        world.on_root(lambda: file.join(Path(path), world.size))
        world.on_root(stack.close)


def _expected(expected: Expectation, ctx: RankContext, answers: int) -> dict[str, Any]:
    """Sum expectations over all ranks; each writes `answers` rows, and rank 0 shows the sums. Collective."""
    received = [expected.received.get(kind, 0) for kind in KINDS]
    features = ctx.features.shard.nbytes
    work = expected.held + max(expected.chunk + expected.look_ups, PER_ANSWER * answers + WINDOWS * WINDOW_BYTES)
    own = [*received, used_bytes() + features + work, expected.held]
    table = ctx.communicator.all_gather_rows(np.array(own))
    sums = table[:, : len(KINDS)].sum(axis=0)
    sent = {kind: int(count) for kind, count in zip(KINDS, sums, strict=True) if count}
    peaks, held = ([int(each) for each in column] for column in table[:, len(KINDS) :].T)
    words = [f"{kind} {size_text(count)}" for kind, count in sent.items()] or ["nothing between ranks"]
    for line in listed("expected", [f"at most {size_text(max(peaks))} per rank", *words], 80).splitlines():
        log.info("%s", line)
    log.debug(f"on a rank rows {size_text(max(held))}, features {size_text(features)}")
    return {"bytes": sent, "peak_memory_bytes": peaks}


def _reported(report: LayerReport, layers: int, ctx: RankContext, on_disk: bool) -> dict[str, Any]:
    """Sum up the report of a layer over all ranks; rank 0 shows it. Collective."""
    own = [report.destinations, report.edges, report.remote_rows, report.shares, report.held_bytes]
    all_ranks = ctx.communicator.all_gather_rows(np.array(own))
    vertices, edges, remote, shares, _ = (int(each) for each in all_ranks.sum(axis=0))
    held = int(all_ranks[:, 4].max())
    chunks = counted(report.rounds, "chunk")
    place = "in files" if on_disk else "held"
    received = f"{remote:,} remote rows" + f", {shares:,} shares" * (shares > 0)
    name = f"layer {report.number} of {layers}"
    log.info(f"{name}: {vertices:,} vertices, {edges:,} edges, {received}  {report.seconds:.1f} s")
    log.debug(
        f"{name}: {report.form} rows in {chunks}; on a rank rows of {size_text(held)} {place}, "
        f"chunk {size_text(report.chunk_bytes)}"
    )
    sums = {"vertices": vertices, "edges": edges, "remote_rows": remote, "shares": shares, "chunks": report.rounds}
    memory = {"held_bytes": held, "chunk_bytes": report.chunk_bytes}
    return {"layer": report.number, "form": report.form, **sums, **memory, "seconds": report.seconds}


def _total(ctx: RankContext, own: dict[str, int]) -> dict[str, int]:
    """Sum up bytes over all ranks, by kind; kinds without any are left out. Collective."""
    sums = ctx.communicator.all_gather_rows(np.array(list(own.values()))).sum(axis=0)
    return {kind: int(count) for kind, count in zip(own, sums, strict=True) if count}
