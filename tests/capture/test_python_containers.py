"""Lists, dictionaries, sets, strings, numbers, built-in functions; each case is one graph."""

# ruff: noqa  one case is one line
from __future__ import annotations

import collections
import math
import operator

import pytest
import torch

from tests.capture.python_cases import Cases

case = Cases()
GLOBAL_SET = {"b", "a", "c"}
GLOBAL_LIST = [1, 2, 3]
GLOBAL_DICT = {"a": 1, "b": 2}


# fmt: off
# ------------------------------------------------------------ lists and tuples
@case
def list_methods(x, y): a = [3, 1, 2]; a.sort(); b = a[:]; b.append("q"); b.pop(0); b.insert(-1, 9); return a, b, a.index(2, 1), b.count(9), a.copy() is a
@case
def list_slices(x, y): a = list(range(6)); a[::2] = [0, 0, 0]; del a[1::2]; a[1:1] = [7, 8]; return a, a[-2:], a[::-1], a[10:], a[:-1:2]
@case
def list_compare(x, y): return [1, 2] < [1, 3], [1] <= [1], [2] > [1, 5], [] == [], [1] != [1], (1, 2) >= (1,), [1, [2]] == [1, [2]]
@case
def list_multiply(x, y): a = [[]] * 3; a[0].append(1); b = [1]; b *= 3; return a, b, 2 * [0], [x] * 2
@case
def list_errors(x, y):
    out = []
    for f in (lambda: [][0], lambda: [1].remove(2), lambda: [].pop(), lambda: [1].index(5), lambda: (1,)[3], lambda: [1] + (2,)):
        try: f()
        except (IndexError, ValueError, TypeError) as e: out.append((type(e).__name__, str(e)))
    return out
@case
def list_self_reference(x, y): a = [1]; a.append(a); return a[1] is a, len(a)
@case
def list_aliases(x, y): a = [x]; b = a; c = {"k": a}; a.append(y); return b, c["k"] is b, c
@case
def list_del_while(x, y):
    a = [1, 2, 3, 4]
    while a: x = x + a.pop()
    return x, a
@case
def list_iter_growth(x, y):
    a, n = [1], 0
    for v in a:
        n += v
        if len(a) < 4: a.append(v + 1)
    return n, a
@case
def list_extend_forms(x, y): a = []; a.extend(range(2)); a.extend("ab"); a += (5,); a.extend({7: 1}); a.extend(i for i in [8]); return a
@case
def list_sort_key(x, y): a = ["bb", "A", "c"]; a.sort(key=str.lower, reverse=True); return a, sorted([(1, "b"), (1, "a")]), sorted([3, 1], reverse=True), sorted("hello"), sorted({3: 1, 2: 2})
@case
def list_sort_stable(x, y): return sorted([(1, "b"), (0, "z"), (1, "a")], key=lambda t: t[0]), sorted([1, 2, 3], key=lambda v: -v), sorted([2, 1], key=None)
@case
def list_sort_error(x, y):
    try: sorted([1, "a"])
    except TypeError as e: return str(e)
@case
def tuple_methods(x, y): t = (1, 2, 1); return t.count(1), t.index(2), t + (3,), t * 2, t[1:], len(t), hash(t) == hash((1, 2, 1)), 2 in t, max(t), (x, y)[0]
@case
def unpackings(x, y):
    a, (b, *c), *d = 1, (2, 3, 4), 5, 6
    [e, f] = "gh"; *g, h = range(3); (i,) = {9}
    return a, b, c, d, e, f, g, h, i
@case
def swap(x, y):
    x, y = y, x
    a = [1, 2]; a[0], a[1] = a[1], a[0]
    i = 0; i, a[i] = 1, 5
    return x, y, a
@case
def star_calls(x, y):
    def f(*a, k=0, **kw): return a, k, kw
    return f(*[1, 2], *(3,), k=4, **{"z": 5}, **{"w": 6}), f(*"ab"), [*range(2), *[9]], {**{"a": 1}, "a": 2}, (*[1],)
@case
def unpack_errors(x, y):
    out = []
    for v in ([1], [1, 2, 3]):
        try: a, b = v
        except ValueError as e: out.append(str(e))
    return out

