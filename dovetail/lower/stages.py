"""A graph in which sizes are found out, taken apart at the operators that do.

before:  %m = gt(%x, 0);  %i = nonzero(%m);  %y = sin(%x);  %z = index(%y, [%i]);  return (%z,)
after:   part 0: %m = gt(%x, 0)
         %i = nonzero(%m);  u0 = %i.size(0)
         part 1: %y = sin(%x);  %z = index(%y, [%i])

Each part is a graph like any other: its symbolic sizes are those of its inputs. A node belongs to the first part that
has what it needs. Views are taken again in each part that reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.fx

from dovetail.errors import Unsupported
from dovetail.ir import dims
from dovetail.ir.aten import AtenGraph, Subprogram, numbers, related
from dovetail.ir.devices import HOST
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.dimvalues import bind
from dovetail.ir.staged import LayoutCheck, Learn, Part, Ref, SizeCheck, Staged, StagedCall, Step
from dovetail.ops.calls.effects import finds_out, has_effect
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake.symbolic.symbols_in_graph import sizes_in, unknown_sizes
from dovetail.ops.fake.symbolic.symint import concrete, dim_of, is_size

Node = torch.fx.Node


def in_stages(aten: AtenGraph) -> Staged | None:
    """The graph in parts; None where every size is known from the beginning."""
    finders = [n for n in aten.graph.nodes if finds_out(n)]
    if not finders:
        return None
    found = [_node(s).sizes for n in finders for s in sizes_in(n.meta["val"])]
    if not found:
        raise Unsupported(
            "data-dependent-size", f"{finders[0].target} finds out a size that PyTorch's code took to be a constant"
        )
    names = ", ".join(sorted({str(n.target) for n in finders}))
    return StageSplitter(aten, finders, found[0]).run(names)


class StageSplitter:
    """`finders`: what is called between the parts. `sizes`: of the compilation, if some are found out."""

    def __init__(self, aten: AtenGraph, finders: Iterable[Node], sizes: Any = None) -> None:
        self.aten, self.finders, self.sizes = aten, set(finders), sizes
        self.nodes = list(aten.graph.nodes)
        self.placeholders = [n for n in self.nodes if n.op == "placeholder"]
        self.level: dict[Node, int] = {}
        self.symbol_level: dict[Symbol, int] = {}
        self.wanted: dict[int, dict[Node, None]] = {}  # what each part gives
        self.steps: list[Step] = []
        self.made: set[Node] = set()  # what has a name between the parts
        self.checked: set[Any] = set()
        self.read_later: set[Node] = set()  # inputs that are returned, or that others become

    def run(self, waits: str = "") -> Staged:
        for node in self.nodes:
            self.place(node)
        results = list(self.nodes[-1].args[0])
        last = max(self.level.values())
        ends = [*(n for n in results if isinstance(n, Node)), *(n for _, n in self.aten.mutated)]
        self.demand(ends)
        self.read_later = {self.root(n) for n in ends if self.is_between(n)}
        for node in self.finders:
            self.demand(_nodes_in([node.args, node.kwargs]))
        left = self.parts(results, last)
        viewed = {n: k in (self.aten.viewed or ()) for k, n in enumerate(results) if isinstance(n, Node)}
        outputs = tuple(
            self.output(n, viewed[n]) if isinstance(n, Node) else dim_of(n) if is_size(n) else n for n in results
        )
        inputs = self.placeholders
        written = tuple((inputs[k].name, self.value(n).name) for k, n in left.items())
        return Staged(
            tuple(n.name for n in inputs if n.name not in self.aten.constants), self.aten.constants, self.told(inputs),
            tuple(self.steps), outputs, written, any(map(_draws, self.nodes)), waits,
        )  # fmt: skip

    def parts(self, results: list, last: int) -> dict[int, Node]:
        """Every part and what is called between them; inputs that no part writes to, with their new values."""
        contents = {level: self.contents(level) for level in range(last, -1, -1)}
        left = dict(self.aten.mutated)
        for level in range(last + 1):
            own = {k: n for k, n in left.items() if n in contents[level] and self.writes_itself(k, level, last)}
            left = {k: n for k, n in left.items() if k not in own}
            self.part(level, contents[level], results, own)
            found = [n for n in self.nodes if n in self.finders and self.level[n] == level + 1]
            self.read_together([n for n in found if _waits_for_integer(n)])
            for node in found:
                self.find(node)
        return left

    def read_together(self, finders: list[Node]) -> None:
        """Waits for the device once for all these numbers."""
        if len(finders) < 2:
            return
        name = f"{finders[0].name}_and_others"
        self.steps.append(StagedCall(name, numbers, ([self.argument(n.args[0]) for n in finders],)))
        for k, node in enumerate(finders):
            self.steps.append(StagedCall(node.name, operator.getitem, (Ref(name), k)))
            self.made.add(node)

    # ------------------------------------------------------------ inputs that are written to

    def writes_itself(self, place: int, level: int, last: int) -> bool:
        """May the part write to the input? Only when nothing can be called off, and nothing reads it, any more."""
        return level == last and self.placeholders[place] not in self.read_later

    def root(self, node: Node) -> Node:
        return self.root(node.args[0]) if _is_view(node) or node.target is operator.getitem else node  # type: ignore

    # ------------------------------------------------------------ which part a node belongs to

    def place(self, node: Node) -> None:
        """Random operators, and others with an effect, stay in order."""
        if node.op != "call_function":
            self.level[node] = 0
            return
        before = [self.level[n] for n in node.all_input_nodes]
        finder = node in self.finders
        for size in sizes_in([node.args, node.kwargs, None if finder else node.meta.get("val")]):
            before += [self.symbol_level.get(s, 0) for s in dims.symbols(dim_of(size))]
        ordered = finder or node.target is not operator.getitem and has_effect(node)
        if ordered and not finder:
            before.append(self.effects)
        self.level[node] = max(before, default=0) + finder
        if ordered and not finder:
            self.effects = self.level[node]
        if finder:
            for size in sizes_in(node.meta["val"]):
                for symbol in dims.symbols(_node(size).dim) & self.sizes.unbacked.keys():
                    self.symbol_level.setdefault(symbol, self.level[node])

    effects = 0  # the part of the last effect

    def is_between(self, node: Node) -> bool:
        """Is it at hand between the parts: an input, what a finder gives, or a view of that?"""
        if node.op == "placeholder" or node in self.finders:
            return True
        return (_is_view(node) or node.target is operator.getitem) and self.is_between(node.args[0])  # type: ignore[arg-type]

    def demand(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if not self.is_between(node):
                self.wanted.setdefault(self.level[node], {})[node] = None

    def contents(self, level: int) -> list[Node]:
        """The nodes that the part computes; what it needs of earlier ones is demanded."""
        roots = list(self.wanted.get(level, ()))
        roots += [n for n in self.nodes if self.level[n] == level and self.inside(n) and has_effect(n)]
        found: set[Node] = set()
        stack = roots
        while stack:
            node = stack.pop()
            if node in found:
                continue
            found.add(node)
            for used in node.all_input_nodes:
                if self.computed(used, level):
                    stack.append(used)
                else:
                    self.demand([used])
        return [n for n in self.nodes if n in found]

    def inside(self, node: Node) -> bool:
        return node.op == "call_function" and node not in self.finders and node.target is not operator.getitem

    def computed(self, node: Node, level: int) -> bool:
        """In this part itself? A view is taken where it is read."""
        if node.op != "call_function" or node in self.finders:
            return False
        if node.target is operator.getitem and node.args[0] in self.finders:
            return False
        return self.level[node] == level or _is_view(node) or _is_plain(node)

    # ------------------------------------------------------------ steps

    def part(self, level: int, contents: list[Node], results: list, own: dict[int, Node]) -> None:
        """`own`: inputs that it writes to, and their new values."""
        if not contents:
            return
        graph, env, given = torch.fx.Graph(), dict[Node, Node](), list[Any]()
        written = {self.placeholders[k]: new for k, new in own.items()}
        mine = set(contents)
        outside = [n for n in self.nodes if n not in mine and (n in written or any(u in mine for u in n.users))]
        for node in outside:
            if node.name not in self.aten.constants:
                env[node] = _placeholder(graph, node)
                given.append(self.value(node))
        after = graph.placeholder("sizes")
        constants = [n for n in outside if n.name in self.aten.constants]
        for node in constants:
            env[node] = _placeholder(graph, node)
        for node in contents:
            made = env[node] = graph.node_copy(node, env.__getitem__)
            made.meta = dict(node.meta)
        wanted = self.wanted_of(level, env, mine, results, set(written.values()))
        graph.output(tuple(env[n] for n in wanted))
        for size in unknown_sizes(graph):
            with graph.inserting_before(after):
                graph.placeholder(f"size_{size}").meta["val"] = concrete(size)
            given.append(size.dim)
        graph.erase_node(after)
        used = {n.name: self.aten.constants[n.name] for n in constants}
        inputs = [n for n in graph.nodes if n.op == "placeholder"]
        mutated = tuple((inputs.index(env[old]), env[new]) for old, new in written.items())
        part = AtenGraph(graph, mutated, used, viewed=self.viewed_among(wanted, results))
        self.steps.append(Part(part, tuple(given), tuple(n.name for n in wanted)))
        self.made.update(wanted)

    def wanted_of(
        self, level: int, env: Mapping[Node, Node], mine: set[Node], results: list, news: set[Node]
    ) -> list[Node]:
        """What the part gives; not the new values of inputs that it writes itself, if nobody else reads them."""
        read = {n for n in mine if n in results or any(u not in mine and u.op != "output" for u in n.users)}
        return [n for n in self.wanted.get(level, ()) if n in env and n not in news - read]

    def viewed_among(self, wanted: list[Node], results: list) -> frozenset[int] | None:
        """Which of them are results that are views in PyTorch's sense."""
        viewed = self.aten.viewed
        if viewed is None:
            return None
        known = {n for k, n in enumerate(results) if isinstance(n, Node) and k in viewed}
        return frozenset(k for k, n in enumerate(wanted) if n in known)

    def value(self, node: Node) -> Ref:
        """The value between parts, made of what is there if need be."""
        if node.op != "placeholder" and node not in self.made:
            self.call(node)
        return Ref(node.name)

    def output(self, node: Node, view: bool) -> Ref:
        if self.aten.viewed is None or node.op == "placeholder" or not self.is_between(node):
            return self.value(node)
        name = f"{node.name}_given"
        self.steps.append(StagedCall(name, related, (self.value(node), view)))
        return Ref(name)

    def call(self, node: Node) -> None:
        args, kwargs = self.argument(node.args), self.argument(node.kwargs)
        self.steps.append(StagedCall(node.name, node.target, args, kwargs))
        self.made.add(node)

    def argument(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self.value(value)
        if is_size(value):
            return dim_of(value)
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.argument, value))
        if isinstance(value, dict):
            return {k: self.argument(v) for k, v in value.items()}
        return value

    def find(self, node: Node) -> None:
        val = node.meta["val"]
        if node not in self.made:
            self.call(node)
        if self.sizes is not None:
            several = isinstance(val, (tuple, list))
            self.learn(((f"{node.name}[{k}]", v) for k, v in enumerate(val)) if several else [(node.name, val)])
            self.check()
        if isinstance(val, torch.Tensor):
            layout = tuple(map(dim_of, val.shape)), tuple(map(dim_of, val.stride()))
            self.steps.append(LayoutCheck(node.name, *layout, str(node.target)))

    def learn(self, values: Iterable[tuple[str, Any]]) -> None:
        known = {step.symbol for step in self.steps if isinstance(step, Learn)}
        for text, value in values:
            for where, size in _places(text, value):
                dim = _node(size).dim
                for symbol in dims.symbols(dim) & self.sizes.unbacked.keys() - known:
                    if dim is dims.of_atom(symbol):
                        self.steps.append(Learn(symbol, where))
                        known.add(symbol)

    def check(self) -> None:
        """What the compilation relies on about sizes that are all known by now."""
        known = {step.symbol for step in self.steps if isinstance(step, Learn)}
        for fact in self.sizes.facts:
            mine = dims.symbols(fact.dim) & self.sizes.unbacked.keys()
            if mine and mine <= known and fact not in self.checked:
                self.checked.add(fact)
                self.steps.append(SizeCheck(str(fact)))

    def told(self, inputs: list[Node]) -> dict[Symbol, str]:
        pairs: list[tuple[str, Dim]] = []
        for node in inputs:
            pairs += [(text, _node(size).dim) for text, size in _places(node.name, node.meta["val"])]
        return bind(pairs)


