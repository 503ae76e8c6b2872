"""Estimates the bytes that a run needs on each rank, from shapes alone: nothing is allocated.

A run passes through four MOMENTS. The largest sum of terms is the peak; it may be 15 % off. All
turns have their full length. Tests and benchmarks/memory.py compare it with measured allocations.
In the formulas D is the hidden size, F the MLP's, Q and K the widths of queries and of keys, V the
vocabulary, L and k the decoder layers of actor and critic, n the tokens of a micro-batch, and s the
bytes of a number in the compute dtype. Not counted: CUDA's context (about 1 GB), fragmentation.
"""

from dataclasses import dataclass
from math import ceil

from ppo.model.decoder import LOGITS_PER_CHUNK
from run.fit.shape import Shape

MOMENTS = ("generate", "score", "backward", "step")
FP32 = 4  # bytes
BUCKET = 5 * 10**8  # numbers that DeepSpeed reduces at a time: reduce_bucket_size
LIVE = 10**9  # numbers that DeepSpeed gathers at a time: stage3_max_live_parameters


@dataclass(frozen=True)
class Setting:
    """The choices that decide how much memory a rank needs; most are named like their flags."""

    critic_layers: int  # k
    token_budget: int  # n, padded tokens of a micro-batch
    prompt_limit: int
    response_limit: int
    n_env: int  # environments of this rank
    e_len: int = 0  # turns of each environment in a batch
    w_epoch: int = 0  # batches of the warm-up
    itemsize: int = FP32  # s: 2 for bfloat16
    gradient_checkpointing: bool = False
    ranks: int = 1
    zero_stage: int = 0
    offload_optimizer: bool = False
    reference: str = "device"  # or host, sharded
    lora_rank: int = 0  # 0: all parameters are trained
    no_critic: bool = False  # then k is 0
    ppo_epoch: int = 1
    tis_cap: float | None = None  # None: scoring computes log pi_old
    engine: str = "transformers"  # or vllm
    cuda: bool = False
    vllm_share: int = 0  # bytes that vLLM may take of a GPU
    merged: bool = False  # whether turns share rows, which then have many responses

    @property
    def length(self) -> int:
        return self.prompt_limit + self.response_limit

    def on_host(self, term: str) -> bool:
        """Whether a term is in the host's memory. On a CPU there is only one memory: False."""
        moved = {"optimizer": self.offload_optimizer, "reference": self.reference == "host"}
        return self.cuda and moved.get(term, term == "batch: lists")

    def shard(self, count: int, from_stage: int) -> int:
        """Return this rank's share of `count` numbers, which ZeRO shards from a stage on."""
        return ceil(count / self.ranks) if self.zero_stage >= from_stage else count


def estimate(shape: Shape, setting: Setting) -> dict[str, tuple[int, int, int, int]]:
    """Return the bytes of each term on a rank's device, at each of the four MOMENTS."""
    rows = {t: (size * (not setting.on_host(t)),) * 4 for t, size in states(shape, setting).items()}
    rows["gradients"] = (0, 0, *rows["gradients"][2:])
    generating = engine(shape, setting)
    awake = setting.engine == "vllm" and not setting.cuda  # vLLM sleeps on a GPU only
    return rows | {
        "engine": (generating, *[awake * generating] * 3),
        "activations": (0, scoring(shape, setting), activations(shape, setting), 0),
        "AdamW buffers": (0, 0, 0, step_buffers(shape, setting)),
    }


def totals(shape: Shape, setting: Setting) -> dict[str, int]:
    """Return the bytes on a rank's device at each moment."""
    columns = zip(*estimate(shape, setting).values(), strict=True)
    return dict(zip(MOMENTS, map(sum, columns), strict=True))


def loading(shape: Shape, setting: Setting) -> int:
    """Return the bytes on the device before anything is sharded, cast or moved to the host: the
    model and the critic in fp32, and the copy that becomes the reference."""
    critic = setting.critic_layers * shape.layer
    copied = setting.reference in ("device", "sharded") and not setting.lora_rank
    return FP32 * (shape.model + critic) + copied * setting.itemsize * shape.model


