"""Numbers that differ from call to call: inputs of the compiled code or computed by it, not constants in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.fx

from dovetail.capture.values.base import LazyConst, NotNative, Value
from dovetail.ir.literals import in_words
from dovetail.ir.source import Source

if TYPE_CHECKING:
    from dovetail.capture.session import Session


class ScalarValue(LazyConst):
    """A number (or a text made of one) that the compiled entry loads or computes anew in each call.

    `real` is its value in the call that is captured. Whatever needs to know it asks for `value` as for any constant's:
    then the entry relies on that value, and it is a constant from there on. `numbers/input_numbers.py` has what can be
    done without.
    """

    __slots__ = ()

    def __init__(self, s: Session, real: Any, source: Source, sure: bool = False) -> None:
        """`sure`: the type follows from the operands' types, and computing it cannot raise."""
        if sure:
            self.s, self.real, self.source, self.seen = s, real, source, False
        else:
            super().__init__(s, real, source)

    def __repr__(self) -> str:
        return f"<ScalarValue {in_words(self.real)}>"


class NumpyNumber(ScalarValue):
    """One of NumPy's numbers, made of such numbers; `plain` is the same as Python's. See `numbers/numpy_numbers.py`."""

    __slots__ = ("plain",)

    def __init__(self, s: Session, real: Any, source: Source, plain: Value) -> None:
        super().__init__(s, real, source, True)
        self.plain = plain


def plain_number(value: Any) -> Any:
    """The same number as Python's."""
    return value.plain if isinstance(value, NumpyNumber) and not value.seen else value


class GraphNumber(Value):
    """A number that the graph computes from a tensor (`t.item()`); its value is not known while capturing.

    `dim` is what it is in terms of sizes that are only known then; see `capture/numbers/unbacked_sizes.py`.
    """

    __slots__ = ("node", "kind", "dim")

    def __init__(self, node: torch.fx.Node, kind: type, dim: Any = None) -> None:
        super().__init__()
        self.node, self.kind, self.dim = node, kind, dim

    @property
    def cls(self) -> type:  # type: ignore[override]
        return self.kind

    def key(self) -> Any:
        raise NotNative(self)

    def describe(self) -> str:
        return "a number that a tensor holds"


class Claim(Value):
    """`left sign right` of sizes, which nobody knows to be true or false; `claim` is the same as `(sign, Dim)`."""

    __slots__ = ("sign", "left", "right", "claim")
    cls = bool

    def __init__(self, sign: str, left: Value, right: Value, claim: tuple[str, Any]) -> None:
        super().__init__()
        self.sign, self.left, self.right, self.claim = sign, left, right, claim

    def key(self) -> Any:
        raise NotNative(self)

    def describe(self) -> str:
        return "whether a size that is only known when the graph runs is what the code compares it with"


class Answer(Value):
    """`bool(tensor)` of a tensor with one element; nobody knows it before the graph has run."""

    __slots__ = ("tensor",)
    cls = bool

    def __init__(self, tensor: Any) -> None:
        super().__init__()
        self.tensor = tensor

    def key(self) -> Any:
        raise NotNative(self)

    def describe(self) -> str:
        return "an answer that a tensor holds"


class TensorNumber(Value):
    """A float that stays in the graph as a 0-d float64 tensor; see `capture/numbers/tensor_numbers.py`."""

    __slots__ = ("tensor", "positive")
    cls = float

    def __init__(self, tensor: Any, positive: bool) -> None:
        """`positive`: it is greater than zero, or not a number."""
        super().__init__()
        self.tensor, self.positive = tensor, positive

    def key(self) -> Any:
        raise NotNative(self)

    def describe(self) -> str:
        return "a number that a tensor holds"
