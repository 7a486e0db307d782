"""The two older editions of the frequently asked questions: what the newest no longer has, under today's names."""

from __future__ import annotations

import logging
import os

import pytest
import torch

import dovetail

from .checking import Graphs


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def test_vmap_inside_a_compiled_function() -> None:
    def f(x):
        return torch.sin(x)

    @dovetail.compile
    def g(x):
        return torch.vmap(f)(x)

    x = torch.randn(2, 3)
    torch.testing.assert_close(g(x), torch.sin(x))


# ---------------------------------------------------------------- Limitations, which a graph break may still be


def test_a_transform_of_a_tuple() -> None:
    def fn(x):
        x1, x2 = x
        return x1 + x2

    def my_fn(x):
        return torch.func.vmap(fn)(x)

    x1, x2 = torch.randn(3, 3, 3), torch.randn(3, 3, 3)
    torch.testing.assert_close(dovetail.compile(my_fn)((x1, x2)), x1 + x2)


def test_a_transform_with_keyword_arguments() -> None:
    def fn(x, y):
        return (x * y).sum()

    def my_fn(x, y):
        return torch.func.grad(fn)(x, y=y)

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    torch.testing.assert_close(dovetail.compile(my_fn)(x, y), y)


def test_a_transform_with_side_effects() -> None:
    some_list = []

    def f(x, y):
        some_list.append(1)
        return x + y

    def my_fn(x, y):
        return torch.func.vmap(f)(x, y)

    x, y = torch.ones(2, 3), torch.randn(2, 3)
    compiled = dovetail.compile(my_fn)
    for calls in (1, 2, 3):
        torch.testing.assert_close(compiled(x, y), x + y)
        assert some_list == [1] * calls


def test_a_transform_of_a_function_that_asks_for_metadata() -> None:
    def bad_fn(x):
        x.stride()
        return x

    def my_fn(x):
        return torch.func.vmap(bad_fn)(x)

    x = torch.randn(3, 3, 3)
    torch.testing.assert_close(dovetail.compile(my_fn)(x), x)


ASKED = (
    "stride requires_grad storage_offset layout data is_coalesced is_complex is_conj is_contiguous is_cpu is_cuda "
    "is_distributed is_floating_point is_inference is_ipu is_leaf is_meta is_mkldnn is_mps is_neg is_nested is_nonzero "
    "is_ort is_pinned is_quantized is_same_size is_set_to is_shared is_signed is_sparse is_sparse_csr is_vulkan is_xla "
    "is_xpu"
).split()


@pytest.mark.parametrize("name", ASKED)
def test_a_transform_of_a_function_that_asks_for(name: str) -> None:
    """The document's list; what PyTorch refuses in eager mode too raises the same."""

    def bad_fn(x):
        found = getattr(x, name)
        if callable(found):
            found(x) if name in ("is_same_size", "is_set_to") else found()
        return x * 2

    def my_fn(x):
        return torch.func.vmap(bad_fn)(x)

    def outcome(fn):
        try:
            return fn(torch.ones(3, 3, 3)).sum().item()
        except Exception as error:
            return type(error)

    assert outcome(dovetail.compile(my_fn, backend="eager")) == outcome(my_fn)


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize("former, now", [
    ("cache_size_limit", "recompile_limit"), ("log_level", "set_logs"), ("replay_record_enabled", "repro_level"),
    ("capture_func_transforms", "always captured"), ("triton", "cudagraphs"), ("trace", "compile_debug"),
])  # fmt: skip
def test_settings_of_other_names_say_what_does_their_work(former: str, now: str) -> None:
    with pytest.raises(dovetail.InvalidArgument, match=now):
        setattr(dovetail.config, former, True)


@pytest.mark.parametrize("former", ["nopython"])
def test_arguments_of_other_names(former: str) -> None:
    with pytest.raises(TypeError, match=former):
        dovetail.compile(lambda x: x + 1, **{former: True})


def test_explain_with_arguments_says_how_it_is_called_now() -> None:
    with pytest.raises(dovetail.InvalidArgument, match=r"explain\(fn\)\(\*args\)"):
        dovetail.explain(lambda x: x + 1, torch.ones(3))


def test_verbose_keeps_the_compilers_frames() -> None:
    def broken_backend(gm, example_inputs):
        raise RuntimeError("the compiler crashes")

    def frames(verbose: bool) -> int:
        with dovetail.config.patch(verbose=verbose), pytest.raises(dovetail.BackendError) as caught:
            dovetail.compile(lambda x: x + 1, backend=broken_backend)(torch.ones(3))
        return sum("dovetail/" in str(entry.path).removeprefix(os.getcwd()) for entry in caught.traceback)

    assert frames(False) < frames(True)


LEVELS = {
    # what each level of the document prints besides those above it
    logging.DEBUG: ("trace_bytecode", "TRACE LOAD_GLOBAL"),
    logging.INFO: ("graph_code", "torch.sin"),
}


@pytest.mark.parametrize("level", LEVELS)
def test_log_levels(level: int, capsys) -> None:
    dovetail.set_logs(dynamo=level)
    try:
        dovetail.compile(lambda x: torch.sin(x), backend="eager")(torch.ones(3))
    finally:
        dovetail.set_logs()
    shown = capsys.readouterr().err
    for at, (log, text) in LEVELS.items():
        assert (f" {log}: " in shown and text in shown) == (level <= at)


def test_verbose_recompile_messages(capsys) -> None:
    fn = dovetail.compile(lambda x, k: x * len(k), backend=Graphs())
    dovetail.set_logs(recompiles=True)
    try:
        with dovetail.config.patch(verbose=True):
            fn(torch.ones(3), "ab")
            fn(torch.ones(3, 3), "abc")
    finally:
        dovetail.set_logs()
    shown = capsys.readouterr().err
    assert shown.count("- entry 0:") == 2
