"""torch.distributions: argument validation without a branch on tensors.

The two functions of `Distribution` that validate are traced as written here. Each check becomes an operator of the
graph that raises what PyTorch raises, with the same message.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.distributions import Distribution, constraints
from torch.distributions.utils import lazy_property

from dovetail.capture.tables.known_callables import known, standin
from dovetail.capture.values.base import NONE, Args, Kwargs, Session, Value, boolean
from dovetail.capture.values.containers import ListValue
from dovetail.capture.values.tensor import TensorValue, as_tensor
from dovetail.ops.own.check import check

SCALAR = torch.Size()


def require(valid: Any, shown: list, text: str) -> None:
    """`if not valid.all(): raise ValueError(text.format(*shown))`; traced as an operator."""
    raise NotImplementedError


@known(require)
def _require(s: Session, args: Args, kwargs: Kwargs) -> Value:
    valid, shown, text = args
    if not isinstance(valid, TensorValue) or not isinstance(shown, ListValue):
        return NONE if s.truth(valid) else s.throw(ValueError, text.native().format(*shown.native()))
    condition = as_tensor(s.torch_method("all", [valid], {}))
    shown_nodes = [as_tensor(v).node for v in shown.all(s)]
    s.state_node(check, condition.node, shown_nodes, text.native())
    return NONE


def made_when_read(distribution: Any, name: str) -> bool:
    """Is the parameter a lazy property of the class?"""
    raise NotImplementedError


known(made_when_read)(
    lambda s, args, kwargs: boolean(isinstance(s.static(args[0].cls, args[1].native()), lazy_property))
)


def shown_as(distribution: Any, shown: list) -> str:
    """`repr(distribution)` as a format string; numbers among its parameters are added to `shown`."""
    if type(distribution).__repr__ is not Distribution.__repr__:
        return repr(distribution).replace("{", "{{").replace("}", "}}")
    parts = []
    for name in distribution.arg_constraints:
        if name in distribution.__dict__:
            value = distribution.__dict__[name]
            if value.numel() == 1:
                parts.append(name + ": {" + str(len(shown)) + "}")
                shown.append(value)
            else:
                parts.append(f"{name}: {value.size()}")
    return type(distribution).__name__ + "(" + ", ".join(parts) + ")"


def bounds_shown(constraint: Any, shown: list) -> str:
    """`repr(constraint)` as a format string."""
    names = [n for n in ("lower_bound", "upper_bound") if hasattr(constraint, n)]
    if not any(isinstance(getattr(constraint, n), torch.Tensor) for n in names):
        return repr(constraint).replace("{", "{{").replace("}", "}}")
    parts = []
    for name in names:
        value = getattr(constraint, name)
        if isinstance(value, torch.Tensor):
            parts.append(name + "={" + str(len(shown)) + "}")
            shown.append(value)
        else:
            parts.append(f"{name}={value}")
    return type(constraint).__name__[1:] + "(" + ", ".join(parts) + ")"


@standin(type(constraints.symmetric).check)
def symmetric(self: Any, value: Any) -> Any:
    if value.shape[-2] != value.shape[-1]:
        return constraints.square.check(value)
    return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


@standin(type(constraints.positive_semidefinite).check)
def positive_semidefinite(self: Any, value: Any) -> Any:
    return constraints.symmetric.check(value) & torch.linalg.eigvalsh(value).ge(0).all(-1)


@standin(type(constraints.positive_definite).check)
def positive_definite(self: Any, value: Any) -> Any:
    return constraints.symmetric.check(value) & torch.linalg.cholesky_ex(value).info.eq(0)


@standin(Distribution.__init__)
def initialize(self: Any, batch_shape: Any = SCALAR, event_shape: Any = SCALAR, validate_args: Any = None) -> None:
    self._batch_shape = batch_shape
    self._event_shape = event_shape
    if validate_args is not None:
        self._validate_args = validate_args
    if self._validate_args:
        try:
            needed = self.arg_constraints
        except NotImplementedError:
            needed = {}
            warnings.warn(f"{self.__class__} does not define `arg_constraints`.", stacklevel=2)
        for name, constraint in needed.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and made_when_read(self, name):
                continue
            value = getattr(self, name)
            shown: list = []
            text = (
                f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                f"{shown_as(self, shown)} to satisfy the constraint {bounds_shown(constraint, shown)}, "
                "but found invalid values:\n"
            )
            require(constraint.check(value), [*shown, value], text + "{" + str(len(shown)) + "}")


@standin(Distribution._validate_sample)
def validate_sample(self: Any, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise ValueError("The value argument to log_prob must be a Tensor")
    start = len(value.size()) - len(self._event_shape)
    if value.size()[start:] != self._event_shape:
        raise ValueError(
            f"The right-most size of value must match event_shape: {value.size()} vs {self._event_shape}."
        )
    actual, expected = value.size(), self._batch_shape + self._event_shape
    for i, j in zip(reversed(actual), reversed(expected)):
        if i != 1 and j != 1 and i != j:
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {actual} vs {expected}.")
    try:
        support = self.support
    except NotImplementedError:
        warnings.warn(f"{self.__class__} does not define `support` to enable sample validation.", stacklevel=2)
        return
    shown: list = []
    text = (
        f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
        f"({bounds_shown(support, shown)}) of the distribution {shown_as(self, shown)}, but found invalid values:\n"
    )
    require(support.check(value), [*shown, value], text + "{" + str(len(shown)) + "}")
