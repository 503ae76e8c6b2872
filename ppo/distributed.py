"""Many ranks: the same main.py in each process, started by torchrun or accelerate launch.

    torchrun --nproc-per-node 8 main.py --env-name babyai-goto --zero-stage 2

Every rank plays its share of the environments, holds the whole batch, and computes its share of
each minibatch. With --zero-stage 0 it also holds the whole model, and the gradients are summed. In
stages 1 to 3 DeepSpeed shards the model; only this file imports it.
"""

import os
import socket
import sys
import warnings
from collections import Counter
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from common.errors import RunError
from common.plugins import UserError
from common.processors import processors_of_a_rank
from common.ranks import ALONE, Ranks
from ppo.optimizer import Stepper

DEAD = (  # in messages of gloo, the store and NCCL when the process at the other end is gone
    "closed by peer",
    "reset by peer",
    "broken pipe",
    "connection was likely closed",
    "remote process exited",
)


PATIENCE = timedelta(hours=4)  # ranks wait for the slowest rollout, and for a checkpoint
BUCKET = 10**8  # numbers that DeepSpeed reduces at a time; its own 5 * 10^8 take 2 GB of each GPU
LIVE = 2 * 10**8  # numbers of gathered parameters that stage 3 keeps for their next use
SQUARED = 2**18  # gradients that are squared at a time, for the norm


class LaunchedRanks(Ranks):
    """The processes that a launcher started. One process alone is a rank if ZeRO is to shard it."""

    def __init__(self):
        alone = dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="localhost")
        with socket.socket() as probe:
            probe.bind(("", 0))  # to any free port
            alone["MASTER_PORT"] = probe.getsockname()[1]
        for name, value in alone.items():
            os.environ.setdefault(name, str(value))
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        # Objects travel over gloo: pickled for NCCL they would pass through the GPU.
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)  # NCCL's own ends after 10 minutes
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = f"cuda:{torch.cuda.current_device()}" if cuda else "cpu"
        if self.rank:
            sys.stdout = open(os.devnull, "w", errors="replace")  # rank 0 speaks for all

    def gather(self, items: list) -> list:
        return gathered(items)

    def sum(self, tensor: Tensor) -> Tensor:
        with together():
            dist.all_reduce(tensor)
        return tensor


def gathered(items: list, group=None) -> list:
    """Return the concatenated lists of the ranks of a group, or of all."""
    lists = [None] * dist.get_world_size(group)
    with together():
        dist.all_gather_object(lists, items, group)
    return [item for part in lists for item in part]


@contextmanager
def together():
    """RunError: a rank that should take part has died. Other errors keep their own text."""
    try:
        yield
    except RuntimeError as error:
        if not any(sign in str(error).lower() for sign in DEAD):
            raise
        reason = str(error).rpartition(".cc:")[2].partition("] ")[2] or str(error)
        reason = reason.partition(". This is")[0]  # gloo explains it
        raise RunError(f"another rank has ended ({reason[:100]!r})") from error


def make_ranks(zero_stage: int) -> Ranks:
    """Return this process alone, or the ranks that a launcher has started.

    UserError: --zero-stage without DeepSpeed
    """
    if zero_stage:
        try:
            import_deepspeed()
        except ImportError as error:
            raise UserError(f"--zero-stage {zero_stage} needs deepspeed ({error})") from error
    alone = int(os.environ.get("WORLD_SIZE", 1)) == 1 and not zero_stage
    return ALONE if alone else LaunchedRanks()


def import_deepspeed():
    """Import DeepSpeed without an op for inference, which its first start would compile, and
    without the lines about all ops that it prints where there is a GPU and no CUDA toolkit."""
    import deepspeed

    with redirect_stdout(StringIO()):  # it tries them all to make this dict
        compatible = deepspeed.ops.__compatible_ops__
    compatible["deepspeed_shm_comm"] = False
    return deepspeed


def shard(module: torch.nn.Module) -> None:
    """Shard a frozen module over the ranks (ZeRO 3). Layers are gathered when they compute."""
    import_deepspeed().initialize(model=module, config=frozen_config())


def frozen_config() -> dict:
    """Return DeepSpeed's configuration for parameters that are sharded and not trained."""
    sharding = {"stage": 3, **gathering()}
    return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": sharding}


def gathering() -> dict:
    """Return how stage 3 gathers parameters: all of them, however small, and only a few ahead."""
    return {
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": LIVE,
        "stage3_max_reuse_distance": LIVE,
        "stage3_prefetch_bucket_size": LIVE // 4,
    }


