"""The three ways to run a program that are compared, each behind the same three questions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .training import TrainingStep

Program = Callable[..., Any]


@dataclass(frozen=True)
class Contender:
    """`compile` imports what it needs by itself, so that a cold start can include the import."""

    name: str
    title: str
    compiler: Callable[[Program], Program]
    graphs: Callable[[Program, tuple[Any, ...]], int]

    def compile(self, program: Program) -> Program:
        """The program compiled; of a training step, its parts on a copy of its own."""
        if isinstance(program, TrainingStep):
            return program.compiled(self.compiler)
        return self.compiler(program)


def _dovetail(fn: Program) -> Program:
    return importlib.import_module("dovetail").compile(fn)


def _dovetail_graphs(fn: Program, inputs: tuple[Any, ...]) -> int:
    return importlib.import_module("dovetail").explain(fn)(*inputs).graph_count


def _peer(fn: Program) -> Program:
    importlib.import_module("torch._dynamo")
    return torch.compile(fn)


def _peer_graphs(fn: Program, inputs: tuple[Any, ...]) -> int:
    return importlib.import_module("torch._dynamo").explain(fn)(*inputs).graph_count


EAGER = Contender("eager", "eager", lambda fn: fn, lambda fn, inputs: 0)
DOVETAIL = Contender("dovetail", "Dovetail", _dovetail, _dovetail_graphs)
PEER = Contender("peer", "torch.compile", _peer, _peer_graphs)
CONTENDERS = {c.name: c for c in (EAGER, DOVETAIL, PEER)}
