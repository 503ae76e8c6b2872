"""Estimates the bytes that a run needs on each rank, from shapes alone: nothing is allocated.

A run passes through four MOMENTS: it generates, scores, runs the backward pass and steps the
optimizer. The moment with the largest sum of terms is the peak. All turns are assumed to have their
full length. Tests and benchmarks/memory.py compare the estimate with measured allocations, and it
may be 5 % off. It leaves out CUDA's context (about 1 GB), vLLM's CUDA graphs, and fragmentation.

In the formulas D is the hidden size and F that of the MLP, Q and K are the widths of queries and
keys, V is the vocabulary, L and k are the decoder layers of actor and critic, n is the number of
tokens in a micro-batch, and s is the bytes of a number in the compute dtype.
"""

from math import ceil

from ppo.model.make import in_shards
from run.estimate import zero
from run.estimate.activations import activations, scoring
from run.estimate.setting import FP32, Setting
from run.estimate.shape import Shape
from run.estimate.zero import bucket, trained

MOMENTS = ("generate", "score", "backward", "step")


def estimate(shape: Shape, setting: Setting) -> dict[str, tuple[int, int, int, int]]:
    """Return the bytes of each term on a rank's device, at each of the four MOMENTS."""
    rows = {t: (size * (not setting.on_host(t)),) * 4 for t, size in states(shape, setting).items()}
    if setting.zero_stage < 3:  # which frees them after the step
        rows["gradients"] = (0, 0, *rows["gradients"][2:])
    generating = engine(shape, setting)
    awake = setting.engine == "vllm" and not setting.cuda  # vLLM sleeps on a GPU only
    return rows | {
        "engine": (generating, *[awake * generating] * 3),
        "activations": (0, scoring(shape, setting), activations(shape, setting), 0),
        "step buffers": step_buffers(shape, setting),
    }


def totals(shape: Shape, setting: Setting) -> dict[str, int]:
    """Return the bytes on a rank's device at each moment."""
    columns = zip(*estimate(shape, setting).values(), strict=True)
    return dict(zip(MOMENTS, map(sum, columns), strict=True))


def loading(shape: Shape, setting: Setting) -> int:
    """Return the bytes on the device before anything is cast or moved to the host.

    These are the model and the critic in fp32, and the copy that becomes the reference. Where a
    model is loaded in shards, the rank has its share of them, and lm_head and the layers that
    become the critic are gathered.
    """
    critic = setting.critic_layers * shape.layer
    if in_shards(setting):
        gathered = shape.vocab * shape.hidden + 2 * critic
        weights = FP32 * (setting.shard(shape.model, 3) + gathered)
    else:
        weights = FP32 * (shape.model + critic)
    return weights + reference(shape, setting) * (setting.reference != "host")


def states(shape: Shape, setting: Setting) -> dict[str, int]:
    """Return the bytes of each term that persists between updates, on the device or the host."""
    s, stage, count = setting.itemsize, setting.zero_stage, trained(shape, setting)
    parameters = FP32 * setting.shard(count, 3) + setting.shard(frozen(shape, setting), 3)
    # With offloading, stages 2 and 3 keep gradients on the host
    gradients = 0 if setting.offload_optimizer and stage > 1 else setting.shard(count, 2)
    # AdamW holds two averages. Stages 1 and 2 add a copy of their shard of the parameters, and
    # offloading a buffer for the transfer back, the gradients and two temporaries of the step.
    numbers = 7 if setting.offload_optimizer else 3 if stage in (1, 2) else 2
    # Each rank holds the turns of all ranks, and the warm-up holds w_epoch batches at once.
    turns = max(1, setting.w_epoch) * setting.ranks * setting.n_env * setting.e_len
    # In arrays an id and a log-prob take 4 bytes each, and the text of a token takes 18. An id in a
    # list takes 40: each environment has lists for its next prompt, last prompt and last response.
    held = turns * (4 * setting.prompt_limit + (4 + 4 + 18) * setting.response_limit)
    ids = 2 * setting.prompt_limit + setting.response_limit
    held += setting.ranks * setting.n_env * 40 * ids
    known = setting.n_env * setting.e_len * setting.length * shape.hidden * s  # of the own turns
    known = min(known, setting.known_room)
    return {
        "parameters": parameters,
        "gradients": FP32 * gradients + (stage == 3) * bucket(shape, setting),
        "optimizer": numbers * FP32 * setting.shard(count, 1),
        "reference": reference(shape, setting),
        # a mask and 7 numbers, of which values and returns need a critic
        "batch: tensors": turns * setting.response_limit * (1 + (7 - 2 * setting.no_critic) * FP32),
        "batch: lists": held,
    } | ({"known states": known} if setting.top_layers else {})


def frozen(shape: Shape, setting: Setting) -> int:
    """Return the bytes of the weights that are not trained.

    LoRA freezes the model in the compute dtype; its norms and biases are fp32, but too small to
    count. What lies below the top layers is in fp32.
    """
    if setting.top_layers:
        return FP32 * (shape.model - setting.top_layers * shape.layer - shape.hidden)
    return setting.itemsize * shape.model * (setting.lora_rank > 0)


def reference(shape: Shape, setting: Setting) -> int:
    """Return the bytes of the frozen initial model: none with LoRA, where it is the base; a copy of
    the layers that are trained, or that the critic copies, in fp32; or one of the whole model."""
    if setting.lora_rank or setting.reference == "none":
        return 0
    if setting.top_layers:
        return FP32 * max(setting.top_layers, setting.critic_layers) * shape.layer
    ranks = setting.ranks if setting.reference == "sharded" else 1
    return ceil(setting.itemsize * shape.model / ranks)


def engine(shape: Shape, setting: Setting) -> int:
    """Return the bytes of the engine while it generates.

    vLLM takes its share of a GPU. On a CPU it takes its weights and a cache for 2 n_env full turns.
    The peak of transformers is either at the end of the turns (all keys and values, those of one
    layer repeated per query head, and 24 V for the distribution of a token), or while a layer reads
    all prompts (hidden states twice, queries, repeated keys and values, 3 F of the MLP).
    """
    s, wide = setting.itemsize, 2 * shape.n_layers * shape.keys  # keys and values of a token
    if setting.engine == "vllm":
        cache = 2 * setting.n_env * setting.length * wide * s
        return setting.vllm_share if setting.cuda else cache + setting.engine_weights(shape.model)
    s = s if setting.lora_rank else FP32  # the trainer's weights decide the dtype
    busy = 2 * shape.hidden + 3 * shape.queries + 3 * shape.intermediate
    end = s * setting.length * (wide + 2 * shape.queries) + 24 * shape.vocab
    return setting.n_env * max(end, s * setting.prompt_limit * (wide + busy))


def step_buffers(shape: Shape, setting: Setting) -> tuple[int, int, int, int]:
    """Return what the step holds besides the optimizer's state, at each of the four MOMENTS.

    On a CPU AdamW has two temporaries of the largest parameter, which is the embedding. On CUDA a
    fused kernel needs none.
    """
    if setting.zero_stage:
        return zero.step_buffers(shape, setting)
    largest = min(trained(shape, setting), shape.vocab * shape.hidden)
    return 0, 0, 0, 2 * FP32 * largest * (not setting.cuda)
