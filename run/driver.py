"""Compares the GPUs that the NVIDIA driver lists with what torch can use.

A torch that is built for a newer CUDA than the driver knows sees no GPU and raises no error: a run
would quietly train a small model on the CPU.
"""

import os

import torch

from common.nvidia_smi import Driver, ask_driver
from common.plugins import UserError

OLDEST = {11: "450.80", 12: "525.60", 13: "580.65"}  # the Linux driver that each CUDA needs
VISIBLE = "CUDA_VISIBLE_DEVICES"


def why_unseen(driver: Driver) -> str:
    """Return why torch sees none of the driver's GPUs and what helps; "" if it sees one, if there
    is none, or if CUDA_VISIBLE_DEVICES hides them on purpose."""
    visible = os.environ.get(VISIBLE)
    hidden = visible is not None and (not visible.strip() or visible.startswith("-1"))
    if torch.cuda.is_available() or not driver.gpus or hidden:
        return ""
    count, cuda = len(driver.gpus), torch.version.cuda
    gpus = f"{count} GPU{'s' * (count > 1)} ({driver.gpus[0]}, driver {driver.version})"
    return f"nvidia-smi lists {gpus}, but torch {torch.__version__} sees none: " + reason(
        driver.version, cuda, visible
    )


def reason(version: str, cuda: str | None, visible: str | None) -> str:
    """Return the likely reason and its remedy. cuda: that torch is built for; None: for none"""
    if cuda is None:
        return "it is built for CPUs; install the build for CUDA (constraints-cuda.txt)"
    oldest = OLDEST.get(int(cuda.split(".")[0]), "0")
    if numbers(version) < numbers(oldest):
        return (
            f"it is built for CUDA {cuda}, which needs driver {oldest} or newer; update the "
            "driver, or install a torch for an older CUDA and take --engine transformers"
        )
    if visible is not None:
        return f"{VISIBLE}={visible} names none of them; correct it"
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return f"{' '.join(str(error).split()):.200}; restart the machine or its container"
    return "the reason is unknown; restart the machine or its container"


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def refuse_unseen_gpu() -> None:
    """UserError: there is a GPU, and torch cannot use it"""
    if not torch.cuda.is_available() and (line := why_unseen(ask_driver())):
        raise UserError(f"{line}. To train on the CPU, set {VISIBLE} to nothing: {VISIBLE}= ...")
