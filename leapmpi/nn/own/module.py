"""A user's module as a Model: the engine passes blocks and raw rows, and receives logits of the roots."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from leapmpi.config.user_code import arguments_of, describe_error, running_user_code
from leapmpi.errors import ConfigError, LeapmpiError, counted
from leapmpi.nn.dropout import DropoutKey, with_seed
from leapmpi.nn.layer import Layer
from leapmpi.nn.layer_forms import RowForm
from leapmpi.nn.model import Model
from leapmpi.nn.own.block_graph import BlockGraph
from leapmpi.nn.own.message_passing import ALL_EDGES, EDGES, MessagePassings
from leapmpi.nn.own.passage import PLAIN, Mark, Passage
from leapmpi.nn.own.relation_graph import TypedBlockGraph
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.tensors import BlockTensors
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.system.process_limits import is_lack_of_memory

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig
    from leapmpi.nn.typed_schema import TypedSchema

BLOCK_WISE = ("adjs", "blocks")
"""Names of an argument of `forward` that receives the graphs of all blocks, from the outermost to the roots'."""

_OF_GRAPH = ("edge_index", "edge_weight", "edge_attr")
"""Names of arguments of `forward` that receive edges and their data."""

_OF_TYPES = (ALL_EDGES, EDGES)
"""Names of the argument of `forward` that receives edges by relation; PyG's to_hetero keeps that of the plain one."""


class InsideLayer(Layer):
    """The facts of a layer that the engine reads, where a user's module hides its layers."""

    linear = False
    splits = False

    def __init__(
        self, module: nn.Module, number: int, in_dim: int, out_dim: int, edge_data: tuple[str, ...] = ()
    ) -> None:
        nn.Module.__init__(self)
        self.edge_data = edge_data
        # Not a sub-module: its parameters would count once for the model and once for each layer.
        self.__dict__["held"] = module
        self.number, self.in_dim, self.out_dim = number, in_dim, out_dim
        self.dropout, self.norm, self.residual, self.inputs = 0.0, None, None, None

    @property
    def dtype(self) -> torch.dtype:
        """Type of the first parameter of the whole module."""
        return next(self.__dict__["held"].parameters()).dtype

    @property
    def rows(self) -> RowForm:
        """Raw rows; a user's module is run as a whole."""
        return RowForm(self.in_dim, self.project, self.aggregate)


