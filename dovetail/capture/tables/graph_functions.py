"""Which of torch's functions become nodes of the graph as they are.

Everything else of torch that is written in Python (`torch.nn` layers, distributions, optimizers) is
inlined like user code.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Any

import torch
import torch.functional
import torch.masked
import torch.nn.functional as F

from dovetail.capture.process.trusted_code import foreign
from dovetail.ir.nodes import is_collective, name_of, writes

# Namespaces whose functions all take and give tensors.
NAMESPACES = (
    torch._C._VariableFunctions, torch._C._nn, torch.special, torch.linalg, torch.fft, torch.functional, F,
    torch.masked, torch._C._sparse,  # type: ignore[attr-defined]
)  # fmt: skip

# Functions of those namespaces that are no tensor operations, or that are better inlined.
EXCEPT = frozenset(
    """handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic boolean_dispatch
    broadcast_shapes is_scripting assert_int_or_pair is_tracing cast _overload _add_docstr multi_head_attention_forward
    _verify_batch_size _verify_spatial_size scale_factor is_masked_tensor as_masked_tensor masked_tensor TYPE_CHECKING
    overload Optional Union Callable _set_torch_function_mode _infer_size""".split()
)

PYTHON_TYPES = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)


@cache
def graph_functions() -> frozenset[Any]:
    """Functions called by the graph as one node."""
    found = set()
    for space in NAMESPACES:
        for name in dir(space):
            function = getattr(space, name, None)
            if isinstance(function, PYTHON_TYPES) and name not in EXCEPT and not name.startswith("__"):
                if not foreign(function):
                    found.add(function)
    return frozenset(found)


@cache
def tensor_methods() -> dict[Any, str]:
    """Methods of `torch.Tensor`, native or in Python, by the function object."""
    found: dict[Any, str] = {}
    for name in dir(torch.Tensor):
        method = getattr(torch.Tensor, name, None)
        kinds = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
        if isinstance(method, kinds) and getattr(object, name, None) is not method and not foreign(method):
            found[method] = name
    return found


RANDOM = frozenset(
    """rand randn randint randperm bernoulli multinomial normal poisson dropout alpha_dropout feature_dropout
    feature_alpha_dropout dropout1d dropout2d dropout3d rrelu gumbel_softmax fractional_max_pool2d
    fractional_max_pool3d rand_like randn_like randint_like scaled_dot_product_attention native_dropout
    feature_dropout normal_ uniform_ random_ exponential_ geometric_ cauchy_ log_normal_ bernoulli_
    empty_strided_random""".split()
)
STATEFUL = frozenset("batch_norm instance_norm _assert_async embedding embedding_bag _set_grad_enabled".split())


#: Methods after which a tensor has other sizes, strides or memory. Graphs know inputs as they are at the beginning.
NO_VARIANT = frozenset(("resize_", "resize_as_", "set_"))
RESHAPING = NO_VARIANT | frozenset(
    ("transpose_", "unsqueeze_", "as_strided_", "squeeze_", "swapdims_", "swapaxes_", "t_")
)


def impure(node: Any) -> bool:
    """Must the node stay even when nobody uses its result?"""
    if node.op in ("placeholder", "output"):
        return True
    if node.meta.get("random") or node.meta.get("renews") or writes(node) or is_collective(node):
        return True
    if node.op == "call_method":
        return False
    name = name_of(node)
    return name in STATEFUL or name in RANDOM_FUNCTIONS


RANDOM_FUNCTIONS = RANDOM - {"scaled_dot_product_attention"}


def remove_dead(graph: Any) -> None:
    """Erase calls whose results nobody uses and that change nothing."""
    for node in reversed(graph.nodes):
        if not node.users and not impure(node):
            graph.erase_node(node)


#: Methods that copy a tensor or give it back, which depends on more than its type and sizes.
BY_LAYOUT = frozenset(("contiguous", "resolve_conj", "resolve_neg"))


class _Everywhere:
    def __contains__(self, place: object) -> bool:
        return True


NO_PLACE: Any = frozenset()
EVERYWHERE: Any = _Everywhere()

#: Operations on tensors whose result looks the same for every value of a number that they take.
_NUMBER_OPERATIONS = frozenset(
    """add sub mul div truediv floordiv mod pow true_divide floor_divide remainder fmod subtract multiply divide rsub
    lt le gt ge eq ne less less_equal greater greater_equal not_equal clamp clip clamp_min clamp_max fill masked_fill
    where lerp addcmul addcdiv addmm addmv addr addbmm baddbmm leaky_relu elu celu threshold copysign xlogy
    hardshrink softshrink nan_to_num float_power""".split()
)
_PLACES: dict[str, Any] = {
    "scalar_tensor": frozenset((0,)), "full": frozenset((1, "fill_value")), "full_like": frozenset((1, "fill_value")),
    "new_full": frozenset((2, "fill_value")), "setitem": frozenset((2,)), "__setitem__": frozenset((2,)),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"), frozenset(("lr",))),
    "index_fill": frozenset((3, "value")), "index_fill_": frozenset((3, "value")),
}  # fmt: skip
#: The same of operations that no kernel computes with such numbers.
_ALONE_PLACES: dict[str, Any] = {
    name: frozenset((*map(int, filter(str.isdigit, words)), *(w for w in words if not w.isdigit())))
    for name, *words in map(str.split, """
        softplus 1 2 beta threshold
        hardtanh 1 2 min_val max_val
        logit 1 eps
        isclose 2 3 rtol atol
        pad 3 value
        constant_pad_nd 2 value
        scatter 3 value
        scatter_ 3 value
        index_add alpha
        index_add_ alpha
        linspace 0 1 start end
        logspace 0 1 start end
        uniform_ 1 2 from to
        normal_ 1 2 mean std
        log_normal_ 1 2 mean std
        cauchy_ 1 2 median sigma
        exponential_ 1 lambd
        quantile 1 q
        nanquantile 1 q
        renorm 3 maxnorm
        layer_norm 4 eps
        rms_norm 3 eps
        group_norm 4 eps
        instance_norm 6 7 momentum eps
        batch_norm 6 7 momentum eps
        normalize 3 eps
        cosine_similarity 3 eps
        pairwise_distance 3 eps
        gumbel_softmax 1 tau
        scaled_dot_product_attention scale
        cross_entropy label_smoothing
        huber_loss 3 delta
        smooth_l1_loss beta
        margin_ranking_loss 3 margin
        hinge_embedding_loss 2 margin
        cosine_embedding_loss 3 margin
        triplet_margin_loss 3 margin
    """.strip().splitlines())
}  # fmt: skip


def runs_alone(node: torch.fx.Node) -> bool:
    """May only PyTorch compute the node with numbers that are known when it runs?"""
    return name_of(node) in _ALONE_PLACES


def takes_constants(name: str) -> bool:
    """Is an operation by that name better off with numbers that are known?"""
    return name in _ALONE_PLACES


@cache
def number_places(name: str) -> Any:
    """The arguments, by position or name, of an operation that may be numbers known only when it runs."""
    if found := _PLACES.get(name) or _ALONE_PLACES.get(name):
        return found
    plain = name.removeprefix("_foreach_").strip("_")
    if plain not in _NUMBER_OPERATIONS and plain[:1] in ("i", "r"):  # `iadd` and `radd` are additions too
        plain = plain[1:]
    return EVERYWHERE if plain in _NUMBER_OPERATIONS else NO_PLACE


def storage_of(node: torch.fx.Node) -> int:
    """Equal for nodes whose tensors share memory; 0 of what is no tensor."""
    fake = node.meta.get("fake")
    return id(owner(fake)) if isinstance(fake, torch.Tensor) else 0


def owner(fake: Any) -> Any:
    """The fake tensor that the memory was made for."""
    return getattr(fake, "owner", fake)
