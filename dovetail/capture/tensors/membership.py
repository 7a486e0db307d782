"""`t in [1, 2]` of a tensor with one element, where the answer only leaves the graph.

    return t in [1, 2]      ->      %found = (t == 1) | (t == 2); return bool(_o[0])

Who branches on it ends the graph there.
"""

from __future__ import annotations

import operator

from dovetail.capture.numbers.input_numbers import is_number
from dovetail.capture.values.base import MISSING, Const, Session, Value, boolean
from dovetail.capture.values.containers import SequenceValue, TupleValue
from dovetail.capture.values.tensor import Answer, TensorValue


def held(s: Session, container: Value, item: Value, wanted: bool) -> Value | None:
    """`item in container`, or `not in` unless `wanted`; None where Python is to go through the items."""
    if s.graph is not s.root or not isinstance(container, SequenceValue) or container.cls not in (list, tuple):
        return None
    inside = container.real is MISSING and container.span is None
    if not isinstance(item, TensorValue) and not (inside and any(isinstance(v, TensorValue) for v in container.items)):
        return None
    found: Value | None = None
    for other in container.all(s):
        if not all(isinstance(v, TensorValue) or is_number(v) for v in (other, item)):
            return None
        if s.same(other, item):
            return boolean(wanted)
        equal = s.compare("==", other, item)
        if isinstance(equal, Const):
            if equal.value:
                return boolean(wanted)
            continue
        if not isinstance(equal, TensorValue) or equal.fake.numel() != 1:
            return None
        equal = s.torch_method("reshape", [equal, TupleValue([])], {})
        found = equal if found is None else s.torch_call(operator.or_, [found, equal], {})
    if found is None:
        return boolean(not wanted)
    return Answer(found if wanted else s.torch_method("logical_not", [found], {}))
