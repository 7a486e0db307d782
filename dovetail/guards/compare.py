"""One machine-code loop that compares thousands of words in memory with what they were.

The runs are compared in order and the first difference ends the loop, so a run may lie at an address that an
earlier run holds: if the earlier word changed, the later address is never read.
"""

from __future__ import annotations

import ctypes
import importlib
from array import array
from collections.abc import Callable, Iterable
from functools import cache

from dovetail.guards.layout import words

#: (n, addresses, counts, expected) → the index of the first run that differs, or -1.
_TEXT = """
define i64 @first_difference(i64 %n, ptr %addresses, ptr %counts, ptr %expected) {
entry:
  %none = icmp eq i64 %n, 0
  br i1 %none, label %same, label %run
run:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %e = phi ptr [ %expected, %entry ], [ %e3, %next ]
  %ap = getelementptr i64, ptr %addresses, i64 %i
  %a = load i64, ptr %ap
  %start = inttoptr i64 %a to ptr
  %cp = getelementptr i64, ptr %counts, i64 %i
  %c = load i64, ptr %cp
  br label %word
word:
  %k = phi i64 [ 0, %run ], [ %k1, %equal ]
  %e2 = phi ptr [ %e, %run ], [ %e3, %equal ]
  %p = getelementptr i64, ptr %start, i64 %k
  %have = load i64, ptr %p
  %want = load i64, ptr %e2
  %ok = icmp eq i64 %have, %want
  br i1 %ok, label %equal, label %differs
equal:
  %e3 = getelementptr i64, ptr %e2, i64 1
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %c
  br i1 %more, label %word, label %next
next:
  %i1 = add i64 %i, 1
  %again = icmp ult i64 %i1, %n
  br i1 %again, label %run, label %same
same:
  ret i64 -1
differs:
  ret i64 %i
}
"""


@cache
def _function() -> tuple[Callable[..., int], object]:
    """The loop as a function that keeps the interpreter lock, and what keeps its code alive."""
    # llvmlite takes 0.1 s to import, which only models with many guards should pay.
    binding = importlib.import_module("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(_TEXT), machine)
    engine.finalize_object()
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)
    return kind(engine.get_function_address("first_difference")), engine


class Words:
    """Runs of words and their values when last read."""

    def __init__(self, runs: Iterable[tuple[int, int]]) -> None:
        every = list(runs)
        self.addresses = array("Q", (address for address, _ in every))
        self.counts = array("Q", (count for _, count in every))
        self.starts = [0]
        for _, count in every:
            self.starts.append(self.starts[-1] + count)
        self.expected = array("Q", (w for address, count in every for w in words(address, count)))
        self._compare, self._engine = _function()
        self._call = (
            len(every), self.addresses.buffer_info()[0], self.counts.buffer_info()[0], self.expected.buffer_info()[0],
        )  # fmt: skip

    def first_difference(self) -> int:
        """The index of the first run whose words changed, or -1."""
        return self._compare(*self._call)

    def counts_from(self, first: int, end: int) -> list[int]:
        """How many words each of the runs `first` to `end` has."""
        return self.counts[first:end].tolist()

    def take(self, index: int, address: int) -> None:
        """Run `index` now lies at `address`; what it holds now is what is expected from here on."""
        self.addresses[index] = address
        for k, word in enumerate(words(address, self.counts[index]), self.starts[index]):
            self.expected[k] = word
