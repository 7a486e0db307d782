"""Kernels as Python functions written in LLVM IR.

Through ctypes a call with six integers costs 1.1 us; a builtin function that unpacks its
arguments itself costs a tenth of that. One is compiled for each number of arguments:

    PyObject *call_3(PyObject *self, PyObject *const *args, Py_ssize_t n)       METH_FASTCALL
        check n; convert args; release the GIL; r = (*address in self)(a0, a1, a2); return PyLong(r)

Addresses are handed over as the integers that they are to Python: 64-bit calling conventions do not tell them apart.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_METH_FASTCALL = 0x0080


class _Definition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    ]  # fmt: skip


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
_new_function.restype = ctypes.py_object


class Address(int):
    """Where a kernel begins. A builtin function's `self`: it keeps what the function needs alive, and no longer."""

    needs: tuple

DECLARATIONS = """
declare i64 @PyLong_AsLongLong(ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyLong_FromLong(i64)
declare ptr @PyErr_Occurred()
declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
@PyExc_TypeError = external global ptr
"""


#: How an argument is converted; the result -1 may mean an error.
_INTEGER = ("  %v{k} = call i64 @PyLong_AsLongLong(ptr %o{k})", "  %m{k} = icmp eq i64 %v{k}, -1")
_FLOAT = (
    "  %d{k} = call double @PyFloat_AsDouble(ptr %o{k})", "  %m{k} = fcmp oeq double %d{k}, -1.0",
    "  %v{k} = bitcast double %d{k} to i64",
)  # fmt: skip


def caller(count: int, floats: tuple[int, ...] = (), many: bool = False) -> str:
    """The name of the function that calls kernels of so many arguments, those at `floats` being floats."""
    return "_".join(map(str, ("call" + "_many" * many, count, *(f"f{k}" for k in floats))))


def caller_text(count: int, floats: tuple[int, ...] = (), many: bool = False) -> str:
    """Its definition. Wrong argument counts and other types raise TypeError. A float is handed on as its bits."""
    return _many_text(count, floats) if many else _text(count, floats)


def _many_text(width: int, floats: tuple[int, ...]) -> str:
    """The arguments of several calls in turn become words in memory: `(*address in self)(words, count)`."""
    name = caller(width, floats, True)
    message = f"a kernel takes groups of {width} integers, not %zd"
    wants_float = "false"
    tests = []
    for k in floats:
        tests += [f"  %f{k} = icmp eq i64 %column, {k}", f"  %g{k} = or i1 {wants_float}, %f{k}"]
        wants_float = f"%g{k}"
    return "\n".join([
        DECLARATIONS, "declare noalias ptr @malloc(i64)", "declare void @free(ptr)", "declare ptr @PyErr_NoMemory()",
        f'@message = internal constant [{len(message) + 1} x i8] c"{message}\\00"',
        f"define ptr @{name}(ptr %self, ptr %args, i64 %n) {{", "entry:",
        f"  %odd = urem i64 %n, {width}", "  %right = icmp eq i64 %odd, 0",
        "  br i1 %right, label %begin, label %wrong",
        "wrong:", "  %kind = load ptr, ptr @PyExc_TypeError",
        "  %raised = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %kind, ptr @message, i64 %n)", "  ret ptr null",
        "begin:", "  %bytes = mul i64 %n, 8", "  %words = call ptr @malloc(i64 %bytes)",
        "  %lacking = icmp eq ptr %words, null", "  br i1 %lacking, label %poor, label %next",
        "poor:", "  %refused = call ptr @PyErr_NoMemory()", "  ret ptr null",
        "next:", "  %k = phi i64 [ 0, %begin ], [ %k1, %put ]", "  %more = icmp ult i64 %k, %n",
        "  br i1 %more, label %take, label %taken",
        "take:", "  %from = getelementptr ptr, ptr %args, i64 %k", "  %object = load ptr, ptr %from",
        f"  %column = urem i64 %k, {width}", *tests, f"  br i1 {wants_float}, label %float, label %whole",
        "float:", "  %d = call double @PyFloat_AsDouble(ptr %object)", "  %bits = bitcast double %d to i64",
        "  br label %put",
        "whole:", "  %i = call i64 @PyLong_AsLongLong(ptr %object)", "  br label %put",
        "put:", "  %word = phi i64 [ %bits, %float ], [ %i, %whole ]",
        "  %to = getelementptr i64, ptr %words, i64 %k", "  store i64 %word, ptr %to", "  %k1 = add i64 %k, 1",
        "  br label %next",
        "taken:", "  %error = call ptr @PyErr_Occurred()", "  %none = icmp eq ptr %error, null",
        "  br i1 %none, label %go, label %fail", "fail:", "  call void @free(ptr %words)", "  ret ptr null",
        "go:", f"  %count = udiv i64 %n, {width}", "  %address = call i64 @PyLong_AsLongLong(ptr %self)",
        "  %kernel = inttoptr i64 %address to ptr", "  %state = call ptr @PyEval_SaveThread()",
        "  %status = call i32 %kernel(ptr %words, i64 %count)", "  call void @PyEval_RestoreThread(ptr %state)",
        "  call void @free(ptr %words)", "  %wide = sext i32 %status to i64",
        "  %result = call ptr @PyLong_FromLong(i64 %wide)", "  ret ptr %result", "}", "",
    ])  # fmt: skip


