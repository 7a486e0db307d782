"""A seed → the source text of a valid, terminating Python program.

The text defines `program`, the callable under test; `make_inputs(case)`, its arguments for a case; and `peek()`, what
the closure of `program` holds. Statements grow from the templates of `grammar`; names know their kinds, so that most
statements make sense. Those that fail when run are as welcome: they raise, in eager and compiled.
"""

from __future__ import annotations

import ast
import random
import re
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.fuzz.python import grammar
from tests.fuzz.python.library import library

HOLE = re.compile(r"<(new )?([A-Z]{1,2})(!?)(\w*)>")
RISKY = re.compile(r"\['a'\]|\[-?[01]\]|\[<[IQ]>\]|pop|extra|missing|remove|index\(|next\(<G!>\)|// <I>|% 3\)|ord")

#: Arguments by kind; `case` is 0, 1 or 2.
INPUTS = {
    "T": (
        "torch.tensor([1.0, -2.0, 0.5, 3.0]) * (1 - 2 * (case == 2))", "torch.arange(4.0) + case",
        "torch.full((4,), 1.5 - case)", "torch.ones(8)[::2]", "torch.ones(4).requires_grad_(case == 1)",
    ),
    "M": ("torch.arange(8.0).reshape(2, 4) - case", "torch.ones(4, 2).t()"),
    "S": ("torch.tensor(0.5 - case)", "torch.tensor(2.0)"),
    "I": ("3 - case", "case", "2", "-1", "case * 5"),
    "F": ("0.5", "1.5 - case", "float(case)"),
    "B": ("case != 1", "True", "case == 2"),
    "Q": ("'a'", "'abc'[case]", "'key'"),
    "LI": ("[1, 2, 3][: 3 - case]", "[case, 4, 1]", "[]"),
    "LT": ("[torch.ones(4), torch.arange(4.0)]", "[torch.ones(4)] * (case + 1)"),
    "DI": ("{'a': 1, 'b': case}", "{'a': 2} if case else {'b': 1}"),
    "DT": ("{'a': torch.ones(4), 'key': torch.zeros(4)}",),
    "SI": ("{1, 2, case}",),
    "DQ": ("deque([torch.ones(4), torch.zeros(4)], maxlen=3)",),
    "DD": ("defaultdict(list, a=[1])",),
    "OD": ("OrderedDict(a=torch.ones(4), b=torch.zeros(4))",),
    "CT": ("Counter('abca')",),
    "NT": ("Pair(torch.ones(4) - case, case, 'a')",),
    "O": (
        "Node(torch.ones(4), 2 - case, [1, 2])", "Leaf(torch.ones(4) - case, 1)",
        "Node(torch.ones(4), case, child=Leaf(torch.ones(4), 2))",
    ),
    "R": ("Record(torch.ones(4), case, ['r'])", "Marked(torch.ones(4))"),
    "G": ("iter([1, 2, 3])", "iter({'a': 1}.values())", "numbers(3)", "iter(range(case + 1))"),
}  # fmt: skip


@dataclass
class Function:
    """A callable that expressions may use."""

    name: str
    parameters: list[tuple[str, str]]  # (how it is passed, kind)
    kind: str


@dataclass
class Scope:
    """The names of one function, block by block."""

    blocks: list[list[tuple[str, str]]] = field(default_factory=lambda: [[]])
    functions: list[Function] = field(default_factory=list)
    outer: list[tuple[str, str]] = field(default_factory=list)  # declared nonlocal: may be assigned
    loops: int = 0


