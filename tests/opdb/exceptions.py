"""What does not run as one graph, and why. Nothing may give another result than eager.

An exception explains breaks with its codes, of its operator's cases that match. Every other break, every wrong result
and every missing error is a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.versions import VERSION


@dataclass(frozen=True)
class Reason:
    text: str
    codes: frozenset[str]
    cases: str = ""  # a regular expression; empty: all


_SIZE = Reason("the size of the result depends on values", frozenset({"data-dependent-output"}))
_VALUE = Reason("the result is a Python value that depends on a tensor", frozenset({"data-dependent-value"}))
_DECIDES = Reason(
    "its own code decides by the values of a tensor", frozenset({"data-dependent-value", "data-dependent-size"})
)
_MEMORY = Reason("resizes the memory of its argument", frozenset({"metadata-mutation"}))
_SHAPE = Reason("changes the shape of the caller's tensor in place", frozenset({"metadata-mutation"}), "in place$")
_LAYOUT = Reason("sparse tensors have no strides and are part of no graph", frozenset({"sparse-tensor"}))
_OPAQUE = Reason("compiles a kernel of the user's own", frozenset({"opaque-call"}))
_OBJECT = Reason("takes a callable or options object, which a graph cannot name", frozenset({"graph-argument"}))

#: Entries that break with PyTorch before a version only.
_UNTIL: dict[tuple[int, ...], tuple[str, ...]] = {(2, 12): ("quantile", "nanquantile")}

EXCEPTIONS: dict[str, Reason] = {
    **{name: _DECIDES for version, names in _UNTIL.items() if VERSION < version for name in names},
    **dict.fromkeys(("argwhere", "nonzero", "unique", "unique_consecutive", "masked_select", "combinations", "bincount",
                     "linalg_lstsq", "linalg_lstsq_grad_oriented", "nn_functional_ctc_loss", "__getitem__",
                     "repeat_interleave"), _SIZE),
    **dict.fromkeys(("allclose", "equal", "item"), _VALUE),
    **dict.fromkeys(("cov", "corrcoef", "istft", "narrow", "nn_functional_gaussian_nll_loss", "nn_functional_one_hot",
                     "tensor_split"),
                    _DECIDES),
    **dict.fromkeys(("resize_", "resize_as_"), _MEMORY),
    **dict.fromkeys(("as_strided", "as_strided_partial_views", "squeeze", "squeeze_multiple", "unsqueeze", "t",
                     "transpose", "nn_functional_dropout3d"), _SHAPE),
    **dict.fromkeys(("nn_functional_linear_cross_entropy_chunked", "nn_functional_linear_cross_entropy_chunked_none",
                     "nn_functional_triplet_margin_with_distance_loss"), _OBJECT),
    **dict.fromkeys(("jiterator_2inputs_2outputs", "jiterator_4inputs_with_extra_args", "jiterator_binary",
                     "jiterator_binary_return_by_ref", "jiterator_unary"), _OPAQUE),
    **dict.fromkeys(("sparse_sampled_addmm", "sparse_mm_reduce", "to_sparse"), _LAYOUT),
}  # fmt: skip


def excused(entry: str, case: str, code: str) -> str | None:
    """The reason why this case of this entry may break with this code."""
    reason = EXCEPTIONS.get(entry.partition("[")[0])
    if reason is None or code not in reason.codes or not re.search(reason.cases, case):
        return None
    return reason.text
