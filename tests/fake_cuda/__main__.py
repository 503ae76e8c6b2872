"""Run a program on a "cuda" device that is the host in disguise.

    python tests/fake_cuda main.py --env-name babyai-goto --model models/tiny ...
    python tests/fake_cuda -m benchmarks.memory ...
    torchrun --nproc-per-node 2 tests/fake_cuda main.py --zero-stage 2 ...

The program sees a GPU: `torch.cuda.is_available()` and `tensor.is_cuda` are True, and autocast,
fused AdamW, the packed kernel and NCCL are taken as on a GPU. The numbers come from the CPU. What
is an error on a GPU is one here: a tensor on the wrong side, `.numpy()` of a tensor on the GPU, a
CPU generator for one. Memory that nothing has written is NaN. This cannot show a kernel's rounding
and limits, races of streams, NCCL itself, fragmented memory, vLLM on a GPU, and speed.

The first start compiles the device with g++ (20 s of CPU, kept in build/fake_cuda). The variable
FAKE_CUDA_DEVICES is the number of GPUs (default: the ranks of this machine) and FAKE_CUDA_GB the
size of each (default: 80): an allocation beyond it is torch.OutOfMemoryError.

A program that is to import this device itself does so before torch:

    from fake_cuda import runtime   # with tests/ on sys.path; runtime.peak_bytes() and more
"""

import os
import runpy
import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[1])


def run(program: list[str]) -> None:
    """Run a program as Python would, as __main__. program: FILE or -m MODULE, and its arguments"""
    sys.path[0] = TESTS
    from fake_cuda import runtime  # noqa: F401

    if program[0] == "-m":
        sys.path[0], sys.argv = os.getcwd(), program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv = str(Path(program[0]).resolve().parent), program
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    run(sys.argv[1:])
