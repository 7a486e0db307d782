"""Turn a host program's text into a callable of the program's inputs."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from dovetail.errors import InternalError
from dovetail.ir.host import HostProgram
from dovetail.runtime import arena

_numbers = count()


class CheckFailed(IndexError):
    """An index that the program checks before using it is out of bounds."""


def load(
    host: HostProgram, kernels: Mapping[str, Callable[..., int]], eager: Callable[..., Any]
) -> Callable[..., tuple[Any, ...]]:
    """`kernels` maps symbols to loaded functions. The text shows up in tracebacks.

    The first call also checks what library operators return (`expect_layout`). `eager` computes the same
    from the same inputs: where an index turns out to be out of bounds it runs in the program's place, and raises
    PyTorch's own error. Nothing of the caller's has been written by then.
    """
    filename = f"<dovetail host program {next(_numbers)}>"
    linecache.cache[filename] = (len(host.text), None, host.text.splitlines(True), filename)
    functions = {k.symbol: kernels[k.symbol] for k in host.kernels}
    namespace = {**host.names, **functions, "expect_layout": expect_layout, "CheckFailed": CheckFailed}
    exec(compile(host.text, filename, "exec"), namespace)
    run = namespace["run"]
    first = [namespace["run_first"]] if "run_first" in namespace else []
    checked = any(k.messages for k in host.kernels)
    size = host.arena_bytes

    def call(*inputs: Any) -> tuple[Any, ...]:
        block = arena.take(size)
        try:
            results = (first[0] if first else run)(block, *inputs)
            first.clear()
            return results
        except CheckFailed:
            pass
        finally:
            arena.give(block)
        return eager(*inputs)

    return call if size or first or checked else functools.partial(run, arena.take(0))


def expect_layout(tensor: Any, sizes: tuple[int, ...], strides: tuple[int, ...], operator: str) -> None:
    """Raise InternalError if a library result is not laid out as the kernels that read it assume."""
    if tensor is None:
        return
    if tuple(tensor.shape) == sizes:
        wrong = [k for k, n in enumerate(sizes) if n > 1 and tensor.stride(k) != strides[k]]
        if not wrong or tensor.numel() == 0:
            return
    raise InternalError(
        "runtime", f"{operator} returned sizes {tuple(tensor.shape)} and strides {tensor.stride()}, "
        f"but {sizes} and {strides} were predicted",
    )
