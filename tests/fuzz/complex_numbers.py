"""Random programs with complex numbers: results, marks of conjugation, writes and gradients, compiled and in eager.

    python -m tests.fuzz.complex_numbers [--count 500] [--first 0] [--one SEED]

Views as pairs of real numbers and back, conjugates that are computed later, real and imaginary parts that are written
to, products, sums, Fourier transforms, mixtures with real tensors, and hooks on gradients on the way.
"""

from __future__ import annotations

import linecache
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

import dovetail
from tests.fuzz.sweep import sweep

SHAPES = ((4,), (3, 4), (2, 3, 4))
NUMBERS = ("2.0", "-1.5", "1j", "(0.5 - 2j)", "0.0", "k")

#: Expressions of any tensor `a`, of a complex one `c`, of a real one `r`, and of two.
TEXTS = """
    a * {n} | a + {n} | {n} - a | a / (2 - 1j) | -a | a.sum(-1, keepdim=True) + a | a.mean(0) * a | a.conj()
    a * b | a - b | a.conj() * b | (a + b).conj() | torch.where(r > 0, a, b) | torch.stack([a, b])[1] | a @ b.mT
    torch.cat([a, b], -1)[..., ::2] | a.flip(-1) | a.cumsum(-1) | a.clone() | a.detach() * b | a.square() | a.sin()
    torch.exp(a * 0.1) | torch.fft.fft(a) | torch.fft.ifft(a, norm="ortho") | torch.fft.fft2(a) | a.tanh()
    a.roll(1, -1)
    a.transpose(0, -1).contiguous().transpose(0, -1) | a.abs() | a.reciprocal() | a.reshape(-1)[: a.shape[-1]]
    a.to(torch.complex128) | torch.addcmul(a, b, b) | torch.polar(r, r) | torch.complex(r, r.sin()) | a.prod(-1)
    c.real | c.imag | c.abs() | c.angle() | torch.view_as_real(c) | torch.view_as_real(c).sum(-1) | c.conj().imag
    torch.view_as_complex(torch.view_as_real(c) * 2) | c.sgn() | c.resolve_conj() | c.mH | torch.fft.irfft(c)
    c * c.conj()
    (c * c.conj()).real.sqrt() | c.abs().square() | c.log() | c.sqrt() | c.real + 1j * c.imag | torch.fft.fftshift(c)
    c.is_conj() + c.real | c.conj().resolve_conj() | c.conj_physical() | c.pow(2) | (c == c).sum() + c.real | c.exp()
    r.softmax(-1) | r.relu() + a | torch.fft.rfft(r) | r.cos() * c | torch.view_as_complex(torch.stack([r, r * 2], -1))
    torch.einsum("...i,...i->...", a, b) | torch.vdot(c.reshape(-1), c.reshape(-1)) | c.norm() * r
    torch.kron(c[..., :2], c)
""".replace("\n", "|").split("|")
#: Writes to `c`, which is no input that requires gradients; and hooks.
WRITES = """
    c.real.mul_(2) | c.imag.add_(1) | torch.view_as_real(c)[..., 0].mul_(-1) | c[..., 0] = 1 + 2j | c.conj().mul_(1j)
    c.mul_(c.conj().detach()) | c.real.copy_(c.imag) | c.imag = c.real * 2 | c.conj_physical_()
    c[..., 1:] += c[..., :-1].clone()
    c.conj().imag.mul_(3) | c.real = 1.5 | c.add_(1, alpha=2) | c.zero_() | c.copy_(c.conj()) | c.imag[..., 0] = 0.5
""".replace("\n", "|").split("|")
NAME = re.compile(r"(?<![\w.\"])[abcr](?![\w=\"])")
HOOKS = ("lambda g: g * 2", "lambda g: g.conj()", "lambda g: None", "lambda g: g * k", "lambda g: g + other")