def _waits_for_integer(finder: Node) -> bool:
    """Does it find out one integer, for which a device is waited for?"""
    if finder.target is not torch.ops.aten._local_scalar_dense.default:
        return False
    held: Any = finder.args[0]
    return held.meta["val"].dtype is torch.int64 and held.meta["val"].device != HOST


def _placeholder(graph: torch.fx.Graph, node: Node) -> Node:
    made = graph.placeholder(node.name)
    made.meta = dict(node.meta)
    return made


def _node(size: Any) -> Any:
    return size.node if isinstance(size, torch.SymInt) else size


def _places(text: str, value: Any) -> list[tuple[str, Any]]:
    """Where sizes can be read."""
    if is_size(value):
        return [(text, value)]
    if not isinstance(value, torch.Tensor) or not value._has_symbolic_sizes_strides:
        return []
    found = [(f"{text}.size({k})", n) for k, n in enumerate(value.shape) if is_size(n)]
    return found + [(f"{text}.stride({k})", n) for k, n in enumerate(value.stride()) if is_size(n)]


def _nodes_in(value: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.map_arg(value, found.append)
    return found


def _is_view(node: Node) -> bool:
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])  # type: ignore[arg-type]
    return not isinstance(node.target, Subprogram) and facts(node.target).view


def _is_plain(node: Node) -> bool:
    """Is it made of numbers and sizes alone, at no cost where it is read?"""
    if node.target is operator.getitem or node.all_input_nodes or has_effect(node):
        return False
    return isinstance(node.meta.get("val"), torch.Tensor)


def _draws(node: Node) -> bool:
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return isinstance(node.target, Subprogram) or facts(node.target).random
