"""ATen graph in, loop program out: every node becomes groups, an index map or a library call.

before:  %y = aten.add(%x, 1);  %z = aten.t(%y);  %w = aten.mm(%z, %z)
after:   group add_0: b0[i0, i1] = a0[i0, i1] + 1
         view b1 = b0 as strided
         library mm_1: b2 = aten.mm(b1, b1)

How an operator is lowered is written in `ops/`; this file walks the graph, falls back to library
calls, and describes inputs and outputs.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from dovetail.errors import InternalError
from dovetail.ir.aten import AtenGraph, Subprogram, output_of
from dovetail.ir.dims import Dim
from dovetail.ir.liveness import nodes, statement_roots
from dovetail.ir.loops import Buffer, Group, Op, Output, Param, Program
from dovetail.ir.scalar import ELEMENTARY
from dovetail.lower.library import call_library, without_unread
from dovetail.lower.numbers import numbers_fit, sizes_fit, sizes_of
from dovetail.ops.calls.schema import bound
from dovetail.ops.fake.symbolic.symint import final_of, is_size
from dovetail.ops.integer_ends import end_of
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Row
from dovetail.ops.lowering.value import Spec, Value, spec_of
from dovetail.ops.table import row_of
from dovetail.options import Options


def lower(aten: AtenGraph, options: Options) -> Program:
    """One operator a group. Raises InternalError on a graph that breaks the rules of AtenGraph.

    With eager's numerics, elementary functions are PyTorch's own: no other implementation has its last bits.
    """
    return _Lowering(aten, bitwise=options.numerics == "eager").run()


class _Lowering:
    def __init__(self, aten: AtenGraph, bitwise: bool) -> None:
        self.aten, self.bitwise = aten, bitwise
        self.emit = Emitter()
        self.env: dict[torch.fx.Node, Any] = {}
        self.inputs: list = []  # Buffers and Params, as the caller gives them
        self.numbers: list[tuple[int, Param]] = []
        self.measured: list[tuple[Param, Dim]] = []
        self.constants: dict[str, Any] = {}
        self.opaque: set[str] = set()
        self.negated: set[str] = set()  # inputs whose memory holds the other signs
        self.stacks: dict[torch.fx.Node, tuple] = {}
        self.given: dict[str, torch.fx.Node] = {}  # whose result a returned buffer is: another's is another tensor

    def run(self) -> Program:
        result: Any = ()
        returned = _returned(self.aten)
        for node in self.aten.graph.nodes:
            self.emit.stack = self.stacks[node] = self.stack(node)
            if node.op == "call_function":
                self.env[node] = self.call(node, node in returned)
            elif node.op == "placeholder":
                self.placeholder(node)
            elif node.op == "output":
                result = node.args[0]
            else:
                raise InternalError("lower", f"node {node.name} is a {node.op}")
        outputs = tuple(self.output(k, value) for k, value in enumerate(_flat(result)))
        mutated = tuple(self.written(self.inputs[k], self.env[node]) for k, node in self.aten.mutated)
        buffers = tuple(b for b in self.inputs if isinstance(b, Buffer))
        program = Program(
            buffers, tuple(self.emit.items), outputs, mutated, (), self.constants, tuple(self.numbers),
            tuple(self.measured), self.emit.lines, frozenset(self.opaque),
        )  # fmt: skip
        program = program.with_items(tuple(without_unread(program)))
        return replace(program, sizes=sizes_of(program))

    # ------------------------------------------------------------ inputs

    def placeholder(self, node: torch.fx.Node) -> None:
        val = node.meta["val"]
        if is_size(val):
            self.number(node, torch.int64)
            self.measured.append((self.env[node], final_of(val)))
            self.env[node] = final_of(val)
            return
        if isinstance(val, (torch.SymFloat, torch.SymInt)):
            self.number(node, torch.float64 if isinstance(val, torch.SymFloat) else torch.int64)
            return
        if not isinstance(val, torch.Tensor):
            raise InternalError("lower", f"input {node.name} is a {type(val).__name__}, not a tensor")
        spec = spec_of(val)
        buffer = Buffer(f"a{len(self.inputs)}", spec.dtype, spec.device, spec.sizes, spec.strides, 0, "input")
        self.inputs.append(buffer)
        self.opaque |= {buffer.name} if node.meta.get("opaque") else set()
        self.emit.lines |= {buffer.name: self.emit.stack} if self.emit.stack else {}
        self.emit.origins[buffer.name] = int(val.storage_offset())
        self.env[node] = self.emit.stored(buffer)
        if val.is_neg() and spec.dtype in build.SUPPORTED:
            self.negated.add(buffer.name)
            self.env[node] = self.emit.stored(self.emit.cloned(buffer)).as_copy(spec.strides)
        for name in (node.target, node.name):
            if name in self.aten.constants:
                self.constants[buffer.name] = self.aten.constants[name]  # type: ignore[index]

    def number(self, node: torch.fx.Node, dtype: torch.dtype) -> None:
        """An input that is no tensor; it takes a place among them."""
        param = Param(f"n{len(self.inputs)}", dtype)
        self.numbers.append((len(self.inputs), param))
        self.inputs.append(param)
        self.env[node] = param

    # ------------------------------------------------------------ nodes

    def stack(self, node: torch.fx.Node) -> tuple:
        """The user's lines; of what PyTorch's engine computes, those of the first value that it is computed from."""
        found = (self.stacks.get(n) for n in node.all_input_nodes)
        return node.meta.get("stack") or next(filter(None, found), ())

    def call(self, node: torch.fx.Node, returned: bool) -> Any:
        target = node.target
        args = self.values(node.args)
        if target is operator.getitem:
            return args[0][args[1]]
        if not isinstance(target, (torch._ops.OpOverload, Subprogram)):
            raise InternalError("lower", f"node {node.name} calls {target}, which is no ATen operator")
        kwargs = {name: self.values(value) for name, value in node.kwargs.items()}
        out = spec_of(node.meta["val"])
        row = row_of(target)
        self.emit.ends = {id(self.env[n]): end for n in node.all_input_nodes if (end := end_of(n)) is not None}
        self.emit.begin(target._schema.name.rpartition("::")[2], _specs(out) if returned else ())
        if row.counts_from_storage:
            args, kwargs = self.from_storage(node, args, kwargs), {}
        if row.lowering is not None and self.lowers(row, args, kwargs, out):
            result = row.lowering(self.emit, out, *args, **kwargs)
            if result is not NotImplemented:
                return result
        result = call_library(self.emit, target, args, kwargs, out)
        if row.keeps_offset:
            self.emit.origins[result.base.name] = self.start(args[0])
        return result

    def lowers(self, row: Row, args: tuple, kwargs: dict[str, Any], out: Any) -> bool:
        """May the operator's lowering see these arguments? With eager's own bits, only if loops compute them."""
        if not (numbers_fit(row, args, kwargs, out) and sizes_fit(row, args, kwargs)):
            return False
        if row.only_indices:
            return True
        return _computable(args, kwargs, out) and not (self.bitwise and self.rounds_otherwise(row, args, kwargs, out))

    def rounds_otherwise(self, row: Row, args: tuple, kwargs: dict[str, Any], out: Any) -> bool:
        """Might loops give other bits than PyTorch's own kernels?"""
        if row.same_bits is not None and not row.same_bits([*args, *kwargs.values()], out):
            return True
        return row.rounds_otherwise or self.elementary(row.lowering, out, args, kwargs)

    def start(self, value: Value) -> Dim:
        """Where the tensor starts in its storage when the program runs."""
        held = self.emit.materialize(value)
        assert held.base is not None
        return self.emit.origins.get(held.base.name, 0) + held.offset

    def from_storage(self, node: torch.fx.Node, args: tuple, kwargs: dict[str, Any]) -> tuple:
        """The arguments, where an offset counts from the start of eager's storage: what a kernel has computed lies at
        the start of its own."""
        named = bound(node.target, args, kwargs)
        if named.get("storage_offset") is not None:
            eager = int(node.args[0].meta["val"].storage_offset())  # type: ignore[union-attr]
            named["storage_offset"] += self.start(args[0]) - eager
        return tuple(named.values())

    def elementary(self, row: Any, out: Any, args: Any, kwargs: Any) -> bool:
        """Would the operator's own loops evaluate elementary functions?"""
        trial = Emitter()
        trial.origins = self.emit.origins
        row(trial, out, *args, **kwargs)
        groups = [item for item in trial.items if isinstance(item, Group)]
        roots = [root for group in groups for s in group.statements() for root in statement_roots(s)]
        return any(isinstance(node, Op) and node.name in ELEMENTARY for node in nodes(roots))

    def values(self, argument: Any) -> Any:
        """Nodes replaced by what they stand for."""
        if isinstance(argument, torch.fx.Node):
            return self.env[argument]
        if isinstance(argument, (tuple, list)):
            return tuple(map(self.values, argument))
        return final_of(argument) if is_size(argument) else argument

    # ------------------------------------------------------------ results

    def output(self, position: int, argument: Any) -> Output:
        value = self.values(argument)
        if not isinstance(argument, torch.fx.Node):
            return Output(value)
        if not isinstance(value, Value):
            return Output(value)
        buffer = self.owned(value)
        if self.given.setdefault(buffer.name, argument) is not argument:
            buffer = self.emit.again(buffer)
        return Output(buffer, None if self.aten.viewed is None else position in self.aten.viewed)

    def written(self, old: Buffer, value: Value) -> tuple[Buffer, Buffer]:
        """An input and its new value, which only PyTorch can write into memory that holds the other signs."""
        new = self.owned(value)
        return old, self.emit.cloned(new) if old.name in self.negated else new

    def owned(self, value: Value) -> Buffer:
        """Memory with the value that is no input's."""
        self.emit.begin("copy")
        held = self.emit.materialize(value)
        if held.base is not None and held.base.kind == "input":
            held = self.emit.fresh(value)
        return self.emit.memory(held)


