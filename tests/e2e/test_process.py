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

COMPILE = """
import torch, dovetail
def f(x, w):
    return torch.softmax(torch.nn.functional.gelu(x @ w), -1).sum(0)
x, w = torch.randn(64, 32), torch.randn(32, 48)
with torch.no_grad():
    torch.testing.assert_close(dovetail.compile(f, fullgraph=True)(x, w), f(x, w))
print("fine")
"""


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    needed = {"PYTHONPATH": str(ROOT), "DOVETAIL_CACHE_DIR": os.environ["DOVETAIL_CACHE_DIR"]}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=needed | environment, capture_output=True, text=True, timeout=120
    )


def test_no_compiler_is_needed(tmp_path: Path) -> None:
    done = python(COMPILE, PATH="", DOVETAIL_CACHE_DIR=str(tmp_path))  # an empty cache: kernels are compiled here
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


def test_a_second_process_finds_the_first_ones_kernels(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    for _ in range(2):
        assert python(COMPILE, DOVETAIL_CACHE_DIR=str(folder)).stdout.strip() == "fine"
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert kept


def test_damaged_kernels_are_compiled_again(tmp_path: Path) -> None:
    assert python(COMPILE, DOVETAIL_CACHE_DIR=str(tmp_path)).stdout.strip() == "fine"
    for damage in (b"", b"\xd0\x00 not what was written", b"\x7fELF"):
        for path in [p for p in tmp_path.rglob("*") if p.is_file()]:
            path.write_bytes(damage)
        done = python(COMPILE, DOVETAIL_CACHE_DIR=str(tmp_path))
        assert done.stdout.strip() == "fine", done.stderr[-2000:]


def test_nothing_is_printed_unasked() -> None:
    done = python(COMPILE, PATH=os.environ.get("PATH", ""))
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
