"""`dovetail.install`: PyTorch's names mean Dovetail, with PyTorch's arguments, and mean PyTorch's again afterwards."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dovetail
from tests.forks import WITH_PYTORCHS_COMPILER, python

X = torch.arange(6.0).reshape(2, 3)
COMPILE, NAMES = torch.compile, dict(vars(torch.compiler))
ROOT = Path(dovetail.__file__).parents[1]


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    dovetail.reset()
    yield
    dovetail.uninstall()
    dovetail.set_stance("default")
    dovetail.set_default_backend("dovetail")


@pytest.fixture
def installed() -> Iterator[None]:
    with dovetail.install():
        yield


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.WARNING, "dovetail"):
        yield lambda: caplog.messages


def by(fn: Any) -> Any:
    """The backend of what Dovetail compiled."""
    return fn._dovetail_dispatcher.compiler.options().backend


def scaled(x, k=2.0):
    return x * k


# ---------------------------------------------------------------- what the names mean


def test_a_call_a_decorator_and_a_module() -> None:
    dovetail.install()
    model = torch.nn.Linear(3, 2)

    @torch.compile
    def one(x):
        return x + 1

    @torch.compile(dynamic=True)
    def other(x):
        return x + 2

    assert torch.equal(one(X), X + 1) and torch.equal(other(X), X + 2)
    made = torch.compile(model)
    torch.testing.assert_close(made(X), model(X))
    assert isinstance(made, torch.nn.Linear) and made.state_dict().keys() == model.state_dict().keys()
    for fn in (one, other, made, torch.compile(scaled), torch.compiler.compile(scaled)):
        assert by(fn) == "dovetail"
    assert torch.compile(scaled, disable=True) is scaled


def test_afterwards_all_is_as_before() -> None:
    dovetail.install()
    assert torch.compile is not COMPILE
    dovetail.uninstall()
    dovetail.uninstall()
    assert torch.compile is COMPILE and vars(torch.compiler).items() >= NAMES.items()
    with pytest.raises(ZeroDivisionError), dovetail.install():
        assert torch.compile is not COMPILE
        raise ZeroDivisionError
    assert torch.compile is COMPILE


def test_a_block_inside_of_an_installation_ends_nothing() -> None:
    dovetail.install()
    with dovetail.install(), dovetail.install():
        pass
    assert torch.compile is not COMPILE


def test_signatures_and_documentation_are_those_of_pytorch(installed: None) -> None:
    assert inspect.signature(torch.compile) == inspect.signature(COMPILE)
    assert torch.compile.__doc__ == COMPILE.__doc__


def test_names_that_modules_have_imported() -> None:
    library = types.ModuleType("library")
    exec("from torch import compile\nfrom torch.compiler import disable\nkept = compile", vars(library))
    sys.modules["library"] = library
    try:
        with dovetail.install():
            assert library.compile is torch.compile and library.disable is dovetail.disable
            exec("from torch.compiler import reset", vars(library))
        assert library.compile is library.kept is COMPILE and library.reset is torch.compiler.reset
    finally:
        del sys.modules["library"]


def test_a_library_that_wraps_what_it_finds() -> None:
    def wrapping(theirs):
        return lambda *args, **kwargs: theirs(*args, **kwargs)

    try:
        torch.compile = before = wrapping(COMPILE)
        with dovetail.install():
            assert by(torch.compile(scaled)) == "dovetail"
            torch.compile = wrapping(torch.compile)
            assert by(torch.compile(scaled)) == "dovetail"
        assert torch.compile is not before and not hasattr(torch.compile(scaled), "_dovetail_dispatcher")
        with dovetail.install():
            assert by(torch.compile(scaled)) == "dovetail"
        assert not hasattr(torch.compile(scaled), "_dovetail_dispatcher")
    finally:
        torch.compile = COMPILE


def test_nothing_of_pytorchs_compiler_is_loaded() -> None:
    program = """
import sys, torch, dovetail
with dovetail.install():
    @torch.compile(mode="max-autotune", fullgraph=True)
    def f(x):
        return torch.compiler.disable(abs)(x) if not torch.compiler.is_compiling() else x.sin()
    f(torch.ones(3))
    torch.compiler.cudagraph_mark_step_begin()
    torch.compiler.reset()
    torch.compiler.list_backends()
    model = torch.nn.Linear(3, 3)
    model.compile()
    model(torch.ones(3))
