"""Attention as one kernel that keeps no scores in memory: softmax block by block of keys.

    kernel.py        threads take one task after the other
      task.py        a block of rows of a head
        layouts.py   query[row, d]   ->  query[d, row]
        for each block of keys
          seen.py      which of the scores does the mask show: none, all, or has it to be asked for each?
          products.py  scores[k, row] = sum over d of key[k, d] * query[d, row]
          softmax.py   weights[k, row] = exp(scores[k, row] - largest[row]), for the largest so far
          products.py  found[d, row] = found[d, row] * change[row] + sum over k of value[k, d] * weights[k, row]
        layouts.py   found[d, row] / total[row]  ->  out[row, d]

Rows lie in the lanes of vectors from beginning to end. So keys and values are read number by number as the program has
them, what a row needs of all its keys is computed without looking across lanes, and only the query and the result are
transposed.

Tri Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning" (2023). Scores are changed
and hidden by expressions of the loop IR, written where they are needed.
"""

from dovetail.codegen.cpu.attention.kernel import forward

__all__ = ["forward"]
