"""The text of every stage of one compilation, for the CPU or, without one, for a GPU; and which of them differ."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from dovetail import assembly, building, targets
from dovetail.diagnostics.events import CompileRecord
from dovetail.errors import Unsupported
from dovetail.ops.fake.tensor import FakeTensor
from dovetail.request import Request
from tests.fuzz.history.programs import Program

CUDA = torch.device("cuda", 0)
Texts = list[list[str]]  # kind and text


class TextSink:
    """Keeps the text of every stage, in the order in which they came, each with its kind.

    They follow from the program and the options: nothing that ran before, and no other process, has others.
    """

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def wants(self, kind: str) -> bool:
        return True

    def write(self, record: CompileRecord, kind: str, text: str) -> None:
        self.texts.append((kind, text))


def texts(program: Program, seed: int, device: str) -> Texts:
    """Of the whole program, which must be one graph. No machine code is made."""
    torch.manual_seed(seed)
    fn, args = program.make()
    sink = TextSink()
    request = Request(True, program.dynamic, sinks=(sink,))
    if isinstance(fn, nn.Module):
        fn = type(fn).forward.__get__(fn)
    with unloaded(device), torch.set_grad_enabled(program.trains):
        try:
            request.compile(fn, args, {}, 0, [])
        except Unsupported as error:
            sink.texts.append(("refused", error.code))
    return [[kind, text] for kind, text in sink.texts]


@contextlib.contextmanager
def unloaded(device: str) -> Iterator[None]:
    """Kernels are texts alone. For a GPU, everything after normalize takes the graph's tensors to lie on one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(assembly, "load_kernels", lambda kernels, *_: {k.symbol: print for k in kernels})
        if device == "cuda":
            patched.setattr(targets, "unavailable", lambda device: "")
            lower = building.lower
            patched.setattr(building, "lower", lambda aten, options: lower(_moved(aten), options))
        yield


def _moved(aten: Any) -> Any:
    for node in aten.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = _on_gpu(node.meta["val"])
    return aten


def _on_gpu(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_on_gpu, value))
    if not isinstance(value, FakeTensor):
        return value
    return FakeTensor(value.shape, value.stride(), value.dtype, CUDA, value.storage_offset())


def differences(one: Mapping[str, Texts], other: Mapping[str, Texts]) -> list[str]:
    """For each program that both compiled, the first text that differs, with its first lines that do."""
    found = []
    for name in one.keys() & other.keys():
        kinds = [[kind for kind, _ in each[name]] for each in (one, other)]
        if kinds[0] != kinds[1]:
            found.append(f"{name}: the stages are {kinds[0]} and {kinds[1]}")
            continue
        for (kind, mine), (_, theirs) in zip(one[name], other[name], strict=True):
            if mine != theirs:
                lines = difflib.unified_diff(mine.split("\n"), theirs.split("\n"), lineterm="", n=0)
                found.append("\n".join((f"{name}: {kind} differs", *(line[:200] for line in list(lines)[2:8]))))
                break
    return sorted(found)
