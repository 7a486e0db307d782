"""Which buffers an item reads and writes, and when each buffer is last needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dovetail.ir import loops


def nodes(roots: list[loops.Expr]) -> Iterator[loops.Expr]:
    """Every distinct expression reachable from `roots`, run-time indices included."""
    seen: set[loops.Expr] = set()
    stack = list(roots)
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        yield expr
        stack.extend(expr.parts)


def unknown(root: loops.Expr, known: Callable[[loops.Expr], Any], below: Callable[[loops.Expr], Any]) -> Iterator[Any]:
    """The expressions in `root` that are not `known` yet, each after those `below` it; iterative, as chains may be
    deep. A reader makes each of them known."""
    stack, opened = [root], set()
    while stack:
        node = stack[-1]
        if known(node) is not None:
            stack.pop()
        elif node in opened:
            stack.pop()
            yield node
        else:
            opened.add(node)
            stack.extend(part for part in below(node) if known(part) is None)


def statement_roots(statement: loops.Store | loops.Reduce | loops.Check) -> list[loops.Expr]:
    """The expressions that a statement evaluates."""
    if isinstance(statement, loops.Store):
        return [statement.value, *loops.value_exprs(statement.index)]
    return [statement.value if isinstance(statement, loops.Reduce) else statement.condition]


def loads_of(roots: list[loops.Expr]) -> Iterable[loops.Load]:
    """Every distinct Load reachable from `roots`."""
    if len(roots) == 1:
        return roots[0].loads
    return dict.fromkeys(load for root in reversed(roots) for load in root.loads)


def added_together(group: loops.Group) -> int:
    """How many things are added up together, in the loop where they are most."""
    return max((sum(isinstance(s, loops.Reduce) for s in loop.body) for loop in group.loops), default=0)


def loads(group: loops.Group) -> Iterable[loops.Load]:
    """Every distinct Load of a group."""
    return loads_of([root for statement in group.statements() for root in statement_roots(statement)])


def buffers(group: loops.Group) -> dict[str, loops.Buffer]:
    """Those that a group loads from and stores to, its own included, by name."""
    found: dict[str, loops.Buffer] = {}
    for statement in group.statements():
        for node in nodes(statement_roots(statement)):
            if isinstance(node, loops.Load):
                found.setdefault(node.buffer.name, node.buffer)
        if isinstance(statement, loops.Store):
            found.setdefault(statement.buffer.name, statement.buffer)
    return found


def leaves(value: Any) -> Iterator[Any]:
    """What tuples, lists and dictionaries hold, however deep."""
    found: list[Any] = []
    _gather((value,), found)
    return iter(found)


def _gather(values: Iterable[Any], found: list[Any]) -> None:
    for value in values:
        if isinstance(value, (tuple, list, dict)):
            _gather(tuple(value.values()) if isinstance(value, dict) else value, found)
        else:
            found.append(value)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same tuples and lists, holding what `change` makes of each leaf."""
    if isinstance(value, (tuple, list)):
        return type(value)([mapped(v, change) if isinstance(v, (tuple, list)) else change(v) for v in value])
    return change(value)


def references(value: Any) -> Iterator[loops.Buffer]:
    """Buffers mentioned in a library call's arguments."""
    return (leaf.buffer for leaf in leaves(value) if isinstance(leaf, loops.BufferRef))


def reads(item: loops.Item) -> Mapping[str, loops.Buffer]:
    """Buffers whose contents an item needs, by name."""
    return touched(item)[0]


def writes(item: loops.Item) -> Mapping[str, loops.Buffer]:
    """Buffers that an item defines, in whole or in part, by name."""
    return touched(item)[1]


def touched(item: loops.Item) -> tuple[Mapping[str, loops.Buffer], Mapping[str, loops.Buffer]]:
    """What an item reads and writes; of a group and a call it is found once."""
    known: tuple[Mapping[str, loops.Buffer], Mapping[str, loops.Buffer]] | None = getattr(item, "_touched", None)
    if known is not None:
        return known
    if isinstance(item, loops.View):
        return {item.base.name: item.base}, {item.result.name: item.result}
    if isinstance(item, loops.Batch):
        parts = [touched(group) for group in item.groups]
        read, written = ({name: b for part in parts for name, b in part[k].items()} for k in (0, 1))
        return read, written
    found = _of_group(item) if isinstance(item, loops.Group) else _of_call(item)
    object.__setattr__(item, "_touched", found)
    return found


def _of_group(group: loops.Group) -> tuple[dict[str, loops.Buffer], dict[str, loops.Buffer]]:
    local = {b.name for b in group.locals}
    stored = (s.buffer for s in group.statements() if isinstance(s, loops.Store))
    loaded = (load.buffer for load in loads(group))
    read, written = ({b.name: b for b in found if b.name not in local} for found in (loaded, stored))
    return read, written


def _of_call(call: loops.LibraryCall) -> tuple[dict[str, loops.Buffer], dict[str, loops.Buffer]]:
    given = references([call.args, dict(call.kwargs)])
    return {b.name: b for b in given}, {b.name: b for b in call.results if b is not None}


def output_buffers(program: loops.Program) -> dict[str, loops.Buffer]:
    """Buffers that outlive the program: returned ones and new values of mutated inputs."""
    found = {o.value.name: o.value for o in program.outputs if isinstance(o.value, loops.Buffer)}
    found.update((new.name, new) for _, new in program.mutated)
    return found


def view_roots(program: loops.Program) -> dict[str, str]:
    """name -> name of the buffer whose memory it really is (itself unless made by a View)."""
    roots: dict[str, str] = {}
    for item in program.items:
        if isinstance(item, loops.View):
            roots[item.result.name] = roots.get(item.base.name, item.base.name)
    return roots


def output_ends(program: loops.Program) -> list[int]:
    """For each output the position of the last item that touches its memory, or an input that comes before; -1 if none
    does."""
    roots = view_roots(program)
    touched = _touched(program, roots)

    def end(value: Any) -> int:
        return touched.get(roots.get(value.name, value.name), -1) if isinstance(value, loops.Buffer) else -1

    return [max(end(output.value), end(output.after)) for output in program.outputs]


def _touched(program: loops.Program, roots: Mapping[str, str]) -> dict[str, int]:
    """Position of the last item that touches each buffer's memory, through views too. `roots`: see `view_roots`."""
    return {
        roots.get(name, name): position
        for position, item in enumerate(program.items) for name in (*reads(item), *writes(item))
    }  # fmt: skip


def needed_later(program: loops.Program) -> list[tuple[int, ...]]:
    """For each bucket but the last one, which of the program's parameters are tensors that later items touch."""
    if not program.buckets:
        return []
    touched, given = _touched(program, view_roots(program)), program.parameters()
    return [
        tuple(k for k, each in enumerate(given) if touched.get(each.name, -1) > end and isinstance(each, loops.Buffer))
        for end in bucket_ends(program)[:-1]
    ]


def bucket_ends(program: loops.Program) -> list[int]:
    """For each bucket the position of the last item that touches the memory of its outputs, or of an earlier one's."""
    ends = output_ends(program) if program.buckets else []
    return list(itertools.accumulate((max(ends[k] for k in bucket) for bucket in program.buckets), max))


def last_uses(program: loops.Program) -> dict[str, int]:
    """Position of the last item that touches each buffer's memory, through views too."""
    roots = view_roots(program)
    last = _touched(program, roots)
    for name in output_buffers(program):
        last[roots.get(name, name)] = len(program.items)
    return last