# ------------------------------------------------------------ dictionaries
@case
def dict_methods(x, y): d = {"a": 1}; d |= {"b": x}; e = d | {"a": 2}; f = {"z": 0} | d; return d, e, f, d.get("q", 5), d.pop("zz", None), e.setdefault("a", 9), list(e.items())[0]
@case
def dict_views_live(x, y): d = {"a": 1}; k, v, i = d.keys(), d.values(), d.items(); d["b"] = 2; return list(k), list(v), list(i), len(k), ("b", 2) in i, 2 in v
@case
def dict_view_sets(x, y): a, b = {"p": 1, "q": 2}, {"q": 2, "r": 3}; return sorted(a.keys() & b.keys()), sorted(a.keys() | b), sorted(a.keys() - b.keys()), sorted(a.keys() ^ b.keys()), a.items() & b.items(), a.keys() <= {"p", "q"}, a.keys().isdisjoint({"z"})
@case
def dict_construct(x, y): return dict(a=1), dict([("a", 1)]), dict({"a": 1}, b=2), dict(zip("ab", [1, 2])), {k: v for k, v in zip("ab", (x, y))}, dict.fromkeys("ab", 0), dict(((1, 2),))
@case
def dict_errors(x, y):
    out = []
    for f in (lambda: {}["a"], lambda: {}.pop("b"), lambda: {}.popitem(), lambda: {[]: 1}, lambda: dict(a=1)[1]):
        try: f()
        except (KeyError, TypeError) as e: out.append((type(e).__name__, str(e)))
    return out
@case
def dict_order(x, y): d = {"a": 1, "b": 2}; d["a"] = 3; d.pop("a"); d["a"] = 4; return list(d), list(reversed(d)), list(reversed(d.items())), d.popitem(), next(iter(d))
@case
def dict_delete_iterate(x, y):
    d = {"a": 1, "b": 2, "c": 3}
    for k in list(d):
        if d[k] == 2: del d[k]
    return d
@case
def dict_changed_while_iterated(x, y):
    d = {"a": 1}
    try:
        for k in d: d[k + "x"] = 1
    except RuntimeError as e: return str(e)
@case
def dict_compare(x, y): return {"a": 1} == {"a": 1}, {"a": 1} != {"b": 1}, {"a": 1, "b": 2} == {"b": 2, "a": 1}, {} == [], {"a": 1}.items() == {"a": 1}.items()
@case
def dict_nested(x, y): d = {}; d.setdefault("a", {}).setdefault("b", []).append(x); d["a"]["c"] = y; return d, "b" in d["a"]
@case
def dict_keys_mixed(x, y): d = {1: "i", 1.5: "f", True: "b", None: "n", (1, "a"): "t", frozenset({1}): "fs", torch.float32: "dt"}; return d[1], d[None], d[(1, "a")], d[frozenset({1})], d[torch.float32], len(d)
@case
def dict_comprehension(x, y): return {i: i * x for i in range(3) if i}, {k.upper(): v for k, v in GLOBAL_DICT.items()}, {v: k for k, v in GLOBAL_DICT.items()}
@case
def dict_copy(x, y): d = {"a": [1]}; e = d.copy(); e["a"].append(2); e["b"] = 1; return d, e
@case
def dict_truth_len(x, y): return bool({}), bool({1: 1}), len({1: 1, 2: 2}), not {}, [] or {} or "last", {1: 1} and 5
@case
def dict_update_forms(x, y): d = {}; d.update([("a", 1)]); d.update({"b": 2}, c=3); d.update(zip("d", [4])); return d
@case
def ordered_dict(x, y): d = collections.OrderedDict([("a", 1), ("b", 2)]); d.move_to_end("a"); d.move_to_end("a", last=False); p = d.popitem(last=False); d["z"] = x; return list(d.items())[1:], p, d == {"b": 2, "z": x} if False else 0, next(reversed(d))
@case
def ordered_dict_compare(x, y): O = collections.OrderedDict; return O(a=1, b=2) == O(b=2, a=1), O(a=1, b=2) == dict(b=2, a=1), O(a=1) | O(b=2), repr(O(a=1))
@case
def default_dicts(x, y): d = collections.defaultdict(lambda: 7); d["a"]; d["b"] += 1; e = collections.defaultdict(list, a=[1]); e["a"].append(2); e["n"]; return dict(d), dict(e), d.default_factory(), "q" in d, d.get("q"), d.copy()["zz"]
@case
def default_dict_nested(x, y): t = collections.defaultdict(lambda: collections.defaultdict(int)); t["a"]["b"] += 1; return t["a"]["b"], {k: dict(v) for k, v in t.items()}
@case
def counter_methods(x, y): c = collections.Counter("abca"); c.update("zz"); c["q"] += 1; c.subtract({"a": 1}); return c.most_common(2), sorted(c.elements()), c["none"], sum(c.values()), dict(c), c.total()
@case
def counter_arithmetic(x, y): C = collections.Counter; a, b = C(a=3, b=1), C(a=1, b=2); return a + b, a - b, a & b, a | b, +C(a=-1), a == C("aaab"), C([1, 1, 2]), a.copy()
@case
def chain_maps(x, y): c = collections.ChainMap({"a": 1}, {"a": 2, "b": 3}); c["z"] = x; d = c.new_child({"b": 9}); return c["a"], c["b"], sorted(c), d["b"], len(c), "q" in c, c.maps[1]["a"], c.parents["a"], dict(d)["a"], c.get("no", 5)
@case
def deque_methods(x, y): d = collections.deque([1, 2, 3], 3); d.append(4); d.extendleft([0]); d.rotate(-1); p = d.pop(); d.insert(1, 7); return list(d), p, d.maxlen, d[0], d[-1], 7 in d, d.count(7), d.index(7), list(reversed(d)), d.copy() == d
@case
def deque_more(x, y): d = collections.deque(); d.extend("abc"); d.popleft(); d.remove("c"); d += [1]; d[0] = x; del d[1]; d.clear(); return list(d), bool(d), len(collections.deque(maxlen=0)), collections.deque([1]) + collections.deque([2]), d == collections.deque()
@case
def deque_error(x, y):
    try: collections.deque().popleft()
    except IndexError as e: return str(e)

