"""The programs of `errors/graph-breaks.md`: run them, and see which codes they give."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import linecache
import random
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import dovetail
from dovetail.diagnostics.breaks import BREAKS
from dovetail.errors import DovetailError
from tests.versions import VERSION

#: Mistakes of Dovetail's own: no program is known that meets one.
MISTAKES = frozenset(("internal-error", "kernel-fault"))
#: What a program needs to be run at all, and whether that is here.
NEEDS = {
    "opcode": sys.version_info >= (3, 12),
    "user-kernel": importlib.util.find_spec("triton") is not None,
    "view-of-many": VERSION >= (2, 12),  # 2.11 calls an operator that is defined again by what the first one has left
    "numpy-array": importlib.util.find_spec("numpy") is not None,
}
#: Why the graph could not end at the instruction in question: a message names another code first.
REFUSALS = frozenset(("break-here", "break-in-block"))
#: Eager mode hands these to torch.compile, or does something else than the program says.
UNLIKE_EAGER = "Transforms and subgraphs"
REFUSAL = re.compile(r"cannot end there: \[(.+?)\]")


def codes_of(program: str, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], set[str]]:
    """The codes that compiling and running it gives, and those of refusals."""
    met: set[str] = set()
    refusals: set[str] = set()

    def meet(code: str, reason: str, stack: Any, message: str) -> bool:
        assert stack, f"where is {code}?"
        met.add(code)
        refusals.update(REFUSAL.findall(message))
        return False

    dovetail.reset()
    monkeypatch.setattr(BREAKS, "meet", meet)
    scope = executed(program, met)
    if "f" in scope:
        outcome(lambda: dovetail.compile(scope["f"], backend="aot_eager")(scope["x"]), met)
    scope.clear()
    return met, refusals


def results(program: str) -> list[Any]:
    """What `f` gives in eager mode and compiled."""
    found = []
    for compiled in (lambda f: f, lambda f: dovetail.compile(f, backend="aot_eager")):
        scope = executed(program, set())
        found.append(outcome(lambda: compiled(scope["f"])(scope["x"]), set()))
        scope.clear()  # a library of operators that it has made goes, so that the next one can be made
    return found


def executed(program: str, met: set[str]) -> dict[str, Any]:
    """The program's names after it has been run as a module of its own."""
    name = f"<{abs(hash(program))}>"
    linecache.cache[name] = len(program), None, program.splitlines(keepends=True), name
    scope: dict[str, Any] = {"torch": torch, "dovetail": dovetail, "x": torch.tensor([1.0, 2.0, 3.0])}
    scope["__name__"] = "program"
    torch.manual_seed(0)
    random.seed(0)
    outcome(lambda: exec(compile(program, name, "exec"), scope), met)
    return scope


def outcome(run: Any, met: set[str]) -> Any:
    """The result, or the class of the error; the code of one of Dovetail's is met."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return run()
    except DovetailError as error:
        met.add(error.code)  # type: ignore[attr-defined]  # one without is no answer
    except Exception as error:
        return type(error)


def same(one: Any, other: Any) -> bool:
    """Of results that are more than tensors, numbers or errors it is not asked."""
    if type(one) is torch.Tensor and type(other) is torch.Tensor:
        return one.layout is not torch.strided or one.is_nested or torch.equal(one, other)
    return type(one) is type(other) and (not isinstance(one, type) or one is other)


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Settings, filters and switches that a program leaves changed."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    with dovetail.config.patch(**dovetail.config.to_dict()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(deterministic)
            dovetail.reset()