class Generator:
    def __init__(self, seed: int, size: int) -> None:
        self.rng = random.Random(seed)
        self.budget = size
        self.lines: list[str] = []
        self.indent = 0
        self.scopes: list[Scope] = []
        self.count = 0
        self.pending: list[tuple[str, str]] = []
        self.daring = self.rng.choice((0.02, 0.1, 0.4))  # how often templates are used that easily raise
        self.joined = False  # the line goes on a statement: none may come before it

    # ------------------------------------------------------------ text and names

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind.lower()}{self.count}"

    def declare(self, name: str, kind: str) -> None:
        self.scopes[-1].blocks[-1].append((name, kind))

    def names(self, kind: str, own: bool = False) -> list[str]:
        found = []
        for scope in self.scopes[-1:] if own else self.scopes:
            found += [n for block in scope.blocks for n, k in block if k == kind]
        return found + [n for n, k in self.scopes[-1].outer if k == kind]

    def variable(self, kind: str) -> str:
        """A variable of the kind; one is made before the statement where there is none."""
        found = self.names(kind)
        if found:
            return self.rng.choice(found[-4:] if self.rng.random() < 0.6 else found)
        name = self.fresh(kind)
        if self.joined:
            return self.rng.choice(self.names("T") or ["G_TENSOR"])
        self.emit(f"{name} = {self.rng.choice(grammar.LEAVES[kind])}")
        self.declare(name, kind)
        return name

    def some_kind(self) -> str:
        kinds = grammar.KINDS
        return self.rng.choices(kinds, [grammar.WEIGHTS[k] for k in kinds])[0]

    # ------------------------------------------------------------ expressions

    def expression(self, kind: str, depth: int) -> str:
        rng = self.rng
        names = self.names(kind)
        if names and rng.random() < (0.6 if depth > 0 else 0.92):
            return rng.choice(names[-5:])
        if depth <= 0:
            return rng.choice(grammar.LEAVES[kind])
        functions = [f for scope in self.scopes for f in scope.functions if f.kind == kind]
        if functions and rng.random() < 0.3:
            return self.call(rng.choice(functions), depth - 1)
        return self.fill(self.pick(grammar.EXPRESSIONS[kind]), depth - 1)

    def pick(self, templates: tuple[str, ...]) -> str:
        """A template; those that often raise, less often."""
        for _ in range(3):
            found = self.rng.choice(templates)
            if not RISKY.search(found) or self.rng.random() < self.daring:
                break
        return found

    def call(self, function: Function, depth: int) -> str:
        parts = []
        for style, kind in function.parameters:
            if style.startswith("=") and self.rng.random() < 0.5:
                continue
            value = self.expression(kind, depth)
            named = style.startswith("=") or style.startswith("!")
            parts.append(f"{style[1:]}={value}" if named else f"*({value},)" if style == "*" else value)
        return f"{function.name}({', '.join(parts)})"

    def fill(self, template: str, depth: int) -> str:
        kept: dict[str, str] = {}

        def hole(match: re.Match[str]) -> str:
            new, kind, variable, name = match.groups()
            if new:
                made = self.fresh(kind)
                self.pending.append((made, kind))
                return made
            if variable:
                found = self.variable(kind)
                return kept.setdefault(name, found) if name else found
            return self.expression(kind, depth)

        text = HOLE.sub(hole, template)
        return text

    def line(self, template: str, depth: int = 2, prefix: str = "", suffix: str = "") -> None:
        """A statement from a template; one that Python's grammar refuses is tried anew."""
        self.joined = prefix.startswith(("elif", "case"))
        for _ in range(5):
            self.pending = []
            text = self.fill(template, depth)
            if _parses(text, prefix):
                break
        else:
            text, self.pending = "[]" if prefix else "pass", []
        self.joined = False
        self.emit(prefix + text + suffix)
        for name, kind in self.pending:
            self.declare(name, kind)
        self.pending = []

    # ------------------------------------------------------------ statements

    @contextmanager
    def block(self):
        self.indent += 1
        self.scopes[-1].blocks.append([])
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.emit("pass")
        self.scopes[-1].blocks.pop()
        self.indent -= 1

    def body(self, depth: int, count: int) -> None:
        for _ in range(count):
            if self.budget <= 0:
                return
            self.budget -= 1
            self.statement(depth)

    def statement(self, depth: int) -> None:
        rng = self.rng
        roll = rng.random()
        if roll < 0.38:
            self.assignment()
        elif roll < 0.64 or depth <= 0:
            self.line(self.pick(grammar.STATEMENTS))
        elif roll < 0.8:
            self.snippet()
        elif roll < 0.82:
            self.leave()
        else:
            getattr(self, rng.choice(COMPOUND))(depth - 1)

    def snippet(self) -> None:
        template = self.rng.choice(grammar.SNIPPETS)
        for _ in range(5):
            self.pending = []
            text = self.fill(template, 1)
            if _compiles("def f():\n" + textwrap.indent(text, "    ")):
                for line in text.splitlines():
                    self.emit(line)
                for name, kind in self.pending:
                    self.declare(name, kind)
                break
        self.pending = []

    def assignment(self) -> None:
        kind = self.some_kind()
        own = self.names(kind, own=True)
        if own and self.rng.random() < 0.4:
            name = self.rng.choice(own)
            self.line(f"<{kind}>", 3, f"{name} = ")
            return
        name = self.fresh(kind)
        self.line(f"<{kind}>", 3, f"{name} = ")
        self.declare(name, kind)

    def leave(self) -> None:
        """Something that ends the block, mostly under a condition."""
        choices = ["raise", "raise", "return"] + (["break", "continue"] * 2 if self.scopes[-1].loops else [])
        what = self.rng.choice(choices)
        if self.rng.random() < 0.8:
            self.line("<B>", 1, "if ", ":")
        else:
            self.emit("if True:")
        with self.block():
            if what == "return":
                self.line(self.result(), 1, "return ")
            else:
                self.line(self.rng.choice(grammar.RAISES) if what == "raise" else what, 1)

    def result(self) -> str:
        return self.scopes[-1].result if hasattr(self.scopes[-1], "result") else "<T>"

    def branch(self, depth: int) -> None:
        self.line("<B>", 2, "if ", ":")
        with self.block():
            self.body(depth, self.rng.randint(1, 3))
        if self.rng.random() < 0.3:
            self.line("<B>", 1, "elif ", ":")
            with self.block():
                self.body(depth, self.rng.randint(1, 2))
        if self.rng.random() < 0.5:
            self.emit("else:")
            with self.block():
                self.body(depth, self.rng.randint(1, 2))

    def loop(self, depth: int) -> None:
        iterable, targets = self.rng.choice(grammar.LOOPS)
        self.pending = []
        with_names = self.fill(targets, 0)
        fresh, self.pending = self.pending, []
        self.line(iterable, 1, f"for {with_names} in ", ":")
        with self.block():
            for name, kind in fresh:
                self.declare(name, kind)
            fuel = self.fresh("fuel")
            self.lines.insert(self._before_block(), "    " * (self.indent - 1) + f"{fuel} = 0")
            self.emit(f"{fuel} += 1")
            self.emit(f"if {fuel} > 4: break")
            self._loop_body(depth)
        self._loop_else(depth)

    def _before_block(self) -> int:
        """The index of the line that opens the block just begun."""
        return len(self.lines) - 1

    def _loop_body(self, depth: int) -> None:
        self.scopes[-1].loops += 1
        self.body(depth, self.rng.randint(1, 3))
        self.scopes[-1].loops -= 1

    def _loop_else(self, depth: int) -> None:
        if self.rng.random() < 0.2:
            self.emit("else:")
            with self.block():
                self.body(depth, 1)

    def while_loop(self, depth: int) -> None:
        fuel = self.fresh("fuel")
        self.emit(f"{fuel} = {self.rng.randint(1, 4)}")
        self.line("<B>", 2, f"while {fuel} > 0 and (", "):")
        with self.block():
            self.emit(f"{fuel} -= 1")
            self._loop_body(depth)
        self._loop_else(depth)

    def attempt(self, depth: int) -> None:
        rng = self.rng
        self.emit("try:")
        with self.block():
            self.body(depth, rng.randint(1, 2))
            if rng.random() < 0.5:
                self.line(rng.choice(grammar.RAISES), 1)
        handlers = rng.sample(grammar.CATCHES, rng.choice((0, 1, 1, 1, 2)))
        for kind in sorted(handlers, key=lambda h: h in ("Exception", "BaseException")):
            name = f"e{self.count}" if rng.random() < 0.4 else ""
            self.emit(f"except {kind}{f' as {name}' if name else ''}:")
            with self.block():
                if name and rng.random() < 0.6:
                    self.emit(rng.choice(REPORTS).format(e=name))
                self.body(depth, rng.randint(0, 2))
                if rng.random() < 0.15:
                    again = ("raise", f"raise Boom(3) from {name or None}", "raise RuntimeError('again')")
                    self.emit(rng.choice(again))
        if handlers and rng.random() < 0.3:
            self.emit("else:")
            with self.block():
                self.body(depth, 1)
        if not handlers or rng.random() < 0.3:
            self.emit("finally:")
            with self.block():
                self.body(depth, rng.randint(1, 2))

    def within(self, depth: int) -> None:
        self.line(self.rng.choice(grammar.CONTEXTS), 1, "with ", ":")
        with self.block():
            self.body(depth, self.rng.randint(1, 3))
            if self.rng.random() < 0.15:
                self.line(self.rng.choice(grammar.RAISES), 1)

    def choose(self, depth: int) -> None:
        subject, patterns = self.rng.choice(grammar.MATCHES)
        self.line(subject, 2, "match ", ":")
        with self.block():
            for pattern in self.rng.sample(patterns, self.rng.randint(1, min(3, len(patterns)))):
                with self.case(pattern):
                    self.body(depth, self.rng.randint(1, 2))
            if self.rng.random() < 0.5:
                self.emit("case _:")
                with self.block():
                    self.body(depth, 1)

    @contextmanager
    def case(self, pattern: str):
        self.scopes[-1].blocks.append([])
        self.line(pattern, 0, "case ", ":")
        with self.block():
            yield
        self.scopes[-1].blocks.pop()

    # ------------------------------------------------------------ functions

    def nested(self, depth: int) -> None:
        """A function inside, which reads and writes the variables around it."""
        rng = self.rng
        name, kind = self.fresh("fn"), rng.choice(("T", "T", "I", "LT", "LI", "O", "Q"))
        self.function(name, kind, depth, rng.randint(1, 4), generator=rng.random() < 0.12)

    def function(self, name: str, kind: str, depth: int, count: int, generator: bool = False) -> None:
        rng = self.rng
        parameters, header = self._parameters()
        for decorator in rng.choices(((), ("logged",), ("torch.no_grad()",), ("dovetail.disable",)), (85, 7, 5, 3))[0]:
            self.emit(f"@{decorator}")
        self.emit(f"def {name}({header}):")
        outside = [(n, k) for s in self.scopes[-1:] for b in s.blocks for n, k in b if k in ("T", "I", "Q", "LI", "S")]
        self.scopes.append(Scope())
        self.indent += 1
        self.scopes[-1].result = f"<{kind}>"  # type: ignore[attr-defined]
        for n, k in parameters_names(header, parameters):
            self.declare(n, k)
        written = rng.sample(outside, min(len(outside), rng.choice((0, 0, 1, 2)))) if len(self.scopes) > 2 else []
        if written:
            self.emit(f"nonlocal {', '.join(dict.fromkeys(n for n, _ in written))}")
            self.scopes[-1].outer = written
        if generator:
            self.emit(f"yield {rng.choice(grammar.LEAVES['I'])}")
            self.body(depth, 2)
            self.line("<I>", 1, "yield ")
        else:
            self.body(depth, count)
            self.line(f"<{kind}>", 2, "return ")
        self.indent -= 1
        self.scopes.pop()
        if generator:
            self.scopes[-1].functions.append(Function(name, parameters, "G"))
        else:
            self.scopes[-1].functions.append(Function(name, parameters, kind))

    def _parameters(self) -> tuple[list[tuple[str, str]], str]:
        """How each is passed, and the text of the parameter list."""
        rng = self.rng
        parameters, text = [], []
        for _ in range(rng.randint(0, 2)):
            kind = self.some_kind()
            parameters.append(("", kind))
            text.append(self.fresh(kind))
        if rng.random() < 0.35:
            kind = rng.choice(("I", "Q", "F", "LI"))
            name = self.fresh(kind)
            parameters.append((f"={name}", kind))
            text.append(f"{name}={rng.choice(grammar.LEAVES[kind])}")
        elif rng.random() < 0.15:
            name = self.fresh("LT")
            parameters.append(("*", "T"))
            text.append(f"*{name}")
        if rng.random() < 0.15:
            kind = rng.choice(("I", "T"))
            name = self.fresh(kind)
            parameters.append((f"!{name}", kind))
            text += ([] if any(t.startswith("*") for t in text) else ["*"]) + [name]
        return parameters, ", ".join(text)


