"""Run GPU kernels on this machine's CPU, under Triton's interpreter."""

from __future__ import annotations

import ast
import ctypes
import dataclasses
import functools
import inspect
import itertools
import linecache
import types as python_types
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch
import triton.language as tl
from triton import knobs
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from dovetail.codegen.gpu import generate
from dovetail.codegen.gpu.types import TYPES
from dovetail.ir import dimvalues
from dovetail.ir.kernel import NOTHING, REPORT, Kernel
from dovetail.ir.loops import Group, Param
from dovetail.ir.template import template_of
from dovetail.runtime.gpu import templates
from dovetail.runtime.templates import result
from tests.codegen.harness import faults, number

_binary = InterpreterBuilder.binary_op
_COMPARISONS = (numpy.less, numpy.less_equal, numpy.greater, numpy.greater_equal, numpy.equal, numpy.not_equal)


def _binary_op(self: Any, left: Any, right: Any, op: Any) -> Any:
    """The interpreter gives comparisons of floats as floats, on which bits have no operators."""
    if op in _COMPARISONS:
        return TensorHandle(op(left.data, right.data), tl.int1)
    return _binary(self, left, right, op)


_patch = interpreter._patch_lang_tensor


def _patch_lang_tensor(tensor: Any, scope: Any) -> None:
    """A number of one element is an index for current NumPy too."""
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


_dot = InterpreterBuilder.create_dot


def _create_dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
    """NumPy has no bfloat16: the interpreter would multiply the bits."""
    return _dot(self, _widened(left), _widened(right), *rest)


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return TensorHandle((handle.data.astype(numpy.uint32) << 16).view(numpy.float32), tl.float32)


@functools.cache
def _builtins(package: Any) -> list[str]:
    return [name for name, member in inspect.getmembers(package) if tl.core.is_builtin(member)]


def _patch_builtin(package: Any, builder: Any, scope: Any) -> None:
    """For each launch the interpreter would look through all of the language."""
    for name in _builtins(package):
        if tl.core.is_builtin(member := getattr(package, name)):  # else a launch is under way
            interpreter._patch_attr(package, name, member, builder, scope)


_numbers = functools.cache(interpreter._get_np_dtype)


def _get_np_dtype(kind: Any) -> Any:
    return numpy.dtype(numpy.uint64) if kind.scalar.is_ptr() else _numbers(kind.scalar)


_type_of_values = tl.core._type_for_tuple_values


@functools.cache
def _type_of_shape(*sizes: int) -> Any:
    return _type_of_values([tl.constexpr(size) for size in sizes])


def _type_for_tuple_values(values: Any, fields: Any = None) -> Any:
    """Each tensor has a shape, whose type is a text: the interpreter would write it for each operation."""
    sizes = [v.value if type(v) is tl.constexpr else v for v in values]
    if fields is None and set(map(type, sizes)) <= {int}:
        return _type_of_shape(*sizes)
    return _type_of_values(values, fields)


def _generic_reduce(self: Any, given: Any) -> list[Any]:
    """Neighbours first, as devices do, and all of them at once: the interpreter takes elements one by one."""
    flat, axis = self.unravel(given, self.axis)
    kinds = [each.dtype for each in flat]
    left = [numpy.moveaxis(each.handle.data, axis, 0) for each in flat]
    while len(left[0]) > 1:
        pairs = [(data[side::2], kind) for side in (0, 1) for data, kind in zip(left, kinds, strict=True)]
        found = self.combine_fn.fn(*(self.to_tensor(data, kind) for data, kind in pairs))
        found, shape = found if isinstance(found, tuple) else (found,), left[0][::2].shape
        left = [numpy.broadcast_to(getattr(each, "handle", each).data, shape) for each in found]
    kept = [1] * len(given[0].shape) if self.axis is None else numpy.expand_dims(left[0][0], axis).shape
    results = [data[0].reshape(kept) if self.keep_dims else data[0] for data in left]
    return [self.to_tensor(data, kind) for data, kind in zip(results, kinds, strict=True)]


InterpreterBuilder.binary_op = _binary_op
InterpreterBuilder.create_dot = _create_dot
interpreter._patch_builtin = _patch_builtin
interpreter._get_np_dtype = _get_np_dtype
interpreter.ReduceOps.generic_reduce = _generic_reduce
tl.core._type_for_tuple_values = _type_for_tuple_values
_builder = interpreter.interpreter_builder
_builder.options = dataclasses.replace(_builder.options, debug=True, sanitize_overflow=False)  # as on a device
interpreter._patch_lang_tensor = _patch_lang_tensor


def _device_function(compute: Any) -> Any:
    """What the interpreter lacks: a function of CUDA's device library, computed by NumPy."""

    def call(*args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, tl.tensor)]
        arrays = [a.handle.data if isinstance(a, tl.tensor) else a for a in args]
        made = numpy.asarray(compute(*arrays)).astype(arrays[0].dtype)
        kind = max(tensors, key=lambda t: t.numel.value if hasattr(t.numel, "value") else 0)
        return tl.tensor(TensorHandle(made, kind.dtype), kind.type)

    return call