# ------------------------------------------------------------ sets
@case
def set_operators(x, y): a, b = {1, 2, 3}, {2, 3, 4}; return a | b, a & b, a - b, a ^ b, a <= b, a < {1, 2, 3, 4}, a >= {1}, a > {1}, a == {3, 2, 1}, a != b, a.isdisjoint({9})
@case
def set_methods(x, y): a = {1, 2}; a.add(3); a.discard(9); a.remove(1); a.update([5], (6,)); a.intersection_update({3, 5, 6, 2}); a.difference_update([6]); a.symmetric_difference_update({5, 7}); return a, a.union([1], [2]), a.intersection([3]), a.difference([3]), a.symmetric_difference([3]), a.issubset(range(9)), a.issuperset([3]), a.copy() == a, len(a)
@case
def set_in_place(x, y): a = b = {1}; a |= {2}; a &= {2, 3}; a -= {3}; a ^= {4}; return a, a is b
@case
def set_errors(x, y):
    out = []
    for f in (lambda: {1}.remove(2), lambda: set().pop(), lambda: {1} | [2], lambda: {[]}):
        try: f()
        except (KeyError, TypeError) as e: out.append((type(e).__name__, str(e)))
    return out
@case
def frozen_sets(x, y): f = frozenset([1, 2]); return f | {3}, f & {1}, {f: 1}[frozenset((2, 1))], hash(f) == hash(frozenset([2, 1])), f == {1, 2}, type(f - {1}) is frozenset, type({1} | f) is set, len(f), 1 in f
@case
def set_iteration(x, y): return [k for k in {8, 0, 16, 1}], list({"b", "a"}) == list({"b", "a"}), sorted({3, 1}), sum({1, 2}), max({1, 5}), list({1, 2, 3} - {2}), tuple({10, 20} | {5})
@case
def set_iteration_order(x, y): a = {8}; a.add(0); b = set([0, 8]); c = {0}; c |= {8, 16}; c.discard(0); c.add(0); return list(a), list(b), list(c), [*a, *b]
@case
def set_pop(x, y): a = {5, 3, 9}; p = a.pop(); return p, a, {7}.pop()
@case
def set_of_objects(x, y): a = object(); b = object(); s = {a, b, a}; return len(s), a in s, object() in s
@case
def set_of_tensors(x, y): s = {x, y, x}; return len(s), x in s
@case
def set_comprehension(x, y): return {i % 2 for i in range(5)}, {c for c in "hello" if c > "g"}, {(i, j) for i in range(2) for j in range(2)}
@case
def set_global(x, y): return len(GLOBAL_SET), "a" in GLOBAL_SET, sorted(GLOBAL_SET), [k for k in GLOBAL_SET], GLOBAL_SET | {"z"} == {"a", "b", "c", "z"}

