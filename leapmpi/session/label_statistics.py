"""Statistics of all training labels for the loss: class weights, and mean and deviation of targets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.errors import ConfigError, DataError, there_are
from leapmpi.exchange.context import RankContext
from leapmpi.plan.homes import home_of
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.scoring.moments import COUNT, MEAN, SPREAD, combined, moments

_BALANCED = "balanced"


def prepare_loss(config: Config, world: World, dataset: Dataset, ctx: RankContext) -> None:
    """Give the task of `ctx` the class weights of `config`, or mean and deviation of targets. Collective.

    Raises ConfigError and DataError, on all ranks alike, for weights that are not numbers or not as many as classes.
    """
    setting, task, train = config.train.class_weights, ctx.task, dataset.splits.train
    regression = task.answers == "regression"
    if not setting and not regression:
        return
    # Statistics are sums over ranks of own labels, so each is counted once, whatever rank trains it later.
    own = np.zeros(0)
    if task.reads_edge_labels:
        own = own_edge_labels(ctx)
    elif setting == _BALANCED or regression:
        own = ctx.root_labels(train[home_of(train, ctx.rank_offsets) == ctx.rank], local=True).cpu().numpy()
    if regression:
        found = combined(ctx.communicator.all_gather_rows(moments(own, own)))
        # A target that never changes has no deviation to divide by.
        deviation = np.sqrt(found[SPREAD] / np.maximum(found[COUNT], 1))
        set_scale(ctx, np.stack([found[MEAN], np.where(deviation > 0, deviation, 1.0)]))
        return
    if setting == _BALANCED:
        sums = ctx.communicator.all_gather_rows(task.label_sums(own))
        weights = task.balanced_weights(sums.sum(axis=0))
    else:
        weights = world.on_all(lambda: given_weights(setting, task.classes, task.columns))
    task.class_weights = torch.from_numpy(weights).to(ctx.device, getattr(torch, config.train.parameter_dtype))


def own_edge_labels(ctx: RankContext) -> np.ndarray:
    """Return the labels int32[k] of the training edges whose destination this rank owns, in both directions."""
    if isinstance(ctx.sampler, ShardedSampler):
        labels = ctx.sampler.shard.own.edge_label
        assert labels is not None, "they are loaded for the tasks that read them"
        return labels
    topology = ctx.sampler.topology
    assert topology.edge_label is not None, "it is loaded for the tasks that read it"
    first, end = topology.indptr[list(ctx.local_range)]
    return topology.edge_label[first:end]


def set_scale(ctx: RankContext, scale: np.ndarray) -> None:
    """Let the task of `ctx` take targets by `scale`, float64[2, targets]: mean and deviation of each. Local."""
    ctx.task.scale = torch.from_numpy(scale).to(ctx.device, ctx.parameters.values.dtype)


def scale_values(ctx: RankContext) -> list[list[float]] | None:
    """Return the scale of the targets as files hold it. Local."""
    return None if ctx.task.scale is None else ctx.task.scale.tolist()


def given_weights(setting: str, classes: int, noun: str = "classes") -> np.ndarray:
    """Return float64[classes] as `setting` lists them, or from the file that it names: .npy, or text, one number per
    class.

    Raises ConfigError for what is neither, or has another number of weights or a negative one; DataError for a file
    that cannot be read.
    """
    try:
        weights = np.array([float(word) for word in setting.split(",")])
    except ValueError:
        weights = _from_file(Path(setting), setting)
    if weights.shape != (classes,):
        raise ConfigError(f"--class-weights {setting}: {there_are(weights.size, 'weight')} for {classes} {noun}")
    if (bad := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))).size:
        raise ConfigError(f"--class-weights {setting}: that of class {bad[0]} is {weights[bad[0]]}; expected 0 or more")
    if not weights.any():
        raise ConfigError(f"--class-weights {setting}: all are 0, so that nothing would be learned; give one above 0")
    return weights


def _from_file(path: Path, setting: str) -> np.ndarray:
    if not path.is_file():
        raise ConfigError(
            f"--class-weights {setting}: neither {_BALANCED}, nor numbers separated by commas, nor a file"
        )
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False).astype(np.float64).reshape(-1)
        return np.array([float(word) for word in path.read_text(encoding="utf-8").replace(",", " ").split()])
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no class weights can be read ({error}); expected one number per class") from None
