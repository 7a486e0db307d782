"""Python stand-ins for native library functions, and for some with more to do in Python, traced like user code.

They are written for plainness: capture runs them once, the compiled program never.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import re
from collections import Counter
from typing import Any

import torch
import torch.fx.traceback
from torch.fx.graph_module import _WrappedCall

from dovetail.capture.tables.known_callables import standin

_MISSING = object()


@standin(functools.reduce)
def reduce(function: Any, iterable: Any, initial: Any = _MISSING) -> Any:
    iterator = iter(iterable)
    if initial is _MISSING:
        try:
            result = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        result = initial
    for item in iterator:
        result = function(result, item)
    return result


@standin(itertools.chain)
def chain(*iterables: Any) -> Any:
    for iterable in iterables:
        yield from iterable


@standin(itertools.chain.from_iterable)
def chain_from_iterable(iterables: Any) -> Any:
    for iterable in iterables:
        yield from iterable


def index_or(value: Any, default: Any, least: Any, words: Any) -> Any:
    if value is None:
        return default
    try:
        place = operator.index(value)
    except TypeError:
        place = least - 1
    if place < least:
        raise ValueError(words)
    return place


@standin(itertools.islice)
def islice(iterable: Any, *args: Any) -> Any:
    bounds, words = slice(*args), "Stop argument" if len(args) == 1 else "Indices"
    words += " for islice() must be None or an integer: 0 <= x <= sys.maxsize."
    start, stop = index_or(bounds.start, 0, 0, words), index_or(bounds.stop, None, 0, words)
    step = index_or(bounds.step, 1, 1, "Step for islice() must be a positive integer or None.")
    wanted, position = start, 0
    iterator = iter(iterable)
    while stop is None or wanted < stop:
        try:
            item = next(iterator)
        except StopIteration:
            return
        if position == wanted:
            yield item
            wanted += step
        position += 1


@standin(itertools.accumulate)
def accumulate(iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    iterator = iter(iterable)
    func = operator.add if func is None else func
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for item in iterator:
        total = func(total, item)
        yield total


@standin(itertools.repeat)
def repeat(object: Any, times: Any = _MISSING) -> Any:
    if times is _MISSING:
        while True:
            yield object
    for _ in range(times):
        yield object


@standin(itertools.count)
def count(start: Any = 0, step: Any = 1) -> Any:
    while True:
        yield start
        start += step


@standin(itertools.cycle)
def cycle(iterable: Any) -> Any:
    saved = []
    for item in iterable:
        yield item
        saved.append(item)
    while saved:
        for item in saved:
            yield item


@standin(itertools.product)
def product(*iterables: Any, repeat: Any = 1) -> Any:
    pools = [tuple(pool) for pool in iterables] * repeat
    rows: list[list[object]] = [[]]
    for pool in pools:
        rows = [[*row, item] for row in rows for item in pool]
    for row in rows:
        yield tuple(row)


@standin(itertools.permutations)
def permutations(iterable: Any, r: Any = None) -> Any:
    pool = tuple(iterable)
    r = len(pool) if r is None else r
    for indices in product(range(len(pool)), repeat=r):
        if len(set(indices)) == r:
            yield tuple(pool[i] for i in indices)


@standin(itertools.combinations)
def combinations(iterable: Any, r: Any) -> Any:
    pool = tuple(iterable)
    for indices in product(range(len(pool)), repeat=r):
        if all(a < b for a, b in zip(indices, indices[1:])):
            yield tuple(pool[i] for i in indices)


@standin(itertools.starmap)
def starmap(function: Any, iterable: Any) -> Any:
    for args in iterable:
        yield function(*args)


@standin(itertools.takewhile)
def takewhile(predicate: Any, iterable: Any) -> Any:
    for item in iterable:
        if not predicate(item):
            return
        yield item


@standin(itertools.dropwhile)
def dropwhile(predicate: Any, iterable: Any) -> Any:
    iterator = iter(iterable)
    for item in iterator:
        if not predicate(item):
            yield item
            break
    yield from iterator


@standin(itertools.filterfalse)
def filterfalse(predicate: Any, iterable: Any) -> Any:
    for item in iterable:
        if not (item if predicate is None else predicate(item)):
            yield item


@standin(itertools.zip_longest)
def zip_longest(*iterables: Any, fillvalue: Any = None) -> Any:
    iterators = [iter(it) for it in iterables]
    active = len(iterators)
    while active:
        row = []
        for k, iterator in enumerate(iterators):
            item = next(iterator, _MISSING) if iterator is not None else _MISSING
            if item is _MISSING:
                if iterator is not None:
                    active -= 1
                    iterators[k] = None
                item = fillvalue
            row.append(item)
        if active:
            yield tuple(row)


@standin(itertools.pairwise)
def pairwise(iterable: Any) -> Any:
    iterator = iter(iterable)
    previous = next(iterator, _MISSING)
    if previous is _MISSING:
        return
    for item in iterator:
        yield previous, item
        previous = item


@standin(itertools.combinations_with_replacement)
def combinations_with_replacement(iterable: Any, r: Any) -> Any:
    pool = tuple(iterable)
    for indices in product(range(len(pool)), repeat=r):
        if all(a <= b for a, b in zip(indices, indices[1:])):
            yield tuple(pool[i] for i in indices)


def batched(iterable: Any, n: Any) -> Any:
    if n < 1:
        raise ValueError("n must be at least one")
    iterator = iter(iterable)
    while batch := tuple(islice(iterator, n)):
        yield batch


if hasattr(itertools, "batched"):
    standin(itertools.batched)(batched)


@standin(itertools.compress)
def compress(data: Any, selectors: Any) -> Any:
    for item, chosen in zip(data, selectors):
        if chosen:
            yield item


@standin(itertools.groupby)
def groupby(iterable: Any, key: Any = None) -> Any:
    iterator, ended = iter(iterable), False
    item = next(iterator, _MISSING)
    if item is _MISSING:
        return
    current = item if key is None else key(item)

    def members(wanted):
        nonlocal item, current, ended
        yield item
        for item in iterator:
            current = item if key is None else key(item)
            if current != wanted:
                return
            yield item
        ended = True

    while not ended:
        wanted = current
        group = members(wanted)
        yield wanted, group
        if current == wanted:
            for _ in group:
                pass


# ---------------------------------------------------------------- operator


@standin(operator.contains)
def contains(a: Any, b: Any) -> Any:
    return b in a


@standin(operator.countOf)
def count_of(a: Any, b: Any) -> Any:
    return sum(1 for item in a if item is b or item == b)


@standin(operator.indexOf)
def index_of(a: Any, b: Any) -> Any:
    for k, item in enumerate(a):
        if item is b or item == b:
            return k
    raise ValueError("sequence.index(x): x not in sequence")


@standin(operator.length_hint)
def length_hint(obj: Any, default: Any = 0) -> Any:
    return len(obj) if hasattr(obj, "__len__") else default


@standin(re.Pattern.sub)
def pattern_sub(self: Any, repl: Any, string: Any, count: Any = 0) -> Any:
    return self.subn(repl, string, count)[0]


@standin(re.Pattern.subn)
def pattern_subn(self: Any, repl: Any, string: Any, count: Any = 0) -> Any:
    out, at, done = [], 0, 0
    for match in self.finditer(string):
        if count and done == count:
            break
        out.append(string[at : match.start()])
        out.append(repl(match) if callable(repl) else match.expand(repl))
        at, done = match.end(), done + 1
    out.append(string[at:])
    return string[:0].join(out), done


@standin(re.sub)
def re_sub(pattern: Any, repl: Any, string: Any, count: Any = 0, flags: Any = 0) -> Any:
    return re.compile(pattern, flags).sub(repl, string, count)


@standin(re.subn)
def re_subn(pattern: Any, repl: Any, string: Any, count: Any = 0, flags: Any = 0) -> Any:
    return re.compile(pattern, flags).subn(repl, string, count)


@standin(re.finditer)
def re_finditer(pattern: Any, string: Any, flags: Any = 0) -> Any:
    return re.compile(pattern, flags).finditer(string)


@standin(operator.concat)
def concat(a: Any, b: Any) -> Any:
    return a + b


@standin(operator.itemgetter.__call__)
def itemgetter_call(self: Any, obj: Any) -> Any:
    items = self.__reduce__()[1]
    return obj[items[0]] if len(items) == 1 else tuple(obj[i] for i in items)


@standin(operator.attrgetter.__call__)
def attrgetter_call(self: Any, obj: Any) -> Any:
    found = []
    for path in self.__reduce__()[1]:
        value = obj
        for name in path.split("."):
            value = getattr(value, name)
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


# ---------------------------------------------------------------- torch.fx


@standin(_WrappedCall.__call__)
def call_graph_module(self: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """Without the text that it prints of an error in generated code: where there is one, plain Python runs."""
    if self.cls_call is not None:
        return self.cls_call(module, *args, **kwargs)
    return super(self.cls, module).__call__(*args, **kwargs)


# ---------------------------------------------------------------- torch


@standin(torch.ops.higher_order.associative_scan)
def associative_scan(combine_fn: Any, xs: Any, additional_inputs: Any) -> Any:
    """For each row, all rows up to it combined: neighbours first, what these give at every second row, then the rest.

    PyTorch's derivative of this operator has an element for each pair of rows, which no memory holds.
    """
    count = xs[0].shape[0]
    if count < 2:
        return list(xs)
    pairs = combine_fn(*[x[:-1:2] for x in xs], *[x[1::2] for x in xs], *additional_inputs)
    odd = associative_scan(combine_fn, pairs, additional_inputs)
    even = [x[:1] for x in xs]
    if count > 2:
        more = combine_fn(*[x[: (count - 1) // 2] for x in odd], *[x[2::2] for x in xs], *additional_inputs)
        even = [torch.cat([x, y]) for x, y in zip(even, more)]
    found = [torch.stack([x[: count // 2], y], 1).flatten(0, 1) for x, y in zip(even, odd)]
    return [torch.cat([z, x[-1:]]) for x, z in zip(even, found)] if count % 2 else found


@standin(torch.fx.traceback.annotate)
def annotate(annotation_dict: Any) -> Any:
    """For graphs that PyTorch's tracers make in the block: none is made when a compiled program runs."""
    return contextlib.nullcontext()


# ---------------------------------------------------------------- functools and collections


@standin(functools.partial.__call__)
def partial_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.func(*self.args, *args, **{**self.keywords, **kwargs})


def count_elements(mapping: Any, iterable: Any) -> Any:
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


standin(Counter.__init__.__globals__["_count_elements"])(count_elements)


@standin("torch._dynamo.compiled_autograd.ops.AccumulateGrad")
def accumulate_gradient(gradients: Any, variable: Any, before: Any, has_post_hooks: Any) -> list:
    """What PyTorch's engine does at a leaf, as its compiled autograd records it: the leaf's new gradient, which has
    memory of its own. PyTorch's own function asks whether the leaf requires a gradient, which no graph knows."""
    (gradient,) = gradients
    if gradient is None:
        return [before]
    if before is None:
        return [torch.empty_like(variable).copy_(gradient)]
    if torch.is_grad_enabled():
        return [before + gradient]
    return [before.add_(gradient)]
