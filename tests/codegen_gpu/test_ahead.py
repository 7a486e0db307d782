"""Machine code of a GPU's kernels is made while the others are written."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from dovetail import targets
from dovetail.errors import InternalError
from dovetail.ir.devices import GPU, HOST
from dovetail.ir.kernel import GpuLaunch, Kernel
from dovetail.options import Options
from dovetail.runtime.gpu import ahead, loading
from dovetail.runtime.gpu.ahead import KernelQueue
from dovetail.runtime.gpu.assembler import Binary
from dovetail.runtime.store import Store

KERNELS = [Kernel(f"K{k}", f"text {k}", (), (), launch=GpuLaunch((), 4)) for k in range(6)]


class Slow:
    """Notes what it is asked for, and waits until it may go on."""

    def __init__(self) -> None:
        self.asked, self.may, self.most, self.now, self.lock = [], threading.Event(), 0, 0, threading.Lock()
        self.may.set()

    def __call__(self, kernel, capability, aligned=True):
        with self.lock:
            self.asked.append(kernel.symbol)
            self.now += 1
            self.most = max(self.most, self.now)
        self.may.wait()
        with self.lock:
            self.now -= 1
        if kernel.symbol == "refused":
            raise InternalError("codegen", "Triton rejects it")
        return Binary(kernel.symbol.encode(), 0, 4)


@pytest.fixture
def compiler(monkeypatch) -> Slow:
    made = Slow()
    monkeypatch.setattr(loading, "to_binary", made)
    monkeypatch.setattr(loading, "AHEAD", KernelQueue())
    monkeypatch.setattr(ahead.workers, "at_once", lambda: 2)
    return made


@pytest.mark.parametrize("folder", [True, False], ids=["disk", "none"])
def test_what_was_begun_is_not_made_twice(folder, compiler, tmp_path):
    store, meanwhile = Store(tmp_path if folder else None), []

    def when_two_are_under_way():
        while compiler.now < 2:
            time.sleep(0.001)
        meanwhile.append(compiler.now)
        compiler.may.set()

    compiler.may.clear()
    loading._begin(KERNELS[:4], 90, store)
    loading._begin(KERNELS[:2], 90, store)
    made = loading._binaries(KERNELS, 90, store, when_two_are_under_way)
    assert [b.code.decode() for b in made] == [k.symbol for k in KERNELS] and meanwhile == [2]
    assert sorted(compiler.asked) == sorted(k.symbol for k in KERNELS) and compiler.most == 2
    loading._begin(KERNELS, 90, store)
    loading._binaries(KERNELS, 90, store)
    assert len(compiler.asked) == (1 if folder else 2) * len(KERNELS)


def test_what_is_rejected_is_told_to_who_loads_it(compiler):
    refused = replace(KERNELS[0], symbol="refused")
    loading._begin([refused], 90, Store(None))
    with pytest.raises(InternalError, match="Triton rejects it"):
        loading._binaries([refused, *KERNELS], 90, Store(None))


def test_who_gives_up_lets_the_others_be(compiler):
    def interrupt():
        raise KeyboardInterrupt

    compiler.may.clear()
    with pytest.raises(KeyboardInterrupt):
        loading._binaries(KERNELS, 90, Store(None), interrupt)
    compiler.may.set()
    loading._binaries(KERNELS[:1], 90, Store(None))
    assert len(compiler.asked) <= 3, "two were under way"


def test_threads_that_cannot_be_started(compiler, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    loading._begin(KERNELS[:2], 90, Store(None))
    assert len(loading._binaries(KERNELS, 90, Store(None))) == len(KERNELS) == len(compiler.asked)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_its_own(compiler):
    compiler.may.clear()
    loading._begin(KERNELS[:1], 90, Store(None))
    child = os.fork()
    if not child:
        compiler.may.set()
        compiler.lock = threading.Lock()
        os._exit(len(loading._binaries(KERNELS[:1], 90, Store(None))))
    compiler.may.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_without_a_device_nothing_is_begun(compiler):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    loading.begin(KERNELS, torch.device("cuda", 0))
    assert not compiler.asked


@pytest.mark.parametrize("kind", [GPU, HOST.type])
def test_each_kernel_is_begun_when_it_is_written_unless_they_are_made_together(kind, monkeypatch):
    kernels = [SimpleNamespace(symbol=k.symbol, text=k.text, device=torch.device(kind)) for k in KERNELS]
    order: list = []
    monkeypatch.setattr(targets, "generate", lambda group, options: (order.append(group), kernels[group.name])[1])
    monkeypatch.setattr(targets, "begin", lambda some, more: order.extend(some))
    groups = [SimpleNamespace(name=k) for k in (0, 1, 0)]
    targets.generate_all(groups, Options())
    begun = [groups[0], kernels[0], groups[1], kernels[1], groups[2]]
    assert order == (begun if kind == GPU else groups)


def test_what_takes_longest_begins_first(compiler, monkeypatch):
    monkeypatch.setattr(ahead.workers, "at_once", lambda: 1)
    sizes = [replace(k, text="x" * size) for k, size in zip(KERNELS, (3, 9, 5, 1, 7, 2), strict=True)]
    compiler.may.clear()
    loading._begin(sizes, 90, Store(None))
    compiler.may.set()
    loading._binaries(sizes, 90, Store(None))
    assert compiler.asked == ["K1", "K4", "K2", "K0", "K5", "K3"]


def test_what_is_given_up_is_not_made(compiler):
    compiler.may.clear()
    loading._begin(KERNELS, 90, Store(None))
    loading._give_up(KERNELS[1:5], 90, Store(None))
    compiler.may.set()
    loading._binaries([KERNELS[0], KERNELS[4], KERNELS[5]], 90, Store(None))
    assert set(compiler.asked) >= {"K0", "K4", "K5"} and len(compiler.asked) <= 4, "one of them was under way"
    assert compiler.asked.count("K0") == compiler.asked.count("K5") == 1
