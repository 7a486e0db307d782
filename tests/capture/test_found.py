"""What random programs (`tests/fuzz/python`) found, made small: the same result, error, changes and modes as eager."""

from __future__ import annotations

import contextlib
import copy
import datetime
import itertools
import json
import math
import warnings
from collections import OrderedDict, deque

import numpy as np
import pytest
import torch

import dovetail
import dovetail.runtime.dispatch.dispatcher as runtime_entry
from tests.fuzz.python.observe import Walk, difference

CASES = {}
LOG = []


def found(function):
    CASES[function.__name__] = function
    return function


class Plain:
    def __init__(self, n):
        self.n = n


@dovetail.disable
def plain_python(value):
    return value


# fmt: off
@found
def native_method_bound_without_its_class(x):
    try: return x + json.loads("1")
    finally: x.add_(1)
@found
def cell_stored_but_never_read(x):
    def read(): return x
    x *= torch.zeros(()).item()
    assert not 1, "always"
@found
def iterator_over_a_deque_in_a_break(x):
    out = []
    for v in deque([1, 2, 3]): out.append(plain_python(v))
    return out
@found
def an_index_that_is_no_integer(x):
    out = [1]
    try: out.insert(0.5, x)
    except TypeError as error: out.append(str(error))
    return out
@found
def grad_mode_set_before_an_error(x):
    torch.set_grad_enabled(False)
    plain_python(x)
    raise ValueError(torch.is_grad_enabled())
@found
def too_many_positional_patterns(x):
    match Plain(1):
        case Plain(n, 2): return x
@found
def value_of_stop_iteration(x):
    def numbers():
        yield 1
        return x + 1
    generator = numbers()
    next(generator)
    try: next(generator)
    except StopIteration as stop: return stop.value
@found
def output_of_another_shape(x):
    out = torch.ones(2)
    torch.add(x, 1, out=out)
    return out
@found
def deep_copy_of_a_leaf(x):
    return copy.deepcopy([x.requires_grad_()])[0].is_leaf
@found
def copies_of_native_objects(x):
    text, numbers = bytearray(b"ab"), np.arange(4.0).reshape(2, 2).T
    others = copy.copy(text), copy.deepcopy(text), copy.copy(numbers), copy.deepcopy([numbers, numbers])
    text.append(7)
    numbers[0] = 9
    return x + 1, text, others, others[3][0] is others[3][1]
@found
def copies_of_what_never_changes(x):
    when = datetime.timedelta(1)
    return x + 1, [copy.copy(v) is v for v in (len, dict, None, 1.5, "a")], copy.deepcopy([when, len])
@found
def order_of_sets(x):
    a, b = {30, 1, 17, 9}, set(range(0, 100, 8))
    a |= {40, 8, 16}
    return list(a), [v for v in a & b], tuple(b - a), str(a ^ b), list(frozenset([33, int(x.sum()), 4]))
@found
def dictionary_that_grows_on_the_way(x):
    table = {"a": x}
    for key in table: table[key + "b"] = x
@found
def set_that_grows_on_the_way(x):
    names = {1}
    try:
        for n in names: names.add(n + 1)
    except RuntimeError as error: return str(error), len(names)
@found
def deque_that_grows_on_the_way(x):
    queue = deque([1, 2])
    for n in queue: queue.append(n)
@found
def view_that_grows_before_a_break(x):
    table = {"a": 1, "b": 2}
    for key, n in table.items():
        table[key + "x"] = n
        plain_python(x)
@found
def deque_that_changes_but_not_its_length(x):
    queue = deque([1, 2], 2)
    for n in queue: queue.append(plain_python(n))
@found
def deque_that_grows_at_its_last_item(x):
    queue = deque([1])
    for n in queue: queue.append(n)
@found
def deque_whose_items_are_replaced_on_the_way(x):
    queue, out = deque([1, 2]), []
    for n in queue:
        out.append(plain_python(n))
        queue[0] = 7
        queue.reverse()
    return out
@found
def insert_into_a_full_deque(x):
    deque([1, 2], 2).insert(0, 3)
