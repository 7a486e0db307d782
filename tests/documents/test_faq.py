"""Frequently asked questions: every example, with the counts that the document prints."""

from __future__ import annotations

import functools
import json
import re

import numpy as np
import pytest
import torch

import dovetail
from dovetail import CompileProfiler
from dovetail.config import Config

from .checking import Graphs


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    print("woo")
    if b.sum() < 0:
        b = b * -1
    return x * b


POSITIVE = torch.rand(10)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


# ---------------------------------------------------------------- Does torch.compile support training?


def test_the_forward_graph_and_the_optimizers_step_are_captured() -> None:
    graphs = Graphs()
    model = torch.nn.Linear(4, 4)
    opt = torch.optim.Adam(model.parameters())
    step = dovetail.compile(lambda: opt.step(), backend=graphs)
    forward = dovetail.compile(model, backend=graphs)
    with torch.enable_grad():
        forward(torch.randn(2, 4)).sum().backward()
    assert len(graphs.operators) == 1
    step()
    assert len(graphs.operators) == 2 and len(graphs.operators[1]) > 10


def test_backward_runs_each_compiled_graph_as_one_operator() -> None:
    """Nodes of eager operators and of compiled graphs take turns in the engine."""
    first, second = dovetail.compile(lambda x: x.sin().cos()), dovetail.compile(lambda x: (x @ x).exp())
    x = torch.randn(3, 3, requires_grad=True)
    with torch.enable_grad():
        y = second(first(x) * 2)
        y.sum().backward(retain_graph=True)
        z = x.sin().cos() * 2
        torch.testing.assert_close(torch.autograd.grad((z @ z).exp().sum(), x), (x.grad,))
    assert "grad_fn=<CompiledFunctionBackward>" in repr(y)
    names, node = [], y.grad_fn
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    assert names == [
        "CompiledFunctionBackward", "MulBackward0", "CompiledFunctionBackward", "torch::autograd::AccumulateGrad",
    ]  # fmt: skip


def test_each_segment_of_a_forward_has_its_own_backward() -> None:
    @dovetail.compile
    def f(x):
        x = x.sin()
        dovetail.graph_break()
        return x.cos()

    x = torch.randn(3, requires_grad=True)
    with torch.enable_grad():
        y = f(x)
        y.sum().backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(x.sin().cos().sum(), x)[0])
    (before, _), *_ = y.grad_fn.next_functions
    assert y.grad_fn.name() == before.name() == "CompiledFunctionBackward"