def _returned(aten: AtenGraph) -> set[torch.fx.Node]:
    """Nodes whose own buffers outlive the program."""
    found = {a for a in _flat(output_of(aten.graph).args[0]) if isinstance(a, torch.fx.Node)}
    found |= {node for _, node in aten.mutated}
    picked = {n.args[0] for n in found if n.target is operator.getitem}
    return found | picked  # type: ignore[operator]


def _specs(out: Any) -> tuple[Spec, ...]:
    """The tensors among an operator's results."""
    if isinstance(out, Spec):
        return (out,)
    return tuple(s for s in out if isinstance(s, Spec)) if isinstance(out, tuple) else ()


def _flat(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def _on(device: torch.device, values: Any) -> bool:
    """Are all tensors there?"""
    return all(
        _on(device, v) if isinstance(v, tuple) else v.device == device for v in values if isinstance(v, (tuple, Value))
    )


def _computable(args: Any, kwargs: Any, out: Any) -> bool:
    """Has every tensor a dtype that loops can compute with, on one device?"""
    if isinstance(out, Spec):
        if out.dtype not in build.SUPPORTED:
            return False
        if not _on(out.device, (*args, *kwargs.values())):
            return False
    elif isinstance(out, tuple) and not all(_computable((), {}, spec) for spec in out):
        return False
    for value in (*args, *kwargs.values()):
        if isinstance(value, Value):
            if value.dtype not in build.SUPPORTED:
                return False
        elif isinstance(value, tuple) and not _computable(value, {}, None):
            return False
    return True
