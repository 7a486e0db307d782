"""The graph of an exported program, made of what capture found.

Its placeholders are the leaves of the arguments, tensors of the program are attributes by their names, sizes are read
off the placeholders, and its output is the leaves of the result:

    graph(x, self_weight, 2*x.shape[0])    ->    weight = self.weight; size = x.size(0); mul = 2 * size; ...
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
import torch.fx

from dovetail import guards
from dovetail.errors import Unsupported
from dovetail.exporting import buffers, expressions
from dovetail.exporting.arguments import TENSORS, VALUE, Arguments, is_constant
from dovetail.exporting.buffers import CODE, Exchange
from dovetail.exporting.code import is_free
from dovetail.exporting.encoding import CHECKPOINT, function_name, is_member
from dovetail.exporting.expressions import Expression
from dovetail.exporting.outcome import REMEDY, ExportOutcome
from dovetail.exporting.ranges import DeclaredSizes
from dovetail.exporting.signature import ExportSignature, Size
from dovetail.exporting.state import GRAPHS, ExportState
from dovetail.ir.captured import Captured, GraphInput
from dovetail.ir.checks import assumed
from dovetail.ir.dims import Dim
from dovetail.ir.records import dataclass
from dovetail.ir.source import Arg, path
from dovetail.ops.calls import higher_order
from dovetail.ops.calls.autograd_calls import METHODS
from dovetail.ops.fake.symbolic.symint import dim_of, is_size

#: What takes symbolic numbers as well, of those who trace the graph.
SYMBOLIC: dict[str, Any] = {"min": torch.sym_min, "max": torch.sym_max, "int": torch.sym_int, "float": torch.sym_float}


#: Methods that change how PyTorch's engine sees tensors which others have as well.
STEERING = METHODS - {"requires_grad_", "detach_"}


@dataclass
class ExportBuilder:
    """Copies the captured graph. `leaves` are the arguments by identity: the real ones and what stands for them."""

    captured: Captured
    given: Arguments
    found: DeclaredSizes
    state: ExportState
    leaves: dict[int, int]
    graph: torch.fx.Graph = field(default_factory=torch.fx.Graph)
    placeholders: list[torch.fx.Node] = field(default_factory=list)
    made: dict[Expression, torch.fx.Node] = field(default_factory=dict)

    def build(self, outcome: ExportOutcome) -> torch.fx.Graph:
        captured, given = self.captured, self.given
        self.placeholders = [self.graph.placeholder(n if is_free(n) else f"{n}_") for n in given.identifiers]
        for node in self.placeholders:
            node.target = node.name  # which is a name that code can have
        reals = guards.real_inputs(captured, given.program, *given.of_leaves(given.leaves))
        inputs = zip(captured.inputs, reals, strict=True)
        known: dict[torch.fx.Node, Any] = {}
        for node in captured.graph.graph.nodes:
            if node.op == "placeholder":
                known[node] = self._input(*next(inputs))
            elif node.op != "output":
                known[node] = self._copy(node, known)
        buffers.refuse_other_names(outcome.exchanges, self.state, captured, self._load)
        for exchange in outcome.exchanges:
            self._refuse_another_kind(exchange, outcome)
        named = [*zip(outcome.leaves, outcome.paths, strict=True), *((e.new, e.names[0]) for e in outcome.exchanges)]
        self.graph.output(tuple(self._result(leaf, path, outcome, known) for leaf, path in named))
        self._remove_unused()
        return self.graph

    def _load(self, sources: Sequence[Any]) -> list:
        given = self.given
        return guards.load(self.captured, given.program, sources, *given.of_leaves(given.leaves))

    def _copy(self, node: torch.fx.Node, known: Mapping[torch.fx.Node, Any]) -> torch.fx.Node:
        if node.target is assumed:  # where capture goes on, this is an error
            return self.graph.call_function(torch._check, (known[node.all_input_nodes[0]],))
        _refuse_code(node)
        made = self.graph.node_copy(node, lambda n: known[n])
        made.meta = {}
        _read_devices(made)
        if stack := node.meta.get("stack"):
            made.stack_trace = "\n".join(place.entry() for place in stack)
        if node.op == "get_attr":
            self.state.graphs[str(node.target)] = inner = getattr(self.captured.graph, str(node.target))
            made.target = f"{GRAPHS}.{node.target}"
            for each in (n for module in inner.modules() for n in module.graph.nodes):
                _refuse_code(each)
                _read_devices(each)
        return made

    # ------------------------------------------------------------ what the graph takes

    def _input(self, given: GraphInput, real: Any) -> Any:
        if is_size(given.fake):
            return self.size(dim_of(given.fake))
        if isinstance(real, torch.Tensor):
            if id(real) not in self.leaves and Arg in map(type, path(given.source)):
                words = f"{given.source.name()}, a tensor of an argument that no other call brings"
                raise Unsupported(CODE, f"the program uses {words}", "Make it an argument of its own.")
            return self._tensor(real, given.source.name())
        return self._computed(self.found.formulas.of(given.source))

    def _tensor(self, real: torch.Tensor, name: str) -> torch.fx.Node:
        position = self.leaves.get(id(real))
        if position is not None:
            return self.placeholders[position]
        if type(real) not in (*TENSORS, torch.nn.Buffer):
            raise Unsupported(CODE, f"{name} is a {type(real).__qualname__}, a class of tensors of its own", REMEDY)
        target = self.state.name_of(real, name)
        node = self.made.get(("attribute", target))
        if node is None:
            node = self.made["attribute", target] = self.graph.get_attr(target)
        return node

    def size(self, dim: Dim) -> Any:
        """A size as a node, or a number."""
        return self._computed(self.found.formulas.of_dim(dim))

    def _computed(self, expression: Expression) -> Any:
        if isinstance(expression, (int, float)):
            return expression
        if expression not in self.made:
            self.made[expression] = size_node(self.graph, expression, self.found.sizes, self._computed)
        return self.made[expression]

    # ------------------------------------------------------------ what it gives

    def _result(self, leaf: Any, path: str, outcome: ExportOutcome, known: Mapping[torch.fx.Node, Any]) -> Any:
        for stand_in, node in zip(outcome.stand_ins, outcome.nodes, strict=True):
            if leaf is stand_in:
                return known[node]
        if is_size(leaf):
            return self.size(dim_of(leaf))
        if type(leaf) is torch.Size:
            parts = [self._result(part, path, outcome, known) for part in leaf]
            return self.graph.call_function(torch.Size, (parts,))
        if id(leaf) in self.leaves:
            return self.placeholders[self.leaves[id(leaf)]]
        if isinstance(leaf, torch.Tensor):
            return self._tensor(leaf, path)
        if is_constant(leaf):
            return leaf
        what = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        raise Unsupported(CODE, f"{path} is a {what}", REMEDY)

    def _refuse_another_kind(self, exchange: Exchange, outcome: ExportOutcome) -> None:
        """The graph was made for the buffer as it is."""
        shown = {id(s): node.meta["fake"] for s, node in zip(outcome.stand_ins, outcome.nodes, strict=True)}
        old, new = (self._described(t) for t in (exchange.old, shown.get(id(exchange.new), exchange.new)))
        if old != new:
            said = f"the buffer {exchange.names[0]}, {old}, gets a tensor that is {new}"
            raise Unsupported(CODE, said, "Give the buffer the shape, dtype and device that it will have.")

    def _described(self, tensor: torch.Tensor) -> str:
        sizes = (self.captured.sizes.resolve(dim_of(n)) for n in tensor.shape)
        shown = [self.found.names.get(str(n)) or str(n) for n in sizes]
        kind = "" if tensor.layout is torch.strided else f", {tensor.layout}"
        dtype = str(tensor.dtype).removeprefix("torch.")
        return f"{dtype}[{', '.join(shown)}] on {tensor.device}{kind}"

    def _remove_unused(self) -> None:
        """Sizes that nobody needs after all."""
        for node in reversed(list(self.graph.nodes)):
            if not node.users and (node.op == "get_attr" or node in self.made.values() and node.op != "placeholder"):
                self.graph.erase_node(node)


def _read_devices(node: torch.fx.Node) -> None:
    """Names of devices as devices, which `load` can replace."""
    if isinstance(node.kwargs.get("device"), str):
        node.kwargs = {**node.kwargs, "device": torch.device(str(node.kwargs["device"]))}
    if node.target == "to":
        node.args = tuple(torch.device(arg) if isinstance(arg, str) else arg for arg in node.args)


def _refuse_code(node: torch.fx.Node) -> None:
    """A node that calls the program's own code, or steers PyTorch's engine, is nothing that runs without it."""
    if isinstance(node.target, higher_order.Checkpoint):
        node.target = CHECKPOINT
    stack = node.meta.get("stack", ())
    if isinstance(node.target, higher_order.Apply):
        what = f"the program has code of its own for the gradients of {node.target.cls.__name__}"
        raise Unsupported(CODE, what, "Export under torch.no_grad() what is to run without.", stack)
    method = node.op == "call_method" and (node.target in STEERING or not is_member(str(node.target)))
    if node.op == "call_module" or method or node.op == "call_function" and function_name(node.target) is None:
        name = getattr(node.target, "__qualname__", node.target)
        raise Unsupported(CODE, f"the program's graph calls {name}, which is no computation of PyTorch's", "", stack)


def size_node(
    graph: torch.fx.Graph, of: Expression, sizes: Sequence[Size], computed: Callable[[Any], Any]
) -> torch.fx.Node:
    """A node for a size that is no number. `computed` gives nodes for what it is computed from."""
    if isinstance(of, str):
        size = next(s for s in sizes if s.name == of)
        placeholder = [n for n in graph.nodes if n.op == "placeholder"][size.input]
        return placeholder if size.dim == VALUE else graph.call_method("size", (placeholder, size.dim))
    sign, *sides = of
    return graph.call_function(SYMBOLIC.get(sign, expressions.OPERATIONS[sign]), tuple(map(computed, sides)))


def with_checks(graph: torch.fx.Graph, signature: ExportSignature) -> torch.fx.Graph:
    """A copy that checks the conditions on sizes itself, by `torch._check`."""
    graph = copy.deepcopy(graph)

    def computed(of: Expression) -> Any:
        return of if isinstance(of, (int, float)) else size_node(graph, of, signature.sizes, computed)

    first = next(n for n in graph.nodes if n.op != "placeholder")
    with graph.inserting_before(first):
        for condition in signature.conditions:
            sides = computed(condition.left), computed(condition.right)
            holds = graph.call_function(expressions.COMPARISONS[condition.sign], sides)
            graph.call_function(torch._check, (holds,))
    return graph


def build(
    captured: Captured, given: Arguments, stand_ins: Sequence[Any], found: DeclaredSizes, outcome: ExportOutcome,
    state: ExportState,
) -> torch.fx.Graph:
    """Raises Unsupported for inputs and results that an exported program cannot have."""
    real = {id(leaf): k for k, leaf in enumerate(given.leaves) if isinstance(leaf, torch.Tensor)}
    shown = {id(leaf): k for k, leaf in enumerate(stand_ins) if isinstance(leaf, torch.Tensor)}
    return ExportBuilder(captured, given, found, state, {**real, **shown}).build(outcome)
