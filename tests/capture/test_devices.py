"""Questions about devices and libraries are constants of one graph, for as long as their answers stay."""

from __future__ import annotations

import types

import pytest
import torch

import dovetail
from tests.capture.harness import compare

cuda, backends = torch.cuda, torch.backends
QUESTIONS = """
cuda.is_available(), cuda.is_initialized(), cuda.device_count(), cuda.get_arch_list(), cuda.is_bf16_supported()
torch.accelerator.is_available(), torch.accelerator.device_count(), torch.accelerator.current_accelerator()
backends.mps.is_available(), backends.mps.is_built(), torch.xpu.is_available(), torch.xpu.device_count()
backends.cuda.matmul.allow_tf32, backends.cuda.matmul.fp32_precision, backends.cudnn.allow_tf32, backends.fp32_precision
backends.cuda.matmul.allow_fp16_reduced_precision_reduction, backends.cuda.matmul.allow_bf16_reduced_precision_reduction
backends.cuda.preferred_linalg_library() == torch._C._LinalgBackend.Default
backends.cuda.is_flash_attention_available()
backends.cpu.get_cpu_capability(), torch.get_deterministic_debug_mode(), backends.cudnn.version()
backends.nnpack.is_available(), backends.mkl.is_available()
torch.cuda.is_initialized() and cuda.is_current_stream_capturing()
[error_of(q) for q in (cuda.current_device, cuda.get_device_capability, cuda.get_device_properties, cuda.init)]
""".strip().splitlines()


def error_of(question):
    try:
        return question()
    except (AssertionError, RuntimeError) as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("text", QUESTIONS)
def test_answers_are_constants_of_one_graph(text):
    function = eval(f"lambda x: (x + 1, {text})", globals())
    compiled = dovetail.compile(function, backend="eager", fullgraph=True)
    function(torch.ones(2))  # a question may begin to use a device
    for x in (torch.ones(2), torch.zeros(2)):
        compare(compiled(x), function(x))
    assert len(compiled._dovetail_dispatcher.entries) == 1


CAPABILITIES = [(8, 0), (9, 0)]


@pytest.fixture
def two_gpus(monkeypatch):
    made = [types.SimpleNamespace(major=a, minor=b, name=f"GPU {a}.{b}", total_memory=a << 30) for a, b in CAPABILITIES]
    current = [0]
    monkeypatch.setattr(cuda, "_initialized", True)
    monkeypatch.setattr(cuda, "_get_device_properties", made.__getitem__, raising=False)
    monkeypatch.setattr(cuda, "_get_device_index", lambda device, optional: current[0] if device is None else device)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    return current


OF_DEVICES = """
x * cuda.get_device_capability()[0]
x + cuda.current_device()
x * cuda.get_device_properties(None).total_memory + len(cuda.get_device_name(1))
x * 2 if cuda.get_device_capability(cuda.current_device()) >= (9, 0) else x
""".strip().splitlines()


@pytest.mark.parametrize("text", OF_DEVICES)
def test_the_current_device_is_guarded(text, two_gpus):
    function = eval(f"lambda x: {text}", globals())
    compiled, x = dovetail.compile(function, backend="eager", fullgraph=True), torch.ones(2)
    for two_gpus[0] in (0, 1, 0, 1):
        compare(compiled(x), function(x))
    assert len(compiled._dovetail_dispatcher.entries) == 2


@pytest.fixture
def tf32():
    """Puts the switches back."""
    before = torch._C._get_cublas_allow_tf32(), torch._C._get_cudnn_allow_tf32(), torch.get_float32_matmul_precision()
    with torch.backends.__allow_nonbracketed_mutation():  # the database of operators forbids it
        yield
    torch.set_float32_matmul_precision(before[2])
    torch._C._set_cublas_allow_tf32(before[0])
    torch._C._set_cudnn_allow_tf32(before[1])


SWITCHES = "cuda.matmul.allow_tf32 cudnn.allow_tf32 cuda.matmul.allow_fp16_accumulation".split()


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_guarded(name, tf32):
    owner, _, switch = f"torch.backends.{name}".rpartition(".")
    function = eval(f"lambda x: (x + 1 if {owner}.{switch} else x - 1, torch.get_float32_matmul_precision())")
    compiled, x = dovetail.compile(function, backend="eager", fullgraph=True), torch.ones(2)
    before = getattr(eval(owner), switch)
    for wanted in (True, False, True):
        setattr(eval(owner), switch, wanted)
        compare(compiled(x), function(x))
    setattr(eval(owner), switch, before)
    assert len(compiled._dovetail_dispatcher.entries) == 2


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_that_the_program_turns_is_seen_there_and_after_it(name, wanted, tf32):
    text = f"def turn(x):\n    torch.backends.{name} = {wanted}\n    return x + 1, torch.backends.{name}, "
    names = {"torch": torch}
    exec(f"{text}torch.get_float32_matmul_precision()", names)
    found, before = [], eval(f"torch.backends.{name}")
    for call in (names["turn"], dovetail.compile(names["turn"], backend="eager", fullgraph=True)):
        found.append([])
        for _ in range(2):
            exec(f"torch.backends.{name} = {not wanted}")
            found[-1].append((call(torch.ones(2)), eval(f"torch.backends.{name}")))
    exec(f"torch.backends.{name} = {before}")
    compare(found[1], found[0])


def test_memory_in_use_is_none_of_them(two_gpus):
    with pytest.raises(dovetail.GraphBreakError, match="how much memory"):
        dovetail.compile(lambda x: x + cuda.memory_allocated(), backend="eager", fullgraph=True)(torch.ones(2))


def test_no_memory_is_in_use_of_devices_that_are_not(monkeypatch):
    monkeypatch.setattr(cuda, "_initialized", False)
    function = lambda x: (x + 1, cuda.memory_allocated(), cuda.max_memory_allocated(), cuda.memory_reserved())
    compare(dovetail.compile(function, backend="eager", fullgraph=True)(torch.ones(2)), function(torch.ones(2)))
