"""What random programs are made of, as templates.

`<T>` is an expression of kind T, `<T!>` a variable of that kind, `<T!a>` a variable that keeps its choice within the
template under the name `a`. `<new T>` names a new variable of kind T. Kinds:

    T M S     tensors: (4,), (2, 4) and a scalar one      I F B Q   int, float, bool, str
    LI LT     lists of ints, of tensors                   DI DT     dicts of ints, of tensors, by string
    SI        a set of ints                               DQ        a deque of tensors
    DD        a defaultdict of lists                      OD CT     an OrderedDict of tensors, a Counter of strings
    NT        a named tuple Pair(x, n, tag)               O         an object of class Node or a class below it
    R         a dataclass Record(a, n, tags)              G         an iterator of ints
"""

# ruff: noqa: E501  (programs of several lines, each in one line)
from __future__ import annotations

KINDS = ("T", "M", "S", "I", "F", "B", "Q", "LI", "LT", "DI", "DT", "SI", "DQ", "DD", "OD", "CT", "NT", "O", "R", "G")

#: How likely a new variable is of each kind.
WEIGHTS = {"T": 10, "M": 2, "S": 3, "I": 8, "F": 3, "B": 2, "Q": 3, "LI": 4, "LT": 4, "DI": 3, "DT": 3, "SI": 2,
           "DQ": 1, "DD": 1, "OD": 1, "CT": 1, "NT": 2, "O": 4, "R": 2, "G": 2}  # fmt: skip

#: Kinds whose values can be changed through any name they have.
MUTABLE = frozenset(("T", "M", "S", "LI", "LT", "DI", "DT", "SI", "DQ", "DD", "OD", "CT", "O", "R", "G"))

