"""Results beside those of eager mode, of which float64 says how far off they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

#: Error allowed beyond twice eager's, both measured against float64, relative to the largest number of a result.
SLACK = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}


def unlike(
    got: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], slack: float,
    overflows: bool = False,
) -> str | None:  # fmt: skip
    """What is wrong with a result. `overflows`: what does so in eager alone may be finite."""
    if len(got) != len(eager):
        return f"{len(got)} results, {len(eager)} expected"
    for k, (mine, theirs, right) in enumerate(zip(got, eager, exact, strict=True)):
        if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape) or not k and mine.stride() != theirs.stride():
            return f"result {k} is {mine.dtype} {mine.shape} {mine.stride()}, not {theirs.shape} {theirs.stride()}"
        odd = mine.isfinite() != theirs.isfinite()
        finite = right.isfinite()
        if overflows:
            odd &= ~(mine.isfinite() & finite)
            finite &= theirs.isfinite()
        if odd.any():
            return f"result {k} is not finite in other places"
        errors = [torch.where(finite, t.double() - right, 0).abs().max().item() for t in (mine, theirs)]
        scale = max(1.0, torch.where(finite, right, 0).abs().max().item())
        if not errors[0] <= slack * scale + 2 * errors[1]:
            return f"result {k} is wrong by {errors[0]}, eager's by {errors[1]}"
    return None
