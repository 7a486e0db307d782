"""PyTorch's questions about layouts, while one thread records and another runs."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dovetail.ops.fake import sharding


class Propagator:
    """In the place of PyTorch's: tells how many modes are in force."""

    def _propagate_tensor_meta_non_cached(self, schema: str) -> int:
        return torch._C._len_torch_dispatch_stack()


def test_only_the_thread_that_records_asks_without_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, sharding._MODULE, SimpleNamespace(ShardingPropagator=Propagator))
    told: dict[str, int] = {}

    def ask(name: str) -> None:
        with TorchDispatchMode():
            told[name] = Propagator()._propagate_tensor_meta_non_cached("schema")

    with sharding.out_of_sight():
        with sharding.out_of_sight():
            ask("inside")
        ask("outside of another")
        other = threading.Thread(target=ask, args=("another thread",))
        other.start()
        other.join()
    ask("afterwards")
    assert told == {"inside": 0, "outside of another": 0, "another thread": 1, "afterwards": 1}
