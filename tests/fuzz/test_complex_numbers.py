"""A few random programs with complex numbers; `python -m tests.fuzz.complex_numbers` takes any number."""

from __future__ import annotations

import pytest
import torch

import dovetail
from tests.fuzz.complex_numbers import check


@pytest.mark.parametrize("seed", [*range(24), 20502, 23509, 24205])
def test_program(seed):
    assert check(seed) is None


#: Views that PyTorch makes of what a library has computed.
VIEWS = """
    (a @ a).conj() | (a @ a).imag | torch.view_as_real(a @ a) | (a @ a).mT.conj() | (a @ a).chunk(2)[0].conj()
    (a @ a).reshape(2, 8) | (r @ r).view(torch.int16) | (r @ r).view(torch.complex64) | (r @ r).view(torch.float64)
    torch.view_as_complex((r @ r).view(4, 2, 2)) | torch.view_as_complex(torch.view_as_real(a) @ torch.ones(2, 2))
    torch.unsafe_split(a @ a, 2)[1] | (a @ a).diagonal().conj() | torch.linalg.inv(a @ a).imag
""".replace("\n", "|").split("|")


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_a_librarys_result_outlive_the_call(dynamic):
    """Temporaries lie in memory that the next call uses again."""
    for text in filter(str.strip, VIEWS):
        fn = eval(f"lambda a, r: {text.strip()}")
        compiled = dovetail.compile(fn, fullgraph=True, dynamic=dynamic)
        given = [(torch.randn(4, 4, dtype=torch.complex64), torch.randn(4, 4)) for _ in range(3)]
        for got, want in zip([compiled(*g) for g in given], [fn(*g) for g in given], strict=True):
            torch.testing.assert_close(got, want, equal_nan=True, msg=text)
