"""NumPy's scalars and functions of numbers: computed while capturing, as `math`'s are.

Functions that `functions.py` knows come here when no array takes part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.capture.calling.calls import fold
from dovetail.capture.numbers import numpy_numbers
from dovetail.capture.tables.known_callables import FOLDED_METHOD_TYPES, KNOWN
from dovetail.capture.values.base import Args, Kwargs, Session, Value

NUMBERS = (bool, int, float, complex, np.generic)


def of_numbers(function: Any) -> Any:
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        made = numpy_numbers.computed(s, function, args, kwargs)
        if made is not None:
            return made
        result = fold(s, function, args, kwargs)
        if not isinstance(getattr(result, "value", None), NUMBERS):
            s.unsupported("numpy-array", f"numpy.{function.__name__} gives an array, which native code computes")
        return result

    return handler


NUMBER_FUNCTIONS = (
    np.prod, np.sum, np.mean, np.median, np.max, np.min, np.std, np.var, np.round, np.clip, np.dot, np.ndim, np.size,
    np.isscalar, np.iscomplexobj, np.isrealobj, np.interp, np.argmax, np.argmin, np.any, np.all, np.array_equal,
)  # fmt: skip
SCALARS = [cls for cls in set(np.sctypeDict.values()) if isinstance(cls, type)]

for _function in [*(f for f in vars(np).values() if isinstance(f, np.ufunc)), *NUMBER_FUNCTIONS, *SCALARS]:
    KNOWN[_function] = of_numbers(_function)
FOLDED_METHOD_TYPES |= {np.generic, *SCALARS}
