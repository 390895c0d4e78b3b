"""Banner of a run: data, MPI, the table of ranks with hosts, devices, parts and memory, the plan.

It also lists settings that have no effect, and features that are not checked.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from leapmpi.comm.world import World, library_file, library_name, load_mpi
from leapmpi.config.compatibility import without_effect
from leapmpi.config.schema import Config, enumeration, model_names, models_of
from leapmpi.config.sections import fields, flattened
from leapmpi.config.setting import names_code
from leapmpi.dataset.hdf5.names import FEATURE_DTYPES
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import topology_bytes
from leapmpi.device.device_sampler import DeviceSampler
from leapmpi.engine.disaggregated.share_preparation import sums_suffice
from leapmpi.errors import counted
from leapmpi.evaluation.link_scoring import LinkScoring
from leapmpi.exchange.context import Loaded
from leapmpi.features.shards.device_shard import DeviceShard
from leapmpi.features.shards.pinned_shard import PinnedShard
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.model import canonical, input_width, schema_of_typed, settings_without_effect
from leapmpi.nn.task import EdgeTask
from leapmpi.runs.text import rank_table, ranks_text, size_text
from leapmpi.sampling.edge_lookup import uses_times, uses_weights
from leapmpi.sampling.negative_sampler import negatives_named
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.session.session import facts_of
from leapmpi.session.setup import direct_path
from leapmpi.system.memory import available_bytes, used_bytes
from leapmpi.training.trainer import Trainer


def rank_facts(world: World, loaded: Loaded) -> dict:
    """Return the facts about this rank for the banner; `memory` and `free` are bytes in use and left on the host."""
    device = loaded.ctx.device
    name = "" if device.type == "cpu" else f" {torch.cuda.get_device_name(device)}"
    return {
        "host": world.host,
        "node": world.node,
        "device": f"{device}{name}",
        "parts": [loaded.parts.start, loaded.parts.stop - 1],
        "features": loaded.shard_bytes,
        "topology": loaded.topology.nbytes,
        "memory": used_bytes(),
        "free": available_bytes(),
        "threads": world.threads,
        "verified": loaded.verified,
        "process": os.getpid(),
    }


def summary_lines(trainer: Trainer, facts: list[dict]) -> list[str]:
    """Return three lines about data, ranks, and model with strategy, given the `rank_facts` of all ranks."""
    config, world, dataset = trainer.config, trainer.world, trainer.loaded.dataset
    task = trainer.ctx.task
    batch = "batches of its sampler"
    if not trainer.ctx.sampler.supplies_roots:
        batch = f"batch {min(config.train.batch_size, trainer.components.batches.count):,}"
    devices = enumeration(list(dict.fromkeys(fact["device"] for fact in facts))[:2])
    threads = enumeration([str(each) for each in sorted({fact["threads"] for fact in facts})])
    features = _by_type(dataset) or (f"{dataset.feature_dim:,} features" if dataset.feature_dim else "no features")
    sampled = ", sampled" * config.evaluation_samples
    hosts = f"{world.size} on {counted(world.nodes, 'node')}"
    return [
        f"data    {config.data}: {dataset.vertices:,} vertices, {dataset.edges:,} edges, {features}, "
        f"{task.classes} {task.columns}",
        f"ranks   {hosts}, {devices}, {threads} thread{'s' * (threads != '1')} each, {counted(dataset.parts, 'part')}",
        f"model   {model_names(config)}, {_sampler(config)}, {batch}; strategy {config.strategy.name}; "
        f"{trainer.evaluator.metric.name}{sampled}",
    ]


def lines(trainer: Trainer, facts: list[dict]) -> list[str]:
    """Return all facts about the start, a line each, given the `rank_facts` of all ranks."""
    config, world, loaded = trainer.config, trainer.world, trainer.loaded
    dataset = loaded.dataset
    method = dataset.attributes.get("method", "unknown")
    return [
        *_roles(trainer),
        f"data {config.data}: {dataset.vertices:,} vertices, {dataset.edges:,} edges, {_inputs(config, dataset)} "
        f"({size_text(sum(fact['features'] for fact in facts))}{', sparse' * dataset.sparse}), "
        f"{loaded.ctx.task.classes} {loaded.ctx.task.columns}, {dataset.parts} parts ({method}); {_of_edges(trainer)}"
        f"topology {_topology(trainer, facts)}",
        *_rows_by_type(config, dataset),
        f"ranks {world.size} on {counted(world.nodes, 'node')}, MPI {library_name(load_mpi())} "
        f"({library_file()}), GPU data {_device_path(config, loaded)}",
        *(f"  {line}" for line in rank_table(facts)),
        _plan(trainer),
        *_edges(trainer),
        *_scored(trainer),
        _moves(trainer),
    ]


def _roles(trainer: Trainer) -> list[str]:
    """Return a line about who prepares and who computes, where these are not the same ranks."""
    if trainer.roles is None:
        return []
    roles = trainer.roles.roles
    sent = "rows"
    if sums_suffice(trainer.ctx.model):
        sent = "sums" if trainer.engine.mode_name == "sums" else "sums, or rows where they are multiplied first"
    ahead = trainer.prepared.prefetch_depth
    shares = f"{counted(roles.shares, 'share')} of a mini-batch"
    return [f"roles: {roles.sentence()}; {shares}, for the first layer {sent}, {ahead} ahead at most"]


def roles_record(trainer: Trainer) -> dict[str, Any] | None:
    """Return what records hold of ranks that prepare and ranks that compute; None if all do both."""
    if trainer.roles is None or trainer.prepared.balance is None:
        return None
    roles, balance = trainer.roles.roles, trainer.prepared.balance
    return {"computing": roles.computing, "preparing": roles.preparing, **balance.to_values()}


def about_roles(trainer: Trainer) -> list[str]:
    """Return a sentence about how many ranks should prepare, by the times of the first iteration."""
    if trainer.roles is None or trainer.prepared.balance is None:
        return []
    roles = trainer.roles.roles
    return [f"by clocks, {trainer.prepared.balance.sentence(roles.preparing, roles.computing)}"]


def _topology(trainer: Trainer, facts: list[dict]) -> str:
    """Describe the memory of the topology as it is held, and as it would be the other way."""
    config, loaded = trainer.config, trainer.loaded
    if trainer.roles:
        return f"{size_text(max(fact['topology'] for fact in facts))}, on the nodes of ranks that prepare"
    dataset, carried = loaded.dataset, (uses_weights(config, loaded.dataset), uses_times(config, loaded.dataset))
    if isinstance(loaded.topology, TopologyShard):
        sizes, whole = [fact["topology"] for fact in facts], topology_bytes(dataset, *carried)
        return (
            f"{loaded.topology_held}, {size_text(max(sizes))} at most a rank; a copy per node takes {size_text(whole)}"
        )
    shards = (topology_bytes(dataset, *carried, parts=range(fact["parts"][0], fact["parts"][1] + 1)) for fact in facts)
    sharded = f"; sharded {size_text(max(shards))} at most a rank" if len(facts) > 1 else ""
    return f"{size_text(loaded.topology.nbytes)}, {loaded.topology_held}{sharded}"


def _by_type(dataset: Dataset) -> str:
    """Describe the schema: '3 types, 1 without features, 5 relations'; empty for a plain graph."""
    if dataset.types is None:
        return ""
    vertices = dataset.types.vertices
    lacking = sum(not each.feature_dim for each in vertices)
    relations = counted(len(dataset.types.relations), "relation")
    return f"{counted(len(vertices), 'type')}, {lacking} without features, {relations}"


def _rows_by_type(config: Config, dataset: Dataset) -> list[str]:
    """Return a line about the bytes of the rows of each type, over all ranks; none for a plain graph."""
    if dataset.types is None:
        return []
    learned, size = schema_of_typed(config, dataset).learned, getattr(torch, config.train.parameter_dtype).itemsize
    found = []
    for each, columns in zip(dataset.types.vertices, learned.tolist(), strict=True):
        stored = each.feature_dim * np.dtype(FEATURE_DTYPES[each.feature_dtype or "int8"]).itemsize
        # A learned row has two moments, and the best of its values so far.
        held = each.vertices * (stored + 4 * columns * size)
        what = f"{each.feature_dim} features" if each.feature_dim else f"{columns} learned columns"
        found.append(f"{each.name} {size_text(held)} of {what}" if held else f"{each.name} none")
    return [f"rows by type: {', '.join(found)}"]


def _inputs(config: Config, dataset: Dataset) -> str:
    """Describe the features: '128 features', or learned rows."""
    if dataset.types is not None:
        return f"rows of {_by_type(dataset)}"
    if dataset.feature_dim:
        return f"{dataset.feature_dim} features"
    return f"no features, learned rows of {input_width(config, dataset)} columns with moments and the best"


def _of_edges(trainer: Trainer) -> str:
    """Describe the data of edges: 'edges carry weights; ', or nothing."""
    dataset = trainer.loaded.dataset
    carried = ["weights"] * uses_weights(trainer.config, dataset)
    carried += [f"{dataset.edge_feature_dim} features"] * (dataset.edge_feature_dim > 0)
    carried += ["times"] * uses_times(trainer.config, dataset)
    return f"edges carry {enumeration(carried)}; " if carried else ""


def _plan(trainer: Trainer) -> str:
    config, world, engine = trainer.config, trainer.world, trainer.engine
    batch, steps = min(config.train.batch_size, trainer.components.batches.count), engine.placement.time_steps
    of = "edges" if trainer.ctx.task.roots == "edges" else "roots"
    trained = trainer.roles.roles.computing if trainer.roles else world.size
    roots = f"batch {batch:,} {of}, about {batch / trained:,.0f} per rank"
    if trainer.ctx.sampler.supplies_roots:
        roots = "batches of the sampler's own"
    merged = f" (merged by {config.strategy.merge})" if 1 < steps < world.size else ""
    return (
        f"plan: strategy {config.strategy.name}, remote {engine.mode_name}, {counted(steps, 'time step')}"
        f"{merged}; {roots}; {_sampler(config)}; "
        f"{_models(trainer)} parameters ({config.train.parameter_dtype})"
    )


def about_no_validation(trainer: Trainer) -> str:
    """Describe a missing validation set: 'no validation edges: the last epoch counts as the best', with advice."""
    task = trainer.ctx.task
    mend = ""
    if isinstance(task, EdgeTask):
        flag = "--split-edges" if task.draws_negatives else "--split-edge-labels"
        mend = f"; leapmpi-prep partition {flag} .9,.05,.05 holds some back"
    return f"no validation {task.roots}: the last epoch counts as the best{mend}"


def about_early_stop(trainer: Trainer) -> str:
    """Describe early stopping: '5 evaluations without a better accuracy on the validation vertices'."""
    limit, metric = trainer.config.train.early_stop, trainer.evaluator.metric.name
    of = ", for each of the models" if trainer.config.strategy.vary else ""
    return f"{counted(limit, 'evaluation')} without a better {metric} on the validation vertices{of}"


def _edges(trainer: Trainer) -> list[str]:
    """Return a line about edges, where they are trained."""
    if trainer.ctx.task.roots != "edges":
        return []
    link, sizes = trainer.config.link, [trainer.evaluator.size(split) for split in ("val", "test")]
    task = trainer.ctx.task
    assert isinstance(task, EdgeTask), "roots are edges"
    scorer = type(trainer.ctx.model.scorer).__module__.rpartition(".")[2]
    splits = f"edges: {trainer.components.batches.count:,} to train, {sizes[0]:,} to validate and {sizes[1]:,} to test"
    own = "are left out of its draws" if task.leaves_out() else "stay in message passing"
    if not task.draws_negatives:
        return [f"{splits}, of {task.classes} classes; scorer {scorer}; a batch's own edges {own}"]
    scoring = trainer.evaluator.scoring
    assert isinstance(scoring, LinkScoring), "edges are ranked"
    against = f"; ranked against {scoring.ranked_against}" if any(sizes) else ""
    each = "each" if trainer.ctx.sampler.types is None else "each end"
    count = link.negatives_per_edge
    kind = link.negatives_and_file[0]
    takes_all = negatives_named(kind).takes_all
    drawn = "all vertices as negatives" if takes_all else counted(count, f"{kind} negative")
    return [f"{splits}, held back; scorer {scorer}; {drawn} of {each}{against}; a batch's own edges {own}"]


def _scored(trainer: Trainer) -> list[str]:
    """Return a line where a sample of the splits is scored."""
    evaluator = trainer.evaluator
    sizes = {split: (evaluator.size(split), whole) for split, whole in evaluator.whole_sizes.items()}
    if all(scored == whole for scored, whole in sizes.values()):
        return []
    found = enumeration([f"{scored:,} of {whole:,} in {split}" for split, (scored, whole) in sizes.items()])
    return [f"scores are those of a sample (--eval-limit): {found}"]


def _models(trainer: Trainer) -> str:
    """Describe models and parameters: 'model sage, 1,234', or 'models gcn 1,234 and gat 1,300 to 2,600'."""
    counts: dict[str, set[int]] = {}
    for each, layout in trainer.models.described:
        # Those of all ranks, where each holds some.
        numbers = sum(math.prod(shape) for shape in layout.whole_shapes.values())
        counts.setdefault(each.model.name, set()).add(numbers)
    if not trainer.config.strategy.vary:
        name = trainer.config.model.name
        return f"model {name}, {_range(counts[name])}"
    return f"models {enumeration([f'{name} {_range(found)}' for name, found in counts.items()])}"


def _range(counts: set[int]) -> str:
    """Format a range: '1,234', or '1,234 to 5,678'."""
    return " to ".join(f"{each:,}" for each in sorted({min(counts), max(counts)}))


def _sampler(config: Config) -> str:
    """Describe the sampler: 'fan-out 10,10', after its name if it is not the default one."""
    sampling = config.sampling
    fanout = "fan-out " + ",".join("all" if each == -1 else str(each) for each in sampling.fanout)
    if sampling.sampler == "node-wise":
        return fanout
    options = f" ({', '.join(sampling.options)})" if sampling.options else ""
    return f"sampler {sampling.sampler}{options}, {fanout}"


def _device_path(config: Config, loaded: Loaded) -> str:
    if on_host(loaded.ctx.device):
        return "not used (CPU)"
    if loaded.ctx.device.type != "cuda":
        return f"in host memory (the CPU stands in for a GPU; {_where(loaded)})"
    direct, why = direct_path(config.run.mpi_device_path)
    way = "handed to MPI directly" if direct else "staged through pinned host memory"
    return f"{way} ({why}; {_where(loaded)})"


def _where(loaded: Loaded) -> str:
    """Return where a GPU finds rows, and what draws."""
    shard, sampler = loaded.ctx.features.shard, loaded.ctx.sampler
    places: dict[type, str] = {PinnedShard: "in pinned host memory", DeviceShard: "in device memory"}
    draws = "device" if isinstance(sampler, DeviceSampler) else "host"
    return f"features {places.get(type(shard), 'staged from the host')}, draws on the {draws}"


def _moves(trainer: Trainer) -> str:
    config, engine = trainer.config, trainer.engine
    if trainer.world.size == 1:
        return "moves between ranks: nothing, there is one rank"
    size = trainer.ctx.parameters.shared_gradients.nbytes
    if trainer.roles:
        apart = f"{engine.mode.description} ({trainer.roles.roles.preparing} that prepare)"
        return f"moves between ranks in an iteration: {apart}, prepared shares, gradients ({size_text(size)})"
    returned = " and their gradients" * bool(trainer.ctx.learned and not engine.mode.needs_weights)
    moving = [engine.mode.description + returned, f"gradients ({size_text(size)})"]
    if engine.roots.embeds_remotely:
        moving.insert(1, "embeddings of remote ends and their gradients")
    if config.strategy.name == "leap" and engine.placement.time_steps > 1:
        moving.append(f"models with gradients ({size_text(2 * size)} a hop, {engine.placement.time_steps - 1} hops)")
    if config.strategy.vary:
        moving[1:] = ["every model with its gradients, from rank to rank"]
    return "moves between ranks in an iteration: " + ", ".join(moving)


def own_modules(trainer: Trainer) -> list[str]:
    """Return a sentence where a module of the user's own is trained: how its input comes."""
    names = dict.fromkeys(
        config.model.name for config, layout in trainer.models.described if not layout.model.layers[0].splits
    )
    return [
        f"{name} is run as a whole, on raw rows: projected rows and partial sums need layers in parts" for name in names
    ]


