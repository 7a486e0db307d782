"""The compiler as a guest in a process: no tools, other threads, other settings."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import dovetail
from tests.architecture.project import ROOT
from tests.forks import python

COMPILE = """
import torch, dovetail
def f(x, w):
    return torch.softmax(torch.nn.functional.gelu(x @ w), -1).sum(0)
x, w = torch.randn(64, 32), torch.randn(32, 48)
with torch.no_grad():
    torch.testing.assert_close(dovetail.compile(f, fullgraph=True)(x, w), f(x, w))
print("fine")
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-c", program, env=needed() | environment)


def needed() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "DOVETAIL_CACHE_DIR": os.environ["DOVETAIL_CACHE_DIR"]}


def run_alone(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process that imports PyTorch itself."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=needed() | environment, capture_output=True, text=True, timeout=120)


def test_no_compiler_is_needed(tmp_path: Path) -> None:
    done = run(COMPILE, PATH="", DOVETAIL_CACHE_DIR=str(tmp_path))  # an empty cache: kernels are compiled here
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


def test_a_second_process_finds_the_first_ones_kernels(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    for _ in range(2):
        assert run(COMPILE, DOVETAIL_CACHE_DIR=str(folder)).stdout.strip() == "fine"
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert kept


def test_damaged_kernels_are_compiled_again(tmp_path: Path) -> None:
    assert run(COMPILE, DOVETAIL_CACHE_DIR=str(tmp_path)).stdout.strip() == "fine"
    for damage in (b"", b"\xd0\x00 not what was written", b"\x7fELF"):
        for path in [p for p in tmp_path.rglob("*") if p.is_file()]:
            path.write_bytes(damage)
        done = run(COMPILE, DOVETAIL_CACHE_DIR=str(tmp_path))
        assert done.stdout.strip() == "fine", done.stderr[-2000:]


def test_nothing_is_printed_unasked() -> None:
    done = run_alone(COMPILE, PATH=os.environ.get("PATH", ""))
    assert (done.stdout.strip(), done.stderr.strip()) == ("fine", "")


def work(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.sin(x) * 2, -1) + x.mean()


@torch.no_grad()
def test_many_threads_share_one_compiled_function() -> None:
    compiled = dovetail.compile(work, fullgraph=True)
    inputs = [torch.randn(40 + i % 3, 50) for i in range(12)]
    wants, gots = [work(x) for x in inputs], [None] * len(inputs)
    gate = threading.Barrier(4)

    def body(start: int) -> None:
        gate.wait()
        with torch.no_grad():
            for i in range(start, len(inputs), 4):
                for _ in range(5):
                    gots[i] = compiled(inputs[i])

    threads = [threading.Thread(target=body, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for got, want in zip(gots, wants, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("threads", [1, 2, 3])
@torch.no_grad()
def test_the_number_of_threads_is_obeyed(threads: int) -> None:
    before = torch.get_num_threads()
    x = torch.randn(300, 513)
    compiled = dovetail.compile(work, fullgraph=True)
    try:
        torch.set_num_threads(threads)
        torch.testing.assert_close(compiled(x), work(x))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(compiled(x), work(x))


SMALL_TEAM = """
import torch, dovetail, torch.nn.functional as F
torch.manual_seed(0), torch.set_num_threads(7)
x, w, long = torch.randn(64, 256), torch.randn(256, 256), torch.randn(300_000)
programs = {
    "product": (lambda x, w: x @ w, x, w), "fused product": (lambda x, w: (x @ w).sin() * 2, x, w),
    "layer": (lambda x, w: F.relu(F.linear(x, w, w[0])), x, w), "sum": (lambda x: (x * 2).sum(), long),
    "softmax": (lambda x: x.reshape(300, -1).softmax(-1), long), "columns": (lambda x: x.reshape(300, -1).var(0), long),
    "scan": (lambda x: x.cumsum(0), long), "pointwise": (lambda x: x.exp() + x, long),
    "sums at indices": (lambda x, w: torch.zeros(64, 256).index_add(0, torch.arange(256) % 64, w) + x, x, w),
}
for name, (f, *given) in programs.items():
    want = f(*(t.double() for t in given)) if name != "sums at indices" else f(*given)
    compiled = dovetail.compile(f)
    for _ in range(3):
        torch.testing.assert_close(compiled(*given).double(), want.double(), atol=1e-3, rtol=1e-4, msg=name)
ours, theirs = ([torch.nn.Parameter(p.clone()) for p in (w, x, *w[:64])] for _ in range(2))
for parameters, compiled in ((ours, True), (theirs, False)):
    optimizer = torch.optim.AdamW(parameters)
    for p in parameters: p.grad = p.detach().cos()
    step = dovetail.compile(optimizer.step) if compiled else optimizer.step
    step(), step()
for one, other in zip(ours, theirs): torch.testing.assert_close(one, other)
print("fine")
"""


@pytest.mark.parametrize("setting", ["OMP_THREAD_LIMIT=3", "OMP_DYNAMIC=true"])
def test_teams_smaller_than_asked_for(setting: str) -> None:
    name, _, value = setting.partition("=")
    done = run_alone(SMALL_TEAM, **{name: value})
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


INTERRUPTED = """
import importlib, pkgutil, sys, torch, dovetail

class Interrupting:
    "Ctrl-C at a line of this package's modules, counted from here."
    def __init__(self, line): self.left = line
    def __call__(self, frame, event, argument):
        inside = frame.f_globals.get("__name__", "").startswith("dovetail")
        if frame.f_code.co_name != "<module>" or not inside: return None
        self.left -= event == "line"
        if self.left == 0: raise KeyboardInterrupt
        return self

interrupted = []
for found in pkgutil.walk_packages(dovetail.__path__, "dovetail."):
    if found.name.endswith("__main__"): continue
    for line in range(2, 9999, 3):
        sys.settrace(Interrupting(line))
        try: importlib.import_module(found.name)
        except KeyboardInterrupt as error: interrupted.append(error)  # as an interactive session keeps the last one
        else: break
        finally: sys.settrace(None)
    importlib.import_module(found.name)
assert len(interrupted) > 100, len(interrupted)
x = torch.randn(4, 8, requires_grad=True)
compiled = dovetail.compile(lambda x: x.softmax(-1).sin() * 2, fullgraph=True)
torch.testing.assert_close(compiled(x), x.softmax(-1).sin() * 2)
compiled(x).sum().backward()
dovetail.compile(lambda x: torch.distributions.Normal(x, x.exp()).log_prob(x), fullgraph=True)(x)
print("fine")
"""


def test_imports_that_are_interrupted_are_made_again() -> None:
    done = run(INTERRUPTED)
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


LEFT_WAITING = """
import signal, sys, threading, time, torch, dovetail

class Interrupting:
    "Ctrl-C for who waits for the stages, of which one then takes its time."
    def find_spec(self, name, path, target=None):
        if name == "dovetail.building" and threading.current_thread() is not threading.main_thread():
            sys.meta_path.remove(self)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.5)

sys.meta_path.insert(0, Interrupting())
x, compiled = torch.randn(4, 8), dovetail.compile(lambda x: x.sin() * 2, fullgraph=True)
try: compiled(x)
except KeyboardInterrupt: assert "dovetail.pipeline" in sys.modules
else: raise AssertionError("not interrupted")
torch.testing.assert_close(compiled(x), x.sin() * 2)
print("fine")
"""


def test_an_import_that_was_left_is_waited_for() -> None:
    done = run(LEFT_WAITING, DOVETAIL_STRICT="1")
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


LITTLE_ROOM = """
import resource, warnings, torch, dovetail
warnings.simplefilter("ignore")
torch.set_num_threads(1)
x = torch.randn(4, 8)
programs = [lambda x, k=k: (x * k).cos().cumsum(0).sum(k % 2) + k for k in range(9)]
dovetail.compile(programs[0])(x)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for k, kilobytes in enumerate((20_000, 4_000, 1_000, 200, 0), 1):
    resource.setrlimit(resource.RLIMIT_AS, (used + kilobytes * 1024, resource.RLIM_INFINITY))
    try:
        dovetail.compile(programs[k])(x)
    except (dovetail.errors.InternalError, MemoryError):
        pass
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    torch.testing.assert_close(dovetail.compile(programs[k], fullgraph=True)(x), programs[k](x))
print("fine")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="tells how much of the address space is used by /proc")
def test_little_room_is_no_end_of_the_process(tmp_path: Path) -> None:
    """LLVM would end it. Afterwards everything compiles again."""
    done = run(LITTLE_ROOM, DOVETAIL_CACHE_DIR=str(tmp_path))
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


NO_HOME = """
import os, pathlib
def missing(*args): raise KeyError("no such user")
import pwd; pwd.getpwuid = missing
for name in ("HOME", "XDG_CACHE_HOME", "DOVETAIL_CACHE_DIR", "TMPDIR"): os.environ.pop(name, None)
os.chdir(FOLDER)
import torch, dovetail
x = torch.randn(5)
torch.testing.assert_close(dovetail.compile(lambda x: x.sin() + 1, fullgraph=True)(x), x.sin() + 1)
assert not os.listdir("."), os.listdir(".")
print("fine")
"""


def test_a_user_without_a_home(tmp_path: Path) -> None:
    """Nothing is written into the working directory."""
    done = run(NO_HOME.replace("FOLDER", repr(str(tmp_path))))
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


def test_global_state_is_left_as_it_was() -> None:
    def state() -> tuple:
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.random.get_rng_state().sum().item(),
        )

    before = state()
    with torch.no_grad():
        dovetail.compile(work)(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))
    assert state() == before


def test_modes_are_guarded() -> None:
    compiled = dovetail.compile(lambda x, w: torch.relu(x @ w))
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, w), torch.relu(x @ w))
    with torch.inference_mode():
        assert compiled(x, w).is_inference()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert compiled(x, w).dtype == torch.bfloat16
    with torch.no_grad():
        assert compiled(x, w).dtype == torch.float32
    w.requires_grad_()
    result = compiled(x, w)
    result.sum().backward()
    assert w.grad is not None
