"""The requested prediction: the kind of output, its vertices, and its file; checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.config.setting import check_size
from leapmpi.dataset.named_vertices import read_vertices
from leapmpi.dataset.names_of_vertices import VertexNames
from leapmpi.dataset.partitioned import Dataset
from leapmpi.errors import ConfigError, DataError
from leapmpi.exchange.context import RankContext
from leapmpi.nn.task import Task
from leapmpi.nn.tasks.recommend import Recommend
from leapmpi.sampling.relation_lists import reached_in_training
from leapmpi.sampling.sharded.topology_shard import original_ids

LOGITS, CLASSES, EMBEDDINGS = "logits", "classes", "embeddings"
WHAT = (LOGITS, CLASSES, EMBEDDINGS)
SUFFIXES = (".h5", ".npy", ".csv", ".parquet")
OF_PAIRS = (".h5", ".csv")
"""Ends of the names of files with scores of pairs."""
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class PredictionRequest:
    """The arguments of `leapmpi predict`, checked alone. Raises ConfigError."""

    out: Path
    """A file that ends in one of SUFFIXES."""
    what: str = ""
    """One of WHAT; empty: logits, or for a task on edges embeddings."""
    layer: int | None = None
    """The layer of embeddings, from 1; None for the last hidden one."""
    vertices: str = ""
    """A file of original ids (.npy) or of names (text), or one of SPLITS; empty: all. In a typed graph ids count the
    rows of the type.
    """
    pairs: Path | None = None
    """A file of pairs of vertices, which a run of a task on edges scores."""
    top: int = 0
    """Number of best partners of each vertex, or with `classes` of best entities, to be written; 0: none."""
    weights: str = "best"
    """`best` or `final` of the run, or a file of weights."""
    memory_limit: str = ""
    stage: Path | None = None
    resume: bool = False
    overwrite: bool = False
    type: str = ""
    """Type of the vertices in a typed graph; empty: the target type."""
    relation: str = ""
    """Relation of the pairs in a typed graph, whose vertices are then named by original ids, or by names."""
    task_table: Path | None = None
    """A file of new rows of the target table, made by `leapmpi-prep task-table`, which are predicted."""

    def __post_init__(self) -> None:
        if self.out.suffix not in SUFFIXES:
            raise ConfigError(f"--out {self.out}: the name has to end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
        if self.what and self.what not in WHAT:
            raise ConfigError(f"--what {self.what}: expected one of {', '.join(WHAT)}")
        if not isinstance(self.vertices, str | Path):
            raise ConfigError("--vertices: give the name of a split or of a file of ids, as numpy.save writes it")
        if self.layer is not None and (self.what != EMBEDDINGS or self.layer < 1):
            raise ConfigError(f"--layer {self.layer}: it numbers layers from 1, and goes with --what embeddings")
        if self.resume and self.stage is None:
            raise ConfigError("--resume continues from the rows of layers in a folder; name it: --stage FOLDER")
        self._check_pairs()
        for flag, given in (
            ("--vertices", self.vertices),
            ("--type", self.type),
            ("--pairs", self.pairs),
            ("--top", self.top and self.what != CLASSES),
            ("--stage", self.stage),
        ):
            if given and self.task_table is not None:
                raise ConfigError(f"{flag}: --task-table says what is predicted, and rows of layers are not kept")
        check_size(self.memory_limit, "--memory-limit")

    def _check_pairs(self) -> None:
        """Raise ConfigError for flags that do not fit scores of pairs."""
        if self.top < 0:
            raise ConfigError(f"--top {self.top}: give a number from 1 on")
        if not self.scores_pairs:
            if self.relation:
                raise ConfigError(f"--relation {self.relation}: it is that of pairs; add --pairs FILE or --top K")
            return
        flag = f"--pairs {self.pairs}" if self.pairs is not None else f"--top {self.top}"
        if self.pairs is not None and self.top:
            raise ConfigError(f"{flag}: give either --pairs or --top {self.top}")
        if self.out.suffix not in OF_PAIRS:
            raise ConfigError(f"--out {self.out}: with {flag} the name has to end in {' or '.join(OF_PAIRS)}")
        for other, given in (
            ("--what", self.what),
            ("--layer", self.layer),
            ("--type", self.type),
            ("--vertices", self.pairs and self.vertices),
        ):
            if given:
                raise ConfigError(f"{flag}: scores of pairs have no {other}; leave it out")

    def check_bounded(self) -> None:
        """Raise ConfigError for flags that do not fit a run whose roots bound by their times what they read."""
        for flag, given in (
            ("--what embeddings", self.what == EMBEDDINGS),
            ("--stage", self.stage is not None),
            ("--memory-limit", bool(self.memory_limit)),
        ):
            if given:
                raise ConfigError(
                    f"{flag}: the run has bound=root, so a vertex has other rows for each root, and none are held; "
                    "leave it out"
                )

    @property
    def scores_pairs(self) -> bool:
        """Whether scores of pairs are written, rather than rows of vertices."""
        return self.pairs is not None or (self.top > 0 and self.what != CLASSES)

    def for_task(self, task: Task) -> PredictionRequest:
        """Return the request with `what` chosen for the model's task. Raises ConfigError for pairs of another task."""
        of_edges, recommends = task.roots == "edges", isinstance(task, Recommend)
        if self.top and recommends and self.scores_pairs:
            raise ConfigError(f"--top {self.top}: add --what classes, to write the best entities of each row")
        if self.top and self.what == CLASSES and not recommends:
            raise ConfigError(f"--top: the task {task.name} ranks no entities; leave it out of --what classes")
        if self.what == CLASSES and recommends:
            return self._of_entities(task.classes)
        if self.scores_pairs and not of_edges:
            flag = "--pairs" if self.pairs is not None else "--top"
            raise ConfigError(f"{flag}: the task {task.name} scores no pairs; train with --task link for that")
        if self.top and task.name != "link":
            raise ConfigError(f"--top: the task {task.name} does not rank partners; score pairs by --pairs FILE")
        if self.scores_pairs:
            return self
        # Outputs of a task on edges are embeddings.
        what = EMBEDDINGS if of_edges and self.what in ("", LOGITS) else self.what or LOGITS
        return replace(self, what=what)

    def _of_entities(self, entities: int) -> PredictionRequest:
        """Return the request for the best of so many entities, 10 by default. Raises ConfigError for more than all."""
        if self.top > entities:
            raise ConfigError(f"--top {self.top}: the run ranks {entities} entities; give at most as many")
        return replace(self, top=self.top or min(10, entities))

    def layer_of(self, ctx: RankContext) -> int | None:
        """Return the layer whose rows are requested, from 1; None for the model's outputs. Raises ConfigError."""
        model, layers = ctx.model, len(ctx.model.layers)
        if self.what == CLASSES and ctx.task.answers not in ("multi-class", "multi-label"):
            raise ConfigError(f"--what classes: the task {ctx.task.name} has none; use logits or embeddings")
        # Where edges are predicted, the outputs are the embeddings.
        if self.what != EMBEDDINGS or (self.layer is None and ctx.task.roots == "edges"):
            return None
        last = layers if model.head is not None else layers - 1
        found = last if self.layer is None else self.layer
        if not 1 <= found <= layers:
            mend = f"give --layer 1 to {layers}" if self.layer is not None else "use --what logits"
            raise ConfigError(f"--what embeddings: layer {found} does not exist, the model has {layers}; {mend}")
        return found

    def relation_of(self, dataset: Dataset) -> int | None:
        """Return the number of the relation of pairs in a typed graph; None without pairs or types.

        Raises ConfigError for an unknown one, for a reverse, which is not trained, or none where it is needed.
        """
        if dataset.types is None or not self.scores_pairs:
            if self.relation:
                raise ConfigError(f"--relation {self.relation}: {dataset.folder} is a plain graph; leave it out")
            return None
        relations = dataset.types.relations
        number = dataset.types.relation_numbers.get(self.relation)
        if number is None:
            fault = f"{self.relation}: the graph has no such relation, or several"
            fault = fault if self.relation else "is missing: pairs of a typed graph have one"
            raise ConfigError(f"--relation {fault}; leapmpi-prep info lists them, such as {relations[0]}")
        if (forward := relations[number].reverse_of) is not None:
            raise ConfigError(
                f"--relation {self.relation}: reverses that were added to the source are never trained; give "
                f"--relation {relations[forward]}, and the other end of each pair first"
            )
        return number

    def type_of(self, dataset: Dataset, config: Config, layer: int | None) -> int | None:
        """Return the number of the requested type of vertices; None in a plain graph. Raises ConfigError.

        layer: that of `layer_of`; a type has rows in the layers that compute it on the way to the target type.
        """
        types = dataset.types
        if types is None:
            if self.type:
                raise ConfigError(f"--type {self.type}: {dataset.folder} is a plain graph, without types; leave it out")
            return None
        if self.scores_pairs:
            return None
        known = [each.name for each in types.vertices]
        name = self.type or types.target or (known[0] if len(known) == 1 else "")
        if not name:
            raise ConfigError(f"--type: the rows of one type are written; name one of {', '.join(known)}")
        if name not in known:
            raise ConfigError(f"--type {name}: the dataset has no such type; it has {', '.join(known)}")
        number, found = known.index(name), reached_in_training(types, config.sampling).types
        # Hops count from the roots, layers from the input.
        hop = 0 if layer is None else len(found) - 1 - layer
        if not found[hop, number]:
            mend = f"use --type {types.target}, or --what embeddings with a lower --layer"
            raise ConfigError(f"--type {name}: no layer computes outputs of it; {mend}")
        return number

    def wanted(self, dataset: Dataset, names: VertexNames | None = None, kind: int | None = None) -> np.ndarray | None:
        """Return the requested original ids, int64, in the order of the output; None for all. Local.

        In a typed graph they count within the type number `kind`. Raises DataError for a file that cannot be read, or
        that names vertices of another type.
        """
        if not self.vertices:
            return None
        if self.vertices in SPLITS:
            ids = original_ids(dataset, np.asarray(getattr(dataset.splits, self.vertices)))
            if not len(ids):
                fault = f"{dataset.folder} has no vertices of this split"
                raise DataError(f"--vertices {self.vertices}: {fault}; give another split, or a file")
            target = None if dataset.types is None else dataset.types.target_number
            return ids if dataset.types is None or target is None else ids - dataset.types.bases[target]
        found = read_vertices(Path(self.vertices), 1, names, "--vertices")[:, 0]
        if dataset.types is None or kind is None or names is None or Path(self.vertices).suffix == ".npy":
            return found
        # Names are those of all types, one type after the other.
        first, end = dataset.types.bases[kind : kind + 2]
        for other in found[(found < first) | (found >= end)][:1]:
            of = [each.name for each in dataset.types.vertices]
            type_of = of[int(np.searchsorted(dataset.types.bases, other, side="right")) - 1]
            raise DataError(
                f"--vertices {self.vertices}: {names.of([other])[0]!r} is of type {type_of}; give vertices of type "
                f"{of[kind]}, or --type {type_of}"
            )
        return found - first

    def check_known(self, wanted: np.ndarray, places: np.ndarray, dataset: Dataset, ctx: RankContext) -> None:
        """Raise DataError, on all ranks alike, where `wanted` has ids that the graph lacks. Collective.

        places: int64, the places in `wanted` of this rank's vertices.
        """
        # Usually nothing is missing: the marks below, as many as rows are wanted, then need not travel.
        if ctx.communicator.all_gather_rows(np.array([len(places)])).sum() == len(wanted):
            return
        here = np.zeros(len(wanted), np.int8)
        here[places] = 1
        unknown = np.flatnonzero(~ctx.communicator.all_gather_rows(here).any(axis=0))
        row = unknown[0]
        error = DataError(
            f"{self.vertices}: row {row} names vertex {wanted[row]}, which {dataset.folder} does not have "
            f"({len(unknown):,} such rows); give original ids, which count the rows of the source"
        )
        error.agreed = True
        raise error

    def column(self, task: Task, dimensions: int) -> str:
        """Return the word for a column of what is written: class, label, best, logit, embedding, or value."""
        if self.what == EMBEDDINGS:
            return "embedding"
        if self.what == CLASSES:
            several = "best" if self.top else "label"
            return "class" if dimensions == 1 else several
        return "logit" if task.answers in ("multi-class", "multi-label") else "value"

    def answers(self, ctx: RankContext, outputs: np.ndarray) -> np.ndarray:
        """Return the rows to write for `outputs` (float[n, width]): these, classes int32[n], or int8[n, labels].

        The best entities are int32[n, top], the best first, equal ones by number.
        Targets of a regression are in their own units. Local.
        """
        if self.what == EMBEDDINGS or self.scores_pairs:
            return outputs
        found = torch.from_numpy(outputs)
        if self.what == LOGITS:
            return ctx.task.answer(found.to(ctx.device)).cpu().numpy()
        if ctx.task.answers == "multi-class":
            return found.argmax(dim=1).to(torch.int32).numpy()
        if self.top:
            return found.neg().argsort(dim=1, stable=True)[:, : self.top].to(torch.int32).numpy()
        return (found > 0).to(torch.int8).numpy()
