"""A compilation as bytes, and back.

Pickle writes data; what it cannot write, or would write by searching, is reduced here to the name or the numbers that
it is made of again. What belongs to the program itself has no business in the bytes: such an object raises Unkept.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
import torch.fx

from dovetail.assembly import OnGpu, Operators
from dovetail.exporting.encoding import SINGLE, SPACES, function_name
from dovetail.ir import dims
from dovetail.ir.aten import DATA, AtenGraph, Subprogram, results_of
from dovetail.ir.guard import ABSENT
from dovetail.ir.joint import JointGraph, Pair
from dovetail.kept.objects import NAMED_IN_TYPES, Unkept
from dovetail.ops.fake.sizes import Sizes
from dovetail.ops.fake.symint import dim_of, is_size, symint
from dovetail.ops.fake.tensor import FakeTensor

LARGEST = 1 << 16  # bytes of a tensor that a program has as a constant
#: Packages whose definitions are found again by name, since the versions are the same.
TRUSTED = frozenset(("dovetail", "torch", "numpy")) | sys.stdlib_module_names
#: Namespaces of operators that come with PyTorch, or with us.
OPERATORS = frozenset(("aten", "prims", "prim", "mkldnn", "mkl", "quantized", "onednn", "dovetail"))


def pack(value: Any) -> bytes:
    """Raises Unkept for what belongs to one process."""
    data = io.BytesIO()
    try:
        _Packer(data, pickle.HIGHEST_PROTOCOL).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise Unkept(f"it cannot be written down: {error}") from error
    return data.getvalue()


def unpack(data: bytes) -> Any:
    """What `pack` was given. Raises pickle.UnpicklingError, or whatever damaged bytes lead to."""
    return _Unpacker(io.BytesIO(data)).load()


class _Unpacker(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] not in TRUSTED or module == "__main__":
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a compilation")
        return super().find_class(module, name)


class _Packer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return _reducer(type(obj))(obj)  # type: ignore[arg-type]


@cache
def _reducer(cls: type) -> Callable[[Any], Any]:
    """For objects of the class."""
    for kinds, reduced in _REDUCED.items():
        if issubclass(cls, kinds):
            return reduced
    if cls.__module__.partition(".")[0] not in TRUSTED:
        return _refused(f"a {cls.__module__}.{cls.__qualname__} is part of it")
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
    if found.__module__ is None or found.__module__.partition(".")[0] not in TRUSTED:
        raise Unkept(f"{found.__module__}.{found.__qualname__} is part of it")
    return NotImplemented


def _builtin(function: Any) -> Any:
    name = function_name(function)
    if name is not None:
        return _named_function, (name,)
    owner, own = function.__self__, str(function.__name__)
    if type(owner) is ModuleType and getattr(owner, own, None) is function:
        return _of_module, (vars(owner)["__name__"], own)
    if isinstance(owner, type) or owner is torch.default_generator:
        return getattr, (owner, own)
    if getattr(torch._C, own, None) is function:
        return _of_module, (torch._C.__name__, own)
    raise Unkept(f"{function!r} is part of it")


def _named_function(name: str) -> Any:
    space, _, last = name.rpartition(".")
    return SINGLE[name] if name in SINGLE else getattr(SPACES[space], last)


def _of_module(module: str, name: str) -> Any:
    return getattr(sys.modules[module], name)


def _operator(found: Any) -> Any:
    if found.namespace not in OPERATORS:
        raise Unkept(f"the operator {found} is the program's own")
    return _found_operator, (found.namespace, found._schema.name.partition("::")[2], found._overloadname)


def _found_operator(namespace: str, name: str, overload: str) -> Any:
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
    if type(tensor) is FakeTensor:
        facts = tensor.dtype, tensor.device, tensor.storage_offset(), tensor.requires_grad
        return _made_fake, (tuple(tensor.shape), tensor.stride(), *facts, tensor.is_conj(), tensor.is_neg())
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.requires_grad
    if not plain or tensor.numel() * tensor.itemsize > LARGEST or tensor.is_conj() or tensor.is_neg():
        raise Unkept(f"a {type(tensor).__qualname__} of shape {tuple(tensor.shape)} is part of it")
    with torch._C._DisableTorchDispatch():
        there = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu").copy_(tensor)
        flat = there.as_strided((there.untyped_storage().nbytes() // there.itemsize,), (1,))
        data = bytes(flat.view(torch.uint8).tolist())
    return _made_tensor, (data, tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


def _made_tensor(data: bytes, sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    made = torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")
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


def _size(number: Any) -> Any:
    if not is_size(number):
        raise Unkept("a number that varies is part of it")
    return symint, (number.node.sizes, dim_of(number))


def _sizes(sizes: Sizes) -> Any:
    if sizes.late:
        raise Unkept("it finds sizes out when it runs")
    return _made_sizes, (sizes.hints, sizes.facts, sizes.solved, sizes.lows, sizes.constants)


def _made_sizes(*tables: Any) -> Sizes:
    made = Sizes()
    made.hints, made.facts, made.solved, made.lows, made.constants = tables
    return made


def _poly(dim: dims.Poly) -> Any:
    return _made_poly, (dim.terms,)


def _made_poly(terms: Sequence[tuple[Sequence[Any], int]]) -> Any:
    return sum(coefficient * dims.product(map(_as_dim, atoms)) for atoms, coefficient in terms)


def _as_dim(atom: Any) -> Any:
    return dims.of_symbol(atom) if isinstance(atom, dims.Symbol) else atom


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
    graph = torch.fx.Graph()
    for name, value in inputs:
        graph.placeholder(name).meta["val"] = value
    made = [graph.create_node("call_function", result) for _ in results]
    for node, value in zip(made, results, strict=True):
        node.meta["val"] = value
    graph.output(tuple(made))
    constants, *others = rest
    return AtenGraph(graph, tuple((k, made[0]) for k in written), constants, *others)


def result() -> None:
    """Stands in a graph for whatever computes one of its results."""


def _joint(joint: JointGraph) -> Any:
    parts = joint.aten, joint.inputs, joint.results, joint.tangents, joint.rewritten, frozenset[Any](), joint.passed
    return JointGraph, parts


def _pair(pair: Pair) -> Any:
    return Pair, (pair.forward, pair.backward, pair.kept, (), pair.numbers, pair.depends, pair.sizes)


_REDUCED: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor: _tensor,
    torch._ops.OpOverload: _operator,
    BuiltinFunctionType: _builtin,
    (type, FunctionType): _definition,
    type(DATA): _getter,
    type(ABSENT): lambda _: (_absent, ()),
    torch.Generator: _generator,
    torch.SymInt: _size,
    (torch.SymFloat, torch.SymBool): _refused("a number that varies is part of it"),
    Sizes: _sizes,
    dims.Poly: _poly,
    dims.Symbol: _symbol,
    dims.Binary: _binary,
    dims.Value: _refused("an index that is read from memory is part of it"),
    AtenGraph: _aten,
    JointGraph: _joint,
    Pair: _pair,
    OnGpu: lambda gpu: (OnGpu, (gpu.facts, gpu.why)),
    ModuleType: lambda module: (_module, (module.__name__,)),
    torch._C.DispatchKeySet: lambda keys: (_dispatch_keys, (keys.raw_repr(),)),
    (Operators, Subprogram, torch.fx.Node, torch.fx.Graph, torch.nn.Module): _refused("a graph is part of it"),
}