def unverified(config: Config, facts: list[dict]) -> list[str]:
    """Return a sentence where features were loaded without a check, given the `rank_facts` of all ranks."""
    ranks = [rank for rank, each in enumerate(facts) if not each["verified"]]
    if not ranks:
        return []
    unseen = "damaged or infinite ones go unseen; sizes, in-neighbours, labels and splits are checked"
    if config.run.verify == "none":
        return [f"--verify none: features are not checked, so that {unseen}"]
    return [
        f"features of {ranks_text(ranks)}, over 1 GiB, are not checked, so that {unseen} (--verify all checks them)"
    ]


def ignored(trainer: Trainer) -> list[str]:
    """Return sentences about settings that are not as by default and cannot act in this training."""
    config, engine, models = trainer.config, trainer.engine, models_of(trainer.config)
    # Reasons by setting: those of the models, then those of the table of what goes together.
    why = {f"model.{name}": reason for name, reason in settings_without_effect(models).items()}
    why |= without_effect(
        replace(
            facts_of(config, trainer.loaded.dataset),
            ranks=trainer.world.size,
            parts=trainer.loaded.dataset.parts,
            steps=engine.placement.time_steps,
            fetches_before_step=not engine.mode.needs_weights
            and (engine.preparation.plans_once or not engine.interleaves),
            on_host=on_host(trainer.ctx.device),
            on_cpu=trainer.ctx.device.type == "cpu",
        )
    )
    if trainer.ctx.task.roots == "edges":
        why.pop("model.hidden", None)

    # Of a setting that is varied, the values of the models count.
    values = [flattened(each.to_values()) for each in (config, *models)]
    options = {text.partition("=")[0]: text for each in models for text in each.model.options}
    return [
        *_unread(trainer),
        *(
            f"--model-option {text} is ignored: {why[f'model.{name}']}"
            for name, text in options.items()
            if f"model.{name}" in why
        ),
    ] + [
        f"--{setting.flag} is ignored: {why[key]}"
        for key, setting in fields()
        if key in why and any(canonical(each)[key] != canonical(each | {key: setting.default})[key] for each in values)
    ]


def _unread(trainer: Trainer) -> list[str]:
    """Return sentences about what edges carry and no model reads."""
    names = dict.fromkeys(each.model.name for each in models_of(trainer.config))
    found, sentences = enumeration(list(names)), []
    weights_are_read = any("edge_weight" in layer.edge_data for layer in trainer.ctx.model.layers)
    drawn_by = "weights=edge" in trainer.config.sampling.options or names_code(trainer.config.sampling.sampler)
    unread = len(names) == 1 and not weights_are_read and not drawn_by
    if uses_weights(trainer.config, trainer.loaded.dataset) and unread:
        sentences.append(f"edge weights are not read by --model {found}; --edge-weights ignore leaves them on disk")
    if trainer.loaded.dataset.edge_feature_dim and trainer.ctx.edge_features is None:
        sentences.append(f"edge features are not read by --model {found}")
    return sentences
