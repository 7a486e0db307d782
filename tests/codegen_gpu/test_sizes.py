"""Programs of symbolic sizes as GPU kernels: each generated once, and run at many sizes under Triton's interpreter."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from dovetail.capture.driver import capture
from dovetail.codegen.gpu import generate, plan
from dovetail.ir import dims, dimvalues
from dovetail.ir import evaluate as evaluation
from dovetail.ir.launch import NARROW
from dovetail.ir.liveness import reads, writes
from dovetail.ir.loops import Buffer, Group, Load, Loop, Store
from dovetail.ir.ranges import new_range
from dovetail.lower import lower
from dovetail.normalize import normalize
from dovetail.options import Options
from dovetail.runtime.gpu import loading
from dovetail.runtime.gpu.loading import to_binary
from dovetail.schedule import graph_facts, schedule
from dovetail.schedule.gpu.split import spread
from tests.codegen_gpu.interpreter import run

ROW = torch.linspace(0.5, 1.5, 8)
CASES = {
    "chain": (lambda x: ((x + 1) * 2).sin().exp(), 2),
    "broadcast": (lambda x, y: x * y + x, 2, 1),
    "softmax": (lambda x: torch.softmax(x + 1, -1), 2),
    "softmax over columns": (lambda x: torch.softmax(x, 0), 2),
    "norm": (lambda x: F.layer_norm(x, x.shape[-1:]), 2),
    "mean and variance": (lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1).sqrt(), 2),
    "sums": (lambda x: (x.sum(), x.sum(0), x.sum(1), x.amax((0, 1)) if x.numel() else x.sum()), 2),
    "transposed": (lambda x: x.t().exp() + 1, 2),
    "concatenated": (lambda x, y: torch.cat([x + 1, y * 3], 1) * 2, 2, 2),
    "reshaped": (lambda x: (x.reshape(-1) + 1).reshape(x.shape[1], x.shape[0]) * 2, 2),
    "pad": (lambda x: F.pad(x.exp(), (1, 2)) + 1, 2),
    "flipped": (lambda x: x.flip(-1) + x, 2),
    "causal": (lambda x: x.masked_fill(torch.arange(x.shape[1]) > torch.arange(x.shape[0])[:, None], 0.0), 2),
    "static rows": (lambda x: F.layer_norm(x.tanh(), (8,), ROW, ROW), (None, 8)),
    "half": (lambda x: (x.half() * 2 + 1).sum(-1), 2),
}
SIZES = [(7, 13), (1, 1), (3, 40), (16, 1), (5, 32), (0, 4), (6, 0)]
NEED_A_ROW = {"softmax", "softmax over columns", "sums"}  # refuse an empty one


class _Machine(evaluation._Machine):
    wide = False  # are the versions for 64 bits run?

    def group(self, group: Group) -> None:
        for buffer in writes(group).values():
            self.prepare(buffer, group)
        tensors = {}
        for name, buffer in {**reads(group), **writes(group)}.items():
            memory = self.memories[name]
            tensors[name] = memory.elements(buffer.dtype)[memory.origin(buffer.dtype) :]
            if name in writes(group) and memory.written is not None:
                memory.written[:] = True
        run(group, tensors, sizes=self.sizes, wide=self.wide)


def _inputs(name, sizes):
    shapes = []
    for form in CASES[name][1:]:
        form = sizes[2 - form :] if isinstance(form, int) else [n or sizes[0] for n in form]
        shapes.append(tuple(form))
    return [torch.randn(shape) for shape in shapes]


def _scheduled(name):
    with torch.no_grad():
        captured = capture(CASES[name][0], tuple(_inputs(name, (6, 11))), {}, Options(dynamic=True))
        graph = normalize(captured.graph, [given.fake for given in captured.inputs], Options(dynamic=True))
        program = schedule(lower(graph, Options()), Options())
    items = [spread(item) if isinstance(item, Group) else (item,) for item in program.items]
    return program.with_items(tuple(itertools.chain.from_iterable(items)))


def _arguments(program, tensors):
    """Tensors in their order, and the sizes that the program is given as numbers."""
    buffers = [p for p in program.parameters() if isinstance(p, Buffer)]
    known = dict(zip((b.name for b in buffers), tensors, strict=False))
    sizes = {}
    for buffer in buffers:
        for dim, size in zip(buffer.sizes, known[buffer.name].shape, strict=True):
            sizes |= {s: size for s in dims.symbols(dim) if dim is dims.of_atom(s)}
    known |= {param.name: dimvalues.evaluate(dim, sizes) for param, dim in program.measured}
    return [known[p.name] for p in program.parameters()]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("small", [False, True], ids=["", "small tiles, wide"])
def test_any_size(name, small, monkeypatch):
    if small:
        sides = ("SIDE", 4), ("SHORT_SIDE", 2), ("LONG_SIDE", 16)
        for setting, value in (("UNKNOWN", 16), ("TILE", 16), ("FLAT", 32), *sides):
            monkeypatch.setattr(plan, setting, value)
        monkeypatch.setattr(_Machine, "wide", True)
    program = _scheduled(name)
    assert program.sizes
    monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
    for sizes in SIZES:
        if 0 in sizes and name in NEED_A_ROW:
            continue
        given = _inputs(name, sizes)
        tensors = _arguments(program, [*given, ROW])
        want = CASES[name][0](*given)
        for g, w in zip(_Machine(program, tensors).run(), want if isinstance(want, tuple) else (want,), strict=True):
            tolerance = 2e-2 if w.dtype is torch.float16 else 1e-4
            torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", ["broadcast", "softmax", "transposed", "concatenated", "static rows"])
def test_machine_code(name):
    for item in _scheduled(name).items:
        if isinstance(item, Group):
            assert to_binary(generate(item), 90).code.startswith(b"\x7fELF")


def test_multiples_of_known_numbers():
    """Wide loads need rows that begin at multiples of 16; so many a symbolic size times 16 is."""
    for factor, wide in ((16, True), (48, True), (8, False)):
        size = dims.symbol("s0") * factor
        x, y = (Buffer(name, torch.float32, torch.device("cuda"), (size,), (1,)) for name in "xy")
        i = new_range("i", size)
        kernel = generate(Group("g", (i,), (Loop((), (Store(y, (i,), Load(x, (i,))),)),)))
        assert kernel.launch is not None and any(a.endswith(":16") for a in kernel.launch.arguments) is wide


@pytest.mark.parametrize(("sizes", "narrow"), [((7, 9), True), ((1 << 15, 1 << 14), True), ((1 << 16, 1 << 16), False)])
def test_the_width_of_indices_follows_from_sizes(sizes, narrow):
    """No kernel of symbolic sizes pays for 64 bits where 32 are enough."""
    for name in ("chain", "softmax", "transposed", "broadcast", "concatenated"):
        program = _scheduled(name)
        for item in program.items:
            kernel = generate(item)
            assert kernel.wide is not None and "i64" in kernel.wide.launch.arguments
            assert not any(a.startswith("i64") for a in kernel.launch.arguments)
            reach = dimvalues.evaluate(kernel.sizes[-2], dict(zip(program.sizes, sizes, strict=True)))
            assert (reach < NARROW) is narrow


def test_a_call_starts_the_version_that_holds_its_indices(monkeypatch):
    started, compiled = [], []

    def launcher(binary, symbol, arguments, index):
        return lambda *args: started.append((symbol, args))

    def binaries(kernels, *more, **named):
        compiled.extend(k.symbol for k in kernels)
        return [None] * len(kernels)

    monkeypatch.setattr(loading.driver, "launcher", launcher)
    monkeypatch.setattr(loading, "_binaries", binaries)
    kernel = generate(_scheduled("chain").items[0])
    call = loading._callable(kernel, None, 0, 90)
    addresses = [16] * len(kernel.pointers)
    sizes = [5] * (len(kernel.sizes) - 2)
    call(*addresses, *sizes, 1000, 3)
    assert started == [(kernel.symbol, (*addresses, *sizes, 3))] and not compiled
    call(*addresses, *sizes, NARROW, 3)
    call(*addresses, *sizes, NARROW, 3)
    assert [symbol for symbol, _ in started[1:]] == [kernel.wide.symbol] * 2 and compiled == [kernel.wide.symbol]


def test_sizes_are_part_of_a_recording():
    """A CUDA graph is made for each combination, however a size reaches the program."""
    with torch.no_grad():
        captured = capture(lambda x, n: x.sum() + torch.ones(n), (torch.ones(3), 5), {}, Options(dynamic=True))
        graph = normalize(captured.graph, [given.fake for given in captured.inputs], Options(dynamic=True))
    program = lower(graph, Options())
    facts = graph_facts(program)
    places = [k for k, given in enumerate(program.parameters()) if given in {p for p, _ in program.measured}]
    assert places and set(places) <= set(facts.fixed) and facts.dynamic
