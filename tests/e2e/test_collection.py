"""The garbage collector rests while something is compiled, and is afterwards as it was before."""

from __future__ import annotations

import gc

import pytest
import torch

import dovetail


@pytest.mark.parametrize("fails", (False, True))
@pytest.mark.parametrize("enabled", (False, True))
def test_collection(enabled, fails):
    seen = []

    def backend(graph, inputs):
        seen.append(gc.isenabled())
        if fails:
            raise RuntimeError("no")
        return graph

    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        fn = dovetail.compile(lambda x: x + 1, backend=backend)
        if fails:
            with pytest.raises(dovetail.BackendError):
                fn(torch.ones(2))
        else:
            fn(torch.ones(2))
        assert seen == [False] and gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