#: What an expression is where nothing deeper is wanted and no variable fits.
LEAVES = {
    "T": ("torch.ones(4)", "torch.arange(4.0)", "torch.full((4,), 2.0)", "torch.tensor([1.0, -2.0, 0.5, 3.0])"),
    "M": ("torch.ones(2, 4)", "torch.arange(8.0).reshape(2, 4)"),
    "S": ("torch.tensor(1.5)", "torch.tensor(-2.0)", "torch.zeros(())"),
    "I": ("0", "1", "2", "3", "-1", "5", "7"),
    "F": ("0.5", "2.0", "-1.5", "0.25", "1e3"),
    "B": ("True", "False"),
    "Q": ("'a'", "'b'", "'key'", "''", "'x y'"),
    "LI": ("[1, 2, 3]", "[]", "[0, -1]"), "LT": ("[]", "[torch.ones(4)]"),
    "DI": ("{'a': 1}", "{'a': 1, 'b': 2}", "{}", "dict(a=3, key=4)"), "DT": ("{}", "{'a': torch.ones(4)}"),
    "SI": ("{1, 2}", "set()", "{0, 3, 5}"),
    "DQ": ("deque()", "deque(maxlen=2)"), "DD": ("defaultdict(list)",),
    "OD": ("OrderedDict()", "OrderedDict(a=torch.ones(4))"), "CT": ("Counter()", "Counter('abca')"),
    "NT": ("Pair(torch.ones(4), 1, 'a')",), "O": ("Node(torch.ones(4), 2)", "Leaf(torch.ones(4), 1)"),
    "R": ("Record(torch.ones(4))", "Record(torch.zeros(4), 3, ['t'])"), "G": ("iter([1, 2, 3])", "iter(range(3))"),
}  # fmt: skip

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "T": (
        "<T> + <T>", "<T> * <F>", "<T> - <I>", "<F> - <T>", "torch.relu(<T>)", "torch.tanh(<T>)", "-<T>", "<M>.sum(0)",
        "<M>[0]", "<M>[-1]", "<M>[<I> % 2]", "<M!>[1, :]", "<T> + <S>", "<T>.clone()", "<T>.abs()", "<T!>[:]",
        "<T!>.view(4)", "<T!>.view(2, 2).t().reshape(4)", "torch.where(<T> > <F>, <T>, <T>)", "<T!>.detach()",
        "<T!>.flip(0)", "<LT>[0]", "<LT>[-1]", "<LT>[<I>]", "<DT>['a']", "<DT>.get(<Q>, <T>)", "<DT>[<Q>]", "<NT>.x",
        "<NT>[0]", "<O>.w", "<R>.a", "<DQ>[0]", "<DQ!>[-1]", "<OD>['a']", "sum(<LT>, <T>)", "<O>(<T>)", "<O>.scaled",
        "functools.reduce(lambda p, q: p + q, <LT>, <T>)", "torch.stack([<T>, <T>]).sum(0)",
        "torch.cat([<T>, <T>])[::2]", "(<T> if <B> else <T>)", "(<T!> if <S> > <F> else <T!>)", "<T>.clamp(<F>, 5.0)",
        "native(<T>)", "opaque(<T>)", "torch.full((4,), float(<I>))", "torch.ones(<T!>.shape)", "torch.zeros_like(<T>)",
        "<T!>.new_ones(4)", "next(iter(<LT>), <T>)", "max(<LT>, key=lambda t: t.numel(), default=<T>)", "<LT!>.pop()",
        "<DT!>.pop(<Q>, <T>)", "(lambda p, n=<I>: p + n)(<T>)", "(w := <T>) * w",
        "torch.tensor(<LI>[:4] + [0.0] * 4)[:4]", "twice(<T>)", "spread(*<LT>, base=<T>)",
        "spread(<T>, *<LI>, base=<T>, **<DI>)", "power(<T>, <I>)", "<T!> @ torch.eye(4)", "<O>.total(<T>)",
        "<O>.child_or(<T>)", "getattr(<O>, 'w')", "getattr(<O>, <Q>, <T>)", "vars(<R>)['a']",
        "<T>.masked_fill(<T> > <F>, <F>)", "torch.nn.functional.dropout(<T>, 0.5, False)", "maker(<T>)(<F>)",
        "partial(scale, by=<F>)(<T>)", "partial(scale, <T>)()", "<T!>.add_(<F>)", "<T!>.data", "<M>.amax(0)",
        "copy.copy(<LT>)[0]", "copy.deepcopy(<O>).w", "attempt(<T>, <I>)", "[*<LT>, <T>][0]", "<T>.to(torch.float32)",
        "dict(<DT>, z=<T>)['z']", "{**<DT>, 'z': <T>}['z']", "list(<DT>.values() or [<T>])[0]", "<T>.sort()[0]",
    ),
    "M": (
        "<M> + <M>", "<M> * <T>", "torch.stack([<T>, <T>])", "<T>.expand(2, 4)", "<M>.t().t()", "<M> + <S>",
        "torch.outer(torch.ones(2), <T>)", "<T!>.unsqueeze(0) * <M>", "<M!>[:, :]", "-<M>", "(<M> if <B> else <M>)",
        "<M>.cumsum(1)", "<T>.repeat(2, 1)",
    ),
    "S": (
        "<T>.sum()", "<T>.mean()", "<M>.max()", "<T>[<I> % 4]", "<T!>[0]", "<S> + <S>", "<S> * <F>", "<T>.norm()",
        "<T> @ <T>", "<S>.abs()", "torch.tensor(float(<I>))", "<M!>[0, 1]", "<T>.prod()", "min(<S>, <S>)",
    ),
    "I": (
        "<I> + <I>", "<I> * 3 % 11", "(<I> - <I>) % 7", "<I> // 2", "len(<LI>)", "len(<LT>)", "len(<DI>)", "<LI>[0]",
        "<LI>[-1]", "<LI>[<I>]", "<DI>['a']", "<DI>.get(<Q>, <I>)", "<DI>[<Q>]", "sum(<LI>) % 97", "<NT>.n", "<O>.n",
        "<R>.n", "<T!>.shape[0]", "<M!>.size(1)", "<M!>.dim()", "<T!>.numel()", "max(<I>, <I>)",
        "min(<LI>, default=<I>)", "(<I> if <B> else <I>)", "<I> and <I>", "<I> or <I>", "<LI!>.pop() if <LI!> else <I>",
        "int(<B>)", "int(<F>) % 9", "abs(<I>)", "<LI>.count(<I>)", "<LI>.index(<I>)", "next(<G!>)", "next(<G!>, <I>)",
        "len(<Q>)", "ord(<Q>[0])", "<CT>['a']", "<CT>.total()", "<CT!>['missing']", "<DI!>.setdefault(<Q>, <I>)",
        "<DI!>.pop('a', <I>)", "fact(<I> % 5)", "len(<SI>)", "sum(<SI>) % 97", "min(<SI>, default=0)", "<O>[<I>]",
        "len(<O>)", "<O>.missing", "<O>.size", "~<I>", "divmod(<I>, 3)[1]", "<I> % (<I> % 3 + 1)", "<I> // <I>", "-<I>",
        "<I> ^ <I>", "<I> << 1", "int(<S>)", "<T>.argmax().item()", "sum(i * j for i, j in zip(<LI>, range(3))) % 97",
        "len([v for v in <LI> if v > <I>])", "(u := <I>) + u", "G_COUNT", "bump()", "bump(<I>)", "counted(<LI>)",
        "sorted(<LI>)[0]", "int('12') + <I>", "<LI>.__len__()", "hash(int(<I>))",
        "functools.reduce(operator.add, <LI>, <I>) % 97", "operator.itemgetter(0)(<LI>)", "[*<LI>, <I>][0]",
        "len({*<LI>})", "first(<LI>)", "(lambda *a, **k: len(a) + len(k))(*<LI>, **<DI>)", "cached(<I> % 4)",
        "bin(<I> % 8).count('1')", "round(<F>)", "max(<DI>.values(), default=<I>)", "drain(numbers(<I> % 4))",
        "Node.made", "Leaf.LIMIT", "cls_total()", "echo(<I>)", "disabled_len(<LI>)", "type(<O>).LIMIT", "<O>.kind(<I>)",
        "dict(zip('ab', <LI>)).get('a', <I>)",
    ),
    "F": (
        "<F> + <F>", "<F> * 0.5", "float(<I>)", "<I> / 2", "math.sqrt(abs(<F>))", "<S>.item()", "float(<S>)", "-<F>",
        "round(<F>, 1)", "max(<F>, <I>)", "(<F> if <B> else <F>)", "sum([0.5, <F>])", "abs(<F>)", "<F> % 3", "<F> // 1",
        "math.floor(<F>) + 0.5", "<T>.tolist()[0]", "float('1.5')", "<I> / (<I> % 3)", "min(<F>, <F>, key=abs)",
    ),
    "B": (
        "<I> > <I>", "<I> == <I>", "<I> < <I> < <I>", "<B> and <B>", "<B> or <B>", "not <B>", "<S> > <F>",
        "<T>.sum() > <F>", "<Q> in <DI>", "<I> in <LI>", "<I> in <SI>", "<I> not in <LI>", "<Q> in <DT>",
        "<LI> == <LI>", "<Q> == <Q>", "<T!> is <T!>", "<LT!> is <LT!>", "<O!> is <O!>", "isinstance(<O>, Leaf)",
        "hasattr(<O>, <Q>)", "bool(<LI>)", "any(v > <I> for v in <LI>)", "all(<LI>)", "<O> == <O>", "<O!> < <O!>",
        "bool(<O>)", "<I> in <O>", "<F> > <F>", "<T!>.requires_grad", "torch.is_grad_enabled()", "<Q>.isalpha()",
        "<DI> == <DI>", "<SI> <= <SI>", "<R> == <R>", "torch.is_tensor(<T>)", "callable(<O>)", "<I> is None",
        "<Q>.startswith(<Q>)", "bool(<S> > 0)", "<NT> == <NT>", "<T!>.shape == <T!>.shape", "<O>.child is None",
        "(<T> > 0).all()", "<LI> < <LI>", "torch.equal(<T>, <T>)", "<CT> == <CT>", "<I> == True",
        "<DI>.keys() == <DI>.keys()", "issubclass(type(<O>), Node)", "<S>.isnan().item()",
    ),
    "Q": (
        "<Q> + <Q>", "<Q>.upper()", "f'{<I>}'", "f'{<Q>!r}:{<I>:>3}'", "str(<I>)", "<Q> * 2", "'-'.join(<DI>)",
        "<NT>.tag", "<Q>[::-1]", "(<Q>)[:3]", "repr(<LI>)", "<Q>.replace('a', 'bb')", "(<Q> if <B> else <Q>)",
        "f'{<F>:.2f}'", "','.join(str(v) for v in <LI>)", "'%s-%d' % (<Q>, <I>)", "'{}={}'.format(<Q>, <I>)",
        "str(<B>)", "<Q>.strip()", "type(<O>).__name__", "repr(<O>)", "next(iter(<DI>), <Q>)", "min(<DI>, default=<Q>)",
        "<O>.label", "str(<DI>)", "max(<Q>, <Q>)", "<Q>.title()", "str(<T!>.dtype)", "str(tuple(<T!>.shape))",
        "f'{<LI>} {<I>=}'", "str(<NT>.n)", "', '.join(sorted(<R>.tags))", "<O>.__class__.__qualname__", "repr(<Q>)",
        "str(<SI>)", "twice.__name__", "<CT>.most_common(1)[0][0]", "<O!>.describe(<Q>)", "str(describe(<I>))",
    ),
    "LI": (
        "[<I>, <I>]", "[v + <I> for v in <LI>]", "[v for v in <LI> if v % 2]", "<LI>[1:]", "<LI>[::-1]", "<LI> + [<I>]",
        "sorted(<LI>)", "sorted(<LI>, key=lambda v: -v)", "sorted(<LI>, reverse=<B>)", "list(range(<I> % 5))",
        "list(<SI>)", "sorted(<SI>)", "list(<DI>.values())", "list(map(lambda v: v * 2, <LI>))",
        "list(filter(None, <LI>))", "<O>.items", "list(numbers(<I> % 4))", "list(<G!>)", "[*<LI>, *<LI>][:6]",
        "(<LI> if <B> else <LI>)", "<LI> or [<I>]", "<LI>[:]", "list(itertools.chain(<LI>, <LI>))[:6]",
        "list(itertools.accumulate(<LI>))", "list(itertools.islice(<LI>, 2))", "list(reversed(<LI>))",
        "[i * j for i in <LI>[:3] for j in range(2)]", "list(itertools.takewhile(lambda v: v < 3, <LI>))", "<DD!>[<Q>]",
        "<LI!>.copy()", "[u := <I>, u + 1]", "list(<O>)", "[i for i, v in enumerate(<LI>) if v]", "[<I>] * 3",
        "list(zip(<LI>, <LI>))[0:1] and [<I>]", "[len(k) for k in <DI>]", "<DD!>.get(<Q>, <LI>)", "list(<LI>)",
        "<T>.tolist()", "list(filterfalse(bool, <LI>))", "drain_all(<I> % 4)", "copy.deepcopy(<LI>)",
        "list(dict.fromkeys(<LI>))",
    ),
    "LT": (
        "[<T>, <T>]", "[t * <F> for t in <LT>]", "<LT>[::-1]", "<LT> + [<T>]", "list(<M>)", "list(<M>.unbind(0))",
        "<LT>[:2]", "list(<DT>.values())", "sorted(<LT>, key=lambda t: t.dim())", "[t for t in <LT> if t is not <T!>]",
        "list(<DQ>)", "[<T>] * 2", "(<LT> if <B> else <LT>)", "list(map(torch.relu, <LT>))",
        "[<T!> + i for i in range(<I> % 4)]", "list(<T>.split(2)) and [<T>]", "list(<OD>.values())",
        "[t for t, n in zip(<LT>, <LI>)]", "[w.view(4) for w in <LT>]",
    ),
    "DI": (
        "{<Q>: <I>, 'a': <I>}", "dict(<DI>)", "{k: v + 1 for k, v in <DI>.items()}", "{**<DI>, <Q>: <I>}",
        "<DI> | {'b': <I>}", "dict(zip('abc', <LI>))", "(<DI> if <B> else <DI>)", "<DI>.copy()",
        "{str(v): v for v in <LI>}", "dict(a=<I>, **{'c': 1})", "dict(sorted(<DI>.items()))",
        "dict.fromkeys(['a', <Q>], <I>)", "dict([(<Q>, <I>)])", "dict(<CT>)",
    ),
    "DT": (
        "{'a': <T>, <Q>: <T>}", "dict(<DT>, b=<T>)", "{k: t * 2 for k, t in <DT>.items()}", "(<DT> if <B> else <DT>)",
        "{**<DT>, **<OD>}", "dict(zip('ab', <LT>))", "<DT>.copy()",
    ),
    "SI": (
        "set(<LI>)", "{v % 3 for v in <LI>}", "<SI> | <SI>", "<SI> & {1, 2, 3}", "<SI> - {<I>}", "<SI> ^ <SI>",
        "{*<LI>, <I>}", "<SI>.union(<LI>)", "<SI>.copy()", "set(range(<I> % 4))", "(<SI> if <B> else <SI>)",
    ),
    "DQ": ("deque(<LT>)", "deque(<LT>, maxlen=2)", "deque([<T>, <T>])", "<DQ>.copy()"),
    "DD": ("defaultdict(list, a=<LI>)", "defaultdict(list, {<Q>: [<I>]})"),
    "OD": ("OrderedDict(<DT>)", "OrderedDict([('a', <T>), (<Q>, <T>)])", "<OD>.copy()"),
    "CT": ("Counter(<Q>)", "Counter(<DI>)", "Counter(<CT>)", "<CT> + Counter('a')", "Counter(str(v) for v in <LI>)"),
    "NT": (
        "Pair(<T>, <I>, <Q>)", "Pair(x=<T>, n=<I>)", "<NT>._replace(n=<I>)", "(<NT> if <B> else <NT>)",
        "Pair(*(<T>, <I>))", "Pair._make([<T>, <I>, <Q>])", "Pair(**{'x': <T>, 'n': <I>})",
    ),
    "O": (
        "Node(<T>, <I>)", "Leaf(<T>, <I>)", "<O> + <O>", "Node(<T>, n=<I>, items=<LI>)", "(<O> if <B> else <O>)",
        "<O> * <F>", "Leaf.make(<T>)", "<O>.grown(<I>)", "Node(<T>, 1, child=<O>)", "<O>.child or <O>",
        "copy.copy(<O>)", "Odd(<T>, <I>)", "max(<O>, <O>)", "type(<O>)(<T>, <I>)",
        "sorted([<O>, <O>], key=lambda o: o.n)[0]", "Node.empty()", "-<O>", "<I> + <O>",
    ),
    "R": (
        "Record(<T>)", "Record(<T>, <I>, [<Q>])", "dataclasses.replace(<R>, n=<I>)", "Record(a=<T>, n=<I>)",
        "(<R> if <B> else <R>)", "Marked(<T>, <I>)",
    ),
    "G": (
        "iter(<LI>)", "numbers(<I> % 5)", "(v * 2 for v in <LI>)", "map(abs, <LI>)",
        "itertools.islice(itertools.cycle([1, <I>]), 5)", "iter(range(4))", "itertools.islice(itertools.count(<I>), 4)",
        "zip_first(<LI>, <LI>)", "chained(<I> % 4)", "filter(None, <LI>)", "reversed(<LI>)",
        "itertools.chain(<LI>, numbers(2))", "Steps(<I> % 5)", "iter(<O>)", "itertools.repeat(<I>, 2)",
        "iter(sorted(<LI>))",
    ),
}  # fmt: skip

