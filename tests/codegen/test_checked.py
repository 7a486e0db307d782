"""Kernels and programs that check themselves: nothing is found where nothing is wrong, and each kind of fault is found
where one is put in, on both targets. GPU kernels run under Triton's interpreter, on the CPU's memory.
"""

from __future__ import annotations

import inspect
import warnings
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dovetail
from dovetail import assembly, building, targets
from dovetail.codegen import cpu, gpu
from dovetail.codegen.host import checked as checked_host
from dovetail.codegen.host.program import Host
from dovetail.errors import KernelFault
from dovetail.ir.kernel import REPORT, Kernel, Limit
from dovetail.ir.loops import Buffer, Group, Load, Loop, Program, Store
from dovetail.ir.ranges import new_range
from dovetail.options import Options
from dovetail.runtime import cpu as cpu_runtime
from dovetail.runtime.call import checked as checked_runtime
from dovetail.runtime.gpu.loading import to_binary
from tests.codegen import harness
from tests.codegen.test_random_groups import TARGETS, Maker
from tests.codegen_gpu import interpreter
from tests.opdb import gradients
from tests.opdb.entries import Entry, entries
from tests.opdb.workers import BACKWARD, FORWARD, run_entry

CHECKED = Options(check_kernels=True)
RUN = {"cpu": harness.run, "gpu": interpreter.run}
LOAD = {"cpu": cpu_runtime.load, "gpu": interpreter.loaded}
GENERATE = {"cpu": cpu.generate, "gpu": gpu.generate}


@pytest.fixture(params=["cpu", "gpu"])
def target(request, monkeypatch) -> str:
    """Compiled programs use the target's kernels, checked."""
    generate, load = GENERATE[request.param], LOAD[request.param]
    made = SimpleNamespace(
        unavailable=lambda device: "", generate=generate, begin=lambda kernels, device, more: None,
        load=lambda kernels, device, meanwhile: load(kernels),
    )
    monkeypatch.setitem(targets.TARGETS, "cpu", made)
    with dovetail.config.patch(check_kernels=True):
        yield request.param
    dovetail.reset()


# ---------------------------------------------------------------- one kernel


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_a_right_kernel_finds_nothing(seed):
    maker = Maker(seed)
    group = maker.group()
    if maker.outputs:
        harness.compare(group, maker.tensors, maker.outputs, options=CHECKED, target=TARGETS[seed % 3])


@pytest.mark.parametrize("seed", [4, 13, 17, 26, 33])
def test_a_right_gpu_kernel_finds_nothing(seed):
    maker = Maker(seed)
    group = maker.group()
    if maker.outputs:
        harness.compare(group, maker.tensors, maker.outputs, options=CHECKED, run=interpreter.run)


@pytest.mark.parametrize("many", [False, True], ids=["", "many"])
def test_machine_code(many):
    """Triton compiles the checks for a GPU that this machine need not have."""
    x, y = torch.ones(70, 30), torch.ones(30, 70)
    kernel = gpu.generate(transposed(30, 70, x, y), CHECKED, many=many)
    assert len(kernel.accesses) == 2 and to_binary(kernel, 90).code.startswith(b"\x7fELF")


def test_checked_kernels_are_not_recorded():
    assert "checked" in building.unrecorded(Program((), (), ()), CHECKED, "")


def transposed(rows: int, columns: int, x: torch.Tensor, y: torch.Tensor) -> Group:
    i, j = new_range("i", rows), new_range("j", columns)
    store = Store(harness.buffer("y", y, "output"), (i, j), harness.op("neg", Load(harness.buffer("x", x), (j, i))))
    return Group("g", (i, j), (Loop((), (store,)),))