heavy = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "sympy")
assert not [m for m in sys.modules if m.startswith(heavy)]
print("fine")
"""
    assert run(program) == "fine"


def run(program: str, imported: tuple[str, ...] = ("torch",), **environment: str) -> str:
    done = python("-c", program, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, imported=imported)
    assert done.returncode == 0, done.stderr[-2000:]
    return (done.stdout + done.stderr).strip()


def test_the_environment_installs_it() -> None:
    program = "import torch\nimport dovetail\nprint(hasattr(torch.compile(lambda x: x), '_dovetail_dispatcher'))"
    asked = functools.partial(run, program, imported=WITH_PYTORCHS_COMPILER)
    assert asked(DOVETAIL_INSTALL="1") == "True"
    assert asked(DOVETAIL_INSTALL="0") == asked() == "False"
    assert "DOVETAIL_INSTALL takes 1 or 0, not 'perhaps'" in asked(DOVETAIL_INSTALL="perhaps")


# ---------------------------------------------------------------- modules


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)

    def forward(self, x, *, twice=False):
        x = self.two(torch.relu(self.one(x)))
        return x * 2 if twice else x


def test_module_compile_in_place(installed: None) -> None:
    model, plain = Block(), Block()
    plain.load_state_dict(model.state_dict())
    model.compile(fullgraph=True)
    assert by(model._compiled_call_impl) == "dovetail"
    for twice in (False, True):
        found, expected = model(X, twice=twice), plain(X, twice=twice)
        torch.testing.assert_close(found, expected)
        found.sum().backward(), expected.sum().backward()
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one.grad, other.grad)
    assert len(model._compiled_call_impl._dovetail_dispatcher.entries) == 2
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(again(X), plain(X))


def test_parts_compiled_in_place(installed: None) -> None:
    model, plain = torch.nn.Sequential(Block(), Block()), torch.nn.Sequential(Block(), Block())
    plain.load_state_dict(model.state_dict())
    for part in model:
        part.compile()
    torch.testing.assert_close(model(X), plain(X))
    assert all(len(part._compiled_call_impl._dovetail_dispatcher.entries) == 1 for part in model)
    whole = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(whole(X), plain(X))
    model.compile(fullgraph=True)
    torch.testing.assert_close(model(X), plain(X))


def test_hooks_of_a_module_compiled_in_place(installed: None) -> None:
    seen = []
    model = Block()
    model.register_forward_hook(lambda module, args, result: seen.append(1) or result + 1)
    expected = model(X)
    model.compile()
    torch.testing.assert_close(model(X), expected)
    assert seen == [1, 1]


def test_compile_inside_of_compiled_code(installed: None) -> None:
    def fn(x):
        return torch.compile(scaled, mode="max-autotune", options=None)(x) + 1

    for made in (torch.compile(fn, fullgraph=True), dovetail.compile(fn, fullgraph=True)):
        torch.testing.assert_close(made(X), X * 2 + 1)


# ---------------------------------------------------------------- arguments of torch.compile


@pytest.mark.parametrize(
    "backend, meant",
    [
        ("inductor", "dovetail"), ("cudagraphs", "dovetail"), ("eager", "eager"), ("aot_eager", "aot_eager"),
        ("aot_eager_decomp_partition", "aot_eager_decomp_partition"), (None, "dovetail"), ("dovetail", "dovetail"),
    ],
)  # fmt: skip
def test_names_of_backends(backend: str | None, meant: str, installed: None, told: Any) -> None:
    for _ in range(2):
        fn = torch.compile(scaled, backend=backend)
        assert by(fn) == meant and torch.equal(fn(X), X * 2)
    assert len(told()) == (backend == "cudagraphs")


def test_a_callable_backend_gets_graphs_and_its_options(installed: None) -> None:
    seen = []

    def backend(gm, inputs, **more):
        seen.append((isinstance(gm, torch.fx.GraphModule), more))
        return gm

    assert torch.equal(torch.compile(scaled, backend=backend)(X), X * 2)
    assert torch.equal(torch.compile(scaled, backend=backend, options={"level": 3})(X), X * 2)
    assert seen == [(True, {}), (True, {"options": {"level": 3}})]


def test_backends_that_others_have_registered() -> None:
    program = """