STATEMENTS = (
    "<T!>.add_(<T>)", "<T!>.mul_(<F>)", "<T!>[<I> % 4] = <F>", "<T!>[1:3] = <F>", "<T!>[:2] += <T>[2:]",
    "<M!>[0] = <T>", "<T!> += <T>", "<T!> *= <F>", "<M!>.t()[1] = <F>", "<T!>.copy_(<T>)", "<S!>.fill_(<F>)",
    "<T!>.zero_()", "<M!>[:, 1].neg_()", "<T!>.clamp_(-9, 9)", "<M!>.view(8)[3] = <F>", "<T!>.relu_()",
    "torch.add(<T>, <T>, out=<T!>)", "<T!>[<T!> > <F>] = <F>", "<LI!>.append(<I>)", "<LI!>[0] = <I>",
    "<LI!>[<I>] = <I>", "<LI!>.extend(<LI>[:3])", "<LI!>.insert(<I>, <I>)", "<LI!>.reverse()", "<LI!>.sort()",
    "<LI!>.sort(key=lambda v: (v % 3, v))", "del <LI!>[0]", "del <LI!>[1:]", "<LI!>[1:2] = <LI>[:2]", "<LI!>.pop()",
    "<LI!> += [<I>, <I>]", "<LI!>.remove(<I>)", "<LI!>.clear()", "<LI!>[:] = <LI>", "<LI!> *= 2", "del <LI!>[6:]",
    "<LI!>[::2] = [<I>] * len(<LI!>[::2])", "<LT!>.append(<T>)", "<LT!>[0] = <T>", "<LT!>[-1].add_(<F>)",
    "<LT!>.insert(0, <T>)", "<LT!>[0] += <F>", "<LT!>.extend(<LT>[:2])", "del <LT!>[3:]", "<LT!>.pop(0)",
    "<LT!>.reverse()", "<LT!>[:1] = [<T>, <T>]", "<LT!>[0], <LT!>[-1] = <LT!>[-1], <LT!>[0]", "<DI!>[<Q>] = <I>",
    "<DI!>['a'] += <I>", "<DI!>.update(<DI>)", "<DI!>.update(b=<I>)", "del <DI!>['a']", "<DI!>.pop(<Q>, None)",
    "<DI!> |= {'c': <I>}", "<DI!>.popitem()", "<DI!>.clear()", "<DI!>.setdefault('d', <I>)",
    "<DI!>[<Q>] = <DI!>.get(<Q>, 0) + 1", "<DT!>[<Q>] = <T>", "<DT!>['a'].mul_(<F>)",
    "<DT!>['a'] = <DT!>.get('a', <T>) + <T>", "<DT!>.update(z=<T>)", "<DT!>.pop('a', None)", "<SI!>.add(<I>)",
    "<SI!>.discard(<I>)", "<SI!>.update(<LI>)", "<SI!> |= {<I>}", "<SI!> -= {<I>}", "<SI!>.remove(<I>)",
    "<SI!>.clear()", "<DQ!>.append(<T>)", "<DQ!>.appendleft(<T>)", "<DQ!>.popleft()", "<DQ!>.rotate(1)",
    "<DQ!>.extend(<LT>[:2])", "<DQ!>[0].add_(1)", "<DD!>[<Q>].append(<I>)", "<DD!>['a'] += [<I>]", "<OD!>['n'] = <T>",
    "<OD!>.move_to_end('a')", "<OD!>.popitem(last=<B>)", "<CT!>[<Q>] += 1", "<CT!>.update(<Q>)", "<CT!>.subtract(<Q>)",
    "<O!>.w = <T>", "<O!>.w += <T>", "<O!>.w.add_(<F>)", "<O!>.n = <I>", "<O!>.n += 1", "<O!>.items.append(<I>)",
    "<O!>.child = <O!>", "<O!>.extra = <I>", "<O!>[<I>] = <I>", "<O!>.size = <I>", "del <O!>.extra",
    "setattr(<O!>, 'n', <I>)", "<O!>.grow(<I>)", "<O!> += <O>", "<O!>.__dict__['n'] = <I>", "<O!>.child = None",
    "<O!>.child.n = <I>", "<O!>.items = <LI>", "delattr(<O!>, 'extra')", "<O!>.size += 1", "<R!>.a = <T>",
    "<R!>.n += <I>", "<R!>.tags.append(<Q>)", "<R!>.a[0] = <F>", "<R!>.__dict__.update(n=<I>)", "type(<O!>).made += 1",
    "G_LIST.append(<I>)", "G_DICT[<Q>] = <I>", "G_TENSOR.add_(<F>)", "G_DICT.setdefault('s', []).append(<I>)",
    "Node.LIMIT = <I>", "G_NODE.w = <T>", "G_NODE.n += 1", "bump(<I>)", "record(<I>)", "record(<Q>)",
    "G_LIST[:] = G_LIST[-3:]", "remember(<T>)", "print(<I>)", "print(<Q>, <I>, sep='-')", "print(<LI>)",
    "print('t', <T>)", "print(f'{<Q>} {<I>}', end='|')", "print(<DI>)", "warnings.warn(<Q>)",
    "warnings.warn('fixed', DeprecationWarning)", "warnings.warn(f'w{<I>}')", "logger.info('%s', <I>)",
    "logger.warning(<Q>)", "assert <B>, <Q>", "assert <I> >= 0", "<new I>, <new I> = <I>, <I>",
    "<new I>, *<new LI> = [<I>, *<LI>]", "[<new T>, <new T>] = [<T>, <T>]",
    "(<new T>, <new I>), <new Q> = (<T>, <I>), <Q>", "*<new LI>, <new I> = <LI>", "<new T>, <new I>, <new Q> = <NT>",
    "<new T> = <new T> = <T>", "for <O!>.n in range(2): pass", "torch.set_grad_enabled(<B>)", "walk(<O!>)",
    "fill(<LT!>, <T>)", "shuffle(<DI!>)", "disabled_effect(<LI!>)", "opaque(<T!>)", "graph_break()", "note(<LI!>, <I>)",
    "<O!>.w, <O!>.n = <T>, <I>", "next(<G!>, None)", "use(<G!>)",
)  # fmt: skip

