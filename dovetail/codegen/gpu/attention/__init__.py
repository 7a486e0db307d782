"""Attention as kernels that keep no scores in memory: softmax block by block of keys, and its gradients.

Tri Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning" (2023). Scores are changed
and hidden by expressions of the loop IR, written where they are needed.
"""

from dovetail.codegen.gpu.attention.backward import key_gradients, query_gradient
from dovetail.codegen.gpu.attention.blocks import blocks, widest
from dovetail.codegen.gpu.attention.forward import forward
from dovetail.codegen.gpu.attention.seen import lists, squares

__all__ = ["blocks", "forward", "key_gradients", "lists", "query_gradient", "squares", "widest"]
