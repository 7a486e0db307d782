"""`assert` of what only the graph knows: a check in the graph.

    assert (x >= 0).all(), "negative"       ->      dovetail::check(all, [], "negative", "AssertionError")

A graph whose check fails is followed by the program in plain Python, which raises the error where it stands; where that
cannot be, the check's own error says the same. So the text must be a constant, and nothing may catch the error.
"""

from __future__ import annotations

from typing import Any

from dovetail.capture import counters, late, overrides
from dovetail.capture.values.base import Const, Value
from dovetail.capture.values.scalar import Claim
from dovetail.capture.values.tensor import TensorValue
from dovetail.ops.check import check

JUMPS = {"POP_JUMP_IF_TRUE": True, "POP_JUMP_IF_FALSE": False}


def asserted(f: Any, value: Value) -> bool | None:
    """The truth with which an assertion passes, if this or the next instruction jumps by it and the graph can check."""
    if not isinstance(value, (TensorValue, Claim)):
        return None
    jump = f.at if f.code.instructions[f.at].name in JUMPS else f.at + 1
    instruction = f.code.instructions[jump]
    if instruction.name not in JUMPS or any(frame.code.region(frame.at) for frame in f.s.frames):
        return None
    ahead, there = _text(f, jump + 1), _text(f, instruction.target)
    if (ahead is None) is (there is None):
        return None
    passes = JUMPS[instruction.name] is (there is None)
    if isinstance(value, Claim):
        return _expected(f.s, value, passes)
    return _checked(f.s, value, passes, ahead if there is None else there)


def _text(f: Any, at: int) -> str | None:
    """What the assertion says that fails at this instruction; None if none does, or if its text is computed."""
    ahead = f.code.instructions[at : at + 5]
    names = [each.name for each in ahead if each.name not in ("PRECALL", "PUSH_NULL")]
    if names[:2] == ["LOAD_ASSERTION_ERROR", "RAISE_VARARGS"]:
        return ""
    if names[:4] != ["LOAD_ASSERTION_ERROR", "LOAD_CONST", "CALL", "RAISE_VARARGS"]:
        return None
    text = next(each.value for each in ahead if each.name == "LOAD_CONST")
    return text if isinstance(text, str) and text else None


def _expected(s: Any, claim: Claim, passes: bool) -> bool | None:
    """The graph checks what is relied on about sizes."""
    if late.truth(s, claim) is not None:
        return None
    sign, dim = claim.claim
    s.table.sizes.expect(sign, s.table.sizes.resolve(dim), passes)
    return passes


def _checked(s: Any, value: TensorValue, passes: bool, text: Any) -> bool | None:
    one = not value.fake._has_symbolic_sizes_strides and value.fake.numel() == 1
    if not one or s.graph is not s.root or overrides.active(s, [value]) or counters.outcome(s, value) is not None:
        return None
    flat = s.torch_method("reshape", [s.torch_method("detach", [value], {}), Const(())], {})
    condition = flat if passes else s.torch_method("logical_not", [flat], {})
    node = s.graph.call_function(check, (condition.node, [], _escaped(text), AssertionError.__name__))
    node.meta.update(stack=s.stack(), mutates=True)
    return passes


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
