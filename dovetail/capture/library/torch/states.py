"""torch functions that are no tensor operations: state, contexts, type queries, marks."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.compiler
import torch.overrides

from dovetail.capture.calling.calls import fold
from dovetail.capture.library.torch.constructors import element_type
from dovetail.capture.numbers import unbacked_sizes
from dovetail.capture.numbers.graph_numbers import GraphNumber
from dovetail.capture.numbers.input_numbers import varies
from dovetail.capture.numbers.unbacked_sizes import Claim, UnbackedSize
from dovetail.capture.process.settings import state
from dovetail.capture.state.thread_state import enter_autocast, exit_autocast, grad_mode, set_grad_mode
from dovetail.capture.tables.known_callables import INLINE, KNOWN, Handler, known
from dovetail.capture.tensors.assertions import FailedCheck, check_all, checked
from dovetail.capture.values.base import FALSE, NONE, TRUE, Args, Const, Kwargs, Session, Value, boolean
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue, TupleValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.devices import GPU
from dovetail.ir.settings import ASKED, AUTOCAST_DEVICES, SETTINGS


def constant(value: Any) -> Handler:
    return lambda s, args, kwargs: Const(value)


# ---------------------------------------------------------------- where are we

def _is_compiling(s: Session, args: Args, kwargs: Kwargs) -> Value:
    s.compiling.asked = True
    return boolean(s.compiling.answer)


for _name in ("is_compiling", "is_dynamo_compiling"):
    KNOWN[getattr(torch.compiler, _name)] = _is_compiling
KNOWN[torch.compiler.is_exporting] = lambda s, args, kwargs: boolean(s.options.standalone)
KNOWN[torch._jit_internal.is_scripting] = constant(False)
KNOWN[torch.jit.is_scripting] = constant(False)
KNOWN[torch.jit.is_tracing] = constant(False)
KNOWN[torch._C._get_tracing_state] = constant(None)
KNOWN[torch._C._is_tracing] = constant(False)
KNOWN[torch._C._len_torch_dispatch_stack] = constant(0)  # capture's own mode is not the program's
KNOWN[torch._C._log_api_usage_once] = constant(None)
KNOWN[torch._C._functorch.peek_interpreter_stack] = constant(None)
KNOWN[torch._C._are_functorch_transforms_active] = constant(False)
KNOWN[torch.overrides.is_tensor_like] = lambda s, args, kwargs: boolean(
    isinstance(args[0], TensorValue) or s.has_attr(args[0], "__torch_function__")
)
KNOWN[torch.is_tensor] = lambda s, args, kwargs: boolean(issubclass(args[0].cls, torch.Tensor))


def _state(name: str, pick: Callable[[Any], Any] = lambda value: value) -> Handler:
    return lambda s, args, kwargs: s.from_native(pick(state(s, name)))


KNOWN[torch.is_grad_enabled] = lambda s, args, kwargs: grad_mode(s)
KNOWN[torch.is_inference_mode_enabled] = _state("inference_mode")
KNOWN[torch.get_default_dtype] = _state("default_dtype")
known(torch.are_deterministic_algorithms_enabled, torch._C._get_deterministic_algorithms)(_state("deterministic"))
KNOWN[torch.is_autocast_cpu_enabled] = _state("autocast_cpu", operator.itemgetter(0))
KNOWN.update((function, _state(name)) for name, function in SETTINGS.items() if function in ASKED)
KNOWN[torch._C._get_deterministic_algorithms_warn_only] = _state("is_deterministic_algorithms_warn_only_enabled")


@known(torch.is_autocast_enabled)
def _is_autocast_enabled(s: Session, args: Args, kwargs: Kwargs) -> Value:
    device = args[0].native() if args else GPU
    if device not in AUTOCAST_DEVICES:
        return FALSE
    return _state(f"autocast_{device}", operator.itemgetter(0))(s, args, kwargs)


def _type(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """`x.type()` is a name, `x.type(dtype)` a conversion; old tensor classes name dtypes."""
    receiver: Any = args[0]
    wanted = [element_type(a) for a in (*args[1:], *([kwargs["dtype"]] if "dtype" in kwargs else []))]
    if not wanted:
        return Const(receiver.fake.type())
    return s.torch_method("to", [receiver, *wanted[:1]], {})


KNOWN[torch.Tensor.type] = _type


def _method_alias(name: str) -> Handler:
    return lambda s, args, kwargs: s.torch_method(name, args, kwargs)


for _name in ("is_floating_point", "is_complex", "numel", "is_signed", "is_inference", "is_conj"):
    KNOWN[getattr(torch, _name)] = _method_alias(_name)


def _check(error: type[Exception]) -> Handler:
    """`torch._check(condition, message)` and its like: of unbacked sizes, a fact that the graph checks."""

    def check(s: Session, args: Args, kwargs: Kwargs) -> Value:
        given = dict(zip(("cond", "message"), args)) | kwargs
        condition = given.get("cond")
        if type(condition) is GraphNumber and check_all(s, condition, s.wrap(error, None), given.get("message", NONE)):
            return NONE
        known = condition.known(s) if isinstance(condition, Claim) else condition is TRUE or None
        if isinstance(condition, Claim) and known is None:
            unbacked_sizes.check(s, condition)
            return NONE
        return NONE if known else INLINE

    return check


_RAISE = {"": RuntimeError, "_index": IndexError, "_value": ValueError, "_type": TypeError}
KNOWN.update((getattr(torch, f"_check{name}"), _check(error)) for name, error in _RAISE.items())


@known(torch._check_tensor_all_with)
def _check_tensor_all_with(s: Session, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("error_type", "cond", "message"), args, strict=False)) | kwargs
    error, condition = given.get("error_type"), given.get("cond")
    if error is None or condition is None or len(given) != len(args) + len(kwargs):
        return INLINE
    return NONE if check_all(s, condition, error, given.get("message", NONE)) else INLINE


@known(torch._assert)
def _assert(s: Session, args: Args, kwargs: Kwargs) -> Value:
    condition, text = args
    if isinstance(condition, TensorValue) and isinstance(text, Const) and type(text.value) is str and text.value:
        if checked(s, condition, True, FailedCheck(AssertionError, text.value)):
            return NONE
    return NONE if s.truth(condition) else s.throw(AssertionError, text)


@known(torch._check_is_size)
def _check_is_size(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if not args or not isinstance(args[0], UnbackedSize):
        return INLINE
    claims = [s.compare(">=", args[0], Const(0))]
    claims += [s.compare("<=", args[0], kwargs["max"])] if kwargs.get("max", NONE) is not NONE else []
    for claim in claims:
        if isinstance(claim, Claim):
            unbacked_sizes.check(s, claim)
        elif not claim.value:  # type: ignore[attr-defined]
            return INLINE
    return NONE


@known(torch.random.manual_seed, torch.seed, torch.initial_seed, torch.get_rng_state, torch.set_rng_state)
def _seed(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.unsupported("random-state", "the code changes or reads the state of the random number generator")


# ---------------------------------------------------------------- contexts


@known(torch._C._set_grad_enabled)
def _set_grad_enabled(s: Session, args: Args, kwargs: Kwargs) -> Value:
    mode = args[0]
    if mode.cls is not bool:
        try:
            torch._C._set_grad_enabled(mode.native())
        except TypeError as error:
            return s.throw_native(error)
    set_grad_mode(s, mode)
    return NONE


@known(torch.autograd.grad_mode.inference_mode)
def _inference_mode(s: Session, args: Args, kwargs: Kwargs) -> Value:
    mode = (args[0] if args else kwargs.get("mode", TRUE)).native()
    if callable(mode):
        return s.unsupported("inference-mode-inside", "inference_mode is used as a decorator inside the function")
    made = ObjectValue(torch.autograd.grad_mode.inference_mode)
    made.attrs["mode"] = Const(mode)
    return made


@known(torch.autograd.grad_mode.inference_mode.__enter__)
def _enter_inference_mode(s: Session, args: Args, kwargs: Kwargs) -> Value:
    manager, mode = args[0], s.get_attr(args[0], "mode").native()
    plain = mode and s.options.standalone  # a graph of its own runs such a block without gradients, which is the same
    if mode != torch.is_inference_mode_enabled() and not plain:
        s.unsupported("inference-mode-inside", "the code switches inference mode inside the compiled function")
    context = ObjectValue(torch.autograd.grad_mode.set_grad_enabled)  # the program is in this mode, but for gradients
    s.set_attr(context, "prev", grad_mode(s))
    s.set_attr(manager, "_inference_mode_context", context)
    set_grad_mode(s, boolean(not mode))
    return NONE


@known(torch.autograd.grad_mode.inference_mode.__exit__)
def _exit_inference_mode(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if args[0].source is not None:
        s.unsupported("inference-mode-inside", "the code leaves an inference mode that was entered before this graph")
    context = s.get_attr(args[0], "_inference_mode_context")
    set_grad_mode(s, s.get_attr(context, "prev"))
    return NONE


@known(torch.amp.autocast_mode.autocast)
def _autocast(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cls = torch.amp.autocast_mode.autocast
    real = cls(*[a.native() for a in args], **{k: v.native() for k, v in kwargs.items()})
    made = ObjectValue(cls)
    made.made_by = real
    for name in ("device", "fast_dtype", "_enabled", "_cache_enabled"):
        made.attrs[name] = Const(getattr(real, name))
    return made


@known(torch.amp.autocast_mode.autocast.__enter__)
def _enter_autocast(s: Session, args: Args, kwargs: Kwargs) -> Value:
    manager = args[0]
    names = ("device", "fast_dtype", "_enabled", "_cache_enabled")
    enter_autocast(s, manager, tuple(s.get_attr(manager, n).native() for n in names), False)
    return manager


@known(torch.amp.autocast_mode._enter_autocast)
def _enter_unmanaged(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """What graphs call where the program had a block."""
    return _enter_autocast(s, [_autocast(s, args, kwargs)], {})


def _leaving_autocast(result: Value) -> Handler:
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        exit_autocast(s, args[0])
        return result

    return handler


known(torch.amp.autocast_mode._exit_autocast)(_leaving_autocast(NONE))
known(torch.amp.autocast_mode.autocast.__exit__)(_leaving_autocast(FALSE))


_RECORD = torch.autograd.profiler.record_function
KNOWN[_RECORD.__exit__] = constant(None)


@known(_RECORD)
def _record(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """A range for the profiler: nothing is recorded, but plain Python may leave the block after a graph break."""
    made = ObjectValue(_RECORD)
    for name, value in vars(_RECORD("")).items():
        made.set_instance_attr(s, name, s.from_native(value))
    made.set_instance_attr(s, "name", args[0] if args else kwargs["name"])
    return made


@known(_RECORD.__enter__)
def _enter_record(s: Session, args: Args, kwargs: Kwargs) -> Value:
    args[0].set_instance_attr(s, "run_callbacks_on_exit", FALSE)  # there is no record to end
    return args[0]


known(torch.get_default_device)(lambda s, args, kwargs: Const(torch.get_default_device()))


@known(torch._C._group_tensors_by_device_and_dtype)
def _group_tensors(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """Columns of the lists, grouped by what the first list's tensor is."""
    given: list = s.unpack(args[0])
    lists = [row.all(s) for row in given]
    indexed = len(args) > 1 and s.truth(args[1])
    groups: dict[Any, tuple[list[list[Value]], list[Value]]] = {}
    for k, first in enumerate(lists[0]):
        rows, indices = groups.setdefault((first.fake.device, first.fake.dtype), ([[] for _ in lists], []))
        for row, values in zip(rows, lists):
            row.extend(values[k : k + 1])
        indices.extend([Const(k)] if indexed else [])
    made = DictValue()
    for (device, dtype), (rows, indices) in groups.items():
        contents = TupleValue([ListValue([ListValue(row) for row in rows]), ListValue(indices)])
        made.entries[device, dtype] = (TupleValue([Const(device), Const(dtype)]), contents)
    return made


