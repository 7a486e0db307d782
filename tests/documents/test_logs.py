"""The table of log options in the troubleshooting document: what each one shows, and how it is asked for."""

from __future__ import annotations

import logging

import pytest
import torch

import dovetail
from dovetail.diagnostics import logs


@pytest.fixture(autouse=True)
def _quiet():
    yield
    dovetail.set_logs()


def program(x, c):
    y = torch.softmax(x.sin(), -1) * c
    dovetail.graph_break()
    return y.sum() + 1


#: What each option must show of a program that breaks a graph, is compiled again and is differentiated.
SHOWS = {
    "graph_breaks": "[explicit-break]",
    "guards": "if not (type(x) is _Tensor",
    "recompiles": "size mismatch at index 0. expected 3, actual 5",
    "recompiles_verbose": "c == 2.5 (actual 3.5)",
    "dynamic": "s0: x.shape[0]",
    "graph": "call_method   ",
    "graph_code": "# File: ",
    "graph_sizes": "x: (3, 8)",
    "trace_bytecode": "TRACE LOAD_FAST x [",
    "trace_source": "TRACE starts_line ",
    "bytecode": "ORIGINAL BYTECODE program",
    "aot_graphs": "aten.sin",
    "aot_joint_graphs": "%tangent_0: f32[3, 8]",
    "output_code": "def run(block, ",
    "kernel_code": "define i32 @k_",
    "schedule": "group ",
    "perf_hints": "runs operator by operator",
    "fusion": "6 operators in 1 kernels",
}


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """All that each log shows of the program."""
    dovetail.reset()
    found: dict[str, list[str]] = {}

    class Kept(logging.Handler):
        def emit(self, record):
            found.setdefault(record.name.removeprefix("dovetail."), []).append(record.getMessage())

    handler = Kept()
    dovetail.set_logs(all=logging.DEBUG)
    root = logging.getLogger("dovetail")
    kept, root.handlers = root.handlers, [handler]
    try:
        compiled = dovetail.compile(program)
        for rows, number in ((3, 2.5), (5, 3.5)):
            compiled(torch.ones(rows, 8, requires_grad=True), number)
        once = {}
        dovetail.compile(lambda x: once.setdefault(len(once), x + 1))(torch.ones(3))
    finally:
        root.handlers = kept
    return {name: "\n".join(messages) for name, messages in found.items()}


@pytest.mark.parametrize("name", SHOWS)
def test_an_option_shows(name: str, shown: dict[str, str]) -> None:
    assert SHOWS[name] in shown.get(name, ""), shown.get(name)


#: What `DOVETAIL_LOGS=...` turns on, and what it leaves off.
CHOICES = {
    "+all": (SHOWS, ()),
    "+dynamo": (("trace_bytecode", "guards", "graph_breaks"), ("aot_graphs", "output_code")),
    "+aot": (("aot_graphs", "aot_joint_graphs"), ("guards", "output_code")),
    "+inductor": (("output_code", "kernel_code", "fusion", "schedule"), ("guards", "aot_graphs")),
    "graph_breaks,guards": (("graph_breaks", "guards"), ("recompiles", "output_code")),
    "dynamic,recompiles": (("dynamic", "recompiles"), ("guards",)),
    "trace_bytecode,trace_source,graph_code": (("trace_bytecode", "trace_source", "graph_code"), ("bytecode",)),
}


@pytest.mark.parametrize("variable", CHOICES)
def test_the_environments_variable(variable: str) -> None:
    on, off = CHOICES[variable]
    logs.set_from(variable)
    assert all(map(logs.is_on, on)) and not any(map(logs.is_on, off))
