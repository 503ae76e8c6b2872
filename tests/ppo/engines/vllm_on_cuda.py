"""Prints what vLLM makes of our arguments on GPUs: `vllm_on_cuda.py MODEL`, on two fake ones.

vLLM's packages for the CPU and for CUDA hold the same Python. Here its platform is CUDA's, and
EngineArgs makes all of its checks, for one rank and for two that share it. Nothing is started.
"""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT)]
for name in ("vllm._C_stable_libtorch", "vllm._qutlass_C", "vllm.cumem_allocator"):
    sys.modules[name] = ModuleType(name)  # kernels

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from vllm import platforms  # noqa: E402
from vllm.platforms.cuda import NonNvmlCudaPlatform  # noqa: E402


class Platform(NonNvmlCudaPlatform):
    """CUDA on the fake GPU."""

    @classmethod
    def is_cumem_allocator_available(cls) -> bool:
        return True

    @classmethod
    def log_warnings(cls) -> None:
        """Say nothing of a machine with different GPUs."""


platforms._current_platform = Platform()  # before other modules of vLLM keep the CPU's

from vllm.engine.arg_utils import EngineArgs  # noqa: E402

from ppo.engines.vllm_settings import CUDA_ARGUMENTS, chosen, engine_arguments  # noqa: E402


def made(sharing: int) -> dict:
    """Return what vLLM makes of our arguments where `sharing` ranks share it."""
    arguments = engine_arguments(
        model=sys.argv[1],
        dtype="bfloat16",
        seed=1,
        max_num_seqs=8,
        max_model_len=256,
        gpu_memory_utilization=0.3,
        skip_tokenizer_init=True,
        tensor_parallel_size=sharing,
        **CUDA_ARGUMENTS,
    )
    config = EngineArgs(**arguments).create_engine_config()
    more = {
        "arguments": sorted(arguments),
        "launcher": config.parallel_config.distributed_executor_backend,
        "worker": config.parallel_config.worker_cls,
        "sleeps": config.model_config.enable_sleep_mode,
        "offloads graphs": config.use_cumem_cudagraph_pool,
        "graph sizes": config.compilation_config.cudagraph_capture_sizes,
    }
    return chosen(SimpleNamespace(vllm_config=config)) | more


if __name__ == "__main__":
    alone = made(1)
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    print(json.dumps([alone, made(2)]))
