"""The gradients of one case: compiled forward and backward against eager's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._prims_common
from torch.utils import _pytree as pytree

import dovetail
from dovetail.errors import Unsupported
from tests.opdb.compare import Mismatch, one, widened
from tests.opdb.entries import DEVICE, Case, Entry, copied, database, has_matrix, spread
from tests.opdb.stages import DRAWN, SEED, Outcome, TimedOut, _line, limited

#: All samples of an entry with the first that it supports; a few with each of the others.
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
FEW = 6

#: PyTorch's formula works in place except on subclasses of tensors, such as those that are traced; the gradient is
#: laid out otherwise.
OTHER_LAYOUTS = frozenset(("ormqr",))


def differentiable(op: Any) -> list[torch.dtype]:
    """The dtypes with which gradients of the operator are compared."""
    supported = op.supported_backward_dtypes(DEVICE) if op.supports_autograd else ()
    return [dtype for dtype in DTYPES if dtype in supported]


def entries() -> list[Entry]:
    """Each differentiable operator with each of its dtypes."""
    operators = sorted(database(), key=lambda op: op.formatted_name)
    return [Entry(op, dtype) for op in operators for dtype in differentiable(op)]


def samples(entry: Entry, most: int | None) -> Iterator[Case]:
    """Sample inputs of an operator that is differentiable with the entry's dtype."""
    if entry.dtype is not differentiable(entry.op)[0]:
        most = FEW if most is None else min(most, FEW)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        found = list(entry.op.sample_inputs(DEVICE, entry.dtype, requires_grad=True))
    for k in spread(len(found), most):
        sample = found[k]
        yield Case(f"gradient {k}", entry.op.op, (sample.input, *sample.args), dict(sample.kwargs),
                   operator=entry.op.name)
        if has_matrix(sample):
            other = sample.noncontiguous()
            yield Case(f"gradient {k} non-contiguous", entry.op.op, (other.input, *other.args), dict(other.kwargs),
                       operator=entry.op.name)


def run(case: Case) -> Outcome:
    with warnings.catch_warnings(), torch.enable_grad(), limited():
        warnings.simplefilter("ignore")
        try:
            return _run(case)
        except TimedOut as error:
            return Outcome(case.label, "fail", "time", str(error))


def _run(case: Case) -> Outcome:
    try:
        want = _gradients(case.fn, _leaves(case))
    except Exception as error:  # whatever eager refuses is no case
        return Outcome(case.label, "skip", "eager", _line(error))
    if not want:
        return Outcome(case.label, "skip", "eager", "nothing is differentiable")

    def call(args: Any, kwargs: Any) -> Any:
        return case.fn(*args, **kwargs)

    right = Outcome(case.label, "pass")
    try:
        try:
            got = _gradients(_spread(dovetail.compile(call, fullgraph=True, options=DRAWN)), _leaves(case))
        except Unsupported as error:
            right = Outcome(case.label, "break", "capture", _line(error), error.code)
            got = _gradients(_spread(dovetail.compile(call, options=DRAWN)), _leaves(case))
        _compare(got, want, case)
        return right
    except TimedOut:
        raise
    except Exception as error:  # reported as the case's failure
        return Outcome(case.label, "fail", "gradients", _line(error))


def _spread(compiled: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: compiled(args, kwargs)


def _leaves(case: Case) -> Any:
    """The arguments copied; those that require gradients are leaves."""
    memories: dict[int, torch.UntypedStorage] = {}

    def leaf(t: torch.Tensor) -> torch.Tensor:
        return copied(t.detach(), memories).requires_grad_(t.requires_grad)

    return pytree.tree_map_only(torch.Tensor, leaf, (case.args, case.kwargs))


def _gradients(fn: Callable[..., Any], inputs: Any) -> dict[str, Any]:
    """Outputs that require gradients and the gradients of inputs, for fixed random tangents."""
    torch.manual_seed(SEED)
    args, kwargs = inputs
    outputs = [t for t in pytree.tree_leaves(fn(*args, **kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = [t for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not leaves:
        return {}
    torch.manual_seed(SEED)
    tangents = [torch.randn_like(t, dtype=wider(t.dtype)).to(t.dtype) for t in outputs]
    found = torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)
    return {
        **{f"output {k}": t.detach() for k, t in enumerate(outputs)},
        **{f"gradient {k}": g for k, g in enumerate(found)},
    }  # fmt: skip


def wider(dtype: torch.dtype) -> torch.dtype:
    """Tangents are the same numbers whatever the dtype."""
    return torch.complex64 if dtype.is_complex else torch.float32


def _compare(got: dict[str, Any], want: dict[str, Any], case: Case) -> None:
    if got.keys() != want.keys():
        raise Mismatch(f"{sorted(got)} for eager's {sorted(want)}")
    computed: dict[str, Any] = {}

    def exact(place: str) -> Any:
        if not computed:
            wide = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), _wide(case))
            try:
                computed.update(_gradients(case.fn, wide))
            except (RuntimeError, TypeError, ValueError):
                return None
        return computed.get(place)

    for place, eager in want.items():
        mine = got[place]
        if (mine is None) != (eager is None):
            zero = mine if eager is None else eager
            if bool((zero != 0).any()):
                raise Mismatch(f"{place} is {'None' if mine is None else 'a tensor'}, eager's is not")
            continue
        if eager is not None:
            if place.startswith("gradient") and not (dense(eager) and case.operator not in OTHER_LAYOUTS):
                mine, eager = mine.to_dense().contiguous(), eager.to_dense().contiguous()
            one(place, mine, eager, lambda place=place: exact(place))  # type: ignore[misc]


def dense(tensor: torch.Tensor) -> bool:
    """Has it memory of its own, each element in a place of its own? Eager may also give a part of a larger gradient,
    or one element for all; ours is then a copy."""
    return tensor.layout is not torch.strided or torch._prims_common.is_non_overlapping_and_dense_or_false(tensor)


def _wide(case: Case) -> Any:
    return widened(_leaves(case))
