"""Steps whose results have sizes that depend on values, and steps that use such sizes."""

from __future__ import annotations

import random
from typing import Any

from tests.fuzz.shapes.steps import STEPS, Step, element


def _condition(rng: random.Random, name: str) -> str:
    """A mask of the tensor's shape, which may choose nothing, or everything; odd numbers, so that rounding is none."""
    some = f"{name} > 0.0137"
    return rng.choice((some, some, f"{name} < 0.3137", f"{name} > 9.0137", f"{name} > -9.0137", f"{name} * 2 != 0"))


def _rows(rng: random.Random, name: str, x: Any) -> str:
    """A mask, or numbers, for the first dimension."""
    column = f"{name}.flatten(1)[:, 0]" if x.dim() > 1 else name
    return f"({_condition(rng, column)})"


def chosen(rng: random.Random, name: str, x: Any, others: dict[str, Any]) -> str | None:
    if not x.dim():
        return f"{name}.nonzero()"
    mask, rows = _condition(rng, name), _rows(rng, name, x)
    alike = rng.choice([t for t, v in others.items() if v.shape == x.shape])
    long = [t for t, v in others.items() if v.dim() and v.shape[0] == x.shape[0]]
    return rng.choice((
        f"{name}[{mask}]", f"{name}[{rows}]", f"{name}[{rows}]", f"{name}.masked_select({mask})", f"{alike}[{mask}]",
        f"{rng.choice(long)}[{rows}]", f"{name}[{rows}.nonzero().squeeze(1)]", f"{name}[{rows}.nonzero()[:, 0]]",
        f"{name}.index_select(0, torch.where({rows})[0])", f"({mask}).nonzero()", f"torch.nonzero({mask}).sum(0)",
        f"torch.argwhere({mask})", f"torch.where({mask})[-1]", f"{name}[{rows}] + {rng.choice(long)}[{rows}].sum(0)",
        f"{name}[{rows}] * {name}[~{rows}].sum()", f"torch.cat([{name}[{rows}], {name}[~{rows}]])",
        f"{name}[{rows}].squeeze()", f"{name}[{rows}].mean(0)", f"{name}[{mask}].max()", f"{name}[{rows}][1:]",
        f"{name}[{rows}].reshape({name}[{rows}].shape[0], -1)", f"{name}[{rows}, ..., None]",
        f"{name}[{mask}].view(-1, 1) + {name}.sum()", f"{name}[{rows}] + {name}[:1]",
    ))  # fmt: skip


