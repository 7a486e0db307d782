"""Introduction to the compiler: every example, with the counts that the document prints."""

from __future__ import annotations

import copy
import traceback as tb

import pytest
import torch
import torch.utils.benchmark

import dovetail

from .checking import Graphs

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="the example runs on a GPU")
T1, T2 = torch.randn(10, 10), torch.randn(10, 10)


# ---------------------------------------------------------------- Basic usage


def test_compiling_a_function() -> None:
    def foo(x, y):
        a = torch.sin(x)
        b = torch.cos(y)
        return a + b

    opt_foo1 = dovetail.compile(foo)
    torch.testing.assert_close(opt_foo1(T1, T2), foo(T1, T2))


def test_decorating_a_function() -> None:
    @dovetail.compile
    def opt_foo2(x, y):
        a = torch.sin(x)
        b = torch.cos(y)
        return a + b

    torch.testing.assert_close(opt_foo2(T1, T2), torch.sin(T1) + torch.cos(T2))


class MyModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(100, 10)

    def forward(self, x):
        return torch.nn.functional.relu(self.lin(x))


T = torch.randn(10, 100)


def test_compiling_a_module() -> None:
    mod = MyModule()
    opt_mod = dovetail.compile(mod)
    torch.testing.assert_close(opt_mod(T), mod(T))


def test_nested_calls() -> None:
    def nested_function(x):
        return torch.sin(x)

    def outer_function(x, y):
        a = nested_function(x)
        b = torch.cos(y)
        return a + b

    graphs = Graphs()
    compiled = dovetail.compile(outer_function, backend=graphs)
    torch.testing.assert_close(compiled(T1, T2), outer_function(T1, T2))
    assert graphs.operators == [["sin", "cos", "add"]]