RAISES = (
    "raise ValueError(<Q>)", "raise Boom(<I>)", "raise Bang(<I>, <Q>)", "raise KeyError(<Q>)", "raise RuntimeError",
    "raise IndexError('i') from None", "raise Boom(<Q>) from ValueError(<I>)", "raise StopIteration", "int('x')",
    "[][1]", "{}['k']", "None.field", "1 / (<I> * 0)", "raise Bang", "torch.ones(2) + torch.ones(3)",
    "assert not 1, <Q>", "<T!>.view(3)", "next(iter(()))", "twice()", "<I> + <Q>",
)  # fmt: skip

CATCHES = (
    "ValueError", "Boom", "Bang", "(ValueError, KeyError)", "Exception", "LookupError", "RuntimeError",
    "ArithmeticError", "(TypeError, AttributeError)", "StopIteration", "BaseException", "AssertionError", "Exception",
)  # fmt: skip

CONTEXTS = (
    "torch.no_grad()", "torch.enable_grad()", "Ctx(G_LIST, <I>)", "Ctx(<LI!>, 1, swallow=True)", "managed(<LI!>)",
    "managed(G_LIST, True)", "suppress(ValueError, KeyError)", "suppress(Exception)", "nullcontext(<I>) as <new I>",
    "Ctx(G_LIST, <I>) as <new I>", "managed(<LI!>) as <new I>", "Ctx(G_LIST, 1), managed(G_LIST)",
    "torch.set_grad_enabled(<B>)", "guarded(<O!>) as <new O>", "redirected(<LI!>) as <new LI>",
)  # fmt: skip

