"""A compilation as bytes, and back.

Pickle writes data; what it cannot write, or would write by searching, is reduced here to the name or the numbers that
it is made of again. What belongs to the program itself has no business in the bytes: such an object raises Unkept.
"""

from __future__ import annotations

import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch
import torch.fx

from dovetail.assembly import OnGpu, Operators, Single
from dovetail.diagnostics.events import Events
from dovetail.exporting.encoding import SINGLE, SPACES, function_name
from dovetail.ir import dims, loops
from dovetail.ir.aten import DATA, AtenGraph, Beside, JointGraph, Pair, Subprogram, Whole, ends, results_of
from dovetail.ir.devices import HOST
from dovetail.ir.guard import ABSENT
from dovetail.ir.kernel import HostProgram
from dovetail.kept.meshes import MESH, fields_of_spec, is_mesh, names_spec, parts_of, spec_of
from dovetail.kept.objects import NAMED_IN_TYPES, Unkept, by_name, making, trusted
from dovetail.kept.operators import OPERATORS, is_own, signature
from dovetail.ops.calls.whole_call import WholeCall
from dovetail.ops.fake.symbolic.number import symbolic
from dovetail.ops.fake.symbolic.sizes import Sizes
from dovetail.ops.fake.symbolic.symint import dim_of, is_size, symint
from dovetail.ops.fake.tensor import FakeTensor
from dovetail.ops.fake.wrapped import inner, is_wrapper

LARGEST = 1 << 16  # bytes of a tensor that a program has as a constant


def pack(value: Any, own: Collection[Any] = (), meshes: Sequence[Any] = ()) -> bytes:
    """Raises Unkept for what belongs to one process. `own` are the program's operators that may be part of it, `meshes`
    what `unpack` will be given in their places."""
    data = io.BytesIO()
    try:
        packer = _WithMeshes(data, own, meshes) if meshes else _Packer(data, own)
        packer.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise Unkept(f"it cannot be written down: {error}") from error
    return data.getvalue()


def unpack(data: bytes, meshes: Sequence[Any] = ()) -> Any:
    """What `pack` was given. Without `meshes` there is None in their places. Raises pickle.UnpicklingError, or whatever
    damaged bytes lead to."""
    return _Unpacker(io.BytesIO(data), meshes).load()


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, meshes: Sequence[Any]) -> None:
        super().__init__(data)
        self.meshes = meshes

    def persistent_load(self, number: int) -> Any:
        return self.meshes[number] if self.meshes else None

    def find_class(self, module: str, name: str) -> Any:
        if not trusted(module):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a compilation")
        return super().find_class(module, name)


class _Packer(pickle.Pickler):
    def __init__(self, data: io.BytesIO, own: Collection[Any]) -> None:
        super().__init__(data, pickle.HIGHEST_PROTOCOL)
        self.own = own

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in OPERATORS and is_own(obj) and obj not in self.own:
            raise Unkept(f"the operator {obj} is the program's own")
        return _reducer(type(obj))(obj)  # type: ignore[arg-type]


class _WithMeshes(_Packer):
    """With numbers in the places of meshes. PyTorch remembers what it found for an earlier mesh that equals one of
    them, and gives results that lie on that."""

    def __init__(self, data: io.BytesIO, own: Collection[Any], meshes: Sequence[Any]) -> None:
        super().__init__(data, own)
        self.numbers = {id(mesh): k for k, mesh in enumerate(meshes) if is_mesh(mesh)}
        self.meshes = meshes

    def persistent_id(self, obj: Any) -> int | None:
        if not is_mesh(obj):
            return None
        found = self.numbers.get(id(obj))
        equal = (k for k in self.numbers.values() if parts_of(self.meshes[k]) == parts_of(obj))
        return next(equal, None) if found is None else found


