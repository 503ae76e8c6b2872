"""What torch.cuda calls in C, for the fake device. Import this module before torch.

torch's own Python (torch.cuda, its memory statistics, its random states) stays as it is and finds
the names that a CUDA build has in torch._C. Where it has kept a stand-in of the CPU build, that is
replaced.
"""

import ctypes
import os
import sys
from types import SimpleNamespace

from fake_cuda.build import built

assert "torch" not in sys.modules, "torch keeps its first answer to whether there is a GPU"
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # that collectives have a kernel already
LIBRARY = ctypes.CDLL(str(built()), os.RTLD_GLOBAL | os.RTLD_NOW)
for name in ("fake_total_bytes", "fake_live_bytes", "fake_peak_bytes"):
    getattr(LIBRARY, name).restype = ctypes.c_int64

import torch  # noqa: E402

from fake_cuda import attention, collectives  # noqa: E402

NAME, CAPABILITY = "fake H100", (9, 0)


def peak_bytes(gpu: int = 0) -> int:
    """Return the most bytes that were held at one time since the start or `reset_peak`."""
    return LIBRARY.fake_peak_bytes(gpu)


def reset_peak(gpu: int = 0) -> None:
    LIBRARY.fake_reset_peak(gpu)


# ---- the names of torch._C -----------------------------------------------------------------------
def device_count() -> int:
    return LIBRARY.fake_gpu_count()


def current_device() -> int:
    return LIBRARY.fake_current_gpu()


def set_device(gpu: int) -> None:
    if gpu >= device_count():
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")
    if gpu >= 0:
        LIBRARY.fake_select_gpu(gpu)


def exchange_device(gpu: int) -> int:
    before = current_device()
    set_device(gpu)
    return before


def memory_stats(gpu: int) -> dict:
    live, peak = LIBRARY.fake_live_bytes(gpu), peak_bytes(gpu)
    counts = {"all": {"current": live, "peak": peak}}
    return {"allocated_bytes": counts, "reserved_bytes": counts}


def memory_left(gpu: int) -> tuple[int, int]:
    total = LIBRARY.fake_total_bytes()
    return total - LIBRARY.fake_live_bytes(gpu), total


def properties(gpu: int) -> SimpleNamespace:
    major, minor = CAPABILITY
    return SimpleNamespace(
        name=NAME,
        major=major,
        minor=minor,
        total_memory=LIBRARY.fake_total_bytes(),
        multi_processor_count=132,
        warp_size=32,
        uuid="fake",
    )


def nothing(*args, **options) -> None:
    """Stand for what has no effect where nothing is asynchronous or cached."""


def zero(*args, **options) -> int:
    return 0


IN_C = {
    "_cuda_init": nothing,
    "_cuda_getDeviceCount": device_count,
    "_cuda_getDevice": current_device,
    "_cuda_setDevice": set_device,
    "_cuda_exchangeDevice": exchange_device,
    "_cuda_maybeExchangeDevice": exchange_device,
    "_cuda_synchronize": nothing,
    "_cuda_emptyCache": nothing,
    "_cuda_ipc_collect": nothing,
    "_cuda_memoryStats": memory_stats,
    "_cuda_resetPeakMemoryStats": reset_peak,
    "_cuda_resetAccumulatedMemoryStats": nothing,
    "_cuda_getArchFlags": lambda: "sm_90",
    "_cuda_getCurrentRawStream": zero,
    "_cuda_setStream": nothing,
    "_cuda_get_sync_debug_mode": zero,
    "_cuda_set_sync_debug_mode": nothing,
    "_cuda_isInBadFork": lambda: False,
    "_nccl_version": lambda: (2 << 32) + (27 << 16) + 7,
    "_nccl_version_suffix": lambda: b"fake",
}


# ---- streams and storages ------------------------------------------------------------------------
def index(device) -> int:
    """Return the number of a device, which torch accepts as a number, a name, or None."""
    if isinstance(device, int):
        return device
    found = None if device is None else torch.device(device).index
    return current_device() if found is None else found


class Stream(torch.Stream):
    def __new__(cls, device=None, priority=0, **options):
        return super().__new__(cls, device=torch.device("cuda", index(device)))


class Event(torch.Event):
    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, **options):
        return super().__new__(cls, device="cuda", enable_timing=enable_timing)


def default_stream(device=None) -> Stream:
    return Stream(device)


def storage_on_gpu(make):
    """Return the constructor of storages, which in C++ knows CUDA in a CUDA build alone."""

    def new(cls, *args, device=None, **options):
        if device is None or torch.device(device).type != "cuda":
            return make(cls, *args, **options, **({} if device is None else {"device": device}))
        count = args[0] if args else 0
        return torch.empty(count, dtype=torch.uint8, device=device).untyped_storage()

    return staticmethod(new)


def install() -> None:
    """Let torch find the device."""
    assert LIBRARY.fake_has_cuda(), "torch has asked for a GPU before the library was loaded"
    for name, function in IN_C.items():
        setattr(torch._C, name, function)
    cuda = torch.cuda
    cuda._initialized = True
    cuda._exchange_device = cuda._maybe_exchange_device = exchange_device
    cuda._get_device_properties = properties
    cuda._cudart = SimpleNamespace(cudaMemGetInfo=memory_left)
    cuda.default_generators = (torch.default_generator,) * device_count()
    cuda.Stream = cuda.streams.Stream = Stream
    cuda.Event = cuda.streams.Event = Event
    cuda.current_stream = cuda.default_stream = default_stream
    cuda.nvtx._nvtx = SimpleNamespace(
        rangePushA=zero, rangePop=zero, rangeStartA=zero, rangeEnd=nothing, markA=nothing
    )
    torch.UntypedStorage.__new__ = storage_on_gpu(torch.UntypedStorage.__new__)
    attention.install()
    collectives.install()


install()
