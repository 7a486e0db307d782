"""What PyTorch refuses raises eager's error, text included: with `fullgraph=True`, and where the program catches it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dovetail

COMPLEX, WHOLE, TRUE = torch.ones(3, dtype=torch.complex64), torch.arange(3), torch.ones(3, dtype=torch.bool)

#: An operation, and what it is given: types first, then places and sizes.
REFUSED = [
    ("x.floor()", COMPLEX), ("torch.relu(x)", COMPLEX), ("torch.erf(x)", COMPLEX), ("x < x", COMPLEX),
    ("torch.atan2(x, x)", COMPLEX), ("x.max()", COMPLEX), ("x.median()", COMPLEX),
    ("F.pad(x, (1, 1), 'reflect')", COMPLEX),
    ("torch.softmax(x, 0)", WHOLE), ("F.gelu(x)", WHOLE), ("F.layer_norm(x, (n,))", WHOLE),
    ("F.cross_entropy(x.view(1, 3), x[:1])", WHOLE), ("x.to(torch.uint16) + x.to(torch.uint16)", WHOLE),
    ("x.view(1, 3) @ x.view(3, 1)", TRUE), ("x.view(1, 1, 3).bmm(x.view(1, 3, 1))", TRUE), ("x - x", TRUE),
    ("x[n]", WHOLE), ("x[-n - 1]", WHOLE), ("(x * 2)[n]", WHOLE), ("x.select(0, n)", WHOLE),
    ("x.narrow(0, 1, n)", WHOLE),
    ("x.outer(x)[:, n]", WHOLE), ("x.outer(x)[0, n]", WHOLE), ("(x * 2)[[n, 0]]", WHOLE), ("x.sum(n)", WHOLE),
    ("x.clone().__setitem__(n, 1)", WHOLE), ("torch.zeros(3)[n]", WHOLE), ("x.shape[n]", WHOLE), ("[1, 2][n]", WHOLE),
    ("x.unflatten(0, (n, 2))", WHOLE), ("x.split([1, n])", WHOLE), ("x.view(n + 1)", WHOLE),
    ("x + x.new_ones(n + 1)", WHOLE),
    ("x.topk(n + 1)", WHOLE), ("x.kthvalue(n + 1)", WHOLE),
]  # fmt: skip


def raised(call, x):
    with pytest.raises(Exception) as caught:
        call(x)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("text, x", REFUSED, ids=[text for text, _ in REFUSED])
def test_as_eager_says_it(text, x):
    space = {"torch": torch, "F": F}
    exec(f"def fn(x):\n  n = x.shape[0]\n  return {text}", space)
    handled = "except Exception as error: return type(error), str(error)"
    exec(f"def caught(x):\n  n = x.shape[0]\n  try: return {text}\n  {handled}", space)
    fn, caught = space["fn"], space["caught"]
    compiled = [dovetail.compile(fn, backend="eager", fullgraph=True, dynamic=d) for d in (False, True)]
    inside = dovetail.compile(caught, backend="eager", dynamic=True)
    for given in (x.clone(), torch.cat([x, x])):
        expected = raised(fn, given)
        assert [raised(call, given) for call in compiled] == [expected, expected]
        assert inside(given) == expected
