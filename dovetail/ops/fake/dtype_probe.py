"""The dtype and device of an element-wise result, found by running the operator on single elements.

PyTorch decides them from dtypes, devices, numbers and whether tensors have dimensions, and refuses fewer numbers where
there are no elements; so does the key of the table here. Running the kernel itself also raises eager's own error for
dtypes that it does not implement. One probe takes about 10 us, once per key and process.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.stores import Store
from dovetail.ops.fake.symbolic.size_questions import empty

_known = Store(5000)


def probe(operator: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[torch.dtype, torch.device]:
    """Raises what eager raises. `operator` must be deterministic and return one tensor."""
    key = (
        operator, *map(_key, args), *((name, _key(value)) for name, value in kwargs.items()), torch.get_default_dtype()
    )  # fmt: skip
    found = _known.get(key)
    if found is None:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            result = operator(*map(_one, args), **{name: _one(value) for name, value in kwargs.items()})
        found = _known.keep(key, (result.dtype, result.device))
    return found


def probe_reduction(operator: Any, args: tuple, kwargs: dict[str, Any]) -> tuple:
    """The dtypes of the results for a first argument of this rank; a single result counts as one."""
    x, *rest = args
    key = (
        operator, x.dtype, x.device, x.dim(), *map(_exact, rest), *((k, _exact(v)) for k, v in kwargs.items()),
        torch.get_default_dtype(),
    )  # fmt: skip
    found = _known.get(key)
    if found is None:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            ones = torch.ones((2,) * x.dim(), dtype=x.dtype, device=x.device)
            result = operator(ones, *rest, **kwargs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        found = _known.keep(key, tuple(r.dtype for r in results))
    return found


def _exact(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_exact, value))
    return type(value), repr(value)


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device, _sizes(value)
    return type(value), repr(value) if type(value) in (int, float, complex) else value if _plain(value) else None


def _sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    """One element, or none; no dimensions where the tensor has none."""
    shape = tensor.shape
    return (0 if empty(shape) else 1,) if shape else ()


def _plain(value: Any) -> bool:
    return isinstance(value, (bool, str, torch.dtype, type(None)))


def _one(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.ones(_sizes(value), dtype=value.dtype, device=value.device)
    if isinstance(value, torch.SymInt):
        return 1
    return 1.0 if isinstance(value, torch.SymFloat) else value
