"""A generated entry accepts the call it was built for, refuses every other, and can say why."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dovetail import guards
from dovetail.guards.conditions import same_value
from dovetail.ir.captured import Captured
from dovetail.ir.guard import MISS, Guard, GuardKind, TensorFacts
from dovetail.ir.outside import outside_reason
from dovetail.ir.source import Arg, Attr, Computed, Global, Item

X, Y = Arg("x"), Arg("y")


def facts(t: torch.Tensor, **changes: Any) -> TensorFacts:
    known = {
        "cls": type(t), "dtype": t.dtype, "device": t.device, "sizes": tuple(t.shape), "strides": t.stride(),
        "offset": t.storage_offset(), "requires_grad": t.requires_grad,
        "dispatch_keys": torch._C._dispatch_keys(t), "layout": t.layout,
    }  # fmt: skip
    return TensorFacts(**{**known, **changes})


def fn(x, y=None): ...


def entry(*given: Guard, bound: tuple = (), parameters: str = "x, y=None", names: dict | None = None) -> guards.Entry:
    residual = f"def residual({parameters}):\n    return 'hit'\n"
    graph = torch.fx.GraphModule({}, torch.fx.Graph())
    captured = Captured(graph, (), given, residual, names or {}, bound)
    return guards.build(captured, fn, lambda *a: a, guards.snapshot())


def hits(made: guards.Entry, *args: Any) -> bool:
    args = args or (1,)
    result = made.call(*args)
    assert result is MISS or result == "hit"
    failed = made.failures(args, {})
    assert bool(failed) == (result is MISS), failed
    return result is not MISS


EVEN = Computed("({} % 2 == 0)", (Item(Attr(Arg("x"), "shape"), 0),))

ACCEPTS: list[tuple[GuardKind, Any, Any]] = [
    (GuardKind.TYPE, int, 3),
    (GuardKind.TYPE, dict, {}),
    (GuardKind.ID, math, math),
    (GuardKind.ID, None, None),
    (GuardKind.ID, ..., ...),
    (GuardKind.EQUAL, 3, 3),
    (GuardKind.EQUAL, "a", "a"),
    (GuardKind.EQUAL, 0.0, 0.0),
    (GuardKind.EQUAL, math.nan, float("nan")),
    (GuardKind.EQUAL, math.inf, math.inf),
    (GuardKind.EQUAL, 1 + 2j, 1 + 2j),
    (GuardKind.EQUAL, (1, ("a", None)), (1, ("a", None))),
    (GuardKind.EQUAL, torch.float32, torch.float32),
    (GuardKind.EQUAL, torch.device("cpu"), torch.device("cpu")),
    (GuardKind.EQUAL, range(3), range(3)),
    (GuardKind.EQUAL, slice(1, 2), slice(1, 2)),
    (GuardKind.EQUAL, frozenset({1, 2}), frozenset({2, 1})),
    (GuardKind.LENGTH, 2, [1, 2]),
    (GuardKind.KEYS, ("a", "b"), {"a": 1, "b": 2}),
    (GuardKind.KEYS, (1, "b"), {1: 1, "b": 2}),
    (GuardKind.KEYS, (), {}),
    (GuardKind.HAS_ATTR, ("sin", True), math),
    (GuardKind.HAS_ATTR, ("sinus", False), math),
    (GuardKind.CONTAINS, ("a", True), {"a": 1}),
    (GuardKind.CONTAINS, ((1,), False), {"a": 1}),
    (GuardKind.SIZE, EVEN, torch.ones(4)),
]

REFUSES: list[tuple[GuardKind, Any, Any]] = [
    (GuardKind.TYPE, int, True),
    (GuardKind.TYPE, dict, []),
    (GuardKind.ID, math, pytest),
    (GuardKind.ID, None, 0),
    (GuardKind.EQUAL, 3, 4),
    (GuardKind.EQUAL, 1, True),
    (GuardKind.EQUAL, 1, 1.0),
    (GuardKind.EQUAL, 0.0, -0.0),
    (GuardKind.EQUAL, -0.0, 0.0),
    (GuardKind.EQUAL, math.nan, 1.0),
    (GuardKind.EQUAL, 1.5, math.nan),
    (GuardKind.EQUAL, complex(0.0, 0.0), complex(0.0, -0.0)),
    (GuardKind.EQUAL, (1, 2), (1, 2.0)),
    (GuardKind.EQUAL, (1, 2), [1, 2]),
    (GuardKind.EQUAL, (1,), torch.Size((1,))),
    (GuardKind.EQUAL, torch.float32, torch.float64),
    (GuardKind.EQUAL, torch.device("cpu"), torch.device("meta")),
    (GuardKind.EQUAL, range(0, 3, 2), range(0, 4, 2)),
    (GuardKind.EQUAL, slice(1, 2), slice(1, 2, 1)),
    (GuardKind.EQUAL, {1, 2}, {1, 2.0}),
    (GuardKind.LENGTH, 2, [1]),
    (GuardKind.LENGTH, 2, 5),
    (GuardKind.KEYS, ("a", "b"), {"b": 1, "a": 2}),
    (GuardKind.KEYS, (1,), {True: 1}),
    (GuardKind.KEYS, (), {"a": 1}),
    (GuardKind.HAS_ATTR, ("sin", False), math),
    (GuardKind.CONTAINS, ("a", False), {"a": 1}),
    (GuardKind.SIZE, EVEN, torch.ones(3)),
]


@pytest.mark.parametrize(("kind", "payload", "value"), ACCEPTS)
def test_accepts(kind: GuardKind, payload: Any, value: Any) -> None:
    assert hits(entry(Guard(X, kind, payload)), value)


@pytest.mark.parametrize(("kind", "payload", "value"), REFUSES)
def test_refuses(kind: GuardKind, payload: Any, value: Any) -> None:
    assert not hits(entry(Guard(X, kind, payload)), value)


def test_alias_and_distinct() -> None:
    a, b = [1], [1]
    alias, distinct = entry(Guard(X, GuardKind.ALIAS, Y)), entry(Guard(X, GuardKind.DISTINCT, (Y,)))
    assert hits(alias, a, a) and not hits(alias, a, b)
    assert hits(distinct, a, b) and not hits(distinct, a, a)
    three = entry(Guard(X.item(0), GuardKind.DISTINCT, (X.item(1), Y)))
    assert hits(three, [a, b], 1) and not hits(three, [a, b], a) and not hits(three, [a, a], 1)


def test_what_cannot_be_reached_is_a_miss() -> None:
    made = entry(Guard(X.attr("deep").item("k"), GuardKind.EQUAL, 1, "model.py:7"))
    assert not hits(made, 5)
    assert "cannot be read: AttributeError" in str(made.failures((5,), {})[0])
    assert str(made.failures((5,), {})[0]).endswith("# model.py:7")


BASE = torch.arange(24.0).reshape(4, 6)


def csr(t: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return t.to_sparse_csr()


OTHERS = {
    "dtype": BASE.double(),
    "shape": torch.ones(6, 4),
    "rank": torch.ones(4, 6, 1),
    "stride": torch.ones(6, 4).t(),
    "offset": torch.arange(25.0)[1:].reshape(4, 6),
    "requires_grad": BASE.clone().requires_grad_(),
    "class": torch.nn.Parameter(BASE.clone(), requires_grad=False),
    "device": BASE.to("meta"),
    "negative bit": torch.complex(BASE, BASE).conj().imag,
    "zero tensor": torch._efficientzerotensor((4, 6)),
    "sparse": BASE.to_sparse(),
    "csr": csr(BASE),
    "mkldnn": BASE.to_mkldnn(),
    "not a tensor": "BASE",
    "a subclass": torch.ones(4, 6).as_subclass(type("Sub", (torch.Tensor,), {})),
}


@pytest.mark.parametrize("what", OTHERS)
def test_tensor_refuses_another(what: str) -> None:
    assert not hits(entry(Guard(X, GuardKind.TENSOR, facts(BASE))), OTHERS[what])


def test_tensor_refuses_freed_storage() -> None:
    made, t = entry(Guard(X, GuardKind.TENSOR, facts(BASE))), BASE.clone()
    assert hits(made, t)
    t.untyped_storage().resize_(0)
    assert made.call(t) is MISS


@pytest.mark.parametrize("what", [w for w in OTHERS if w not in ("not a tensor", "zero tensor", "mkldnn")])
def test_tensor_accepts_its_like(what: str) -> None:
    t = OTHERS[what]
    strided = {} if t.layout is torch.strided else {"strides": (), "offset": None}
    if not strided:
        made = entry(Guard(X, GuardKind.TENSOR, facts(t)))
    else:
        like = {"cls": type(t), "dtype": t.dtype, "device": t.device, "sizes": tuple(t.shape), "requires_grad": False}
        made = entry(
            Guard(
                X,
                GuardKind.TENSOR,
                TensorFacts(**like, **strided, dispatch_keys=torch._C._dispatch_keys(t), layout=t.layout),
            )
        )
    assert hits(made, t) and (what == "class" or not hits(made, BASE))


def test_complex_conjugate_bit() -> None:
    t = torch.complex(BASE, BASE)
    made = entry(Guard(X, GuardKind.TENSOR, facts(t)))
    assert hits(made, t) and not hits(made, t.conj()) and not hits(made, torch._neg_view(t))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 5), (2, 1, 3)], ids=str)
def test_tensor_of_any_rank(shape: tuple[int, ...]) -> None:
    t = torch.ones(shape)
    assert hits(entry(Guard(X, GuardKind.TENSOR, facts(t))), t)


def test_strides_of_expanded_and_size_one() -> None:
    t = torch.ones(4, 1).expand(4, 6)
    made = entry(Guard(X, GuardKind.TENSOR, facts(t)))
    assert hits(made, t) and not hits(made, BASE)


def test_unknown_sizes_match_any() -> None:
    made = entry(Guard(X, GuardKind.TENSOR, facts(BASE, sizes=(None, 6), strides=(6, 1))))
    assert (
        hits(made, BASE)
        and hits(made, torch.ones(9, 6))
        and not hits(made, torch.ones(9, 5))
        and not hits(made, torch.ones(6))
    )


def test_the_message_names_the_dimension() -> None:
    made = entry(Guard(X, GuardKind.TENSOR, facts(torch.ones(3, 3)), "f.py:5"))
    (failed,) = made.failures((torch.ones(3, 4),), {})
    assert str(failed) == "tensor 'x' size mismatch at index 1. expected 3, actual 4  # f.py:5"


STATES = {
    "grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("name", STATES)
def test_state_both_ways(name: str) -> None:
    outside = entry()
    with STATES[name]():
        assert not hits(outside)
        inside = entry()
        assert hits(inside)
    assert hits(outside) and not hits(inside)


def test_settings_that_stay_until_changed_back() -> None:
    made = entry()
    torch.set_default_dtype(torch.float64)
    try:
        assert not hits(made)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert not hits(made)
    finally:
        torch.use_deterministic_algorithms(False)
    assert hits(made)


def test_nothing_runs_compiled_under_transforms_and_modes() -> None:
    made = entry()
    seen = []
    torch.vmap(lambda t: (seen.append(made.call(1)), t)[1])(torch.ones(3))
    with TorchDispatchMode():
        seen.append(made.call(1))
        assert outside_reason() is not None
    assert seen == [MISS, MISS] and outside_reason() is None


def test_defaults_of_the_function_are_part_of_the_entry() -> None:
    made = entry(Guard(Y, GuardKind.EQUAL, None))
    assert hits(made, 1)
    fn.__defaults__, before = (5,), fn.__defaults__
    try:
        assert not hits(made, 1)
    finally:
        fn.__defaults__ = before


def test_globals_are_read_anew() -> None:
    globals()["scale"] = 2
    made = entry(Guard(Global("scale"), GuardKind.EQUAL, 2))
    assert hits(made, 1)
    globals()["scale"] = 3
    assert not hits(made)
    del globals()["scale"]
    assert not hits(made)


def test_names_never_collide_with_the_users() -> None:
    made = entry(
        Guard(Arg("_g0").attr("shape"), GuardKind.EQUAL, torch.Size((2,))),
        Guard(Arg("_g0"), GuardKind.TYPE, torch.Tensor),
        parameters="_g0, _Tensor=1",
    )
    assert hits(made, torch.ones(2), 7)


def test_a_wrong_call_names_the_users_function() -> None:
    with pytest.raises(TypeError, match=r"^fn\(\) missing 1 required positional argument: 'x'"):
        entry().call()


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [(0.0, -0.0, False), (math.nan, math.nan, True), ([1, [2.0]], [1, [2]], False), ({1: 2}, {1: 2}, True)],
)
def test_same_value(a: Any, b: Any, want: bool) -> None:
    assert same_value(a, b) is want
