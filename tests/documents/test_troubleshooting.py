"""Troubleshooting: every example, with what its logs say."""

from __future__ import annotations

import copy
import inspect
import io
import logging
import pdb
import re
import sys
import warnings

import pytest
import torch
from click.testing import CliRunner

import dovetail
from dovetail import comptime
from dovetail.commands import main

from .checking import Graphs


@pytest.fixture(autouse=True)
def _quiet():
    yield
    dovetail.set_logs()


# ---------------------------------------------------------------- Terminology


def test_no_graph_break_at_deepcopy(capsys) -> None:
    @dovetail.compile(fullgraph=True)
    def fn(x):
        x = x + 1
        y = copy.deepcopy(x)
        return y + 1

    dovetail.set_logs(graph_breaks=True)
    torch.testing.assert_close(fn(torch.ones(3, 3)), torch.full((3, 3), 3.0))
    assert capsys.readouterr().err == ""


def add_one(x):
    return x + 1


def test_guards(capsys) -> None:
    dovetail.set_logs(guards=True)
    dovetail.compile(add_one, backend="eager")(torch.ones(3, 3))
    shown = capsys.readouterr().err
    assert "x.shape == (3, 3)" in shown or "x.size()" in shown
    assert "float32" in shown


def test_recompilation(capsys) -> None:
    fn = dovetail.compile(add_one, backend="eager", dynamic=False)
    dovetail.set_logs(recompiles=True)
    fn(torch.ones(3, 3))
    fn(torch.ones(4, 4))
    assert re.fullmatch(
        rf"[\d:.]+ test_troubleshooting.py:\d+ recompiles: Recompiling function add_one in {re.escape(__file__)}:\d+\n"
        r"    triggered by the following guard failure\(s\):\n"
        r"    - entry 0: .*x.* size mismatch at index 0\. expected 3, actual 4.*\n",
        capsys.readouterr().err,
    )


def test_dynamic_shapes_need_no_recompilation(capsys) -> None:
    fn = dovetail.compile(add_one, dynamic=True)
    dovetail.set_logs(dynamic=True, recompiles=True)
    for n in (3, 4):
        torch.testing.assert_close(fn(torch.ones(n, n)), torch.full((n, n), 2.0))
    shown = capsys.readouterr().err
    assert re.search(r"dynamic: \[add_one #0\]\ns0: x\.shape\[0\], .*, 3 in this call\n", shown)
    assert "Recompiling" not in shown


# ---------------------------------------------------------------- tlparse / TORCH_TRACE


def broken_and_compiled_again(x, k):
    x = torch.sin(x) * len(k)
    dovetail.graph_break()
    return x + 1


def test_a_trace_and_its_report(tmp_path, monkeypatch) -> None:
    """What the document lists: which code, which breaks, how many compilations, errors, products; no weights."""
    monkeypatch.setenv("DOVETAIL_TRACE", str(tmp_path / "trace"))
    compiled = dovetail.compile(broken_and_compiled_again)
    for k in ("a", "bc"):
        compiled(torch.full((3,), 7.03125), k)
    said = CliRunner().invoke(main, ["report", str(tmp_path / "trace"), "-o", str(tmp_path / "report.html")])
    assert said.exit_code == 0, said.output
    page = (tmp_path / "report.html").read_text()
    assert "broken_and_compiled_again" in page and "explicit-break" in page and "dovetail.graph_break()" in page
    assert "aten.sin" in page and "def run(block, " in page and "len(k)" in page
    assert "7.03125" not in page


def test_a_report_counts_compilations_and_names_errors(tmp_path, monkeypatch) -> None:
    """What was compiled often, what failed; and no weights of a model, whatever happens to it."""

    def broken_backend(gm, example_inputs):
        raise RuntimeError("the compiler crashes")

    monkeypatch.setenv("DOVETAIL_TRACE", str(tmp_path / "trace"))
    model = torch.nn.Linear(3, 3)
    torch.nn.init.constant_(model.weight, 7.03125)
    often = dovetail.compile(lambda x, k: model(x) * len(k))
    for k in ("a", "bc", "def"):
        often(torch.ones(3), k).sum().backward()
    with dovetail.config.patch(suppress_errors=True, repro_level=0), pytest.warns(UserWarning, match="crashes"):
        dovetail.compile(add_one, backend=broken_backend)(torch.ones(3))
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    opened: list[str] = []
    said = CliRunner().invoke(main, ["report", str(tmp_path / "trace"), "-o", str(tmp_path / "report.html"), "--open"])
    assert said.exit_code == 0 and opened == [(tmp_path / "report.html").as_uri()], said.output
    page = (tmp_path / "report.html").read_text()
    assert "the compiler crashes" in page and "3 compilations" in page and "7.03125" not in page