def trained(shape: Shape, setting: Setting) -> int:
    """Count the parameters with a gradient: the critic (k layers, a norm of D, a head of D + 1) and
    the model. LoRA trains r (in + out) numbers for each matrix of a layer instead of the model:
    q D+Q, k and v D+K, o Q+D, gate and up D+F, down F+D."""
    critic = setting.critic_layers * shape.layer + 2 * shape.hidden + 1
    critic = 0 if setting.no_critic else critic
    sides = 7 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 3 * shape.intermediate
    return critic + (setting.lora_rank * shape.n_layers * sides or shape.model)


def states(shape: Shape, setting: Setting) -> dict[str, int]:
    """Return the bytes of each term that stays from update to update, on the device or the host."""
    s, stage, count = setting.itemsize, setting.zero_stage, trained(shape, setting)
    # LoRA freezes the model in the compute dtype, and needs no copy of it as a reference. Frozen
    # norms and biases are fp32, but they are too few to count.
    frozen = shape.model if setting.lora_rank else 0
    reference = 0 if setting.lora_rank or setting.reference == "none" else s * shape.model
    parameters = FP32 * setting.shard(count, 3) + s * setting.shard(frozen, 3)
    if stage == 3:  # it gathers parameters while it computes
        parameters += FP32 * min(count, LIVE) + s * min(frozen, LIVE)
    # with offloading, stages 2 and 3 keep their gradients on the host
    gradients = 0 if setting.offload_optimizer and stage > 1 else setting.shard(count, 2)
    if stage:  # ZeRO sums them in a bucket; a CPU allocates only the pages in use
        gradients += BUCKET if setting.cuda else min(count, BUCKET)
    # AdamW holds two averages. Stages 1 and 2 add a copy of their shard of the parameters.
    # Offloading adds a buffer for the transfer back, the gradients and two temporaries of the step.
    numbers = 7 if setting.offload_optimizer else 3 if stage in (1, 2) else 2
    # each rank holds the turns of all ranks; the warm-up holds w_epoch batches at once
    turns = max(1, setting.w_epoch) * setting.ranks * setting.n_env * setting.e_len
    # In arrays an id and a log-prob take 4 bytes each, and the text of a token 18. In lists an id
    # takes 40: those of each environment's next prompt, and of its last prompt and response.
    held = turns * (4 * setting.prompt_limit + (4 + 4 + 18) * setting.response_limit)
    ids = 2 * setting.prompt_limit + setting.response_limit
    held += setting.ranks * setting.n_env * 40 * ids
    return {
        "parameters": parameters,
        "gradients": FP32 * gradients,
        "optimizer": numbers * FP32 * setting.shard(count, 1),
        "reference": ceil(reference / (setting.ranks if setting.reference == "sharded" else 1)),
        # a mask and 7 numbers, of which values and returns need a critic
        "batch: tensors": turns * setting.response_limit * (1 + (7 - 2 * setting.no_critic) * FP32),
        "batch: lists": held,
    }


def engine(shape: Shape, setting: Setting) -> int:
    """Return the bytes of the engine while it generates.

    vLLM takes its share of a GPU; on a CPU, its weights and a cache for 2 n_env full turns.
    transformers has its peak at the end of the turns (their keys and values, one layer's repeated
    for each query head, and 24 V for the distribution of a token) or while a layer reads all
    prompts (hidden states twice, queries, repeated keys and values, 3 F of the MLP).
    """
    s, wide = setting.itemsize, 2 * shape.n_layers * shape.keys  # keys and values of a token
    if setting.engine == "vllm":
        cache = 2 * setting.n_env * setting.length * wide * s
        return setting.vllm_share if setting.cuda else cache + s * shape.model
    s = s if setting.lora_rank else FP32  # the trainer's weights decide the dtype
    busy = 2 * shape.hidden + 3 * shape.queries + 3 * shape.intermediate
    end = s * setting.length * (wide + 2 * shape.queries) + 24 * shape.vocab
    return setting.n_env * max(end, s * setting.prompt_limit * (wide + busy))


def casts(shape: Shape, setting: Setting) -> int:
    """Return the bytes of autocast's bf16 copies of the fp32 matrices of actor, critic and lm_head.
    LoRA's frozen actor is in bf16 already, and stage 3 makes one copy at a time."""
    copies = setting.itemsize < FP32 and setting.zero_stage < 3
    actor = 0 if setting.lora_rank else shape.n_layers * shape.layer + shape.vocab * shape.hidden
    return copies * 2 * (actor + setting.critic_layers * shape.layer)


