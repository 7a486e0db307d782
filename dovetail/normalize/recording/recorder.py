"""Records what PyTorch's operators do to fake tensors as a functional graph.

Every operator arrives here as eager would run it on that device, composite ones taken apart already, in-place ones and
views included. The graph gets functional ones; `aliases.py` keeps track of which tensors share memory. The same
recording serves `autograd.grad`, whose backward operators arrive alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx

from dovetail.errors import InternalError, Unsupported
from dovetail.ir.aten import CHECKPOINTED
from dovetail.ir.nodes import add_node
from dovetail.normalize.passes.literals import is_literal
from dovetail.normalize.recording.aliases import Base, Handle, TakenView, same_layout
from dovetail.normalize.recording.autograd_history import Lines
from dovetail.normalize.recording.conditional_views import COPYING, Copies
from dovetail.normalize.recording.cudnn_batch_norm import OF_CUDNN, of_cudnn
from dovetail.normalize.recording.functional_forms import (
    REWRITES,
    SILENT,
    Functional,
    functional,
    has_no_form,
    needed,
    silent,
)
from dovetail.normalize.recording.on_copies import launch, on_copies
from dovetail.normalize.recording.operator_calls import (
    absolute,
    accept_out,
    in_order,
    in_schema_order,
    node_name,
    out_of_place,
    own_results,
    placed,
    relative,
    replace_val,
    vals,
)
from dovetail.normalize.recording.view_inverses import laid_out, scatter, settled
from dovetail.ops.calls.foreach import apart, takes_list
from dovetail.ops.calls.fused_optimizers import fused, is_fused
from dovetail.ops.calls.schema import IDENTITY, Facts, bound, facts
from dovetail.ops.fake import FakeMode, FakeTensor, to_fake
from dovetail.ops.fake.infer import keeps_size, resized
from dovetail.ops.fake.rules.view_rules import from_the_front
from dovetail.ops.fake.symbolic.number import symbolic
from dovetail.ops.fake.symbolic.size_questions import all_same
from dovetail.ops.fake.symbolic.unbacked import keep_sizes
from dovetail.ops.fake.tensor import all_fake, run
from dovetail.ops.own.user_kernel import user_kernel
from dovetail.ops.table import row_of
from dovetail.options import Options

aten = torch.ops.aten
Node = torch.fx.Node
#: Operators whose results share the argument's memory although their schema does not say so.
_SHARING = {
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}
_BY_SIZES = (aten.view.default, aten._reshape_alias.default)
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float32, complex: torch.complex64}
_BUILT_IN = frozenset(("aten", "prims"))
_RESIZING = frozenset(("aten::set_", "aten::resize_", "aten::resize_as_"))


class AtenRecorder(FakeMode):
    """`graph` grows with every operator run inside. `stack` goes into each new node's meta, or what `lines` knows."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.options: Options | None = None  # of the program; None for what other graphs run
        self.handles: dict[int, Handle] = {}  # by id; the handle keeps its tensor alive
        self.inputs: list[Base] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.stack: Any = None
        self.lines = Lines()
        self.outs: frozenset[Base] = frozenset()
        self.counts = not torch.is_inference_mode_enabled()  # whether tensors have version counters
        self.copies = Copies()
        self.checkpoints = 0  # calls of checkpointed functions
        self.computed_again = False  # do those run a second time, in a backward half?
        self.instead: Callable[..., Any] | None = None  # what `dispatch` does in such a call
        self.unseen: list[torch.Tensor] = []  # leaves of the graph that get no gradient
        self._reals: dict[int, FakeTensor] = {}

    # ------------------------------------------------------------ inputs

    def placeholder(self, name: str, fake: Any, fresh: bool = False) -> Any:
        """A graph input with the metadata of `fake`; what is no tensor is passed through."""
        with self.graph.inserting_after(self.inputs[-1].first if self.inputs else self.graph._root):
            node = self.graph.placeholder(name)
        tensor = fake
        if isinstance(fake, torch.Tensor):
            tensor = to_fake(fake)
        elif type(fake) in (int, float):
            tensor = symbolic(fake, node)
        node.meta["val"] = tensor
        base = Base(node, node, tensor, len(self.inputs), fresh)
        self.inputs.append(base)
        if isinstance(tensor, torch.Tensor):
            self.handles[id(tensor)] = Handle(tensor, base, node, 0)
        return tensor

    def constant(self, real: torch.Tensor, fresh: bool) -> FakeTensor:
        """A placeholder for a tensor that exists already. `fresh`: the program makes its own copy each time."""
        found = self._reals.get(id(real))
        if found is None:
            name = f"constant_{len(self.constants)}"
            found = self._reals[id(real)] = self.placeholder(name, real, fresh)
            self.inputs[-1].first.meta["fresh"] = fresh
            self.constants[self.inputs[-1].first.name] = real
        return found

    # ------------------------------------------------------------ operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return (self.instead or self.dispatch)(func, args, kwargs or {}) if all_fake(types) else NotImplemented
        except Unsupported as error:
            if self.stack and not error.stack:
                error.stack = tuple(self.stack)
            raise

    def dispatch(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if takes_list(func) or is_fused(func):
            with self:
                return (apart if takes_list(func) else fused)(func, args, kwargs)
        if func in OF_CUDNN:
            return of_cudnn(self.dispatch, func, args)
        if func is aten._unsafe_view.default and self.handle(args[0]).base in self.outs:
            func = aten.view.default  # which is written to, and so is what it is a view of
        func, args = _SHARING.get(func, func), from_the_front(func, args)
        known = facts(func)
        if func._schema.name in IDENTITY:
            return self.same_memory(func, args[0])
        if keeps_size(func, args):
            return args[0]
        if known.changes_metadata:
            return self.view_in_place(func, args, kwargs)
        if known.written:
            return self.mutate(func, args, kwargs, known)
        if func in SILENT:
            form = silent(func, bound(func, args, kwargs))
            if form is not None:
                return self.apply(form, func, args, kwargs, run(func, args, kwargs))
        if (known.view or func is aten._to_copy.default) and type(args[0]) in _NUMBERS:
            args = (self.number(args[0]), *args[1:])
        result = run(func, args, kwargs)
        if known.view:
            self.bind_view(func, args, kwargs, result)
        else:
            self.bind(self.record(func, args, kwargs, result), result)
            if func in COPYING:
                self.copies.note(func, args, kwargs, self.handle(args[0]).base, self.handle(result).base)
        return result

    def number(self, value: Any) -> FakeTensor:
        """A number in the place of the tensor that an operator works on, as torch.func passes it on."""
        dtype = torch.get_default_dtype() if type(value) is float else None
        return self.dispatch(aten.scalar_tensor.default, (value,), {"dtype": dtype or _NUMBERS[type(value)]})

    def literal(self, real: torch.Tensor) -> FakeTensor:
        """What `torch.tensor(3.0)` gives, whose number is known."""
        return self.dispatch(aten.full.default, ([], real.item()), {"dtype": real.dtype, "device": real.device})

    def same_memory(self, func: Any, tensor: torch.Tensor) -> FakeTensor:
        """detach, alias, lift: another tensor object; nothing in the graph."""
        if type(tensor) is not FakeTensor:
            fresh = func._schema.name == "aten::lift_fresh"
            return self.literal(tensor) if fresh and is_literal(tensor) else self.constant(tensor, fresh)
        handle = self.handle(tensor)
        result = to_fake(tensor, leaf=False)
        view = TakenView(func, (), {}, None)
        self.handles[id(result)] = Handle(result, handle.base, self.node_of(handle), handle.base.version, handle, view)
        return result

    @contextmanager
    def writing(self, outs: Any) -> Iterator[None]:
        """Inside, a function is called that gets these as `out=`. Some ignore tensors that are no plain ones."""
        tensors = [t for t in (outs if isinstance(outs, (tuple, list)) else [outs]) if isinstance(t, torch.Tensor)]
        before = {self.handle(t).base: self.handle(t).base.version for t in tensors}
        self.outs = frozenset(before)
        yield
        self.outs = frozenset()
        if any(base.version == version for base, version in before.items()):
            raise Unsupported("no-shape-rule", "a function does not show what it writes to out=", "Use its result.")

    def adopt(self, made: Any, given: list) -> None:
        """What `torch.zeros_like` gives is detached from what its operator gave, which nobody sees: it is that itself.

        `given` to the function is what somebody does see.
        """
        handle = self.handles.get(id(made))
        if handle is None or handle.parent is None or handle.parent.parent is not None:
            return
        if handle.parent.tensor.requires_grad or any(handle.parent.tensor is each for each in given):
            return
        base, view = handle.base, handle.view
        if base.fresh and not base.version and view is not None and view.operator._schema.name in IDENTITY:
            base.tensor = made
            self.handles[id(made)] = Handle(made, base, self.node_of(handle), 0)

    def record(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> Node:
        """A node for the call. Where the graph's layouts differ from eager's, so does its `val`."""
        exact = True

        def convert(value: Any) -> Any:
            nonlocal exact
            if isinstance(value, torch.Tensor):
                handle = self.handle(value)
                node = self.node_of(handle)
                exact = exact and same_layout(node.meta["val"], handle.tensor)
                return node
            if isinstance(value, (tuple, list)):
                return type(value)([convert(v) for v in value])
            return value

        node_args = tuple([convert(a) for a in args])
        node_kwargs = {name: convert(value) for name, value in kwargs.items()}
        if not exact and func in _BY_SIZES:
            return self.reshape(node_args[0], list(node_args[1]))
        if not exact:
            return keep_sizes(self.emit(func, *node_args, **node_kwargs), result)
        return self.create(func, node_args, node_kwargs, result)

    def create(self, func: Any, args: tuple, kwargs: dict[str, Any], val: Any) -> Node:
        args, kwargs = placed(args), placed(kwargs)
        if (rewrite := REWRITES.get(func)) is not None:
            func, args, kwargs = rewrite(args, kwargs, val)
            args, kwargs = placed(args), placed(kwargs)
        node = add_node(self.graph, "call_function", func, args, kwargs, node_name(func))
        node.meta["val"] = val
        if stack := self.lines.differentiated() or self.stack:
            node.meta["stack"] = stack
        return node

    def emit(self, func: Any, *args: Any, **kwargs: Any) -> Node:
        """A node from nodes; its metadata follows from theirs."""
        if func is aten.reshape.default:
            return self.reshape(*args)
        return self.create(func, args, kwargs, run(func, vals(args), vals(kwargs)))

    def reshape(self, node: Node, sizes: list) -> Node:
        """A view where strides allow it, else a view of a contiguous copy."""
        try:
            return self.emit(aten.view.default, node, sizes)
        except (RuntimeError, ValueError):
            node = self.emit(aten.clone.default, node, memory_format=torch.contiguous_format)
            return self.emit(aten.view.default, node, sizes)

    # ------------------------------------------------------------ results

    def bind(self, node: Node, result: Any) -> None:
        """The call's results own their memory."""
        if isinstance(result, torch.Tensor):
            self.handles[id(result)] = Handle(result, Base(node, node, result), node, 0)
        elif isinstance(result, (tuple, list)):
            for k, item in enumerate(result):
                if isinstance(item, torch.Tensor):
                    self.own(item, node, k)

    def own(self, tensor: Any, node: Node, index: int) -> None:
        base = Base(node, node, tensor)
        self.handles[id(tensor)] = Handle(tensor, base, None, 0, pick=(node, index))

    def bind_view(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        if not isinstance(args[0], torch.Tensor):  # a list of views of several tensors
            raise Unsupported("view-of-many", f"{func} returns views of several tensors at once")
        parent = self.handle(args[0])
        asked = None
        if func is aten.as_strided.default:
            parent, asked = self.stem(parent), parent
            args, kwargs = absolute(args, kwargs, asked, parent), {}
        positional, named = in_schema_order(func, args, kwargs)
        view = TakenView(func, positional[1:], named, None)
        version = parent.base.version
        odd = parent.base.version > 0 and func is aten.as_strided.default
        node = self.replay(view, parent) if odd else self.record(func, (parent.tensor, *positional[1:]), named, result)
        if isinstance(result, torch.Tensor):
            self.handles[id(result)] = Handle(result, parent.base, node, version, parent, view, asked=asked)
            return
        for k, item in enumerate(result):
            each = TakenView(func, view.args, view.kwargs, k)
            self.handles[id(item)] = Handle(item, parent.base, None, version, parent, each, (node, k))

    def view_in_place(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """`unsqueeze_` and the like: the tensor becomes a view of what it was."""
        tensor = args[0]
        handle = self.handle(tensor)
        if handle.parent is None and not handle.base.fresh:
            raise Unsupported("metadata-mutation", f"{func} changes the shape of an input in place",
                              "Use the variant that returns a new tensor.")
        node, before = self.node_of(handle), to_fake(tensor, leaf=False)
        run(func, args, kwargs)
        for holder in {node, handle.made or node}:
            replace_val(holder, tensor, before)
        handle.tensor, self.handles[id(before)] = before, handle
        if handle.parent is None:
            self.reshape_base(handle, self.emit(out_of_place(func), node, *args[1:], **kwargs), tensor)
        else:
            # its history, and the mode that the view was made in
            kept = tensor.requires_grad or handle.view is not None and handle.view.grad
            with torch.set_grad_enabled(torch.is_grad_enabled() or kept):
                self.bind_view(out_of_place(func), (before, *args[1:]), kwargs, tensor)
            made = self.handles[id(tensor)]
            made.since = handle.since
            handle.became = None if tensor._is_view() else made
        return tensor

    def reshape_base(self, old: Handle, node: Node, tensor: Any) -> None:
        """`tensor` has the memory as before, in another shape: what it was is a view of it now."""
        base, was = old.base, old.tensor
        base.tensor, base.node, base.first = tensor, node, node
        made = self.handles[id(tensor)] = Handle(tensor, base, node, base.version)
        for handle in self.handles.values():  # what counts from the base's beginning
            if handle.parent is old and handle.view.operator is aten.as_strided.default:  # type: ignore[union-attr]
                handle.parent = made
        old.parent, old.pick = made, None
        layout = was.size(), was.stride(), was.storage_offset()
        old.view = TakenView(aten.as_strided.default, layout, {}, None, grad=True)

    # ------------------------------------------------------------ memory

    def handle(self, tensor: torch.Tensor) -> Handle:
        found = self.handles.get(id(tensor))
        if found is not None:
            return found
        if type(tensor) is FakeTensor:
            raise InternalError("normalize", f"{tensor} does not come from this graph")
        return self.handles[id(self.constant(tensor, fresh=False))]

    def added_to(self, tensor: Any) -> int | None:
        """How often what it was added to had been written to, if the tensor is a sum."""
        made = self.handle(tensor).made
        if made is None or made.target is not aten.add.Tensor:
            return None
        return max((h.counter._version for h in self.handles.values() if h.node is made.args[0]), default=0)

    def stem(self, handle: Handle) -> Handle:
        """The one nearest to this tensor that has all of the memory: the base, or what is detached from it."""
        found = handle
        while handle.parent is not None:
            assert handle.view is not None
            found = found if handle.view.operator._schema.name in IDENTITY else handle.parent
            handle = handle.parent
        return found

    def node_of(self, handle: Handle) -> Node:
        """The tensor's value now."""
        base = handle.base
        if handle.node is None or handle.version != base.version:
            if handle.version == base.version and handle.pick is not None:
                handle.node = self.picked(*handle.pick)
                if handle.parent is None:
                    base.node = base.first = handle.node
            elif handle.parent is None:
                handle.node = base.node
            else:
                handle.node = self.replay(handle.view, handle.parent)
            handle.version = base.version
        return handle.node

    def picked(self, node: Node, index: int) -> Node:
        made = self.create(operator.getitem, (node, index), {}, node.meta["val"][index])
        if index in row_of(node.target).opaque:
            made.meta["opaque"] = True
        if CHECKPOINTED in node.meta:  # that function may be over by now
            made.meta[CHECKPOINTED] = node.meta[CHECKPOINTED]
        return made

    def replay(self, view: TakenView | None, parent: Handle) -> Node:
        """The view, taken of the parent's value now."""
        assert view is not None
        node = self.node_of(parent)
        if view.operator._schema.name in IDENTITY:
            return node
        args = view.args
        if view.operator is aten.as_strided.default:
            args = relative(args, parent.base.tensor, node.meta["val"])
        if view.operator in _BY_SIZES:
            made = self.reshape(node, list(args[0]))
        else:
            made = self.emit(view.operator, settled(self.emit, view.operator, node), *args, **view.kwargs)
        return made if view.index is None else self.picked(made, view.index)

    # ------------------------------------------------------------ mutation

    def mutate(self, func: Any, args: tuple, kwargs: dict[str, Any], known: Facts) -> Any:
        if func._schema.name in _RESIZING:
            raise Unsupported("metadata-mutation", f"{func} changes the memory of a tensor in place",
                              "Make a new tensor instead.")
        result = run(func, args, kwargs)
        disordered = known.random and not in_order(func, args, kwargs, known)
        if func is user_kernel:
            launch(self, *args)
        elif func.namespace not in _BUILT_IN or disordered or has_no_form(func):
            on_copies(self, func, args, kwargs, result)
        elif func is aten.copy_.default:
            self.write(args[0], self.copied(args[0], args[1]))
        elif func in (aten.fill_.Scalar, aten.zero_.default):
            self.write(args[0], self.filled(args[0], args[1] if len(args) > 1 else kwargs.get("value", 0)))
        else:
            self.apply(functional(func), func, args, kwargs, result)
        return result

    def nodes(self, *values: Any) -> Any:
        """The arguments with a node for each tensor."""

        def convert(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self.node_of(self.handle(value))
            if isinstance(value, dict):
                return {k: convert(v) for k, v in value.items()}
            return type(value)([convert(v) for v in value]) if isinstance(value, (tuple, list)) else value

        return tuple(map(convert, values))

    def apply(self, form: Functional, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> Any:
        """Record the functional form; what it returns for written arguments becomes their value."""
        named = bound(func, args, kwargs)
        named = {**needed(form.operator, func), **named}
        given, rest = in_schema_order(form.operator, (), {k: v for k, v in named.items() if k not in form.drop})
        node = self.record(form.operator, given, rest, None)
        if node.meta["val"] is None:
            node.meta["val"] = run(form.operator, vals(node.args), vals(node.kwargs))
        val = node.meta["val"]
        values = [node] if isinstance(val, torch.Tensor) else None
        own = iter(own_results(facts(func), result))
        for name in form.drop:
            accept_out(func, args, kwargs, named[name], val if values else val[form.writes.index(name)])
        for k, written in enumerate(form.writes):
            if written is None:
                item = next(own, None)
                if isinstance(item, torch.Tensor):
                    self.own(item, node, k) if values is None else self.bind(node, item)
            else:
                self.write_all(named[written], values[k] if values else node, None if values else k)
        return result

    def write_all(self, target: Any, node: Node, index: int | None) -> None:
        """`target` may be a list of tensors; the functional form then returns a list, or a tuple of lists."""
        val = node.meta["val"]
        if isinstance(target, torch.Tensor):
            self.write(target, node if index is None else self.picked(node, index))
            return
        if isinstance(val[index], (tuple, list)):
            node = self.picked(node, index)  # type: ignore[arg-type]
        for k, tensor in enumerate(target):
            self.write(tensor, self.picked(node, k))

    def copied(self, target: torch.Tensor, source: torch.Tensor) -> Node:
        node = self.node_of(self.handle(source))
        if not all_same(source.shape, target.shape):
            node = self.emit(aten.expand.default, node, list(target.shape))
        if source.dtype != target.dtype or source.device != target.device:
            return self.emit(aten._to_copy.default, node, dtype=target.dtype, device=target.device)
        return self.emit(aten.clone.default, node)

    def filled(self, target: torch.Tensor, value: Any) -> Node:
        return self.emit(aten.full.default, list(target.shape), value, dtype=target.dtype, device=target.device)

    def write(self, target: torch.Tensor, node: Node) -> None:
        """From now on `target`, and everything that shares its memory, has the value of `node`."""
        handle = self.handle(target)
        val = node.meta["val"]
        if not all_same(val.shape, target.shape) and tuple(val.shape) != tuple(target.shape):
            raise resized(target.shape, val.shape)
        if val.dtype != target.dtype:
            node = self.emit(aten._to_copy.default, node, dtype=target.dtype)
        while handle.parent is not None:
            assert handle.view is not None
            parent = self.node_of(handle.parent)
            view = handle.view
            if view.operator is aten.as_strided.default:
                args = relative(view.args, handle.base.tensor, parent.meta["val"])
                view = TakenView(view.operator, args, view.kwargs, None)
            node = scatter(self.emit, view, parent, node)
            handle = handle.parent
        base = handle.base
        base.node = laid_out(self.emit, node, handle.tensor)
        base.version += 1
        self.copies.written(base)
        handle.node, handle.version = base.node, base.version