#: (iterable, targets)
LOOPS = (
    ("range(3)", "<new I>"), ("range(<I> % 4)", "<new I>"), ("<LI>", "<new I>"), ("list(<LI!>)", "<new I>"),
    ("<LT>", "<new T>"), ("enumerate(<LT>)", "<new I>, <new T>"), ("<DI>.items()", "<new Q>, <new I>"),
    ("list(<DT>.items())", "<new Q>, <new T>"), ("zip(<LI>, <LT>)", "<new I>, <new T>"),
    ("numbers(<I> % 4)", "<new I>"), ("sorted(<SI>)", "<new I>"), ("<DI>", "<new Q>"), ("reversed(<LI>)", "<new I>"),
    ("<M>", "<new T>"), ("itertools.islice(<G!>, 3)", "<new I>"), ("<O>", "<new I>"),
    ("itertools.product([0, 1], <LI>[:2])", "<new I>, <new I>"), ("<DQ>.copy()", "<new T>"), ("Steps(3)", "<new I>"),
    ("enumerate(<Q>, 1)", "<new I>, <new Q>"), ("itertools.pairwise(<LI>)", "<new I>, <new I>"),
    ("[(<I>, [<I>, <I>])]", "<new I>, (<new I>, *<new LI>)"), ("<M>.shape", "<new I>"),
    ("itertools.zip_longest(<LI>, 'ab')", "<new I>, <new Q>"), ("map(operator.neg, <LI>)", "<new I>"),
    ("tuple(<OD>.items())", "<new Q>, <new T>"), ("<T>.tolist()", "<new F>"),
)  # fmt: skip