known(torch.Size.numel)(lambda s, args, kwargs: product(s, args[0].all(s), Const(1)))  # type: ignore[attr-defined]


@known(torch.broadcast_shapes)
def _broadcast_shapes(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """Sizes that vary are asked about as the sum of tensors of such shapes would ask."""
    shapes = [s.unpack(a) if isinstance(a, SequenceValue) else [a] for a in args]
    if not any(varies(n) for shape in shapes for n in shape):
        return fold(s, torch.broadcast_shapes, args, kwargs)
    total: Value = s.torch_call(torch.empty, [TupleValue([])], {})
    for shape in shapes:
        total = s.torch_call(torch.add, [total, s.torch_call(torch.empty, [TupleValue(shape)], {})], {})
    return s.get_attr(total, "shape")  # nobody uses the tensors: no nodes


def product(s: Session, values: Any, start: Value) -> Value:
    for item in values:
        start = s.binary("mul", start, item)
    return start


known(math.prod)(lambda s, args, kwargs: product(s, s.unpack(args[0]), kwargs.get("start", Const(1))))


# From PyTorch 2.15 on, what `torch.no_grad()` and its like wrap shows another name in profiles, which is all it does.
_NAMES_FRAMES = getattr(torch.utils._contextlib, "_set_stack_frame_name", None)
if _NAMES_FRAMES is not None:
    known(_NAMES_FRAMES)(lambda s, args, kwargs: NONE)
