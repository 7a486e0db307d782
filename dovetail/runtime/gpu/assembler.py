"""Kernel texts to machine code through Triton; as a program of its own, for another process.

    python -S -P assembler.py

Its standard input is a socket of packets. The first one is `sys.path` as JSON; Triton is imported, and its version is
the answer. Every other packet brings a stream socket, for which a process is forked: it reads a Task as JSON, up to the
end of the stream, and answers with a length (8 bytes) and so many bytes of a Binary. Where something goes wrong, it
ends without an answer. The program ends with the process that started it, and when nothing has come for a while.

Imports the standard library and Triton alone, since importing this package, and with it PyTorch, takes a second.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import linecache
import os
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: Seconds without a task after which the program ends.
IDLE = 60.0


@dataclass(frozen=True)
class Task:
    """One kernel: `types` are Triton's types of its arguments, `aligned` those that are multiples of 16.

    `options` are Triton's, `capability` is a GPU's compute capability (90: Hopper), `environment` is the environment of
    the process that asks.
    """

    symbol: str
    text: str
    types: list[str]
    aligned: list[int]
    options: dict[str, Any]
    capability: int
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Binary:
    """Machine code of one kernel: `shared` bytes of shared memory, `warps` of 32 threads in a program."""

    code: bytes
    shared: int
    warps: int

    def to_bytes(self) -> bytes:
        return f"{self.shared} {self.warps}\n".encode() + self.code

    @staticmethod
    def of_bytes(data: bytes) -> Binary:
        head, _, code = data.partition(b"\n")
        shared, warps = map(int, head.split())
        return Binary(code, shared, warps)


def assemble(task: Task) -> Binary:
    """Machine code of the task. Raises whatever Triton raises for a text that it rejects."""
    found: dict[str, Any] = {}
    *_, (_, made) = stages(task, found)
    return Binary(made, found["shared"], found["num_warps"])


def stages(task: Task, found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The name of each of Triton's stages and what it made: `ttir`, `ttgir`, `llir`, `ptx`, `cubin`. What they find out
    on their way is put into `found`.

    Runs them one after the other, as Triton's own `compile` does around a cache on disk. The key of that cache has a
    checksum of Triton's library of 400 MB, which takes 0.3 s in each process, and in each thread that asks first.
    """
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", task.capability, 32)
    ir = importlib.import_module("triton._C.libtriton").ir
    kernel = function(task.symbol, task.text)
    types = dict(zip(kernel.arg_names, task.types, strict=True))
    source = compiler.ASTSource(kernel, types, {}, {(k,): [["tt.divisibility", 16]] for k in task.aligned})

    backend = compiler.make_backend(target)
    options, context = backend.parse_options(task.options), ir.context()
    steps: dict[str, Any] = {}
    ir.load_dialects(context)
    backend.load_dialects(context)
    backend.add_stages(steps, options, source.language)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    made = source.make_ir(target, options, functions, modules, context)
    found |= {"target": target, **vars(options)}
    for name, step in steps.items():
        made = step(made, found)
        yield name, made


def function(symbol: str, text: str) -> Any:
    """The kernel's text as a function that Triton compiles. It reads the source through `linecache`."""
    filename = f"<kernel {symbol}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": f"dovetail.kernels.{symbol}"}
    exec(compile(text, filename, "exec"), namespace)
    return namespace[symbol]


# ---------------------------------------------------------------- the program

#: Touches most of what a process would import and set up for its first kernel, once for all of them.
_FIRST = Task(
    "K",
    "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n"
    "@triton.jit\ndef K(p0):\n    tl.store(p0, libdevice.exp(tl.load(p0)))\n",
    ["*fp32"], [0], {}, 80,
)  # fmt: skip


def serve(control: socket.socket) -> None:
    """Answers what comes through `control`, a socket of packets, until its other end is closed or nothing comes."""
    sys.path[:] = json.loads(control.recv(1 << 20))
    control.send(importlib.import_module("triton").__version__.encode())
    assemble(_FIRST)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nobody need wait for processes that end
    control.settimeout(IDLE)
    while True:
        try:
            packet, sockets, _, _ = socket.recv_fds(control, 1, 1)
        except (TimeoutError, ConnectionError):
            return
        if not packet:
            return
        for number in sockets:
            with socket.socket(fileno=number) as job, contextlib.suppress(OSError):  # as where no more processes may be
                if os.fork() == 0:
                    _answer_and_end(job, control)


def _answer_and_end(job: socket.socket, control: socket.socket) -> None:
    try:
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ptxas is waited for
        job.settimeout(None)
        job.set_inheritable(False)
        given = json.loads(b"".join(iter(lambda: job.recv(1 << 16), b"")))
        os.environ.clear()
        os.environ.update(given["environment"])
        answer = assemble(Task(**given)).to_bytes()
        job.sendall(len(answer).to_bytes(8, "little") + answer)
    finally:
        os._exit(0)


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # ptxas gets no end of the socket
    os.close(nothing)
    serve(control)


if __name__ == "__main__":
    main()
