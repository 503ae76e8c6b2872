"""main.py on a fake GPU, with the CPU build of vLLM as its engine: `cuda_vllm.py FLAGS`.

That build replaces torch's streams and events by some that do nothing, for the whole process. Here
they are put back, because the trainer and DeepSpeed need those of the GPU.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import torch  # noqa: E402

REPLACED = {
    torch: ("Event",),
    torch.cuda: ("Event", "Stream", "set_stream", "current_stream", "stream"),
    torch.accelerator: ("synchronize", "empty_cache"),
    torch.Tensor: ("pin_memory", "record_stream"),
}
OURS = [(where, name, getattr(where, name)) for where, names in REPLACED.items() for name in names]

import vllm.v1.worker.cpu.shm  # noqa: E402, F401

for where, name, thing in OURS:
    setattr(where, name, thing)

if __name__ == "__main__":
    import main

    sys.exit(main.program())