def test_nested_modules() -> None:
    class OuterModule(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner_module = MyModule()
            self.outer_lin = torch.nn.Linear(10, 2)

        def forward(self, x):
            x = self.inner_module(x)
            return torch.nn.functional.relu(self.outer_lin(x))

    outer_mod = OuterModule()
    opt_outer_mod = dovetail.compile(outer_mod, fullgraph=True)
    torch.testing.assert_close(opt_outer_mod(T), outer_mod(T))


def test_compiling_leaf_functions_first() -> None:
    """Compiled by itself, called by eager code, and part of the graph of what is compiled around it."""
    graphs, leaves = Graphs(), Graphs()
    leaf = dovetail.compile(lambda x: torch.sin(x), backend=leaves)

    def outer_function(x, y):
        return leaf(x) + torch.cos(y)

    expected = torch.sin(T1) + torch.cos(T2)
    torch.testing.assert_close(outer_function(T1, T2), expected)
    torch.testing.assert_close(dovetail.compile(outer_function, backend=graphs)(T1, T2), expected)
    assert leaves.operators == [["sin"]] and graphs.operators == [["sin", "cos", "add"]]


def test_disabling_for_a_block() -> None:
    """Best practices, 3: context managers that exclude what runs in them."""
    graphs = Graphs()
    compiled = dovetail.compile(lambda x: torch.sin(x) + 1, backend=graphs)
    with dovetail.disable():
        torch.testing.assert_close(compiled(T1), torch.sin(T1) + 1)
    assert graphs.operators == []
    compiled(T1)
    assert graphs.operators == [["sin", "add"]]


def test_compiling_a_part_of_a_model() -> None:
    """Best practices, 1: individual subcomponents."""
    graphs = Graphs()
    model = torch.nn.Sequential(MyModule(), torch.nn.Linear(10, 2))
    expected, names = model(T), list(model.state_dict())
    model[0] = dovetail.compile(model[0], backend=graphs)
    torch.testing.assert_close(model(T), expected)
    assert len(graphs.operators) == 1 and list(model.state_dict()) == names


@pytest.mark.parametrize("disable", [dovetail.disable, torch.compiler.disable], ids=["ours", "PyTorch's"])
def test_disabling_a_function_but_not_what_it_calls(disable) -> None:
    def complex_conjugate(z):
        return torch.conj(z)

    @disable(recursive=False)
    def complex_function(real, imag):
        # Assuming this function cause problems in the compilation
        z = torch.complex(real, imag)
        return complex_conjugate(z)

    def outer_function():
        real = torch.tensor([2, 3], dtype=torch.float32)
        imag = torch.tensor([4, 5], dtype=torch.float32)
        z = complex_function(real, imag)
        return torch.abs(z)

    graphs = Graphs()
    opt_outer_function = dovetail.compile(outer_function, backend=graphs)
    torch.testing.assert_close(opt_outer_function(), torch.tensor([4.4721, 5.8310]), atol=1e-4, rtol=0)
    assert graphs.operators == [["tensor", "tensor_1"], ["conj"], ["abs_1"]]


# ---------------------------------------------------------------- Demonstrating speedups


class Densely(torch.nn.Module):
    """In place of the document's DenseNet: convolutions, normalisation, concatenation, pooling."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.nn.BatchNorm2d(4)
        self.second, self.last = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.cat([x, self.second(x)], 1)
        return self.last(torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def test_inference_and_training_give_eagers_results() -> None:
    model = Densely().eval()
    inp = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(dovetail.compile(model, mode="reduce-overhead")(inp), model(inp))
    loss = dovetail.compile(model)(inp).sum()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_training_steps_with_less_overhead(device: str) -> None:
    def trained(decorate):
        torch.manual_seed(0)
        model = Densely().to(device)
        opt = torch.optim.Adam(model.parameters())

        def train(mod, data):
            opt.zero_grad(True)
            pred = mod(data[0])
            loss = torch.nn.CrossEntropyLoss()(pred, data[1])
            loss.backward()
            opt.step()

        train_opt = decorate(train)
        for _ in range(3):
            train_opt(model, (torch.randn(4, 3, 8, 8, device=device), torch.randint(10, (4,), device=device)))
        return model.state_dict()

    found = trained(lambda train: dovetail.compile(train, mode="reduce-overhead"))
    torch.testing.assert_close(found, trained(lambda train: train), rtol=1e-3, atol=1e-4)


@GPU
def test_inference_on_a_gpu() -> None:
    model = Densely().eval().cuda()
    inp = torch.randn(16, 3, 128, 128).cuda()
    with torch.no_grad():
        found, eager = dovetail.compile(model, mode="reduce-overhead")(inp), model(inp)
        exact = copy.deepcopy(model).double()(inp.double())
    mine, theirs = ((t - exact).abs().max() for t in (found, eager))
    assert mine <= 4 * theirs + 1e-6  # convolutions take TF32


def test_pytorchs_own_timer() -> None:
    compiled = dovetail.compile(lambda x: torch.sin(x) + 1)
    timer = torch.utils.benchmark.Timer("compiled(x)", globals={"compiled": compiled, "x": T1})
    assert timer.timeit(3).mean > 0


# ---------------------------------------------------------------- Comparison


def f1(x, y):
    if x.sum() < 0:
        return -y
    return y


# `fn1` is an eager function, `fn2` a compiled one.
def same(fn1, fn2, args):
    out1 = fn1(*args)
    out2 = fn2(*args)
    return torch.allclose(out1, out2)


def test_data_dependent_control_flow() -> None:
    inp1, inp2 = torch.randn(5, 5), torch.randn(5, 5)
    compile_f1 = dovetail.compile(f1)
    assert same(f1, compile_f1, (inp1, inp2))
    assert same(f1, compile_f1, (-inp1, inp2))


def test_arguments_of_other_types() -> None:
    def f2(x, y):
        return x + y

    compile_f2 = dovetail.compile(f2)
    assert same(f2, compile_f2, (torch.randn(5, 5), 3))


def test_functions_that_are_not_pytorchs() -> None:
    import scipy.fft

    def f3(x):
        x = x * 2
        x = scipy.fft.dct(x.numpy())
        x = torch.from_numpy(x)
        x = x * 2
        return x

    compile_f3 = dovetail.compile(f3)
    for _ in range(2):
        inp = torch.randn(5, 5)
        torch.testing.assert_close(compile_f3(inp), f3(inp))


# ---------------------------------------------------------------- TorchDynamo and FX graphs


def custom_backend(seen):
    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]):
        print("custom backend called with FX graph:")
        gm.graph.print_tabular()
        seen.append(gm)
        return gm.forward

    return backend


def bar(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def test_a_custom_backend_sees_three_graphs(capsys) -> None:
    seen: list[torch.fx.GraphModule] = []
    opt_bar = dovetail.compile(bar, backend=custom_backend(seen))
    inp1, inp2 = torch.randn(10), torch.randn(10)
    for b in (inp2, -inp2, inp2):
        torch.testing.assert_close(opt_bar(inp1, b), bar(inp1, b))
    assert len(seen) == 3
    texts = [gm.code for gm in seen]
    assert "abs" in texts[0] and ("truediv" in texts[0] or "/" in texts[0])
    assert sorted(text.count("*") + text.count("mul(") for text in texts[1:]) == [1, 2]
    shown = capsys.readouterr().out
    assert shown.count("custom backend called with FX graph:") == 3
    assert "<built-in function truediv>" in shown and "call_method    sum_1" in shown


def test_explain_bar_as_printed() -> None:
    explain_output = dovetail.explain(bar)(torch.randn(10), -torch.rand(10))
    assert (explain_output.graph_count, explain_output.graph_break_count, explain_output.op_count) == (2, 1, 6)
    assert [len(ops) for ops in explain_output.ops_per_graph] == [4, 2]
    (reason,) = explain_output.break_reasons
    assert "branches on the value of a tensor" in reason.reason
    assert reason.user_stack[-1].line == "if b.sum() < 0:" and reason.user_stack[-1].filename == __file__
    assert explain_output.out_guards and explain_output.compile_times and len(explain_output.graphs) == 2
    text = str(explain_output)
    assert text.startswith("Graph Count: 2\nGraph Break Count: 1\nOp Count: 6\nBreak Reasons:\n  Break Reason 1:\n")
    ops = text[text.index("Ops per Graph:") : text.index("Out Guards:")].splitlines()
    assert ops == [
        "Ops per Graph:", "  Ops 1:", f"    {torch.abs}", "    <built-in function add>",
        "    <built-in function truediv>", "    <built-in function lt>", "  Ops 2:", "    <built-in function mul>",
        "    <built-in function mul>",
    ]  # fmt: skip


def test_fullgraph_raises(capsys) -> None:
    opt_bar = dovetail.compile(bar, fullgraph=True)
    try:
        opt_bar(torch.randn(10), torch.randn(10))
    except Exception:
        tb.print_exc()
    shown = capsys.readouterr().err
    assert "GraphBreakError: [data-dependent-branch]" in shown and "if b.sum() < 0:" in shown


def test_a_custom_backend_sees_the_whole_model() -> None:
    seen: list[torch.fx.GraphModule] = []
    model = Densely().eval()
    inp = torch.randn(4, 3, 8, 8)
    found = dovetail.compile(model, backend=custom_backend(seen))(inp)
    torch.testing.assert_close(found, model(inp))
    assert len(seen) == 1


def test_the_model_is_one_graph() -> None:
    model = Densely().eval()
    inp = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(dovetail.compile(model, fullgraph=True)(inp), model(inp))


def test_a_single_graph_is_exported(tmp_path) -> None:
    model = Densely().eval()
    inp = torch.randn(4, 3, 8, 8)
    dovetail.export(model, (inp,)).save(tmp_path / "model.dt")
    loaded = dovetail.ExportedProgram.load(tmp_path / "model.dt").module()
    torch.testing.assert_close(loaded(inp), model(inp))


def test_exported_programs_have_no_graph_breaks() -> None:
    with pytest.raises(dovetail.GraphBreakError, match="data-dependent-branch"):
        dovetail.export(bar, (torch.randn(10), torch.randn(10)))