def make_stepper(ranks: Ranks, stage: int, offload: bool):
    """Return a Stepper of these ranks, still without its model; see `ZeroStepper`."""
    if not stage:
        return partial(Stepper, ranks=ranks)
    return partial(ZeroStepper, ranks=ranks, stage=stage, offload=offload)


class ZeroStepper(Stepper):
    """DeepSpeed ZeRO: stage 1 shards the optimizer's state, 2 also gradients, 3 also parameters.

    offload: whether the optimizer's state lives in host memory
    """

    def __init__(
        self, actor_critic, optimizer, max_grad_norm: float, ranks: Ranks, stage: int, offload: bool
    ):
        super().__init__(actor_critic, optimizer, max_grad_norm, ranks)
        deepspeed = import_deepspeed()
        sharding = {"stage": stage, "reduce_bucket_size": BUCKET, **gathering()}
        if offload:
            sharding["offload_optimizer"] = {"device": "cpu"}
        config = {
            "train_micro_batch_size_per_gpu": 1,  # required, but unused: micro-batches are ours
            "managed_gradient_accumulation": False,  # step() ends the accumulation
            "gradient_clipping": 0.0 if max_grad_norm == float("inf") else max_grad_norm,
            "zero_optimization": sharding,
            "zero_force_ds_cpu_optimizer": False,  # its own would have to be compiled
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 10**9,
        }
        trained = dict(model=actor_critic, optimizer=optimizer)
        with devices_as_in_torch(deepspeed):
            self.engine, *_ = deepspeed.initialize(**trained, config=config)
        self.model, self.stage, self.squares = self.engine, stage, Counter()
        # Launchers give each process one thread, which is too few to step on the host.
        self.threads = processors_of_a_rank() if offload else torch.get_num_threads()
        # A hook, because DeepSpeed shows nowhere else what one group adds to the norm: it steps one
        # group after the other, or parts of one, with clipped gradients.
        self.optimizer.register_step_pre_hook(self._measure)
        self._name_groups()
        if stage == 3:
            actor_critic.whole = deepspeed.zero.GatheredParameters

    def backward(self, loss: Tensor) -> None:
        self.engine.backward(loss * self.ranks.size)  # DeepSpeed takes the mean over ranks

    def step(self, loss: float) -> tuple[list[float], bool]:
        """Step as `Stepper.step` does. A loss that is not finite shows in the gradients."""
        self.squares.clear()
        with threads(self.threads):
            self.engine.step()
        if self.engine.optimizer.overflow:
            return [float("nan")] * len(self.optimizer.param_groups), False
        clipped = max(1.0, float(self.engine.get_global_grad_norm()) / self.max_grad_norm)
        names = [group["name"] for group in self.optimizer.param_groups]
        return [clipped * self.squares[name] ** 0.5 for name in names], True

    def _name_groups(self) -> None:
        for name, group in zip(("actor", "critic"), self.optimizer.param_groups, strict=False):
            group["name"] = name

    def _measure(self, optimizer, *_) -> None:
        """Add the squares of the gradients that AdamW is about to step; each rank has a part."""
        for group in optimizer.param_groups:
            for p in group["params"]:  # in chunks, because copies in fp64 take memory
                square = sum(chunk.double().square().sum() for chunk in p.grad.split(SQUARED))
                self.squares[group["name"]] += self.ranks.sum(square).item()

    def state_dict(self) -> dict:
        """Return how the checkpoint is sharded. Each rank writes its part of the rest (`save`)."""
        return {"zero_stage": self.stage, "ranks": self.ranks.size}

    def save(self, folder: Path) -> None:
        options = dict(save_latest=False, exclude_frozen_parameters=True)
        self.engine.save_checkpoint(folder, tag="zero", **options)

    def load_state_dict(self, state: dict, folder: Path) -> None:
        if state != self.state_dict():
            stage = state.get("zero_stage", 0)
            ranks = f"{state['ranks']} ranks, " if stage else ""
            raise UserError(f"it is of {ranks}--zero-stage {stage}, this run is not")
        self.engine.load_checkpoint(folder, tag="zero", load_module_strict=False)
        self._name_groups()  # the checkpoint has brought its own


@contextmanager
def devices_as_in_torch(deepspeed):
    """Let DeepSpeed name the rank's device by a torch.device. By a text, which no torch.device
    equals, stage 3 takes each rank's shard for one of another device, and keeps a copy of it."""
    accelerator = deepspeed.get_accelerator()
    device = torch.device(accelerator.current_device_name())
    accelerator.current_device_name = lambda: device
    try:
        yield
    finally:
        del accelerator.current_device_name


@contextmanager
def threads(count: int):
    """Compute with this many threads inside of the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
