"""What values leave to the layers above them: Python's own rules, each of which is one function there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from dovetail.capture.values.array import ArrayValue
    from dovetail.capture.values.base import Args, Kwargs, Value
    from dovetail.capture.values.callables import ClassValue, FunctionValue, KnownValue, PyModuleValue, SuperValue
    from dovetail.capture.values.tensor import TensorValue
    from dovetail.ir.source import Source


class Rules(Protocol):
    """The session has them from the files that it names; values know no other operation of it."""

    def wrap(self, obj: Any, source: Source | None) -> Value:
        """The value for an object from outside, found at `source`; None: its path is trusted not to change."""

    def from_native(self, obj: Any) -> Value:
        """The value for what native code just made."""

    def wrap_tensor(self, real: torch.Tensor, source: Source) -> Value: ...

    # ------------------------------------------------------------ attributes

    def generic_get_attr(self, value: Value, name: str) -> Value:
        """`object.__getattribute__`, and `__getattr__` after it."""

    def class_get_attr(self, value: ClassValue, name: str) -> Value: ...

    def super_get_attr(self, value: SuperValue, name: str) -> Value: ...

    def pymodule_get_attr(self, value: PyModuleValue, name: str) -> Value: ...

    def tensor_get_attr(self, value: TensorValue, name: str) -> Value: ...

    def array_get_attr(self, value: ArrayValue, name: str) -> Value: ...

    # ------------------------------------------------------------ calls

    def call_function(self, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value: ...

    def call_known(self, function: KnownValue, args: Args, kwargs: Kwargs) -> Value: ...

    def call_class(self, value: ClassValue, args: Args, kwargs: Kwargs) -> Value: ...

    def call_object(self, value: Value, args: Args, kwargs: Kwargs) -> Value:
        """By the `__call__` of its class."""

    # ------------------------------------------------------------ operators

    def truth(self, value: Value) -> bool: ...

    def equal(self, left: Value, right: Value) -> bool:
        """`left is right or left == right`, as containers compare."""

    def get_item(self, container: Value, index: Value) -> Value: ...

    def hashable(self, value: Value) -> Any:
        """The native key of a dictionary's; raises in the traced program if there is none."""

    def step(self, iterator: Value) -> Value | None:
        """The next item; None at the end."""
