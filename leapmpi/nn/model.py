"""A model: layers applied to the blocks of a sample, from the farthest hop to the roots; its initial weights.

Initial weights are a function of seed and parameter name: the same on every rank and in every precision.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from leapmpi.config.options import MODELS, ModelMember, options_of, texts_of
from leapmpi.config.setting import learned_width, names_code
from leapmpi.errors import ConfigError, counted
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.head import Head
from leapmpi.nn.layer import Layer, Weighted
from leapmpi.nn.norms import batch_norms
from leapmpi.nn.rows import Rows
from leapmpi.nn.scorer import Scorer
from leapmpi.nn.task import task_of
from leapmpi.nn.tensors import BlockTensors
from leapmpi.nn.typed_schema import TypedSchema
from leapmpi.sampling.edge_lookup import bounds_by_root
from leapmpi.sampling.relation_lists import reached_in_training
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.config.sections import ModelConfig
    from leapmpi.dataset.partitioned import Dataset

_OWN = "leapmpi.nn.own.construct"
"""Builds what a user has written; imported like a member of MODELS, when it is named."""

_OF_HIDDEN = ("hidden", "dropout", "norm")
"""Settings of hidden rows, which a stack of one layer has not. A model that lists one in `ModelMember.reads` reads it
even so; one without `reads` may read all."""

_WEIGHTS = 0x77656967_00000000  # keeps weights apart from other uses of the seed


class Model(nn.Module):
    """A stack of layers and a `head`, None where the last gives logits; `layers[0]` reads the features.

    For link prediction a `scorer` of pairs of outputs as well.
    """

    def __init__(self, layers: Sequence[Layer], head: Head | None = None) -> None:
        super().__init__()
        # A list of modules is not typed by what it holds.
        self.layers = cast("Sequence[Layer]", nn.ModuleList(layers))
        self.head = head
        self.scorer: Scorer | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights, to which input rows are brought."""
        return self.layers[0].dtype

    def forward(self, blocks: Sequence[BlockTensors], x: Rows, dropout: DropoutKey | None = None) -> Tensor:
        """Compute logits of the roots, float[n_dst of blocks[0], out].

        `blocks` are listed from the root outward, one per layer; `x` is float[n_src of blocks[-1], F], any Rows of any
        float type. `dropout` is the key of the masks, None in evaluation. Raises ConfigError when the numbers differ.
        """
        if len(blocks) != len(self.layers):
            raise ConfigError(
                f"the model has {counted(len(self.layers), 'layer')} but the fan-out is of "
                f"{counted(len(blocks), 'hop')}"
            )
        first = self.layers[0](blocks[-1], x.to(self.dtype), dropout)
        return self.after(0, blocks, first, dropout)

    def after(
        self,
        layer: int,
        blocks: Sequence[BlockTensors],
        h: Tensor,
        dropout: DropoutKey | None = None,
        below: Sequence[Tensor] = (),
    ) -> Tensor:
        """Compute logits of the roots from the output `h` of `layer` (0 is the first), float[n_dst, width].

        `blocks` are those of the layers after it, or of all layers, from the root outward; the destinations of the
        first are the roots. `below` are the roots' rows of the layers before `layer`, in their order: a head that
        combines layers reads them.
        """
        upper = self.layers[layer + 1 :]
        outputs = [h]
        for each, block in zip(upper, reversed(blocks[: len(upper)]), strict=True):
            outputs.append(each(block, outputs[-1], dropout))
        if self.head is None:
            return outputs[-1]
        # Roots are the first destinations of every block.
        roots = blocks[0].n_dst
        rows = [*below, *(each[:roots] for each in outputs)]
        return self.head(rows, blocks[0].dst_original[:roots], dropout)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss`, made of this model's outputs, to those of the parameters."""
        loss.backward()

    def statistics(self) -> dict[str, Tensor]:
        """Return means and variances that batch normalisation keeps besides parameters, by name; empty without."""
        found = batch_norms(self).items()
        return {f"{name}.{kind}": each for name, norm in found for kind, each in norm.named_buffers()}


def takes_edge_features(name: str) -> bool:
    """Return whether the model called `name` may read features of edges: its `build` takes their width, `edge_dim`."""
    return builder(name).reads_edge_features


def reads_edge_features(config: Config, dataset: Dataset) -> bool:
    """Return whether the model of `config` reads the features of the edges of `dataset`; a user's is built."""
    if not dataset.edge_feature_dim or not names_code(config.model.name):
        return dataset.edge_feature_dim > 0 and takes_edge_features(config.model.name)
    return any("edge_features" in layer.edge_data for layer in model_of(config, dataset).layers)


def stack(layer: Callable[..., Layer], config: ModelConfig, layers: int, in_dim: int, out_dim: int) -> Model:
    """Build a model of `layers` equal layers of width config.hidden.

    The last has width `out_dim`, unless `config.jumping` has a head make the output of all of them.
    """
    if config.jumping == "none":
        widths = [in_dim, *[config.hidden] * (layers - 1), out_dim]
        return Model([layer(config, n, widths[n - 1], widths[n], n == layers) for n in range(1, layers + 1)])
    return Model(hidden_layers(layer, config, layers, in_dim), Head(config, layers, out_dim))


def hidden_layers(layer: Callable[..., Layer], config: ModelConfig, layers: int, in_dim: int) -> list[Layer]:
    """Build layers of width config.hidden, for a model whose output a head makes."""
    widths = [in_dim, *[config.hidden] * layers]
    return [layer(config, n, widths[n - 1], widths[n], False) for n in range(1, layers + 1)]


@compiled
def _fill(base, limit, out):
    for i in range(len(out)):
        # 53 bits of the hash: as many as a float64 in [0, 1) has.
        unit = np.float64(fold(base, i) >> np.uint64(11)) * 2.0**-53
        out[i] = (2.0 * unit - 1.0) * limit


def uniform(seed: int, name: str, size: int, limit: float) -> np.ndarray:
    """Draw float64[size] uniform in [-limit, limit): number i is a function of (seed, name, i)."""
    digest = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    base = fold(np.uint64(fold(np.uint64(fold(np.uint64(0), np.uint64(seed))), _WEIGHTS)), np.uint64(digest))
    out = np.empty(size)
    _fill(np.uint64(base), limit, out)
    return out


def initialise(model: nn.Module, seed: int) -> None:
    """Draw every parameter that its module lists in `fans` (name -> (fan in, fan out)); others keep their constants.

    Values are computed in float64 and rounded to the parameter's dtype: a float32 model is the rounded float64 one.
    """
    for path, module in model.named_modules():
        for name, fans in module.fans.items() if isinstance(module, Weighted) else ():
            parameter = module.get_parameter(name)
            full_name = f"{path}.{name}" if path else name
            # The range that keeps variances: Glorot and Bengio (AISTATS 2010), equation 16.
            limit = module.limits.get(name, math.sqrt(6 / sum(fans)))
            values = torch.from_numpy(uniform(seed, full_name, parameter.numel(), limit))
            with torch.no_grad():
                parameter.copy_(values.view(parameter.shape))


def builder(name: str) -> ModelMember:
    """Return the member that builds the model called `name`. Raises ConfigError for an unknown one."""
    if name.endswith(".py"):
        raise ConfigError(f"--model {name}: name the class in the file too, as in {name}:CLASS")
    return importlib.import_module(_OWN).MEMBER if names_code(name) else MODELS.load(name)


def build_model(
    config: ModelConfig,
    layers: int,
    in_dim: int,
    out_dim: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    edge_dim: int = 0,
    schema: TypedSchema | None = None,
) -> Model:
    """Build the model named config.name, on the CPU, with weights that depend on `seed` and parameter names alone.

    `layers` is the number of blocks, `in_dim` that of features, `out_dim` that of classes, `edge_dim`
    that of features of edges, which a model gets whose `build` takes it; `schema` is that of a typed graph. Raises
    ConfigError for an unknown model, unsuitable sizes, and a model that does not read types, or needs some.
    """
    if layers < 1:
        raise ConfigError(f"a model needs at least one layer, that is one fan-out, not {layers}")
    if in_dim < 1 or out_dim < 1:
        raise ConfigError(
            f"a model needs features and classes; the dataset has {counted(in_dim, 'feature')}, "
            f"{counted(out_dim, 'class')}"
        )
    # A user's code may draw weights by itself.
    config = replace(config, seed=seed) if names_code(config.name) else config
    given: dict[str, Any] = {"edge_dim": edge_dim} if edge_dim and takes_edge_features(config.name) else {}
    if builder(config.name).typed not in (None, schema is not None):
        raise ConfigError(_about_types(config.name, schema))
    if schema is not None:
        given["schema"] = schema
    model = builder(config.name).build(config, layers, in_dim, out_dim, **given).to(dtype)
    initialise(model, seed)
    return model


def _about_types(name: str, schema: TypedSchema | None) -> str:
    """Return why the model called `name` cannot be trained on a graph with `schema`, or on one without."""
    typed = " or ".join(each for each in MODELS.names() if MODELS.load(each).typed)
    if schema is None:
        return f"model: {name} reads types of vertices and relations, and the graph has neither; use sage or gcn"
    return f"model: {name} treats all vertices alike, and the graph is typed; use {typed}"


def settings_without_effect(configs: Sequence[Config]) -> dict[str, str]:
    """Return settings of the section `model` that act on none of the models of `configs`, and why."""
    if any(names_code(config.model.name) for config in configs):
        return importlib.import_module(_OWN).settings_without_effect(configs)
    members = [MODELS.load(config.model.name) for config in configs]
    reads = [each.reads for each in members if each.reads is not None]
    if len(reads) < len(members):
        return {}
    found = " and ".join(dict.fromkeys(config.model.name for config in configs))
    why = {}
    if len(configs[0].sampling.fanout) == 1 and all(config.model.jumping == "none" for config in configs):
        one = "one fan-out makes a model of one layer, which has no hidden rows"
        why = {name: one for name in _OF_HIDDEN if not any(name in each for each in reads)}
    if all("residual" in each.has for each in members):
        why["residual"] = f"layers of {found} have residuals of their own"

    # What one model's other settings make idle; of several, what none reads.
    idle = [member.idle_options(each.model) for member, each in zip(members, configs, strict=True)]
    return why | {name: idle[0][name] for name in idle[0] if all(name in each for each in idle)}


def canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """Complete settings by dotted key with all options of the model, and values for `auto`, to compare runs.

    Runs of earlier versions say `dot` and `100` where `auto` stands today.
    """
    found = dict(values)
    name = found["model.name"]
    member = builder(name)
    if not names_code(name):
        found["model.options"] = list(texts_of(options_of(MODELS, name, found["model.options"])))
    if found.get("link.scorer") == "auto":
        found["link.scorer"] = "mlp" if found["train.task"] == "edge-class" else "dot"
    if found.get("link.eval_negatives") == "auto":
        found["link.eval_negatives"] = "100"
    if found.get("train.loss") == "auto":
        found["train.loss"] = "mse"
    if found["model.norm"] == "auto":
        found["model.norm"] = "layer" if "norm" in member.has else "none"
    return found


def schema_of_typed(config: Config, dataset: Dataset) -> TypedSchema:
    """Return the part of the schema of a typed `dataset` that the model of `config` reads.

    Types without features have learned rows, of as many columns as hidden rows unless `--missing-features` says how
    many.
    """
    types = dataset.types
    assert types is not None, "the dataset is typed"
    found = reached_in_training(types, config.sampling)
    columns = learned_width(config.model.missing_features) or config.model.hidden
    lacking = np.array([not each.feature_dim for each in types.vertices])
    ages = dataset.has_vertex_time and bounds_by_root(config)
    return TypedSchema.of(types, found, np.where(lacking & found.types[-1], columns, 0), ages)


def input_width(config: Config, dataset: Dataset) -> int:
    """Return the columns of rows that the first layer reads: features, or learned rows; 0 for neither.

    Of a typed graph the first layer reads what its input layer makes, as wide as hidden rows.
    """
    if dataset.types is not None:
        return config.model.hidden
    return dataset.feature_dim or learned_width(config.model.missing_features)


def model_of(config: Config, dataset: Dataset) -> Model:
    """Build the model of `config` for `dataset` and its task, with its initial weights, on the CPU.

    Raises ConfigError for an unknown model or unsuitable sizes.
    """
    layers, dtype = len(config.sampling.fanout), getattr(torch, config.train.parameter_dtype)
    task, width = task_of(config, dataset), input_width(config, dataset)
    given = dataset.edge_feature_dim, None if dataset.types is None else schema_of_typed(config, dataset)
    model = build_model(config.model, layers, width, task.width, config.model_seed, dtype, *given)
    if (scorer := task.scorer()) is not None:
        model.scorer = scorer.to(dtype)
        initialise(model, config.model_seed)
    return model