# ------------------------------------------------------------ strings and bytes
@case
def str_methods(x, y): s = " Hello, World "; return s.strip(), s.lower(), s.upper(), s.title(), s.swapcase(), s.casefold(), s.split(","), s.rsplit(None, 1), s.partition(","), s.rpartition("o"), s.find("W"), s.rfind("o"), s.index("H"), s.count("l"), s.replace("l", "L", 1), s.center(20, "*"), s.ljust(16), s.rjust(16), s.zfill(18), s.lstrip(), s.rstrip()
@case
def str_tests(x, y): return "abc".isalpha(), "12".isdigit(), "1a".isalnum(), "A".isupper(), "a".islower(), " ".isspace(), "x1".isidentifier(), "abc".startswith(("x", "a")), "abc".endswith("c"), "b" in "abc", "abc" < "abd", "Title".istitle(), "a".isascii(), "½".isnumeric(), "1".isdecimal()
@case
def str_format(x, y): return "{} {}".format(1, 2), "{0}{1}{0}".format("a", "b"), "{k:>5}".format(k=3), "{:.2f}".format(3.14159), "{!r}".format("s"), "{a[0]} {b.real}".format(a=[1], b=2), "{:,}".format(1234567), "{:08b}".format(5), "{:e}".format(12345.678), "{:%}".format(0.25), "{:^7}".format("ab"), "{{}}".format()
@case
def str_percent(x, y): return "%d %s" % (1, "a"), "%.2f" % 3.14159, "%5d|%-5d|%05d" % (1, 2, 3), "%x %o %e" % (255, 8, 1.5), "%(a)s" % {"a": 1}, "%r" % "q", "%%" % (), "%s" % [1, 2], "%s" % None
@case
def str_fstrings(x, y): n, w = 3.14159, 10; return f"{n:.2f} {n:{w}.3f} {n!r:>12} {'a' 'b'} {n=:.1f} {1 + 1} {[i for i in range(2)]} {{}} {x.shape[0]} {x.dtype} {tuple(x.shape)} {x.size()} {x.device!s}"
@case
def str_join_split(x, y): return ",".join(str(i) for i in range(3)), "a b  c".split(), "a\nb".splitlines(), "-".join({"a": 1}), "".join(map(chr, [97, 98])), list("abc"), "abc"[::-1], "abc"[1:], "ab" * 3, 2 * "x", "a" "b"
@case
def str_encode(x, y): return "é".encode(), b"ab".decode(), "abc".encode("ascii").hex(), bytes([1, 2]), b"a" + b"b", b"abc"[1], b"abc"[1:], b"a,b".split(b","), bytes(3), b"x".join([b"1", b"2"]), bytes.fromhex("0aff")
@case
def str_translate(x, y): return "abc".translate(str.maketrans("ab", "xy")), "abc".translate({97: None}), "a\tb".expandtabs(2), ord("a"), chr(98), ascii("é"), repr("a'b"), "pre_x".removeprefix("pre_"), "x.py".removesuffix(".py")
@case
def str_compare_chain(x, y): return "a" < "b" < "c", min("hello"), sorted(["b", "A"], key=str.casefold), max(["aa", "b"], key=len), hash("q") == hash("q")
@case
def str_of_values(x, y): return str(1), str(1.5), str(None), str([1, "a"]), str({"a": (1,)}), repr((1,)), str(True), str(1j), repr({1}), str(range(3)), str(int), repr(slice(1, 2)), str(b"a"), str({}), str(())
@case
def str_errors(x, y):
    out = []
    for f in (lambda: "a" + 1, lambda: int("q"), lambda: "abc".index("z"), lambda: "a"[5], lambda: "%d" % "a", lambda: "{}".format(), lambda: chr(-1)):
        try: f()
        except (TypeError, ValueError, IndexError) as e: out.append((type(e).__name__, str(e)))
    return out