def test_set_logs_takes_the_documents_arguments(capsys) -> None:
    dovetail.set_logs(graph_breaks=True)

    @dovetail.compile(backend="eager")
    def fn(x):
        dovetail.graph_break()
        return x + 1

    fn(torch.ones(3))
    assert "[explicit-break]" in capsys.readouterr().err


# ---------------------------------------------------------------- Where to apply torch.compile?


def test_inference() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    opt_model = dovetail.compile(model)
    for _ in range(3):
        inp = torch.randn(2, 4)
        torch.testing.assert_close(opt_model(inp), model(inp))


def test_training() -> None:
    def trained(decorate):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        opt = torch.optim.Adam(model.parameters())

        @decorate
        def train(mod, data):
            opt.zero_grad(True)
            pred = mod(data[0])
            loss = torch.nn.CrossEntropyLoss()(pred, data[1])
            loss.backward()
            opt.step()

        for _ in range(4):
            train(model, (torch.randn(5, 4), torch.randint(3, (5,))))
        return model.state_dict()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(trained(dovetail.compile), trained(lambda f: f))


@pytest.fixture
def process_group():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="a PyTorch without torch.distributed")
@pytest.mark.parametrize("outside", [False, True], ids=["the inner module", "the wrapper"])
def test_distributed_data_parallel(outside: bool, process_group) -> None:
    from torch.nn.parallel import DistributedDataParallel

    def trained(decorate):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        model_ddp = decorate(DistributedDataParallel(model)) if outside else DistributedDataParallel(decorate(model))
        opt = torch.optim.SGD(model_ddp.parameters(), 0.1)
        for _ in range(3):
            opt.zero_grad()
            model_ddp(torch.randn(3, 4)).pow(2).sum().backward()
            opt.step()
        return [p.detach() for p in model.parameters()]

    torch.testing.assert_close(trained(dovetail.compile), trained(lambda model: model))


# ---------------------------------------------------------------- disable / suppress_errors


def test_disable() -> None:
    def bad1_inner(x):
        return torch.sin(x)

    @dovetail.disable
    def bad1_outer(x):
        return bad1_inner(x) + 1

    def bad2_inner(x):
        return torch.cos(x)

    @dovetail.disable(recursive=False)
    def bad2_outer(x):
        return bad2_inner(x) + 1

    def fn(x):
        x = bad1_outer(x * 2)
        x = x * 3
        return bad2_outer(x) * 4

    graphs = Graphs()
    compiled = dovetail.compile(fn, backend=graphs)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), fn(x))
    assert graphs.operators == [["mul"], ["mul"], ["cos"], ["mul"]]


