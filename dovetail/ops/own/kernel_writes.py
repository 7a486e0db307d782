"""Which arguments a Triton kernel of the program's may write to, read off Triton's own form of it.

    tt.store %p, %v          %p = tt.addptr %q, %i          %q = tt.splat %arg2          arg2 is written to

The module is walked once. Every value has the values that it may point into the memory of; a value whose memory is not
known (an address that was loaded, an unknown block's argument) makes the answer unknown.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import torch

from dovetail.ir.devices import GPU
from dovetail.ir.records import dataclass

#: Operators of Triton's that write, and which operand says where to.
WRITERS = {
    "tt.store": 0, "tt.atomic_rmw": 0, "tt.atomic_cas": 0, "tt.descriptor_store": 0, "tt.descriptor_scatter": 0,
    "tt.descriptor_reduce": 0,
}  # fmt: skip
#: Operators whose results point where their first operand does.
FIRST = frozenset(("tt.addptr", "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor", "tt.bitcast"))
#: Operators that only compute: pointers among their operands are pointers among their results.
PURE = ("arith.", "math.", "scf.", "ub.", "cf.", "builtin.", "llvm.")
PURE_OPERATORS = FIRST | frozenset(
    """tt.splat tt.broadcast tt.expand_dims tt.reshape tt.trans tt.join tt.split tt.cat tt.make_range tt.get_program_id
    tt.get_num_programs tt.dot tt.dot_scaled tt.load tt.descriptor_load tt.descriptor_gather tt.reduce tt.scan
    tt.reduce.return tt.scan.return tt.return tt.func tt.fp_to_fp tt.clampf tt.precise_sqrt tt.precise_divf tt.mulhiui
    tt.histogram tt.gather tt.unsplat tt.assert tt.print tt.ptr_to_int tt.map_elementwise
    tt.map_elementwise.return""".split()
)
#: Operators that make pointers of what nobody has followed.
UNKNOWN = frozenset(("tt.int_to_ptr",))
LOADS = frozenset(("tt.load", "tt.descriptor_load", "tt.descriptor_gather"))
COMPUTED = frozenset(("tt.dot", "tt.dot_scaled", "tt.reduce", "tt.scan", "tt.histogram", "tt.ptr_to_int"))

TYPES = {
    torch.bool: "i1", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.float32: "fp32", torch.float64: "fp64", torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5",
    torch.float8_e4m3fnuz: "fp8e4b8", torch.float8_e5m2fnuz: "fp8e5b16",
}  # fmt: skip
CAPABILITY = 90  # of the GPU for which the kernel is looked at; what it writes to is the same for all


def written(kernel: Any, given: Mapping[str, Any]) -> frozenset[str] | None:
    """The names of parameters of tensors that may be written to; None if that cannot be found out.

    `kernel` is a JITFunction, `given` has a value for each of its parameters: tensors (fakes will do), numbers, and
    what the program has given otherwise.
    """
    constants = _constants(kernel, given)
    names = [name for name in given if name not in constants]
    try:
        module = _module(kernel, given, constants)
    except Exception:  # whatever Triton refuses: the launch will say so
        return None
    flow = Flow()
    module.walk(flow.note)
    roots = flow.written()
    return None if roots is None else frozenset(names[k] for k in roots if isinstance(given[names[k]], torch.Tensor))


def _constants(kernel: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    fixed = {p.name for p in kernel.params if p.is_constexpr}
    return {name: value for name, value in given.items() if name in fixed or value is None}


def _module(kernel: Any, given: Mapping[str, Any], constants: dict[str, Any]) -> Any:
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget(GPU, CAPABILITY, 32)
    ir = importlib.import_module("triton._C.libtriton").ir
    types = {name: "constexpr" if name in constants else _type(value) for name, value in given.items()}
    source = compiler.ASTSource(kernel, types, constants, {})
    backend = compiler.make_backend(target)
    options, context = backend.parse_options({}), ir.context()
    steps: dict[str, Any] = {}
    ir.load_dialects(context)
    backend.load_dialects(context)
    backend.add_stages(steps, options, source.language)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    made = source.make_ir(target, options, functions, modules, context)
    return steps["ttir"](made, {})


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, (int, torch.SymInt)):
        return "i64"
    return "fp32"


@dataclass
class Operation:
    name: str
    operands: list[int]
    results: list[int]
    block: int
    regions: list[int]


@dataclass
class Flow:
    """What one walk over a module has found. Values, blocks and regions are known by Triton's numbers for them."""

    operations: list[Operation] = field(default_factory=list)
    arguments: dict[int, list[int]] = field(default_factory=dict)  # of blocks
    blocks: dict[int, list[int]] = field(default_factory=dict)  # of regions
    sources: dict[int, set[int]] = field(default_factory=dict)  # of values
    lost: set[int] = field(default_factory=set)  # values whose memory is not known

    def note(self, op: Any) -> None:
        """The walk comes to what is inside first."""
        operands = [op.get_operand(k).id() for k in range(op.get_num_operands())]
        results = [op.get_result(k).id() for k in range(op.get_num_results())]
        regions = [op.get_region(k).id() for k in range(op.get_num_regions())]
        block = op.get_block()
        number = -1
        if block is not None:
            number = block.id()
            if number not in self.arguments:
                self.arguments[number] = [block.get_argument(k).id() for k in range(block.get_num_arguments())]
                parent = block.get_parent()
                if parent is not None:
                    self.blocks.setdefault(parent.id(), []).append(number)
        self.operations.append(Operation(op.get_name(), operands, results, number, regions))

    def written(self) -> set[int] | None:
        """Places of the kernel's parameters that may be written to."""
        functions = [op for op in self.operations if op.name == "tt.func"]
        if len(functions) != 1:
            return None  # not all of its functions are part of it
        entry = self.arguments[self.blocks[functions[0].regions[0]][0]]
        targets: set[int] = set()
        for op in self.operations:
            self._follow(op, targets)
        reached = self._reached(targets)
        if reached & self.lost or any(v not in self.sources and v not in entry for v in reached):
            return None
        return {entry.index(value) for value in reached if value in entry}

    def _reached(self, targets: set[int]) -> set[int]:
        seen, ahead = set(targets), [*targets]
        while ahead:
            for value in self.sources.get(ahead.pop(), ()):
                if value not in seen:
                    seen.add(value)
                    ahead.append(value)
        return seen

    def _comes(self, value: int, sources: list[int]) -> None:
        self.sources.setdefault(value, set()).update(sources)

    def _follow(self, op: Operation, targets: set[int]) -> None:
        if op.regions:
            return self._inside(op)
        if op.name in WRITERS:
            targets.add(op.operands[WRITERS[op.name]])
        elif op.name not in PURE_OPERATORS and not op.name.startswith(PURE):
            targets.update(op.operands)  # it may do anything with them
        known = [] if op.name in COMPUTED else op.operands[:1] if op.name in FIRST else op.operands
        for result in op.results:
            self._comes(result, [] if op.name in LOADS else known)
            if op.name in UNKNOWN:
                self.lost.add(result)
        return None

    def _inside(self, op: Operation) -> None:
        """Arguments of the blocks inside, and results: one by one for Triton's loops and branches, else from all."""
        blocks = [block for region in op.regions for block in self.blocks.get(region, ())]
        ends = [self._end(block) for block in blocks]
        arguments = [self.arguments[block] for block in blocks]
        if op.name == "tt.func":
            for value in (v for inside in arguments[1:] for v in inside):  # where an early return jumps to
                self._comes(value, [])
                self.lost.add(value)
        elif op.name in COMPUTED:
            self._all(op, arguments, [])
        elif op.name == "scf.for":
            (counter, *carried), (end,) = arguments[0], ends
            self._comes(counter, [])
            self._each([*carried, *op.results], [*op.operands[3:]] * 2, end * 2)
        elif op.name == "scf.if":
            self._each(op.results, *ends)
        elif op.name == "scf.while" and len(blocks) == 2:
            (before, after), (condition, end) = arguments, ends
            self._each(before, op.operands, end)
            self._each([*after, *op.results], condition * 2)
        else:
            self._all(op, arguments, [*op.operands, *(v for end in ends for v in end)])

    def _each(self, values: list[int], *sources: list[int]) -> None:
        """One by one."""
        for value, *found in zip(values, *sources, strict=True):
            self._comes(value, found)

    def _all(self, op: Operation, arguments: list[list[int]], sources: list[int]) -> None:
        for value in (*op.results, *(v for inside in arguments for v in inside)):
            self._comes(value, sources)

    def _end(self, block: int) -> list[int]:
        """What the block hands on: a condition's first operand is no part of it."""
        last = [op for op in self.operations if op.block == block][-1]
        return last.operands[1:] if last.name == "scf.condition" else last.operands
