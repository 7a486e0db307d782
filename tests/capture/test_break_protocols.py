"""Methods that the interpreter calls on its own, with a graph break inside: one break each, where the reason lies."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import dovetail
from tests.capture.harness import compare
from tests.capture.test_growing import entries


def sign(x):
    """A graph break in the middle."""
    y = x.sin()
    dovetail.graph_break()
    return y.cos() + 1


COUNT = 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.scale = torch.tensor(0.5)

    @property
    def gain(self):
        return sign(self.scale)

    @gain.setter
    def gain(self, value):
        self.scale = sign(value)

    @property
    def absent(self):
        dovetail.graph_break()
        raise AttributeError("not here")

    @property
    def hidden(self):
        dovetail.graph_break()
        raise AttributeError("not here either")

    def __getattr__(self, name):
        return torch.ones(2) if name == "hidden" else super().__getattr__(name)

    @functools.cached_property
    def table(self):
        return sign(self.scale * 2)

    def forward(self, x):
        return self.layer(x) * self.gain


class Plain:
    def __init__(self, x):
        self.x, self.items = x, {}

    @functools.cached_property
    def table(self):
        return sign(self.x)

    @property
    def size(self):
        return self.x

    @size.setter
    def size(self, value):
        self.x = sign(value)
        return "dropped"

    def __setattr__(self, name, value):
        object.__setattr__(self, name, sign(value) if name == "late" else value)

    def __setitem__(self, key, value):
        self.items[key] = sign(value)
        return 5

    def __delitem__(self, key):
        del self.items[key]
        dovetail.graph_break()

    def __getitem__(self, key):
        return sign(self.x) if isinstance(key, slice) else key

    def __len__(self):
        sign(self.x)
        return len(self.x)

    def __contains__(self, item):
        sign(self.x)
        return item

    def __neg__(self):
        return sign(self.x)

    def __invert__(self):
        return Plain(sign(self.x))

    def __iadd__(self, other):
        if other is None:
            dovetail.graph_break()
            return NotImplemented
        self.x = sign(self.x + other)
        return self

    def __add__(self, other):
        return Plain(self.x + 10)

    def __eq__(self, other):
        sign(self.x)
        return NotImplemented if other is None or type(other) is Other else self.x + other

    def __lt__(self, other):
        return sign(self.x) + other

    def __iter__(self):
        dovetail.graph_break()
        return iter([self.x, self.x + 1])


class Walk:
    """Walked, it breaks the graph at each step."""

    def __init__(self, x, count=12):
        self.x, self.k, self.count = x, 0, count

    def __iter__(self):
        return self

    def __next__(self):
        self.k += 1
        if self.k > self.count:
            raise StopIteration(self.k)
        return sign(self.x + self.k)


class Computed:
    def __init__(self, x):
        self.x = x

    @property
    def p(self):
        return sign(self.x)

    @p.setter
    def p(self, value):
        self.x = sign(value)
        return "dropped"

    @property
    def add(self):
        y = sign(self.x)
        return lambda *values: sum(values) + y

    @property
    def absent(self):
        sign(self.x)
        raise AttributeError("not here")


class Fallback(Computed):
    def __getattr__(self, name):
        if name == "found":
            return sign(self.x)
        raise AttributeError(name)


class Other:
    def __eq__(self, other):
        return "the other's"


class Empty:
    def __init__(self, answer):
        self.answer = answer

    def __bool__(self):
        dovetail.graph_break()
        return self.answer


# fmt: off
def on_model(model, x): return model(x) + 1
def hidden(model, x): return model.hidden + x
def cached_on_model(model, x): return model.table + x, model.table * 2
def stored_on_model(model, x): model.gain = x; y = model.scale; return y + 1
def cached(x): p = Plain(x); return p.table + 1, p.table * 2, list(p.__dict__)
def stored(x): p = Plain(x); p.size = x * 2; return p.x + 1
def stored_late(x): p = Plain(x); p.late = x * 2; return p.late + 1
def item_stored(x): p = Plain(x); p["a"] = x * 2; return p.items["a"] + 1
def item_deleted(x): p = Plain(x); p.items["a"] = x; del p["a"]; return x + len(p.items)
def sliced(x): return Plain(x)[1:] + 1
def measured(x): return x * len(Plain(x))
def long_enough(x): return x + 1 if Plain(x) else x - 1
def contained(x): return x + (1 in Plain(x)) + ([] in Plain(x))
def not_contained(x): return x + ("" not in Plain(x))
def contained_or_not(x): return x + 1 if "" in Plain(x) else x - 1
def negated(x): return -Plain(x) + 1
def inverted(x): return (~Plain(x)).x + 1
def in_place(x): p = q = Plain(x); p += 2; return p.x + 1, p is q
def in_place_not_implemented(x): p = Plain(x); p += None; return p.x + 1
def equal(x): return (Plain(x) == 3) * 2
def equal_to_none(x): return Plain(x) == None, x + 1  # noqa: E711
def equal_to_other(x): return Plain(x) == Other(), x + 1
def less(x): return (Plain(x) < 3) * 2
def more(x): return (3 > Plain(x)) * 2
def walked(x): return [y + 1 for y in Plain(x)]
def true(x): return x + 1 if Empty(True) else x - 1
def false(x): return x + 1 if not Empty(False) else x - 1
def both(x): return x + 1 if Empty(True) and not Empty(False) else x - 1
def negation(x): return (not Empty(True)), x + 1


def while_true(x):
    n = 0
    while Empty(n < 3):
        n += 1
        x = x + n
    return x


def no_bool(x):
    try:
        return x if Empty(3) else x + 1
    except TypeError as error:
        return str(error), x + 2


def listed(x): return list(sign(x + k) for k in range(COUNT))
def as_tuple(x): return tuple(sign(x + k) for k in range(COUNT))
def as_set(x): return set(int(sign(x).sum() * 0) + k for k in range(COUNT)), x + 1
def summed(x): return sum(sign(x + k) for k in range(COUNT)) + 1
def summed_numbers(x): return sum(sign(x + k).sum().item() for k in range(COUNT)), x + 1
def some(x): return any(sign(x + k).sum() > 100 for k in range(COUNT)), x + 1
def every(x): return all(sign(x + k).sum() < 100 for k in range(COUNT)), x + 1
def as_frozenset(x): return frozenset(int(sign(x).sum() * 0) + k for k in range(COUNT)), x + 1
def as_dict(x): return dict((k, sign(x + k)) for k in range(COUNT)), x + 1
def ordered(x): return sorted((sign(x + k).sum().item(), k) for k in range(COUNT)), x + 1
def ordered_by(x): return sorted((sign(x + k) for k in range(COUNT)), key=len, reverse=True), x + 1
def joined(x): return "-".join(str(sign(x).shape[0] + k) for k in range(COUNT)), x + 1
def extended(x): a = [x]; a.extend(sign(x + k) for k in range(COUNT)); return a, x + 1
def updated(x): a = {0: x}; a.update((k, sign(x + k)) for k in range(COUNT)); return a, x + 1
def mapped(x): return list(map(sign, [x + k for k in range(COUNT)]))
def mapped_together(x): return torch.stack(tuple(map(lambda a, b: sign(a) * b, [x] * COUNT, range(COUNT)))).sum()


def loop(x): y = [x + v for v in Walk(x)]; return y[-1] + 1, len(y)
def loops(x): return [(a + 1, b) for a in Walk(x, 2) for b in Walk(a, 2)]
def first(x): return next(Walk(x)) + 1
def first_or(x): return next(Walk(x), None) + 1
def nothing_or(x): return next(Walk(sign(x), 0), x) + 1
def first_of_generator(x): return next((sign(x) for _ in range(2)), None) + 1
def all_of(x): return list(Walk(x)), sum(Walk(x, 3)), x + 1
def got(x): return Computed(x).p + 1
def got_or(x): return getattr(Computed(x), "p", None) + 1
def absent_or(x): return getattr(Computed(x), "absent", x) + 1
def is_there(x): return hasattr(Computed(x), "p"), hasattr(Computed(x), "absent"), x + 1
def got_fallback(x): return Fallback(x).found + Fallback(x).p + 1
def fallback_or(x): return getattr(Fallback(x), "absent", x) + getattr(Fallback(x), "found", None) + 1
def was_set(x): c = Computed(x); return setattr(c, "p", x * 2), c.x + 1
def called(x): return Computed(x).add(x, 2) + 1
def called_fallback(x): return x + Fallback(x).add(x, *[1, 2], 3)
def smallest(x): return min(sign(x + k).sum().item() for k in range(COUNT)), x + 1
def largest(x): return max(sign(x + k).sum().item() for k in range(COUNT)), x + 1
def largest_by(x): return max((sign(x + k) for k in range(COUNT)), key=lambda v: v.sum().item(), default=3), x + 1
def smallest_by(x): return min((sign(x * k) for k in range(COUNT)), key=lambda v: v.shape), x + 1
def largest_of_none(x): return max((k for k in range(len(sign(x)) - 2)), default=3), x + 1
def set_updated(x): a = {1}; a.update(int(sign(x).sum() * 0) + k for k in range(COUNT)); return a, x + 1


def loop_with_else(x):
    for v in Walk(x):
        if len(v) > 2:
            break
        x = x + v
    else:
        x = x * 2
    return x


def left_early(x):
    w = Walk(x)
    for v in w:
        if w.k > 3:
            break
    return v + 1, w.k, next(w) + 1


def raised(x):
    w = Walk(x, 1)
    try:
        return next(w), next(w)
    except StopIteration as error:
        return error.value, error.args, x + 1


def handled_in_loop(x):
    out = []
    try:
        for v in Walk(x, 3):
            out.append(v)
            if len(out) == 2:
                raise KeyError(2)
    except KeyError as error:
        return out, str(error), x + 1


def missing(model, x):
    try:
        return model.absent
    except AttributeError as error:
        return str(error), x + 1


# fmt: on
ON_A_MODEL = (on_model, hidden, cached_on_model, stored_on_model, missing)
PLAIN = (
    cached, stored, stored_late, item_stored, item_deleted, sliced, measured, long_enough, not_contained,
    contained_or_not, negated, inverted, in_place, in_place_not_implemented, equal, equal_to_none, equal_to_other,
    less, more, walked, true, false, negation, no_bool,
)  # fmt: skip
CONSUMERS = (
    listed, as_tuple, as_set, summed, summed_numbers, some, every, mapped, mapped_together, as_frozenset, as_dict,
    ordered, ordered_by, joined, extended, updated,
)  # fmt: skip
INSIDE = (
    loop, loop_with_else, loops, left_early, first, first_or, nothing_or, first_of_generator, all_of, got, got_or,
    absent_or, is_there, got_fallback, fallback_or, was_set, called, called_fallback, smallest, largest, largest_by,
    smallest_by, largest_of_none, set_updated, raised, handled_in_loop,
)  # fmt: skip
SEVERAL = {contained: 2, both: 2, while_true: 4}


def raising(x):
    def values():
        yield x
        dovetail.graph_break()
        raise ValueError("here")

    try:
        return list(values())
    except ValueError as error:
        return str(error), x + 1


def used_in_part(x):
    values = map(sign, [x, x + 1, x + 2])
    return next(values) + 1, sum(values), list(values)


def recovered(x, k):
    try:
        raise ValueError(k)
    except ValueError:
        y = sign(x + k)
        try:
            raise
        except ValueError as error:
            return y, str(error)


def while_handling(x):
    found = list(recovered(x, k) for k in range(3))
    try:
        raise KeyError(3)
    except KeyError:
        found += [value for value in (recovered(x, k) for k in range(3))]
        try:
            raise
        except KeyError as error:
            return found, str(error)


def parts_of(compiled):
    first = compiled._dovetail_dispatcher
    return [first, *first.compiler.rests.values()]


def breaks_of(compiled):
    parts = parts_of(compiled)
    assert not any(part.eager for part in parts)
    return [b for part in parts for entry in part.entries for b in entry.captured.breaks]


def checked(fn, make, count):
    compiled = dovetail.compile(fn, backend="eager")
    given = [make(k) for k in range(2)]  # entries of a module go with it
    for k, ours in enumerate(given):
        compare(compiled(*ours), fn(*make(k)))
    breaks = breaks_of(compiled)
    assert breaks and not any(b.refusals for b in breaks), [b.refusals for b in breaks]
    assert len(breaks) <= count and {b.code for b in breaks} == {"explicit-break"}


def with_model(k):
    torch.manual_seed(0)
    return Model(), torch.tensor([1.0, 2.0]) + k


@pytest.mark.parametrize("fn", ON_A_MODEL, ids=lambda fn: fn.__name__)
def test_on_a_module(fn):
    checked(fn, with_model, 2)  # once a module


@pytest.mark.parametrize("fn", PLAIN, ids=lambda fn: fn.__name__)
def test_on_an_object(fn):
    checked(fn, lambda k: (torch.tensor([1.0, 2.0]) + k,), 1)


@pytest.mark.parametrize("fn", SEVERAL, ids=lambda fn: fn.__name__)
def test_several_breaks(fn):
    checked(fn, lambda k: (torch.tensor([1.0, 2.0]) + k,), SEVERAL[fn])


def broken_inside(fn, most):
    """Two calls, equal to eager, with breaks in `sign` and at most so many entries a part: the nodes of its graphs."""
    compiled = dovetail.compile(fn, backend="eager")
    for k in range(2):
        compare(compiled(torch.tensor([1.0, 2.0]) + k), fn(torch.tensor([1.0, 2.0]) + k))
    assert "sign" in {b.stack[-1].function for b in breaks_of(compiled)}
    assert max(entries(compiled)) <= most
    graphs = [entry.captured.graph.graph for part in parts_of(compiled) for entry in part.entries]
    return {node.name for graph in graphs for node in graph.nodes}


@pytest.mark.parametrize("fn", CONSUMERS, ids=lambda fn: fn.__name__)
def test_what_uses_up_a_generator(fn):
    broken_inside(fn, 2)


@pytest.mark.parametrize("fn", INSIDE, ids=lambda fn: fn.__name__)
def test_the_graph_ends_inside(fn):
    assert {"sin"} <= broken_inside(fn, 4)


@pytest.mark.parametrize("fn", (raising, used_in_part, while_handling))
def test_a_generator_that_is_not_used_up_at_once(fn):
    compare(dovetail.compile(fn, backend="eager")(torch.ones(2)), fn(torch.ones(2)))


@pytest.mark.parametrize("fn", (*PLAIN, *SEVERAL, *CONSUMERS, *INSIDE), ids=lambda fn: fn.__name__)
def test_what_remains_runs_eagerly_as_well(fn):
    compiled = dovetail.compile(fn, backend="eager")
    compiled(torch.tensor([1.0, 2.0]))
    with dovetail.set_stance("eager_on_recompile"):
        x = torch.tensor([1.0, 2.0, 3.0])
        for part in list(compiled._dovetail_dispatcher.compiler.rests.values()):
            part.publish(())
        compare(compiled(x), fn(x))


class Reluctant:
    """Knows nothing of anybody, and says so after the graph has ended."""

    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        dovetail.graph_break()
        return NotImplemented

    def __ne__(self, other):
        dovetail.graph_break()
        return NotImplemented


class Willing(Reluctant):
    def __radd__(self, other):
        dovetail.graph_break()
        return other.x + self.x

    def __eq__(self, other):
        dovetail.graph_break()
        return other.x is self.x


def test_each_attempt_of_an_operator_can_end_the_graph():
    """The reflected method of a class that is no subclass, and `!=` as the opposite of another's `==`."""

    class Other:
        __radd__, __eq__ = Willing.__radd__, Willing.__eq__
        __init__ = Reluctant.__init__

    def added(x): return (Reluctant(x) + Other(x * 2)) * 2
    def unequal(x): return x + (Reluctant(x) != Other(x))
    def unlike(x): return x + (Reluctant(x) != Reluctant(x))

    checked(added, lambda k: (torch.tensor([1.0, 2.0]) + k,), 2)
    checked(unequal, lambda k: (torch.tensor([1.0, 2.0]) + k,), 2)
    checked(unlike, lambda k: (torch.tensor([1.0, 2.0]) + k,), 2)