def test_suppress_errors() -> None:
    def broken_backend(gm, example_inputs):
        raise RuntimeError("the compiler crashes")

    with dovetail.config.patch(suppress_errors=True), pytest.warns(UserWarning, match="the compiler crashes"):
        fn = dovetail.compile(add_one, backend=broken_backend)
        torch.testing.assert_close(fn(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(dovetail.BackendError, match="the compiler crashes"):
        dovetail.compile(add_one, backend=broken_backend)(torch.ones(3))


def test_a_compiler_that_crashed_is_asked_again_later() -> None:
    asked = []

    def backend(gm, example_inputs):
        asked.append(gm)
        if len(asked) == 1:
            raise RuntimeError("the compiler crashes")
        return gm.forward

    with dovetail.config.patch(suppress_errors=True), pytest.warns(UserWarning, match="the compiler crashes"):
        fn = dovetail.compile(add_one, backend=backend)
        for _ in range(4):
            torch.testing.assert_close(fn(torch.ones(3)), torch.full((3,), 2.0))
    assert len(asked) == 2


# ---------------------------------------------------------------- Data-dependent operations


def data_dependent(x):
    y = x.sum()
    if y > 0:
        return x + y.item()
    return x - y.item()


def test_data_dependent_operations(capsys) -> None:
    dovetail.set_logs(graph_breaks=True)
    fn = dovetail.compile(data_dependent, backend="eager")
    for x in (torch.ones(3, 3), -torch.ones(3, 3)):
        torch.testing.assert_close(fn(x), data_dependent(x))
    shown = capsys.readouterr().err
    branch = next(k for k, line in enumerate(shown.splitlines()) if "[data-dependent-branch]" in line)
    lines = shown.splitlines()[branch:]
    assert re.search(rf'File "{re.escape(__file__)}", line \d+, in data_dependent', lines[1])
    assert lines[2].strip() == "if y > 0:" and set(lines[3].strip()) == {"^"}
    assert "[data-dependent-value]" in shown and "return x + y.item()" in shown and "return x - y.item()" in shown


X = torch.randn(3, 3)
COND = (X.sum() > 0).item()


def test_branching_on_a_constant_instead() -> None:
    def old(y):
        if X.sum() > 0:
            return y + X
        else:
            return y - X

    def new(y):
        if COND:
            return y + X
        else:
            return y - X

    y = torch.randn(3, 3)
    torch.testing.assert_close(dovetail.compile(old)(y), old(y))
    torch.testing.assert_close(dovetail.compile(new, fullgraph=True)(y), old(y))


def test_branching_with_cond() -> None:
    def old(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    def new(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    compiled_old, compiled_new = dovetail.compile(old), dovetail.compile(new, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(compiled_old(x), old(x))
        torch.testing.assert_close(compiled_new(x), old(x))


def test_loops_with_tensors(capsys) -> None:
    def fn(x):
        while x.sum() < 10:
            x = x * 2
        return x

    dovetail.set_logs(graph_breaks=True)
    torch.testing.assert_close(dovetail.compile(fn, backend="eager")(torch.ones(3)), torch.full((3,), 4.0))
    assert "[data-dependent-branch]" in capsys.readouterr().err


def test_capture_scalar_outputs() -> None:
    with dovetail.config.patch(capture_scalar_outputs=True):
        fn = dovetail.compile(lambda x: x + x.sum().item(), fullgraph=True)
        for x in (torch.ones(3), -torch.ones(3)):
            torch.testing.assert_close(fn(x), x + x.sum())


def test_addresses_end_the_graph() -> None:
    explanation = dovetail.explain(lambda x: x.sin() + (x.data_ptr() > 0))(torch.ones(3))
    assert explanation.graph_break_count == 1


# ---------------------------------------------------------------- Custom ops


@torch.library.custom_op("documents::through_numpy", mutates_args=())
def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


@through_numpy.register_fake
def _(x):
    return torch.empty_like(x)


def test_problematic_code_in_a_custom_op() -> None:
    fn = dovetail.compile(lambda x: through_numpy(x + 1).sin(), fullgraph=True)
    torch.testing.assert_close(fn(X), ((X + 1) * 2).sin())


def test_the_inspect_module() -> None:
    fn = dovetail.compile(lambda x: x + len(inspect.signature(add_one).parameters), fullgraph=True)
    torch.testing.assert_close(fn(X), X + 1)


# ---------------------------------------------------------------- Printing


def test_printing(capsys) -> None:
    with dovetail.config.patch(reorderable_logging_functions=frozenset({print})):

        @dovetail.compile(fullgraph=True)
        def fn(x):
            x += 1
            print("log!")
            return torch.sin(x)

        x = torch.ones(3, 3)
        torch.testing.assert_close(fn(x), torch.sin(torch.full((3, 3), 2.0)))
        assert torch.equal(x, torch.full((3, 3), 2.0))
    assert capsys.readouterr().out == "log!\n"


def test_logging_and_warnings_are_no_graph_breaks(capsys) -> None:
    def fn(x):
        x += 1
        logging.getLogger("documents").warning("logged %s", 1)
        logging.warning("by the module")
        warnings.warn("warned", stacklevel=1)
        print("shown", x[0, 0])
        x += 1
        return torch.sin(x)

    logging.root.handlers, kept = [logging.StreamHandler(sys.stdout)], logging.root.handlers
    try:
        with pytest.warns(UserWarning, match="warned") as caught:
            dovetail.compile(fn, fullgraph=True)(torch.ones(3, 3))
    finally:
        logging.root.handlers = kept
    assert capsys.readouterr().out == "logged 1\nby the module\nshown tensor(2.)\n"
    assert caught[0].filename == __file__


def test_disabling_a_function_that_logs(capsys) -> None:
    @dovetail.disable
    def tell(x):
        print("log!", x.shape)

    graphs = Graphs()
    dovetail.compile(lambda x: (tell(x + 1), x * 2)[1], backend=graphs)(X)
    assert graphs.operators == [["add"], ["mul"]] and capsys.readouterr().out == "log! torch.Size([3, 3])\n"


def test_adding_a_function_that_is_called_at_the_end() -> None:
    said = []

    def tell(text):
        said.append(text)

    @dovetail.compile(fullgraph=True, backend="eager")
    def fn(x):
        x = x + 1
        tell("log!")
        return torch.sin(x)

    with dovetail.config.patch(reorderable_logging_functions=set()):
        dovetail.config.reorderable_logging_functions.add(tell)
        torch.testing.assert_close(fn(X), torch.sin(X + 1))
    assert said == ["log!"]


def test_printing_where_nothing_may_be_reordered(capsys) -> None:
    with dovetail.config.patch(reorderable_logging_functions=frozenset()):
        explanation = dovetail.explain(lambda x: (print("log!"), torch.sin(x + 1))[1])(torch.ones(3, 3))
    assert explanation.graph_break_count == 1 and capsys.readouterr().out == "log!\n"


# ---------------------------------------------------------------- Incorrect code


def test_incorrect_code() -> None:
    def fn(x):
        y = torch.sin(x, x)
        return y

    with pytest.raises(TypeError, match="1 positional argument but 2 were given") as eager:
        fn(torch.ones(3, 3))
    with pytest.raises(TypeError, match="1 positional argument but 2 were given") as compiled:
        dovetail.compile(fn)(torch.ones(3, 3))
    assert str(compiled.value) == str(eager.value)


# ---------------------------------------------------------------- Dealing with recompilations


def test_the_recompile_limit() -> None:
    fn = dovetail.compile(add_one, dynamic=False, backend="eager")
    with pytest.warns(UserWarning) as caught:
        for i in range(1, 10):
            torch.testing.assert_close(fn(torch.ones(i)), torch.ones(i) + 1)
    (warning,) = [str(w.message) for w in caught]
    assert "recompile_limit (8)" in warning and "add_one" in warning and f"{__file__}:" in warning
    assert "size mismatch at index 0. expected 8, actual 9" in warning


@pytest.mark.parametrize("limit, compilations", [(2, 2), (8, 8), (16, 9)])
def test_another_recompile_limit(limit: int, compilations: int) -> None:
    graphs = Graphs()
    fn = dovetail.compile(add_one, dynamic=False, backend=graphs)
    with dovetail.config.patch(recompile_limit=limit), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(1, 10):
            torch.testing.assert_close(fn(torch.ones(i)), torch.ones(i) + 1)
    assert len(graphs.seen) == compilations


def test_constants_that_change(capsys) -> None:
    """The document's PyTorch compiles nine times; numbers that change become inputs, as sizes do."""
    dovetail.set_logs(recompiles=True)
    for sizes, reason in (([4] * 9, "c == 1.5 (actual 2.5)"), (range(1, 10), "size mismatch at index 0")):
        graphs = Graphs()
        fn = dovetail.compile(lambda x, c: x + c, backend=graphs)
        for i, size in enumerate(sizes, 1):
            torch.testing.assert_close(fn(torch.ones(size), 0.5 + i), torch.ones(size) + 0.5 + i)
        assert len(graphs.seen) <= 2
        assert reason in capsys.readouterr().err


def test_constants_wrapped_in_tensors() -> None:
    graphs = Graphs()
    fn = dovetail.compile(lambda x, c: x + c, backend=graphs)
    for i in range(1, 10):
        torch.testing.assert_close(fn(torch.ones(4), torch.tensor(0.5 + i)), torch.ones(4) + 0.5 + i)
    assert len(graphs.seen) == 1


@pytest.mark.parametrize("wrap", [float, torch.tensor])
def test_learning_rate_schedules(wrap) -> None:
    def trained(decorate):
        torch.manual_seed(0)
        mod = torch.nn.Linear(3, 3)
        opt = torch.optim.Adam(mod.parameters(), lr=wrap(0.01))
        sched = torch.optim.lr_scheduler.ExponentialLR(opt, wrap(0.9))

        @decorate
        def fn(inp):
            opt.zero_grad(True)
            out = mod(inp).sum()
            out.backward()
            opt.step()
            sched.step()

        for _ in range(1, 10):
            fn(torch.ones(3, 3))
        return mod.state_dict(), float(opt.param_groups[0]["lr"])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(trained(dovetail.compile), trained(lambda f: f))


# ---------------------------------------------------------------- Ablation


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition", "dovetail"])
@pytest.mark.parametrize("dynamic", [True, False, None])
def test_ablation(backend: str, dynamic: bool | None) -> None:
    x = torch.randn(3, 4)
    fn = dovetail.compile(lambda x: torch.softmax(torch.sin(x), -1), backend=backend, dynamic=dynamic)
    torch.testing.assert_close(fn(x), torch.softmax(torch.sin(x), -1))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_modes(mode: str) -> None:
    torch.testing.assert_close(dovetail.compile(add_one, mode=mode)(X), X + 1)


# ---------------------------------------------------------------- Debugging deeper


def g(x, y):
    return x + y


def f(x):
    x = torch.sin(x)
    x = g(x, x)
    return x


def test_logging_what_is_traced(capsys) -> None:
    dovetail.set_logs(trace_bytecode=True, trace_source=True, graph_code=True)
    dovetail.compile(f, backend="eager")(torch.ones(3, 3))
    head = re.compile(r"^[\d:.]+ test_troubleshooting.py:\d+ \w+: ")
    lines = [head.sub("", line) for line in capsys.readouterr().err.splitlines()]
    traced = [line for line in lines if line.startswith("TRACE")]
    assert re.fullmatch(rf"TRACE starts_line {re.escape(__file__)}:\d+ in f", traced[0])
    assert any(line.startswith("TRACE LOAD_GLOBAL torch [") for line in traced)
    inlined = next(k for k, line in enumerate(traced) if line.endswith("in g (inline depth: 1)"))
    called = r"TRACE CALL 2 \[(NULL, FunctionValue\(g\)|FunctionValue\(g\), NULL), TensorValue"
    assert re.match(called, traced[inlined - 1])
    assert sum(line.startswith("TRACE RETURN_VALUE") for line in traced) == 2
    assert lines[lines.index(traced[0]) + 1].strip() == "def f(x):"
    text = "\n".join(lines)
    place = rf"# File: {re.escape(__file__)}:\d+ in f, code: x = torch.sin\(x\)\n"
    assert re.search(place + r'\s+sin: "f32\[3, 3\]\[3, 1\]cpu" =', text)
    assert re.search(rf"# File: {re.escape(__file__)}:\d+ in g, code: return x \+ y\n", text)


def test_the_bytecode_log(capsys) -> None:
    dovetail.set_logs(bytecode=True)
    dovetail.compile(f, backend="eager")(torch.ones(3, 3))
    shown = capsys.readouterr().err
    assert "ORIGINAL BYTECODE f" in shown and "LOAD_GLOBAL" in shown
    assert "def residual(x):" in shown and "graph(x)" in shown


def test_a_breakpoint_while_compiling(capsys, monkeypatch) -> None:
    """The commands that the document types at the prompt."""
    stopped = []

    def prompt() -> None:
        import sys

        ctx = sys._getframe(1).f_locals["ctx"]
        stopped.append(ctx)
        ctx.print_bt()
        ctx.print_locals()
        ctx.print_graph()
        ctx.disas()

    monkeypatch.setattr("builtins.breakpoint", prompt)

    @dovetail.compile(backend="eager")
    def stops(x):
        y = x + 1
        comptime.breakpoint()
        y = y + 1
        return y

    torch.testing.assert_close(stops(torch.ones(3, 3)), torch.full((3, 3), 3.0))
    stops(torch.ones(3, 3))
    assert len(stopped) == 1
    shown = capsys.readouterr().out
    assert re.search(rf'File "{re.escape(__file__)}", line \d+, in stops\n    comptime.breakpoint\(\)', shown)
    assert re.search(r"^x = .*size=\(3, 3\)", shown, re.M) and re.search(r"^y = .*size=\(3, 3\)", shown, re.M)
    assert re.search(r'code: y = x \+ 1\n\s+add: "f32\[3, 3\]\[3, 1\]cpu" = x \+ 1', shown)
    assert "-->" in shown and "LOAD_FAST" in shown


def test_the_commands_of_the_debugger(monkeypatch) -> None:
    """bt, u, d, n, s and r, as in any program."""
    commands = "ctx.print_bt()\nbt\nu\nd\nn\ns\nr\nc\n"
    typed, shown = io.StringIO(commands), io.StringIO()

    def prompt() -> None:
        pdb.Pdb(stdin=typed, stdout=shown, nosigint=True, readrc=False).set_trace(sys._getframe(1))

    @dovetail.compile(backend="eager")
    def stops(x):
        y = x + 1
        comptime.breakpoint()
        return y + 1

    monkeypatch.setattr("builtins.breakpoint", prompt)
    torch.testing.assert_close(stops(X), X + 2)
    assert "(Pdb) " in shown.getvalue() and "-> builtins.breakpoint()" in shown.getvalue()
    assert "marked_callables.py" in shown.getvalue() and typed.read() == ""


def test_debug_function() -> None:
    def wanted(x):
        return torch.sin(x) * 2

    def unwanted(x):
        return wanted(x) + 1

    graphs = Graphs()
    with dovetail.config.patch(debug_function="wanted"):
        compiled = dovetail.compile(unwanted, backend=graphs)
        torch.testing.assert_close(compiled(X), unwanted(X))
    assert graphs.operators == [["sin", "mul"]]
