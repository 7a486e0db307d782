"""What `torch.profiler` shows of compiled code."""

from __future__ import annotations

import re

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import dovetail

HERE = "test_profiles.py"


def profiled(fn, *args):
    """(depth, name) of everything of ours that a call shows, in the order in which it began."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        fn(*args)
    events = sorted(found.events(), key=lambda event: event.time_range.start)
    return [(depth(event), event.name) for event in events if re.match(r"dovetail|k\d+_", event.name)]


def depth(event) -> int:
    return 0 if event.cpu_parent is None else 1 + depth(event.cpu_parent)


def line_of(fn, beyond: int = 0) -> int:
    return fn.__code__.co_firstlineno + beyond


def softmax(x):
    return torch.softmax(x, -1) * 2


def test_a_call_its_graph_and_its_kernels() -> None:
    compiled = dovetail.compile(softmax, fullgraph=True)
    compiled(X)
    number = dovetail.diagnostics.times.RECORDS.all()[-1].number
    expected = [
        (0, f"dovetail: {HERE}:{line_of(softmax)} softmax"),
        (1, f"dovetail graph {number}: {HERE}:{line_of(softmax)} softmax"),
        (2, f"k0__softmax_mul {HERE}:{line_of(softmax, 1)} softmax"),
    ]
    assert profiled(compiled, X) == profiled(compiled, X) == expected


X = torch.randn(3, 8)


def test_stages_of_a_compilation() -> None:
    shown = profiled(dovetail.compile(lambda x: x.sin()), X)
    stages = [name.removeprefix("dovetail compile: ") for depth, name in shown if name.startswith("dovetail compile")]
    assert stages == ["capture", "repeats", "normalize", "lower", "schedule", "codegen", "load", "guards"]
    assert [depth for depth, _ in shown[:2]] == [0, 1]


def test_both_halves_of_a_training_step() -> None:
    compiled = dovetail.compile(lambda x: (x.sin() @ x.T).exp())
    x = X.clone().requires_grad_()
    compiled(x)
    shown = [re.sub(r"\d+", "N", name) for _, name in profiled(lambda: compiled(x).sum().backward())]
    graphs = [name.partition(":")[0] for name in shown if name.startswith("dovetail graph")]
    assert graphs == ["dovetail graph N forward", "dovetail graph N backward"]


def with_a_break(x):
    x = x + 1
    dovetail.graph_break()
    return x * 2


def test_what_follows_a_break_has_the_line_of_the_break() -> None:
    compiled = dovetail.compile(with_a_break)
    compiled(X)
    regions = [(depth, name) for depth, name in profiled(compiled, X) if name.startswith("dovetail: ")]
    assert regions == [
        (0, f"dovetail: {HERE}:{line_of(with_a_break)} with_a_break"),
        (1, f"dovetail: {HERE}:{line_of(with_a_break, 2)} with_a_break (resumed)"),
    ]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = torch.nn.GELU()

    def forward(self, x):
        return self.act(x)


def test_a_kernel_of_a_modules_has_the_line_that_calls_the_module() -> None:
    compiled = dovetail.compile(Model())
    compiled(X)
    (kernel,) = [name for _, name in profiled(compiled, X) if name.startswith("k0_gelu")]
    assert kernel.endswith(f" {HERE}:{line_of(Model.forward, 1)} forward")


def test_sizes_that_vary_and_inputs_that_are_checked() -> None:
    compiled = dovetail.compile(lambda x, k: x.exp()[k], dynamic=True, fullgraph=True)
    index = torch.tensor([1, 0])
    compiled(X, index)
    for rows in (3, 5):
        kernels = [name for _, name in profiled(compiled, torch.randn(rows, 8), index) if name.startswith("k")]
        assert [name.partition(" ")[0] for name in kernels] == ["k0_index", "k1_index"]
    with pytest.raises(IndexError), profile(activities=[ProfilerActivity.CPU]):
        compiled(X, index + 7)


def test_random_numbers_are_put_back_where_a_profiled_graph_raises() -> None:
    def fn(x, k):
        return torch.rand(3) + x[k]

    compiled = dovetail.compile(fn)
    compiled(torch.ones(4), torch.tensor([1, 2, 3]))
    bad = torch.tensor([1, 2, 9])
    states = []
    for call in (fn, compiled):
        torch.manual_seed(0)
        with pytest.raises(IndexError), profile(activities=[ProfilerActivity.CPU]):
            call(torch.ones(4), bad)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_modes_see_nothing_of_it() -> None:
    with dovetail.config.patch(suppress_errors=True), pytest.warns(UserWarning, match="eagerly"), Watching() as mode:
        mode.seen = []
        shown = profiled(dovetail.compile(softmax), X)
    assert shown == [(0, f"dovetail: {HERE}:{line_of(softmax)} softmax")]
    assert [str(func) for func in mode.seen] == ["aten._softmax.default", "aten.mul.Tensor"]


@pytest.mark.filterwarnings("ignore:.*jit.trace:DeprecationWarning")
def test_tracers_see_nothing_of_it() -> None:
    with profile(activities=[ProfilerActivity.CPU]), pytest.warns(UserWarning, match="eagerly"):
        traced = torch.jit.trace(dovetail.compile(softmax), (X,))
    assert "profiler" not in traced.code


def test_the_compile_profiler_and_explain_agree() -> None:
    def fn(x, k):
        x = x.sin() + len(k)
        print("between")
        return x.sum().item() * x

    with dovetail.config.patch(reorderable_logging_functions=frozenset()):
        said = dovetail.explain(fn)(X, "a")
        prof = dovetail.CompileProfiler()
        dovetail.compile(fn, backend=prof)(X, "a")
    assert (prof.frame_count, prof.op_count) == (said.graph_count, said.op_count)
    assert prof.explanation.break_reasons == said.break_reasons and said.graph_break_count == 2
    assert prof.explanation.ops_per_graph == said.ops_per_graph
    assert all(prof.report().count(cause.reason) == 1 for cause in said.break_reasons)
