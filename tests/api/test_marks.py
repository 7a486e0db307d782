"""What user code may ask of capture: our marks, and PyTorch's, which libraries carry."""

from __future__ import annotations

import binascii
import functools
import operator
import threading
from typing import Any

import pytest
import torch

import dovetail

X = torch.arange(6.0).reshape(2, 3)


def named(value: Any) -> str:
    return f"{value.__module__}.{value.__name__}" if callable(value) else str(value)


class Graphs:
    """A backend that keeps the operators of each graph."""

    def __init__(self) -> None:
        self.ops: list[list[Any]] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.ops.append([n.target for n in gm.graph.nodes if n.op.startswith("call")])
        return gm

    @property
    def counts(self) -> list[int]:
        """Operators in each graph that has any."""
        return [len(ops) for ops in self.ops if ops]


def check(fn: Any, *args: Any) -> list[int]:
    """Compiled twice-called `fn` gives what eager gives; operators in each graph."""
    graphs = Graphs()
    compiled = dovetail.compile(fn, backend=graphs)
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), fn(*args))
    return graphs.counts


def inner(x):
    return torch.sin(x) + 1


# ---------------------------------------------------------------- disable


def around(off):
    return lambda x: off(x * 2) - 3


@pytest.mark.parametrize("mark", [dovetail.disable, torch.compiler.disable, torch._dynamo.disable], ids=named)
def test_a_disabled_function_is_called_between_two_graphs(mark) -> None:
    assert check(around(mark(inner)), X) == [1, 1]
    assert check(around(mark(reason="why")(inner)), X) == [1, 1]


def test_the_reason_of_a_disabled_function_is_shown() -> None:
    for mark in (dovetail.disable, torch.compiler.disable):
        with pytest.raises(dovetail.GraphBreakError, match="not to be compiled: it is slow"):
            dovetail.compile(around(mark(inner, reason="it is slow")), fullgraph=True)(X)


def test_a_disabled_method() -> None:
    class Holder:
        k = 3.0

        @dovetail.disable
        def scaled(self, x):
            return x * self.k

        @classmethod
        @dovetail.disable
        def of_class(cls, x):
            return x * cls.k

    holder = Holder()
    assert check(lambda x: holder.scaled(x + 1) + holder.of_class(x) + 1, X) == [1, 2]


def test_a_disabled_class() -> None:
    @dovetail.disable
    class Adder:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x + self.k

    adder = Adder(2.0)
    assert check(lambda x: adder(x * 2) * 3, X) == [1, 1]
    assert check(lambda x: Adder(x.shape[0])(x * 2) * 3, X) == [1, 1]


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_a_disabled_submodule() -> None:
    model = Two().requires_grad_(False)
    keys = list(model.state_dict())
    model.first = dovetail.disable(model.first)
    assert isinstance(model.first, torch.nn.Linear) and list(model.state_dict()) == keys
    graphs = Graphs()
    compiled = dovetail.compile(model, backend=graphs)
    torch.testing.assert_close(compiled(X), model(X))
    assert graphs.counts == [2]  # relu and the second layer


def test_a_model_whose_forward_is_disabled(recwarn) -> None:
    class Off(Two):
        forward = dovetail.disable(Two.forward)

    model = Off().requires_grad_(False)
    graphs = Graphs()
    torch.testing.assert_close(dovetail.compile(model, backend=graphs)(X), model(X))
    assert graphs.ops == [] and not recwarn.list


def test_disable_as_a_context_manager() -> None:
    graphs = Graphs()
    compiled = dovetail.compile(inner, backend=graphs)
    with dovetail.disable():
        torch.testing.assert_close(compiled(X), inner(X))
    assert graphs.ops == []
    compiled(X)
    with dovetail.disable():
        torch.testing.assert_close(compiled(X), inner(X))
    assert graphs.counts == [2]


def test_disable_wants_a_callable() -> None:
    with pytest.raises(dovetail.InvalidArgument):
        dovetail.disable(3)


# ---------------------------------------------------------------- in the graph or not


def opaque(x, k):
    if x.dim() == 2:
        return torch.cos(x) * k
    return x


