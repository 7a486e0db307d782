"""One machine-code loop that compares thousands of words in memory with what they were.

The runs are compared in order and the first difference ends the loop, so a run may lie at an address that an
earlier run holds: if the earlier word changed, the later address is never read.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from dovetail.guards.layout import words

_WORD = 8
_BEGIN = bytes.__basicsize__ - 1  # of a bytes object's contents, which end in a zero
_METH_NOARGS = 0x0004

#: A record is (n, n addresses, n counts, the words expected); the first run that differs, or -1. `same` is a builtin
#: function without arguments whose `self` is a bytes object with a record.
_TEXT = f"""
declare ptr @PyBool_FromLong(i64)

define ptr @same(ptr %self, ptr %unused) {{
  %record = getelementptr i8, ptr %self, i64 {_BEGIN}
  %found = call i64 @first_difference(ptr %record)
  %alike = icmp eq i64 %found, -1
  %wide = zext i1 %alike to i64
  %answer = call ptr @PyBool_FromLong(i64 %wide)
  ret ptr %answer
}}
""" + """
define i64 @first_difference(ptr %record) {
entry:
  %n = load i64, ptr %record
  %addresses = getelementptr i64, ptr %record, i64 1
  %counts = getelementptr i64, ptr %addresses, i64 %n
  %expected = getelementptr i64, ptr %counts, i64 %n
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


class _Definition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    ]  # fmt: skip


@cache
def _functions() -> tuple[Callable[[int], int], _Definition, object]:
    """The loop as a function that keeps the interpreter lock, what a builtin is made of, what keeps the code alive."""
    # llvmlite takes 0.1 s to import, which only entries that are called often should pay.
    binding = importlib.import_module("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.add_symbol("PyBool_FromLong", ctypes.cast(ctypes.pythonapi.PyBool_FromLong, ctypes.c_void_p).value)
    machine = binding.Target.from_default_triple().create_target_machine(opt=2, codemodel="large")
    engine = binding.create_mcjit_compiler(binding.parse_assembly(_TEXT), machine)
    engine.finalize_object()
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_size_t)
    definition = _Definition(b"same", engine.get_function_address("same"), _METH_NOARGS, None)
    return kind(engine.get_function_address("first_difference")), definition, engine


class Words:
    """Runs of words and their values when last read."""

    def __init__(self, runs: Iterable[tuple[int, int]]) -> None:
        every = list(runs)
        self.counts = [count for _, count in every]
        self.starts = [0]
        for count in self.counts:
            self.starts.append(self.starts[-1] + count)
        self.size = len(every)
        self._record = bytes(_WORD * (1 + 2 * self.size + self.starts[-1]))
        self._address = id(self._record) + _BEGIN
        self._cells = (ctypes.c_uint64 * (len(self._record) // _WORD)).from_address(self._address)
        self._cells[0] = self.size
        self._cells[1 + self.size : 1 + 2 * self.size] = self.counts  # type: ignore[assignment]
        self._cells[1 : 1 + self.size] = [address for address, _ in every]
        expected = ctypes.addressof(self._cells) + _WORD * (1 + 2 * self.size)
        for (address, count), start in zip(every, self.starts, strict=False):
            ctypes.memmove(expected + _WORD * start, address, _WORD * count)
        self._compare, self._definition, self._engine = _functions()

    def first_difference(self) -> int:
        """The index of the first run whose words changed, or -1."""
        return self._compare(self._address)

    def builtin(self) -> Callable[[], bool]:
        """A builtin function: are all words as expected? It keeps the record alive that it reads."""
        make: Any = ctypes.pythonapi.PyCFunction_NewEx
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p], ctypes.py_object
        return make(ctypes.addressof(self._definition), self._record, None)

    def counts_from(self, first: int, end: int) -> list[int]:
        """How many words each of the runs `first` to `end` has."""
        return self.counts[first:end]

    def take(self, index: int, address: int) -> None:
        """Run `index` now lies at `address`; what it holds now is what is expected from here on."""
        self._cells[1 + index] = address
        expected = 1 + 2 * self.size + self.starts[index]
        for k, word in enumerate(words(address, self.counts[index]), expected):
            self._cells[k] = word