class OwnModel(Model):
    """`module` on blocks, with its own names of parameters.

    `named` is the text of the setting, for messages; `config`, `layers`, `in_dim`, `out_dim` and `schema` as in
    `build_model`. Of a typed graph, `forward` takes rows by type and edges by relation.
    """

    def __init__(
        self,
        module: nn.Module,
        named: str,
        config: ModelConfig,
        layers: int,
        in_dim: int,
        out_dim: int,
        schema: TypedSchema | None = None,
    ) -> None:
        nn.Module.__init__(self)
        self.module, self.schema = module, schema
        self.named, self.seed, self.out_dim = named, config.seed, out_dim
        self.takes = arguments_of(module.forward)
        self.block_wise = next((name for name in BLOCK_WISE if name in self.takes and schema is None), None)
        self._check_arguments()
        self.passings = MessagePassings(module, named)
        widths = [in_dim, *[config.hidden] * (layers - 1), out_dim]
        # Not a list of modules, whose parameters would count twice.
        self.__dict__["layers"] = [
            InsideLayer(module, n + 1, widths[n], widths[n + 1], self._reads()) for n in range(layers)
        ]
        self.examined = False
        """Whether runs note the results of each module."""
        self.last: Passage | None = None
        """The last run of `forward`, where it is examined."""
        self.tried: Tensor | None = None
        """Logits of an example that is the same on all ranks, in evaluation; None where they may differ."""

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """List the parameters of the module, by its own names."""
        return self.module.named_parameters(*args, **kwargs)

    def forward(self, blocks: Sequence[BlockTensors], x: Rows, dropout: DropoutKey | None = None) -> Tensor:
        """Compute logits of the roots, as `Model` does. Raises ConfigError for errors in the module."""
        parameter = next(self.module.parameters())
        if not len(blocks[0].dst_original):
            # User modules need not support empty graphs.
            return parameter.new_zeros((0, self.out_dim)) + 0 * parameter.sum()
        key = with_seed(dropout, self.seed)
        kinds = x.types if isinstance(x, TypedMatrix) else None
        passage = Passage(self._graphs(blocks, parameter.dtype, kinds), blocks[-1].src_original, key, kinds)
        passage.block_wise, passage.seen = self.block_wise is not None, [] if self.examined else None
        self.passings.passage = passage
        out = self.run(passage, x)
        self.last = passage if self.examined else None
        return out

    def _graphs(self, blocks: Sequence[BlockTensors], dtype: torch.dtype, kinds: Tensor | None) -> list[BlockGraph]:
        """Return the graphs of `blocks`, from the outermost on; `kinds` int64[n] are the types of its sources."""
        if self.schema is None or kinds is None:
            return [BlockGraph(block, dtype) for block in reversed(blocks)]
        types = self.schema.graph
        return [TypedBlockGraph(block, dtype, types, kinds[: block.n_src]) for block in reversed(blocks)]

    def _inputs(self, passage: Passage, x: Rows) -> Tensor | dict[str, Tensor]:
        """Return the rows `x` of the outermost sources as `forward` takes them: of a typed graph by type."""
        dtype = next(self.module.parameters()).dtype
        if self.schema is None or not isinstance(x, TypedMatrix):
            return passage.marked(dense(x).to(dtype), Mark(0, PLAIN))
        widths = self.schema.columns.tolist()
        found = (x.of_type(t, widths[t]).to(dtype) for t in range(len(widths)))
        return {name: passage.marked(next(found), Mark(0, t)) for t, name in enumerate(self.schema.names)}

    def run(self, passage: Passage, x: Rows) -> Tensor:
        """Compute logits of the roots of `passage`, from the rows `x` of its outermost sources. Raises as `forward`."""
        self.module.train(passage.key is not None)
        # A forward may turn gradients on or off for itself, as one that takes forces from them.
        graded = torch.set_grad_enabled(torch.is_grad_enabled())
        try:
            with graded, self._keeping_state(), self.naming("forward", passage), passage:
                out = self.module(self._inputs(passage, x), **self._of_graph(passage.graphs))
        finally:
            self.passings.end()
        out = self._checked(out, passage)
        return out if torch.is_grad_enabled() else out.detach()

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss`. Raises ConfigError for an error of the user's, such as in a hook."""
        with self.naming("backward"):
            loss.backward()

    @contextmanager
    def naming(self, where: str, passage: Passage | None = None) -> Iterator[None]:
        """Name the model, and `where`, in errors of the user's code; lack of memory and our own errors stay."""
        try:
            with running_user_code():
                yield
        except (LeapmpiError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if is_lack_of_memory(error):
                raise

            # Name the module that failed inside, not the outer forward: its error message already says that.
            name = passage.names[-1] if passage is not None and passage.names else "forward "
            inside = "" if name.startswith("forward ") else f" in {name}"
            raise ConfigError(
                f"--model {self.named}: {where} raised {describe_error(error, self.named)}{inside}"
            ) from error

    @contextmanager
    def keeping_buffers(self) -> Iterator[None]:
        """Let runs of the module change no buffer. Raises ConfigError at the end of the block where one did."""
        # A write through `.data` is not counted, so values are compared.
        before = {name: (buffer, buffer.clone()) for name, buffer in self.module.named_buffers()}
        yield
        for name, (buffer, values) in before.items():
            if not torch.equal(buffer, values):
                raise self._written(name)

    @contextmanager
    def _keeping_state(self) -> Iterator[None]:
        """Let a run make no parameter or buffer, and write no buffer. Raises ConfigError where it did."""
        before = self._state()
        yield
        after = self._state()
        if len(before) == len(after) and all(a is b and n == m for (a, n), (b, m) in zip(before, after, strict=True)):
            return
        known = {id(tensor): writes for tensor, writes in before}
        for name, parameter in self.module.named_parameters():
            if id(parameter) not in known:
                raise ConfigError(
                    f"--model {self.named}: forward makes the parameter {name}, which would not be trained; make it in "
                    "__init__, or use a lazy module of torch"
                )
        for name, buffer in self.module.named_buffers():
            if known.get(id(buffer)) != _writes(buffer):
                raise self._written(name)
        raise ConfigError(
            f"--model {self.named}: forward removes or moves a parameter or buffer; leave all as they are"
        )

    def _state(self) -> list[tuple[Tensor, int]]:
        """List parameters and buffers, with the number of writes to each buffer."""
        # Each rank would have its own buffers, and no checkpoint holds them. Writes count: one that leaves the values
        # as they are would change them once the weights have changed. By name this would take longer, in every run.
        modules = list(self.module.modules())
        parameters = [(each, 0) for module in modules for each in module._parameters.values() if each is not None]
        buffers = [each for module in modules for each in module._buffers.values() if each is not None]
        return [*parameters, *((each, _writes(each)) for each in buffers)]

    def _written(self, buffer: str) -> ConfigError:
        return ConfigError(
            f"--model {self.named}: forward writes the buffer {buffer}, but every rank would have its own copy; "
            "leapmpi keeps parameters only; for what it computes again each time use a local variable"
        )

    def after(self, *args: Any, **kwargs: Any) -> Tensor:
        raise NotImplementedError("a user's module is run as a whole")

    def _of_graph(self, graphs: Sequence[BlockGraph]) -> dict[str, Any]:
        """List the arguments of `forward` besides the rows. Raises ConfigError for weights that it would not read."""
        # Weights that forward does not read would be lost without a word, so they are refused.
        if isinstance(graphs[0], TypedBlockGraph):
            if graphs[0].block.weight is not None:
                raise ConfigError(
                    f"--model {self.named}: this sampler gives edges weights, which modules for typed graphs are not "
                    "given; use --sampler node-wise"
                )
            return {next(name for name in _OF_TYPES if name in self.takes): graphs[0].edge_index_dict}
        if graphs[0].block.weight is not None and not (self.block_wise or "edge_weight" in self.takes):
            raise ConfigError(
                f"--model {self.named}: this sampler gives edges weights, which forward does not take; add an argument "
                "edge_weight, or use another --sampler"
            )
        if self.block_wise:
            return {self.block_wise: graphs}
        if self.requires("edge_weight") and graphs[0].edge_weight is None:
            raise ConfigError(
                f"--model {self.named}: forward wants edge_weight, but neither the edges of this dataset nor the "
                "sampler have weights; import them, or write edge_weight=None"
            )
        return {name: getattr(graphs[0], name) for name in _OF_GRAPH if name in self.takes}

    def requires(self, name: str) -> bool:
        """Return whether `forward` has an argument called `name`, without a default."""
        return name in self.takes and self.takes[name].default is inspect.Parameter.empty

    def _of_target(self, out: Any) -> Any:
        """Return the rows of the target type, where `forward` returned rows by type. Raises ConfigError without any."""
        if self.schema is None or not isinstance(out, dict):
            return out
        target = self.schema.graph.target
        if target not in out:
            raise ConfigError(
                f"--model {self.named}: forward returned rows of {', '.join(map(str, out)) or 'no type'}, but the "
                f"target type is {target}"
            )
        return out[target]

    def _reads(self) -> tuple[str, ...]:
        """List the data of edges that `forward` reads, by layers' names; a block-wise one may read all.

        PyG's own models declare in `supports_...` which data they ignore.
        """
        if self.schema is not None:
            return ()
        names = {"edge_weight": "edge_weight", "edge_attr": "edge_features"}
        return tuple(
            kind
            for name, kind in names.items()
            if self.block_wise or (name in self.takes and getattr(self.module, f"supports_{name}", True))
        )

    def _check_arguments(self) -> None:
        """Raise ConfigError for a `forward` that cannot be called with rows and edges."""
        known = (*_OF_GRAPH, *BLOCK_WISE) if self.schema is None else _OF_TYPES
        names = list(self.takes)
        # Whatever else it takes must have a default, as leapmpi has nothing to pass for it.
        required = [name for name, each in self.takes.items() if each.default is each.empty]
        others = [name for name in required[1:] if name not in known]
        if self.schema is not None:
            if len(names) < 2 or names[0] in known or others or not set(names) & set(known):
                raise ConfigError(
                    f"--model {self.named}: forward takes ({', '.join(names)}), and the graph is typed; write "
                    "forward(x_dict, edge_index_dict)"
                )
            return
        if not names or names[0] in known or others or not set(names) & {"edge_index", *BLOCK_WISE}:
            raise ConfigError(
                f"--model {self.named}: forward takes ({', '.join(names)}); write forward(x, edge_index), with "
                "edge_weight or edge_attr where it reads them, or forward(x, adjs)"
            )

    def _checked(self, out: Any, passage: Passage) -> Tensor:
        """Check that `out` holds logits of the roots, and return it. Raises ConfigError for anything else."""
        where, layers = f"--model {self.named}: forward", len(passage.graphs)
        target = PLAIN if self.schema is None else self.schema.graph.target_number
        assert target is not None, "a model of a typed graph has a target type"
        roots, out = passage.rows[-1][target], self._of_target(out)
        if not self.block_wise and passage.calls < layers:
            some = f"passes messages {counted(passage.calls, 'time')}"
            none = "calls no module that passes messages, which it would take edge_index for; see forward(x, adjs)"
            raise ConfigError(
                f"{where} {some if passage.calls else none}, but --fanout names {counted(layers, 'layer')}; give one "
                "fan-out for "
                "each message passing"
            )
        if not isinstance(out, Tensor):
            raise ConfigError(
                f"{where} returned {type(out).__name__} and not a tensor of {counted(self.out_dim, 'column')}"
            )
        if tuple(out.shape) != (roots, self.out_dim):
            raise ConfigError(
                f"{where} returned {list(out.shape)} for {counted(roots, 'root')} of "
                f"{counted(self.out_dim, 'class')}, which wants "
                f"[{roots}, {self.out_dim}]"
            )
        if not out.is_floating_point():
            kind = str(out.dtype).removeprefix("torch.").rstrip("0123456789")
            raise ConfigError(f"{where} returned numbers of type {kind}, which are no logits; return real numbers")
        if torch.is_grad_enabled() and not out.requires_grad:
            raise ConfigError(
                f"{where} returned a tensor through which no gradient flows; leave out no_grad and detach"
            )
        return out


def _writes(buffer: Tensor) -> int:
    """Return the number of writes to `buffer`; 0 for one made in torch's inference mode, which nothing can write."""
    return 0 if buffer.is_inference() else buffer._version
