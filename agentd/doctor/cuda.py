"""A real operation on each card: memory is taken, filled and read back. libcuda alone, no toolkit."""

import ctypes
import os
from typing import Any

from agentd.core.doctor.facts import CudaDevice, CudaFacts

_BYTES, _FILL = 1 << 20, 0xA5


class _Refused(Exception):
    pass


def look_at_cuda(library: Any = None) -> CudaFacts:
    """library: libcuda as ctypes gives it; loaded where it is not given."""
    # Which cards an operator may have hidden from this shell is not the question.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        library = library or ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"error": f"libcuda cannot be loaded: {error}", "devices": []}
    try:
        _call(library, "cuInit", 0)
        count = ctypes.c_int()
        _call(library, "cuDeviceGetCount", ctypes.byref(count))
    except _Refused as error:
        return {"error": f"CUDA does not start: {error}", "devices": []}
    return {"error": "", "devices": [_device(library, index) for index in range(count.value)]}


def _device(library: Any, index: int) -> CudaDevice:
    try:
        _write_and_read(library, index)
    except _Refused as error:
        return {"index": index, "error": str(error)}
    return {"index": index, "error": ""}


def _write_and_read(library: Any, index: int) -> None:
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    _call(library, "cuDeviceGet", ctypes.byref(device), index)
    _call(library, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        _call(library, "cuCtxSetCurrent", context)
        _call(library, "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(_BYTES))
        try:
            _call(library, "cuMemsetD8_v2", memory, ctypes.c_ubyte(_FILL), ctypes.c_size_t(_BYTES))
            back = (ctypes.c_ubyte * _BYTES)()
            _call(library, "cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(_BYTES))
        finally:
            library.cuMemFree_v2(memory)
    finally:
        library.cuDevicePrimaryCtxRelease_v2(device)
    if bytes(back) != bytes([_FILL]) * _BYTES:
        raise _Refused("what was written is not what was read back: the card's memory is faulty")


def _call(library: Any, name: str, *arguments: Any) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(text))
        raise _Refused(f"{name} answers {(text.value or b'error').decode(errors='replace')} ({code})")
