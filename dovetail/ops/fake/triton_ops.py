"""What a `torch.library.triton_op` gives, without its kernels: its function runs on fakes and launches nothing.

PyTorch takes the operator's own function for its fake, and Triton's kernels would read the fakes' memory.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch._library.custom_ops import OPDEFS

_KERNELS = (
    ("triton.runtime.jit", "JITFunction"), ("triton.runtime.interpreter", "InterpretedFunction"),
    ("triton.runtime.autotuner", "Autotuner"), ("triton.runtime.autotuner", "Heuristics"),
)  # fmt: skip
_NOTHING: AbstractContextManager[None] = nullcontext()


def launching_nothing(func: Any) -> AbstractContextManager[None]:
    """While the operator's result is predicted."""
    defined = OPDEFS.get(func._schema.name)
    own = defined is not None and defined._init_fn.__qualname__.startswith("triton_op.")
    return _without_launches() if own else _NOTHING


@contextlib.contextmanager
def _without_launches() -> Iterator[None]:
    """Other threads go on launching."""
    triton = sys.modules["torch._library.triton"]
    here = threading.get_ident()
    found = [getattr(sys.modules[name], kind) for name, kind in _KERNELS if name in sys.modules]
    before = [(cls, cls.__dict__["run"]) for cls in found]
    for cls, run in before:
        cls.run = _elsewhere(run, here)
    try:
        with triton.set_wrap_triton_enabled(False):
            yield
    finally:
        for cls, run in before:
            cls.run = run


def _elsewhere(run: Callable[..., Any], here: int) -> Callable[..., Any]:
    def only_elsewhere(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if threading.get_ident() == here else run(self, *args, **kwargs)

    return only_elsewhere