@found
def in_place_on_a_tensor_with_a_history(x):
    w = x.clone().requires_grad_() * 2
    plain_python(w)
    try: w.add_(1)
    except RuntimeError as error: return str(error)
    return w
@found
def dictionary_of_an_object_over_a_break(x):
    made = Plain(1)
    made.__dict__.update(n=int(x.sum()))
    return made.n
@found
def dictionary_of_an_object_changed_past_it(x):
    made = Plain(1)
    table = vars(made)
    plain_python(x)
    table.setdefault("m", x)
    del table["n"]
    return made, table is vars(made), table == {"m": 1}, table.popitem()
@found
def tee_over_a_break(x):
    first, second = itertools.tee(itertools.count())
    out = next(first), next(first)
    plain_python(second)
    again, third = itertools.tee(first)
    return out, next(second), next(first), next(third), next(again), type(first), again is first
@found
def warning_before_a_refused_change_in_place(x):
    plain = Plain(next(iter(x.detach().reshape(2, 2))))
    grows = torch.ones(2, requires_grad=True)
    plain_python(x)
    warnings.warn("before", stacklevel=1)
    plain.n += grows
@found
def shared_variable_read_before_it_is_set(x):
    def read(): return shared
    plain_python(x)
    shared += 1  # noqa: F821
    return read
@found
def views_over_a_break(x):
    table = {"a": 1}
    keys, items = table.keys(), table.items()
    plain_python(x)
    table["b"] = 2
    return len(keys), "b" in keys, ("a", 1) in items, [*items], keys | {"c"}
@found
def grad_mode_that_is_no_bool(x):
    torch.set_grad_enabled(3)
@found
def indices_that_are_no_integers(x):
    kept = Plain(0)
    try: kept.n = 1; x[torch.ones(2)] = 2.0
    except IndexError as error: return str(error), kept.n
@found
def masks_of_another_size(x):
    try: x[torch.ones(3) > 0] = 2.0
    except IndexError as error: return str(error)
@found
def writes_to_an_expanded_tensor(x):
    kept, out = Plain(0), []
    for change in (lambda t: t.neg_(), lambda t: t.copy_(x), lambda t: t.zero_(), lambda t: t.mul_(2)):
        try: kept.n += 1; change(x.expand(2, 2))
        except RuntimeError as error: out.append(str(error))
    return out, kept.n
@found
def products_of_wrong_shapes(x):
    try: x.reshape(1, 2) @ x.reshape(1, 2)
    except RuntimeError as error: return str(error)
@found
def items_of_an_intersection(x):
    return {1.0, 2.0, 0.5} & {1, 2}, {1, 2} & {1.0, 2.0}, {1, 2, 3} & {1.0}, {1.0}.intersection([1, 2])
@found
def texts_of_wrong_operands(x):
    out = []
    for wrong in (lambda: -[], lambda: ~"a", lambda: +{}):
        try: wrong()
        except TypeError as error: out.append(str(error))
    try: _a, _b = 3
    except TypeError as error: out.append(str(error))
    return out
@found
def walk_of_a_list_that_grew_since_it_came(x):
    values = [int(x.sum())]
    values.append(plain_python(1))
    values.append(2)
    return [plain_python(v) for v in values]
@found
def walk_of_a_list_inside_a_generator(x):
    values = [int(x.sum())]
    made = (plain_python(v) for v in values)
    values.append(next(made))
    plain_python(next(made))
    return [*made], values
@found
def walks_of_tables_that_changed_since_they_came(x):
    table, names, queue = {"a": int(x.sum())}, {int(x[1])}, deque([plain_python(3)])
    table["b"], walks = 2, []
    names.add(2)
    queue.append(4)
    walks += [iter(table.items()), iter(names), iter(queue)]
    out = [next(walk) for walk in walks]
    plain_python(x)
    return out, [[*walk] for walk in walks]
@found
def equal_items_of_a_union(x):
    return set().union([*x.tolist(), *range(2)]), {True}.union([1.0, 2, 2.0]), {2} | {2.0}, {1.0} ^ {1, 2.0, 3}
