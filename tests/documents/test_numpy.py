"""The answer to "Does NumPy work with torch.compile?", feature by feature: NumPy's own results, whatever is traced."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dovetail

from .checking import Graphs


class Sub(np.ndarray):
    pass


class Overrides:
    def __array_function__(self, func, types, args, kwargs):
        return func.__name__

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return "wrapped", array

    @property
    def __array_interface__(self):
        return FLOATS.__array_interface__


FLOATS = np.arange(12.0).reshape(3, 4)
COMPLEX = FLOATS - 1j * FLOATS[::-1]
DIVIDED = (np.empty_like(FLOATS), np.empty_like(FLOATS))


def in_place(a):
    b = a.copy()
    b += 1
    b[0] = 0
    np.add.at(b, [0, 0], 1)
    return b


def doubled(a):
    while a.sum() < 1000:
        a = a * 2
    return a


#: What the document names, beside what it says of it; all of it gives what NumPy gives here.
FEATURES = {
    "scalars, which are arrays there": lambda a: np.float32(3) * 2,
    "scalars as Python's numbers": lambda a: float(np.float32(3)) + a,
    "np.flip": lambda a: np.flip(a, 0),
    "slices with negative steps": lambda a: a[::-1] * 2,
    "type promotion by NEP 50": lambda a: (np.float32(3) + 3.0, a.astype(np.float32) + np.float64(1)),
    "indices of triangles, arrays there": lambda a: (np.tril_indices(3), np.triu_indices_from(a[:, :3])),
    "datetimes": lambda a: np.array(["2020-01-01"], dtype="datetime64[D]") + np.timedelta64(1, "D"),
    "strings": lambda a: np.char.upper(np.array(["a", "b"])),
    "void": lambda a: np.zeros(2, dtype="V8"),
    "structured dtypes": lambda a: np.zeros(2, dtype=[("x", "f4"), ("y", "i4")])["x"] + a[0, 0],
    "recarrays": lambda a: np.rec.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")]).y,
    "np.longdouble": lambda a: a.astype(np.longdouble).sum(),
    "np.clongdouble": lambda a: a.astype(np.clongdouble).sum(),
    "np.uint16": lambda a: a.astype(np.uint16) + np.uint16(3),
    "np.uint32": lambda a: a.astype(np.uint32) * 2,
    "np.uint64": lambda a: a.astype(np.uint64).sum(),
    "subclasses": lambda a: a.view(Sub) + 1,
    "masked arrays": lambda a: np.ma.array(a, mask=a > 3).sum(),
    "axes of ufuncs": lambda a: np.matmul(a, a.T, axes=[(0, 1), (0, 1), (0, 1)]),
    "np.add.reduce": lambda a: np.add.reduce(a, 1),
    "np.add.accumulate": lambda a: np.add.accumulate(a),
    "sorting complex numbers": lambda a: (np.sort(COMPLEX.ravel()), np.argsort(COMPLEX)),
    "np.poly1d": lambda a: np.poly1d([1, 2])(a),
    "np.polynomial": lambda a: np.polynomial.Polynomial([1, 2])(a),
    "out1, out2 by position": lambda a: np.divmod(a, 2.5, *DIVIDED),
    "out=tuple": lambda a: np.divmod(a, 2.5, out=DIVIDED),
    "__array_function__": lambda a: np.concatenate([Overrides()]),
    "__array_interface__": lambda a: np.asarray(Overrides()) + a,
    "__array_wrap__": lambda a: np.sin(Overrides())[0],
    "ndarray.ctypes": lambda a: (a.ctypes.shape[:], list(a.ctypes.strides), a.ctypes.shape._length_ + a.sum()),
    "in-place modifications": in_place,
    "out=": lambda a: np.add(a, 1, out=np.empty_like(a)),
    "masks": lambda a: a[a > 3] * 2,
    "an if": lambda a: a + 1 if a.sum() > 3 else a - 1,
    "a while": doubled,
    "there and back": lambda a: torch.from_numpy(a).sin().numpy() + 1,
    "torch._numpy by name": lambda a: torch._numpy.sum(torch._numpy.asarray(a) * 2).tensor.item(),
}


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_gives_what_numpy_gives(name: str) -> None:
    function = FEATURES[name]
    compiled = dovetail.compile(function, backend="eager")
    for _ in range(2):
        same(compiled(FLOATS), function(FLOATS))


def same(found, expected) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, (tuple, list)):
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        assert np.array_equal(found, expected)
    else:
        assert found == expected


def test_products_and_sum_are_one_kernel(capsys) -> None:
    def numpy_fn(X, Y):
        return np.sum(X[:, :, None] * Y[:, None, :], axis=(-2, -1))

    X, Y = np.random.randn(64, 8), np.random.randn(64, 8)
    dovetail.set_logs(output_code=True)
    try:
        np.testing.assert_allclose(dovetail.compile(numpy_fn, fullgraph=True)(X, Y), numpy_fn(X, Y))
    finally:
        dovetail.set_logs()
    calls = [line for line in capsys.readouterr().err.splitlines() if line.startswith("    k_")]
    assert len(calls) == 1 and calls[0].strip().startswith("k_mul_sum_")


@pytest.mark.parametrize("name", ["np.flip", "there and back", "sorting floats", "out="])
def test_what_is_traced_is_one_graph(name: str) -> None:
    function = {**FEATURES, "sorting floats": lambda a: np.sort(-a)}[name]
    graphs = Graphs()
    same(dovetail.compile(function, backend=graphs, fullgraph=True)(FLOATS), function(FLOATS))
    assert len(graphs.operators) == 1
