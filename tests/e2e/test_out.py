"""`out=` under sizes that vary, of random operators, and of another size than the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail


def largest(x: torch.Tensor, values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    torch.max(x, 1, out=(values, places))
    return values + places


def x(n: int) -> torch.Tensor:
    return torch.arange(3.0 * n).view(n, 3) % 7


#: A function that writes to its last argument, and what it is called with for a size.
CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "a sum": (lambda x, o: torch.add(x, 1, out=o), lambda n: (x(n), torch.empty(n, 3))),
    "rows side by side": (lambda x, o: torch.cat([x, x], 1, out=o), lambda n: (x(n), torch.empty(n, 6))),
    "a product": (lambda x, o: torch.matmul(x, x.t(), out=o), lambda n: (x(n), torch.empty(n, n))),
    "two results": (largest, lambda n: (x(n), torch.empty(n), torch.empty(n, dtype=torch.long))),
    "integers": (lambda s, o: torch.randint(17, s, out=o), lambda n: ((n,), torch.empty(n, dtype=torch.int32))),
    "numbers": (lambda s, o: torch.randn(s, out=o), lambda n: ((n, 2), torch.empty(n, 2))),
    "an order": (lambda n, o: torch.randperm(n, out=o), lambda n: (n, torch.empty(n, dtype=torch.long))),
    "numbers in another order": (lambda o: torch.rand(3, 4, out=o), lambda n: (torch.empty(4, 3).t(),)),
    "numbers with gaps": (lambda o: torch.rand(3, 4, out=o), lambda n: (torch.empty(3, 4, 2)[..., 0],)),
    "a range": (lambda n, o: torch.arange(n, out=o), lambda n: (n, torch.empty(n))),
    "a Kronecker product": (lambda x, o: torch.kron(x, x, out=o), lambda n: (x(n), torch.empty(n * n, 9))),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_given_holds_the_result_at_every_size(name: str) -> None:
    fn, make = CASES[name]
    compiled = dovetail.compile(fn, fullgraph=True)
    for n in (10, 12, 5):
        given, expected = make(n), make(n)
        torch.manual_seed(n)
        fn(*expected)
        torch.manual_seed(n)
        result = compiled(*given)
        torch.testing.assert_close(given, expected)
        assert name == "two results" or result is given[-1]


def test_a_result_of_another_size_is_seen_by_what_follows() -> None:
    def sorted_rows(x: torch.Tensor) -> Any:
        values, places = torch.empty(0), torch.empty(0, dtype=torch.long)
        torch.sort(x, out=(values, places))
        return values.shape, torch.zeros(values.shape), values.numel() == 0, places

    for backend in ("eager", "aot_eager", "dovetail"):
        compiled = dovetail.compile(sorted_rows, backend=backend)
        torch.testing.assert_close(compiled(x(4)), sorted_rows(x(4)))


def test_an_operator_names_its_results_as_it_likes() -> None:
    def fn(x: torch.Tensor) -> Any:
        values, places = torch.empty(0), torch.empty(0, dtype=torch.long)
        torch.ops.aten.sort.values_stable(x, stable=True, dim=0, values=values, indices=places)
        return values.shape, values, places

    torch.testing.assert_close(dovetail.compile(fn)(x(4)), fn(x(4)))
