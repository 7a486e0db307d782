"""Functions that take tensors apart which are made of others, and put such tensors together, as templates say.

    taking([WrapperPart(0), Whole(DTensor, ("_local_tensor",), ...)])    ->

    def take(given):
        a0, a1, = given
        return [a0, a1._local_tensor]
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any

import torch

from dovetail.ir.aten import Beside, Own, SizeOf, Template, Whole, WrapperPart
from dovetail.runtime.call.program import execute

Take = Callable[[Sequence[Any]], list]
#: Makes a tensor of plain values, and of parts of inputs, by their places.
Make = Callable[..., Any]
NOTHING: Mapping[int, Any] = MappingProxyType({})
_numbers = count()


def taking(templates: Sequence[Template]) -> Take:
    """What gives the plain values that tensors are made of which are made like these."""
    names = [f"a{k}" for k in range(len(templates))]
    waits, parts = list[str](), list[str]()
    for name, template in zip(names, templates, strict=True):
        parts += _parts(template, name, waits)
    body = [f"{''.join(f'{name}, ' for name in names)}= given"] if names else []
    body += [*waits, f"return [{', '.join(parts)}]"]
    text = "\n".join(["def take(given):", *(f"    {line}" for line in body), ""])
    found: Take = execute(text, f"<dovetail parts {next(_numbers)}>", {}, name="take")
    return found


def _parts(template: Template, text: str, waits: list[str]) -> Iterator[str]:
    """Texts of what the value of `text` is made of; `waits` gets the lines that come before."""
    if isinstance(template, WrapperPart):
        yield text
    elif isinstance(template, Whole):
        if hasattr(template.cls, "trigger_wait"):  # what a collective gives, which may not be there yet
            waits.append(f"{text}.trigger_wait()")
        for name, part in zip(template.names, template.parts, strict=True):
            yield from _parts(part, f"{text}.{name}" if name.isidentifier() else f"getattr({text}, {name!r})", waits)


def making_all(templates: Sequence[Template | None]) -> Callable[..., list]:
    """`make(values, own)` for each of the templates; None where there is none."""
    makes = [template and making(template) for template in templates]
    return lambda values, own=NOTHING: [make and make(values, own) for make in makes]


def making(template: Template) -> Make:
    """What makes `make(values, own)` of the template."""
    if isinstance(template, WrapperPart):
        return lambda values, own=NOTHING: values[template.index]
    if isinstance(template, Own):
        return lambda values, own=NOTHING: own[template.index]
    if isinstance(template, Beside):
        return lambda values, own=NOTHING: template.value
    makes, cls = [making(part) for part in template.parts], template.cls
    varies = any(isinstance(n, SizeOf) for n in (*template.size, *template.stride))
    alike = None if varies else _ALIKE.get(f"{cls.__module__}.{cls.__qualname__}")
    later: list[Callable[[Any], Any]] = []

    def make(values: Sequence[Any], own: Mapping[int, Any] = NOTHING) -> Any:
        made = [each(values, own) for each in makes]
        if later:
            return later[0](made[0])
        size = torch.Size(filled(template.size, made, torch.Tensor.size))
        stride = tuple(filled(template.stride, made, torch.Tensor.stride))
        whole = cls.__tensor_unflatten__(dict(zip(template.names, made, strict=True)), template.context, size, stride)
        if alike is not None:
            later.append(alike(whole))
        return whole

    return make


def filled(sizes: Sequence[Any], parts: Sequence[Any], sizes_of: Callable[[Any], Any]) -> Sequence[Any]:
    """With what the parts have where sizes vary."""
    return [sizes_of(parts[n.part])[n.dim] if isinstance(n, SizeOf) else n for n in sizes]


def _distributed(first: Any) -> Callable[[Any], Any]:
    """Makes others like the first one, with a description each, as PyTorch may write to it. Its class would work out
    that again, and go through a constructor that does nothing but to hide itself from other compilers."""
    cls: Any = type(first)
    spec, requires_grad = first._spec, first.requires_grad
    return lambda part: cls.__new__(cls, part, copy.copy(spec), requires_grad=requires_grad)


#: Classes of tensors of which the second one is made with less than the first.
_ALIKE = {"torch.distributed.tensor.DTensor": _distributed}
