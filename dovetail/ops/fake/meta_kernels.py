"""PyTorch's meta kernels on `meta` tensors with symbolic sizes.

Kernels written in Python call views of their arguments on the way, and factories; those that want plain integers are
answered by our own rules here too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode

from dovetail.errors import Unsupported
from dovetail.ir.liveness import leaves, mapped
from dovetail.ops.fake.result_spec import Spec, meta
from dovetail.ops.fake.symbolic.number import PLAIN, needed
from dovetail.ops.table import functional_row

META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)


class _Metas(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = functional_row(func).symbolic_shape
        if rule is not None:
            found = rule(*args, **kwargs)
            if found is not NotImplemented:
                return _made(found)
        if func._schema.name in PLAIN:
            raise needed()
        with self:
            return _kernel(func)(*args, **kwargs)


def run(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The result of the operator's meta kernel."""
    with _Metas():
        return _kernel(func)(*args, **kwargs)


@cache
def _kernel(func: Any) -> Callable[..., Any]:
    """A meta kernel, else a decomposition in Python; those in C++ want plain integers more often."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(func._name, "Meta"):
        return partial(func._op_dk, torch._C.DispatchKey.Meta)
    return decomposition_table.get(func) or partial(func.redispatch, META)


def _made(found: Any) -> Any:
    if isinstance(found, Spec):
        return meta(found.sizes, found.strides, found.dtype, found.offset)
    return type(found)(map(_made, found)) if isinstance(found, (list, tuple)) else found


# ---------------------------------------------------------------- the last resort


class NoShapeRule(NotImplementedError):
    """Nothing says what an operator gives; any other NotImplementedError is a refusal that eager makes too."""


def infer_by_mode(func: Any, args: Any, kwargs: Any, cls: type, refuse_unusual: Callable[..., None]) -> Any:
    """The result under PyTorch's own FakeTensorMode, which knows every operator, as one of ours, after a look at it by
    `refuse_unusual`."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    if any(isinstance(leaf, torch.ScriptObject) for leaf in leaves((args, kwargs))):
        mode.cache_enabled = False  # its keys compare arguments, and such objects refuse to be compared

    def there(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            with mode:
                return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
        return value

    def back(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            refuse_unusual(value)
            return cls(value.size(), value.stride(), value.dtype, value.device, value.storage_offset())
        return value

    try:
        with mode:
            return mapped(func(*mapped(args, there), **{k: mapped(v, there) for k, v in kwargs.items()}), back)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Unsupported("data-dependent-output", f"the result of {func} depends on the values in a tensor",
                          "Move this step out of the compiled function.") from error
    except NotImplementedError as error:
        if "OpaqueTensorImpl" not in str(error):
            raise
        raise Unsupported("sparse-tensor", f"{func} gives a tensor in oneDNN's own layout, and only strided tensors "
                          "are compiled", "Leave layouts to the compiler.") from error
    except UnsupportedOperatorException as error:
        raise NoShapeRule(f"{func} has no fake implementation") from error