@found
def order_of_a_set_over_a_break(x):
    made = {1.5, int(x.sum())} ^ {0, 1}.copy()
    plain_python(x)
    return str(made)
@found
def order_of_a_set_from_outside(x):
    names = set(range(int(x.sum()), 40, 9))
    names.add(plain_python(100))
    names.discard(15)
    return str(names)
@found
def keywords_that_are_no_texts(x):
    def root(**kwargs): return kwargs
    out, more = [], {"a": 1}
    for wrong in (
        lambda: root(**{1: 2}), lambda: dict(**{1: 2}), lambda: root(**3), lambda: {**3}, lambda: root(*3),
        lambda: root(**more, **more),
    ):
        try: wrong()
        except TypeError as error: out.append(str(error))
    return out
@found
def names_of_attributes_that_are_no_texts(x):
    out, plain = [], Plain(1)
    for wrong in (
        lambda: getattr(plain, 1), lambda: hasattr(plain, None), lambda: setattr(plain, x, 1),
        lambda: delattr(plain, 1.5), lambda: getattr(plain, (), None),
    ):
        try: wrong()
        except TypeError as error: out.append(str(error))
    return out
@found
def types_of_iterators(x):
    values, table, queue, names = [1, 2], {"a": 1, "b": 2}, deque([1, 2]), {3, 5}
    made = [
        iter(values), iter((1, 2)), iter("ab"), iter(range(2)), iter(b"ab"), iter(table), iter(table.values()),
        iter(names), iter(queue), iter(x), reversed(values), reversed((1, 2)), reversed(range(2)), reversed("ab"),
        reversed(table), reversed(table.items()), reversed(queue), iter([]), iter(set()), iter(frozenset([1])),
        enumerate(values), zip(values), map(str, values), filter(None, values),
    ]  # fmt: skip
    out = [str(type(m)) for m in made], [next(m, None) for m in made]
    plain_python(x)
    return out, [str(type(m)) for m in made], [[*m] for m in made], [str(type(m)) for m in made]
@found
def types_of_iterators_that_have_ended(x):
    made = [iter([]), iter(()), iter(""), iter({}), iter(set()), reversed([]), reversed(()), iter(deque())]
    out = [next(m, None) for m in made]
    return made, out, plain_python(x), made
@found
def types_of_iterators_of_itertools(x):
    made = itertools.chain([1], "b"), itertools.islice([1, 2, 3], 1, None), itertools.count(2), itertools.cycle("ab")
    made += itertools.chain.from_iterable([[1]]), itertools.zip_longest("a", "bc"), itertools.repeat(1, 2)
    out = [type(m).__name__ for m in made], [next(m) for m in made], [m.__next__() for m in made[:1]]
    return out, [hasattr(m, "send") for m in made], [isinstance(m, itertools.chain) for m in made]
@found
def walks_backwards_see_changes(x):
    values, queue, table = [1, 2, 3], deque([1, 2]), {"a": 1}
    made = reversed(values), reversed(queue), reversed(table)
    values.pop()
    values[0] = 7
    out = [*made[0]]
    queue.append(3)
    table["b"] = 2
    for walk in made[1:]:
        try: next(walk)
        except RuntimeError as error: out.append(str(error))
    try: reversed({1})
    except TypeError as error: out.append(str(error))
    return out
@found
def class_made_while_a_context_manager_waits(x):
    @contextlib.contextmanager
    def noted(plain):
        yield plain
        plain.n += 1
    with noted(Plain(1)) as plain:
        class Other(Plain):
            def __init__(self, n): super().__init__(n + 1)
        return Other(1), plain_python(plain)
@found
def effects_before_an_error_of_the_graph(x):
    kept = Plain(0)
    kept.n = x.clone().add_(1)
    LOG.append("before")
    print(kept.n[x.long() + 3])
    LOG.append("after")
@found
def error_of_the_graph_that_the_code_handles(x):
    weight = torch.ones(2, 3)
    with torch.no_grad():
        try: return torch.nn.functional.embedding(x.long() + 5, weight)
        except IndexError as error: return str(error), error.__context__, torch.is_grad_enabled()
