"""Factors that PyTorch takes as numbers (`alpha=`, `value=`) and that a tensor of the graph holds.

Eager reads the number out of the tensor; the graph multiplies by the tensor. `x.addcdiv_(a, b, value=t)` becomes
`x.add_(a.mul(t).div(b))`, in which PyTorch's kernels take the steps in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.capture.values.base import Value
from dovetail.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from dovetail.capture.session import Session

#: Method → the name of its factor, and how the second tensor joins the first; None: there is one tensor.
FACTORS: dict[str, tuple[str, str | None]] = {
    "add": ("alpha", None), "sub": ("alpha", None), "addcmul": ("value", "mul"), "addcdiv": ("value", "div"),
}  # fmt: skip


def scaled(s: Session, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The call with its factor as a tensor; None where that is a number."""
    found = FACTORS.get(name.removesuffix("_"))
    if found is None or not isinstance(kwargs.get(found[0]), TensorValue) or not isinstance(args[1], TensorValue):
        return None
    factor, join = found
    term = s.torch_method("mul", [args[1], kwargs[factor]], {})
    if join is not None:
        term = s.torch_method(join, [term, args[2]], {})
    outer = "sub" if name.startswith("sub") else "add"
    return s.torch_method(outer + "_" * name.endswith("_"), [args[0], term], {})
