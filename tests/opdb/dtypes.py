"""Types that operators refuse: `python -m tests.opdb.dtypes` compares all of the database, and prints what differs.

Samples of float32 are converted to types that an operator may or may not take. Where shape inference sees an error
that eager does not raise, or the other way round, the operator is compiled: that must raise what eager raises.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

import dovetail
from dovetail.errors import Unsupported
from dovetail.ops.fake import FakeMode, to_fake
from tests.opdb.entries import database

TYPES = (torch.int64, torch.uint8, torch.bool, torch.complex64, torch.bfloat16)
#: On the CPU eager has a second kernel for it that takes fewer types; which one it takes depends on histories.
EXCEPT = frozenset(("nn_functional_max_pool1d",))


def operators() -> list[Any]:
    return [op for op in sorted(database(), key=lambda op: op.formatted_name) if op.formatted_name not in EXCEPT]


def differences(op: Any, most: int = 3) -> Iterator[str]:
    """What compiled code refuses and eager does not, or the other way round."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        samples = list(op.sample_inputs("cpu", torch.float32))[:most]
        for dtype in TYPES:
            for k, sample in enumerate(samples):
                given = converted(((sample.input, *sample.args), dict(sample.kwargs)), dtype)
                found = difference(op.op, given)
                if found:
                    yield f"{op.formatted_name}[{dtype}] sample {k}: {found}"


def difference(function: Callable[..., Any], given: Any) -> str:
    copied = pytree.tree_map_only(torch.Tensor, torch.clone, given)
    eager = refusal(function, copied)
    with FakeMode():
        inferred = refusal(lambda *args, **kwargs: on_fakes(function, args, kwargs), given)
    if (eager is None) is (inferred is None) or isinstance(inferred, Unsupported):
        return ""
    compiled = refusal(dovetail.compile(lambda *args, **kwargs: function(*args, **kwargs)), given)
    if type(eager) is type(compiled):
        return ""
    return f"eager {eager!r}, compiled {compiled!r}"


def refusal(function: Callable[..., Any], given: Any) -> Exception | None:
    args, kwargs = given
    try:
        function(*args, **kwargs)
    except Exception as error:  # whatever the operator raises is what is compared
        return error
    return None


def on_fakes(function: Callable[..., Any], *given: Any) -> Any:
    args, kwargs = pytree.tree_map_only(torch.Tensor, to_fake, given)
    return function(*args, **kwargs)


def converted(value: Any, dtype: torch.dtype) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().to(dtype) if t.dtype is torch.float32 else t.detach(), value
    )


if __name__ == "__main__":
    for operator in operators():
        for line in differences(operator):
            print(line, flush=True)