@found
def error_of_the_graph_after_a_break(x):
    kept = [x]
    plain_python(x)
    with torch.no_grad():
        kept.append(1)
        LOG.append(len(kept))
        return kept[0][x.long() + 3], kept
@found
def super_before_the_class_is_there(x):
    class Odd(Plain):
        def kind(self): return super()
        kept = kind
        try: kind(1)
        except RuntimeError as error: text = str(error)
    return Odd.text
@found
def deep_copy_of_what_now_has_a_history(x):
    twice = x + x
    plain_python(x)
    return copy.deepcopy(twice)
@found
def a_format_that_no_tensor_has(x):
    LOG.append(1)
    return f"{x:.2f}"
@found
def a_format_that_its_number_has_not(x):
    LOG.append(1)
    return f"{x.sum():d}"
@found
def a_format_that_another_number_has_not(x):
    LOG.append(1)
    return f"{x.sum().item():d}"
@found
def nothing_to_pop_from_an_ordered_dictionary(x): OrderedDict().popitem(last=x is not None)
@found
def variable_of_a_comprehension_by_the_name_of_a_free_one(x):
    n = 7
    return (lambda: ([n + x.sum().item() for n in range(3)], n))()
@found
def comprehension_in_a_class_that_reads_a_free_variable(x):
    n, items = 1, [1, 2, 3]
    class Local: size = len([v for v in items if v > n])
    return x + Local.size
# fmt: on


def seen(function):
    """What a call shows, and the warnings."""
    torch.set_warn_always(True)
    walk, x = Walk(), torch.arange(4.0)
    before = torch.is_grad_enabled()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            walk.root("result", function(x))
        except Exception as error:
            walk.root("error", error)
    walk.root("x", x)
    walk.root("log", LOG[:])
    LOG.clear()
    walk.root("grad", torch.is_grad_enabled())
    torch.set_grad_enabled(before)
    walk.root("warnings", [str(w.message) for w in caught if not str(w.message).startswith("dovetail")])
    return walk


@pytest.mark.parametrize("name", sorted(CASES))
def test_found(name):
    compiled = dovetail.compile(CASES[name], backend="eager")
    for _ in range(2):
        theirs = seen(CASES[name])
        assert difference(seen(compiled), theirs) is None


def test_calls_nest_as_deeply_as_in_eager_mode():
    def deep(n):
        return repr(n) if n < 1 else deep(n - 1)

    compiled = dovetail.compile(lambda x, n: (x, deep(n)), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2), 700)[1] == deep(700)
    with pytest.raises(dovetail.errors.Unsupported, match=r"\[recursion\]"):
        compiled(torch.ones(2), 5000)


def test_native_code_has_the_stack_that_the_program_leaves_it():
    text = "[" * 200 + "]" * 200

    def deep(n):
        return json.loads(text) if n < 1 else deep(n - 1)

    for n in range(54, 120, 6):
        assert str(dovetail.compile(lambda x, n: (x, deep(n))[1], backend="eager")(torch.ones(2), n)) == text


def test_keys_exchanged_on_the_way():
    table = {"a": 1, "b": 2, "c": 3}

    def root(x, table):
        for name in table:
            for other in sorted(table, reverse=True):
                table[other] = table.pop(other)
        return x + 1

    compiled, ours = dovetail.compile(root, backend="eager"), dict(table)
    for _ in range(3):
        texts = []
        for function, given in ((compiled, ours), (root, table)):
            try:
                texts.append(str(function(torch.ones(2), given)))
            except RuntimeError as error:
                texts.append(str(error))
        assert texts[0] == texts[1]
        assert list(ours) == list(table)


def test_a_mode_that_changes_between_compiling_and_running(monkeypatch):
    modes = [False]

    @contextlib.contextmanager
    def collected():
        yield
        torch.set_grad_enabled(modes.pop() if modes else torch.is_grad_enabled())

    monkeypatch.setattr(runtime_entry, "paused_collection", collected)
    compiled = dovetail.compile(lambda x: x * 2, backend="eager")
    try:
        assert not compiled(torch.ones(2, requires_grad=True)).requires_grad
    finally:
        torch.set_grad_enabled(True)