def saved_per_token(shape: Shape, setting: Setting) -> int:
    """Return the bytes per token that a decoder layer keeps for its backward pass.

    These are, for each norm, its input in fp32 and the normalised input (4 + s); 10 D of inputs to
    the five matrices behind the norms (8 D in fp32); q, k, v and the attention's output; gate,
    silu(gate), up and their product.
    """
    s, attention = setting.itemsize, shape.queries + shape.keys
    normed = 2 * shape.hidden + shape.qk_norm * attention
    return (FP32 + s) * normed + 10 * shape.hidden + s * (2 * attention + 4 * shape.intermediate)


def decisions(setting: Setting) -> int:
    """Return the number of response tokens of a micro-batch."""
    share = 1 if setting.merged else setting.response_limit / setting.length
    return ceil(setting.token_budget * share)


def logits(shape: Shape, setting: Setting) -> int:
    """Return the size of the largest block of logits: response tokens of a micro-batch times V."""
    return min(decisions(setting), max(1, LOGITS_PER_CHUNK // shape.vocab)) * shape.vocab


def saved_by_top_layers(shape: Shape, setting: Setting) -> int:
    """Return the bytes of a micro-batch that the top layers of actor and critic need not keep.

    After the attention (a norm, inputs of two matrices and the MLP, as in `saved_per_token`) they
    compute response tokens only. With a plain head as critic the trunk is the whole model, which
    computes all tokens.
    """
    s, prompts = setting.itemsize, setting.token_budget - decisions(setting)
    behind = (FP32 + s) * shape.hidden + 4 * shape.hidden + 4 * s * shape.intermediate
    tops = 2 * (setting.critic_layers > 0) + setting.no_critic
    return shape.plain * tops * prompts * behind


def activations(shape: Shape, setting: Setting) -> int:
    """Return the bytes that all layers keep of a micro-batch, plus the larger backward pass.

    A layer's pass has gradients of the MLP's product, its two factors, the hidden states at both
    ends and a matrix D x F. The log-probs' pass has 5 blocks of logits and lm_head's gradient, or 3
    of these gradients while they are summed.
    """
    s, n, e = setting.itemsize, setting.token_budget, logits(shape, setting)
    layer, layers = n * saved_per_token(shape, setting), shape.n_layers + setting.critic_layers
    backward = n * s * (3 * shape.intermediate + 2 * shape.hidden)
    backward += FP32 * shape.hidden * shape.intermediate
    matrix = 0 if setting.lora_rank else FP32 * shape.vocab * shape.hidden
    log_probs = max(20 * e + matrix, 3 * matrix)
    if not setting.gradient_checkpointing:
        held = layers * layer - saved_by_top_layers(shape, setting)
        return casts(shape, setting) + held + max(backward, log_probs)
    # Layers keep only their inputs. The casts are freed after the forward pass, which ends with
    # three blocks of logits, but a recomputed layer casts its matrices again.
    copies = casts(shape, setting)
    again = layer + backward + 2 * shape.layer * (copies > 0)
    return layers * n * s * shape.hidden + max(copies + 12 * e, again, log_probs)


def scoring(shape: Shape, setting: Setting) -> int:
    """Return the bytes of scoring, which has no gradients: three blocks of an MLP, or three blocks
    of logits in fp32, plus the part of the reference that is moved to the device for it."""
    s, model = setting.itemsize, shape.model
    moved = {"device": 0, "host": setting.cuda * model, "sharded": min(model, LIVE), "none": 0}
    block = max(3 * s * setting.token_budget * shape.intermediate, 12 * logits(shape, setting))
    return casts(shape, setting) + block + s * moved[setting.reference]


def step_buffers(shape: Shape, setting: Setting) -> int:
    """Return the bytes of AdamW's temporaries. Stages 1 and 2 copy the gradient of their shard. On
    a CPU there are two temporaries of the largest parameter (the embedding, or ZeRO's whole shard);
    on CUDA a fused kernel needs none."""
    count = setting.shard(trained(shape, setting), 1)
    largest = count if setting.zero_stage else min(count, shape.vocab * shape.hidden)
    buffers = count * (setting.zero_stage in (1, 2)) + 2 * largest * (not setting.cuda)
    return 0 if setting.offload_optimizer else FP32 * buffers
