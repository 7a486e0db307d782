"""What an operator's result looks like, by the cheapest means that knows."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.ir.devices import HOST, on_host
from dovetail.ir.liveness import leaves, mapped
from dovetail.ops.calls.effects import finds_sizes
from dovetail.ops.calls.foreach import apart, takes_list
from dovetail.ops.calls.fused_optimizers import fused, is_fused
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake import meta_kernels
from dovetail.ops.fake.errors import eager_errors, eager_trials
from dovetail.ops.fake.result_spec import ForOverload, Spec, marked
from dovetail.ops.fake.rules.creation import placed
from dovetail.ops.fake.rules.elementwise import IN_PLACE, elementwise, in_place, is_elementwise
from dovetail.ops.fake.symbolic import unbacked
from dovetail.ops.fake.symbolic.size_questions import all_same, takes_sizes
from dovetail.ops.fake.triton_ops import launching_nothing
from dovetail.ops.fake.without_dynamo import without_dynamo
from dovetail.ops.lowering.registry import Row
from dovetail.ops.table import functional_row, is_composite

_DATA_DEPENDENT = {
    torch.Tag.dynamic_output_shape: ("data-dependent-output", "the size of its result depends on values"),
    torch.Tag.data_dependent_output: ("data-dependent-value", "its result is a Python value that depends on a tensor"),
}
#: Operators without a tag that newer versions of PyTorch give them.
_UNTAGGED = {torch.ops.aten._unique.default: torch.Tag.dynamic_output_shape}
_META = torch.device("meta")
_REMEDY = "Keep the value in a tensor (torch.where, masks), or move this step out of the compiled function."


def infer(
    func: Any, args: tuple, kwargs: dict[str, Any], cls: type,
    from_meta: Callable[..., Any], refuse_unusual: Callable[..., None],
) -> Any:
    """Raises Unsupported for results that depend on values, and whatever eager raises for bad shapes."""
    row = functional_row(func)
    _refuse(row, func, args, kwargs)
    rule = _rule(func)
    if rule is not None:
        found = rule(*args, **kwargs)
        if found is not NotImplemented:
            return _wrap_spec(found, cls)
    if is_composite(func) and torch.is_inference_mode_enabled():
        return func.decompose(*args, **kwargs)  # elsewhere PyTorch takes it apart before anybody sees it
    sized = takes_sizes(args, kwargs)
    if sized and row.symbolic_shape is not None:
        found = row.symbolic_shape(*args, **kwargs)
        if found is not NotImplemented:
            return _seen(func, _wrap_spec(found, cls), args[0])
    if unbacked.active() is not None and finds_sizes(func, args, kwargs):
        if row.discovers is not None:
            return _wrap_spec(row.discovers(unbacked.active(), *args, **kwargs), cls)
        args = unbacked.without_masks(args, cls)
        sized = True
    if args is NotImplemented or not _index_of_integers(func, args):
        refuse_data_dependent(func)
    if torch.Tag.inplace_view in func.tags:
        return _in_place_view(func, args, kwargs)
    args, kwargs = _with_device_named(func, args, kwargs)
    device = _device(args, kwargs)
    schema = func._schema
    to_meta = partial(_meta_of, cls)
    try:
        meta_args = mapped(args, to_meta)
        meta_kwargs = {k: mapped(v, to_meta) for k, v in kwargs.items()}
        if meta_kwargs.get("device") is not None or _device_place(func) is not None:
            meta_kwargs["device"] = _META
        with without_dynamo(), _unheard(schema), launching_nothing(func):
            result = (meta_kernels.run if sized else lambda f, a, k: f(*a, **k))(func, meta_args, meta_kwargs)
    except NotImplementedError:
        return meta_kernels.infer_by_mode(func, args, kwargs, cls, refuse_unusual)
    if schema.is_mutable:
        _refuse_resized(schema, kwargs, meta_kwargs)
        return _mutated(schema, args, kwargs, result, device, from_meta)
    return _from_meta(result, device, from_meta)


def _refuse(row: Row, func: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raises what eager raises, and neither our own rules nor meta kernels do."""
    if row.refuses is not None:
        row.refuses(*args, **kwargs)
    if func._schema.is_mutable:
        eager_errors.check(func, args, kwargs)
    if row.trial is not None:
        eager_trials.attempt(row.trial, func, args, kwargs)


#: Where operators of a namespace have meta kernels that PyTorch itself does not load. Without it another kernel runs,
#: and a collective would be made.
_KERNELS = {"_c10d_functional": "torch.distributed._functional_collectives"}


@cache
def _rule(func: Any) -> Callable[..., Any] | None:
    if func.namespace in _KERNELS:
        importlib.import_module(_KERNELS[func.namespace])
    found = functional_row(func).shape
    if isinstance(found, ForOverload):
        found = found.make(func)
    if found is None and takes_list(func):
        return lambda *args, **kwargs: apart(func, args, kwargs)
    if found is None and is_fused(func):
        return lambda *args, **kwargs: fused(func, args, kwargs)
    if found is None and func in IN_PLACE:
        return lambda *args, **kwargs: in_place(args, kwargs)
    if found is None and is_elementwise(func):
        return lambda *args, **kwargs: elementwise(func, args, kwargs)
    return found


def refuse_data_dependent(func: Any) -> None:
    """Raise Unsupported where the operator's tags say that its result depends on values."""
    found = _dependence(func)
    if found is not None:
        raise Unsupported(found[0], f"{func} cannot be part of a graph: {found[1]}", _REMEDY)


