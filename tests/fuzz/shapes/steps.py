"""The steps of random programs: each gives an expression of a tensor, in terms of its sizes, or None."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Step = Callable[[random.Random, str, Any, dict[str, Any]], "str | None"]


def _dim(rng: random.Random, x: Any) -> int:
    d = rng.randrange(x.dim())
    return d if rng.random() < 0.7 else d - x.dim()


def _sized(rng: random.Random, name: str, x: Any, k: int) -> str:
    """A size as the program may write it."""
    short = str(x.shape[k]) if x.shape[k] < 3 else f"{name}.shape[{k}]"
    return rng.choice((f"{name}.shape[{k}]", f"{name}.size({k})", short))


def reshape(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    if not x.dim():
        return f"{name}.reshape(1)"
    kind = rng.randrange(6)
    k = rng.randrange(x.dim())
    sizes = [_sized(rng, name, x, d) for d in range(x.dim())]
    if kind == 0:
        return f"{name}.reshape(-1)"
    if kind == 1 and x.dim() > 1:
        k = rng.randrange(x.dim() - 1)
        sizes[k : k + 2] = [rng.choice((f"{name}.shape[{k}] * {name}.shape[{k + 1}]", "-1"))]
        return f"{name}.reshape({', '.join(sizes)})"
    if kind == 2:
        by = rng.choice((2, 3, 4))
        if x.shape[k] % by:
            return None
        whole = rng.choice((f"{name}.shape[{k}] // {by}", "-1"))
        sizes[k : k + 1] = rng.choice(([whole, str(by)], [str(by), whole]))
        return f"{name}.{rng.choice(('reshape', 'view'))}({', '.join(sizes)})"
    if kind == 3 and x.dim() > 1:
        first = rng.randrange(x.dim() - 1)
        return f"{name}.flatten({first}, {rng.choice((first + 1, -1))})"
    if kind == 4:
        return f"{name}.reshape({', '.join(reversed(sizes))})"
    return f"{name}.view({', '.join([*sizes[:k], '1', *sizes[k:]])})"


def order(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    if x.dim() < 2:
        return None
    a, b = rng.sample(range(x.dim()), 2)
    permuted = rng.sample(range(x.dim()), x.dim())
    text = rng.choice((
        f"{name}.transpose({a}, {b})", f"{name}.permute({', '.join(map(str, permuted))})",
        f"{name}.movedim({a}, {b})", f"{name}.transpose({a}, {b}).contiguous()",
    ))  # fmt: skip
    return text


def part(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    if not x.dim():
        return None
    d = rng.randrange(x.dim())
    n = f"{name}.shape[{d}]"
    inside = rng.choice((
        "1:", ":-1", "::2", f":{n} // 2", f"{n} // 2:", "-2:", "1:-1", ":3", "1:4", f"{n} - 2:", f":{n} - 1", "2::3",
        f"{n} // 3:{n} // 2 + 1", "0", "-1", f"{n} // 2", "None, :", f":min({n}, 4)", f"max({n} - 3, 0):",
    ))  # fmt: skip
    text = rng.choice((
        f"{name}[{':, ' * d}{inside}]", f"{name}[{':, ' * d}{inside}]", f"{name}.narrow({d}, 0, {n} // 2)",
        f"{name}.narrow({d}, 1, {n} - 1)", f"{name}.select({d}, {rng.choice((0, -1))})",
        f"{name}.unfold({d}, {rng.choice((1, 2, 3))}, {rng.choice((1, 2))})",
        f"{name}.split({rng.choice((1, 2, 3))}, {d})[{rng.choice((0, -1))}]",
        f"{name}.chunk({rng.choice((2, 3))}, {d})[{rng.choice((0, -1))}]",
        f"{name}.split([1, {n} - 1], {d})[{rng.choice((0, 1))}]", f"{name}.unbind({d})[0]",
    ))  # fmt: skip
    return text


def together(rng: random.Random, name: str, x: Any, others: dict[str, Any]) -> str | None:
    if not x.dim():
        return f"torch.stack([{name}, {name} * 2])"
    d = _dim(rng, x)
    same = [t for t, v in others.items() if v.shape == x.shape and v.dtype == x.dtype]
    around = [n for k, n in enumerate(x.shape) if k != d % x.dim()]
    level = {t: v for t, v in others.items() if v.dim() == x.dim()}
    fits = [t for t, v in level.items() if [n for k, n in enumerate(v.shape) if k != d % x.dim()] == around]
    return rng.choice((
        f"torch.cat([{name}, {rng.choice(fits)}], {d})", f"torch.cat([{rng.choice(fits)}, {name}, {name}], {d})",
        f"torch.stack([{name}, {rng.choice(same)}], {d})",
        f"torch.cat([{name}[{':, ' * (d % x.dim())}1:], {name}], {d})",
        f"torch.cat([{name}[{':, ' * (d % x.dim())}-1:], {name}[{':, ' * (d % x.dim())}:-1]], {d})",
    ))  # fmt: skip


def reduce(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    keep = rng.choice(("", ", keepdim=True"))
    if not x.dim() or rng.random() < 0.15:
        return f"{name}.{rng.choice(('sum', 'mean', 'prod', 'max', 'min'))}()"
    d = _dim(rng, x)
    plain = rng.choice(("sum", "mean", "amax", "amin", "sum", "mean", "logsumexp"))
    several = sorted(rng.sample(range(x.dim()), rng.randrange(1, x.dim() + 1)))
    return rng.choice((
        f"{name}.{plain}({d}{keep})", f"{name}.{rng.choice(('sum', 'mean', 'amax'))}({several}{keep})",
        f"{name}.{rng.choice(('max', 'min'))}({d}{keep}).values", f"{name}.prod({d}{keep})",
        f"{name}.var({d}, unbiased=False{keep})", f"{name}.std({d}{keep})", f"({name} > 0).any({d}{keep})",
        f"({name} > 0).sum({d}{keep})", f"{name}.argmax({d}{keep})", f"{name}.norm(2, {d}{keep})",
        f"{name}.softmax({d})", f"{name}.log_softmax({d})", f"{name}.cumsum({d})",
    ))  # fmt: skip


def element(rng: random.Random, name: str, x: Any, others: dict[str, Any]) -> str | None:
    other = rng.choice(list(others))
    n = f"{name}.shape[{rng.randrange(x.dim())}]" if x.dim() else "2"
    return rng.choice((
        f"{name} * 2 + 1", f"{name}.relu()", f"torch.sin({name})", f"{name} + {other}", f"{name} * {other}",
        f"torch.where({name} > 0, {name}, {other})", f"{name} * {n}", f"{name} / ({n} + 1)", f"{name} + {name}.numel()",
        f"{name}.masked_fill({name} < 0, 0.5)", f"{name}.clamp(-1, 1)", f"torch.tanh({name})",
    ))  # fmt: skip


def shapes(rng: random.Random, name: str, x: Any, others: dict[str, Any]) -> str | None:
    if not x.dim():
        return f"{name}.expand(3)"
    d = rng.randrange(x.dim())
    n = f"{name}.shape[{d}]"
    ones = [k for k in range(x.dim()) if x.shape[k] == 1]
    sizes = [f"{name}.shape[{k}]" for k in range(x.dim())]
    grown = [rng.choice((n, "3")) if k in ones else rng.choice((s, "-1")) for k, s in enumerate(sizes)]
    last = x.dim() - 1
    return rng.choice((
        f"{name}.unsqueeze({_dim(rng, x)})", f"{name}.squeeze({_dim(rng, x)})", f"{name}.expand({', '.join(grown)})",
        f"{name}.repeat({', '.join(rng.choice(('1', '2')) for _ in sizes)})", f"{name}.expand({n}, {', '.join(sizes)})",
        f"F.pad({name}, ({rng.choice('012')}, {rng.choice('012')}))", f"{name}.flip({d})",
        f"{name}.roll({rng.choice((1, -1, 2))}, {d})", f"{name} + torch.arange({name}.shape[{last}])",
        f"torch.zeros({n}, 2) + 1", f"torch.full(({n},), 0.5)", f"torch.arange({n})",
        f"{name}.new_ones({n}, {n}).tril()",
        f"{name}.index_select({d}, torch.arange({n} - 1))", f"{name}[torch.arange({name}.shape[0]) // 2]",
        f"{name}.gather({d}, torch.zeros_like({name}, dtype=torch.int64))", f"{name}.t()", f"{name}.diagonal()",
        f"{name}.repeat_interleave(2, {d})", f"{name}.triu(1)", f"{name}.clone()", f"{name}.squeeze()",
    ))  # fmt: skip


def product(rng: random.Random, name: str, x: Any, others: dict[str, Any]) -> str | None:
    if x.dim() < 2:
        return f"torch.outer({name}, {name})" if x.dim() else None
    inner, rows = x.shape[-1], x.shape[-2]
    right = [t for t, v in others.items() if v.dim() >= 2 and v.shape[-2] == inner]
    return rng.choice((
        f"{name} @ {name}.transpose(-1, -2)", f"{name}.transpose(-1, -2) @ {name}",
        f"{name} @ {rng.choice(right)}" if right else None, f"{name} @ torch.ones({name}.shape[-1], 3)",
        f"F.linear({name}, torch.ones({rows}, {name}.shape[-1]))",
        f"torch.einsum('...ij,...kj->...ik', {name}, {name})", f"F.layer_norm({name}, {name}.shape[-1:])",
    ))  # fmt: skip


def branch(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    if not x.dim():
        return None
    d = rng.randrange(x.dim())
    test = rng.choice((f"{name}.shape[{d}] > {rng.randrange(5)}", f"{name}.shape[{d}] == {x.shape[d]}",
                       f"{name}.shape[{d}] % 2 == 0", f"{name}.numel() > {rng.choice((0, 8, 30))}"))
    return f"if {test}:\n    TARGET = {name} + 1\nelse:\n    TARGET = {name} * 3"


def write(rng: random.Random, name: str, x: Any, _: Any) -> str | None:
    if not x.dim():
        return None
    d = rng.randrange(x.dim())
    place = rng.choice(("1:", ":-1", "0", "::2", f":{name}.shape[{d}] // 2"))
    what = rng.choice(("fill_(0.5)", "add_(1)", "mul_(2)", f"copy_({name}[{':, ' * d}{place}] * 2)"))
    return f"if True:\n    TARGET = {name}.clone()\n    TARGET[{':, ' * d}{place}].{what}"


STEPS: tuple[tuple[Step, int], ...] = (
    (reshape, 18), (order, 9), (part, 18), (together, 12), (reduce, 14), (element, 10), (shapes, 12), (product, 5),
    (branch, 3), (write, 3),
)  # fmt: skip
