"""One table of what goes with what: settings that others refuse, and settings that others leave without effect.

The checks of a config, the start of a run and the docs (leapmpi/training/README.md) read it. A condition reads a config
and a few facts about strategy, dataset and job; it holds only where all that it reads is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from leapmpi.config.run_facts import Facts, mixes_attention
from leapmpi.config.setting import ALL_NEIGHBOURS
from leapmpi.errors import ConfigError


@dataclass(frozen=True)
class Row:
    """A setting by dotted `key` that does not go with something: where `holds`, it is `refused` or has no effect.

    with_what: what it does not go with, for the table of the docs; why: the sentence, which may name `{value}`, the
    setting's, `{strategy}` and `{roots}`.
    """

    key: str
    with_what: str
    holds: Callable[[Facts], bool]
    why: str
    refused: bool = True


def _by_root(key: str, holds: Callable[[Facts], bool], why: str, what: str = "") -> Row:
    """Build the row of a setting that is refused where each root bounds its draws."""
    with_what = "`bound=root` of `--sampler temporal`" + (f": {what}" if what else "")
    sentence = f"with bound=root a vertex is computed once for each bound; {why}"
    return Row(key, with_what, lambda f: f.bounds_by_root and holds(f), sentence)


def _with_roles(name: str, holds: Callable[[Facts], bool], why: str) -> Row:
    """Build the row of a strategy's setting that is refused with --prepare-ranks."""
    return Row(
        f"strategy.{name}", "`--prepare-ranks`", lambda f: f.prepares and holds(f), f"with --prepare-ranks {why}"
    )


def _idle(key: str, with_what: str, holds: Callable[[Facts], bool], why: str) -> Row:
    """Build the row of a setting that is left without effect."""
    return Row(key, with_what, holds, why, refused=False)


def _of_typed(key: str, holds: Callable[[Facts], bool], why: str, what: str = "") -> Row:
    """Build the row of a setting that is refused for typed graphs."""
    with_what = "typed graphs" + (f": {what}" if what else "")
    return Row(key, with_what, lambda f: f.typed and holds(f), why)


