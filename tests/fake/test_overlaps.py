"""Which writes in place are refused since elements share memory: for every operator what eager says."""

from __future__ import annotations

import itertools

import pytest
import torch

from dovetail.ops.fake import FakeMode, to_fake

aten = torch.ops.aten
#: Indices that are what is written to, which nobody writes; what depends on values or on a mode; what checks nothing.
EXCEPT = frozenset(
    """set_ resize_as_ index_add_ index_copy_ index_fill_ scatter_ scatter_add_ bernoulli_ rrelu_ rrelu_with_noise_ put_
    _sobol_engine_initialize_state_ _sobol_engine_scramble_ _sobol_engine_ff_""".split()
)
PLACES = {
    "the same": lambda x: (x[:2], x[:2], x[0]),
    "a part": lambda x: (x[1:3], x[:2], x[2]),
    "beside": lambda x: (x[:2], x[2:4], x[2]),
    "expanded": lambda x: (x[:1].expand(2), x[2:4], x[3]),
    "with gaps": lambda x: (x[::2], x[1:3], x[1]),
    "turned": lambda x: (x.view(2, 2), x.view(2, 2).T, x[1]),
}
VALUES = {"Scalar": 1, "number": 1, "float": 1.0, "int": 0}


def operators():
    """All of them, not only those that something has asked for by now, which are what `dir(aten)` has."""
    for name in sorted({n.removeprefix("aten::").split(".")[0] for n in torch._C._dispatch_get_all_op_names()}):
        packet = getattr(aten, name, None) if name.endswith("_") and name not in EXCEPT else None
        for overload in packet.overloads() if packet is not None else ():
            operator = getattr(packet, overload)
            first = operator._schema.arguments[0].alias_info
            if first is not None and first.is_write:
                yield operator


def arguments(operator, written, read):
    given = []
    for argument in operator._schema.arguments[1:]:
        kind = str(argument.type)
        if kind != "Tensor" and argument.has_default_value():
            return [written, *given]
        if kind != "Tensor" and kind not in VALUES:
            return None
        given.append(read if kind == "Tensor" else VALUES[kind])
    return [written, *given]


def outcome(operator, given):
    try:
        operator(*given)
    except (RuntimeError, NotImplementedError, IndexError, TypeError, ValueError) as error:
        return str(error) if "single memory" in str(error).replace("\n", " ") else None
    return ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_every_operator_in_place(place, dtype):
    compared, different = 0, []
    for operator, scalar in itertools.product(operators(), (False, True)):
        written, *read = PLACES[place](torch.ones(4).to(dtype))
        given = arguments(operator, written, read[scalar])
        expected = None if given is None else outcome(operator, given)
        if expected is None:
            continue
        with FakeMode():
            written, *read = PLACES[place](to_fake(torch.ones(4).to(dtype)))
            if (outcome(operator, arguments(operator, written, read[scalar])) or "") != expected:
                different.append((str(operator), expected))
        compared += 1
    assert compared > 50 and not different