@cache
def _reducer(cls: type) -> Callable[[Any], Any]:
    """For objects of the class."""
    for kinds, reduced in _REDUCED.items():
        if issubclass(cls, kinds):
            return reduced
    if names_spec(cls):
        return _spec
    if not trusted(cls.__module__):
        return _refused(f"a {cls.__module__}.{cls.__qualname__} is part of it")
    if is_dataclass(cls) and "__slots__" in cls.__dict__ and not hasattr(cls, "__post_init__"):
        # There are thousands; as Python writes them, reading takes ten times as long.
        names = [f.name for f in fields(cls)]
        return lambda obj: (cls, tuple([getattr(obj, name) for name in names]))
    return lambda _: NotImplemented


def _refused(what: str) -> Callable[[Any], Any]:
    def reduce(obj: Any) -> Any:
        raise Unkept(what)

    return reduce


# ---------------------------------------------------------------- definitions


def _definition(found: Any) -> Any:
    """A class or a function of Python's."""
    if found in NAMED_IN_TYPES:
        return _of_module, ("types", NAMED_IN_TYPES[found])
    if not trusted(found.__module__):
        raise Unkept(f"{found.__module__}.{found.__qualname__} is part of it")
    name = function_name(found) if isinstance(found, FunctionType) and by_name(found) is None else None
    return NotImplemented if name is None else (_named_function, (name,))


def _named_function(name: str) -> Any:
    space, _, last = name.rpartition(".")
    return SINGLE[name] if name in SINGLE else getattr(SPACES[space], last)


def _builtin(function: Any) -> Any:
    owner, own = function.__self__, str(function.__name__)
    for module in NATIVE_MODULES:
        if getattr(module, own, None) is function:
            return _of_module, (vars(module)["__name__"], own)
    if type(owner) is ModuleType and getattr(owner, own, None) is function:
        return _of_module, (vars(owner)["__name__"], own)
    if isinstance(owner, type) or owner is torch.default_generator:
        return getattr, (owner, own)
    raise Unkept(f"{function!r} is part of it")


#: Where PyTorch has functions whose own module is not told.
NATIVE_MODULES: tuple = (
    torch, torch._C, torch._C._nn, torch._C._linalg, torch._C._special, torch._C._fft, torch._C._sparse,  # type: ignore[attr-defined]
)  # fmt: skip


def _of_module(module: str, name: str) -> Any:
    return getattr(sys.modules[module], name)


def _operator(found: Any) -> Any:
    names = found.namespace, found._schema.name.partition("::")[2], found._overloadname
    return (_own, (*names, signature(found))) if is_own(found) else (_found_operator, names)


CHECKS, DRAWS = "dovetail.ops.own.check", "dovetail.ops.own.philox"


def _operators(packet: Any) -> Any:
    """Of whatever overload fits."""
    namespace, _, name = packet._qualified_op_name.partition("::")
    if is_own(packet):
        return _own, (namespace, name, "", signature(packet))
    return getattr, (getattr(torch.ops, namespace), name)


def _own(namespace: str, name: str, overload: str, declared: list) -> Any:
    """The program's operator, which must be declared as it was."""
    found = getattr(getattr(torch.ops, namespace), name)
    found = getattr(found, overload) if overload else found
    if signature(found) != declared:
        raise pickle.UnpicklingError(f"the operator {found} is not what it was")
    return found


def _found_operator(namespace: str, name: str, overload: str) -> Any:
    if namespace == "dovetail":
        importlib.import_module(DRAWS if name == "draw" else CHECKS)  # which registers it
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def _module(name: str) -> Any:
    return sys.modules[name]


def _dispatch_keys(number: int) -> Any:
    return torch._C.DispatchKeySet.from_raw_repr(number)


def _generator(generator: torch.Generator) -> Any:
    if generator is not torch.default_generator:
        raise Unkept("a random generator of the program's is part of it")
    return _default_generator, ()


def _default_generator() -> torch.Generator:
    return torch.default_generator


def _getter(found: Any) -> Any:
    return (_data, ()) if found is DATA else NotImplemented


def _data() -> Any:
    return DATA


def _absent() -> Any:
    return ABSENT


# ---------------------------------------------------------------- tensors and sizes