def test_a_users_function_in_a_graph_that_raises_is_not_called_again():
    calls = []

    @dovetail.allow_in_graph
    def fails(x):
        if type(x) is torch.Tensor:
            calls.append(1)
            raise ValueError("no")
        return x + 1

    with pytest.raises(ValueError, match="no"):
        dovetail.compile(lambda x: fails(x) * 2, backend="eager")(torch.ones(2))
    assert calls == [1]


@pytest.mark.parametrize("write", [lambda x: x[:1].add_(1), lambda x: x.detach().add_(1), lambda x: x.data.add_(1)])
def test_a_graph_that_has_written_through_a_view_and_raises_is_not_run_again(write):
    def root(x):
        write(x)
        return x.gather(0, torch.tensor([7]))

    x = torch.zeros(1)
    with pytest.raises(RuntimeError, match="out of bounds"):
        dovetail.compile(root, backend="eager")(x)
    assert x.item() == 1


USES = {"read": lambda v: v[0], "in vain": lambda v: (v[0], None)[1], "given": lambda v: v}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("backend", ["eager", "dovetail"])
def test_a_view_made_without_gradients_of_what_has_changed_under_another_name_is_refused(use, backend):
    def root(x, view):
        with torch.no_grad():
            same, part = x.detach(), view.select(0, 0)
        same.sin_()
        return use(part)

    leaf = torch.ones(2, 2, requires_grad=True)
    for fn in (root, dovetail.compile(root, backend=backend)):
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            (fn(leaf, leaf.view(2, 2)) * 1)  # eager's view may be given, and is refused when it is used


def test_why_an_entry_does_not_fit_is_found_without_a_warning():
    compiled = dovetail.compile(CASES["deep_copy_of_what_now_has_a_history"], backend="eager")
    compiled(torch.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(RuntimeError, match="graph leaves"):
            compiled(torch.ones(2, requires_grad=True))


def test_changing_numbers_that_a_native_function_refuses():
    def root(x, n):
        try:
            return x + math.sqrt(n)
        except ValueError as error:
            return str(error), error.__context__

    compiled = dovetail.compile(root, backend="eager")
    for n in (4.0, 9.0, -1.0, 16.0):
        ours, theirs = Walk(), Walk()
        ours.root("result", compiled(torch.ones(2), n))
        theirs.root("result", root(torch.ones(2), n))
        assert difference(ours, theirs) is None


def test_texts_of_changing_numbers_are_equal_to_themselves():
    def root(x, n):
        text = f"{n}"
        return text == text, text != text, text == "3", text < "31", n == "3"

    compiled = dovetail.compile(root, backend="eager")
    assert [compiled(torch.ones(2), n) for n in (1, 2, 3, 4)] == [root(torch.ones(2), n) for n in (1, 2, 3, 4)]


def test_attributes_that_are_listed_are_relied_on():
    def root(x, holder):
        return [*vars(holder)], dir(holder)[-1]

    compiled, holder = dovetail.compile(root, backend="eager"), Plain(1)
    for name in ("n", "zz", "zzz"):
        setattr(holder, name, 2)
        assert compiled(torch.ones(2), holder) == root(torch.ones(2), holder)


def test_an_error_of_the_program_has_no_context_of_ours():
    def root(x, n):
        return x + math.sqrt(n)

    compiled = dovetail.compile(root, backend=lambda graph, inputs: 1 / 0, options={"suppress_errors": True})
    with pytest.raises(ValueError) as caught:
        compiled(torch.ones(2), -1.0)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("case", [True, False])
def test_inverted_truth_warns_on_every_call_where_python_does(case):
    def fn(x, flag):
        return x + 1, ~flag

    def shown(call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call(torch.ones(2), case)
        return result[1], [(w.category, str(w.message), w.filename, w.lineno) for w in caught]

    compiled = dovetail.compile(fn, backend="eager")
    for _ in range(2):
        assert shown(compiled) == shown(fn)