def counted(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    whole = f"({name} * 2 + 0.137).long()"
    if not x.dim():
        return f"torch.unique({whole})"
    rows = _rows(rng, name, x)
    return rng.choice((
        f"torch.unique(({name} + 0.137).round())", f"torch.unique({whole})",
        f"torch.unique({whole}, return_inverse=True)[1]",
        f"torch.unique({whole}, return_counts=True)[1]", f"torch.unique({whole}, dim=0)",
        f"torch.unique({whole}, dim={x.dim() - 1})", f"{whole}.flatten().unique_consecutive()",
        f"torch.unique_consecutive({whole}, return_counts=True)[1]", f"torch.bincount({whole}.flatten().abs())",
        f"torch.bincount({rows}.long(), minlength=2)", f"torch.repeat_interleave({name}, {rows}.long(), 0)",
        f"torch.repeat_interleave({name}, {rows}.long() + 1, dim=0)", f"torch.repeat_interleave({rows}.long())",
        f"torch.repeat_interleave({name}, 2, 0)",
    ))  # fmt: skip


def sized(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    if not x.dim():
        return None
    k = rng.choice((
        f"({_condition(rng, name)}).sum().item()", f"{_rows(rng, name, x)}.sum().item()",
        f"({name} * 3 + 0.137).long().sum().item()", f"{name}[{_rows(rng, name, x)}].shape[0]",
        f"len({name}[{_condition(rng, name)}])", f"{_rows(rng, name, x)}.long().tolist()[0]",
    ))  # fmt: skip
    return rng.choice((
        f"{name}[: {k}]", f"{name}[{k} :]", f"{name}[-{k} :]", f"torch.zeros({k}, 2) + 1", f"torch.arange({k})",
        f"{name}.narrow(0, 0, {k})", f"{name} * {k}", f"{name}.sum() / max({k}, 1)", f"{name}.new_ones({k}).cumsum(0)",
        f"{name}[0].expand({k}, {''.join('-1, ' * (x.dim() - 1))})", f"torch.ones({k}, {k}).tril()",
        f"{name}.roll({k}, 0)", f"{name}.split([{k}, {name}.shape[0] - {k}])[0]", f"{name}[{k}]",
        f"torch.cat([{name}, {name}[: {k}]])", f"{name}.unflatten(0, ({k}, -1))", f"torch.full(({k},), {k})",
        f"F.pad({name}, (0, {k}))", f"{name}.repeat({', '.join([k, *['1'] * (x.dim() - 1)])})",
        f"k = {k}\ntorch._check(k <= 6)\nTARGET = {name}[:k] * k",
        f"k = {k}\ntorch._check(k >= 0)\nTARGET = {name}[k:]",
        f"k = {k}\nif k > 2:\n    TARGET = {name} * 2\nelse:\n    TARGET = {name}[:k]",
        f"TARGET = {name}\nfor _ in range(min({k}, 3)):\n    TARGET = TARGET + 1",
    ))  # fmt: skip


def stored(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    if not x.dim() or not x.is_floating_point():
        return None
    mask, rows = _condition(rng, name), _rows(rng, name, x)
    return rng.choice((
        f"TARGET = {name} * 1\nTARGET[{mask}] = 0.5", f"TARGET = {name} * 1\nTARGET[{rows}] = {name}[{rows}] + 1",
        f"TARGET = torch.zeros_like({name})\nTARGET[{mask}] = {name}[{mask}]",
        f"TARGET = {name} * 1\nTARGET[{rows}] *= 2", f"TARGET = {name}.clone()\nTARGET[{rows}.nonzero()[:, 0]] = 3",
        f"TARGET = {name}.index_add(0, {rows}.nonzero()[:, 0], {name}[{rows}])",
        f"TARGET = {name} + 1\nTARGET[{mask}] = TARGET[{mask}].mean()",
        f"TARGET = {name}[{rows}]\nTARGET[:1] = 2", f"{name}.mul_(2)\nTARGET = {name}[{mask}]",
    ))  # fmt: skip


def routed(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    """Rows dealt out among a few parts of found lengths, worked on part by part, and joined: once, or several times."""
    if not x.dim() or not x.is_floating_point():
        return None
    rows = name if x.dim() == 2 else f"{name}.flatten(1)" if x.dim() > 2 else f"{name}[:, None]"
    count = rng.choice((2, 3, 4))
    sizes = rng.choice((
        f"torch.bincount(which, minlength={count}).tolist()",
        f"torch.zeros({count}, dtype=torch.long).index_add(0, which, torch.ones_like(which)).tolist()",
        f"[(which == k).sum().item() for k in range({count})]", f"F.one_hot(which, {count}).sum(0).tolist()",
        f"[int(n) for n in torch.zeros({count}).index_add(0, which, torch.ones(which.shape)).long()]",
    ))  # fmt: skip
    lines = [
        f"tokens = {rows}", f"which = (tokens[:, 0] * 3 + 0.137).long().abs().clamp(max={count - 1})",
        f"sizes = {sizes}",
        f"weights = torch.linspace(-1, 1, {count} * tokens.shape[1] ** 2).view({count}, tokens.shape[1], -1)",
        "order = which.argsort(stable=True)", f"TARGET = {rng.choice(('tokens', 'tokens[order]', 'tokens * 2'))}",
    ]  # fmt: skip
    for _ in range(rng.choice((1, 2, 2, 3))):
        lines += _dealt(rng)
    return "\n".join(lines)


def _dealt(rng: random.Random) -> list[str]:
    each = rng.choice((
        "part @ weights[k]", "F.linear(part, weights[k])", "(part @ weights[k]).relu() @ weights[-1 - k]",
        "part - weights[k].sum(0)", "part + part.sum(0)", "part.cumsum(0)", "F.linear(part, weights[k], weights[k][0])",
        "part * (k + 1)",
    ))  # fmt: skip
    parts = rng.choice(("TARGET.split(sizes)", "torch.split(TARGET, sizes, dim=0)", "TARGET.split_with_sizes(sizes)",
                        "(TARGET[sum(sizes[:k]) : sum(sizes[: k + 1])] for k in range(len(sizes)))"))
    made = f"[{each} for k, part in enumerate({parts})]"
    return rng.choice((
        [f"TARGET = torch.cat({made})"], [f"TARGET = torch.cat({made}, dim=0)"],
        [f"TARGET = torch.cat({made}) + TARGET"],
        [f"TARGET = torch.zeros_like(tokens).index_add(0, order, torch.cat({made}))"],
        [f"TARGET = torch.cat({made})", "TARGET = TARGET[order.argsort()]"],
        [f"made = {made}", "TARGET = TARGET.clone()", "start = 0", "for part in made:",
         "    TARGET[start : start + part.shape[0]] = part", "    start = start + part.shape[0]"],
        ["joined = torch.zeros_like(TARGET)", "for k in range(len(sizes)):", "    rows = (which == k).nonzero()[:, 0]",
         "    part = TARGET[rows]", f"    joined = joined.index_add(0, rows, {each})", "TARGET = joined"],
    ))  # fmt: skip


LATE: tuple[tuple[Step, int], ...] = (
    *((step, weight) for step, weight in STEPS), (chosen, 12), (counted, 5), (sized, 10), (stored, 4), (routed, 4),
)  # fmt: skip
#: Hardly anything but routing.
ROUTED: tuple[tuple[Step, int], ...] = ((routed, 12), (element, 4), (chosen, 2))