@pytest.mark.parametrize("mark", [dovetail.allow_in_graph, torch.compiler.allow_in_graph], ids=named)
def test_an_allowed_function_is_one_node(mark) -> None:
    allowed = mark(functools.wraps(opaque)(lambda x, k: opaque(x, k)))
    graphs = Graphs()
    compiled = dovetail.compile(lambda x: allowed(x + 1, 2) * 2, backend=graphs, fullgraph=True)
    torch.testing.assert_close(compiled(X), opaque(X + 1, 2) * 2)
    assert graphs.ops[0][1] is allowed and graphs.counts == [3]


def test_allowed_functions_compile_to_kernels() -> None:
    (allowed,) = dovetail.allow_in_graph([lambda x: (torch.sin(x), x.shape[0])])

    def fn(x):
        y, n = allowed(x)
        return y * n

    with torch.no_grad():
        torch.testing.assert_close(dovetail.compile(fn, fullgraph=True)(X), fn(X))


def test_allow_in_graph_of_an_object() -> None:
    class Scaling:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(x.numpy() * 2) if type(x) is torch.Tensor else x * 2

    scaling = dovetail.allow_in_graph(Scaling())
    graphs: list[Any] = []
    fn = dovetail.compile(lambda x: scaling(x) + 1, backend=lambda graph, inputs: graphs.append(graph) or graph)
    assert fn(torch.ones(2)).tolist() == [3.0, 3.0]
    assert [node.target.__name__ for node in graphs[0].graph.nodes if node.op == "call_function"] == ["Scaling", "add"]


@pytest.mark.parametrize("grad", [True, False])
def test_allow_in_graph_of_a_function_that_asks_for_gradients(grad: bool) -> None:
    @dovetail.allow_in_graph
    def asking(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.requires_grad else x * 3

    x = torch.ones(2, requires_grad=True)
    with torch.set_grad_enabled(grad):
        compiled = dovetail.compile(lambda x: (asking(x), asking(x + 1)), fullgraph=True)
        assert [t.tolist() for t in compiled(x)] == [asking(x).tolist(), asking(x + 1).tolist()]
    assert x.requires_grad


def test_allow_in_graph_called_inside() -> None:
    @dovetail.compile(backend="eager")
    def f(x):
        return dovetail.allow_in_graph(torch.vmap(torch.sum))(x)

    torch.testing.assert_close(f(X), X.sum(1))


@pytest.mark.parametrize(
    ("mark", "target"),
    [(dovetail.disallow_in_graph, torch.sub), (torch._dynamo.disallow_in_graph, torch.rsub)],
    ids=named,
)
def test_disallowed_functions_break_the_graph(mark, target) -> None:
    def fn(x):
        return torch.add(target(torch.add(x, 1), 1), 1)

    assert check(fn, X) == [3]
    assert mark(target) is target
    try:
        assert check(fn, X) == [1, 1]
    finally:
        (torch._dynamo if "_dynamo" in mark.__module__ else dovetail).allow_in_graph(target)
    assert check(fn, X) == [3]


def test_disallow_in_graph_wants_functions() -> None:
    for wrong in (3, [torch.add, "sub"], torch.nn.ReLU()):
        with pytest.raises(dovetail.InvalidArgument):
            dovetail.disallow_in_graph(wrong)


@pytest.mark.parametrize("graph_break", [dovetail.graph_break, torch._dynamo.graph_break], ids=named)
def test_graph_break(graph_break) -> None:
    def fn(x):
        x = x + 1
        graph_break()
        return x * 2

    assert graph_break() is None
    assert check(fn, X) == [1, 1]
    with pytest.raises(dovetail.GraphBreakError, match="explicit-break"):
        dovetail.compile(fn, backend="eager", fullgraph=True)(X)


def test_the_message_of_a_graph_break() -> None:
    def fn(x):
        dovetail.graph_break("before the lookup")
        return x

    (reason,) = dovetail.explain(fn)(X).break_reasons
    assert "before the lookup" in reason.reason


def test_skip_frame() -> None:
    def skipped(x):
        dovetail.skip_frame()
        return torch.sin(x) + 1

    assert check(lambda x: skipped(x * 2) - 3, X) == [1, 1]
    assert check(skipped, X) == []


@pytest.mark.parametrize("mark", [dovetail.assume_constant_result, torch.compiler.assume_constant_result], ids=named)
def test_a_constant_result_is_asked_for_once(mark) -> None:
    asked = []

    @mark
    def width(scale):
        asked.append(scale)
        return 3 * scale

    def fn(x):
        y = x * width(2)
        dovetail.graph_break()
        return y + width(2)

    compiled = dovetail.compile(fn, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X * 6 + 6)
    assert asked == [2, 2]  # each of the two parts


def test_a_constant_result_of_what_is_computed() -> None:
    constant = dovetail.assume_constant_result(lambda t: t.sum().item())
    assert check(lambda x: x + constant(x * 2), X) == [1, 1]


TABLE = torch.arange(4.0)
total = dovetail.assume_constant_result(lambda t, by=None: (t if by is None else t * by).sum().item())
WITH_TENSORS = [
    lambda x: x * total(TABLE),
    lambda x: x + total(x, by=x) + total(t=TABLE),
    lambda x: x + 1 if total(TABLE) > 3 else x - 1,
]


@pytest.mark.parametrize("fn", WITH_TENSORS)
def test_a_constant_of_tensors_from_outside_is_asked_for_while_capturing(fn) -> None:
    torch.testing.assert_close(dovetail.compile(fn, backend="eager", fullgraph=True)(X), fn(X))


def test_a_constant_of_a_tensor_that_the_graph_has_changed_ends_it() -> None:
    def fn(x):
        return x.add_(1) * 2 + total(x)

    torch.testing.assert_close(dovetail.compile(fn, backend="eager")(X.clone()), fn(X.clone()))


@pytest.mark.parametrize("substitute", [dovetail.substitute_in_graph, torch.compiler.substitute_in_graph], ids=named)
def test_a_substitute_is_traced(substitute) -> None:
    """A substitution lasts as long as the process, so these are functions that no other test calls."""
    ours = substitute is dovetail.substitute_in_graph
    original = binascii.crc_hqx if ours else binascii.crc32

    with pytest.raises((dovetail.InvalidArgument, TypeError)):
        substitute(original)(lambda wrong: 0)

    @substitute(original, skip_signature_check=True)
    def instead(*args):
        return 7

    assert not ours or (instead(b"", 0) == 0 and instead.__name__ == "instead")
    compiled = dovetail.compile(lambda x: x + original(b"", 0), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), X + 7)
    with pytest.raises(ValueError):
        substitute(original, skip_signature_check=True)(lambda *args: 8)