@pytest.mark.parametrize("name", LOAD)
@pytest.mark.parametrize("where", ["x", "y"])
def test_a_kernel_leaves_memory_alone_that_is_not_the_buffers(name, where):
    """Its sizes are those of larger tensors. The first access beyond the end is told of, and none happens."""
    x, y = torch.ones(70, 30), torch.full((2, 30, 70), 7.0)
    kernel = GENERATE[name](transposed(30, 70, x, y[0]), CHECKED)
    report = torch.full((len(kernel.accesses),), harness.NOTHING)
    tensors, short = {"x": x, "y": y[0], REPORT: report}, 100
    numbers = [harness.number(kernel, s, tensors, {}) for s in kernel.sizes]
    limits = [k for k, s in enumerate(kernel.sizes) if isinstance(s, Limit) and s.end]
    (shorter,) = (k for k in limits if kernel.pointers[kernel.sizes[k].pointer].name == where)
    numbers[shorter] = short
    LOAD[name]([kernel])[kernel.symbol](*(tensors[b.name].data_ptr() for b in kernel.pointers), *numbers)
    ((buffer, stores, place),) = harness.faults(kernel, report)
    assert (buffer, stores) == (where, where == "y") and 100 <= place < 2100
    assert (y[1] == 7.0).all() and (where == "x" or (y[0].flatten()[short:] == 7.0).all())


# ---------------------------------------------------------------- programs without a fault


def _late(x):
    chosen = x[x > 0]
    return chosen * 2 + chosen.sum()


def _trained(x, w):
    return torch.autograd.grad(F.layer_norm(F.gelu(x @ w), (w.shape[1],)).pow(3).sum(), (x, w))


def _leaves(*shapes):
    return tuple(torch.randn(shape, requires_grad=True) for shape in shapes)


def _image(x):
    return F.max_pool2d(F.conv2d(x, torch.ones(4, 3, 3, 3)).relu(), 2).flatten(1).softmax(-1)


