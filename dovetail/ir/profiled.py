"""What `torch.profiler` shows of compiled code: calls, graphs, kernels and stages, under names that lead to a line.

    dovetail: train.py:12 step                         a call of what was compiled, or of what follows a graph break
      dovetail compile: capture                        a stage of its compilation
      dovetail graph 0 forward: train.py:12 step       its graph
        k0_gelu_native_layer_norm train.py:14 step       a kernel: the operators in it, and the line of its result

`profiler._is_profiler_enabled` is asked wherever one of these begins: an attribute of a module, which takes a few
nanoseconds. Nothing else is done for a profile while there is none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType, SimpleNamespace
from typing import Any

from torch import _C
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

#: Takes the place of `profiler` in functions that are shown already.
SHOWN = SimpleNamespace(_is_profiler_enabled=False)


def titled(kind: str, function: str, place: str) -> str:
    """`place` is "file:line", which may be unknown; of the file there is room for the name."""
    return " ".join(filter(None, (kind, os.path.basename(place), function)))


def region(title: str) -> AbstractContextManager[Any]:
    """A span of the program's thread, and of the GPU's timeline for what it starts there.

    Operators of PyTorch's begin and end those of the GPU. A mode of the program's that watches operators, or a tracer,
    sees none.
    """
    watched = _C._len_torch_dispatch_stack() or _C._len_torch_function_stack() or _C._get_tracing_state() is not None
    return _RecordFunctionFast(title) if watched else profiler.record_function(title)


def stage(title: str) -> AbstractContextManager[Any]:
    """A span of the program's thread. No operator of PyTorch's begins it, so whoever records operators sees nothing."""
    return _RecordFunctionFast(title) if profiler._is_profiler_enabled else nullcontext()


class ProfiledCall:
    """Calls a host program's functions as they are, but each kernel under a title. `namespace` are their globals.

    `launches` has what each line that starts one of `kernels` is shown as.
    """

    def __init__(
        self, title: str, namespace: Mapping[str, Any], kernels: Mapping[str, Callable[..., int]],
        launches: Mapping[int, str],
    ) -> None:  # fmt: skip
        self.title, self.namespace, self.kernels, self.launches = title, namespace, kernels, launches
        self.watching: dict[str, Any] = {}

    def __call__(self, function: Any, *args: Any) -> Any:
        with region(self.title):
            return self.shown(function)(*args)

    def in_buckets(self, function: Any, *args: Any) -> Iterator[None]:
        """The same of a generator, in a span for each of its steps."""
        steps, over = self.shown(function)(*args), False
        while not over:
            with region(self.title):
                over = next(steps, steps) is steps
            if not over:
                yield

    def shown(self, function: Any) -> Callable[..., Any]:
        if not self.watching:
            kernels = {name: self.watched(name, kernel) for name, kernel in self.kernels.items()}
            self.watching = {**self.namespace, **kernels, "profiler": SHOWN}
        return FunctionType(function.__code__, self.watching)

    def watched(self, name: str, kernel: Callable[..., int]) -> Callable[..., int]:
        """The kernel, which the profiler sees under the launch's name."""

        def call(*args: Any) -> int:
            with _RecordFunctionFast(self.launches.get(sys._getframe(1).f_lineno, name)):
                return kernel(*args)

        return call
