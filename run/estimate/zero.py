"""What DeepSpeed ZeRO holds on a GPU besides each rank's share of training's state.

The letters are those of `run.estimate.memory`. Sizes are in bytes. They were found by following
DeepSpeed 0.19's allocations, and `benchmarks.memory` compares them with measured peaks.
"""

from ppo.distributed import BUCKET, LIVE, SQUARED
from run.estimate.setting import FP32, Setting
from run.estimate.shape import Shape


def trained(shape: Shape, setting: Setting) -> int:
    """Count the parameters that have a gradient.

    The critic has k layers, a norm of D and a head of D + 1. The model is trained whole, or with
    LoRA through r (in + out) numbers per matrix of a layer: q D+Q, k and v D+K, o Q+D, gate and up
    D+F, down F+D; or its top K layers are, and a norm.
    """
    critic = setting.critic_layers * shape.layer + 2 * shape.hidden + 1
    critic = 0 if setting.no_critic else critic
    sides = 7 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 3 * shape.intermediate
    if setting.top_layers:
        return critic + setting.top_layers * shape.layer + shape.hidden
    return critic + (setting.lora_rank * shape.n_layers * sides or shape.model)


def bucket(shape: Shape, setting: Setting) -> int:
    """Return the size of the bucket of gradients; a CPU allocates only the pages in use."""
    return FP32 * (BUCKET if setting.cuda else min(trained(shape, setting), BUCKET))


def reductions(shape: Shape, setting: Setting) -> tuple[int, int]:
    """Return what the reduction of gradients holds in the backward pass of the log-probs, and then.

    Stages 1 and 2 allocate the bucket for each backward pass. From the first reduction on there is
    a copy of its contents. Stage 2 then also has this rank's gradients of the micro-batch, beside
    their sum.
    """
    size, stage = bucket(shape, setting), setting.zero_stage
    if stage == 2:
        share = 0 if setting.offload_optimizer else setting.shard(trained(shape, setting), 2)
        return size, 2 * size + FP32 * share
    return size * (stage == 1), size * (stage in (1, 3))


def gathered(shape: Shape, setting: Setting) -> tuple[int, int, int]:
    """Return what stage 3 has gathered: lm_head, in whole passes; the embeddings, at both ends of a
    pass; other parameters, in between."""
    if setting.zero_stage < 3:
        return 0, 0, 0
    width = setting.itemsize if setting.lora_rank else FP32
    matrix = width * shape.vocab * shape.hidden
    return matrix, 0 if shape.tied else matrix, FP32 * LIVE


def step_buffers(shape: Shape, setting: Setting) -> tuple[int, int, int, int]:
    """Return what the step holds besides the optimizer's state, at each moment of a run.

    It copies the gradients of a shard, and squares some of them at a time in fp64. On a CPU AdamW
    has two temporaries of a shard. Offloaded, the gradient of each parameter passes through the
    GPU: there are two copies of it, one in fp64, and in stages 1 and 2 a buffer that stays. The
    largest parameter is the embedding.
    """
    if setting.offload_optimizer:
        largest = FP32 * setting.shard(shape.vocab * shape.hidden, 3)
        stays = largest * (setting.zero_stage < 3)
        return stays, stays, 2 * stays, stays + 3 * largest
    shard = FP32 * setting.shard(trained(shape, setting), 1)
    return 0, 0, 0, shard + 16 * SQUARED + 2 * shard * (not setting.cuda)