def parameters_names(header: str, parameters: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The parameters that the body knows as variables (not `*rest`, which is a tuple)."""
    arguments = ast.parse(f"def f({header}): pass").body[0].args  # type: ignore[attr-defined]
    names = [a.arg for a in (*arguments.args, *([arguments.vararg] if arguments.vararg else []), *arguments.kwonlyargs)]
    return [(n, k) for n, (how, k) in zip(names, parameters, strict=True) if how != "*"]


def _parses(text: str, prefix: str) -> bool:
    tail = {"for": " pass", "if ": " pass", "whi": " pass"}.get(prefix[:3])
    if prefix.startswith(("match", "case", "elif", "with")):
        probe = text if prefix.startswith("match") else "0"
    elif tail is not None:
        probe = f"{prefix}{text}{')' if prefix.startswith('while') else ''}:{tail}"
    else:
        probe = prefix + text
    return _compiles("def f():\n    for _ in ():\n        " + probe.replace("\n", " "))


def _compiles(text: str) -> bool:
    try:
        compile(text, "<probe>", "exec")
    except SyntaxError:
        return False
    return True


COMPOUND = (
    *("branch",) * 6, *("loop",) * 5, *("while_loop",) * 2, *("attempt",) * 4, *("within",) * 3, *("choose",) * 2,
    *("nested",) * 4,
)  # fmt: skip
#: What a handler does with its exception.
REPORTS = (
    "print(type({e}).__name__, {e}.args)", "G_SEEN.append(str({e}))", "G_SEEN.append(repr({e}))",
    "G_SEEN.append(type({e}.__context__).__name__)",
)  # fmt: skip


def generate(seed: int) -> str:
    """The source text of program number `seed`."""
    rng = random.Random(seed * 7919 + 13)
    made = Generator(seed, rng.randint(4, 22))
    kinds = [made.some_kind() for _ in range(rng.randint(1, 4))]
    kinds[0] = "T" if rng.random() < 0.8 else kinds[0]
    parameters = [(f"p{k}", kind) for k, kind in enumerate(kinds)]
    closed = [(f"c{k}", made.some_kind()) for k in range(rng.choice((0, 0, 1, 2)))]
    made.scopes.append(Scope())
    for _ in range(rng.choice((0, 0, 1))):
        made.function(made.fresh("helper"), rng.choice(("T", "I", "LI")), 1, 2)
    made.emit("def build():")
    made.scopes.append(Scope())
    made.indent += 1
    for name, kind in closed:
        made.emit(f"{name} = {rng.choice(grammar.LEAVES[kind])}")
        made.declare(name, kind)
    if closed:
        _program(made, rng, parameters, closed)
    else:
        _program(made, rng, parameters, [])
    made.emit(f"return program, lambda: ({''.join(f'{n}, ' for n, _ in closed)})")
    made.indent -= 1
    made.emit("program, peek = build()")
    return library(rng) + "\n" + "\n".join(made.lines) + "\n" + _inputs(rng, parameters)


def _program(
    made: Generator, rng: random.Random, parameters: list[tuple[str, str]], closed: list[tuple[str, str]]
) -> None:
    made.emit(f"def program({', '.join(n for n, _ in parameters)}):")
    made.indent += 1
    made.scopes.append(Scope())
    made.scopes[-1].result = "<T>"  # type: ignore[attr-defined]
    for name, kind in parameters:
        made.declare(name, kind)
    written = [(n, k) for n, k in closed if rng.random() < 0.6]
    if written:
        made.emit(f"nonlocal {', '.join(n for n, _ in written)}")
        made.scopes[-1].outer = written
    if rng.random() < 0.15:
        made.emit("global G_COUNT, G_TENSOR")
        made.scopes[-1].outer = [*written, ("G_COUNT", "I"), ("G_TENSOR", "T")]
    made.body(3, made.budget)
    visible = [n for block in made.scopes[-1].blocks for n, k in block if k != "G" or rng.random() < 0.5]
    chosen = rng.sample(visible, min(len(visible), rng.randint(1, 5)))
    form = rng.choice(("{}, ", "[{}]", "{{'r': ({},)}}", "({},)", "Pair(({},), 1)")) if len(chosen) > 1 else "{}"
    made.emit(f"return {form.format(', '.join(chosen))}".rstrip().rstrip(",") or "return")
    made.scopes.pop()
    made.indent -= 1


def _inputs(rng: random.Random, parameters: list[tuple[str, str]]) -> str:
    lines, seen = ["def make_inputs(case):"], {}
    for name, kind in parameters:
        text = rng.choice(INPUTS[kind])
        if kind in seen and rng.random() < 0.25:
            text = seen[kind]  # the same object twice
        elif kind == "T" and "T" in seen and rng.random() < 0.15:
            text = f"{seen['T']}.detach()[:]"
        elif kind == "LT" and "T" in seen and rng.random() < 0.3:
            text = f"[{seen['T']}, {seen['T']}]"
        seen[kind] = name
        lines.append(f"    {name} = {text}")
    lines.append(f"    return ({''.join(n + ', ' for n, _ in parameters)})")
    return "\n".join(lines) + "\n"
