"""A seed → the text of a program: `make_inputs()`, `program(...)` and `afterwards(...)`.

A statement is tried on real tensors before it is taken, so that most of a program runs; a few that eager refuses are
taken as well. Values are kept small and finite, since an overflow hides what came before it.
"""

from __future__ import annotations

import random
import re
import warnings
from typing import Any

import torch

from tests.fuzz.aliasing import grammar

BOUND = 500.0
#: What a statement writes to in place of `{a}`.
BUFFER = re.compile(r"\{m\}\.\w+(\[[^=]*\](?= =|\.)|\.narrow\([^)]*\))?")
REFUSED = 0.02  # so often a statement that eager refuses is taken


def generate(seed: int) -> str:
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        return _Generator(seed).program()


class _Generator:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scope: dict[str, Any] = {}
        self.names: list[str] = []  # of tensors, oldest first
        self.hidden: list[str] = []
        self.module = self.rng.random() < 0.4
        self.raised = False
        exec(grammar.LIBRARY + grammar.CALLERS, self.scope)

    def program(self) -> str:
        made = self.inputs()
        parameters = [*self.names, *(["m"] if self.module else [])]
        inputs = list(self.names)
        body = self.body()
        returned = self.returned()
        after = self.afterwards(inputs)
        return "\n".join(
            [grammar.LIBRARY.strip("\n"), grammar.CALLERS, "", "def make_inputs():",
             *_indented(made), f"    return [{', '.join(parameters)}], [{', '.join(self.hidden)}]", "", "",
             f"def program({', '.join(parameters)}):", *_indented(body), *_indented(returned), "", "",
             f"def afterwards(see, args, kept, out, {', '.join(parameters)}):", *_indented(after or ["pass"]), ""]
        )  # fmt: skip

    # ------------------------------------------------------------ inputs

    def weighted(self, table: tuple[tuple[str, int], ...]) -> str:
        return self.rng.choices([t for t, _ in table], [w for _, w in table])[0]

    def inputs(self) -> list[str]:
        torch.manual_seed(0)
        lines = [self.input(f"b{k}", grammar.BASES, self.hidden) for k in range(self.rng.randint(1, 3))]
        lines += [self.input(f"x{k}", grammar.INPUTS, self.names) for k in range(self.rng.randint(1, 4))]
        if self.module:
            lines.append("m = Module()")
            exec(lines[-1], self.scope)
            if self.rng.random() < 0.3:
                lines.append("m.eval()")
        return lines

    def input(self, name: str, table: tuple[tuple[str, int], ...], names: list[str]) -> str:
        while True:
            shape, dtype = self.rng.choice(grammar.SHAPES), self.rng.choice(grammar.DTYPES)
            base = self.rng.choice(self.hidden) if self.hidden else ""
            text = self.weighted(table).format(a=base, shape=shape, dtype=dtype)
            try:
                made = eval(text, self.scope)
            except (RuntimeError, IndexError):
                continue
            if not made.numel():  # indexing it is an error that shows only if somebody reads the result
                continue
            self.scope[name] = made
            names.append(name)
            return f"{name} = {text}"

    # ------------------------------------------------------------ statements

    def body(self) -> list[str]:
        lines: list[str] = []
        for number in range(self.rng.randint(2, 9)):
            for _ in range(30):
                made = self.block(number) if self.rng.random() < 0.12 else self.statement(f"v{number}")
                if made is not None and self.take(made):
                    lines += made
                    break
        return lines

    def statement(self, name: str) -> list[str] | None:
        kind = self.rng.random()
        if kind < 0.45:
            text = self.filled(self.rng.choice(grammar.WRITES))
        else:
            text = self.filled(self.rng.choice(grammar.VIEWS if kind < 0.75 else grammar.COMPUTED))
            text = text and f"{name} = {text}"
        return None if text is None else [text]

    def block(self, number: int) -> list[str] | None:
        header = self.filled(self.weighted(grammar.BLOCKS))
        if header is None:
            return None
        inside, walked = [], re.match(r"for row in (\w+)", header)
        for k in range(self.rng.randint(1, 2)):
            if walked:
                line = self.filled(self.rng.choice(grammar.INSIDE_LOOP), walked[1])
                made = None if line is None else [line]
            else:
                made = self.statement(f"v{number}_{k}")
            inside += made or ["pass"]
        return [header, *(f"    {line}" for line in inside)]

    def filled(self, template: str, walked: str = "") -> str | None:
        """`walked`: what the loop around the statement takes its rows from."""
        if "{m}" in template and not self.module:
            return None
        a, b = self.pick(), self.pick()
        if "resize_" in template and not self.scope[a].numel():
            return None  # nobody knows what the memory holds that it gets
        longer = "torch.cat(" in template and "out=" in template  # resizes what it is given as `out`, before it reads
        rank = max(self.scope[a].dim(), 1)
        names = {"a": a, "b": b, "m": "m", "d": self.rng.randint(-rank, rank - 1), "i": self.rng.randint(0, 2)}
        buffer = BUFFER.match(template)
        read = [self.scope[names[k]] for k in ("ab" if buffer else "b") if f"{{{k}}}" in template]
        target = f"list({walked})" if walked else buffer[0] if buffer else "{a}"
        written = self.written(target, names)
        return None if any(_hazard(w, r, longer) for w in written for r in read) else template.format(**names)

    def written(self, template: str, names: dict[str, Any]) -> list[torch.Tensor]:
        try:
            found = eval(template.format(**names), self.scope)
        except (IndexError, TypeError, RuntimeError):
            return []
        return [t for t in (found if isinstance(found, list) else [found]) if isinstance(t, torch.Tensor)]

    def pick(self) -> str:
        recent = self.names[-4:] if self.rng.random() < 0.6 else self.names
        return self.rng.choice(recent)

    def take(self, lines: list[str]) -> bool:
        """Run it. What fails half-way has changed the tensors at hand, which does no harm."""
        if self.raised:
            return False
        before = set(self.scope)
        try:
            exec("\n".join(lines), self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError, NotImplementedError):
            self.raised = self.rng.random() < REFUSED and "as_strided" not in str(lines)  # fakes have no storage
            return self.raised
        finally:
            self.scope.pop("row", None)
        made = [n for n in self.scope if n not in before and re.fullmatch(r"v\d+(_\d)?", n)]
        small = all(_small(self.scope[n]) for n in (*self.names, *made))
        self.names += made if small else []
        return small

    def returned(self) -> list[str]:
        made = []
        for _ in range(self.rng.randint(1, 4)):
            for _ in range(20):
                text = self.rng.choice(grammar.RETURNS if self.rng.random() < 0.5 else grammar.RETURNS[:1])
                name = self.pick()
                try:
                    eval(text.format(a=name), self.scope)
                except (RuntimeError, IndexError):
                    continue
                made.append(text.format(a=name))
                break
        if self.rng.random() < 0.1:
            made += made[:1]
        return [f"return {self.weighted(grammar.SHAPED).format(', '.join(made or ['None']))}"]

    # ------------------------------------------------------------ afterwards

    def afterwards(self, inputs: list[str]) -> list[str]:
        lines = []
        reach = [*inputs, *inputs, *(f"kept[{k}]" for k in range(len(self.hidden)))]
        reach += ["m.weight", "m.cache", "m.ema"] if self.module else []
        for _ in range(self.rng.randint(1, 4)):
            o, p = (f"out[{self.rng.randint(-2, 1)}]" for _ in range(2))
            text = self.weighted(grammar.AFTERWARDS)
            lines.append(f"see(lambda: {text.format(o=o, p=p, a=self.rng.choice(reach), b=self.rng.choice(reach))})")
        return lines


def _small(tensor: Any) -> bool:
    if not isinstance(tensor, torch.Tensor) or tensor.numel() > 2000:
        return False
    values = tensor.detach().double()
    return bool(values.isfinite().all()) and bool((values.abs() < BOUND).all())


def _hazard(a: torch.Tensor, b: torch.Tensor, at_all: bool) -> bool:
    """Do they share elements, though not each at the same index? What writing to one while reading the other gives is
    nobody's promise.

    `at_all`: it is none if they share any memory.
    """
    if a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    if at_all or a.dtype != b.dtype:
        return True
    mine, other = _places(a), _places(b)
    return not torch.equal(mine, other) and bool(torch.isin(mine.reshape(-1), other.reshape(-1)).any())


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """Where each element lies in the memory."""
    if not tensor.numel():
        return torch.empty(0, dtype=torch.int64)
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return torch.arange(last + 1).as_strided(tensor.shape, tensor.stride()) + tensor.storage_offset()


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
