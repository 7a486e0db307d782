"""One case through the whole pipeline and, where that fails, stage by stage until one is wrong."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

import dovetail
from dovetail.diagnostics.events import Events
from dovetail.errors import Unsupported
from dovetail.ir.evaluate import evaluate
from dovetail.ir.spec import verify
from dovetail.lower import lower
from dovetail.normalize import normalize
from dovetail.normalize.interpret import interpreter
from dovetail.ops.fake import to_fake
from dovetail.options import Options
from dovetail.pipeline import compile_graph
from dovetail.runtime.call.plan import CallPlan
from dovetail.runtime.call.plan import load as load_call
from dovetail.schedule import schedule
from tests.limits import time_limit
from tests.opdb.compare import Mismatch, compare, widened
from tests.opdb.entries import Case

SECONDS = 30  # for one case
SEED = 1234
DRAWN = {"fallback_random": True}  # so that values can be compared
#: Their numbers are whatever the memory held: only metadata is compared.
UNDEFINED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})

#: Results that eager leaves as it found the memory where nothing is drawn: attention's random state.
UNDEFINED_PARTS = dict.fromkeys(
    ("torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward"), (2, 3)
)


@dataclass(frozen=True)
class Outcome:
    """`status`: pass, break (right, in more than one graph), skip (eager itself fails) or fail; then at `stage`."""

    case: str
    status: str
    stage: str = ""
    message: str = ""
    code: str = ""  # of a break


class TimedOut(Exception):
    """The case took too long."""


def limited() -> contextlib.AbstractContextManager[None]:
    return time_limit(SECONDS, TimedOut(f"more than {SECONDS} s"))


def run(case: Case, locate_failures: bool = True) -> Outcome:
    """Compile and compare one case."""
    with warnings.catch_warnings(), torch.no_grad(), limited():
        warnings.simplefilter("ignore")
        try:
            return _run_error(case) if case.error is not None else _run(case, locate_failures)
        except TimedOut as error:
            return Outcome(case.label, "fail", "time", str(error))


def _eager(case: Case) -> tuple[Any, Any]:
    inputs = case.fresh()
    torch.manual_seed(SEED)
    return case.fn(*inputs[0], **inputs[1]), inputs


def _exact(case: Case) -> Callable[[], Any]:
    def compute() -> Any:
        args, kwargs = widened(case.fresh())
        torch.manual_seed(SEED)
        try:
            return case.fn(*args, **kwargs), (args, kwargs)
        except (RuntimeError, TypeError, ValueError):  # no such dtype: only eager's own result is left to compare with
            return pytree.tree_map(lambda _: 0, _eager(case))

    return compute


def _run(case: Case, locate_failures: bool) -> Outcome:
    try:
        want, eager_inputs = _eager(case)
    except Exception as error:  # whatever eager refuses is no case
        return Outcome(case.label, "skip", "eager", _line(error))
    fn, right = case.fn, Outcome(case.label, "pass")
    try:
        try:
            got, inputs = _compiled(fn, case, fullgraph=True)
        except Unsupported as error:
            right = Outcome(case.label, "break", "capture", _line(error), error.code)
            got, inputs = _compiled(fn, case, fullgraph=False)
        compare(*defined(case, got, want), (inputs, eager_inputs), _exact(case))
        return right
    except TimedOut:
        raise
    except Exception as error:  # reported as the case's failure
        stage = locate(case, want, eager_inputs) if locate_failures else ""
        return Outcome(case.label, "fail", stage or "capture", _line(error))


def defined(case: Case, *results: Any) -> Any:
    """The results, with numbers that mean nothing made equal."""
    if case.operator in UNDEFINED:
        pytree.tree_map_only(torch.Tensor, lambda t: t.zero_(), results)
    for k in UNDEFINED_PARTS.get(case.operator, ()):
        for result in results:
            result[k].zero_()
    return results


def _compiled(fn: Callable[..., Any], case: Case, fullgraph: bool) -> tuple[Any, Any]:
    inputs = case.fresh()

    def call(args: Any, kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    torch.manual_seed(SEED)
    return dovetail.compile(call, fullgraph=fullgraph, options=DRAWN)(*inputs), inputs


def _run_error(case: Case) -> Outcome:
    """Eager's error, from compiled code: the same type and text."""
    inputs = case.fresh()
    try:
        case.fn(*inputs[0], **inputs[1])
    except Exception as error:  # the error is what is compared
        wanted = error
    else:
        return Outcome(case.label, "skip", "eager", "raises nothing")
    try:
        _compiled(case.fn, case, fullgraph=False)
    except TimedOut:
        raise
    except Exception as error:
        if isinstance(error, type(wanted)):
            return Outcome(case.label, "pass", "", "" if str(error) == str(wanted) else "other words")
        return Outcome(case.label, "fail", "error", f"{_line(error)}; eager: {_line(wanted)}")
    return Outcome(case.label, "fail", "error", f"raises nothing; eager: {_line(wanted)}")


