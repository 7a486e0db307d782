"""Groups of one kernel that are started at once: which wait for which, and that the program means the same."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

import dovetail
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Batch
from dovetail.ir.parse import parse_program
from dovetail.schedule import gather

INPUTS = "".join(f"input a{k}: float32[4]\n" for k in range(4))
COMPUTED = {"copy": "{}[i]", "add": "{}[i] + 1", "mul": "{}[i] * {}[i]", "sub": "{}[i] - {}[i]"}


def group(name, kind, to, *read):
    made = f"temporary {to}: float32[4]\n" if to[0] == "b" else ""
    return f"{made}group {name}_{kind} for i < 4\n  loop\n    {to}[i] = {COMPUTED[kind].format(*read)}\n"


def parts(name, kinds, to, reads):
    """Two groups that each make a half of what they make together."""
    text = f"temporary {to}: float32[4]\n"
    for k, (kind, read) in enumerate(zip(kinds, reads)):
        text += f"group {name}{'pq'[k]}_{kind}{2 * k} for i < 2\n  loop\n"
        text += f"    {to}[i + {2 * k}] = {COMPUTED[kind].format(*read)}\n"
    return text


def library(name, to, read):
    return f"temporary {to}: float32[4]\nlibrary {name}: {to}, = aten.sin.default({read})\n"


def gathered(text):
    program = parse_program(text)
    named = {i.name: SimpleNamespace(symbol=i.name.partition("_")[2], joins=True) for i in program.items}
    return program, gather(program, named)


def order(program):
    names = ((g.name for g in item.groups) if isinstance(item, Batch) else [item.name] for item in program.items)
    return ["+".join(n) for n in names]


def test_what_is_computed_of_inputs_alone_comes_early():
    text = INPUTS
    for k in range(3):
        text += group(f"{k}c", "copy", f"b{k}", f"a{k}") + group(f"{k}w", "add", f"a{k}", f"a{k}")
        text += library(f"{k}l", f"b{k + 4}", f"b{k}")
    text += "output b4\noutput b5\noutput b6\n"
    assert order(gathered(text)[1]) == ["0c_copy+1c_copy+2c_copy", "0l", "1l", "2l", "0w_add+1w_add+2w_add"]


def test_so_does_what_is_computed_of_that():
    text = INPUTS
    for k in range(3):
        text += group(f"{k}c", "copy", f"b{k}", f"a{k}") + group(f"{k}d", "add", f"b{k + 3}", f"b{k}")
        text += library(f"{k}l", f"b{k + 6}", f"b{k + 3}") + group(f"{k}w", "mul", f"a{k}", f"a{k}", f"b{k + 6}")
    text += "output b6\noutput b7\noutput b8\n"
    together = ["0c_copy+1c_copy+2c_copy", "0d_add+1d_add+2d_add", "0l", "1l", "2l", "0w_mul+1w_mul+2w_mul"]
    assert order(gathered(text)[1]) == together


def test_what_has_parts_is_there_when_the_last_one_is():
    """Words that are appended one by one: all but the last are a copy, the last is found out."""
    def words(table, weights, ids):
        for _ in range(4):
            found = (table[ids].sum(1) @ weights).argmax(-1, keepdim=True)
            ids = torch.cat([ids, found], 1)
        return ids

    given = torch.randn(11, 4), torch.randn(4, 11), torch.randint(0, 11, (2, 5))
    assert torch.equal(dovetail.compile(words, fullgraph=True)(*given), words(*given))


def test_nothing_comes_before_what_writes_to_its_input():
    text = INPUTS + group("0", "copy", "b0", "a0") + library("1", "b1", "b0") + group("2", "add", "a1", "b1")
    text += group("3", "copy", "b2", "a1") + library("4", "b3", "b2") + "output b3\n"
    assert order(gathered(text)[1]) == ["0_copy", "1", "2_add", "3_copy", "4"]


@pytest.mark.parametrize("seed", range(120))
def test_a_random_program_means_the_same(seed):
    """In whatever order the groups of a launch run."""
    chosen, text = random.Random(seed), INPUTS
    there = unwritten = [f"a{k}" for k in range(4)]
    for k in range(chosen.randint(4, 14)):
        to, read = f"b{k}", (chosen.choice(there), chosen.choice(there))
        kind = chosen.choice(["library", "parts", *COMPUTED] if seed % 2 else ["library", "parts", "parts"])
        if kind == "library":
            text += library(f"{k}", to, read[0])
        elif kind == "parts":
            kinds = chosen.choices([*COMPUTED][: chosen.choice((1, 4))], k=2)
            text += parts(f"{k}", kinds, to, [(there[-1], there[0]), (chosen.choice(there), read[0])])
        else:
            to = chosen.choice([to, to, *unwritten[:1]])
            text += group(f"{k}", kind, to, *read)
            unwritten = [name for name in unwritten if name != to]
        there = [*there, to]
    written = [f"a{k}" for k in range(4) if f"a{k}" not in unwritten]
    made = [name for name in there if name[0] == "b"]
    text += "".join(f"output {name}\n" for name in chosen.sample(made, chosen.randint(min(1, len(made)), len(made))))
    text += "".join(f"mutate {name} = {name}\n" for name in written)
    program, after = gathered(text)
    apart = []
    for item in after.items:
        apart += chosen.sample(item.groups, len(item.groups)) if isinstance(item, Batch) else [item]
    results = []
    for each in program, program.with_items(tuple(apart)):
        given = [torch.arange(4.0) + k for k in range(4)]
        results.append((evaluate(each, given), given))
    torch.testing.assert_close(results[1], results[0])
