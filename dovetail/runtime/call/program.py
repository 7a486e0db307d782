"""Turn a host program's text into a callable of the program's inputs."""

from __future__ import annotations

import functools
import linecache
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from types import CodeType
from typing import Any

import torch
from torch.autograd import profiler

from dovetail.errors import InternalError
from dovetail.ir.checks import CheckFailed, OtherSizes
from dovetail.ir.kernel import HostProgram
from dovetail.ir.profiled import ProfiledCall
from dovetail.runtime.call import arena, checked
from dovetail.runtime.call.versions import unchanged, versions
from dovetail.runtime.gpu.device_scalars import cut, on_device

_numbers = count()
LASTING = "_lasting"  # in the namespace of a loaded program: see HostProgram


def undone(error: BaseException) -> bool:
    """Is everything as it was before the graph that raised this? Random numbers that it drew are put back for that.

    Only host programs know where they are; a graph that PyTorch runs may have written anything. Of a program in parts
    the part knows too.
    """
    if getattr(error, "undone", False):
        return True
    states = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        lasting = frame.f_globals.get(LASTING)
        if lasting is not None and frame.f_code.co_name in lasting:
            if line >= lasting[frame.f_code.co_name]:
                return False
            states.append(frame.f_locals.get("generator"))
    state = next((state for state in states if state is not None), None)
    if state is not None:
        torch.default_generator.set_state(state)
    return bool(states)


def native(value: Any) -> Any:
    """An overload's own C function, which skips a Python frame; anything else as it is."""
    return value._op if isinstance(value, torch._ops.OpOverload) else value


def execute(
    text: str, filename: str, namespace: dict[str, Any], code: CodeType | None = None, name: str = "run"
) -> Any:
    """Run text that defines a function, or its `code`. Tracebacks show its lines for as long as the function lives."""
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec") if code is None else named(code, filename), namespace)
    weakref.finalize(namespace[name], linecache.cache.pop, filename, None).atexit = False
    return namespace[name]


def named(code: CodeType, filename: str) -> CodeType:
    """The same of another file, functions inside included."""
    constants = tuple(named(c, filename) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=filename, co_consts=constants)


def load(host: HostProgram, kernels: Mapping[str, Callable[..., int]], title: str = "") -> Callable[..., Any]:
    """`kernels` maps symbols to loaded functions. The text shows up in tracebacks, `title` in profiles. What gives its
    results in buckets takes a list of inputs, and gives an iterator over lists of results.

    The first call checks all that library operators return with `expect_layout`, the others what has other strides
    than predicted. Where an index turns out to be out of bounds CheckFailed is raised, before anything of the caller's
    is written.
    """
    filename = f"<dovetail host program {next(_numbers)}>"
    functions = {k.symbol: kernels[k.symbol] for k in host.kernels}
    names = {name: native(value) for name, value in host.names.items()}
    namespace = {**names, **functions, "CheckFailed": CheckFailed, "expect_layout": expect_layout,
                 "on_device": on_device, "cut": cut, "versions": versions, "unchanged": unchanged, **checked.NAMES}
    namespace |= {LASTING: host.lasting, "profiler": profiler}
    namespace["shown"] = ProfiledCall(title, namespace, functions, host.launches)
    run = execute(host.text, filename, namespace, host.code)
    if host.buckets:
        return _in_buckets(namespace, host)
    if host.symbolic:
        return _symbolic(namespace, host)
    run, begin = _calls(run, host)
    first = [begin] if host.checks else []
    size = host.arena_bytes

    def call(*inputs: Any) -> tuple:
        block = arena.take(size)
        try:
            results = (first[0] if first else run)(block, *inputs)
            first.clear()
            return results
        finally:
            arena.give(block)

    return call if size or first else functools.partial(run, arena.take(0))


def _calls(run: Callable[..., Any], host: HostProgram) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What a call runs, and what the first one runs."""
    return (functools.partial(run, False), functools.partial(run, True)) if host.checks else (run, run)


def _in_buckets(namespace: dict[str, Any], host: HostProgram) -> Callable[[list], Iterator[list]]:
    """The block of memory is taken for as long as the program is under way."""
    run, first = _calls(namespace["run"], host)
    sizes, measure = (namespace[name] for name in ("sizes", "measure")) if host.symbolic else (_no_sizes, None)
    known: dict[Any, tuple] = {}  # what the sizes that have been met tell

    def call(box: list) -> Iterator[list]:
        values = sizes(box)
        given, chosen = known.get(values), run
        if given is None:
            if len(known) >= MOST_SIZES:
                known.clear()
            given, chosen = measure(*values) if measure else (host.arena_bytes,), first
        block = arena.take(given[0])
        try:
            for _ in chosen(block, given, box) if host.symbolic else chosen(block, box):
                yield _emptied(box)
            known[values] = given
        finally:
            arena.give(block)
        yield _emptied(box)

    return call


def _no_sizes(box: list) -> tuple:
    return ()


def _emptied(box: list) -> list:
    """What was in it, of which it keeps nothing: whoever gets a gradient may be the only one to have it."""
    found = box.copy()
    box.clear()
    return found


def _symbolic(namespace: dict[str, Any], host: HostProgram) -> Callable[..., Any]:
    """The same for a program that finds out about sizes in each call."""
    sizes, measure = namespace["sizes"], namespace["measure"]
    run, first = _calls(namespace["run"], host)
    known: dict[Any, tuple[int, ...]] = {}

    def call(*inputs: Any) -> tuple:
        values = sizes(*inputs)
        given, chosen = known.get(values), run
        if given is None:
            if len(known) >= MOST_SIZES:
                known.clear()
            given, chosen = measure(*values), first
        block = arena.take(given[0])
        try:
            results = chosen(block, given, *inputs)
            known[values] = given
            return results
        finally:
            arena.give(block)

    return call


MOST_SIZES = 256  # combinations of sizes that a program remembers


def expect_layout(tensor: Any, sizes: Any, strides: Any, operator: str) -> Any:
    """A library result as the kernels that read it assume it: a copy if its strides differ.

    Raises InternalError for other sizes.
    """
    if tensor is None:
        return None
    if tuple(tensor.shape) != sizes:
        raise InternalError("runtime", f"{operator} returned sizes {tuple(tensor.shape)}, but {sizes} were predicted")
    if all(n <= 1 or s == t for n, s, t in zip(sizes, tensor.stride(), strides, strict=True)) or not tensor.numel():
        return tensor
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def load_stages(host: HostProgram, parts: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A graph whose parts are called one after the other, as a callable of its inputs.

    It raises OtherSizes where a size turns out to be other than what the code relies on, before anything is written to.
    """
    filename = f"<dovetail stages {next(_numbers)}>"
    names = {name: native(value) for name, value in host.names.items()}
    namespace = {**names, "OtherSizes": OtherSizes, "expect_layout": expect_layout, LASTING: host.lasting}
    namespace |= {f"part{k}": part for k, part in enumerate(parts)}
    run: Callable[..., Any] = execute(host.text, filename, namespace, host.code)
    return run