ROWS: tuple[Row, ...] = (
    # Refused by other settings alone.
    Row(
        "strategy.memory_limit",
        "`--time-steps`",
        lambda f: bool(f.config.strategy.memory_limit) and f.config.strategy.time_steps not in ("auto", "measured"),
        "the limit chooses time steps by itself; leave out --time-steps or the limit",
    ),
    Row(
        "train.early_stop",
        "`--eval-every 0`",
        lambda f: f.config.train.early_stop > 0 and not f.config.evaluate.every,
        "it counts evaluations, but evaluate.every is 0; give --eval-every 1",
    ),
    Row(
        "strategy.time_steps",
        "`--vary`",
        lambda f: f.varies and f.config.strategy.time_steps not in ("auto", "1"),
        "{value} does not go with --vary: every model trains the whole batch on its way around the ranks; leave it out",
    ),
    Row(
        "strategy.remote",
        "`--vary`",
        lambda f: f.varies and f.config.strategy.remote not in ("raw", "sums", "auto"),
        "{value} does not go with --vary: projected rows and partial sums depend on the weights of one model; use raw "
        "or sums",
    ),
    _with_roles(
        "name",
        lambda f: f.config.strategy.name not in ("auto", "leap", "pull"),
        "{value} exchanges what depends on weights; use leap or pull",
    ),
    _with_roles(
        "remote",
        lambda f: f.config.strategy.remote not in ("auto", "raw", "sums"),
        "no rank has current weights for {value} rows; leave it out",
    ),
    _with_roles(
        "time_steps",
        lambda f: f.config.strategy.time_steps not in ("auto", "1"),
        "models stay where they are; leave it out",
    ),
    _with_roles(
        "memory_limit",
        lambda f: bool(f.config.strategy.memory_limit),
        "an iteration has one time step; leave it out",
    ),
    _with_roles("vary", lambda f: f.varies, "one model is trained; leave it out"),
    _with_roles("cache", lambda f: f.config.strategy.cache > 0, "no rank keeps copies of rows; leave it out"),
    Row(
        "model.options",
        "`beta` of `simple-hgn`: strategies other than `depcomm`",
        lambda f: f.roots != "" and mixes_attention(f.config) and f.config.strategy.name not in ("auto", "depcomm"),
        "beta mixes the attention of an edge in two layers, so that one rank must hold all edges of a vertex in each; "
        "give --strategy depcomm --batch-size full and --fanout all for every layer, or leave beta out",
    ),
    Row(
        "evaluate.fanout",
        "`beta` of `simple-hgn`: sampled neighbours",
        lambda f: mixes_attention(f.config) and any(each != ALL_NEIGHBOURS for each in f.config.evaluate.fanout),
        "beta mixes the attention of an edge in two layers, and samples differ from layer to layer; give --eval-fanout "
        "all",
    ),
    Row(
        "model.norm",
        "`--prepare-ranks`",
        lambda f: f.prepares and f.config.model.norm == "batch",
        "with --prepare-ranks no rank knows whether to count a vertex for batch normalisation; use --norm layer",
    ),
    Row(
        "run.topology",
        "`--prepare-ranks`",
        lambda f: f.prepares and f.sharded,
        "with --prepare-ranks every node that prepares holds a copy; use node",
    ),
    Row(
        "run.topology_memory",
        "no `--feature-memory`: `auto`",
        lambda f: f.splits_memory and not f.config.strategy.feature_memory,
        "auto is a share of --feature-memory, which is not given; give that, or a size",
    ),
    # Refused by the types of the graph.
    _of_typed(
        "sampling.sampler",
        lambda f: not f.draws_by_relation,
        "{value} does not draw by relation, as a typed graph needs; use node-wise, with-replacement, labor-0, weighted "
        "or temporal",
        "samplers other than `node-wise`, `with-replacement`, `labor-0`, `weighted`, `temporal`",
    ),
    _of_typed(
        "sampling.edge_weights",
        lambda f: f.edge_weights and f.config.sampling.edge_weights == "use",
        "weights of edges are not read in a typed graph; give ignore",
        "`use`, where edges have weights",
    ),
    _of_typed(
        "train.task",
        lambda f: f.edge_labels,
        "edges of a typed graph have no classes; use link",
        "`edge-class`",
    ),
    _of_typed(
        "run.topology",
        lambda f: f.roots == "edges" and f.sharded,
        "edges of a typed graph are trained with the whole topology on each node; use node",
        "`sharded`, where edges are trained",
    ),
    _of_typed(
        "sampling.sampler",
        lambda f: f.roots == "edges" and f.config.sampling.sampler == "temporal",
        "{value} does not read times of typed edges; use node-wise, with-replacement or labor-0",
        "`temporal`, where edges are trained",
    ),
    _of_typed(
        "strategy.name",
        lambda f: f.own_mode or f.config.strategy.name == "depcache",
        "{value} does not train typed graphs; use leap or pull, or for vertices owner, depcomm or hybrid",
        "`p3`, `naive`, `depcache`",
    ),
    _of_typed(
        "strategy.cache",
        lambda f: f.config.strategy.cache > 0,
        "copies are kept of rows of one width, not of those of types; leave it out",
    ),
    _of_typed(
        "strategy.feature_memory",
        lambda f: f.features and bool(f.config.strategy.feature_memory),
        "features of types are held in memory whole; leave it out",
        "where no rows are learned",
    ),
    # Refused where each root has its own bound: a vertex is then computed once for each.
    _by_root("strategy.name", lambda f: f.own_mode or f.by_layer, "use leap or pull", "all but `leap` and `pull`"),
    _by_root(
        "strategy.remote",
        lambda f: f.config.strategy.remote in ("sums", "mixed"),
        "use raw, projected, partial or auto",
        "`sums`, `mixed`",
    ),
    _by_root("strategy.vary", lambda f: f.varies, "models cannot share sums; leave it out"),
    _by_root("strategy.prepare_ranks", lambda f: f.prepares, "all ranks prepare their own batches; leave it out"),
    _by_root("model.norm", lambda f: f.config.model.norm == "batch", "use layer", "`batch`"),
    _by_root("run.topology", lambda f: f.sharded, "use node", "`sharded`"),
    _by_root("train.task", lambda f: f.roots == "edges", "roots must be vertices; leave bound out", "tasks on edges"),
    # Refused by the strategy, the dataset or the task.
    Row(
        "strategy.vary",
        "`--strategy p3` or `naive`",
        lambda f: f.varies and f.own_mode,
        "{strategy} moves no raw rows, which models can share; use leap or pull",
    ),
    Row(
        "strategy.balance_parts",
        "strategies other than `depcomm`, `depcache` and `hybrid`",
        lambda f: f.config.strategy.balance_parts != "off" and not f.reassigns_parts,
        "{strategy} does not move parts; leave it out, or train full batches with depcomm, depcache or hybrid",
    ),
    Row(
        "train.early_stop",
        "a dataset without validation vertices (or edges)",
        lambda f: f.config.train.early_stop > 0 and not f.validation,
        "the dataset has no validation {roots} to stop by; leave it out",
    ),
    Row(
        "train.task",
        "`--prepare-ranks`, where edges are trained",
        lambda f: f.prepares and f.roots == "edges",
        "with --prepare-ranks edges cannot be trained; train vertices",
    ),
    Row(
        "model.missing_features",
        "`--prepare-ranks`",
        lambda f: f.prepares and f.learned,
        "with --prepare-ranks rows cannot be learned; use a dataset with features",
    ),
    Row(
        "strategy.name",
        "learned rows: `p3` and `naive`",
        lambda f: f.learned and f.own_mode,
        "{value} does not learn rows; use leap or pull",
    ),
    Row(
        "strategy.vary",
        "learned rows",
        lambda f: f.learned and f.varies,
        "one model learns the rows; leave it out",
    ),
    Row(
        "strategy.cache",
        "learned rows",
        lambda f: f.learned and f.config.strategy.cache > 0,
        "copies of learned rows would be out of date after a step; leave it out",
    ),
    Row(
        "run.topology_memory",
        "learned rows: `auto`",
        lambda f: f.learned and f.splits_memory,
        "learned rows are in files of their own, whose reads auto does not count; give a size",
    ),
    Row(
        "train.optimizer",
        "learned rows: `sgd`",
        lambda f: f.learned and f.config.train.optimizer == "sgd",
        "learned rows are updated by Adam; use adam or adamw",
    ),
    Row(
        "sampling.relation_fanout",
        "plain graphs",
        lambda f: f.roots != "" and not f.typed and bool(f.config.sampling.relation_fanout),
        "the dataset is a plain graph, which has no relations; leave it out",
    ),
    Row(
        "train.loss",
        "link prediction: `mse`",
        lambda f: f.answers == "edges" and f.config.train.loss == "mse",
        "mse is a loss of regressions; give binary, cross-entropy, margin or self-adversarial",
    ),
    # Without effect.
    _idle(
        "train.momentum",
        "optimizers other than `sgd`",
        lambda f: "sgd" not in f.optimizers,
        "only --optimizer sgd reads it",
    ),
    _idle(
        "train.loss",
        "tasks other than `regression` and `link`",
        lambda f: f.answers not in ("regression", "edges"),
        "only regressions and link prediction read it",
    ),
    _idle(
        "strategy.merge",
        "one time step, or as many as ranks",
        lambda f: f.steps > 0 and f.config.strategy.time_steps != "measured" and not 1 < f.steps < f.ranks,
        "no time steps are merged",
    ),
    _idle(
        "model.missing_features",
        "a dataset with features",
        lambda f: f.roots != "" and f.features,
        "the dataset has features",
    ),
    _idle(
        "strategy.prefetch",
        "learned rows, where raw rows cross ranks, but not with `owner`",
        lambda f: f.learned and f.fetches_before_step,
        "learned rows are fetched after the previous step has updated them",
    ),
    _idle("strategy.time_steps", "one rank", lambda f: f.ranks == 1, "there is one rank"),
    _idle("strategy.balance_parts", "one rank", lambda f: f.ranks == 1, "there is one rank"),
    _idle(
        "strategy.balance_parts",
        "as many parts as ranks",
        lambda f: f.ranks > 1 and f.parts == f.ranks,
        "each rank has one part; partition with more --parts than ranks",
    ),
    _idle(
        "train.dtype",
        "`bfloat16` on a CPU",
        lambda f: f.on_host and f.config.train.dtype == "bfloat16",
        "a CPU multiplies in float32",
    ),
    _idle("run.mpi_device_path", "models trained on a CPU", lambda f: f.on_cpu, "models are trained on the CPU"),
    *(
        _idle(
            f"link.{name}",
            "tasks on vertices",
            lambda f: f.roots == "vertices",
            "only tasks on edges read it",
        )
        for name in ("scorer", "target_edges", "negatives", "negatives_per_edge", "eval_negatives")
    ),
    *(
        _idle(f"link.{name}", "`--task edge-class`", lambda f: f.edge_labels, "classes of edges need no negatives")
        for name in ("negatives", "negatives_per_edge", "eval_negatives")
    ),
    _idle(
        "model.dropout",
        "one layer, except of `deepgcn`",
        lambda f: len(f.config.sampling.fanout) == 1 and f.config.model.name != "deepgcn" and not f.own_model,
        "one layer has no hidden rows to drop; give --input-dropout",
    ),
    Row(
        "link.negatives_per_edge",
        "`--negatives in-batch`: more than `--batch-size`",
        lambda f: (
            f.roots == "edges"
            and not f.edge_labels
            and f.config.link.negatives == "in-batch"
            and f.config.link.negatives_per_edge > f.config.train.batch_size
        ),
        "{value} are more than the edges of a batch, whose ends in-batch draws; give at most --batch-size",
    ),
    _idle(
        "link.negatives_per_edge",
        "`--negatives all`",
        lambda f: f.config.link.negatives == "all",
        "all vertices are negatives",
    ),
    _idle(
        "sampling.edge_weights",
        "a dataset whose edges have no weights",
        lambda f: not f.edge_weights,
        "edges have no weights",
    ),
)


def check(facts: Facts) -> None:
    """Raise ConfigError for the first setting that is refused."""
    for key, why in _holding(facts, refused=True):
        raise ConfigError(f"{key}: {why}")


def without_effect(facts: Facts) -> dict[str, str]:
    """List by dotted key why a setting has no effect, whatever its value."""
    return dict(_holding(facts, refused=False))


def _holding(facts: Facts, refused: bool) -> Iterator[tuple[str, str]]:
    """Yield key and sentence of each row that holds."""
    for row in ROWS:
        if row.refused == refused and row.holds(facts):
            section, _, name = row.key.partition(".")
            value = getattr(getattr(facts.config, section), name)
            yield (
                row.key,
                row.why.format(value=value, strategy=facts.config.strategy.name, roots=facts.roots or "vertices"),
            )