# ---------------------------------------------------------------- where it went wrong


def locate(case: Case, want: Any, eager_inputs: Any) -> str:
    """The first stage whose result, run by that stage's reference, is not eager's; "" when none is found."""
    stage = "normalize"
    try:
        for stage, call in _stages(case):
            inputs = case.fresh()
            torch.manual_seed(SEED)
            got = call(*_tensors(inputs))
            compare(*defined(case, _rebuilt(got, want), want), (inputs, eager_inputs), _exact(case))
    except TimedOut:
        raise
    except Exception as error:
        return f"{stage}: {_line(error)}"
    return ""


def _stages(case: Case) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each stage's name and a way to run what it produced; building it is part of the step."""
    options = Options(**DRAWN)
    graph, fakes = _graph(case)
    aten = _Failing("normalize", lambda: normalize(graph, fakes, options))

    def whole(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            plan = CallPlan(returned=aten().returned, checks=True, grad=torch.is_grad_enabled())
            return load_call(plan, call, graph.forward)[0](*inputs)

        return run

    yield "normalize", whole(lambda *inputs: interpreter(aten())(*inputs))
    program = _Failing("lower", lambda: lower(aten(), options))
    yield "lower", whole(lambda *inputs: (verify(program()), evaluate(program(), inputs))[1])
    scheduled = _Failing("schedule", lambda: schedule(program(), options))
    yield "schedule", whole(lambda *inputs: (verify(scheduled()), evaluate(scheduled(), inputs))[1])

    yield "codegen", lambda *inputs: compile_graph(graph, fakes, options, Events())(*inputs)


class _Failing:
    """A stage's product, made when first asked for."""

    def __init__(self, stage: str, make: Callable[[], Any]) -> None:
        self.stage, self.make, self.made = stage, make, []

    def __call__(self) -> Any:
        if not self.made:
            self.made.append(self.make())
        return self.made[0]


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)]


def _graph(case: Case) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The case as a graph of one call, and fakes of its tensors."""
    module, tensors = one_call(case)
    return module, [to_fake(t) for t in tensors]


def one_call(case: Case) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """The case as a graph of one call, and its tensors."""
    leaves, spec = pytree.tree_flatten(case.fresh())
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"p{k}") if isinstance(t, torch.Tensor) else t for k, t in enumerate(leaves)]

    def call(*flat: Any) -> tuple[Any, ...]:
        args, kwargs = pytree.tree_unflatten(list(flat), spec)
        return tuple(pytree.tree_leaves(case.fn(*args, **kwargs)))

    graph.output(graph.call_function(call, tuple(nodes)))
    return torch.fx.GraphModule({}, graph), _tensors(leaves)


def _rebuilt(flat: Any, like: Any) -> Any:
    leaves, spec = pytree.tree_flatten(like)
    if len(flat) != len(leaves):
        raise Mismatch(f"{len(flat)} outputs, eager has {len(leaves)}")
    return pytree.tree_unflatten(list(flat), spec)


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]
