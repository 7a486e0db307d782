"""Operators of the program's that write to their arguments, and its Triton kernels, in a graph without writes.

They get copies of what they write to, whose values become those of the originals.
"""

from __future__ import annotations

from typing import Any

import torch

from dovetail.normalize.recording.functional_forms import copying
from dovetail.normalize.recording.operator_calls import own_results
from dovetail.ops.calls.schema import bound, facts
from dovetail.ops.fake import to_fake
from dovetail.ops.own.user_kernel import functional, user_kernel_functional

aten = torch.ops.aten

#: Their results have no values yet.
UNSET = frozenset((
    aten.empty.memory_format, aten.empty_like.default, aten.empty_strided.default, aten.new_empty.default,
    aten.new_empty_strided.default,
))  # fmt: skip


def on_copies(recorder: Any, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
    """Record `func(*args, **kwargs)`, which has no form that writes to nothing."""
    named = bound(func, args, kwargs)
    form, layouts, written = copying(func, {n: named[n] for n in facts(func).written if named.get(n) is not None})
    own = own_results(facts(func), result)
    copies = [to_fake(t, leaf=False) for t in written]
    node = recorder.create(form, *recorder.nodes((layouts, *args), kwargs), [*own, *copies])
    for k, item in enumerate(own):
        if isinstance(item, torch.Tensor):
            recorder.own(item, node, k)
    for k, target in enumerate(written):
        recorder.write(target, recorder.picked(node, len(own) + k))


def launch(recorder: Any, written: list, *others: Any) -> None:
    """Record `user_kernel(written, *others)`. What has no value yet is new memory."""
    given = [recorder.node_of(recorder.handle(t)) for t in written]
    unset = [k for k, node in enumerate(given) if node.target in UNSET]
    layout, kinds = functional(written, unset)
    known = [node for k, node in enumerate(given) if k not in unset]
    args = known, *recorder.nodes(*others), layout, kinds
    node = recorder.emit(user_kernel_functional, *args, device=written[0].device)
    for k, target in enumerate(written):
        recorder.write(target, recorder.picked(node, k))
