"""The host program: plain Python that allocates, launches kernels and calls library operators.

before:  Program and one Kernel for each of its groups
after:   def views(base, block): ...            tensors over the block, made once
         def run(block, a0, a1): ...            straight-line code in program order

Its first line is `if profiler._is_profiler_enabled: return shown(run, block, a0, a1)`: see `ir/profiled.py`.

before:  the same, with symbolic sizes
after:   def sizes(a0, a1): ...                 the symbols' values
         def measure(s0, s1): ...               once for each combination: the block's size and what follows from them
         def views(base, block, given): ...
         def run(block, given, a0, a1): ...

Temporaries in the memory plan are addresses `P + offset`; only library calls need them as
tensors. Everything else is a tensor, dropped after its last use.

Kernels were generated for the layout that normalize predicted for a library operator's result. Which one the
library chooses may also depend on sizes, the number of threads and switches of its own, so every call compares
strides, and copies what is laid out otherwise. The first call compares sizes, too: it is told so by an argument
`first` before the others.

A program that gives its outputs in buckets takes its inputs in a list, and gives each bucket in that list:

after:   def run(block, box):                   a generator
             a0, a1 = box; box.clear()
             ...
             box += (b3, ); b3 = b0 = None
             seen = versions((a1, ))
             yield
             unchanged((a1, ), seen)            what is read later must be what it was
             ...
             box += (b1, b2, )
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from dovetail.codegen.host.graph_segments import cuts
from dovetail.codegen.host.library_calls import OUT_VARIANTS, callee
from dovetail.codegen.host.symbolic_sizes import Measures
from dovetail.errors import InternalError
from dovetail.ir import dims
from dovetail.ir.aten import Subprogram
from dovetail.ir.callers import NOT_USERS
from dovetail.ir.kernel import HostProgram, Kernel, MemoryPlan
from dovetail.ir.liveness import bucket_ends, last_uses, needed_later, reads, view_roots, writes
from dovetail.ir.loops import Batch, Buffer, BufferRef, Group, LibraryCall, Output, Param, Program, View
from dovetail.ir.profiled import titled
from dovetail.ops.calls.schema import facts
from dovetail.ops.table import row_of


def generate(
    program: Program, kernels: Mapping[str, Kernel], memory: MemoryPlan, consumes: bool = False
) -> HostProgram:
    """`kernels` maps each Group's name to its kernel. `consumes`: the inputs come as a list, which is emptied, and
    each is dropped after its last use."""
    return Host(program, kernels, memory, consumes).build()


class Host:
    fails = "failed"  # does a kernel's status tell of a failed check?

    def __init__(self, program: Program, kernels: Mapping[str, Kernel], memory: MemoryPlan, consumes: bool) -> None:
        self.program, self.kernels, self.memory, self.consumes = program, kernels, memory, consumes
        self.names: dict[str, Any] = {"torch": torch, "empty_strided": torch.empty_strided}
        self.known: dict[Any, str] = {}
        self.body: list[str] = []
        self.checks = False  # does it compare what library operators return with predictions?
        self.views: list[str] = []
        self.view_names: dict[tuple, int] = {}
        self.tensors: dict[str, str] = {b.name: b.name for b in program.inputs}
        self.pointers: dict[str, str] = {}
        self.offsets: dict[str, int | str] = {**memory.offsets, **{n: f"o{k}" for n, k in memory.places.items()}}
        self.roots = view_roots(program)
        self.foreign = {b.name for b in program.inputs} | _library_views(program)
        self.last = last_uses(program)
        self.families: dict[str, list[str]] = {}  # the names of a buffer's views, by its own
        for name, root in self.roots.items():
            self.families.setdefault(root, [root]).append(name)
        written = {old.name for old, _ in program.mutated}
        self.kept = {*program.constants, *written} if consumes else {b.name for b in program.inputs}
        self.view_of: dict[str, View] = {}
        groups = (item for item in program.items if isinstance(item, (Group, Batch)))
        self.overwriting = {name for group in groups for name in writes(group) if name in self.roots}
        self.launched: list[Kernel] = []
        self.made_as_views: set[str] = set()
        self.lasting: int | None = None  # position in body of the first write to the caller's memory
        self.titles: dict[int, str] = {}  # position in body of each launch -> what a profile shows
        self.draws = False
        self.measures = Measures(program)
        self.ends, self.later = bucket_ends(program), needed_later(program)
        self.given_names = [each.name for each in program.parameters()]

    def build(self) -> HostProgram:
        program = self.program
        for name, value in program.constants.items():
            self.names[name] = value
        segments = cuts(program)
        self.hand_over(-1)
        for position, item in enumerate(program.items):
            if position in segments:
                self.body.append("cut()")
            getattr(self, _EMIT[type(item)])(item)
            self.drop(position)
            self.hand_over(position)
        self.changes()
        self.finish()
        names = self.given_names
        lines = self.measures.functions(names, self.memory, self.consumes)
        lines.append(f"def views(base, block{self.measures.parameter}):")
        made = ''.join(f'v{k}, ' for k in range(len(self.views)))
        lines += [f"    {line}" for line in (*self.measures.unpacked(self.views), *self.views, f"return ({made})")]
        lines += ["", *self.function(names)]
        start = len(lines) - len(self.body) + 1
        used = {k.symbol: k for k in self.launched}
        return HostProgram(
            "\n".join(lines) + "\n", tuple(used.values()), self.names, self.memory.size,
            {"run": start + (self.lasting or 0)}, bool(self.measures.symbols),
            {start + position: title for position, title in self.titles.items()}, program.buckets, self.checks,
        )  # fmt: skip

    def function(self, parameters: list[str]) -> list[str]:
        given = ["box"] if self.consumes else parameters
        signature = ", ".join([*["first"][: self.checks], "block" + self.measures.parameter, *given])
        lines = [f"def run({signature}):"]
        if self.program.buckets:
            shown = f"yield from shown.in_buckets(run, {signature}); return"
        else:
            shown = f"return shown(run, {signature})"
        lines.append(f"    if profiler._is_profiler_enabled: {shown}")
        if self.consumes:
            taken = f"{''.join(f'{p}, ' for p in parameters)}= box; " if parameters else ""
            lines.append(f"    {taken}box.clear()")
        lines += [f"    {line}" for line in self.measures.unpacked(self.body)]
        if self.memory.size or self.memory.slots:
            lines.append("    P = block.address")
        if self.views:
            values = f"{''.join(f'v{k}, ' for k in range(len(self.views)))}"
            lines.append(f"    {values}= block.views_of(views{self.measures.parameter})")
        return lines + [f"    {line}" for line in self.body]

    def size(self, dim: Any) -> str:
        return self.measures.text(dim)

    def listed(self, values: Iterable[Any]) -> str:
        return f"({''.join(f'{self.size(v)}, ' for v in values)})"

    # ------------------------------------------------------------ naming

    def constant(self, value: Any, hint: str) -> str:
        """A global of the host program that is `value`."""
        key = value if isinstance(value, torch.device) else id(value)
        known = self.known.get(key)
        if known is None:
            known = hint if hint not in self.names else f"{hint}_{len(self.names)}"
            self.names[known] = value
            self.known[key] = known
        return known

    def tensor(self, buffer: Buffer) -> str:
        """An expression for the buffer as a tensor."""
        if buffer.name in self.tensors:
            return self.tensors[buffer.name]
        if buffer.name in self.offsets:
            text = self.block_view(buffer, self.offsets[buffer.name])
            self.tensors[buffer.name] = text
            return text
        if buffer.name in self.view_of:
            return self.strided(self.view_of[buffer.name])
        raise KeyError(f"{buffer.name} is used before it is defined")

    def block_view(self, buffer: Buffer, start: int | str) -> str:
        itemsize = buffer.dtype.itemsize
        if isinstance(start, int):
            first = self.size(start // itemsize + buffer.offset)
        else:
            first = f"{start} // {itemsize}{f' + {self.size(buffer.offset)}' if buffer.offset != 0 else ''}"
        key = (buffer.sizes, buffer.strides, buffer.dtype, first)
        if key not in self.view_names:
            dtype = self.constant(buffer.dtype, str(buffer.dtype).removeprefix("torch."))
            self.views.append(
                f"v{len(self.views)} = base.view({dtype}).as_strided({self.listed(buffer.sizes)}, "
                f"{self.listed(buffer.strides)}, {first})"
            )
            self.view_names[key] = len(self.view_names)
        return f"v{self.view_names[key]}"

    def pointer(self, buffer: Buffer) -> str:
        """An expression for the address that the buffer's offset counts from."""
        if buffer.name in self.offsets:
            offset = self.offsets[buffer.name]
            return f"P + {offset}" if offset != 0 else "P"
        view = self.view_of.get(buffer.name)
        if view is not None:
            return self.pointer(view.base)
        if buffer.kind == "number":
            return self.number(buffer)
        if buffer.name not in self.pointers:
            tensor = self.tensors[buffer.name]
            self.pointers[buffer.name] = f"p_{tensor}"
            self.body.append(f"p_{tensor} = {tensor}.data_ptr()")
        return self.pointers[buffer.name]

    def number(self, buffer: Buffer) -> str:
        """The address of a number in the memory of the device that a kernel reads it on."""
        names = [param.name for _, param in self.program.numbers]
        where = f"numbers_{buffer.device.type}{'' if buffer.device.index is None else buffer.device.index}"
        if where not in self.pointers:
            device = self.constant(buffer.device, f"device_{buffer.device.type}")
            self.body.append(f"{where} = on_device({', '.join([device, *names])})")
            self.body.append(f"p_{where} = {where}.data_ptr()")
            self.pointers[where] = f"p_{where}"
        return f"p_{where} + {8 * names.index(buffer.name)}"

    # ------------------------------------------------------------ items

    def changes(self) -> None:
        """The next line is one that the caller may see the effect of."""
        if self.lasting is None:
            self.lasting = len(self.body)

    def draw(self, call: LibraryCall) -> None:
        """The state that random numbers are drawn from can be put back."""
        if self.draws or not (facts(call.operator).random or isinstance(call.operator, Subprogram)):
            return
        self.draws = True
        self.body.append(f"generator = {self.constant(torch.default_generator.get_state, 'state_of_generator')}()")

    def allocate(self, buffer: Buffer) -> None:
        """Make sure that the buffer a kernel writes exists."""
        if buffer.name in self.offsets or buffer.name in self.tensors or buffer.name in self.view_of:
            return
        dtype = self.constant(buffer.dtype, str(buffer.dtype).removeprefix("torch."))
        device = self.constant(buffer.device, f"device_{buffer.device.type}")
        self.body.append(
            f"{buffer.name} = empty_strided({self.listed(buffer.sizes)}, {self.listed(buffer.strides)}, "
            f"dtype={dtype}, device={device})"
        )
        self.tensors[buffer.name] = buffer.name

    def group(self, group: Group) -> None:
        self.launch(group, (group,))

    def batch(self, batch: Batch) -> None:
        """One call with the arguments of each group in turn."""
        self.launch(batch, batch.groups)

    def launch(self, item: Group | Batch, groups: tuple[Group, ...]) -> None:
        for buffer in writes(item).values():
            self.allocate(buffer)
        self.stores(item)
        kernel = self.kernels[item.name]
        self.launched.append(kernel)
        each = [self.kernels[group.name] for group in groups]
        if not kernel.takes_as(each[0]) or any(single.symbol != each[0].symbol for single in each):
            raise InternalError("codegen", f"{item.name} takes other arguments than the kernels that it is of")
        arguments = [a for single in each for a in self.given(single)]
        many = f": {len(groups)} at once" if isinstance(item, Batch) else ""
        call = f"{kernel.symbol}({', '.join(arguments)})  # {item.name}{many}"
        self.titles[len(self.body)] = self.title(item) + many
        if not kernel.messages:
            self.body.append(call)
            return
        messages = self.constant(kernel.messages, "messages")
        self.body.append(f"failed = {call}")
        self.body.append(f"if {self.fails}: raise CheckFailed({messages}[failed - 1])")

    def title(self, item: Group | Batch) -> str:
        """PyTorch's operators that it computes, and the user's line whose result it stores."""
        stacks: Iterator[Any] = (self.program.lines.get(name) for name in writes(item))
        stack = next(filter(None, stacks), None)
        if stack is None:
            return item.name
        place = next((p for p in reversed(stack) if not p.filename.startswith(NOT_USERS)), stack[-1])
        return titled(item.name, place.function, f"{place.filename}:{place.line}")

    def stores(self, item: Group | Batch | LibraryCall) -> None:
        if any(b.kind == "input" for b in writes(item).values()):
            self.changes()

    def given(self, kernel: Kernel) -> list[str]:
        return [self.pointer(b) for b in kernel.pointers] + [self.size(s) for s in kernel.sizes]

    def library(self, call: LibraryCall) -> None:
        arguments = [self.argument(a) for a in call.args]
        arguments += [f"{name}={self.argument(value)}" for name, value in call.kwargs.items()]
        self.draw(call)
        results = [b for b in call.results if b is not None]
        if len(results) == 1 and results[0].name in self.offsets and call.operator in OUT_VARIANTS:
            function = self.constant(OUT_VARIANTS[call.operator], _operator_name(call.operator))
            arguments.append(f"out={self.tensor(results[0])}")
            self.body.append(f"{function}({', '.join(arguments)})")
            return
        function = self.constant(callee(call.operator), _operator_name(call.operator))
        text = f"{function}({', '.join(arguments)})"
        self.stores(call)
        if any(b.kind == "input" for b in results):  # it has been written into
            self.body.append(text)
            return
        for buffer in results:
            if facts(call.operator).view:
                self.made_as_views.add(buffer.name)
            self.tensors[buffer.name] = buffer.name
            self.offsets.pop(buffer.name, None)
        self.body.append(self.results(call, text))
        opaque = row_of(call.operator).opaque
        for buffer in (b for k, b in enumerate(call.results) if b is not None and k not in opaque):
            self.check(buffer, str(call.operator), may_be_none=len(call.results) > 1)

    def check(self, buffer: Buffer, operator: str, may_be_none: bool) -> None:
        """Compare what the operator returned with its prediction."""
        name, strides = buffer.name, self.listed(buffer.strides)
        self.checks = True
        some = f"{name} is not None and " if may_be_none else ""
        self.body.append(
            f"if first or {some}{name}.stride() != {strides}: "
            f"{name} = expect_layout({name}, {self.listed(buffer.sizes)}, {strides}, {operator!r})"
        )

    def results(self, call: LibraryCall, text: str) -> str:
        if not any(call.results):
            return text
        returns = call.operator._schema.returns
        if len(returns) == 1 and str(returns[0].type) == "Tensor":
            return f"{call.results[0].name} = {text}"  # type: ignore[union-attr]
        if len(returns) > 1 and any(isinstance(r.type, torch.ListType) for r in returns):
            text = f"{self.constant(_flat, 'flat')}({text})"
        targets = "".join(f"{'_' if b is None else b.name}, " for b in call.results)
        unread = "; _ = None" if None in call.results else ""  # else it would live as long as the call
        return f"{targets}= {text}{unread}"

    def view(self, view: View) -> None:
        """A View of planned memory is one of the block's tensors; of a tensor, an as_strided.

        What a kernel writes over a tensor is that tensor, if it looks the same; if not, another is made when needed.
        """
        base, result = view.base, view.result
        while base.name in self.overwriting:
            base = self.view_of[base.name].base
        self.view_of[result.name] = view = View(result, base)
        if base.name in self.offsets:
            self.offsets[result.name] = self.offsets[base.name]
        elif result.name not in self.overwriting:
            self.strided(view)
        elif (base.sizes, base.strides, base.offset) == (result.sizes, result.strides, result.offset):
            self.tensors[result.name] = self.tensor(base)

    def strided(self, view: View) -> str:
        base, result = view.base, view.result
        tensor = self.tensor(base)
        offset = self.storage_offset(base, tensor, result.offset)
        self.body.append(
            f"{result.name} = {tensor}.as_strided({self.listed(result.sizes)}, {self.listed(result.strides)}{offset})"
        )
        self.tensors[result.name] = result.name
        self.made_as_views.add(result.name)
        return result.name

    def storage_offset(self, base: Buffer, tensor: str, offset: dims.Dim) -> str:
        """as_strided's offset counts from the storage; a buffer's from its data pointer."""
        root = self.roots.get(base.name, base.name)
        if root in self.foreign:
            start = f", {root}.storage_offset()"
            return f"{start} + {self.size(offset)}" if offset != 0 else start
        return f", {self.size(offset)}"

    def argument(self, value: Any) -> str:
        if isinstance(value, BufferRef):
            return self.tensor(value.buffer)
        if isinstance(value, Param):
            return value.name
        if isinstance(value, (tuple, list)):
            inside = "".join(f"{self.argument(v)}, " for v in value)
            return f"[{inside.removesuffix(', ')}]" if isinstance(value, list) else f"({inside})"
        if isinstance(value, dims.Poly):
            return self.size(value)
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'
        return self.constant(value, str(value).replace("torch.", "").replace(":", "_") if isinstance(
            value, (torch.dtype, torch.device)) else "constant")

    # ------------------------------------------------------------ ends of lives

    def drop(self, position: int) -> None:
        """Forget tensors whose memory nothing after `position` touches."""
        item = self.program.items[position]
        names = dict.fromkeys((*reads(item), *writes(item)))
        self.forget(name for name in names if self.last.get(self.roots.get(name, name)) == position)

    def forget(self, names: Iterable[str]) -> None:
        """Forget the tensors in the memory of these buffers; what the block has, and what the program keeps, stays."""
        dead = []
        for name in names:
            root = self.roots.get(name, name)
            planned = root in self.memory.offsets or root in self.memory.places
            if root not in self.kept and not planned:
                dead += [self.tensors.pop(n) for n in self.families.get(root, [root]) if n in self.tensors]
        if dead:
            self.body.append(f"{' = '.join(dict.fromkeys(dead))} = None")

    def hand_over(self, position: int) -> None:
        """Give the caller the buckets that end here, but for the last one, which is given at the end."""
        for bucket, end, later in zip(self.program.buckets[:-1], self.ends, self.later, strict=False):
            if end == position:
                self.give(bucket)
                values = (self.program.outputs[k].value for k in bucket)
                self.forget(value.name for value in values if isinstance(value, Buffer))
                needed = f"({''.join(f'{self.given_names[k]}, ' for k in later)})"
                self.body += [f"seen = versions({needed})", "yield", f"unchanged({needed}, seen)"]

    def give(self, bucket: Iterable[int]) -> None:
        self.body.append(f"box += ({''.join(f'{self.output(self.program.outputs[k])}, ' for k in bucket)})")

    def finish(self) -> None:
        counted = {name for item in self.program.items if isinstance(item, LibraryCall) for name in writes(item)}
        moved = [old.name for old, new in self.program.mutated if old.name == new.name and old.name not in counted]
        for old, new in self.program.mutated:
            if old.name != new.name:
                self.body.append(f"{old.name}.copy_({self.tensor(new)})")
        if moved:
            count = self.constant(torch._C._increment_version, "count_versions")
            self.body.append(f"{count}(({''.join(f'{name}, ' for name in moved)}))")
        if self.program.buckets:
            self.give(self.program.buckets[-1])
            return
        values = "".join(f"{self.output(o)}, " for o in self.program.outputs)
        self.body.append(f"return ({values})")

    def output(self, output: Output) -> str:
        if not isinstance(output.value, Buffer):
            return self.argument(output.value)
        text = self.tensor(output.value)
        if output.view is None or output.view == (text in self.made_as_views):
            return text
        return f"{self.constant(torch.ops.aten.alias.default, 'alias')}({text})" if output.view else f"{text}.detach()"


def _library_views(program: Program) -> set[str]:
    """Results of library calls that begin wherever an argument does: views, and copies of a whole storage."""
    calls = [item for item in program.items if isinstance(item, LibraryCall)]
    calls = [call for call in calls if facts(call.operator).view or row_of(call.operator).keeps_offset]
    return {b.name for call in calls for b in call.results if b is not None}


_EMIT = {Group: "group", Batch: "batch", LibraryCall: "library", View: "view"}


def _operator_name(operator: Any) -> str:
    return str(operator).replace(".default", "").replace(".", "_")


def _flat(results: Any) -> Iterator[Any]:
    """The tensors that an operator returns, those in lists among them."""
    for result in results:
        if isinstance(result, (list, tuple)):
            yield from result
        else:
            yield result
