"""What raises unless a tensor holds something: a check in the graph.

    assert (x >= 0).all(), "negative"                  ->    dovetail::check(all, [], "negative", "AssertionError")
    if x.isnan().any(): raise ValueError("not one")    ->    dovetail::check(not any, [], "not one", "ValueError")
    torch._check_tensor_all(x >= 0)                    ->    dovetail::check(all, [], "Expected ...", "RuntimeError")

A graph whose check fails is followed by the program in plain Python, which raises the error where it stands; where that
cannot be, the check's own error says the same, if class and text are constants. What may catch the error, or does
something as it passes, must run: inside of blocks, nothing that shows may come before the check, and if the program
cannot be run again for what comes after it, capture starts again and leaves such checks to Python (`Blocks`). The same
goes for errors of other classes and with other texts, outside of blocks.

    if x.isnan().any(): raise NotFinite(f"{name} of {x.shape}")    ->    the same, and only Python raises
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import torch

from dovetail.bytecode import decode
from dovetail.capture.numbers import optimizer_counters
from dovetail.capture.numbers.graph_numbers import GraphNumber
from dovetail.capture.numbers.unbacked_sizes import Claim
from dovetail.capture.tensors import torch_function
from dovetail.capture.tensors.repeatable import Repeatable, repeatable
from dovetail.capture.values.base import NONE, Const, RestartCapture, Session, Value
from dovetail.capture.values.callables import ClassValue, FunctionValue
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.tensor import TensorValue, as_tensor
from dovetail.ir.records import dataclass
from dovetail.ops.own.check import ERRORS, check

if TYPE_CHECKING:
    from dovetail.capture.interpreter.frame import Frame

LONGEST = 200  # instructions that make an error and raise it
JUMPS = {"POP_JUMP_IF_TRUE": True, "POP_JUMP_IF_FALSE": False}


#: How an exception is made of a text and raised: `assert` names its class in an instruction of its own.
_RAISING = (["RAISE_VARARGS"], ["LOAD_CONST", "CALL", "RAISE_VARARGS"])
_FAILED = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an "
    "enhancement request to PyTorch.)"
)


@dataclass(frozen=True)
class FailedCheck:
    """What is raised, if a check fails. `computed`: what exactly, only Python can tell."""

    error: type
    text: str
    computed: bool = False


@dataclass
class Blocks:
    """Checks inside of blocks, for all attempts at one capture. `checked`: has this attempt made any?"""

    allowed: bool = True
    checked: bool = False


class HandlersNeeded(RestartCapture):
    """The graph has such checks, and would raise their errors past the blocks."""


def asserted(f: Frame, value: Value) -> bool | None:
    """The truth with which the program goes on, if this or the next instruction jumps by it to what raises otherwise,
    and the graph can check.
    """
    if not isinstance(value, (TensorValue, Claim)) and type(value) is not GraphNumber:
        return None
    jump = f.at if f.code.instructions[f.at].name in JUMPS else f.at + 1
    instruction = f.code.instructions[jump]
    if instruction.name not in JUMPS:
        return None
    ahead, there = _raised(f, jump + 1), _raised(f, instruction.target)
    if (ahead is None) is (there is None):
        return None
    passes = JUMPS[instruction.name] is (there is None)
    raised = ahead or there
    if isinstance(value, Claim):
        return _expected(f.s, value, passes) if not _inside(f.s) else None
    return passes if checked(f.s, condition(f.s, value), passes, raised) else None  # type: ignore[arg-type]


def _raised(f: Frame, at: int) -> FailedCheck | None:
    """What this instruction and the next ones raise; None if they do anything else."""
    return _constant_error(f, at) or (FailedCheck(Exception, "", True) if _surely_raises(f, at) else None)


def _surely_raises(f: Frame, at: int) -> bool:
    """Do the instructions from here on lead to a `raise`, one after the other?"""
    for each in f.code.instructions[at : at + LONGEST]:
        if each.name == "RAISE_VARARGS":
            return each.arg > 0
        if each.target >= 0 or each.name in ("RETURN_VALUE", "RERAISE", "YIELD_VALUE"):
            return False
    return False


def _constant_error(f: Frame, at: int) -> FailedCheck | None:
    """The same where its class is known and its text is a constant."""
    ahead = [each for each in f.code.instructions[at : at + 6] if each.name != "PUSH_NULL"]
    names = [each.name for each in ahead]
    last = names.index("RAISE_VARARGS") if "RAISE_VARARGS" in names else 0
    if names[1 : last + 1] not in _RAISING or ahead[last].arg != 1:
        return None
    text = ahead[1].value if last > 1 else ""
    error = _error(f, ahead[0])
    return FailedCheck(error, text) if error is not None and isinstance(text, str) and (text or last == 1) else None


def _error(f: Frame, loading: Any) -> type | None:
    if loading.name == "LOAD_COMMON_CONSTANT":
        return ERRORS.get(loading.value.__name__)
    if loading.name != "LOAD_GLOBAL" or loading.value not in ERRORS:
        return None
    found = f.scope.load(f.s, loading.value)
    known = isinstance(found, ClassValue) and found.native() is getattr(builtins, loading.value)
    return ERRORS[loading.value] if known else None


def _inside(s: Session) -> bool:
    """Is there a block whose handler would run?"""
    return any(frame.code.region(frame.at) for frame in s.frames)


def _expected(s: Session, claim: Claim, passes: bool) -> bool | None:
    """The graph checks what is relied on about sizes."""
    if claim.known(s) is not None:
        return None
    sign, dim = claim.claim
    s.table.sizes.expect(sign, s.table.sizes.resolve(dim), passes)
    return passes


def condition(s: Session, value: Value) -> Any:
    """The tensor that says whether it is true."""
    number = type(value) is GraphNumber and s.graph is s.root
    return s.torch_call(torch.full, [TupleValue([]), value], {"dtype": Const(torch.bool)}) if number else value


def checked(s: Session, value: TensorValue, passes: bool, raised: FailedCheck) -> bool:
    """Does the graph raise now where the only element is not `passes`?"""
    one = isinstance(value, TensorValue) and not value.fake._has_symbolic_sizes_strides and value.fake.numel() == 1
    if not one or s.graph is not s.root or torch_function.active(s, [value]):
        return False
    if optimizer_counters.outcome(s, value) is not None:
        return False
    inside = _inside(s)
    again = inside or raised.computed
    if again and not (s.ends.around.allowed and repeatable(s.graph, s.subgraphs) is Repeatable.ALWAYS):
        return False
    if raised.computed and (inside or s.options.standalone or callable(s.options.backend)):
        return False  # what raises may be the usual way there, or nobody runs the program again
    flat = s.torch_method("reshape", [s.torch_method("detach", [value], {}), Const(())], {})
    holds = as_tensor(flat if passes else s.torch_method("logical_not", [flat], {}))
    given: tuple = (holds.node, [], raised.text.replace("{", "{{").replace("}", "}}"), raised.error.__name__)
    s.state_node(check, *given, *((True,) if again else ()))
    s.ends.around.checked |= again
    return True


def check_all(s: Session, value: Value, error: Value, message: Value) -> bool:
    """`torch._check_tensor_all` and its like: does the graph check it?"""
    value = condition(s, value)
    text = _FAILED if message is NONE else _constant(message)
    known = isinstance(error, ClassValue) and ERRORS.get(error.native().__name__) is error.native()
    if text is None or not known or not isinstance(value, TensorValue) or value.fake.dtype is not torch.bool:
        return False
    return checked(s, as_tensor(s.torch_method("all", [value], {})), True, FailedCheck(error.native(), text))


def _constant(message: Value) -> str | None:
    """What a function without arguments returns, if its code is nothing but a constant."""
    if not isinstance(message, FunctionValue):
        return None
    found = [each for each in decode(message.code).instructions if each.name not in ("RESUME", "NOP")]
    plain = [each.name for each in found] == ["LOAD_CONST", "RETURN_VALUE"]
    text = found[0].value if plain else None
    return text if isinstance(text, str) else None
