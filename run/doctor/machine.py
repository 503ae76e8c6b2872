"""What `turnwise doctor` checks of the GPU and the room for a run, before it computes anything."""

import shutil
from pathlib import Path

import torch

from common.nvidia_smi import Driver
from run.checkpoint import KEPT
from run.doctor.finding import Finding, failed, judged, passed, skipped
from run.driver import VISIBLE, why_unseen
from run.estimate.advice import advice, fits, here, needs, setting_of
from run.estimate.memory import trained
from run.estimate.setting import FP32
from run.estimate.shape import load_shape

OLDEST = (8, 0)  # compute capability: bfloat16 and the kernel for packed rows


def driver(found: Driver) -> Finding:
    """Compare the driver with torch's build. found: what nvidia-smi says"""
    built = f"torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}"
    if line := why_unseen(found):
        return failed(line, f"as it says; to train on the CPU, {VISIBLE}=")
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        return passed(
            f"{count} GPU{'s' * (count > 1)}, driver {found.version or 'unknown'}, {built}"
        )
    if found.error:
        remedy = f"restart the machine, or install the driver again; {VISIBLE}= for the CPU"
        return failed(found.error, remedy)
    hidden = f"{VISIBLE} hides {len(found.gpus)} GPUs" if found.gpus else "no GPU"
    return passed(f"{hidden}: all that follows is on the CPU; {built}")


def capability() -> Finding:
    if not torch.cuda.is_available():
        return skipped("no GPU")
    major, minor = torch.cuda.get_device_capability()
    found = f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"
    remedy = "--dtype float32 --rows padded --engine transformers, or a GPU with 8.0 or more"
    return judged((major, minor) >= OLDEST, found, remedy)


def memory(args) -> Finding:
    """Compare what `turnwise fit` estimates for the run with the memory that is free now."""
    shape = load_shape(args.model)
    setting, available = here(args)
    need = needs(shape, setting)
    if not fits(need, available):
        return failed("the run does not fit", advice(shape, setting, available))
    found = f"the run needs {need[0] / 1e9:.2f} GB of {available[0] / 1e9:.2f} GB"
    if not torch.cuda.is_available():
        return passed(found)
    free = torch.cuda.mem_get_info()[0]
    remedy = f"end what else runs there (nvidia-smi), take another GPU with {VISIBLE}, "
    remedy += "or lower --gpu-memory-utilization"
    return judged(need[0] <= free, f"{found}, {free / 1e9:.2f} GB are free", remedy)


def disk(args) -> Finding:
    """Compare the files of a run with the room on the disk of its directory."""
    place = (args.resume or args.run_dir or Path("runs")).absolute()
    place = next(folder for folder in (place, *place.parents) if folder.exists())
    shape = load_shape(args.model)
    setting = setting_of(args, 0)
    # A checkpoint has the trained parameters and Adam's two averages. While one is written, the
    # KEPT ones before it are still there, as is the exported model.
    needed = (KEPT + 1) * 3 * FP32 * trained(shape, setting) + 2 * setting.itemsize * shape.model
    free = shutil.disk_usage(place).free
    found = f"{KEPT} checkpoints, the next one and the model take {needed / 1e9:.2f} GB"
    remedy = "--run-dir on a larger disk, or --train lora:16, whose checkpoints are small"
    return judged(needed <= free, f"{found}; {place} has {free / 1e9:.2f} GB free", remedy)
