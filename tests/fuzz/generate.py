"""Random Python functions of tensors: pointwise, reductions, views, indexing, mutation, in any order.

A program grows statement by statement, each tried on real tensors first; what eager refuses is dropped. A value
is *exact* while it is made of inputs by operations that do not round: only exact values meet operations with
jumps (comparisons, rounding, conversion to integers), so that a last-place difference cannot become a large one.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
SHAPES = ((), (1,), (5,), (8,), (3, 5), (4, 8), (1, 8), (4, 1), (2, 3, 4), (2, 1, 4), (17,), (2, 33), (0, 4))


@dataclass
class Value:
    name: str
    tensor: torch.Tensor
    exact: bool


@dataclass
class Program:
    seed: int
    source: str
    make_inputs: Callable[[], list[torch.Tensor]]
    dtypes: set[torch.dtype] = field(default_factory=set)

    def function(self) -> Callable[..., Any]:
        """The program as a function whose source tracebacks can show."""
        filename = f"<fuzz {self.seed}>"
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(True), filename)
        scope: dict[str, Any] = {"torch": torch}
        exec(compile(self.source, filename, "exec"), scope)
        return scope["program"]


UNARY = ("torch.tanh({a})", "torch.sin({a})", "torch.sigmoid({a})", "-{a}", "torch.abs({a})", "torch.relu({a})",
         "torch.exp(-torch.abs({a}))", "torch.log1p(torch.abs({a}))", "torch.sqrt(torch.abs({a}) + 1)", "{a} * 0.5",
         "{a} + 1", "2 - {a}", "torch.nn.functional.gelu({a})", "torch.erf({a})", "torch.clamp({a}, -0.5, 0.75)",
         "torch.nn.functional.silu({a})", "{a}.square()", "torch.rsqrt(torch.abs({a}) + 0.5)", "torch.atan({a})")
BINARY = ("{a} + {b}", "{a} - {b}", "{a} * {b}", "torch.maximum({a}, {b})", "torch.minimum({a}, {b})",
          "{a} / (torch.abs({b}) + 1)", "torch.atan2({a}, torch.abs({b}) + 1)", "torch.hypot({a}, {b})",
          "torch.lerp({a}, {b}, 0.25)", "torch.where({a} == {a}, {a}, {b})")
EXACT_BINARY = ("{a} < {b}", "{a} == {b}", "{a} >= {b}", "{a} != {b}", "torch.where({a} > {b}, {a}, {b})",
                "torch.floor({a})", "torch.round({a})", "torch.sign({a})", "{a}.to(torch.int64)", "torch.trunc({a})",
                "{a}.argmax()", "torch.heaviside({a}, {b})", "torch.isfinite({a})")
INTEGER = ("{a} + {b}", "{a} * 3", "{a} // 2", "{a} % 3", "{a} & {b}", "{a} ^ {b}", "{a} << 1", "{a}.to(torch.float32)",
           "torch.bitwise_not({a})", "{a}.sum()", "{a}.cumsum(0)", "{a}.float()", "{a} == {b}", "{a}.clamp(-3, 3)")
REDUCE = ("{a}.sum({d}, keepdim={k})", "{a}.mean({d}, keepdim={k})", "{a}.amax({d}, keepdim={k})",
    "{a}.amin({d}, keepdim={k})", "{a}.var({d}, keepdim={k})", "torch.softmax({a}, {d})",
    "torch.log_softmax({a}, {d})", "{a}.sum()", "{a}.mean()", "torch.logsumexp({a}, {d})", "{a}.max({d})[0]",
    "torch.nn.functional.layer_norm({a}, {a}.shape[-1:])", "{a}.cumsum({d})",
    "torch.linalg.vector_norm({a}, dim={d})", "{a}.prod({d})", "{a}.std()")
VIEW = ("{a}.t()", "{a}.transpose(0, {d})", "{a}.unsqueeze({d})", "{a}.flatten()", "{a}.reshape(-1)", "{a}[1:]",
    "{a}[..., ::2]", "{a}[0]", "{a}[..., -1]", "{a}.expand(3, *{a}.shape)", "{a}.flip({d})", "{a}.squeeze()",
    "{a}.view(-1, 2)", "{a}[None]", "{a}.permute(*reversed(range({a}.dim())))", "{a}.narrow({d}, 0, 1)",
    "{a}.diagonal()", "{a}.view({a}.shape)", "{a}.chunk(2, {d})[0]", "{a}.contiguous()", "{a}.roll(1, {d})",
    "{a}.clone()", "{a}.unfold({d}, 2, 1)", "{a}.detach()", "torch.nn.functional.pad({a}, (1, 2))",
    "{a}.repeat_interleave(2, {d})", "torch.tril({a})", "{a}.movedim(0, -1)")
JOIN = ("torch.cat([{a}, {b}], {d})", "torch.stack([{a}, {b}], {d})", "torch.cat([{a}, {a}, {b}])",
    "torch.broadcast_tensors({a}, {b})[0]", "torch.outer({a}, {b})", "{a} @ {b}",
    "torch.where({a} == {a}, {a}, {b})")
MUTATE = (
    "{a}.add_(1)", "{a}.mul_({b})", "{a}.copy_({b})", "{a}[0] = 0.5", "{a}[..., 1:] = {b}", "{a}[1:].add_({b})",
    "{a}.t().mul_(0.5)", "{a}.zero_()", "{a}.sub_({b}.sum())", "{a}[..., ::2].mul_(2)", "{a}.fill_(0.25)",
    "{a}.tanh_()", "{a}.clamp_(-0.5, 0.5)", "{a} += {b}", "{a}.view(-1)[:2] = 0", "{a}.neg_()",
    "{a}.index_fill_({d}, torch.tensor([0]), 1.0)", "{a}.masked_fill_({a} != {a}, 0.0)", "{a}.unsqueeze(0).copy_({b})",
    "torch.add({a}, {b}, out={a})",
)
INDEX = ("{a}[torch.tensor([0, -1])]", "{a}.index_select({d}, torch.tensor([0, 0]))", "{a}[..., torch.tensor([0])]",
         "torch.gather({a}, {d}, torch.zeros_like({a}, dtype=torch.int64))", "{a}.take(torch.tensor([0]))",
         "torch.nn.functional.embedding(torch.tensor([[1, 0]]), {a})")
CAST = ("{a}.to(torch.bfloat16)", "{a}.to(torch.float32)", "{a}.double()", "{a}.half()", "{a}.type_as({b})")

#: (statements, relative frequency, what `a` must be, does the result stay exact if its arguments are?)
_CLASSES: tuple[tuple[tuple[str, ...], int, str, bool], ...] = (
    (UNARY, 5, "float", False), (BINARY, 5, "float", False), (EXACT_BINARY, 2, "exact", True),
    (INTEGER, 2, "integer", True), (REDUCE, 4, "float", False), (VIEW, 6, "any", True), (JOIN, 2, "any", False),
    (INDEX, 1, "any", True), (CAST, 1, "float", False),
)


class _Generator:
    def __init__(self, seed: int, length: int, mutation: float, overlap: bool) -> None:
        self.rng = random.Random(seed)
        self.seed, self.length, self.mutation, self.overlap = seed, length, mutation, overlap
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.scope: dict[str, Any] = {"torch": torch}

    def program(self) -> Program:
        recipes = [self.recipe(k) for k in range(self.rng.randint(1, 3))]
        inputs = materialize(recipes, self.seed)
        for k, tensor in enumerate(inputs):
            self.bind(f"x{k}", tensor, True)
        names = [v.name for v in self.values]
        for number in range(self.length):
            for _ in range(20):
                if self.mutate() if self.rng.random() < self.mutation else self.extend(number):
                    break
        returned = [v.name for v in self.rng.sample(self.values, min(len(self.values), self.rng.randint(1, 4)))]
        returned += [self.values[-1].name]
        body = "\n".join(f"    {line}" for line in self.lines)
        result = ", ".join(dict.fromkeys(returned))
        source = f"def program({', '.join(names)}):\n{body}\n    return {result},\n"
        used = {v.tensor.dtype for v in self.values}
        return Program(self.seed, source, lambda: materialize(recipes, self.seed), used)

    def recipe(self, k: int) -> tuple[Any, ...]:
        shape = self.rng.choice(SHAPES)
        others = (torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool)
        dtype = self.rng.choice((torch.float32,) * 6 + others)
        layout = self.rng.choice(("contiguous",) * 4 + ("transposed", "sliced", "expanded", "offset"))
        if self.overlap and k:
            layout = "same memory"
        return shape, dtype, layout

    def bind(self, name: str, tensor: torch.Tensor, exact: bool) -> None:
        self.values.append(Value(name, tensor, exact))
        self.scope[name] = tensor

    def pick(self, kind: str) -> Value | None:
        fits = {
            "float": lambda v: v.tensor.is_floating_point(), "any": lambda v: True,
            "exact": lambda v: v.exact and v.tensor.is_floating_point(),
            "integer": lambda v: v.tensor.dtype in (torch.int64, torch.int32, torch.bool),
        }[kind]
        found = [v for v in self.values if fits(v)]
        return self.rng.choice(found[-6:] if self.rng.random() < 0.7 else found) if found else None

    def fill(self, template: str, kind: str) -> tuple[str, list[Value]] | None:
        a, b = self.pick(kind), self.pick(kind)
        if a is None or b is None:
            return None
        rank = max(a.tensor.dim(), 1)
        text = template.format(a=a.name, b=b.name, d=self.rng.randint(-rank, rank - 1), k=self.rng.random() < 0.5)
        return text, [a, b] if "{b}" in template else [a]

    def extend(self, number: int) -> bool:
        templates, _, kind, keeps = self.rng.choices(_CLASSES, [c[1] for c in _CLASSES])[0]
        filled = self.fill(self.rng.choice(templates), kind)
        if filled is None:
            return False
        text, arguments = filled
        try:
            result = eval(text, self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False
        if not isinstance(result, torch.Tensor) or result.numel() > 4096 or not bounded(result):
            return False
        self.lines.append(f"v{number} = {text}")
        self.bind(f"v{number}", result, keeps and all(v.exact for v in arguments))
        return True

    def mutate(self) -> bool:
        """Tried on a copy of everything first: a statement that fails half-way must leave no trace."""
        filled = self.fill(self.rng.choice(MUTATE), "float")
        if filled is None:
            return False
        text, arguments = filled
        target = arguments[0].tensor
        if any(share_memory(target, v.tensor) and v is not arguments[0] for v in arguments):
            return False  # eager's own answer depends on the order in which it happens to visit the elements
        backup = {id(v): v.tensor.clone() for v in self.values}
        try:
            exec(text, dict(self.scope))
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False
        if not all(bounded(v.tensor) for v in self.values):
            for v in self.values:
                if v.tensor._is_view() is False:
                    v.tensor.copy_(backup[id(v)])
            return False
        for v in self.values:
            v.exact = v.exact and not share_memory(v.tensor, target)
        self.lines.append(text)
        return True


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def bounded(tensor: torch.Tensor) -> bool:
    """Small numbers keep rounding errors small."""
    return not tensor.numel() or bool((tensor.to(torch.float64).abs() < 1e4).all())


def materialize(recipes: list[tuple[Any, ...]], seed: int) -> list[torch.Tensor]:
    """The program's inputs, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    made: list[torch.Tensor] = []
    for shape, dtype, layout in recipes:
        made.append(_LAYOUTS[layout](shape, dtype, generator, made))
    return made