def _tensor(tensor: torch.Tensor) -> Any:
    if is_wrapper(tensor) and all(type(part) is FakeTensor for part in inner(tensor)):
        # What it looks like is for guards to compare, and what its parts look like stands in the plan.
        return _made_fake, ((), (), tensor.dtype, tensor.device, 0, tensor.requires_grad, False, False)
    if type(tensor) is FakeTensor:
        facts = tensor.dtype, tensor.device, tensor.storage_offset(), tensor.requires_grad
        return _made_fake, (tuple(tensor.shape), tensor.stride(), *facts, tensor.is_conj(), tensor.is_neg())
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.requires_grad
    if not plain or tensor.numel() * tensor.itemsize > LARGEST or tensor.is_conj() or tensor.is_neg():
        raise Unkept(f"a {type(tensor).__qualname__} of shape {tuple(tensor.shape)} is part of it")
    with torch._C._DisableTorchDispatch():
        there = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=HOST).copy_(tensor)
        flat = there.as_strided((there.untyped_storage().nbytes() // there.itemsize,), (1,))
        data = bytes(flat.view(torch.uint8).tolist())
    return _made_tensor, (data, tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


def _made_tensor(data: bytes, sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    made = torch.empty_strided(sizes, strides, dtype=dtype, device=HOST)
    if data:
        flat = made.as_strided((made.untyped_storage().nbytes() // made.itemsize,), (1,))
        flat.view(torch.uint8).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    return made.to(device)


def _made_fake(
    sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device, offset: Any, grad: bool, conj: bool, neg: bool
) -> FakeTensor:
    made = FakeTensor(sizes, strides, dtype, device, offset, grad)
    if conj:
        torch._C._set_conj(made, True)
    if neg:
        torch._C._set_neg(made, True)
    return made


def _plain(value: Any) -> Any:
    """Of a class of the program's: as a constant of a graph it is no more than a number or a text."""
    if trusted(type(value).__module__):
        return NotImplemented
    base = next(base for base in type(value).__mro__ if base in (int, float, complex, str, bytes))
    return base, (base(value),)


def _size(number: Any) -> Any:
    if is_size(number):
        return symint, (number.node.sizes, dim_of(number))
    return _made_number, (number.node.hint,)


def _made_number(hint: Any) -> Any:
    """A number that is an input: what stands for it in a graph is not kept."""
    return symbolic(hint, None)


def _sizes(sizes: Sizes) -> Any:
    return _made_sizes, tuple(getattr(sizes, name) for name in _TABLES)


def _made_sizes(*tables: Any) -> Sizes:
    made = Sizes()
    for name, table in zip(_TABLES, tables, strict=True):
        setattr(made, name, table)
    return made


_TABLES = ("hints", "facts", "solved", "lows", "constants", "unbacked", "places")


def _poly(dim: dims.Poly) -> Any:
    return _made_poly, (dim.terms,)


def _made_poly(terms: Sequence[tuple[Sequence[Any], int]]) -> Any:
    return sum(coefficient * dims.product(map(_as_dim, atoms)) for atoms, coefficient in terms)


def _as_dim(atom: Any) -> Any:
    return dims.of_atom(atom) if isinstance(atom, dims.Symbol) else atom


def _symbol(symbol: dims.Symbol) -> Any:
    return _made_symbol, (symbol.name, symbol.lo, symbol.extent, symbol.hint)


def _made_symbol(*parts: Any) -> dims.Symbol:
    return dims.as_symbol(dims.symbol(*parts))


def _binary(atom: dims.Binary) -> Any:
    """As the Dim that it is alone."""
    return _BINARY[type(atom)], (atom.left, atom.right)


_BINARY = {dims.FloorDiv: dims.floordiv, dims.Mod: dims.mod, dims.Min: dims.minimum, dims.Max: dims.maximum}


# ---------------------------------------------------------------- graphs, of which inputs and results are kept


def _aten(aten: AtenGraph) -> Any:
    inputs = [(n.name, n.meta.get("val")) for n in aten.graph.nodes if n.op == "placeholder"]
    written = tuple(k for k, _ in aten.mutated)
    rest = dict(aten.constants), aten.returned, aten.viewed, aten.counted, aten.recounted, aten.saved
    return _made_aten, (inputs, results_of(aten), written, *rest)


def _made_aten(inputs: Any, results: Any, written: Any, *rest: Any) -> AtenGraph:
    constants, *others = rest
    return AtenGraph(ends(inputs, results), tuple((k, None) for k in written), constants, *others)  # type: ignore[misc]


def _joint(joint: JointGraph) -> Any:
    parts = joint.aten, joint.inputs, joint.results, joint.tangents, joint.rewritten, frozenset[Any](), joint.passed
    return JointGraph, parts


def _host(host: HostProgram) -> Any:
    """With the code of its text."""
    return _made_host, (host.code, *(getattr(host, f.name) for f in fields(HostProgram)))


def _made_host(code: CodeType, *values: Any) -> HostProgram:
    made = HostProgram(*values)
    vars(made)["code"] = code
    return made


def _subprogram(call: Subprogram) -> Any:
    """What its graphs have become. Nothing is at hand in their place if a kernel refuses what it is given."""
    if not all(isinstance(b, Single) and not any(k.messages for k in b.host.kernels) for b in call.built):
        raise Unkept(f"a graph inside of {call} is part of it")
    return _made_subprogram, (call.__name__.partition("::")[2], call.run, call.built)


def _made_subprogram(name: str, run: Any, built: Sequence[Single]) -> Subprogram:
    made = Subprogram(name, (), run)
    made.callables = tuple(each.load(Events()) for each in built)
    return made


def _whole(made: Whole) -> Any:
    """Raises Unkept for a context of which nobody can tell whether that of another process is the same."""
    making(made.context, whole=True)
    return Whole, tuple(getattr(made, f.name) for f in fields(Whole))


def _beside(found: Beside) -> Any:
    if not is_mesh(found.value):
        raise Unkept("an object stands among what tensors are made of")
    return Beside, (found.value,)


def _spec(spec: Any) -> Any:
    return spec_of, (spec.mesh, *fields_of_spec(spec))


def _pair(pair: Pair) -> Any:
    return Pair, (pair.forward, pair.backward, pair.kept, (), pair.numbers, pair.depends, pair.sizes, pair.kept_names)


_REDUCED: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor: _tensor,
    torch._ops.OpOverload: _operator,
    torch._ops.OpOverloadPacket: _operators,
    torch._ops._OpNamespace: lambda space: (getattr, (torch.ops, space.name)),
    torch._ops._Ops: lambda ops: (_of_module, ("torch", "ops")),
    BuiltinFunctionType: _builtin,
    (type, FunctionType): _definition,
    type(DATA): _getter,
    type(ABSENT): lambda _: (_absent, ()),
    torch.Generator: _generator,
    (int, float, complex, str, bytes): _plain,
    torch.SymInt: _size,
    torch.SymFloat: _size,
    torch.SymBool: _refused("a comparison of sizes is part of it"),
    Sizes: _sizes,
    dims.Poly: _poly,
    dims.Symbol: _symbol,
    dims.Binary: _binary,
    dims.RuntimeIndex: _refused("an index that is read from memory is part of it"),
    CodeType: lambda code: (marshal.loads, (marshal.dumps(code),)),
    loops.Param: lambda found: (loops.Param, (found.name, found.dtype)),
    loops.Expr: _refused("an expression of a kernel is part of it"),
    AtenGraph: _aten,
    JointGraph: _joint,
    Pair: _pair,
    HostProgram: _host,
    OnGpu: lambda gpu: (OnGpu, (gpu.facts, gpu.why)),
    ModuleType: lambda module: (_module, (module.__name__,)),
    torch._C.DispatchKeySet: lambda keys: (_dispatch_keys, (keys.raw_repr(),)),
    Subprogram: _subprogram,
    Whole: _whole,
    Beside: _beside,
    MESH: _refused("a mesh of devices is part of it"),
    WholeCall: lambda call: (WholeCall, (call.function, call.args, call.kwargs)),
    (Operators, torch.fx.Node, torch.fx.Graph, torch.nn.Module): _refused("a graph is part of it"),
}
