"""What is known to be small is sorted as short integers, on a GPU."""

from __future__ import annotations

import pytest
import torch

from dovetail.normalize.interpret import interpreter
from dovetail.normalize.text import aten_text
from tests.normalize.harness import functional
from tests.traits import give_host

SCORES, WHOLE = torch.randn(40, 8), torch.randint(0, 1 << 40, (300,))

SHORT = {
    "of experts": (lambda x, n: torch.sort(x.topk(2)[1].view(-1)), "i8"),
    "numbers and places": (lambda x, n: torch.sort(x.argmax(-1), stable=True, descending=True), "i8"),
    "places alone": (lambda x, n: x.topk(3, 0)[1].flatten().clone().argsort(stable=True), "i8"),
    "of places": (lambda x, n: n.sort()[1].sort()[0], "i16"),
    "of all places": (lambda x, n: torch.stack([x.argmax(), x.argmin()]).sort()[0], None),
    "remainders": (lambda x, n: (n % 1000).sort(stable=True), "i16"),
    "any": (lambda x, n: n.sort(stable=True), None),
    "signed": (lambda x, n: (x.argmax(-1) - 1).sort()[0], None),
    "bits": (lambda x, n: n.view(torch.int32).sort()[0], None),
    "numbers among floats": (lambda x, n: x.max(1)[0].sort()[0], None),
}


@pytest.mark.parametrize("name", SHORT)
def test_meaning(name, monkeypatch):
    give_host(monkeypatch, sorts_bits=True)
    fn, dtype = SHORT[name]
    aten = functional(fn, SCORES, WHOLE)
    line = next(line for line in aten_text(aten).splitlines()[::-1] if "aten.sort" in line)
    assert (f"({dtype}[" in line) if dtype else "i8" not in line and "i16" not in line
    want = fn(SCORES, WHOLE)
    torch.testing.assert_close(interpreter(aten)(SCORES, WHOLE), want if isinstance(want, tuple) else (want,))


def test_not_elsewhere():
    assert "i8" not in aten_text(functional(SHORT["of experts"][0], SCORES, WHOLE))