def _numbers(shape: Any, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 5, shape, generator=generator).to(dtype)


def _sliced(shape: Any, dtype: torch.dtype, generator: torch.Generator, _: Any) -> torch.Tensor:
    wide = _numbers([2 * n + 1 for n in shape], dtype, generator)
    return wide[tuple(slice(1, 2 * n + 1, 2) for n in shape)]


def _expanded(shape: Any, dtype: torch.dtype, generator: torch.Generator, _: Any) -> torch.Tensor:
    return _numbers([1, *shape[1:]] if shape else [], dtype, generator).expand(shape)


def _same_memory(shape: Any, dtype: torch.dtype, generator: torch.Generator, made: list[torch.Tensor]) -> torch.Tensor:
    base = made[0]
    return base[..., 1:] if base.dim() and base.shape[-1] > 1 else base.view(base.shape)


_LAYOUTS: dict[str, Callable[..., torch.Tensor]] = {
    "contiguous": lambda shape, dtype, generator, _: _numbers(shape, dtype, generator),
    "transposed": lambda shape, dtype, generator, _: _numbers(shape[::-1], dtype, generator).permute(
        tuple(reversed(range(len(shape))))),
    "offset": lambda shape, dtype, generator, _: _numbers([3, *shape], dtype, generator)[1],
    "sliced": _sliced, "expanded": _expanded, "same memory": _same_memory,
}


def generate(seed: int, length: int = 12, mutation: float = 0.15, overlap: bool = False) -> Program:
    """`length` statements; `mutation` of them write to a tensor; `overlap`: inputs share memory."""
    with torch.no_grad():
        return _Generator(seed, length, mutation, overlap).program()