def _by_torch(compute: Any) -> Any:
    return lambda x: compute(torch.from_numpy(numpy.asarray(x))).numpy()


def _library() -> Any:
    names = "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh trunc rint copysign nextafter fmod".split()
    table: dict[str, Any] = {name: getattr(numpy, name) for name in names}
    table |= {f"a{n}": getattr(numpy, f"arc{n}") for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
    table |= {"atan2": numpy.arctan2, "pow": numpy.power, "rsqrt": lambda x: 1 / numpy.sqrt(x)}
    table |= {name: _by_torch(getattr(torch, name)) for name in ("erf", "erfc")}
    return python_types.SimpleNamespace(**{name: _device_function(f) for name, f in table.items()})


def load(kernel: Kernel) -> Any:
    """The kernel as a callable of tensors and numbers, none of which it may write over."""
    *_, function = ast.parse(kernel.text).body
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    assert isinstance(function, ast.FunctionDef) and not stored & {argument.arg for argument in function.args.args}
    filename = f"<kernel {kernel.symbol}>"
    linecache.cache[filename] = (len(kernel.text), None, kernel.text.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": "kernel"}
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        exec(compile(kernel.text, filename, "exec"), namespace)
    namespace["libdevice"] = _library()
    return namespace[kernel.symbol]


def run(
    group: Group, tensors: dict[str, torch.Tensor], sizes: dict[Any, int] | None = None, options: Any = None,
    wide: bool = False,
) -> int:
    """Interpret the group's kernel on the tensors; the status, as for CPU kernels."""
    kernel = generate(group, options)
    memory = {**tensors, REPORT: torch.full((len(kernel.accesses),), NOTHING)}
    numbers = [number(kernel, s, memory, sizes or {}) for s in kernel.sizes if not isinstance(s, Param)]
    *given, programs = numbers
    if kernel.wide is not None:
        reach = given.pop()
        assert kernel.accesses or all(0 <= abs(n) <= max(reach, 1) for n in given)
        kernel = kernel.wide if wide else kernel
    flat = [_memory(memory[b.name]) for b in kernel.pointers]
    if programs:
        with numpy.errstate(all="ignore"):
            load(kernel)[(programs,)](*flat, *given)
    assert not faults(kernel, memory[REPORT])
    return 0


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.as_strided((_span(tensor),), (1,))
    return flat.view(torch.int8) if tensor.dtype is torch.bool else flat


def _span(tensor: torch.Tensor) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0


def run_many(groups: list[Group], tensors: dict[str, torch.Tensor]) -> None:
    """Interpret one launch of many groups that are the same kernel, each with buffers of its own."""
    kernel, words, starts = generate(groups[0], many=True), [], [0]
    alone = [generate(group) for group in groups]
    assert len({each.symbol for each in alone}) == 1
    for each in alone:
        sizes = [dimvalues.evaluate(s, {}) for s in each.sizes]
        words += [*(_memory(tensors[b.name]).data_ptr() for b in each.pointers), *sizes]
        starts.append(starts[-1] + sizes[-1])
    table = torch.tensor([*starts, *words], dtype=torch.int64)
    load(kernel)[(starts[-1],)](table, len(groups))


def loaded(kernels: Iterable[Kernel]) -> dict[str, Callable[..., int]]:
    """As `runtime.gpu.load` gives them: callables of addresses and numbers, for memory of the CPU."""
    return {kernel.symbol: functools.partial(_call, kernel) for kernel in kernels}


def _call(kernel: Kernel, *args: int) -> int:
    if kernel.many:
        width = len(kernel.pointers) + len(kernel.sizes)
        starts = list(itertools.accumulate(args[width - 1 :: width], initial=0))
        given: list[Any] = [torch.tensor([*starts, *args]), len(starts) - 1]
        programs = starts[-1]
    else:
        *given, programs = args
        given = given if kernel.wide is None else given[:-1]  # its reach is the launcher's
        given[: len(kernel.pointers)] = map(_at, given, kernel.pointers)
    if programs:
        with numpy.errstate(all="ignore"):
            load(kernel)[(programs,)](*given)
    return 0


_MEMORY = {name: dtype for dtype, (_, name) in TYPES.items() if dtype is not torch.bool}


def _at(address: int, buffer: Any) -> torch.Tensor:
    """A tensor that begins at the address; the interpreter asks for no more of it."""
    dtype = _MEMORY[TYPES[buffer.dtype][1]]
    return torch.frombuffer((ctypes.c_char * dtype.itemsize).from_address(address), dtype=dtype)


def launched_template(given: list[torch.Tensor], code: str, sizes: tuple[int, ...]) -> list[torch.Tensor]:
    """As `runtime.gpu.templates.run`, on the CPU."""
    made, host = template_of(code, sizes), torch.device("cpu")
    assert [t.stride() for t in given] == list(made.strides)
    results = [result(r, host) for r in made.results]
    memory = [t.view(torch.int8) if t.dtype is torch.bool else t for t in (*given, *results)]
    table = torch.tensor(made.table, dtype=torch.int32)
    with numpy.errstate(all="ignore"):
        load(templates.kernel_of(made, host))[made.numbers](*memory, table)
    return results
