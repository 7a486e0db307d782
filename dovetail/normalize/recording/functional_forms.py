"""The operator that computes what a mutating one would write.

    aten.add_.Tensor(a!, b)          ->  aten.add.Tensor(a, b)
    aten.add.out(a, b, out=c!)       ->  aten.add.Tensor(a, b)
    aten.normal_(a!, 0., 1.)         ->  aten.normal_functional(a, 0., 1.)

Others are recorded under another name that computes the same:

    aten._reshape_alias(x, sizes, strides)   ->  aten.view(x, sizes)
    aten._unsafe_view(x, sizes)              ->  aten.view(x, sizes)
    batch_norm_backward(g, x, w, running mean, running variance, ..., train=True)  ->  the same without those two, which
                                                 would otherwise be kept until the backward pass
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.ir.aten import Subprogram
from dovetail.ir.records import dataclass
from dovetail.ops.calls.schema import bound, facts

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Functional:
    """Call `operator` with the mutating one's arguments less `drop`.

    `writes[k]` names the argument that result k is the new value of; None for a result of its own.
    """

    operator: Any
    drop: tuple[str, ...]
    writes: tuple[str | None, ...]


_STATISTICS = (None, None, None, "running_mean", "running_var")

#: Operators that write to running statistics although their schema does not say so, and the operator that
#: returns them instead; None where there is none. They write when they have any and are told to train.
SILENT: dict[Any, Functional | None] = {
    aten.native_batch_norm.default: Functional(aten._native_batch_norm_legit_functional.default, (), _STATISTICS),
    aten.miopen_batch_norm.default: None,
    aten.batch_norm_update_stats.default: None,
}

#: In-place operators whose functional form has its arguments in another order, or another name: the one of the
#: same name gives a tensor of real numbers back as it is.
OTHERWISE: dict[Any, Functional] = {
    aten.polygamma_.default: Functional(aten.polygamma.default, (), ("self",)),
    aten.conj_physical_.default: Functional(aten._conj_physical.default, (), ("self",)),
}


def silent(operator: Any, named: dict[str, Any]) -> Functional | None:
    """The functional form of a call that writes without saying so; None when this one does not."""
    if operator not in SILENT or named.get("running_mean") is None or not named.get("training", True):
        return None
    found = SILENT[operator]
    if found is None:
        raise _no_form(operator)
    return found


@cache
def functional(operator: Any) -> Functional:
    """Raises Unsupported when PyTorch has no functional form of the operator."""
    if operator in OTHERWISE:
        return OTHERWISE[operator]
    schema, known = operator._schema, facts(operator)
    namespace, _, name = schema.name.partition("::")
    packets = getattr(torch.ops, namespace)
    outs = tuple(a.name for a in schema.arguments if a.is_out)
    if outs:
        found = _same_arguments(packets, (name,), operator, outs)
        if found is not None and len(found._schema.returns) == len(outs):
            return Functional(found, outs, outs)
    else:
        candidates = (name.removesuffix("_"), f"{name.removesuffix('_')}_functional", name)
        found = _same_arguments(packets, candidates, operator, ())
        if found is not None:
            return Functional(found, (), _writes(known, found))
    raise _no_form(operator)


@cache
def has_no_form(operator: Any) -> bool:
    """Has PyTorch no functional form of an operator that writes to `out=`? Factories take a type and a device then."""
    try:
        functional(operator)
    except Unsupported:
        return any(a.is_out for a in operator._schema.arguments)
    return False


@cache
def needed(form: Any, operator: Any) -> dict[str, Any]:
    """Arguments that a functional form must be given, and the operator need not: their defaults."""
    wanted = {a.name for a in form._schema.arguments if not a.has_default_value()}
    return {a.name: a.default_value for a in operator._schema.arguments if a.name in wanted and a.has_default_value()}


def copying(operator: Any, written: dict[str, Any]) -> tuple[Subprogram, list, list]:
    """An operator that calls `operator` on copies of the arguments in `written` and gives those last.

    Also the tensors written to, in the order of their copies, and what it takes before its own arguments: how the
    copies are laid out, which is as those tensors are.
    """
    targets = [t for value in written.values() for t in (value if isinstance(value, (list, tuple)) else [value])]
    layouts = [[list(t.shape), list(t.stride())] for t in targets]

    def call(_: Any, layouts: Any, *args: Any, **kwargs: Any) -> list:
        named, copies, layout = bound(operator, args, kwargs), [], iter(layouts)
        for name in written:
            value = named[name]
            made = [
                torch.empty_strided(*next(layout), dtype=t.dtype, device=t.device).copy_(t)
                for t in (value if isinstance(value, (list, tuple)) else [value])
            ]
            named[name] = made if isinstance(value, (list, tuple)) else made[0]
            copies += made
        result = operator(**named)
        results = result if isinstance(result, (tuple, list)) else (result,)
        own = [r for r, owner in zip(results, facts(operator).returned) if owner is None]
        return [*own, *copies]

    form = Subprogram(operator._schema.name.replace("::", "_"), (), call)
    form.tags = operator.tags
    return form, layouts, targets


def _no_form(operator: Any) -> Unsupported:
    return Unsupported(
        "mutating-operator", f"{operator} writes to its arguments and has no functional form",
        "Use an operator that returns a new tensor, or move this step out of the compiled function.",
    )  # fmt: skip


def _same_arguments(packets: Any, names: tuple[str, ...], operator: Any, without: tuple[str, ...]) -> Any:
    """The overload of `names` that takes the same arguments and writes to none of them."""
    wanted = _signature(operator, without)
    for name in names:
        packet = getattr(packets, name, None)
        if packet is None:
            continue
        overloads = packet.overloads()
        overloads.sort(key=lambda o: o != operator._overloadname)
        for overload in overloads:
            candidate = getattr(packet, overload)
            if not facts(candidate).written and _signature(candidate, ()) == wanted:
                return candidate
    return None


def _signature(operator: Any, without: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in operator._schema.arguments if a.name not in without]


def _writes(known: Any, found: Any) -> tuple[str | None, ...]:
    """A functional form returns the mutating one's own results, then each written argument."""
    own = [None for owner in known.returned if owner is None]
    count = len(found._schema.returns)
    written = list(known.written)
    if count == len(own) + len(written):
        return (*own, *written)
    if count == 1 and len(written) == 1:
        return (written[0],)
    if count == 0 and len(written) == 1:
        return ()
    raise _no_form(found)


# ---------------------------------------------------------------- other names

Rewrite = Callable[[tuple, dict[str, Any], Any], tuple[Any, tuple, dict[str, Any]]]


def _view(args: tuple, kwargs: dict[str, Any], val: Any) -> Any:
    return aten.view.default, (args[0], list(val.shape)), {}


def _batch_norm_backward(args: tuple, kwargs: dict[str, Any], val: Any) -> Any:
    gradient, x, weight, _, _, mean, deviation, train, *rest = args
    if train:
        args = (gradient, x, weight, None, None, mean, deviation, train, *rest)
    return aten.native_batch_norm_backward.default, args, kwargs


REWRITES: dict[Any, Rewrite] = {
    aten._reshape_alias.default: _view,
    aten._unsafe_view.default: _view,
    aten.view.default: _view,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
}
