"""The last resort: PyTorch's own FakeTensorMode, which knows every operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from dovetail.errors import Unsupported


class NoShapeRule(NotImplementedError):
    """Nothing says what an operator gives; any other NotImplementedError is a refusal that eager makes too."""


def infer(func: Any, args: Any, kwargs: Any, cls: type, refuse_unusual: Callable[..., None]) -> Any:
    """Run `func` on PyTorch's fake tensors and convert the result to ours, after a look at it by `refuse_unusual`."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def there(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            with mode:
                return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
        if isinstance(value, (tuple, list)):
            return type(value)(there(v) for v in value)
        return value

    def back(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            refuse_unusual(value)
            return cls(value.size(), value.stride(), value.dtype, value.device, value.storage_offset())
        if isinstance(value, (tuple, list)):
            return type(value)(back(v) for v in value)
        return value

    try:
        with mode:
            return back(func(*there(args), **{k: there(v) for k, v in kwargs.items()}))
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Unsupported("data-dependent-output", f"the result of {func} depends on the values in a tensor",
                          "move this step out of the compiled function") from error
    except UnsupportedOperatorException as error:
        raise NoShapeRule(f"{func} has no fake implementation") from error
