"""PyTorch's `__torch_function__` machinery, tensor subclasses and torch function modes inside traced code."""

from __future__ import annotations

from typing import Any

import torch
import torch.overrides
import torch.utils._device

from dovetail.capture.library.torch.constructors import LEGACY
from dovetail.capture.tables.known_callables import Handler, known
from dovetail.capture.tensors import new_leaves, torch_function
from dovetail.capture.values.base import FALSE, NONE, Args, Const, Kwargs, Session, Value, boolean
from dovetail.capture.values.callables import ClassValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue, as_tensor
from dovetail.ops.fake.wrapped import handles_operators

known(torch.overrides.has_torch_function)(lambda s, args, kwargs: boolean(torch_function.active(s, s.unpack(args[0]))))
known(torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic)(
    lambda s, args, kwargs: boolean(torch_function.active(s, args))
)


@known(torch.overrides.handle_torch_function)
def _handle_torch_function(s: Session, args: Args, kwargs: Kwargs) -> Value:
    function, _, *rest = args
    return torch_function.overridden(s, function.native(), rest, kwargs, lambda: s.call(function, *rest, **kwargs))


known(torch_function.DEFAULT)(torch_function.default_implementation)


@known(torch._C._disabled_torch_function_impl)
def _disabled(s: Session, args: Args, kwargs: Kwargs) -> Value:
    function, _, *rest = args
    named = {k.native(): v for k, v in rest[1].pairs(s)} if len(rest) > 1 else {}  # type: ignore[attr-defined]
    with s.overrides.without_subclasses():
        return s.call(function, *s.unpack(rest[0]), **named)


# ---------------------------------------------------------------- modes


@known(torch._C._push_on_torch_function_stack)
def _push_mode(s: Session, args: Args, kwargs: Kwargs) -> Value:
    s.overrides.modes.append(args[0])
    return NONE


