"""Whole models and training steps.

Each program runs eagerly, compiled by Dovetail and, with `--peer`, by torch.compile in its default mode and with
`mode="reduce-overhead"`, each time in a fresh process with empty caches, with the same weights and inputs. Times are
medians of single calls between CUDA events, in milliseconds. Cold is the import of the compiler and the first two
calls, in seconds. Memory is what PyTorch holds at most during warm calls, the pools of CUDA graphs and free blocks
between used ones included, in MiB. The error is the largest difference from eager's result, of a million elements.
"""

from __future__ import annotations

import copy
import gc
import importlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from rich.table import Table
from torch import Tensor, nn

from ..models import densenet, pointwise, resnet, unet

Program = Callable[[], Any]


def _images(batch: int, size: int) -> Tensor:
    return torch.randn(batch, 3, size, size, device="cuda")


def _inference(model: nn.Module, inputs: Tensor) -> tuple[Any, Callable[[Any], Program]]:
    model = model.cuda().eval()

    def program(compiled: Any) -> Program:
        def call() -> Any:
            with torch.no_grad():
                result = compiled(inputs)
            return result if isinstance(result, Tensor) else result[0]

        return call

    return model, program


def _training(model: nn.Module, inputs: Tensor, labels: Tensor, capturable: bool = True) -> tuple[Any, Any]:
    """A whole step; `capturable`: Adam's counts of steps are on the device too."""
    model = model.cuda().train()

    def program(compiler: Any) -> Program:
        own = copy.deepcopy(model)
        optimizer = torch.optim.Adam(own.parameters(), lr=1e-3, capturable=capturable)

        def step(inputs: Tensor, labels: Tensor) -> Tensor:
            optimizer.zero_grad()
            found = own(inputs)
            loss = F.cross_entropy((found if isinstance(found, Tensor) else found[0]).flatten(0, -2), labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = compiler(step)
        return lambda: compiled(inputs, labels)

    return None, program


def _vit() -> nn.Module:
    return transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))


def _convnext() -> nn.Module:
    return transformers.ConvNextForImageClassification(transformers.ConvNextConfig(num_labels=1000))


def _language(model: nn.Module, batch: int, length: int) -> tuple[Any, Any]:
    return _training(model, _tokens(batch, length), _tokens(batch, length).flatten())


def _gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))


def _llama() -> nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, use_cache=False
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16)


def _tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, 30000, (batch, length), device="cuda")


def _labels(count: int) -> Tensor:
    return torch.randint(0, 1000, (count,), device="cuda")


def _rows() -> tuple[Any, Callable[[Any], Program]]:
    x, weight, bias = torch.randn(16384, 4096, device="cuda"), *torch.randn(2, 4096, device="cuda")
    return pointwise.row_chain, lambda compiled: lambda: compiled(x, weight, bias)


CASES: dict[str, Callable[[], tuple[Any, Callable[[Any], Program]]]] = {
    "gelu/sin + norm + softmax, 16384x4096": _rows,
    "DenseNet-121, 16x3x128x128": lambda: _inference(densenet.densenet121(), _images(16, 128)),
    "ResNet-50, 32x3x224x224": lambda: _inference(resnet.resnet50(), _images(32, 224)),
    "U-Net, 8x3x256x256": lambda: _inference(unet.UNet(), _images(8, 256)),
    "GPT-2, 4x512": lambda: _inference(_gpt2(), _tokens(4, 512)),
    "Llama, 12 layers, 1024 wide, bf16, 2x1024": lambda: _inference(_llama(), _tokens(2, 1024)),
    "ViT-B, 16x3x224x224": lambda: _inference(_vit(), _images(16, 224)),
    "ConvNeXt-T, 16x3x224x224": lambda: _inference(_convnext(), _images(16, 224)),
    "DenseNet-121 training, 16x3x128x128": lambda: _training(densenet.densenet121(), _images(16, 128), _labels(16)),
    "the same, steps counted on the CPU": lambda: _training(
        densenet.densenet121(), _images(16, 128), _labels(16), capturable=False
    ),
    "GPT-2 training, 4x512": lambda: _language(_gpt2(), 4, 512),
    "Llama training, bf16, 2x1024": lambda: _language(_llama(), 2, 1024),
}

CONTENDERS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda fn: fn,
    "Dovetail": lambda fn: importlib.import_module("dovetail").compile(fn),
    "torch.compile": torch.compile,
    "reduce-overhead": lambda fn: torch.compile(fn, mode="reduce-overhead"),
}


def median(program: Program, calls: int = 30) -> float:
    """Milliseconds of one call."""
    for _ in range(5):
        program()
    times = []
    for _ in range(calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        program()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def peak(program: Program) -> float:
    """MiB that PyTorch holds at most during a few calls."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        program()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved() / 2**20


def measure(case: str, names: list[str]) -> dict[str, dict[str, float]]:
    """Every contender on one program; what fails has no figures."""
    found: dict[str, dict[str, float]] = {}
    expected = None
    for name in names:
        figures, first = _apart(case, name)
        if first is None:
            continue
        expected = first if expected is None else expected
        found[name] = figures | {"error": float(np.abs(first - expected).max())}
    return found


def _apart(case: str, name: str) -> tuple[dict[str, float], np.ndarray[Any, Any] | None]:
    """Figures and the first result, from a process that has imported PyTorch and nothing else, and has no caches."""
    context = multiprocessing.get_context("fork")  # this process must not touch the device, nor start OpenMP's threads
    with tempfile.TemporaryDirectory(prefix="bench") as caches:
        answers = context.Queue()
        child = context.Process(target=_measured, args=(case, name, caches, answers))
        child.start()
        while child.is_alive() and answers.empty():
            time.sleep(0.05)
        figures, first = ({}, None) if answers.empty() else answers.get()
        child.join()
    if child.exitcode:
        print(f"{case}, {name}: the process ended with {child.exitcode}", file=sys.stderr, flush=True)
    return figures, first


def _measured(case: str, name: str, caches: str, answers: Any) -> None:
    for variable in ("DOVETAIL_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[variable] = f"{caches}/{variable}"
    torch.manual_seed(0)
    target, make = CASES[case]()
    torch.cuda.synchronize()
    start = time.perf_counter()
    program = make(CONTENDERS[name](target) if target is not None else CONTENDERS[name])
    first = program().float().cpu()
    program()
    torch.cuda.synchronize()
    cold = time.perf_counter() - start
    some = first.detach().flatten()[:: max(1, first.numel() // 10**6)].numpy()
    answers.put(({"ms": median(program), "cold": cold, "mib": peak(program)}, some))


def cell(figures: dict[str, float]) -> str:
    return f"{figures['ms']:.3f} ({figures['cold']:.1f}, {figures['mib']:.0f})"


def table(results: dict[str, dict[str, dict[str, float]]], names: list[str]) -> Table:
    made = Table("program", *(f"{name}: ms (cold s, MiB)" for name in names), "largest difference from eager")
    for case, row in results.items():
        cells = [cell(row[n]) if n in row else "failed" for n in names]
        made.add_row(case, *cells, f"{row['Dovetail']['error']:.1e}" if "Dovetail" in row else "")
    return made
