"""Processes that compile kernels: what they answer, and that they come and go unnoticed."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail import compilation
from dovetail.codegen.gpu import generate
from dovetail.errors import InternalError
from dovetail.ir.kernel import GpuLaunch, Kernel
from dovetail.runtime.gpu import assembler, loading, workers
from dovetail.runtime.gpu.workers import Workers
from dovetail.runtime.store import Store
from tests.codegen.test_random_groups import Maker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these processes exist on Linux")
HEAD = "import os, signal, sys\nimport triton\nimport triton.language as tl\n"
LINE = "tl.store(p0, tl.load(p0) + 1)"


def kernel(line: str = LINE, first: str = "") -> Kernel:
    """Its text runs `first` before Triton sees it."""
    text = f"{HEAD}{first}\n@triton.jit\ndef K(p0):\n    {line}\n"
    return Kernel("K", text, (), (), launch=GpuLaunch(("*fp32",), 4))


def task(*given: str) -> assembler.Task:
    return loading._task(kernel(*given), 90, True)


def children() -> set[int]:
    """Processes that this one has started and not waited for."""
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def eventually(holds) -> bool:
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def own(monkeypatch):
    """Processes for one test alone."""
    made = Workers()
    monkeypatch.setattr(loading, "WORKERS", made)
    yield made
    made.close()


@pytest.fixture
def server(own) -> int:
    """The process id of the one that has imported Triton."""
    before = children()
    assert own.version()
    (pid,) = children() - before
    return pid


def test_what_code_depends_on_needs_neither_a_process_nor_triton(own, monkeypatch):
    monkeypatch.setattr(loading.importlib, "import_module", lambda name: pytest.fail(f"{name} is imported"))
    loading._version.cache_clear()
    before = children()
    assert loading.identity(90) == f"triton {metadata.version('triton')} sm_90"
    assert not children() - before


def test_machine_code_is_the_same_as_here(own, tmp_path):
    kernels = [generate(Maker(seed).group()) for seed in range(0, 40, 8)]
    for aligned in (True, False):
        made = loading._binaries(kernels, 90, Store(tmp_path), aligned=aligned)
        assert made == [assembler.assemble(loading._task(k, 90, aligned)) for k in kernels]
        assert made == loading._binaries(kernels, 90, Store(tmp_path), aligned=aligned), "another is on disk"


def test_it_is_triton_alone_that_they_import(own):
    assert own.compiled(task(LINE, "assert not {'torch', 'dovetail', 'numpy'} & {*sys.modules}")) is not None


def test_tritons_own_cache_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert assembler.assemble(task()).code.startswith(b"\x7fELF") and not any(tmp_path.iterdir())


def test_the_environment_is_that_of_the_moment(own, monkeypatch):
    checked = task(LINE, "assert os.environ['TEST_VALUE'] == 'é' and 'HOME' not in os.environ")
    assert own.compiled(checked) is None
    monkeypatch.setenv("TEST_VALUE", "é")
    monkeypatch.delenv("HOME", raising=False)
    assert own.compiled(checked) is not None


@pytest.mark.parametrize("off", ["", "in threads"])
def test_what_triton_rejects(off, own):
    own.off = off
    with pytest.raises(InternalError, match=r"codegen: Triton rejects K: (?s:.)*nowhere is not defined"):
        loading.to_binary(kernel("tl.store(p0, nowhere)"), 90)


def test_one_that_dies_takes_nobody_with_it(own, server):
    assert own.compiled(task(LINE, "os.kill(os.getpid(), signal.SIGKILL)")) is None
    assert own.compiled(task()) is not None
    assert server in children()


def test_many_threads(own):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(own.compiled, [task(f"tl.store(p0, {k % 4}.0)") for k in range(16)]))
    assert made[:4] * 4 == made and None not in made and len({m.code for m in made}) == 4


def test_nothing_is_shown(own, capfd):
    assert own.compiled(task(LINE, "print('shown'); print('shown', file=sys.stderr); os.system('echo shown')"))
    assert capfd.readouterr() == ("", "")


def test_ctrl_c_is_for_this_process_alone(server):
    assert os.getsid(server) == os.getpgid(server) == server


EXECUTABLES = {"nothing": "", "none": None, "not there": "/nowhere/python", "no Python": "/bin/cat"}


@pytest.mark.parametrize("name", EXECUTABLES)
def test_without_a_python_to_run(name, own, monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", EXECUTABLES[name])
    before = children()
    with caplog.at_level(logging.INFO, "dovetail.perf_hints"):
        assert [loading.to_binary(kernel(), 90).code[:4] for _ in range(2)] == [b"\x7fELF"] * 2
        assert loading.identity(90).startswith("triton 3")
    assert not children() - before
    assert len(caplog.messages) == 1 and "in threads of this process" in caplog.messages[0]


@pytest.mark.parametrize("program", ["", "import os; os.read(0, 1); os.write(0, b'')", "raise SystemExit(3)"])
def test_a_program_that_does_something_else(program, own, monkeypatch, caplog):
    before = children()
    monkeypatch.setattr(workers, "_program", lambda: [sys.executable, "-c", program])
    with caplog.at_level(logging.INFO, "dovetail.perf_hints"):
        assert loading.to_binary(kernel(), 90).code.startswith(b"\x7fELF")
    assert len(caplog.messages) == 1 and eventually(lambda: not children() - before)


def test_killed_while_nobody_looks(own, server, caplog):
    with caplog.at_level(logging.INFO, "dovetail.perf_hints"):
        os.kill(server, signal.SIGKILL)
        assert loading.to_binary(kernel(), 90).code.startswith(b"\x7fELF")
        assert eventually(lambda: server not in children() and own.off)
    assert [m.partition(": ")[2] for m in caplog.messages] == ["the process for that ended with status -9"]


def test_it_ends_when_nobody_asks_and_starts_again(own, monkeypatch):
    """What has ended is waited for, so that nothing is left of it."""
    (python, *options, path), before = workers._program(), children()
    text = (
        "import sys, importlib.util as u; s = u.spec_from_file_location('assembler', sys.argv[1]); "
        "m = sys.modules['assembler'] = u.module_from_spec(s); s.loader.exec_module(m); m.IDLE = 0.2; m.main()"
    )
    monkeypatch.setattr(workers, "_program", lambda: [python, *options, "-c", text, path])
    for _ in range(2):
        assert own.compiled(task()) is not None
        assert eventually(lambda: not children() - before and own.control is None)
    assert not own.off


SCRIPT = """
import os, pathlib, signal, sys
from dovetail.runtime.gpu.workers import WORKERS
assert WORKERS.version()
(pid,) = [n for path in pathlib.Path("/proc/self/task").glob("*/children") for n in path.read_text().split()]
print(pid, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "forked" and os.fork():
    os._exit(0)
if sys.argv[1] == "forked":
    os.read(0, 1)  # lives on
"""


@pytest.mark.parametrize("how", ["returned", "killed", "forked"])
def test_it_ends_with_the_process_that_started_it(how):
    given = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", SCRIPT, how]
    environment = os.environ | {"PYTHONPATH": str(Path(dovetail.__file__).parents[1])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(given, env=environment, **pipes) as process:
        pid = process.stdout.readline().strip()
        assert pid and eventually(lambda: not running(pid))
        _, errors = process.communicate()
    assert not errors


def running(pid: str) -> bool:
    """A process that nobody waits for, as in a container without an init, is not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_forked_process_has_its_own(own, server):
    child = os.fork()
    if child == 0:
        found = own.control is None and own.compiled(task()) is not None
        os._exit(0 if found else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert own.compiled(task()) is not None and server in children()


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("backend", ["dovetail", "eager"])
def test_they_start_where_a_cuda_device_is_in_use(used, backend, monkeypatch):
    started = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    monkeypatch.setattr(compilation.WORKERS, "start", lambda: started.append(1))
    dovetail.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    assert len(started) == (used and backend == "dovetail")


def test_none_start_where_an_earlier_process_has_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(dovetail.config, "warm_start", True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    started = []
    monkeypatch.setattr(compilation.WORKERS, "start", lambda: started.append(1))
    for _ in range(2):
        dovetail.compile(doubled, fullgraph=True)(torch.ones(3))
        dovetail.reset()
    assert started == [1]


def doubled(x):
    return x * 2


@pytest.mark.parametrize("ranks, expected", [(None, 12), ("1", 12), ("4", 3), ("64", 1), ("", 12)])
def test_ranks_share_the_processors(ranks, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(12), raising=False)
    if ranks is None:
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert workers.at_once() == expected
