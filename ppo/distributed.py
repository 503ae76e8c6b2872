"""Many ranks: the same main.py in each process, started by torchrun or accelerate launch.

    torchrun --nproc-per-node 8 main.py --env-name babyai-goto --zero-stage 2

Every rank plays its share of the environments with an engine of its own, holds the whole batch, and
computes its share of each minibatch. With --zero-stage 0 it also holds the whole model, and the
gradients are summed; stages 1 to 3 shard optimizer state, gradients and parameters by DeepSpeed,
which only this file imports.
"""

import os
import socket
import sys
import warnings
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from ppo.optimizer import Stepper
from storage.ranks import ALONE, Ranks


class LaunchedRanks(Ranks):
    """What the launcher started; one process is a rank, too, if it is to be sharded."""

    def __init__(self):
        alone = dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="localhost")
        for name, value in (alone | dict(MASTER_PORT=free_port())).items():
            os.environ.setdefault(name, str(value))
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        # Ranks wait for the slowest rollout, and for a checkpoint: longer than NCCL's 10 minutes.
        dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(hours=4))
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.here = f"cuda:{torch.cuda.current_device()}" if cuda else "cpu"
        if self.rank:
            sys.stdout = open(os.devnull, "w")  # one of them speaks

    @property
    def device(self) -> str:
        return self.here

    def gather(self, items: list) -> list:
        lists = [None] * self.size
        dist.all_gather_object(lists, items)
        return [item for part in lists for item in part]

    def sum(self, tensor: Tensor) -> Tensor:
        total = tensor.to(self.device)  # NCCL knows no tensors of the CPU
        dist.all_reduce(total)
        return tensor if total is tensor else tensor.copy_(total)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def make_ranks(zero_stage: int) -> Ranks:
    """This process alone, or one of the ranks that a launcher started.

    ValueError: --zero-stage without DeepSpeed
    """
    if zero_stage:
        try:
            import deepspeed  # noqa: F401
        except ImportError as error:
            raise ValueError(f"--zero-stage {zero_stage} needs deepspeed ({error})") from error
    alone = int(os.environ.get("WORLD_SIZE", 1)) == 1 and not zero_stage
    return ALONE if alone else LaunchedRanks()


def check_shares(args, ranks: Ranks) -> None:
    """ValueError: the ranks cannot share these environments and minibatches."""
    if args.n_env % ranks.size:
        raise ValueError(f"--n-env {args.n_env} does not divide among {ranks.size} ranks")
    if args.minibatch < ranks.size:
        raise ValueError(f"--minibatch {args.minibatch} is less than a turn for each rank")


def shard(module: torch.nn.Module) -> None:
    """Spread a frozen module over the ranks; its parameters come together layer by layer."""
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    deepspeed.initialize(model=module, config=config)


def make_stepper(stage: int, offload: bool):
    return partial(ZeroStepper, stage=stage, offload=offload) if stage else Stepper


class ZeroStepper(Stepper):
    """DeepSpeed ZeRO: stage 1 shards optimizer state, 2 gradients, 3 parameters as well.

    offload: optimizer state in the memory of the host
    """

    def __init__(
        self, actor_critic, optimizer, max_grad_norm: float, ranks: Ranks, stage: int, offload: bool
    ):
        super().__init__(actor_critic, optimizer, max_grad_norm, ranks)
        import deepspeed

        # Used by inference alone, and compiled by every first start.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        sharding = {"stage": stage, "stage3_param_persistence_threshold": 0}
        if offload:
            sharding["offload_optimizer"] = {"device": "cpu"}
        self.engine, *_ = deepspeed.initialize(
            model=actor_critic,
            optimizer=optimizer,
            config={
                "train_micro_batch_size_per_gpu": 1,  # not looked at: micro-batches are ours
                "managed_gradient_accumulation": False,  # step() is where accumulation ends
                "gradient_clipping": 0.0 if max_grad_norm == float("inf") else max_grad_norm,
                "zero_optimization": sharding,
                "zero_force_ds_cpu_optimizer": False,  # or it compiles one
                "zero_allow_untested_optimizer": True,
                "steps_per_print": 10**9,
            },
        )
        self.model, self.stage = self.engine, stage
        if stage == 3:
            actor_critic.whole = deepspeed.zero.GatheredParameters

    def backward(self, loss: Tensor) -> None:
        self.engine.backward(loss * self.ranks.size)  # it takes the mean over ranks

    def step(self, loss: float) -> tuple[float, bool]:
        """As `Stepper.step`; a loss that is not finite is noticed by its gradients."""
        self.engine.step()
        norm, fine = self.engine.get_global_grad_norm(), not self.engine.optimizer.overflow
        return (float(norm) if fine else float("nan")), fine

    def reset_actor(self) -> None:
        """Here missing gradients count as zeros: they have moved nothing but the step counter."""
        for group, parameter in self._shards():
            state = self.optimizer.state.get(parameter, {})
            if group == 0 and "step" in state:
                state["step"].zero_()

    def state_dict(self) -> dict:
        """What a checkpoint is read with; the rest each rank writes by itself: see `save`."""
        return {"zero_stage": self.stage, "ranks": self.ranks.size}

    def save(self, folder: Path) -> None:
        self.engine.save_checkpoint(
            folder, tag="zero", save_latest=False, exclude_frozen_parameters=True
        )

    def load_state_dict(self, state: dict, folder: Path) -> None:
        if state != self.state_dict():
            was = (
                "{ranks} ranks, --zero-stage {zero_stage}" if "ranks" in state else "--zero-stage 0"
            )
            raise ValueError(f"it is of {was.format(**state)}, this run is not")
        self.engine.load_checkpoint(folder, tag="zero", load_module_strict=False)

    def _shards(self):
        """(group of the optimizer, the fp32 part of it that this rank steps)."""
        zero = self.engine.optimizer
        if self.stage == 3:
            groups = zero.sub_group_to_group_id
            return [(groups[i], p) for i, p in enumerate(zero.fp32_partitioned_groups_flat)]
        return list(enumerate(zero.single_partition_of_fp32_groups))