def test_substitute_in_graph_checks_its_arguments() -> None:
    with pytest.raises(dovetail.InvalidArgument):
        dovetail.substitute_in_graph(3)
    with pytest.raises(dovetail.InvalidArgument):
        dovetail.substitute_in_graph(operator.concat)(torch.sin)


def test_nested_compile_region() -> None:
    for mark in (dovetail.nested_compile_region, torch.compiler.nested_compile_region):
        layer = mark(lambda x: torch.sin(x) + 1)
        assert check(lambda x: layer(layer(x)), X) == [4]


def test_calls_without_effect() -> None:
    def fn(x):
        dovetail.cudagraph_mark_step_begin()
        return x + 1

    dovetail.cudagraph_mark_step_begin()
    assert check(fn, X) == [1]


# ---------------------------------------------------------------- errors instead of breaks


def strict_parts(manager):
    def fn(x):
        with manager(True):
            x = x + 1
        dovetail.graph_break()
        x = x * 2
        with manager(True):
            x = x - 1
            with manager(False):
                dovetail.graph_break()
            x = x / 2
        return x

    return fn


@pytest.mark.parametrize("manager", [dovetail.error_on_graph_break, torch._dynamo.error_on_graph_break], ids=named)
def test_breaks_outside_of_the_strict_part(manager) -> None:
    fn = strict_parts(manager)
    compiled = dovetail.compile(fn, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(X), fn(X))


@pytest.mark.parametrize("manager", [dovetail.error_on_graph_break, torch._dynamo.error_on_graph_break], ids=named)
def test_a_break_in_the_strict_part_is_an_error(manager) -> None:
    def fn(x):
        x = x + 1
        dovetail.graph_break()
        with manager(True):
            x = x * 2
            dovetail.graph_break()
        return x

    compiled = dovetail.compile(fn, backend="eager")
    with pytest.raises(dovetail.GraphBreakError, match="explicit-break"):
        compiled(X)
    torch.testing.assert_close(dovetail.compile(inner_break, backend="eager")(X), inner_break(X))  # not strict any more


def inner_break(x):
    x = x + 1
    dovetail.graph_break()
    return x * 2


