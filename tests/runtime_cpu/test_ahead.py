"""Machine code that is made ahead of loading: the same functions, the same errors, whatever becomes of the thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dovetail import targets
from dovetail.errors import InternalError
from dovetail.ir.loops import Const
from dovetail.options import Options
from dovetail.runtime import cpu
from dovetail.runtime.cpu import ahead, loading, machine
from dovetail.runtime.cpu.loading import Loader
from dovetail.runtime.dispatch.reentrancy import BESIDE
from dovetail.runtime.store import Store
from tests.architecture.project import ROOT
from tests.codegen.harness import op, pointwise
from tests.runtime_cpu.test_loading import _call, _kernel


def _group(extra):
    x = torch.empty(10)
    made = pointwise(lambda a: op("add", a, Const(extra, torch.float32)), {"x": x}, torch.empty(10))
    return replace(made, name=f"add_{extra}")


def _refuse(*given):
    pytest.fail("compiled again")


def test_what_was_made_ahead_is_not_made_again(monkeypatch, tmp_path):
    loader, store, kernels = Loader(), Store(tmp_path), [_kernel(extra=e) for e in (71.5, 72.5)]
    loader.begin([], store)
    loader.begin(kernels[:1], store)
    loader.begin(kernels, store)
    monkeypatch.setattr(loading, "_compile", _refuse)
    loaded = loader.load(kernels, store)
    x = torch.randn(50)
    for kernel, extra in zip(kernels, (71.5, 72.5), strict=True):
        assert torch.equal(_call(loaded[kernel.symbol], x), x + extra)
    assert not loader.ahead
    assert Loader().load(kernels, store).keys() == loaded.keys(), "not on disk"


def test_portions(monkeypatch):
    """While LLVM is busy, the thread reads texts itself."""
    begun, x = [], torch.randn(50)
    monkeypatch.setattr(targets, "FIRST", 1)
    monkeypatch.setattr(targets, "begin", lambda kernels, more: begun.append([*kernels]) or cpu.begin(kernels, more))
    groups = [_group(extra=80.5 + k) for k in range(9)]
    with BESIDE:
        made = targets.generate_all([*groups, *groups], Options())
        cpu.begin(made.values())
    assert [len(each) for each in begun] == [1, 3]
    monkeypatch.setattr(loading, "_compile", _refuse)
    loaded = cpu.load(made.values())
    for k, group in enumerate(groups):
        assert torch.equal(_call(loaded[made[group.name].symbol], x), x + (80.5 + k))


def test_what_is_at_hand_is_not_made_ahead(tmp_path):
    loader, kernel = Loader(), _kernel(extra=73.5)
    kept = loader.load([kernel], Store(tmp_path))
    loader.begin([kernel], Store(None))
    Loader().begin([kernel], Store(tmp_path))
    assert kept and not loader.ahead


def _raising(*given):
    raise RuntimeError("LLVM says no")


NO_THREAD = {
    "it ends": lambda patch: patch.setattr(threading.Thread, "start", _raising),
    "of a size of its own": lambda patch: patch.setattr(threading, "stack_size", lambda: 1 << 16),
    "no memory": lambda patch: patch.setattr(loading, "room_to_compile", lambda characters, on_a_thread: False),
}  # fmt: skip


@pytest.mark.parametrize("why", NO_THREAD)
def test_without_a_thread(why, monkeypatch):
    loader, kernel, x = Loader(), _kernel(extra=74.5), torch.randn(50)
    with monkeypatch.context() as patch:
        NO_THREAD[why](patch)
        loader.begin([kernel], Store(None))
    assert not loader.ahead
    assert torch.equal(_call(loader.load([kernel], Store(None))[kernel.symbol], x), x + 74.5)


def test_a_thread_that_fails(monkeypatch):
    loader, kernel, x = Loader(), _kernel(extra=75.5), torch.randn(50)
    with monkeypatch.context() as patch:
        patch.setattr(machine, "emit", _raising)
        loader.begin([kernel], Store(None))
        assert loader.ahead and not any(each.code() for each in loader.ahead)
    assert torch.equal(_call(loader.load([kernel], Store(None))[kernel.symbol], x), x + 75.5)


def test_a_text_that_llvm_rejects():
    """Whoever loads it is told."""
    assert not ahead.begin([ahead.Object({"f": "define i32 @f() { nonsense }"}, machine.FAST)])
    with pytest.raises(InternalError, match="LLVM rejects one of f"):
        Loader().link({"f": "define i32 @f() { nonsense }"}, Store(None))


def test_what_nobody_loads_is_dropped(monkeypatch):
    monkeypatch.setattr(loading, "MOST_AHEAD", 4)
    loader = Loader()
    for k in range(loading.MOST_AHEAD + 5):
        loader.begin([_kernel(extra=100.5 + k)], Store(None))
    assert len(loader.ahead) <= loading.MOST_AHEAD


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_waits_for_machine_code(monkeypatch):
    """The child has no such thread: what it holds would stay held."""
    loader, kernel, x = Loader(), _kernel(extra=76.5), torch.randn(50)
    loader.begin([kernel], Store(None))
    child = os.fork()
    if child == 0:
        function = loader.load([kernel], Store(None))[kernel.symbol]
        os._exit(0 if not BESIDE.locked() and torch.equal(_call(function, x), x + 76.5) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(_call(loader.load([kernel], Store(None))[kernel.symbol], x), x + 76.5)


def test_a_fork_before_the_thread_begins():
    """The child makes what its parent's thread would have."""
    found = ahead.Object({"f": "define i32 @f() { ret i32 1 }"}, machine.FAST)
    found.process -= 1
    assert found.code() == b""


ENDS = """
import sys, threading, torch, dovetail
from dovetail.runtime.cpu import machine
emit = machine.emit
def ends(module, speed):
    reached.set()
    return emit(module, speed)
reached, machine.emit = threading.Event(), ends
from dovetail.runtime.cpu import loading
loading._compile = None
def at_the_end(*given):
    reached.wait(20)
    sys.exit(3)
loading.Loader.load = at_the_end
dovetail.compile(lambda x: x.exp().sum(-1) + x.sum(), fullgraph=True)(torch.randn(64, 32))
"""


def test_a_process_that_ends_meanwhile(tmp_path: Path):
    needed = {"PYTHONPATH": str(ROOT), "DOVETAIL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ENDS], cwd=ROOT, env=needed, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 3 and not done.stderr.strip(), done.stderr