class Maker:
    """A program grows line by line; what eager refuses is dropped."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shape = self.random.choice(SHAPES)
        self.dtypes = [self.random.choice([torch.complex128, torch.complex128, torch.float64]) for _ in range(2)]
        self.conjugate = self.random.random() < 0.2
        self.k = self.random.choice([2.5, 1 - 2j, 3])
        self.lines: list[str] = []
        self.hooks = 0
        self.names = ["x0", "x1"]

    def inputs(self) -> list[Any]:
        generator = torch.Generator().manual_seed(len(self.shape))
        made = [torch.randn(self.shape, dtype=d, generator=generator) for d in self.dtypes]
        leaves = [m.requires_grad_(self.dtypes[0] is self.dtypes[1] or k == 0) for k, m in enumerate(made)]
        return [leaves[0], leaves[1].detach().conj() if self.conjugate else leaves[1], self.k]

    def source(self) -> str:
        for _ in range(self.random.randint(2, 8)):
            self.random.choices((self.compute, self.write, self.hook), (8, 3, 1))[0]()
        made = self.names[2:] or ["x0 * 2"]
        returned = sorted({made[-1], *self.random.sample(made, min(len(made), 2))})
        return self.text(f"    return {', '.join(returned)},")

    def text(self, end: str) -> str:
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def program(x0, x1, k):\n{body}{end}\n"

    def values(self) -> dict[str, Any] | None:
        """What the names are, or None if eager refuses the program or its backward pass."""
        try:
            named = ", ".join(f"{n!r}: {n}" for n in self.names)
            found: dict[str, Any] = compiled_text(self.text(f"    return {{{named}}}"))(*self.inputs())
        except (RuntimeError, IndexError, TypeError, ValueError):
            return None
        sizes = [t.numel() for t in found.values() if isinstance(t, torch.Tensor)]
        fits = len(sizes) == len(found) and all(0 < n < 200 for n in sizes)
        return found if fits and all(t.isfinite().all() for t in found.values()) else None

    def attempt(self, line: str, name: str | None = None) -> None:
        lines, names = list(self.lines), list(self.names)
        self.lines.append(line)
        self.names += [name] if name else []
        if self.values() is None:
            self.lines, self.names = lines, names

    def pick(self, kind: str) -> str:
        found = self.values() or {}
        fitting = [n for n, t in found.items() if kind == "ab" or t.is_complex() == (kind == "c")]
        return self.random.choice(fitting[-4:]) if fitting else "x0"

    def filled(self, text: str) -> str:
        kinds = {"a": "ab", "b": "ab", "c": "c", "r": "r"}
        words = {name: self.pick(kind) for name, kind in kinds.items()}
        named = NAME.sub(lambda found: words[found[0]], text.strip())
        return named.replace("{n}", self.random.choice(NUMBERS))

    def compute(self) -> None:
        made = f"v{len(self.names)}"
        text = self.random.choice([t for t in TEXTS if t.strip()])
        self.attempt(f"{made} = {self.filled(text)}", made)

    def write(self) -> None:
        self.attempt(self.filled(self.random.choice([t for t in WRITES if t.strip()])))

    def hook(self) -> None:
        name = self.random.choice(self.names)
        found = (self.values() or {}).get(name)
        if found is not None and found.requires_grad and not found._is_view():  # of some views PyTorch crashes
            text = self.random.choice(HOOKS).replace("other", f"{name}.detach()")
            self.attempt(f"{name}.register_hook({text})")


def compiled_text(source: str, name: str = "<complex>") -> Callable[..., Any]:
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Any] = {"torch": torch}
    exec(compile(source, name, "exec"), space)
    return space["program"]  # type: ignore[no-any-return]


def run(program: Callable[..., Any], given: list[Any]) -> list[Any]:
    """Results with what is seen of them, what inputs hold in the end, gradients, and what a write to the last result
    changes. (Signs that are left for later are not compared: kernels take them at once.)"""
    results = program(*given)
    generator = torch.Generator().manual_seed(1)
    ends = [r for r in results if r.requires_grad]
    if ends:
        torch.autograd.backward(ends, [torch.randn(r.shape, dtype=r.dtype, generator=generator) for r in ends])
    seen = [(r.is_conj(), r.dtype, r.stride(), r.requires_grad, r.is_leaf) for r in results]
    tensors = [*results, *given[:2]]
    before = [t.detach().clone() for t in tensors]
    with torch.no_grad():
        results[-1].mul_(2)
    return [seen, *before, *(t.grad for t in given[:2]), *(t.detach() for t in tensors)]


def check(seed: int) -> str | None:
    """What differs, with the program's text; None if nothing does, or eager refuses the program."""
    maker = Maker(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = maker.source()
        program = compiled_text(source, f"<complex {seed}>")
        try:
            want = run(program, maker.inputs())
        except RuntimeError:
            return None
        dovetail.reset()
        whole = seed % 2 == 0 or ".register_hook" not in source  # else a graph ends before each hook
        ours = dovetail.compile(program, fullgraph=whole, dynamic=True if seed % 3 == 1 else None)
        try:
            got = run(ours, maker.inputs())
        except Exception as error:  # whatever it is, eager has none
            return f"seed {seed}: {type(error).__name__}: {error}\n{source}"
    words = difference(want, got)
    return words and f"seed {seed}: {words}\n{source}"


def difference(want: list[Any], got: list[Any]) -> str | None:
    if want[0] != got[0]:
        return f"results are {got[0]}\neager's {want[0]}"
    for k, (a, b) in enumerate(zip(want[1:], got[1:], strict=True)):
        if (a is None) != (b is None):
            return f"result {k} is {b}, eager's {a}"
        if a is not None and not torch.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True):
            return f"result {k} is\n{b}\neager's\n{a}"
    return None


if __name__ == "__main__":
    raise SystemExit(sweep("tests.fuzz.complex_numbers", check, 500, lambda seed: Maker(seed).source()))