@case
def int_methods(x, y): return (10).bit_length(), (7).bit_count(), (5).to_bytes(2, "big"), int.from_bytes(b"\x01\x02", "little"), (3).as_integer_ratio(), int("ff", 16), int("0b11", 0), int(3.9), int("-4"), int(True), (4).real, (4).conjugate(), hex(255), bin(5), oct(8)
@case
def float_methods(x, y): return (2.5).is_integer(), (0.5).as_integer_ratio(), (1.5).hex(), float.fromhex("0x1.8p+0"), float("1e3"), float("inf"), round(2.5), round(1.2345, 2), round(1234, -2), abs(-1.5), (2.0).__floor__(), 7.5 // 2, 7.5 % 2, -7 // 2, -7 % 3, divmod(-7, 2), 2 ** -1, 1e308 * 10
@case
def complex_numbers(x, y): z = 3 + 4j; return abs(z), z.real, z.imag, z.conjugate(), z * 2, z ** 2, complex(1, 2), complex("1+2j"), z == 3 + 4j, -z, z / (1 + 1j)
@case
def int_arithmetic(x, y): return 7 // 2, -7 // 2, 7 % -3, 2 ** 10, 1 << 4, 255 >> 2, 6 & 3, 6 | 1, 6 ^ 2, ~5, -3, +3, 10 ** 20, pow(2, 10, 1000), pow(3, -1, 7), True + True, 3 == 3.0, 1 < 2.5 <= 3
@case
def number_errors(x, y):
    out = []
    for f in (lambda: 1 / 0, lambda: 1 % 0, lambda: math.sqrt(-1), lambda: int("x"), lambda: float("y"), lambda: 2.0 ** 10000, lambda: math.log(0), lambda: 1 << -1, lambda: [] < 1, lambda: None + 1):
        try: f()
        except (ArithmeticError, ValueError, TypeError) as e: out.append((type(e).__name__, str(e)))
    return out
@case
def math_all(x, y): return math.sin(1), math.ceil(1.2), math.floor(-1.2), math.trunc(-1.7), math.fabs(-1), math.factorial(5), math.comb(5, 2), math.perm(5, 2), math.gcd(12, 8), math.lcm(4, 6), math.isqrt(17), math.hypot(3, 4), math.dist([0, 0], [3, 4]), math.copysign(1, -0.0), math.fmod(7, 3), math.frexp(8), math.ldexp(1, 3), math.modf(1.5), math.log2(8), math.log(8, 2), math.exp(0), math.isclose(1, 1 + 1e-12), math.isnan(math.nan), math.isinf(math.inf), math.prod([1, 2, 3]), math.fsum([0.1] * 10), math.tau, math.e, math.degrees(math.pi), math.atan2(1, 1), math.erf(0.5), math.gamma(5), math.cbrt(27)
@case
def bool_logic(x, y): return True and 0, False or "a", not [], 1 if [] else 2, any([0, 1]), all([]), any(i > 2 for i in range(4)), all(x is not None for x in (x, y)), bool("False"), True ^ True, True & False, isinstance(True, int)

# ------------------------------------------------------------ built-in functions
@case
def builtin_iteration(x, y): return list(zip([1, 2], "ab", (x, y)))[0][:2], list(zip()), list(enumerate("ab", 5)), list(map(lambda a, b: a + b, [1, 2], [3, 4])), list(filter(lambda v: v > 1, [1, 2])), list(filter(None, [0, 1, ""])), list(reversed("abc")), list(iter([1].pop, 1)), next(iter({}), "d"), sum([[1], [2]], []), sum([1.5, 2]), sum(range(5), start=10)
@case
def zip_strict(x, y):
    out = [list(zip([1], [2], strict=True))]
    for a, b in (([1, 2], [1]), ([1], [1, 2])):
        try: list(zip(a, b, strict=True))
        except ValueError as e: out.append(str(e))
    return out
@case
def min_max_forms(x, y): return min(3, 1, 2), max([1, 5], key=lambda v: -v), min("b", "a"), max([], default=None), min([(1, "b"), (1, "a")]), max({"a": 1, "b": 2}, key=GLOBAL_DICT.get), min(range(3)), max(1.5, 2), min([2, 1], [1, 9])
@case
def min_empty(x, y):
    try: min([])
    except ValueError as e: return type(e).__name__