def _updated(*tensors):
    for t in tensors:
        t.add_(1).mul_(0.5)
    return sum(t.sum() for t in tensors)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "pointwise": (lambda x: x.sin() + 1, lambda: (torch.randn(33, 5),)),
    "empty": (lambda x: (x + 1, x.sum(0)), lambda: (torch.randn(0, 5),)),
    "rows": (lambda x: F.softmax(x, -1) - x.mean(0), lambda: (torch.randn(7, 70),)),
    "product": (lambda x, y: torch.relu(x.t() @ y + 1).sum(1), lambda: (torch.randn(9, 20), torch.randn(9, 33))),
    "joined": (lambda x, y: torch.cat([x, y * 2, x.flip(1)], 1), lambda: (torch.randn(5, 3), torch.randn(5, 8))),
    "padded": (lambda x: F.pad(x, (2, 3)).exp(), lambda: (torch.randn(4, 6),)),
    "part of a tensor": (lambda x: x * 2, lambda: (torch.randn(10, 10)[2:7, ::3],)),
    "storage around it": (lambda x: x.as_strided((3, 4), (4, 1), 0) + 1, lambda: (torch.randn(20)[8:12],)),
    "indexed": (lambda x, i: x[i] + x[:, 1:2], lambda: (torch.randn(6, 4), torch.tensor([0, 5, 3, 3, -1, 2]))),
    "written at indices": (lambda x, i: x.index_add(0, i, x), lambda: (torch.randn(3, 4), torch.tensor([0, 0, 2]))),
    "many at once": (_updated, lambda: (torch.randn(64), torch.randn(7), torch.randn(300))),
    "image": (_image, lambda: (torch.randn(2, 3, 8, 8),)),
    "gradients": (_trained, lambda: _leaves((6, 8), (8, 16))),
    "sizes that depend on values": (_late, lambda: (torch.randn(40),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_right_program_finds_nothing(name, target):
    fn, inputs = PROGRAMS[name]
    torch.manual_seed(0)
    given = inputs()
    torch.manual_seed(0)
    own = inputs()
    want, compiled = fn(*given), dovetail.compile(fn)
    launches = _counted_launches()
    torch.testing.assert_close(got := compiled(*own), want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(own, given, rtol=1e-4, atol=1e-5)
    versions = [[t._version for t in pytree.tree_leaves(tensors)] for tensors in ((own, got), (given, want))]
    assert versions[0] == versions[1]
    assert launches() > 0


def _counted_launches() -> Callable[[], int]:
    """How many launches were looked at since."""
    seen: list[Any] = []
    begin = checked_runtime.begin
    checked_runtime.NAMES["begin"] = lambda *args: (seen.append(args), begin(*args))[1]

    def count() -> int:
        checked_runtime.NAMES["begin"] = begin
        return len(seen)

    return count


def _sample(everything: list[Entry]) -> list[Entry]:
    """By a hash of the name, as in `tests/opdb/test_opdb.py`: the same ones on every machine, and others than there."""
    return [e for e in everything if zlib.crc32(e.name.encode()) % 96 == 5]


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_sample_of_the_operator_database(direction):
    """All of it: `make test-checked`."""
    everything, how = (entries(), FORWARD) if direction == "forward" else (gradients.entries(), BACKWARD)
    chosen = _sample(everything)
    assert len(chosen) > 8
    with dovetail.config.patch(check_kernels=True):
        failures = {entry.name: found for entry in chosen if (found := run_entry(entry, 1, how).failures)}
    assert failures == {}


def test_sizes_that_vary(target):
    compiled = dovetail.compile(lambda x, y: F.softmax(x, -1) @ y + 1, dynamic=True)
    for n in (3, 8, 33):
        x, y = torch.randn(5, n), torch.randn(n, 4)
        torch.testing.assert_close(compiled(x, y), F.softmax(x, -1) @ y + 1)


# ---------------------------------------------------------------- faults


def swap_sizes(patch: pytest.MonkeyPatch) -> None:
    """The sizes of a call in another order than the kernel's."""
    given = checked_host._Checked.given

    def swapped(self: Any, kernel: Kernel) -> list[str]:
        found = given(self, kernel)
        count = len(kernel.pointers)
        sizes = [k for k, s in enumerate(kernel.sizes, count) if isinstance(s, int) and s > 8]
        first, second = (sizes[0], sizes[1])
        found[first], found[second] = found[second], found[first]
        return found

    patch.setattr(checked_host._Checked, "given", swapped)


def shorten_buffers(patch: pytest.MonkeyPatch) -> None:
    """The program has less memory for its temporaries than its kernels write."""
    reuse = building.reuse

    def shrunk(program: Any) -> Any:
        plain = Buffer.span.fget
        patch.setattr(Buffer, "span", property(lambda self: plain(self) - (self.kind == "temporary")))
        return reuse(program)

    patch.setattr(building, "reuse", shrunk)


def turn_views(patch: pytest.MonkeyPatch) -> None:
    """A view has other strides than promised."""
    strided = Host.strided

    def turned(self: Any, view: Any) -> str:
        name = strided(self, view)
        self.body[-1] += ".contiguous()"
        return name

    patch.setattr(Host, "strided", turned)


def turn_inputs(patch: pytest.MonkeyPatch) -> None:
    """An input has other strides than the guards promise."""
    load = assembly.load_program

    def turned(*args: Any) -> Callable[..., Any]:
        call = load(*args)
        return lambda x, *rest: call(x.t().contiguous().t(), *rest)

    patch.setattr(assembly, "load_program", turned)


def other_results(patch: pytest.MonkeyPatch) -> None:
    """An operator of the library gives another dtype than predicted."""
    monkey = checked_host.Host.results

    def wrong(self: Any, call: Any, text: str) -> str:
        return monkey(self, call, text) + ".double()"

    patch.setattr(checked_host.Host, "results", wrong)


def _turned(x):
    return (x[1:, 2:].sin().t() * 2).contiguous()


def _sum_of_temporary(x):
    y = x.exp().sum(0)
    return torch.sort(y).values + y


def _sorted_rows(x):
    return torch.sort(x.t()).values


def _sorted(x):
    return torch.linalg.vector_norm(x, 3.5, 0) + torch.logcumsumexp(x, 0)


FAULTS: dict[str, tuple[Callable[..., None], Callable[..., Any], str]] = {
    "sizes in another order": (swap_sizes, _turned, r"(loads|stores to) element \d+ of .*has elements 0 to 659"),
    "too little memory": (shorten_buffers, _sum_of_temporary, r"stores to element 32 of b\d+ .*elements 0 to 31"),
    "strides of a view": (turn_views, _sorted_rows, r"given to aten.sort.*strides \(20, 1\); .*strides \(1, 33\)"),
    "strides of an input": (turn_inputs, _turned, r"a0, an input of.*strides \(1, 20\); .*strides \(33, 1\)"),
    "dtype of a result": (other_results, _sorted, r"what aten.logcumsumexp.default returned, is torch.float64"),
}


@pytest.mark.parametrize("how", ["", "suppress_errors"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name, how, target, monkeypatch):
    """The message says what, where and by which line; nothing falls back to eager."""
    inject, fn, message = FAULTS[name]
    inject(monkeypatch)
    with dovetail.config.patch(suppress_errors=bool(how)), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KernelFault, match=message) as raised:
            dovetail.compile(fn)(torch.randn(20, 33))
    if "input of" not in message:
        (*_, place) = raised.value.stack
        lines, first = inspect.getsourcelines(fn)
        assert place.filename == __file__ and first < place.line < first + len(lines)


def _stepped(x):
    return (x.sin().t() * 2).contiguous().square()


def _broken_off(x):
    y = x.sin()
    print(end="")
    dovetail.graph_break()
    return _stepped(y)


@pytest.mark.parametrize("fn", [_stepped, _broken_off])
@pytest.mark.parametrize("when", ["forward", "backward"])
def test_a_fault_of_training_is_found(fn, when, target, monkeypatch):
    """It leaves the engine as it is, as it does after a graph break."""
    elements, less = checked_runtime.elements, [0]
    monkeypatch.setitem(checked_runtime.NAMES, "elements", lambda t, size: elements(t, size) - less[0])
    compiled, x = dovetail.compile(fn), torch.randn(20, 33, requires_grad=True)
    loss = compiled(x).sum()
    less[0] = 1
    with pytest.raises(KernelFault, match=r"element 659 of .*elements 0 to 658") as raised:
        loss.backward() if when == "backward" else compiled(x)
    assert raised.value.stack[-1].function in {"_stepped", fn.__name__}


def test_a_fault_of_one_among_many_is_found(target, monkeypatch):
    """Of groups that are started at once, each has a report of its own."""
    elements = checked_runtime.elements
    monkeypatch.setitem(checked_runtime.NAMES, "elements", lambda t, size: elements(t, size) - (t.numel() == 300))
    with pytest.raises(KernelFault, match=r"element 299 of input a1 .*elements 0 to 298"):
        dovetail.compile(_updated)(torch.randn(64), torch.randn(300))


def test_what_nobody_writes_is_nan(target, monkeypatch):
    """A kernel that does too little leaves NaN, where memory of an earlier call might hold what is expected."""
    given = checked_host._Checked.given

    def fewer(self: Any, kernel: Kernel) -> list[str]:
        return [str(int(g) - 1) if s == 33 else g for g, s in zip(
            given(self, kernel), (*kernel.pointers, *kernel.sizes), strict=True)]

    monkeypatch.setattr(checked_host._Checked, "given", fewer)
    x = torch.randn(33)
    got = dovetail.compile(lambda x: (x + 1, x.gt(0).long()))(x)
    torch.testing.assert_close(got[0][:32], x[:32] + 1)
    assert got[0][32].isnan() and got[1][32] == -0x5454545454545455
