"""What a CPU kernel and the runtime's launcher agree on: a context of 8-byte slots.

    void dovetail_launch(ptr ctx, ptr body, i64 rows, i64 span, i64 lanes, i64 work)

calls `void body(ptr ctx, i64 lo, i64 hi, i64 part)` so that every task in [0, tasks) is run once, by
one thread, or by a team if `work` (picoseconds on one thread) is worth it; `part` numbers the
threads from 0. There are `rows` tasks when `lanes` is 0. Otherwise a task is a row and a segment of
a range of `span` indices, `segments` to a row (the fastest digit), each `segment` long, a multiple
of `lanes`, but for the last. rows and span are positive. The launcher fills the slots below, but
for status and partials.

    void dovetail_launch_many(ptr records, i64 width, i64 slots, i64 count, ptr fill, ptr body)

does so for `count` contexts of `slots` slots, shared out among the threads by their work. `fill(ctx, record)` prepares
one from a record of `width` words: rows, span, lanes and work in the slots `GIVEN`, and the kernel's arguments.
"""

from __future__ import annotations

from typing import Any

from dovetail.ir.records import dataclass

LAUNCH = "dovetail_launch"
LAUNCH_MANY = "dovetail_launch_many"

#: status: 0, or the number of a failed check; parts: threads that ran a body; partials: the kernel's.
STATUS, TASKS, SEGMENT, SEGMENTS, PARTIALS, PARTS, BODY = range(7)
FIRST_FREE = 8
#: rows, span, lanes and work, until the launcher has cut them into tasks.
GIVEN = (TASKS, SEGMENT, SEGMENTS, PARTIALS)

#: Threads of a team, at most: partial results are kept for so many.
MOST_THREADS = 1024

#: Work below which one thread is faster than a team, whose start and barrier take 5-10 us.
PARALLEL_PICOSECONDS = 20_000_000

#: GPU: indices below this are held in 32 bits, those of a tile that goes past the end included.
NARROW = 2**31 - 2**20
#: GPU: elements of a row that stay in the registers of one program.
LONGEST_ROW = 16384
#: GPU: programs that keep every multiprocessor of a large device busy; at least one on each.
ENOUGH_PROGRAMS, FEW_PROGRAMS = 1056, 132
#: GPU: a loop that adds up more than so many things at once has so many times fewer programs, and elements to a thread:
#: what each thread has come to takes registers, and time at the end.
MANY_SUMS, FEWER = 4, 4
#: GPU: more elements of one tensor than this, for each that is computed, are a window.
WINDOW = 8
#: GPU: outer indices in a program whose memory is contiguous along them, and where there are few; bytes of them where a
#: narrower tile keeps a column for a second reduction.
WIDE_TILE, NARROWEST_TILE, NARROW_TILE = 64, 8, 64


def power_of_two(size: int) -> int:
    """The smallest that is at least `size`: sides of tiles are."""
    return 1 << max(size - 1, 0).bit_length()


@dataclass(frozen=True)
class GraphFacts:
    """What the recorder of CUDA graphs must know of a program.

    `device`: where all of it happens. `numbers`: places of inputs that are no tensors and that kernels read from
    memory; `fixed`: those that are part of a recording, as sizes are. `written`: inputs whose version counters a call
    advances.
    `dynamic`: are there sizes that differ from call to call? `saved`: so many of the last results are for a backward
    pass. `products`: does it call cuBLAS? `moving`: inputs that lie somewhere else in each call. `own`: are the others
    all inputs of the compiled function, or known tensors? `shares`: does it take turns in memory with other programs,
    as halves of a training step do? `later`: for each bucket of results but the last, the inputs
    that are read after it.
    """

    device: Any
    numbers: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    dynamic: bool = False
    saved: int = 0
    products: bool = False
    moving: frozenset[int] = frozenset()
    own: bool = False
    shares: bool = False
    later: tuple[tuple[int, ...], ...] = ()
