"""Settings of the whole process that compiled code changes: results, what it leaves, what the next call sees."""

from __future__ import annotations

import warnings

import pytest
import torch

import dovetail
from dovetail.errors import GraphBreakError

HOOKS = torch._C._autograd
allowed = HOOKS._saved_tensors_hooks_get_disabled_error_message


def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    made = torch.ones(2), torch.rand(2), torch.full((2,), 1.5), x.long() / 2, torch.tensor(1.5), torch.arange(2.0) + 1
    torch.set_default_dtype(torch.float32)
    return made, torch.ones(1) + x, torch.rand(2)


def default_dtype_left(x):
    y = torch.rand(2)
    torch.set_default_dtype(torch.float64)
    return x + y, torch.rand(2), torch.get_default_dtype()


def error_in_the_middle(x):
    torch.set_default_dtype(torch.float64)
    return torch.ones(2)[x.long() + 5]


def no_dtype(x):
    torch.set_default_dtype(torch.int32)
    return x + 1


def as_it_is(x):
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.deterministic = False
    return x @ x


def deterministic_meanwhile(x):
    torch.use_deterministic_algorithms(True)
    y = (x + 1) * 2, torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    return y


def deterministic_left(x):
    y = x + 1
    torch.use_deterministic_algorithms(True, warn_only=True)
    return y, torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def flags_of_modules(x):
    torch.backends.cudnn.deterministic = True
    return x + 1, torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark


def precision(x):
    torch.set_float32_matmul_precision("high")
    return x @ x, torch.get_float32_matmul_precision()


def no_such_precision(x):
    torch.set_float32_matmul_precision("nonsense")
    return x @ x, torch.get_float32_matmul_precision()


def hooks_disabled(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        return x * x, allowed()


def hooks_left_disabled(x):
    HOOKS._saved_tensors_hooks_disable("not here")
    return x * x, allowed()


def hooks_disabled_over_a_break(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        y = x.sum().item(), x * x
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return y


def hooks_disabled_for_a_checkpoint(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        return torch.utils.checkpoint.checkpoint(torch.sin, x.requires_grad_(), use_reentrant=False)


WHOLE = [
    default_dtype, default_dtype_left, no_dtype, as_it_is, deterministic_meanwhile, deterministic_left, precision,
    flags_of_modules, no_such_precision, hooks_disabled, hooks_left_disabled, error_in_the_middle,
]  # fmt: skip
BREAKING = [hooks_disabled_over_a_break, hooks_disabled_for_a_checkpoint]


def settings():
    cudnn = torch.backends.cudnn
    deterministic = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    own = cudnn.deterministic, cudnn.benchmark, "deterministic" in vars(cudnn)
    return torch.get_default_dtype(), *deterministic, torch.get_float32_matmul_precision(), *own, allowed()


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    # PyTorch's own tests, which other tests here import, forbid to set flags for good.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    _reset()
    yield
    _reset()


def _reset():
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.deterministic = False
    HOOKS._saved_tensors_hooks_enable()
    torch.manual_seed(0)


def outcome(function):
    """Of calls that find what earlier ones have left, and of one that finds all as it was."""
    found = []
    for call in range(4):
        if call in (0, 3):
            _reset()
        try:
            found.append(repr(function(torch.ones(2))))
        except Exception as error:
            found.append((type(error), str(error)))
        found.append(settings())
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("function", [*WHOLE, *BREAKING], ids=lambda v: getattr(v, "__name__", None))
def test_as_in_eager(function, fullgraph, backend):
    if fullgraph and function not in WHOLE:
        pytest.skip("no single graph")
    compiled = dovetail.compile(function, backend=backend, fullgraph=fullgraph)
    assert outcome(compiled) == outcome(function)


def test_operators_for_another_setting_are_another_graph():
    found = dovetail.explain(deterministic_meanwhile, backend="eager")(torch.ones(2))
    assert "setting-changed" in found.break_reasons[0].reason and found.op_count == 1


def test_a_module_that_stores_its_attributes_itself_is_left_to_python():
    def function(x):
        warnings.sys.modules["tests.capture.test_settings"].Strict.value = 1
        return x

    class Kind(type(warnings)):
        def __setattr__(self, name, value):
            super().__setattr__(name, value * 2)

    globals()["Strict"] = Kind("strict")
    with pytest.raises(GraphBreakError, match="attribute-store"):
        dovetail.compile(function, backend="eager", fullgraph=True)(torch.ones(2))
    dovetail.compile(function, backend="eager")(torch.ones(2))
    assert globals().pop("Strict").value == 2