@case
def ranges(x, y): r = range(0, 10, 3); return list(r), len(r), r[1], r[-1], r[1:], 6 in r, 7 in r, r.index(6), r.count(3), r.start, r.step, list(reversed(r)), r == range(0, 12, 3), bool(range(0)), range(5)[::2], hash(range(2)) == hash(range(2))
@case
def slices(x, y): s = slice(1, None, 2); return s.indices(5), "abcdef"[s], [1, 2, 3][s], (1, 2, 3)[s], s.start, s.stop, s == slice(1, None, 2), x[s].shape, x[slice(0, 2), slice(1)], range(9)[s]
@case
def any_all_short(x, y):
    log = []
    def f(v): log.append(v); return v
    r = any(f(v) for v in [0, 1, 2]), all(f(v) for v in [1, 0, 2])
    return r, log
@case
def operator_module(x, y): o = operator; return o.add(1, 2), o.mul(x, y), o.itemgetter(1)([1, 2]), o.itemgetter(0, 1)("ab"), o.attrgetter("shape")(x), o.attrgetter("real", "imag")(1j), o.methodcaller("upper")("a"), o.methodcaller("sum", 0)(x), o.contains([1], 1), o.neg(3), o.not_(0), o.truth([]), o.is_(x, x), o.getitem([1, 2], 0), o.concat([1], [2]), o.countOf([1, 1], 1), o.indexOf([1, 2], 2), o.index(4), o.matmul(x, y), o.floordiv(7, 2), o.xor(5, 1), o.lt(1, 2), o.iadd([1], [2]), o.length_hint([1]), o.inv(3), o.mod(7, 4), o.pos(1), o.abs(-1), o.pow(2, 3), o.le(1, 1), o.rshift(8, 1)
@case
def operator_mutation(x, y): a = [1, 2]; operator.setitem(a, 0, x); operator.delitem(a, 1); d = {}; operator.setitem(d, "k", 1); return a, d
@case
def number_conversions(x, y): return int(), float(), str(), bool(), list(), dict(), tuple(), set(), complex(), bytes(), frozenset(), int("12"), float(3), list("ab"), tuple([1]), bool([0])
@case
def isinstance_forms(x, y): return isinstance(1, (int, (str, float))), isinstance(True, int), isinstance(x, torch.Tensor), isinstance([], list), issubclass(bool, int), isinstance(None, type(None)), isinstance(int, type), isinstance(math, type(torch)), isinstance(len, type(print)), type(1) is int, type("a") == str, isinstance(x.shape, tuple), isinstance(torch.float32, torch.dtype)
@case
def mixed_sum(x, y): return sum([x, y]), sum([x, 1, y * 2]), sum((x, y), start=x), max(x.shape), min(x.dim(), 5), sum(x.shape), math.prod(x.shape), sum(p.numel() for p in [x, y])
@case
def format_builtin(x, y): return format(3.14159, ".2f"), format(255, "#x"), format("a", ">3"), format(1234.5, ",.1f"), format(True), format(None), format(1e-10, "g")
@case
def delete_forms(x, y):
    a, d, n = [1, 2, 3], {"k": 1}, 5
    del a[0], d["k"], n
    try: n
    except NameError as e: return a, d, type(e).__name__
@case
def chained_assign(x, y): a = b = [1]; a.append(2); c, *d = e = (1, 2, 3); return a is b, c, d, e
@case
def augmented_targets(x, y):
    a, d = [1, 2], {"k": [0]}
    a[0] += 5; d["k"] += [1]; d["k"][0] -= 2; a[-1] *= 3; a[0] //= 2; a[1] **= 2; a[1] %= 5; a[0] |= 8; a[0] ^= 1; a[0] <<= 1
    return a, d
@case
def walrus_forms(x, y): return [t for i in range(4) if (t := i * 2) > 2], (n := 5) + n, (lambda: (z := 3) + z)(), [last := i for i in range(3)][-1] + last
@case
def conditional_expressions(x, y): return [("even" if i % 2 == 0 else "odd") for i in range(3)], 1 if x is y else 2, (x if len(GLOBAL_LIST) > 2 else y)
@case
def loops_else(x, y):
    out = []
    for i in range(3):
        if i == 5: break
    else: out.append("for")
    n = 0
    while n < 2: n += 1
    else: out.append("while")
    for a, (b, *c) in [(1, (2, 3, 4))]: out.append((a, b, c))
    for out2 in []: pass
    return out, n
# fmt: on


@pytest.mark.parametrize("name", sorted(case))
def test_case(name):
    case.check(name)