import torch, dovetail
from torch._dynamo import register_backend
seen = []
@register_backend
def mine(gm, inputs, **more):
    seen.append(more)
    return gm
with dovetail.install():
    f = torch.compile(lambda x: x + 1, backend="mine", options={"level": 3})
    assert torch.equal(f(torch.ones(3)), torch.full((3,), 2.0)) and hasattr(f, "_dovetail_dispatcher")
    try:
        torch.compile(lambda x: x, backend="none such")
    except dovetail.InvalidArgument as error:
        assert "'inductor'" in str(error)
    else:
        raise AssertionError("accepted")
assert seen == [{"options": {"level": 3}}], seen
print("fine")
"""
    assert run(program) == "fine"


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes(mode: str | None, installed: None, told: Any) -> None:
    assert torch.equal(torch.compile(scaled, mode=mode)(X), X * 2) and not told()


def test_settings_of_inductor_are_told_of_once(installed: None, told: Any) -> None:
    options = {"max_autotune": True, "epilogue_fusion": True, "triton.cudagraphs": False, "fallback_random": True}
    for _ in range(2):
        fn = torch.compile(scaled, options=options)
        assert torch.equal(fn(X), X * 2)
    assert len(told()) == 2 and all(name in " ".join(told()) for name in ("'max_autotune'", "'epilogue_fusion'"))
    chosen = fn._dovetail_dispatcher.compiler.options()
    assert chosen.cudagraphs is False and chosen.fallback_random is True
    assert options["max_autotune"] is True, "the program's dictionary is left alone"


def test_what_pytorch_refuses_is_refused(installed: None) -> None:
    with pytest.raises(dovetail.InvalidArgument, match="either mode or options"):
        torch.compile(scaled, mode="default", options={"max_autotune": True})
    with pytest.raises(dovetail.InvalidArgument, match="unknown mode 'fast'"):
        torch.compile(scaled, mode="fast")
    with pytest.raises(dovetail.InvalidArgument, match="options must be a dictionary"):
        torch.compile(scaled, options=["max_autotune"])
    with pytest.raises(TypeError, match="'full_graph'"):
        torch.compile(scaled, full_graph=True)


def test_one_graph_or_an_error(installed: None) -> None:
    @torch.compile(fullgraph=True)
    def broken(x):
        torch._dynamo.graph_break() if torch.compiler.is_compiling() else None
        return x

    with pytest.raises(dovetail.GraphBreakError):
        broken(X)


# ---------------------------------------------------------------- torch.compiler


def test_every_name_of_torch_compiler_is_known() -> None:
    from dovetail.interop.torch_names import INSTEAD

    as_they_are = {
        "compile", "config", "is_compiling", "is_dynamo_compiling", "is_exporting", "load_compiled_function",
        "precompile", "PrecompileError",
        *(name for name in torch.compiler.__all__ if name.endswith("_unsafe")),
    }  # fmt: skip
    assert set(torch.compiler.__all__) - as_they_are <= INSTEAD.keys()
    assert INSTEAD.keys() & as_they_are == set()


def test_stances(installed: None) -> None:
    fn = torch.compile(scaled)
    entries = fn._dovetail_dispatcher.__class__.entries
    with torch.compiler.set_stance("force_eager"):
        fn(X)
        assert len(entries.__get__(fn._dovetail_dispatcher)) == 0
    with torch.compiler.set_stance(force_backend="inductor"):
        fn(X)
    assert len(entries.__get__(fn._dovetail_dispatcher)) == 1

    @torch.compiler.set_stance("fail_on_recompile")
    def failing():
        fn(X.double())

    with pytest.raises(RuntimeError, match="recompiled"):
        failing()
    fn(X.double())
    torch.compiler.reset()
    assert len(entries.__get__(fn._dovetail_dispatcher)) == 0


def test_marks(installed: None) -> None:
    @torch.compiler.disable(reason="slow")
    def off(x):
        assert not torch.compiler.is_compiling()
        return x + 1

    @torch.compiler.assume_constant_result
    def constant():
        return 3 if not torch.compiler.is_compiling() else 4

    @torch.compiler.nested_compile_region
    def region(x):
        return x * 2

    def opaque(x):
        return x - 1

    torch.compiler.allow_in_graph(opaque)
    graphs = []

    def backend(gm, inputs):
        graphs.append([node.target for node in gm.graph.nodes if node.op == "call_function"])
        return gm

    @torch.compile(backend=backend)
    def fn(x):
        torch.compiler.cudagraph_mark_step_begin()
        y = opaque(region(x)) * constant()
        return off(y) * (2 if torch.compiler.is_dynamo_compiling() else 5)

    torch.testing.assert_close(fn(X), ((X * 2 - 1) * 3 + 1) * 2)
    assert opaque in graphs[0] and len(graphs) == 2


def test_default_backends_and_lists(installed: None) -> None:
    assert {"inductor", "eager", "aot_eager", "dovetail"} <= set(torch.compiler.list_backends())
    if hasattr(torch.compiler, "set_default_backend"):
        torch.compiler.set_default_backend("eager")
        assert torch.compiler.get_default_backend() == "eager" and by(torch.compile(scaled)) == "eager"
        torch.compiler.set_default_backend(None)
        assert by(torch.compile(scaled)) == "dovetail"


def test_caches_of_other_compilers(installed: None, told: Any) -> None:
    assert torch.compiler.load_cache_artifacts(b"something else") is None
    assert len(told()) == 1 and "cache" in told()[0]


def test_guard_collectives(installed: None, told: Any) -> None:
    setter = getattr(torch.compiler, "set_enable_guard_collectives", None)
    if setter is not None:
        assert [setter(True), setter(True), setter(False), setter(False)] == [False, True, True, False]
        assert len(told()) == 1


# ---------------------------------------------------------------- settings of PyTorch's compiler


def test_a_setting_that_is_not_read(installed: None, told: Any) -> None:
    with torch._dynamo.config.patch(compiled_autograd=True):  # type: ignore[attr-defined]
        for _ in range(2):
            assert torch.compile(scaled)(torch.ones(2)).shape == (2,)
    assert len(told()) == 1 and "compiled_autograd" in told()[0]


def test_settings_that_a_program_has_changed() -> None:
    program = """
