"""Passes over a functional ATen graph, in order. Each is one file and one function on the graph."""

from __future__ import annotations

from collections.abc import Set

import torch.fx

from dovetail.ir.aten import AtenGraph, JointGraph
from dovetail.normalize.passes.assemble_parts import join_parts
from dovetail.normalize.passes.biases import add_biases_apart
from dovetail.normalize.passes.channels_last import prefer_channels_last
from dovetail.normalize.passes.common_subexpressions import merge_common
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.epilogues import let_cudnn_finish
from dovetail.normalize.passes.expose_batch_norm import expose_norms
from dovetail.normalize.passes.expose_log_softmax import expose_logs
from dovetail.normalize.passes.join_collectives import reduce_sums_once
from dovetail.normalize.passes.literals import compute_literals
from dovetail.normalize.passes.max_pools import write_out_pools
from dovetail.normalize.passes.no_ops import fold
from dovetail.normalize.passes.origins import compute_where_wanted
from dovetail.normalize.passes.permutations import read_at_inverses
from dovetail.normalize.passes.protect_kept import protect, relied_on
from dovetail.normalize.passes.random_numbers import draw_in_kernels
from dovetail.normalize.passes.redraws import draw_again
from dovetail.normalize.passes.relu_masks import look_at_arguments
from dovetail.normalize.passes.short_sorts import sort_short_keys
from dovetail.normalize.passes.uploads import upload_together
from dovetail.ops.integer_ends import note_ends
from dovetail.options import Options


def simplify_joint(joint: JointGraph, options: Options) -> JointGraph:
    """The same for forward and backward together, of which more may be computed again."""
    relied = relied_on(joint)
    expose_norms(joint.aten)
    if options.numerics != "eager":
        expose_logs(joint.aten)
    simplify(joint.aten, options, joint.backward)
    draw_again(joint.aten)
    protect(joint, relied)
    return joint


def simplify(aten: AtenGraph, options: Options, backward_nodes: Set[torch.fx.Node] = frozenset()) -> AtenGraph:
    """The same meaning in fewer operators. `backward_nodes`: those of a backward half."""
    remove_dead(aten)
    compute_literals(aten)
    if options.numerics != "eager":
        compute_where_wanted(aten)
    fold(aten)
    merge_common(aten, options.fewer_collectives, backward_nodes)
    if options.fewer_collectives and options.numerics != "eager":
        reduce_sums_once(aten, backward_nodes)
    remove_dead(aten)
    join_parts(aten)
    compute_literals(aten)  # of tensors that were put together of numbers
    upload_together(aten)
    prefer_channels_last(aten, options)
    let_cudnn_finish(aten, options)
    add_biases_apart(aten)
    look_at_arguments(aten)
    write_out_pools(aten)
    note_ends(aten.graph)
    if options.numerics != "eager":
        read_at_inverses(aten)
    sort_short_keys(aten)
    if not options.fallback_random:
        draw_in_kernels(aten, backward_nodes)
    return aten
