"""Random programs that take tensors apart and put them together: results and gradients, compiled and in eager.

    python -m tests.fuzz.parts [--count 500] [--first 0] [--one SEED]

Selects, slices and splits of one another, in loops and by themselves, results stacked or stored part by part, and read
again. What is computed with whole numbers is exact however it is done, so it is compared to the last bit, zeros' signs
included; with any numbers, a few last places may differ, since PyTorch's engine may add the terms of a gradient up in
another order.
"""

from __future__ import annotations

import linecache
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch

import dovetail
from tests.fuzz.sweep import sweep

SHAPES = ((4,), (7,), (3, 5), (4, 4), (5, 2, 3), (2, 6, 4), (3, 1, 5), (2, 3, 2, 3))
FACTORS = ("2.0", "-1.0", "0.5", "-0.0", "0.0", "1.0")
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}


class Maker:
    """A program grows line by line; what eager refuses is dropped."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.whole = seed % 2 == 0
        self.dtype = torch.bfloat16 if seed % 5 == 3 else torch.float32
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        self.shapes = [self.random.choice(SHAPES) for _ in range(self.random.randint(1, 2))]
        self.names = [f"x{k}" for k in range(len(self.shapes))]
        self.scope.update(zip(self.names, self.inputs(), strict=True))
        self.arguments = list(self.names)

    def inputs(self) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(len(self.shapes))
        numbers = [torch.randint(-3, 4, s, generator=generator) if self.whole else torch.randn(s, generator=generator)
                   for s in self.shapes]
        return [n.to(self.dtype).requires_grad_() for n in numbers]

    def source(self) -> str:
        for _ in range(self.random.randint(2, 7)):
            self.random.choices(
                (self.loop, self.stores, self.part, self.compute), (4, 3, 3, 2)
            )[0]()
        made = [n for n in self.names if n not in self.arguments] or ["x0 * 2.0"]
        returned = {made[-1], *self.random.sample(made, min(len(made), 2))}
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def program({', '.join(self.arguments)}):\n{body}    return {', '.join(sorted(returned))},\n"

    def attempt(self, lines: list[str], result: str | None = None) -> bool:
        """Add the lines if eager takes them."""
        scope = dict(self.scope)
        backup = {n: t.detach().clone() for n, t in self.tensors().items()}
        try:
            exec("\n".join(lines), scope)
            fits = result is None or 0 < scope[result].numel() < 500 and scope[result].dim() < 5
        except (RuntimeError, IndexError, TypeError, ValueError):
            fits = False
        if not fits:
            with torch.no_grad():
                for n, t in self.tensors().items():
                    t.data.copy_(backup[n])
            return False
        self.lines += lines
        self.scope = scope
        if result is not None:
            self.names.append(result)
        return True

    def tensors(self) -> dict[str, torch.Tensor]:
        return {n: self.scope[n] for n in self.names}

    def pick(self) -> str:
        return self.random.choice(self.names[-4:] if self.random.random() < 0.6 else self.names)

    def fresh(self) -> str:
        return f"v{len(self.names)}"

    def bounds(self, size: int) -> tuple[int, int]:
        first = self.random.randrange(size)
        return first, self.random.randint(first + 1, size)

    def index(self, name: str, at: int | None = None, dim: int | None = None) -> str:
        """An expression for a part of it; `at`: along that dimension, the one of a loop."""
        shape = self.scope[name].shape
        dim = self.random.randrange(len(shape)) if dim is None else dim
        size = shape[dim]
        first, stop = self.bounds(size) if at is None else (at, min(at + self.random.choice([1, 1, 2, 3]), size))
        if self.random.random() < 0.2:
            first, stop = first - size, stop - size or size
        before = ":, " * dim
        return self.random.choice((
            f"{name}.select({dim}, {first})", f"{name}[{before}{first}]", f"{name}[{before}{first}:{stop}]",
            f"{name}[{before}{first}:]", f"{name}.narrow({dim}, {first}, 1)", f"{name}.unbind({dim})[{first}]",
            f"{name}.split(1, {dim})[{first}]", f"{name}[{before}{first}::2]", f"{name}.chunk(2, {dim})[{first % 2}]",
            f"{name}[{before}:{stop}]", f"{name}.unsqueeze({dim})[{before}0]", f"{name}.diagonal()",
            f"{name}.transpose(0, {dim})[{first % shape[0]}]", f"{name}.tensor_split([{first % size}], {dim})[1]",
            f"{name}[{before}{first}][..., -1]",
        ))  # fmt: skip

    def term(self, text: str) -> str:
        forms = ["{} * " + self.random.choice(FACTORS), "-{}", "{}", "{} + {}"]
        forms += [] if self.whole else ["{}.abs()", "{} * {}"]
        return self.random.choice(forms).replace("{}", f"({text})")

    def places(self, size: int) -> list[int]:
        """Those that a loop goes through: all, some of them, backwards, or twice."""
        found = list(range(size))
        kind = self.random.randrange(5)
        if kind == 1:
            found.reverse()
        elif kind == 2:
            found = self.random.sample(found, self.random.randint(1, size))
        elif kind == 3:
            found = found + self.random.sample(found, self.random.randint(1, size))
        elif kind == 4:
            self.random.shuffle(found)
        return found

    # ------------------------------------------------------------ kinds of lines

    def loop(self) -> None:
        """The same part at each place of a dimension, combined along the way."""
        name, made = self.pick(), self.fresh()
        shape = self.scope[name].shape
        if not shape:
            return
        dim, state = self.random.randrange(len(shape)), self.random.getstate()
        lines, parts = [], []
        kind = self.random.choice(("stack", "cat", "sum", "recurrence"))
        for number, place in enumerate(self.places(shape[dim])):
            if self.random.random() < 0.8:  # the same kind of part as before, as a loop has
                chosen = self.random.getstate()
                self.random.setstate(state)
                text = self.index(name, place, dim)
                self.random.setstate(chosen)
            else:
                text = self.index(name, place, dim)
            last = f"{made}_{number - 1} * {self.random.choice(FACTORS)} + "
            before = last if kind == "recurrence" and number else ""
            lines.append(f"{made}_{number} = {before}{self.term(text)}")
            parts.append(f"{made}_{number}")
        whole = ", ".join(parts)
        ends = {"stack": f"torch.stack([{whole}], {self.random.randrange(2)})", "cat": f"torch.cat([{whole}])",
                "sum": " + ".join(parts), "recurrence": parts[-1]}  # fmt: skip
        self.attempt([*lines, f"{made} = {ends[kind]}"], made)

    def stores(self) -> None:
        """Parts written one by one, and maybe read again."""
        name, made = self.pick(), self.fresh()
        shape = self.scope[name].shape
        if not shape:
            return
        begin = self.random.choice((f"torch.zeros_like({name})", f"{name}.clone()", f"{name} * 2.0",
                                    f"torch.ones({tuple(shape)}, dtype={name}.dtype)"))  # fmt: skip
        if not self.attempt([f"{made} = {begin}"], made):
            return
        dim = self.random.randrange(len(shape))
        for place in self.places(shape[dim]):
            source = self.random.choice((name, name, made))
            to = ":, " * dim + self.random.choice((f"{place}", f"{place}:{place + 2}", f"{place - shape[dim]}"))
            sign = self.random.choice(("=", "=", "+=", "*="))
            text = self.term(f"{source}[{to}]" if self.random.random() < 0.5 else self.index(source, place, dim))
            self.attempt([f"{made}[{to}] {sign} {text}"])

    def part(self) -> None:
        name, made = self.pick(), self.fresh()
        if self.scope[name].dim():
            self.attempt([f"{made} = {self.index(name)}"], made)

    def compute(self) -> None:
        a, b, made = self.pick(), self.pick(), self.fresh()
        text = self.random.choice((self.term(a), f"{a} + {b}", f"{a} - {b}", f"{a}.flip(0)"))
        self.attempt([f"{made} = {text}"], made)


def run(program: Callable[..., Any], make: Callable[[], list[torch.Tensor]]) -> list[Any]:
    """Results, then gradients."""
    inputs = make()
    results = [r for r in program(*inputs) if isinstance(r, torch.Tensor)]
    ends = [r for r in results if r.requires_grad]
    generator = torch.Generator().manual_seed(1)
    tangents = [torch.randint(-2, 3, r.shape, generator=generator).to(r.dtype) for r in ends]
    tangents = [torch.where(t == 0, -0.0, t) for t in tangents]
    if ends:
        torch.autograd.backward(ends, tangents)
    return [*(r.detach() for r in results), *(x.grad for x in inputs)]


def check(seed: int) -> str | None:
    """What differs, with the program's text; None if nothing does, or eager refuses the program."""
    maker = Maker(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = maker.source()
        name = f"<parts {seed}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(source, name, "exec"), space)
        inference = seed % 5 == 4
        try:
            with torch.inference_mode(inference):
                want = run(space["program"], maker.inputs)
        except RuntimeError:
            return None
        dovetail.reset()
        dynamic = seed % 3 == 1
        with dovetail.config.patch(numerics=("default", "eager")[seed // 2 % 2], check_kernels=seed % 7 == 0):
            ours = dovetail.compile(space["program"], fullgraph=True, dynamic=dynamic or None)
            try:
                with torch.inference_mode(inference):
                    got = run(ours, maker.inputs)
            except Exception as error:  # whatever it is, eager has none
                return f"{type(error).__name__}: {error}\n{source}"
    words = difference(want, got, maker.whole)
    return words and f"seed {seed}: {words}\n{source}"


def difference(want: list[Any], got: list[Any], exact: bool) -> str | None:
    for k, (a, b) in enumerate(zip(want, got, strict=True)):
        if (a is None) != (b is None):
            return f"result {k} is {b}, eager's {a}"
        if a is None:
            continue
        if (a.shape, a.dtype, steps(a)) != (b.shape, b.dtype, steps(b)):
            return f"result {k} is {b.dtype}{list(b.shape)} {b.stride()}, eager's {a.dtype}{list(a.shape)} {a.stride()}"
        slack = 0 if exact else 8 * torch.finfo(a.dtype).eps * float(a.double().abs().max())
        if not (torch.equal(bits(a), bits(b)) if exact else torch.allclose(a, b, rtol=0, atol=slack)):
            return f"result {k} is\n{b}\neager's\n{a}"
    return None


def steps(x: torch.Tensor) -> list[int]:
    return [step for n, step in zip(x.shape, x.stride(), strict=True) if n > 1]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(BITS[x.dtype])


if __name__ == "__main__":
    raise SystemExit(sweep("tests.fuzz.parts", check, 500, lambda seed: Maker(seed).source()))