def test_what_nobody_knows_is_an_error_with_pythons_words():
    def fn(x):
        try:
            return Reluctant(x) + 1
        except TypeError as error:
            return x, str(error)

    compiled = dovetail.compile(fn, backend="eager")
    assert compiled(torch.ones(1))[1] == fn(torch.ones(1))[1]


def test_protocols_are_nothing_that_an_entry_relies_on():
    def fn(x): return Plain(x) == 3, len(Plain(x)), -Plain(x)

    compiled = dovetail.compile(fn, backend="eager")
    compiled(torch.ones(2))
    guards = [g for part in parts_of(compiled) for entry in part.entries for g in entry.captured.guards]
    assert guards and not any("polyfills" in g.source.name() for g in guards if g.source is not None)


class Named:
    def __init__(self, x, *, factor=1, **others):
        self.x, self.others = sign(x) * factor, others


def test_arguments_by_keyword_are_those_of_the_constructor():
    def fn(x):
        made = Named(x, factor=3, more=x + 1)
        return made.x, made.others

    assert {"sin", "cos"} <= broken_inside(fn, 2)


def test_an_operator_in_place_goes_on_to_the_reflected_method():
    class Left(Reluctant):
        __iadd__ = Reluctant.__add__

    def fn(x):
        left = Left(x)
        left += Willing(x * 2)
        return left * 2

    checked(fn, lambda k: (torch.tensor([1.0, 2.0]) + k,), 3)


def test_a_guard_made_on_behalf_of_a_protocol_has_the_users_line():
    """What a number from outside is compared with is in the method, and who asks for its truth is not."""
    class Sized:
        def __init__(self, count): self.count = count
        def __len__(self): return self.count

    def fn(x, sized): return x + 1 if sized else x

    compiled = dovetail.compile(fn, backend="eager", fullgraph=True)
    compiled(torch.ones(2), Sized(3))
    guards = [g for part in parts_of(compiled) for entry in part.entries for g in entry.captured.guards]
    assert {g.user_line.rpartition(":")[0] for g in guards if g.user_line} == {__file__}