def test_strict_as_a_decorator() -> None:
    strict = dovetail.error_on_graph_break(True)(inner_break)
    torch.testing.assert_close(strict(X), inner_break(X))
    for fn in (dovetail.compile(strict, backend="eager"), dovetail.compile(lambda x: strict(x) + 1, backend="eager")):
        with pytest.raises(dovetail.GraphBreakError):
            fn(X)
    outside = dovetail.error_on_graph_break(True)(dovetail.compile(inner_break, backend="eager"))
    with pytest.raises(dovetail.GraphBreakError):
        outside(X)
    with pytest.raises(dovetail.InvalidArgument):
        dovetail.error_on_graph_break("yes")


# ---------------------------------------------------------------- compiled inside compiled


def test_what_torch_compile_made_is_traced_as_its_original() -> None:
    theirs = torch.compile(inner, backend="eager")
    assert check(lambda x: theirs(x) * 2, X) == [3]
    model = Two().requires_grad_(False)
    compiled_model = torch.compile(model, backend="eager")
    graphs = Graphs()
    ours = dovetail.compile(lambda x: compiled_model(x) * 2, backend=graphs)
    torch.testing.assert_close(ours(X), model(X) * 2)
    assert graphs.counts == [4]


def test_ours_inside_torch_compile() -> None:
    ours = dovetail.compile(inner, backend="eager")
    theirs = torch.compile(lambda x: ours(x) * 2, backend="eager")
    torch.testing.assert_close(theirs(X), inner(X) * 2)
    model = Two().requires_grad_(False)
    our_model = dovetail.compile(model, backend="eager")
    torch.testing.assert_close(torch.compile(lambda x: our_model(x) * 2, backend="eager")(X), model(X) * 2)


def test_a_wrapper_of_a_compiled_function_keeps_its_own_code() -> None:
    ours = dovetail.compile(inner, backend="eager")

    @functools.wraps(ours)
    def more(x):
        return ours(x) + 100

    assert check(lambda x: more(x), X) == [3]
    torch.testing.assert_close(dovetail.compile(more, backend="eager")(X), inner(X) + 100)
    assert dovetail.explain(more)(X).op_count == 3


# ---------------------------------------------------------------- threads


def test_a_stance_in_a_block_is_that_threads_only() -> None:
    graphs = Graphs()
    compiled = dovetail.compile(inner, backend=graphs)
    compiled(X)
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with dovetail.set_stance("fail_on_recompile"):
            inside.set()
            done.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(30)
    with dovetail.set_stance("force_eager"):
        done.set()
        thread.join()
        compiled(torch.ones(5))
        assert len(graphs.ops) == 1
    torch.testing.assert_close(compiled(torch.ones(4, 1)), inner(torch.ones(4, 1)))
    assert len(graphs.ops) == 2, "the default stance is back"


def test_a_stance_set_inside() -> None:
    def fn(x):
        x = x + 1
        with dovetail.set_stance("force_eager"):
            x = x * 2
        return x - 1

    compiled = dovetail.compile(fn, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(X), fn(X))


def test_run_does_not_compile_what_follows_a_break() -> None:
    graphs = Graphs()
    compiled = dovetail.compile(inner_break, backend=graphs)
    with pytest.raises(ZeroDivisionError):
        dovetail.run(lambda x: compiled(x).sum() + 1 / 0)(X)
    assert graphs.ops == []
    torch.testing.assert_close(dovetail.run(inner_break)(X), inner_break(X))
    compiled(X)
    torch.testing.assert_close(dovetail.run(compiled)(X), inner_break(X))
    assert graphs.counts == [1, 1]


def test_a_function_in_the_graph_may_give_dictionaries() -> None:
    @dovetail.allow_in_graph
    def made(x):
        return {"total": x.sum(), "parts": (x + 1, {1: x * 2}), "count": 3}

    def fn(x):
        found = made(x)
        return x * found["total"] + found["parts"][1][1] * found["count"], found

    x = torch.linspace(1, 2, 3, requires_grad=True)
    for given in (x.detach(), x):
        result, expected = dovetail.compile(fn, fullgraph=True)(given), fn(given)
        torch.testing.assert_close(result, expected)
        assert list(result[1]) == list(expected[1])
    (grad,), (wanted,) = (torch.autograd.grad(found[0].sum(), x) for found in (result, expected))
    torch.testing.assert_close(grad, wanted)