def _text(count: int, floats: tuple[int, ...]) -> str:
    name = caller(count, floats)
    message = f"a kernel takes {count} integers, not %zd"
    lines = [
        DECLARATIONS, f'@message = internal constant [{len(message) + 1} x i8] c"{message}\\00"',
        f"define ptr @{name}(ptr %self, ptr %args, i64 %n) {{", "entry:",
        f"  %right = icmp eq i64 %n, {count}", "  br i1 %right, label %convert, label %wrong",
        "wrong:", "  %kind = load ptr, ptr @PyExc_TypeError",
        "  %raised = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %kind, ptr @message, i64 %n)", "  ret ptr null",
        "convert:",
    ]  # fmt: skip
    suspicious = "false"
    for k in range(count):
        lines += [
            f"  %s{k} = getelementptr ptr, ptr %args, i64 {k}", f"  %o{k} = load ptr, ptr %s{k}",
            *(_FLOAT if k in floats else _INTEGER), f"  %b{{k}} = or i1 {suspicious}, %m{{k}}",
        ]  # fmt: skip
        lines[-5:] = [line.replace("{k}", str(k)) for line in lines[-5:]]
        suspicious = f"%b{k}"
    inside = [f"i64 %v{k}" for k in range(count)]
    lines += [
        f"  br i1 {suspicious}, label %look, label %go", "look:", "  %error = call ptr @PyErr_Occurred()",
        "  %none = icmp eq ptr %error, null", "  br i1 %none, label %go, label %fail", "fail:", "  ret ptr null", "go:",
        "  %address = call i64 @PyLong_AsLongLong(ptr %self)", "  %kernel = inttoptr i64 %address to ptr",
        "  %state = call ptr @PyEval_SaveThread()", f"  %status = call i32 %kernel({', '.join(inside)})",
        "  call void @PyEval_RestoreThread(ptr %state)",
        "  %wide = sext i32 %status to i64", "  %result = call ptr @PyLong_FromLong(i64 %wide)",
        "  ret ptr %result", "}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def function(name: str, through: int, kernel: int, engine: Any) -> Callable[..., Any]:
    """A builtin function called `name`: the caller at `through` on the kernel at `kernel`, in the engine's memory.

    It points at its definition for as long as it lives.
    """
    definition = _Definition(name.encode(), through, _METH_FASTCALL, None)
    address = Address(kernel)
    address.needs = definition, engine
    return _new_function(ctypes.addressof(definition), address, None)
