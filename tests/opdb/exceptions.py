"""What does not pass, and why. A name without a dtype covers all of an operator's dtypes.

`cases` is a regular expression for the cases that may fail; everything else of the entry must pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    text: str
    cases: str = ""  # empty: all


_SIZE = Reason("the size of the result depends on values: needs a graph break")
_VALUE = Reason("the result is a Python value that depends on a tensor: needs a graph break")
_DECIDES = Reason("its own code decides by the values of a tensor: needs a graph break")
_MEMORY = Reason("resizes the memory of its argument")
_SHAPE = Reason("changes the shape of the caller's tensor in place", "in place")
_OUT = Reason("out= tensors of another dtype, or overlapping the arguments: eager refuses them", "^error")
_LAYOUT = Reason("sparse CSR tensors have no strides and are no graph inputs")

EXCEPTIONS: dict[str, Reason] = {
    **dict.fromkeys(("argwhere", "nonzero", "unique", "unique_consecutive", "masked_select", "combinations", "bincount",
                     "linalg_lstsq", "linalg_lstsq_grad_oriented", "nn_functional_ctc_loss"), _SIZE),
    **dict.fromkeys(("allclose", "equal", "item"), _VALUE),
    **dict.fromkeys(("cov", "corrcoef", "narrow", "nn_functional_gaussian_nll_loss", "nn_functional_one_hot"),
                    _DECIDES),
    **dict.fromkeys(("resize_", "resize_as_"), _MEMORY),
    **dict.fromkeys(("as_strided", "as_strided_partial_views", "squeeze", "squeeze_multiple", "unsqueeze", "t",
                     "transpose"), _SHAPE),
    **dict.fromkeys(("aminmax", "cat", "complex", "gather", "index_select", "kthvalue", "multinomial", "take"), _OUT),
    "sparse_sampled_addmm": _LAYOUT,
    "sparse_mm_reduce": Reason("its sample inputs cannot be made on this build of torch"),
}


def excused(entry: str, case: str) -> str | None:
    """The reason why this case of this entry may fail."""
    reason = EXCEPTIONS.get(entry) or EXCEPTIONS.get(entry.partition("[")[0])
    if reason is None or not re.search(reason.cases, case):
        return None
    return reason.text
