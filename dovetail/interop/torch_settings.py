"""Settings of PyTorch's compiler that a program or a library has changed: they count while Dovetail is installed.

PyTorch keeps them in modules of its compiler, those of `torch.compiler.config` too. Only who has loaded one of them can
have changed anything; they are never loaded for this. Most settings have no meaning here and are not read.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple


class State:
    """Is Dovetail installed in the place of `torch.compile`?"""

    on = False


STATE = State()


class Row(NamedTuple):
    """A setting of PyTorch's: any value but `default` chooses `option`, as it is or, where that is given, `value`."""

    module: str
    name: str
    default: Any
    option: str
    value: Any = None


_CAPTURE, _CODE = "torch._dynamo.config", "torch._inductor.config"
ROWS = (
    Row(_CAPTURE, "recompile_limit", 8, "recompile_limit"),
    Row(_CAPTURE, "capture_scalar_outputs", False, "capture_scalar_outputs"),
    Row(_CAPTURE, "suppress_errors", False, "suppress_errors"),
    Row(_CAPTURE, "trace_numpy", True, "trace_numpy"),
    Row(_CAPTURE, "automatic_dynamic_shapes", True, "dynamic", False),
    Row(_CAPTURE, "assume_static_by_default", True, "dynamic", True),
    Row(_CODE, "fallback_random", False, "fallback_random"),
)
#: Either one set to 1 turns compiling off.
VARIABLES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")


def changed() -> dict[str, Any]:
    """Choices of a compilation that starts now, by their names in `Options`."""
    found: dict[str, Any] = {}
    for row in ROWS if STATE.on else ():
        value = getattr(sys.modules.get(row.module), row.name, row.default)
        if value != row.default:
            found[row.option] = value if row.value is None else row.value
    return found


#: Settings that nothing here is chosen by, and what a program that changes one can do.
WITHOUT = {
    "compiled_autograd": "dovetail does not read torch._dynamo.config.compiled_autograd: compile the function that "
    "calls backward(), or put torch._dynamo.compiled_autograd._enable(dovetail.compile) around the call",
}


def unread() -> list[tuple[str, str]]:
    """The names of such settings that are switched on, and the words for each."""
    settings = sys.modules.get(_CAPTURE)
    return [(name, words) for name, words in WITHOUT.items() if getattr(settings, name, False)]


def turned_off() -> bool:
    """Is `torch.compile` to give back what it is given?"""
    set_so = getattr(sys.modules.get(_CAPTURE), "disable", False)
    return bool(set_so) or any(os.environ.get(name) == "1" for name in VARIABLES)
