"""Tensor classes made of other tensors, as users write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

aten = torch.ops.aten


class Scaled(torch.Tensor):
    """Values and a factor that they are to be multiplied by, which only `value` does. The unit is context."""

    @staticmethod
    def __new__(cls, data, factor, unit):
        return torch.Tensor._make_wrapper_subclass(
            cls, data.shape, strides=data.stride(), storage_offset=data.storage_offset(), dtype=data.dtype,
            device=data.device, requires_grad=data.requires_grad,
        )  # fmt: skip

    def __init__(self, data, factor, unit):
        self.data_of, self.factor, self.unit = data, factor, unit

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __tensor_flatten__(self):
        return ["data_of", "factor"], (self.unit,)

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Scaled(inner["data_of"], inner["factor"], *context)

    @property
    def value(self):
        return self.data_of * self.factor

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        first = next(a for a in pytree.tree_leaves((args, kwargs)) if isinstance(a, cls))
        unit = first.unit + "*" if func is aten.mul.Tensor else first.unit

        def plain(t):
            return t.data_of if isinstance(t, cls) else t

        found = func(*pytree.tree_map(plain, args), **pytree.tree_map(plain, kwargs or {}))
        made = pytree.tree_map_only(torch.Tensor, lambda t: cls(t, first.factor, unit), found)
        return return_and_correct_aliasing(func, args, kwargs, made)


class Int8(torch.Tensor):
    """A weight of eight bits with a scale for each row; multiplying gives plain tensors."""

    @staticmethod
    def __new__(cls, data, scale, dtype):
        strides = data.stride()
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, strides=strides, dtype=dtype, device=data.device)

    def __init__(self, data, scale, dtype):
        self.int_data, self.scale = data, scale

    @classmethod
    def of(cls, weight):
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale, weight.dtype)

    def __tensor_flatten__(self):
        return ["int_data", "scale"], self.dtype

    @classmethod
    def __tensor_unflatten__(cls, inner, dtype, size, stride):
        return cls(inner["int_data"], inner["scale"], dtype)

    def dequantized(self):
        return self.int_data.to(self.dtype) * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.linear:
            x, weight, bias = (*args, *(kwargs[k] for k in ("bias",) if k in kwargs), None)[:3]
            found = torch.mm(x.reshape(-1, x.shape[-1]), weight.t()).reshape(*x.shape[:-1], weight.shape[0])
            return found if bias is None else found + bias
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (aten.mm.default, aten.addmm.default):
            return func(*(a.dequantized() if isinstance(a, cls) else a for a in args), **(kwargs or {}))
        if func in (aten.detach.default, aten.clone.default, aten.t.default):
            made = cls(*(func(t) for t in (args[0].int_data, args[0].scale)), args[0].dtype)
            return return_and_correct_aliasing(func, args, kwargs, made)
        return NotImplemented


class Twice(torch.Tensor):
    """Gives twice what operators give, in gradients too, and has no `__torch_function__` of its own."""

    @staticmethod
    def __new__(cls, inside):
        return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

    def __init__(self, inside):
        self.inside = inside

    def __tensor_flatten__(self):
        return ["inside"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Twice(inner["inside"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        found = func(*[a.inside if isinstance(a, cls) else a for a in args], **(kwargs or {}))
        return cls(found if func is aten.detach.default else found * 2)


class Counted(Twice):
    """Counts how often it is made."""

    made = 0

    def __init__(self, inside):
        super().__init__(inside)
        Counted.made += 1

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Counted(inner["inside"])


class Swapping(Twice):
    """Has another tensor inside after it was changed in place."""

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Swapping(inner["inside"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        given = [a.inside if isinstance(a, cls) else a for a in args]
        if func is aten.add_.Tensor:
            args[0].inside = given[0] + given[1]
            return args[0]
        return cls(func(*given, **(kwargs or {})))
