"""The requested prediction: the kind of output, its vertices, and its file; checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from leapmpi.config.schema import Config
from leapmpi.config.setting import check_size
from leapmpi.dataset.partitioned import Dataset
from leapmpi.errors import ConfigError, DataError
from leapmpi.exchange.context import RankContext
from leapmpi.sampling.relation_lists import reached_in_training
from leapmpi.sampling.sharded.topology_shard import original_ids

LOGITS, CLASSES, EMBEDDINGS = "logits", "classes", "embeddings"
WHAT = (LOGITS, CLASSES, EMBEDDINGS)
SUFFIXES = (".h5", ".npy", ".parquet")
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class PredictionRequest:
    """The arguments of `leapmpi predict`, checked alone. Raises ConfigError."""

    out: Path
    """A file that ends in one of SUFFIXES."""
    what: str = LOGITS
    layer: int | None = None
    """The layer of embeddings, from 1; None for the last hidden one."""
    vertices: str = ""
    """A .npy file of original ids, or one of SPLITS; empty: all. In a typed graph ids count the rows of the type."""
    weights: str = "best"
    """`best` or `final` of the run, or a file of weights."""
    memory_limit: str = ""
    stage: Path | None = None
    resume: bool = False
    overwrite: bool = False
    type: str = ""
    """Type of the vertices in a typed graph; empty: the target type."""

    def __post_init__(self) -> None:
        if self.out.suffix not in SUFFIXES:
            raise ConfigError(f"--out {self.out}: the name has to end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
        if self.what not in WHAT:
            raise ConfigError(f"--what {self.what}: expected one of {', '.join(WHAT)}")
        if self.layer is not None and (self.what != EMBEDDINGS or self.layer < 1):
            raise ConfigError(f"--layer {self.layer}: it numbers layers from 1, and goes with --what embeddings")
        if self.resume and self.stage is None:
            raise ConfigError("--resume continues from the rows of layers in a folder; name it: --stage FOLDER")
        check_size(self.memory_limit, "--memory-limit")

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

    def type_of(self, dataset: Dataset, config: Config, layer: int | None) -> int | None:
        """Return the number of the requested type of vertices; None in a plain graph. Raises ConfigError.

        layer: that of `layer_of`; a type has rows in the layers that compute it on the way to the target type.
        """
        types = dataset.types
        if types is None:
            if self.type:
                raise ConfigError(f"--type {self.type}: {dataset.folder} is a plain graph, without types; leave it out")
            return None
        known = [each.name for each in types.vertices]
        name = self.type or types.target
        if name not in known:
            raise ConfigError(f"--type {name}: the dataset has no such type; it has {', '.join(known)}")
        number, found = known.index(name), reached_in_training(types, config.sampling).types
        hop = 0 if layer is None else len(found) - 1 - layer
        if not found[hop, number]:
            mend = f"use --type {types.target}, or --what embeddings with a lower --layer"
            raise ConfigError(f"--type {name}: no layer computes outputs of it; {mend}")
        return number

    def wanted(self, dataset: Dataset) -> np.ndarray | None:
        """Return the requested original ids, int64, in the order of the output; None for all. Local.

        Raises DataError for a file that cannot be read.
        """
        if not self.vertices:
            return None
        if self.vertices in SPLITS:
            ids = original_ids(dataset, np.asarray(getattr(dataset.splits, self.vertices)))
            target = None if dataset.types is None else dataset.types.target_number
            return ids if dataset.types is None or target is None else ids - dataset.types.bases[target]
        path = Path(self.vertices)
        try:
            ids = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(
                f"--vertices {path}: no ids can be read ({reason}); give a .npy file of original ids, or train, val "
                "or test"
            ) from None
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise DataError(
                f"{path}: it holds {ids.dtype} of shape {list(ids.shape)}; expected a list of whole numbers"
            )
        return ids.astype(np.int64)

    def check_known(self, wanted: np.ndarray, places: np.ndarray, dataset: Dataset, ctx: RankContext) -> None:
        """Raise DataError, on all ranks alike, where `wanted` has ids that the graph lacks. Collective.

        places: int64, the places in `wanted` of this rank's vertices.
        """
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

    def answers(self, ctx: RankContext, outputs: np.ndarray) -> np.ndarray:
        """Return the rows to write for `outputs` (float[n, width]): these, classes int32[n], or int8[n, labels].

        Targets of a regression are in their own units. Local.
        """
        if self.what == EMBEDDINGS:
            return outputs
        found = torch.from_numpy(outputs)
        if self.what == LOGITS:
            return ctx.task.answer(found.to(ctx.device)).cpu().numpy()
        if ctx.task.answers == "multi-class":
            return found.argmax(dim=1).to(torch.int32).numpy()
        return (found > 0).to(torch.int8).numpy()