import torch, dovetail
import torch._dynamo, torch._inductor.config
settings = torch._dynamo.config, torch._inductor.config

def options(**more):
    return torch.compile(lambda x: x + 1, **more)._dovetail_dispatcher.compiler.options()

def changed(config, **values):
    with config.patch(**values):
        return options()

dynamo, inductor = settings
with dovetail.install():
    plain = options()
    assert (plain.recompile_limit, plain.dynamic, plain.capture_scalar_outputs) == (8, None, False)
    assert changed(dynamo, recompile_limit=3).recompile_limit == 3
    assert changed(dynamo, cache_size_limit=4).recompile_limit == 4
    assert changed(dynamo, capture_scalar_outputs=True).capture_scalar_outputs is True
    assert changed(dynamo, automatic_dynamic_shapes=False).dynamic is False
    assert changed(dynamo, assume_static_by_default=False).dynamic is True
    assert changed(dynamo, trace_numpy=False).trace_numpy is False
    assert changed(inductor, fallback_random=True).fallback_random is True
    with dynamo.patch(recompile_limit=3, automatic_dynamic_shapes=False):
        given = options(recompile_limit=5, dynamic=True)
        assert (given.recompile_limit, given.dynamic) == (5, True)
        made = dovetail.compile(lambda x: x + 1)._dovetail_dispatcher.compiler
        assert made.options().recompile_limit == 3
        dovetail.uninstall()
        assert made.options().recompile_limit == 8
        dovetail.install()
    with dynamo.patch(disable=True):
        f = lambda x: x
        assert torch.compile(f) is f and torch.compile(f, disable=False) is f
dovetail.uninstall()
print("fine")
"""
    assert run(program) == "fine"


@pytest.mark.parametrize("name", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_the_environment_turns_compiling_off(name: str, installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert torch.compile(scaled) is scaled and torch.compile()(scaled) is scaled
    monkeypatch.setenv(name, "0")
    assert by(torch.compile(scaled)) == "dovetail"
