"""Questions about devices and the libraries that compute on them, which programs ask layer by layer.

    torch.cuda.get_device_capability()       a constant; the entry relies on which device is the current one
    torch.backends.cuda.matmul.allow_tf32    a setting that the entry relies on
"""

from __future__ import annotations

import torch

from dovetail.capture.calling.calls import fold
from dovetail.capture.process.settings import state
from dovetail.capture.tables.known_callables import FOLDED, FOLDED_METHOD_TYPES, INLINE, Handler, known
from dovetail.capture.values.base import NONE, Args, Const, Kwargs, Session, Value
from dovetail.ir.settings import PRECISIONS

_C = torch._C

_NATIVE = "_get_cpu_capability _mps_is_available _mps_is_on_macos_or_newer _is_flash_attention_available".split()
_NATIVE += ["_cuda_getArchFlags", "_cuda_getDeviceCount", "_cuda_getCompiledVersion"]
FOLDED.update(getattr(_C, name) for name in _NATIVE if hasattr(_C, name))
FOLDED.update(getattr(_C._cpu, name) for name in _NATIVE if hasattr(getattr(_C, "_cpu", None), name))
FOLDED_METHOD_TYPES |= {getattr(_C, name) for name in ("_CudaDeviceProperties",) if hasattr(_C, name)}


@known(torch.cuda.init, torch.cuda._lazy_init)
def _start(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """As eager does on the first question, once for the process."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return s.throw_native(error)
    return NONE


@known(torch.cuda.memory_stats, torch.cuda.mem_get_info)
def _memory(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if torch.cuda.is_initialized():
        s.unsupported("opaque-call", "the code asks how much memory a device has left, which is another while it runs")
    return INLINE


def _of_one_device(function: object) -> Handler:
    def ask(s: Session, args: Args, kwargs: Kwargs) -> Value:
        state(s, "current_device")  # which the argument may mean, too
        return fold(s, function, args, kwargs)

    return ask


for _function in (torch.cuda.get_device_properties, torch.cuda.get_device_capability, torch.cuda.get_device_name):
    known(_function)(_of_one_device(_function))


@known(_C._get_fp32_precision_getter)
def _precision(s: Session, args: Args, kwargs: Kwargs) -> Value:
    key = tuple(each.native() for each in args)
    if key not in PRECISIONS:
        return fold(s, _C._get_fp32_precision_getter, args, kwargs)
    return Const(state(s, PRECISIONS[key]))
