"""NCCL for the fake device: gloo does the work in place, for a GPU's memory is the host's.

torch finds the names below as in a CUDA build, so a process group has the backend "nccl" for
tensors on the GPU, and none for the CPU's unless one is asked for. In truth that backend is gloo's,
and the GPU's kernel of each collective hands it the tensors under the CPU's name.
"""

import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

LIBRARY = torch.library.Library("c10d", "IMPL", "CUDA")
COLLECTIVES = (
    "allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "allgather_",
    "allgather_coalesced_", "_allgather_base_", "allgather_into_tensor_coalesced_",
    "reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_", "gather_",
    "scatter_", "alltoall_base_", "barrier",
)  # fmt: skip


class Options:
    """Holds the options of a group; torch fills in what it knows."""

    def __init__(self, is_high_priority_stream: bool = False):
        self.is_high_priority_stream = is_high_priority_stream
        self._timeout = None


class ProcessGroupNCCL(dist.ProcessGroupGloo):
    Options = Options

    def __init__(self, store, rank: int, size: int, options: Options):
        super().__init__(store, rank, size, options._timeout)


def install() -> None:
    dist.ProcessGroupNCCL = c10d.ProcessGroupNCCL = ProcessGroupNCCL
    c10d._NCCL_AVAILABLE, c10d.default_pg_nccl_timeout = True, timedelta(minutes=10)
    with warnings.catch_warnings():  # each replaces a kernel that hands the GPU's tensors to gloo
        warnings.simplefilter("ignore", UserWarning)
        for name in COLLECTIVES:
            LIBRARY.impl(name, kernel(getattr(torch.ops.c10d, name)))


def kernel(collective):
    """Return the GPU's kernel of a collective, which has ended when it returns."""

    def run(*arguments):
        arguments = [on_host(argument) for argument in arguments]
        results = collective(*arguments)
        work = results[-1] if isinstance(results, tuple) else results
        dist.Work.unbox(work).wait()
        return results

    return run


def on_host(argument):
    """Return a tensor, lists of tensors, or a group, as the CPU's kernel takes them."""
    if isinstance(argument, Tensor):
        if not argument.is_contiguous():
            raise ValueError("Tensors must be contiguous")
        return torch.ops.fake_cuda.as_host(argument)
    if isinstance(argument, list):
        return [on_host(part) for part in argument]
    if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
        return host_group(argument)
    return argument


def host_group(argument: torch.ScriptObject) -> torch.ScriptObject:
    """Return the same ranks as a group of the host, whose backend is the one for the GPU."""
    group = dist.ProcessGroup.unbox(argument)
    host = dist.ProcessGroup(group.rank(), group.size())
    backend = group._get_backend(torch.device("cuda"))
    host._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    return host.boxed()
