"""How large blocks are, by the width of heads and what is computed."""

from __future__ import annotations

import torch

from dovetail.ir.attention import Tiles

#: By the pass and the widest head, for half types, as measured on an H100 (4x16x4096, a causal window of 512). Tensor
#: cores of Hopper take 64 rows a group of four warps. Larger blocks would load less, but registers hold no more scores.
_HALF = {
    "forward": {64: Tiles(64, 64, 4, 3), 128: Tiles(64, 64, 4, 2), 256: Tiles(64, 32, 4, 2)},
    "query": {64: Tiles(64, 32, 4, 3), 128: Tiles(64, 64, 4, 2), 256: Tiles(64, 32, 8, 1)},
    "key": {64: Tiles(32, 64, 4, 3), 128: Tiles(64, 64, 4, 2), 256: Tiles(32, 64, 8, 1)},
}
#: Of float32, in which a block takes twice the memory: three products of half precision make one. Wider than 64, those
#: of which fewest registers go to memory, as ptxas says for an H100.
_FULL = {
    "forward": {64: Tiles(64, 64, 4, 2), 128: Tiles(64, 32, 4, 2), 256: Tiles(16, 64, 8, 1)},
    "query": {64: Tiles(32, 64, 4, 2), 128: Tiles(32, 64, 8, 1), 256: Tiles(16, 64, 8, 1)},
    "key": {64: Tiles(64, 32, 4, 2), 128: Tiles(64, 32, 8, 1), 256: Tiles(64, 16, 8, 1)},
}
#: The same where a program has less shared memory than those take: the largest that do with 99 KiB.
_FULL_IN_LITTLE = {
    "forward": {64: Tiles(64, 64, 4, 2), 128: Tiles(64, 32, 4, 1), 256: Tiles(32, 32, 8, 1)},
    "query": {64: Tiles(32, 64, 4, 2), 128: Tiles(32, 32, 8, 1), 256: Tiles(16, 16, 4, 1)},
    "key": {64: Tiles(64, 32, 4, 2), 128: Tiles(32, 32, 8, 1), 256: Tiles(16, 16, 4, 1)},
}
_FULL_TAKES = 192 << 10


def widest(dtype: torch.dtype) -> int:
    """The widest heads that blocks fit into registers of."""
    return max((_FULL if dtype is torch.float32 else _HALF)["forward"])


def blocks(kind: str, dtype: torch.dtype, width: int, shared: int) -> Tiles:
    """`kind`: forward, or the gradient of the query or of the key. `shared`: bytes of memory that a program has."""
    full = _FULL if shared >= _FULL_TAKES else _FULL_IN_LITTLE
    table = (full if dtype is torch.float32 else _HALF)[kind]
    return table[next(most for most in table if width <= most)]