@cache
def _dependence(func: Any) -> tuple[str, str] | None:
    tags = {*func.tags, _UNTAGGED.get(func)}
    return next((found for tag, found in _DATA_DEPENDENT.items() if tag in tags), None)


def _in_place_view(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`unsqueeze_`, `t_`, `as_strided_`: PyTorch's own kernel changes the wrapper's sizes and strides."""
    if keeps_size(func, args):
        return args[0]
    if func._schema.name in _STORAGE:
        raise Unsupported("metadata-mutation", f"{func} changes the memory of a tensor in place",
                          "Make a new tensor instead.")
    tensor = args[0]
    with torch._C._DisableTorchDispatch():
        func(*args, **kwargs)
    tensor._meta = None
    return tensor


def keeps_size(func: Any, args: tuple) -> bool:
    """`resize_` to the sizes that the tensor has does nothing: functions do so to what they get as `out=`."""
    return func is torch.ops.aten.resize_.default and all_same(args[0].shape, args[1])


#: These change which memory a tensor has.
_STORAGE = frozenset(("aten::set_", "aten::resize_", "aten::resize_as_", "aten::set_data"))


_INDEX = torch.ops.aten.index.Tensor


def _index_of_integers(func: Any, args: tuple) -> bool:
    """aten.index carries the tag for the sake of masks; with integer indices its shape is known."""
    indices = args[1] if func is _INDEX else ()
    return bool(indices) and all(i is None or i.dtype not in (torch.bool, torch.uint8) for i in indices)


def _wrap_spec(found: Any, cls: type) -> Any:
    if isinstance(found, Spec):
        return cls(found.sizes, found.strides, found.dtype, found.device, found.offset)
    if isinstance(found, (tuple, list)):
        return type(found)(_wrap_spec(f, cls) for f in found)
    return found


def _seen(func: Any, found: Any, base: Any) -> Any:
    """A view has the conjugation and the sign that its tensor leaves for later."""
    if facts(func).view and (base.is_conj() or base.is_neg()):
        for view in _tensors(found):
            marked(view, base)
    return found


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def _device(args: tuple, kwargs: dict[str, Any]) -> torch.device:
    """An explicit device, else that of the first tensor that is no CPU scalar, else the default."""
    if kwargs.get("device") is not None:
        return placed(kwargs["device"])
    tensors = _tensors((args, kwargs))
    for t in tensors:
        if t.dim() or not on_host(t):
            return t.device
    return tensors[0].device if tensors else HOST


def _meta_of(cls: type, value: Any) -> Any:
    if type(value) is cls:
        return value.meta  # type: ignore[attr-defined]
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    return value


def _from_meta(result: Any, device: torch.device, from_meta: Callable[..., Any]) -> Any:
    return mapped(result, lambda leaf: from_meta(leaf, device) if isinstance(leaf, torch.Tensor) else leaf)


def _mutated(schema: Any, args: Any, kwargs: Any, result: Any, device: Any, from_meta: Callable[..., Any]) -> Any:
    """Results that the schema declares to be a mutated argument are that argument."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    found = []
    for declared, value in zip(schema.returns, results, strict=False):
        if declared.alias_info is not None and declared.alias_info.is_write:
            found.append(_argument(schema, args, kwargs, declared.alias_info.before_set))
        else:
            found.append(_from_meta(value, device, from_meta))
    if isinstance(result, (tuple, list)):
        return type(result)(found)
    return found[0] if found else None


def _unheard(schema: Any) -> Any:
    """Eager warns where it resizes `out=`; what is resized here is refused."""
    writes = schema.is_mutable and any(a.is_out for a in schema.arguments)
    return warnings.catch_warnings(action="ignore") if writes else nullcontext()


def _with_device_named(func: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The same arguments, a device by its name: operators that are called below autograd may be given it in order."""
    place = _device_place(func)
    if place is None or place >= len(args):
        return args, kwargs
    names = [a.name for a in func._schema.arguments[place : len(args)]]
    return args[:place], {**dict(zip(names, args[place:], strict=True)), **kwargs}


@cache
def _device_place(func: Any) -> int | None:
    """Of the argument that says on which device."""
    return next((k for k, a in enumerate(func._schema.arguments) if a.name == "device"), None)


def _refuse_resized(schema: Any, given: dict[str, Any], written: dict[str, Any]) -> None:
    """`written` are the `meta` tensors of `given` after the operator: `out=` is made to fit the result."""
    for argument in schema.arguments:
        if argument.is_out and argument.name in given:
            for before, after in zip(_tensors(given[argument.name]), _tensors(written[argument.name]), strict=True):
                if before.shape != after.shape:
                    raise resized(before.shape, after.shape)


def resized(given: Any, result: Any) -> Unsupported:
    """The error for `out=` of another size than the result's."""
    return Unsupported(
        "resized-output", f"a tensor of shape {tuple(given)} is given as out= for a result of shape {tuple(result)}",
        "Give a tensor of the right shape.",
    )  # fmt: skip


def _argument(schema: Any, args: Any, kwargs: Any, labels: Any) -> Any:
    for position, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if info is not None and info.before_set == labels:
            return kwargs[argument.name] if argument.name in kwargs else args[position]
    raise AssertionError(f"{schema} returns an alias of nothing")
