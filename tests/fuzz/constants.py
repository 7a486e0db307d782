"""Random programs on tensors made of constants, written to or joined with inputs before Python reads them, or not.

    python -m tests.fuzz.constants [--count 2000] [--first 0] [--one SEED]

Capture knows what such a tensor holds only as long as nothing that varies is in it.
"""

from __future__ import annotations

import random

import torch

import dovetail
from tests.fuzz.sweep import sweep

MAKERS = (
    "torch.tensor([1, 2, 3, 4])", "torch.arange(4)", "torch.full((4,), 2)", "torch.tensor([0.5, -1.5, 2.0, 3.25])",
    "torch.linspace(0, 1, 4)", "torch.div(7, 2, rounding_mode='trunc') + torch.arange(4)", "torch.ones(4)",
    "torch.div(x.shape[0], 3) * torch.ones(4)", "torch.zeros(4, dtype=torch.int32)", "x.detach()[:4]",
    "x.detach()[:4].int()", "torch.tensor([1, 2, 3, 4]) + x.detach()[:4].int()", "torch.tensor([x.shape[0], 2, 3, 4])",
)  # fmt: skip
STEPS = (
    "{a} = {b} + {c}", "{a} = {b} * 2", "{a} = {b}.view(2, 2).flatten()", "{a} = {b}.flip(0)", "{a} = {b}[:]",
    "{a} = torch.stack({b}.unbind())", "{a} = torch.maximum({b}, {c})", "{a} = {b}.clone()", "{a} = {b}.detach()",
    "{a} = torch.cat([{b}[:2], {c}[2:]])", "{a} = {b}.cumsum(0)", "{a} = {b}.to(torch.float64)", "{a} = -{b}",
    "{a} = {b}.masked_fill({c} > 1, -7)", "{a} = torch.where({b} < {c}, {b}, 2)", "{a} = {b}.repeat(2)[2:6]",
    "{a} = torch.nn.functional.pad({b}, (1, 2))[:4]", "{a} = {b}[:, None].expand(4, 4).tril()[3]",
    "{a} = {b}.roll(1).to(torch.bfloat16)", "{a} = {b}.view(2, 2).permute(1, 0).flatten()", "{a} = {b} & {c}",
)  # fmt: skip
WRITES = (
    "{a}.add_(1)", "{a}[0] = 5", "{a}.view(2, 2)[1].mul_(2)", "{a}.detach().add_(1)", "{a}.data.sub_(1)",
    "{a}.copy_({b})", "{a}[1:3].copy_(x.detach()[:2])", "{a}.add_(x.detach()[:4].int())",
    "torch.neg({b}.clone(), out={a})", "torch._foreach_add_([{a}, {b}.clone()], 1)",
    "{a}.set_({b}.clone())", "{a}.unbind()[2].zero_()", "{a}.masked_fill_({b} > 0, 3)", "{a}[{b} > 1] = -2",
    "{a}[1:] += {b}[:3]", "{a}[2] = x[0].item()", "{a}.clamp_(-1, 2)", "{a}.fill_(4)", "{a}.float().mul_(2)",
)  # fmt: skip
READS = (
    "found.append({a}[{k}].item())", "found.append({a}.tolist())", "y = y * 2 if {a}[{k}] > 1 else y + 1",
    "found.append(int({a}.sum()))", "y = y[: int({a}.abs().max()) + 1]",
    "found.append(y.new_zeros({a}[{k}].abs().int()))", "found.append(torch.arange({a}[{k}].abs() % 9 + 2, -1, -1))",
    "y = y + float({a}[{k}])", "found.append(y.reshape(torch.ones(4).int()[{k}], -1).shape)",
)  # fmt: skip


def program(number: int) -> str:
    chosen = random.Random(number)
    names = [f"c{k}" for k in range(3)]
    lines = [f"{name} = {chosen.choice(MAKERS)}" for name in names]
    for _ in range(chosen.randint(2, 7)):
        (texts,) = chosen.choices((STEPS, WRITES, READS), (4, 2, 4))
        a, b, c = chosen.choices(names, k=3)
        lines.append(chosen.choice(texts).format(a=a, b=b, c=c, k=chosen.randrange(4)))
    lines.append(chosen.choice(READS).format(a=chosen.choice(names), k=chosen.randrange(4)))
    body = "\n    ".join(["found, y = [], x.sin()", *lines, "return found, y, c0, c1, c2"])
    return f"def f(x):\n    {body}\n"


def _outcome(fn, x: torch.Tensor) -> object:
    try:
        found = fn(x.clone())
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        return type(error)
    return found


def differs(number: int) -> str:
    """The program and its results where they are not eager's; "" if they are."""
    dovetail.reset()
    text = program(number)
    names: dict = {"torch": torch}
    exec(text, names)
    compiled = dovetail.compile(names["f"], backend="eager", dynamic=random.Random(number).choice((None, False, True)))
    generator = torch.Generator().manual_seed(number)
    for rows in (8, 8, 9):
        x = torch.randn(rows, generator=generator) * 2
        wanted, got = _outcome(names["f"], x), _outcome(compiled, x)
        if repr(wanted) != repr(got):
            return f"program {number}:\n{text}\neager    {wanted}\ncompiled {got}"
    return ""


if __name__ == "__main__":
    raise SystemExit(sweep("tests.fuzz.constants", differs, 2000, program))
