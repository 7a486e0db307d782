"""Loading kernels: callables, the process's cache, the cache on disk, no external tools."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest
import torch

from dovetail.codegen.cpu import generate
from dovetail.errors import InternalError
from dovetail.ir.kernel import Kernel
from dovetail.ir.loops import Const
from dovetail.runtime.cpu import load, loading, machine, openmp
from dovetail.runtime.cpu.loading import Loader
from dovetail.runtime.store import Store, default_folder
from tests.codegen.harness import op, pointwise
from tests.forks import python


def test_machine_code_that_calls_what_nobody_has(tmp_path):
    """Calling it would end the process."""
    text = "declare float @nobody_has_this(float)\ndefine float @f(float %x) {\n" \
        "  %y = call float @nobody_has_this(float %x)\n  ret float %y\n}"
    with pytest.raises(InternalError, match="nobody_has_this"):
        Loader().link({"f": text}, Store(tmp_path))


def _kernel(n: int = 10, extra: float = 1.0) -> Kernel:
    x = torch.empty(n)
    return generate(pointwise(lambda a: op("add", a, Const(extra, torch.float32)), {"x": x}, torch.empty(n)))


def _call(function, x):
    out = torch.empty_like(x)
    assert function(x.data_ptr(), out.data_ptr(), x.numel()) == 0
    return out


def test_groups_that_differ_in_sizes_share_a_kernel():
    assert _kernel(100).text == _kernel(300).text
    assert _kernel(100).sizes == (100,)


def test_groups_that_differ_in_names_share_a_kernel():
    x, y = torch.empty(40, 30), torch.empty(40, 30)
    texts = {generate(pointwise(lambda a: op("neg", a), {name: x}, y)).text for name in ("x", "some_other_name")}
    assert len(texts) == 1


def test_means_of_different_sizes_share_a_kernel():
    texts = {
        generate(pointwise(lambda a, n=n: op("mul", a, Const(1 / n, torch.float32)), {"x": x}, x)).text
        for n in (768, 1000, 1024) for x in [torch.empty(n)]
    }  # fmt: skip
    assert len(texts) == 1


def test_call():
    kernel = _kernel()
    function = load([kernel], Store(None))[kernel.symbol]
    x = torch.randn(100)
    assert torch.equal(_call(function, x), x + 1)


def test_wrong_arguments_raise_type_error():
    kernel = _kernel()
    function = load([kernel], Store(None))[kernel.symbol]
    with pytest.raises(TypeError, match="takes 3 integers, not 2"):
        function(1, 2)
    with pytest.raises(TypeError):
        function("a", 2, 3)


def test_same_text_is_the_same_function():
    kernel = _kernel()
    assert load([kernel], Store(None)) == load([kernel], Store(None))


def test_second_process_reads_the_disk(tmp_path, monkeypatch):
    kernel = _kernel(extra=12345.5)
    loaders = Loader(), Loader()
    first = loaders[0].load([kernel], Store(tmp_path))[kernel.symbol]
    monkeypatch.setattr(machine, "to_object", lambda texts: pytest.fail("compiled although it is on disk"))
    second = loaders[1].load([kernel], Store(tmp_path))[kernel.symbol]
    x = torch.randn(40)
    assert first is not second and torch.equal(_call(second, x), _call(first, x))


def _in_each_others_place(files: list[Path]) -> None:
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)


def _each(change):
    return lambda files: [file.write_bytes(change(file.read_bytes())) for file in files]


DAMAGES = {
    "other contents": _each(lambda content: content[:-7] + b"garbage"),
    "cut short": _each(lambda content: content[:-7]),
    "shorter than a checksum": _each(lambda content: content[:5]),
    "empty": _each(lambda content: b""),
    "a bit of the contents": _each(lambda content: content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]),
    "a bit of the checksum": _each(lambda content: bytes([content[0] ^ 4]) + content[1:]),
    "swapped": _in_each_others_place,
    "swapped with files of their size": lambda files: [
        _in_each_others_place([f for f in files if f.stat().st_size == size])
        for size in {f.stat().st_size for f in files}
    ],
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_ignored(damage, tmp_path):
    kernels = [_kernel(extra=54321.5), _kernel(extra=54322.5), _kernel(extra=54323.5)]
    first, second = Loader(), Loader()
    for kernel in kernels:
        first.load([kernel], Store(tmp_path))
    files = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    before = [file.read_bytes() for file in files]
    DAMAGES[damage](files)
    assert [file.read_bytes() for file in files] != before
    x = torch.randn(40)
    for kernel, extra in zip(kernels, (54321.5, 54322.5, 54323.5), strict=True):
        assert torch.equal(_call(second.load([kernel], Store(tmp_path))[kernel.symbol], x), x + extra)


def test_a_reference_to_an_object_without_the_function_is_ignored(tmp_path):
    """A file may be sound and wrong."""
    kernels, store, loader = [_kernel(extra=54331.5), _kernel(extra=54332.5)], Store(tmp_path), Loader()
    for kernel in kernels:
        loader.load([kernel], store)
    one, other = (loading._key(kernel.text) for kernel in kernels)
    store.put(one, store.get(other))
    x = torch.randn(40)
    assert torch.equal(_call(Loader().load(kernels, store)[kernels[0].symbol], x), x + 54331.5)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    store = Store(blocked / "below")
    store.put("abc", b"x")
    assert store.get("abc") is None


def test_cache_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", "")
    assert default_folder() is None
    monkeypatch.delenv("DOVETAIL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "dovetail"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "dovetail"


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    """Rather than one in the working directory."""
    monkeypatch.delenv("DOVETAIL_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does if there is no such user
    assert default_folder() is None


def test_invalid_text_names_the_kernel():
    with pytest.raises(InternalError, match="kbad"):
        load([Kernel("kbad", "define nonsense", (), ())], Store(None))


def test_threads_may_call_at_once():
    kernel = _kernel()
    function = load([kernel], Store(None))[kernel.symbol]
    inputs = [torch.randn(300_000) for _ in range(4)]
    results: list = [None] * 4

    def work(k):
        results[k] = _call(function, inputs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(r, x + 1) for r, x in zip(results, inputs, strict=True))


def test_another_openmp_runtime_in_the_process_is_not_taken(tmp_path):
    """Two pools on the same cores make every kernel wait for threads that spin."""
    own = next((Path(torch.__file__).parent / "lib").glob("libgomp*"), None)
    if own is None:
        pytest.skip("this build of torch links to the system's OpenMP runtime")
    other = ctypes.CDLL(shutil.copy(own, tmp_path / "libgomp-other.so.1"))
    found = next(filter(None, map(openmp._addresses, openmp.candidates())))
    assert found == openmp._addresses(ctypes.CDLL(str(own)))
    assert found != openmp._addresses(other)


def test_torchs_openmp_runtime_is_found():
    if not torch.backends.openmp.is_available():
        pytest.skip("torch without OpenMP")
    assert openmp.connect()


def test_serial_stand_in_defines_every_function():
    for name in openmp.FUNCTIONS:
        assert f"@{name}(" in openmp.SERIAL


def test_no_compiler_is_needed():
    """A process with an empty PATH compiles and runs a kernel."""
    code = (
        "import torch\n"
        "from tests.runtime_cpu.test_loading import _kernel, _call\n"
        "from dovetail.runtime.cpu import load\n"
        "k = _kernel()\n"
        "x = torch.randn(100)\n"
        "assert torch.equal(_call(load([k])[k.symbol], x), x + 1)\n"
    )
    environment = {**os.environ, "PATH": "", "DOVETAIL_CACHE_DIR": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = python("-c", code, env=environment)
    assert done.returncode == 0, done.stderr


def test_launchers_are_there_for_whatever_an_object_holds(tmp_path):
    """What starts many groups is linked when a kernel needs it, also where that lies on disk beside others."""
    program = """
import sys, torch
from pathlib import Path
from dovetail.codegen.cpu import generate
from dovetail.ir.loops import Const
from dovetail.runtime.cpu.loading import Loader
from dovetail.runtime.store import Store
from tests.codegen.harness import op, pointwise

def kernel(extra, many):
    x = torch.empty(40)
    return generate(pointwise(lambda a: op("add", a, Const(extra, torch.float32)), {"x": x}, x), many=many)

loader, store, x, out = Loader(), Store(Path(sys.argv[1])), torch.ones(40), torch.zeros(40)
one, many = kernel(1.5, False), kernel(2.5, True)
for wanted in eval(sys.argv[2]):
    functions = loader.load(wanted, store)
    for k in wanted:
        assert functions[k.symbol](x.data_ptr(), out.data_ptr(), 40) == 0
        print(out[0].item())
"""
    for order, wanted in (("[[one, many]]", "2.5 3.5"), ("[[one], [many]]", "2.5 3.5"), ("[[many]]", "3.5")):
        found = python("-c", program, str(tmp_path), order)
        assert found.stdout.split() == wanted.split(), (found.returncode, found.stderr)