#: (subject, patterns: (pattern, guard or "")); names bound with `<new K>`.
MATCHES = (
    ("<I>", ("0", "1 | 2", "<new I> if <B>", "int(<new I>)", "-1")),
    ("<LI>", ("[]", "[<new I>]", "[<new I>, *<new LI>]", "[1, _, *_]", "list()")),
    ("<DI>", ("{'a': <new I>}", "{'b': 2, **<new DI>}", "{}")),
    ("<O>", ("Leaf(n=<new I>)", "Node(<new T>, 2)", "Node(n=<new I>, child=None)", "Node()")),
    ("<R>", ("Record(<new T>, 1)", "Record(n=<new I>)", "Marked()")),
    ("<Q>", ("'a' | 'b'", "str(<new Q>)", "''")),
    ("(<I>, <Q>)", ("(1, <new Q>)", "(<new I>, 'a')", "(<new I>, <new Q>)")),
    ("<NT>", ("Pair(<new T>, <new I>, 'a')", "(_, <new I>, <new Q>)")),
)  # fmt: skip

#: Several lines at once: what single lines do not bring about.
SNIPPETS = (
    "for key in <DI!a>:\n    <DI!a>[key + 'x'] = <I>\n    break",
    "for key in list(<DI!a>):\n    del <DI!a>[key]",
    "for key in <DI!a>:\n    <DI!a>.pop(key)",
    "for key, v in <DI!a>.items():\n    <DI!a>[key] = v + 1",
    "for v in <LI!a>:\n    <LI!a>.append(v)\n    if len(<LI!a>) > 5: break",
    "for v in <LI!a>:\n    <LI!a>.remove(v)",
    "for t in <DQ!a>:\n    <DQ!a>.append(t)",
    "for v in <SI!a>:\n    <SI!a>.discard(v)",
    "for v in <SI!a>: <LI!b>.append(v)",
    "<new LI> = [f(1) for f in [lambda n: n + k for k in range(3)]]",
    "<new LI> = [f(1) for f in [lambda n, k=k: n + k for k in range(3)]]",
    "view = <DI!a>.keys()\n<DI!a>['late'] = <I>\n<new LI> = [len(view), 'late' in view]",
    "values = <DT!a>.values()\n<DT!a>['late'] = <T>\n<new I> = len(list(values))",
    "it = iter(<LI!a>)\n<new I> = next(it, 0)\n<LI!a>.append(<I>)\n<new LI> = list(it)",
    "gen = numbers(3)\n<new I> = next(gen)\n<new I> = gen.send(<I>)\ngen.close()\n<new LI> = list(gen)",
    "gen = chained(3)\nnext(gen)\ntry:\n    gen.throw(Boom(<I>))\nexcept Boom as boom:\n    G_SEEN.append(boom.args)",
    "def kept():\n    try:\n        return <I>\n    finally:\n        G_SEEN.append(<I>)\n<new I> = kept()",
    "def hidden():\n    try:\n        raise Boom(<I>)\n    finally:\n        return <I>\n<new I> = hidden()",
    "def looped():\n    for k in range(4):\n        try:\n            if k == <I>: continue\n            if k == 2: return k\n"
    "        finally:\n            G_SEEN.append(k)\n    return -1\n<new I> = looped()",
    "for k in range(3):\n    with Ctx(G_LIST, k):\n        if k == <I>: break\n        if k == 1: continue\n        <T!>.add_(k)",
    "with contextlib.ExitStack() as stack:\n    stack.callback(G_SEEN.append, <I>)\n    stack.enter_context(Ctx(G_LIST, 3))\n    <T!>.add_(1)",
    "try:\n    try:\n        raise Boom(<I>)\n    except Boom as inner:\n        raise ValueError(<Q>) from inner\nexcept ValueError as outer:\n"
    "    print(type(outer.__cause__).__name__, outer.__cause__.args, outer)",
    "try:\n    try:\n        {}[<Q>]\n    finally:\n        int('no')\nexcept ValueError as outer:\n    print(type(outer.__context__).__name__)",
    "error = None\ntry:\n    raise Bang(<I>, <Q>)\nexcept Boom as caught:\n    error = caught\nprint(error.code, error.args, str(error))",
    "<new T> = <T!a>\n<new T> = <T!a>[1:]\n<T!a>.add_(<F>)",
    "both = (<T!a>, <T!a>.view(2, 2))\nboth[1].mul_(<F>)\n<new T> = both[0] + 1",
    "<T!a>.note = <I>\n<new I> = <T!a>.note + 1",
    "<O!a>.child = <O!b>\n<O!b>.child = <O!a>\nwalk(<O!a>)\n<O!a>.child = None",
    "class Local:\n    size = <I>\n    def __init__(self, n): self.n = n + self.size\n<new I> = Local(<I>).n",
    "class Shaped(Node):\n    def kind(self, n): return super().kind(n) + 5\n<new I> = Shaped(<T>, 1).kind(2)",
    "count = 0\ndef step():\n    nonlocal count\n    count += 1\n    return count\n<new LI> = [step() for _ in range(3)]\n<new I> = count",
    "def gen():\n    got = yield 1\n    while got:\n        got = yield got * 2\n    return 'end'\n"
    "g = gen()\n<new LI> = [next(g), g.send(3), g.send(4)]\n"
    "try:\n    g.send(0)\nexcept StopIteration as stop:\n    <new Q> = stop.value",
    "if (n := len(<LI!a>)) > 1 and <LI!a>.append(n) is None and n > <I>:\n    <LI!a>.pop(0)",
    "<LI!a>.sort(key=lambda v: G_SEEN.append(v) or -v)",
    "a, b = 1, 2\na, b = b, a + b\n<new LI> = [a, b]",
    "a = b = []\na.append(<I>)\n<new LI> = b",
    "rows = [[0] * 2] * 2\nrows[0][1] = <I>\n<new LI> = rows[1]",
    "rows = [<LI!a>, <LI!a>[:]]\nrows[0].append(<I>)\nrows[1].append(<I>)\n<new LI> = rows[1]",
    "table = {'k': <LT!a>}\ntable['k'].append(<T>)\ntable.setdefault('z', <LT!a>)[0] = <T>",
    "t = <T!a>\nt = t + 1\nt += 1\n<new T> = t",
    "x, y = <T!a>, <T!a>\nx += 1\n<new T> = y * 2",
    "n = <I>\nwhile True:\n    n += 1\n    if not n % 3 >= 1: break\nelse:\n    n = -100\n<new I> = n",
    "total = <T!a>.sum()\nif total > 0:\n    <T!a>.sub_(1)\nelif total < -1:\n    <LI!b>.append(7)\nelse:\n    <T!a>.add_(1)",
    "for k in range(3):\n    if <T!a>.sum() > 2: break\n    <T!a>.add_(1)\n    <LI!b>.append(k)\nelse:\n    <LI!b>.append(-1)",
    "n = int(<T!a>.sum())\n<new T> = <T!a> * n\n<LI!b>.append(n)",
    "mask = <T!a> > 0\n<new T> = <T!a>[mask].sum() + <T!a>\n<new I> = int(mask.sum())",
    "with torch.no_grad():\n    inner = <T!a> * 2\n    <LI!b>.append(torch.is_grad_enabled())\n    native(inner)\n    <new T> = inner + 1",
    "del <LI!a>[-1:]\nlast = <LI!a>[-1:] or [0]\n<new I> = last[0]",
    "name = 'n'\nif hasattr(<O!a>, name):\n    setattr(<O!a>, name, getattr(<O!a>, name) + 1)",
    "before = vars(<O!a>).copy()\n<O!a>.n = <I>\n<new I> = len(before) + before['n']",
    "temp = <I>\ndel temp\ntry:\n    temp\nexcept NameError as error:\n    G_SEEN.append(str(error))",
    "print('a', end='')\nnative(<T>)\nprint('b')\nwarnings.warn('between')\nG_LIST.append(1)\nopaque(<T>)\nprint('c', len(G_LIST))",
    "keep = lambda *a, k=<LI!a>, **m: (a, k, m)\nkeep(1, z=2)[1].append(<I>)\n<new I> = len(keep()[1])",
    "word = {1: 'one', 2.0: 'two', True: 'yes', (1, 'a'): 'pair', None: 'none'}\n<new Q> = word[1] + word[2] + word[1, 'a'] + word.get(None)",
    "ordered = sorted([(<I>, 'b'), (<I>, 'a')], key=operator.itemgetter(1))\n<new I> = ordered[0][0]",
    "*head, tail = [<I>, <I>, <I>]\n<new LI> = head + [tail]",
    "f = functools.partial(spread, <T>, base=<T>)\n<new T> = f(k=<I>)\n<new I> = len(f.args) + len(f.keywords)",
    "groups = {k: list(g) for k, g in itertools.groupby(sorted(<LI!a>), key=lambda v: v % 2)}\n<new I> = len(groups)",
    "best = max(<LI!a> or [0], key=lambda v: (v % 3, v))\n<new I> = best",
    "text = f'{<I>:03d}|{<F>:.1f}|{<Q>!r:>6}|{<LI!a>}|{<T!b>.shape}'\nprint(text)",
    "chars = ''.join(reversed(<Q>)).partition('a')\n<new Q> = chars[0] + chars[2]",
    "it = zip(<LI!a>, itertools.count())\n<new LI> = [a * b for a, b in it]",
    "first, second = itertools.tee(iter(<LI!a>))\n<new LI> = [next(first, 0), *second]",
    "c = Counter(<LI!a>)\nc.update([1, 1])\nc[5] -= 1\n<new I> = sum(c.values())",
    "od = OrderedDict(<DI!a>)\nod['new'] = <I>\nod.move_to_end(next(iter(od)))\n<new LI> = list(od.values())",
    "dd = defaultdict(lambda: <I>)\ndd['x'] += 1\n<new I> = dd['x'] + dd['y'] + len(dd)",
    "d = deque(<LI!a>, maxlen=2)\nd.appendleft(<I>)\nd.extend([8, 9])\n<new LI> = list(d)",
    "p = <NT!a>\nx, n, tag = p\n<new I> = p.n + p._asdict()['n'] + p.index(n)",
    "s = slice(<I>, None, 2)\n<new LI> = <LI!a>[s]\n<new T> = <T!b>[slice(0, 4)]",
    "bits = [b for b in (<B>, <B>, <B>) if b]\n<new I> = sum(bits) if bits else -1",
    "old = torch.is_grad_enabled()\ntorch.set_grad_enabled(False)\n<new T> = native(<T>)\ntorch.set_grad_enabled(old)",
)  # fmt: skip