@known(torch._C._pop_torch_function_stack)
def _pop_mode(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if s.overrides.modes:
        return s.overrides.modes.pop()
    if torch._C._len_torch_function_stack():  # of those from outside, a graph is made under that of the device alone
        s.unsupported("device-context", "the code leaves the mode of the default device")
    try:
        return s.wrap(torch._C._pop_torch_function_stack(), None)
    except RuntimeError as error:
        return s.throw_native(error)


known(torch._C._len_torch_function_stack)(
    lambda s, args, kwargs: Const(torch._C._len_torch_function_stack() + len(s.overrides.modes))
)
known(torch._C._is_torch_function_enabled)(
    lambda s, args, kwargs: boolean(not s.overrides.subclasses_off and not s.overrides.all_off)
)
known(torch._C._is_torch_function_mode_enabled)(
    lambda s, args, kwargs: boolean(bool(s.overrides.modes) and not s.overrides.all_off)
)


def _switch(cls: Any, slot: str) -> None:
    """A context manager in native code that switches overriding off."""

    def make(s: Session, args: Args, kwargs: Kwargs) -> Value:
        return ObjectValue(cls)

    def enter(s: Session, args: Args, kwargs: Kwargs) -> Value:
        setattr(s.overrides, slot, getattr(s.overrides, slot) + 1)
        return NONE

    def leave(s: Session, args: Args, kwargs: Kwargs) -> Value:
        setattr(s.overrides, slot, getattr(s.overrides, slot) - 1)
        return FALSE

    known(cls)(make)
    known(cls.__enter__)(enter)
    known(cls.__exit__)(leave)


_switch(torch._C.DisableTorchFunctionSubclass, "subclasses_off")
_switch(torch._C.DisableTorchFunction, "all_off")


def _device_mode(step: str) -> Handler:
    """`with torch.device(...)`: the mode that PyTorch makes for it."""

    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if s.ends.breaks:  # a graph cannot end inside the block, so where it may have to, the block is not entered
            return s.unsupported("device-context", "the code changes the default device for a block")
        if step == "__exit__":
            s.call(s.get_attr(s.overrides.modes[-1], step), NONE, NONE, NONE)
            return FALSE
        mode = s.call(ClassValue(torch.utils._device.DeviceContext), args[0])
        s.call(s.get_attr(mode, step))
        return args[0]

    return handler


known(torch.device.__enter__)(_device_mode("__enter__"))
known(torch.device.__exit__)(_device_mode("__exit__"))


# ---------------------------------------------------------------- making subclasses


@known(torch.Tensor._make_subclass)
def _make_subclass(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """A detached tensor of the class. The graph itself makes Parameters; other classes are put on at the end."""
    names = ("cls", "data", "require_grad")
    given = dict(zip(names, args)) | kwargs
    cls, data = given["cls"].native(), given["data"]
    tracked = bool(given["require_grad"].native()) if "require_grad" in given else False
    refuse(s, cls)
    with s.overrides.without_subclasses():
        if cls is torch.nn.Parameter:
            made = _parameter(s, as_tensor(plain(s, data)), tracked)
        else:
            made = s.torch_method("detach", [data], {})
            if tracked:
                made = s.torch_method("requires_grad_", [made], {})
    tensor = as_tensor(made)
    tensor.cls = cls
    return tensor


def _parameter(s: Session, data: TensorValue, tracked: bool) -> Value:
    """`torch.nn.Parameter(data, tracked)`. One that leaves the graph is made by PyTorch, so that it is of the class."""
    leaves = s.gradients.leaves
    if leaves is None or not new_leaves.may_be_unseen(s, data):
        return s.torch_call(torch.nn.Parameter, [data, Const(tracked)], {})
    made = as_tensor(s.torch_method("detach", [data], {}))
    if tracked:
        return s.torch_method("requires_grad_", [made], {})
    leaves.append((made.fake, made.fake._version))
    return made


def plain(s: Session, value: Any) -> Value:
    """The same memory as a plain tensor."""
    return value if value.cls is torch.Tensor else torch_function.as_class(s, value, torch.Tensor)


def refuse(s: Session, cls: type) -> None:
    if handles_operators(cls):
        s.unsupported(
            "tensor-subclass", f"{cls.__name__} is a tensor class that handles operators itself (__torch_dispatch__)",
            "Use such tensors outside the compiled function.",
        )


@known(torch.Tensor.as_subclass)
def _as_subclass(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cls = (args[1] if len(args) > 1 else kwargs["cls"]).native()
    refuse(s, cls)
    if not isinstance(args[0], TensorValue):
        return s.throw(TypeError, "as_subclass needs a tensor")
    return torch_function.as_class(s, args[0], cls)


def construct(s: Session, cls: type, args: Args, kwargs: Kwargs) -> Value:
    """`torch.Tensor(...)`: sizes make memory without contents, data becomes the default type, a tensor is shared."""
    dtype = LEGACY[cls] if cls in LEGACY else torch.get_default_dtype()
    device = {"device": kwargs["device"]} if "device" in kwargs else {}
    if args and isinstance(args[0], TensorValue):
        if args[0].fake.dtype is not dtype:
            return s.throw(TypeError, f"expected {dtype} (got {args[0].fake.dtype})")
        return s.torch_method("detach", [args[0]], {})
    sizes = not args or all(isinstance(a, Const) for a in args) or getattr(args[0], "cls", None) is torch.Size
    function = torch.empty if sizes else torch.tensor
    given: Args = list(args) if args else [Const(0)]
    return s.torch_call(function, given, {"dtype": Const(dtype), **device})


def _constructor(cls: type) -> Handler:
    return lambda s, args, kwargs: construct(s, cls, args, kwargs)


for _cls in (torch.Tensor, *LEGACY):
    known(_cls)(_constructor(_cls))


@known(torch.Tensor.__new__)
def _new(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cls = args[0].native()
    refuse(s, cls)
    made = construct(s, torch.Tensor, args[1:], kwargs)
    return torch_function.converted(s, made, cls, None)


_GETTER = type(torch.Tensor.__dict__.get("shape", torch._C.TensorBase.__dict__["shape"]))


@known(_GETTER.__get__)
def _get(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """`torch.Tensor.shape.__get__(x)`, which implementations are told for attributes."""
    descriptor, value = args[0].native(), args[1]
    if isinstance(value, TensorValue):
        return s.tensor_get_attr(value, descriptor.__name__)
    return s.from_native(descriptor.__get__(value.native()))