# ---------------------------------------------------------------- Why is my code crashing?


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail", "aot_eager_decomp_partition"])
def test_the_ladder_of_backends(backend: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    torch.testing.assert_close(dovetail.compile(model, backend=backend)(x), model(x))


# ---------------------------------------------------------------- Why is compilation slow?


def test_compile_times() -> None:
    dovetail.reset()
    dovetail.compile(lambda x: x + 1)(POSITIVE)
    assert "capture" in dovetail.compile_times()


def test_compile_times_as_columns() -> None:
    dovetail.compile(lambda x: x + 2)(POSITIVE)
    headers, ((*seconds,),) = dovetail.compile_times(repr="csv", aggregate=True)
    assert len(headers) == len(seconds) and all(float(second) >= 0 for second in seconds)


def test_compile_debug_writes_every_stage(tmp_path) -> None:
    with dovetail.config.patch(compile_debug=True, debug_dir=str(tmp_path)):
        dovetail.compile(toy_example)(POSITIVE, POSITIVE)
    written = {path.name.partition("_")[2] for path in tmp_path.rglob("*.*")}
    assert written >= {"graph_code.py", "output_code.py", "kernel_code.ll", "fusion.txt", "summary.txt"}


def test_the_recompilation_profiler() -> None:
    prof = CompileProfiler()

    def my_model(x, k):
        if x.sum() > 0:
            return x * k
        return x - k

    profiler_model = dovetail.compile(my_model, backend=prof)
    for k in ("a", "b"):
        profiler_model(POSITIVE, len(k) if k == "a" else 2.5)
    report = prof.report()
    assert "my_model" in report and "data-dependent-branch" in report and "k" in report


def test_the_recompilation_profiler_as_a_context() -> None:
    with CompileProfiler() as prof:
        profiler_model = dovetail.compile(lambda: torch.ones(3) + 1, backend=prof)
        profiler_model()
        assert "no graph breaks" in prof.report().lower() and "no recompilation" in prof.report().lower()


# ---------------------------------------------------------------- Why are you recompiling in production?


def test_frozen_toy_example() -> None:
    graphs = Graphs()
    compiled = dovetail.compile(toy_example, backend=graphs)
    frozen_toy_example = dovetail.run(compiled)
    a, b = torch.randn(10), torch.randn(10)
    torch.testing.assert_close(frozen_toy_example(a, b), toy_example(a, b))
    assert graphs.seen == []
    compiled(a, b)
    made = len(graphs.seen)
    for _ in range(3):
        torch.testing.assert_close(frozen_toy_example(a, b), toy_example(a, b))
    frozen_toy_example(torch.randn(11), torch.randn(11))
    assert len(graphs.seen) == made


def test_a_frozen_function_compiles_nothing_that_it_calls() -> None:
    graphs = Graphs()
    inner = dovetail.compile(toy_example, backend=graphs)
    frozen = dovetail.run(lambda a, b: inner(a, b) + 1)
    torch.testing.assert_close(frozen(POSITIVE, POSITIVE), toy_example(POSITIVE, POSITIVE) + 1)
    assert graphs.seen == []


# ---------------------------------------------------------------- Identifying the cause of a graph break


def test_explain_toy_example_as_printed() -> None:
    """As in the document, where print is not reordered: 3 graphs, 2 breaks, 5 operators."""
    with dovetail.config.patch(reorderable_logging_functions=frozenset()):
        explanation = dovetail.explain(toy_example)(torch.randn(10), POSITIVE)
    assert (explanation.graph_count, explanation.graph_break_count, explanation.op_count) == (3, 2, 5)
    first, second = explanation.break_reasons
    assert "print" in first.reason and "branches on the value of a tensor" in second.reason
    assert [reason.user_stack[-1].name for reason in (first, second)] == ["toy_example", "toy_example"]
    assert second.user_stack[-1].lineno == first.user_stack[-1].lineno + 1
    text = str(explanation)
    assert text.startswith("Graph Count: 3\nGraph Break Count: 2\nOp Count: 5\nBreak Reasons:\n  Break Reason 1:\n")
    place = rf"      <FrameSummary file {re.escape(__file__)}, line \d+ in toy_example>\n"
    assert re.search(rf"    Reason: .*\n    What to do: .*\n    User Stack:\n{place}  Break Reason 2:\n", text)
    assert re.search(r"\nOps per Graph:\n  Ops 1:\n    .*\n(.*\n)+Out Guards:\n  \d+: ", text)
    assert re.search(r"\nOut Guards:\n  Guard 1:\n    Name: ", explanation.details())


def test_explain_toy_example_where_the_branch_is_taken() -> None:
    """The old document's 6 operators: b is negative."""
    with dovetail.config.patch(reorderable_logging_functions=frozenset()):
        explanation = dovetail.explain(toy_example)(torch.randn(10), -POSITIVE)
    assert (explanation.graph_count, explanation.graph_break_count, explanation.op_count) == (3, 2, 6)


def test_explain_toy_example_with_print_reordered() -> None:
    """By default print does not break the graph."""
    explanation = dovetail.explain(toy_example)(torch.randn(10), POSITIVE)
    assert (explanation.graph_count, explanation.graph_break_count, explanation.op_count) == (2, 1, 5)


def test_fullgraph_raises_at_the_first_graph_break() -> None:
    with pytest.raises(dovetail.GraphBreakError, match="data-dependent-branch"):
        dovetail.compile(toy_example, fullgraph=True, backend="eager")(torch.randn(10), torch.randn(10))


def test_only_the_graph_that_changed_is_compiled_again() -> None:
    graphs = Graphs()
    scale = [1.0]

    def three_parts(x):
        x = x + 1
        dovetail.graph_break()
        x = x * scale[0]
        dovetail.graph_break()
        return x - 1

    compiled = dovetail.compile(three_parts, backend=graphs)
    compiled(POSITIVE)
    assert len(graphs.operators) == 3
    scale[0] = "never".count("e") * 1.5
    torch.testing.assert_close(compiled(POSITIVE), (POSITIVE + 1) * 3 - 1)
    assert len(graphs.operators) == 4


def test_sizes_that_vary_are_compiled_once_more_unless_that_is_off() -> None:
    for on, compilations in ((True, 2), (False, 4)):
        graphs = Graphs()
        with dovetail.config.patch(dynamic_shapes=on):
            compiled = dovetail.compile(lambda x: x.sin(), backend=graphs)
            for size in (3, 4, 7, 64):
                compiled(torch.ones(size))
        assert len(graphs.operators) == compilations


# ---------------------------------------------------------------- Why am I getting incorrect results?


@pytest.mark.parametrize("after", ["aot", "dynamo"])
def test_repro_level_4_finds_wrong_values(after: str, tmp_path) -> None:
    def wrong(gm, example_inputs):
        return lambda *inputs: [result + 1 for result in gm.forward(*inputs)]

    settings = {"repro_level": 4, "repro_after": after, "repro_dir": str(tmp_path), "suppress_errors": True}
    with dovetail.config.patch(**settings), pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.diagnostics.repro.cut_down", lambda path: path)  # `tests/minify` does that
        with pytest.warns(UserWarning, match="WrongValues"):
            found = dovetail.compile(lambda x: x.sin() * 2, backend=wrong)(POSITIVE)
    torch.testing.assert_close(found, POSITIVE.sin() * 2)
    (repro,) = tmp_path.rglob("repro.py")
    assert "sin" in repro.read_text()


@pytest.mark.parametrize("variable, value", [
    ("REPRO_LEVEL", 4), ("REPRO_AFTER", "aot"), ("REPRO_AFTER", "dynamo"), ("REPRO_DIR", "/repros"),
    ("DYNAMIC_SHAPES", False), ("CUDAGRAPHS", False), ("COMPILE_DEBUG", True), ("DEBUG_FUNCTION", "forward"),
    ("CAPTURE_SCALAR_OUTPUTS", True), ("FALLBACK_RANDOM", True), ("RECOMPILE_LIMIT", 16), ("TRACE_NUMPY", False),
    ("SUPPRESS_ERRORS", True), ("VERBOSE", True),
])  # fmt: skip
def test_the_environments_variables(variable: str, value) -> None:
    text = str(int(value)) if isinstance(value, bool) else str(value)
    assert getattr(Config({f"DOVETAIL_{variable}": text}), variable.lower()) == value


def test_fallback_random() -> None:
    def noisy(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(10)

    with dovetail.config.patch(fallback_random=True):
        compiled = dovetail.compile(noisy)
        torch.manual_seed(0)
        found = compiled(POSITIVE)
    torch.manual_seed(0)
    torch.testing.assert_close(found, noisy(POSITIVE))


# ---------------------------------------------------------------- torch.func


def test_a_transform_of_a_compiled_function() -> None:
    @dovetail.compile
    def f(x):
        return torch.sin(x)

    def g(x):
        return torch.func.grad(lambda t: f(t).sum())(x)

    x = torch.randn(2, 3)
    torch.testing.assert_close(g(x), torch.cos(x))


def test_compiling_grad() -> None:
    def wrapper_fn(x):
        return torch.func.grad(lambda x: x.sin().sum())(x)

    x = torch.randn(3, 3, 3)
    grad_x = dovetail.compile(wrapper_fn)(x)
    torch.testing.assert_close(grad_x, x.cos())


def test_compiling_vmap() -> None:
    def my_fn(x):
        return torch.vmap(lambda x: x.sum(1))(x)

    x = torch.randn(3, 3, 3)
    output = dovetail.compile(my_fn)(x)
    torch.testing.assert_close(output, x.sum(2))


def test_the_escape_hatch() -> None:
    @dovetail.compile
    def f(x):
        return dovetail.allow_in_graph(torch.vmap(torch.sum))(x)

    x = torch.randn(2, 3)
    torch.testing.assert_close(f(x), x.sum(1))


def test_the_escape_hatch_by_pytorchs_name() -> None:
    @dovetail.compile
    def f(x):
        return torch._dynamo.allow_in_graph(torch.vmap(torch.sum))(x)

    x = torch.randn(2, 3)
    torch.testing.assert_close(f(x), x.sum(1))


def test_a_function_that_is_annotated_for_the_escape_hatch() -> None:
    """It may change what it has made itself."""

    @dovetail.allow_in_graph
    def opaque(x):
        y = x.clone()
        y += 1
        return y

    graphs = Graphs()
    compiled = dovetail.compile(lambda x: opaque(x) * 2, backend=graphs, fullgraph=True)
    torch.testing.assert_close(compiled(POSITIVE), (POSITIVE + 1) * 2)
    assert graphs.operators == [["opaque", "mul"]]


def test_a_module_behind_the_escape_hatch() -> None:
    """Its parameters are handed in, or the outputs would depend on what the graph does not know."""
    lin = torch.nn.Linear(4, 4)

    def call(parameters, x):
        return torch.func.functional_call(lin, parameters, (x,))

    @dovetail.compile(fullgraph=True)
    def f(x):
        return dovetail.allow_in_graph(call)(dict(lin.named_parameters()), x)

    x = torch.randn(2, 4)
    with torch.enable_grad():
        y = f(x)
        y.sum().backward()
    torch.testing.assert_close(y, lin(x))
    assert lin.weight.grad is not None


# ---------------------------------------------------------------- Does NumPy work with torch.compile?

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]
devices = pytest.mark.parametrize("device", DEVICES)


def sum_of_products(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return np.sum(X[:, :, None] * Y[:, None, :], axis=(-2, -1))


def test_numpy_code_is_one_graph() -> None:
    graphs = Graphs()
    numpy_fn = dovetail.compile(sum_of_products, backend=graphs, fullgraph=True)
    X, Y = np.random.randn(1024, 64), np.random.randn(1024, 64)
    Z = numpy_fn(X, Y)
    assert isinstance(Z, np.ndarray) and len(graphs.operators) == 1
    np.testing.assert_allclose(Z, sum_of_products(X, Y))


@devices
def test_numpy_code_in_a_device_context(device: str) -> None:
    numpy_fn = dovetail.compile(sum_of_products)
    X, Y = np.random.randn(1024, 64), np.random.randn(1024, 64)
    with torch.device(device):
        Z = numpy_fn(X, Y)
    assert isinstance(Z, np.ndarray)
    np.testing.assert_allclose(Z, sum_of_products(X, Y))


@devices
def test_numpy_code_on_tensors(device: str) -> None:
    numpy_fn = dovetail.compile(dovetail.wrap_numpy(sum_of_products), fullgraph=True)
    X, Y = torch.randn(1024, 64, device=device), torch.randn(1024, 64, device=device)
    Z = numpy_fn(X, Y)
    assert isinstance(Z, torch.Tensor)
    assert Z.device.type == device
    torch.testing.assert_close(Z, (X[:, :, None] * Y[:, None, :]).sum((-2, -1)), rtol=1e-4, atol=1e-4)


@devices
def test_differentiate_through_numpy_code(device: str) -> None:
    @functools.partial(dovetail.compile, fullgraph=True)
    @dovetail.wrap_numpy
    def numpy_fn(X, Y):
        return np.mean(np.sum(X[:, :, None] * Y[:, None, :], axis=(-2, -1)))

    X, Y = torch.randn(1024, 64, device=device, requires_grad=True), torch.randn(1024, 64, device=device)
    with torch.enable_grad():
        Z = numpy_fn(X, Y)
    assert isinstance(Z, torch.Tensor)
    Z.backward()
    torch.testing.assert_close(X.grad, (Y.sum(1, keepdim=True) / 1024).expand(1024, 64))


@devices
@pytest.mark.parametrize("interrupt", [print, dovetail.disable(print)], ids=["print", "break"])
def test_numpy_code_with_a_graph_break(device: str, interrupt) -> None:
    @dovetail.compile
    @dovetail.wrap_numpy
    def numpy_fn(X, Y):
        prod = X[:, :, None] * Y[:, None, :]
        interrupt("oops, a graph break!")
        return np.sum(prod, axis=(-2, -1))

    X, Y = torch.randn(1024, 64, device=device), torch.randn(1024, 64, device=device)
    with torch.device(device):
        Z = numpy_fn(X, Y)
    assert isinstance(Z, torch.Tensor)
    assert Z.device.type == device


def test_no_gradient_goes_through_a_break_in_numpy_code() -> None:
    @dovetail.compile
    @dovetail.wrap_numpy
    def numpy_fn(X, whole):
        prod = X * X
        if not whole:
            dovetail.graph_break()
        return np.sum(prod)

    X = torch.randn(4, requires_grad=True)
    with torch.enable_grad():
        assert numpy_fn(X, True).requires_grad and not numpy_fn(X, False).requires_grad


def test_trace_numpy_off_runs_numpy_itself() -> None:
    graphs = Graphs()
    X, Y = np.random.randn(16, 4), np.random.randn(16, 4)
    with dovetail.config.patch(trace_numpy=False):
        Z = dovetail.compile(sum_of_products, backend=graphs)(X, Y)
    assert not graphs.operators
    np.testing.assert_array_equal(Z, sum_of_products(X, Y))


# ---------------------------------------------------------------- Which API to use for fine grain tracing?


def a_fn(x):
    return ab_fn(torch.sin(aa_fn(x)))


def aa_fn(x):
    return torch.cos(x) + 1


def ab_fn(x):
    return torch.relu(x) * 2


def test_disable_a_function_and_what_it_calls() -> None:
    graphs = Graphs()
    off = dovetail.disable(a_fn)
    compiled = dovetail.compile(lambda x: off(x + 1) - 1, backend=graphs)
    torch.testing.assert_close(compiled(POSITIVE), a_fn(POSITIVE + 1) - 1)
    assert graphs.operators == [["add"], ["sub"]]


def test_disable_a_function_but_not_what_it_calls() -> None:
    graphs = Graphs()
    off = dovetail.disable(recursive=False)(a_fn)
    compiled = dovetail.compile(lambda x: off(x + 1) - 1, backend=graphs)
    for _ in range(2):
        torch.testing.assert_close(compiled(POSITIVE), a_fn(POSITIVE + 1) - 1)
    assert graphs.operators == [["add"], ["cos", "add"], ["relu", "mul"], ["sub"]]


def test_an_operator_that_shall_run_in_eager_mode() -> None:
    def fn(a):
        return torch.add(torch.sub(torch.add(a, 1), 1), 1)

    graphs = Graphs()
    dovetail.disallow_in_graph(torch.sub)
    try:
        torch.testing.assert_close(dovetail.compile(fn, backend=graphs)(POSITIVE), fn(POSITIVE))
    finally:
        dovetail.allow_in_graph(torch.sub)
    assert graphs.operators == [["add"], ["add"]]


def test_a_graph_break_at_the_beginning_keeps_a_function_from_being_inlined() -> None:
    def broken(x):
        dovetail.graph_break()
        return torch.sin(x)

    graphs = Graphs()
    compiled = dovetail.compile(lambda x: broken(x + 1) - 1, backend=graphs)
    torch.testing.assert_close(compiled(POSITIVE), torch.sin(POSITIVE + 1) - 1)
    assert graphs.operators == [["add"], ["sin", "sub"]]


# ---------------------------------------------------------------- How are you speeding up my code?


def test_two_cosines_are_one_read_and_one_write(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DOVETAIL_TRACE", str(tmp_path))
    dovetail.compile(lambda x: torch.cos(torch.cos(x)))(POSITIVE)
    events = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    (digest,) = [event["digest"] for event in events if event.get("kind") == "kernels"]
    (kernels,) = [json.loads(event["text"]) for event in events if event.get("text") and event["digest"] == digest]
    (step,) = kernels["steps"]
    assert step["read_bytes"] == step["written_bytes"] == POSITIVE.nbytes and len(step["operators"]) == 2


def test_the_pytorch_profiler_and_the_generated_kernels(capsys) -> None:
    """Both of the document's ways to see what is going on; the host program says which text is which kernel's."""
    compiled = dovetail.compile(toy_example)
    dovetail.set_logs(kernel_code=True, output_code=True)
    try:
        compiled(POSITIVE, POSITIVE)
    finally:
        dovetail.set_logs()
    with torch.profiler.profile() as prof:
        compiled(POSITIVE, POSITIVE)
    table = prof.key_averages().table(max_name_column_width=100)
    line = toy_example.__code__.co_firstlineno
    assert f"dovetail: test_faq.py:{line} toy_example" in table
    kernels = re.findall(r"(k\d+_\w+) test_faq.py:\d+ toy_example", table)
    shown = capsys.readouterr().err
    texts = {name: text for text, name in re.findall(r"(k_\w+)\(.*\)  # (\w+)", shown)}
    assert kernels and all(f"@{texts[kernel]}(" in shown for kernel in kernels)
