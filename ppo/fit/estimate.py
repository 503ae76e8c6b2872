"""How many bytes a run takes on each rank, from shapes alone: nothing is loaded or allocated.

A run goes through four moments again and again; `estimate` gives the terms of each, and the largest
sum is the peak. Checked against what torch allocates in benchmarks/memory.py and the tests.
In the formulas D is the hidden size, F the MLP's, Q and K the widths of queries and of keys, V the
vocabulary, L the decoder layers, k those of the critic, n the tokens of a micro-batch, and s the
bytes of a number in the compute dtype.

Not in it: CUDA's context and libraries (about 1 GB), fragmentation, and the turns of a batch (about
30 bytes per response token). `ppo.fit.advice` prints the table and gives advice.
"""

from math import ceil

from ppo.fit.setting import FP32, Setting, Shape
from ppo.model.decoder import LOGITS_PER_CHUNK

BUCKET = 5 * 10**8  # numbers: DeepSpeed's reduce_bucket_size
LIVE = 10**9  # numbers: DeepSpeed's stage3_max_live_parameters, gathered at a time


def estimate(shape: Shape, setting: Setting) -> dict[str, dict[str, int]]:
    """Moment -> term -> bytes on the device of a rank."""
    always = {
        "parameters": parameters(shape, setting),
        "optimizer": optimizer(shape, setting)[0],
        "reference": reference(shape, setting)[0],
    }
    generating = engine(shape, setting)
    asleep = setting.engine == "transformers" or setting.cuda  # vLLM on a CPU never sleeps
    training = always | {"engine": 0 if asleep else generating}
    learning = training | {"gradients": gradients(shape, setting)}
    return {
        "generate": always | {"engine": generating},
        "score": training | {"activations": scoring(shape, setting)},
        "backward": learning | {"activations": activations(shape, setting)},
        "step": learning | {"AdamW buffers": step_buffers(shape, setting)},
    }


def on_host(shape: Shape, setting: Setting) -> int:
    """Bytes per rank that live in the memory of the host instead."""
    return optimizer(shape, setting)[1] + reference(shape, setting)[1]


# ---- what is there all the time -----------------------------------------------------------------


def critic(shape: Shape, setting: Setting) -> int:
    """Parameters of the branch: k layers, a norm (D) and the linear head (D + 1)."""
    return setting.critic_layers * shape.layer + 2 * shape.hidden + 1


def trained(shape: Shape, setting: Setting) -> int:
    """Parameters with a gradient: all, or with LoRA the critic and, for each of the seven matrices
    (in, out) of a layer, r (in + out): q D+Q, k and v D+K, o Q+D, gate and up D+F, down F+D."""
    if not setting.lora_rank:
        return shape.model + critic(shape, setting)
    sides = 7 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 3 * shape.intermediate
    return critic(shape, setting) + setting.lora_rank * shape.n_layers * sides


def parameters(shape: Shape, setting: Setting) -> int:
    """4 bytes each; with LoRA those of the frozen model are s. Stage 3 keeps 1/ranks of them and
    gathers up to 10^9 while it computes."""
    frozen = shape.model if setting.lora_rank else 0
    size = lambda share: FP32 * share(trained(shape, setting)) + setting.itemsize * share(frozen)
    if setting.zero_stage < 3:
        return size(lambda count: count)
    return size(lambda count: setting.shard(count, 3)) + size(lambda count: min(count, LIVE))


def gradients(shape: Shape, setting: Setting) -> int:
    """4 bytes per trained parameter; ZeRO sums them in a bucket of 5 10^8 numbers (on a CPU what is
    not touched of it takes nothing), and from stage 2 on keeps 1/ranks (offloading: on the host).
    """
    count = trained(shape, setting)
    if not setting.zero_stage:
        return FP32 * count
    kept = 0 if setting.offload and setting.zero_stage > 1 else setting.shard(count, 2)
    return FP32 * (kept + (BUCKET if setting.cuda else min(count, BUCKET)))


def optimizer(shape: Shape, setting: Setting) -> tuple[int, int]:
    """(on the device, on the host): AdamW's two averages, 8 bytes per trained parameter.

    Stages 1 and 2 step a copy of their part of the parameters (4 bytes more). Offloaded, there are
    that copy, a buffer for what goes back, the gradients, and two temporaries of the step: 28.
    """
    count = setting.shard(trained(shape, setting), 1)
    if setting.offload:
        return setting.place(7 * FP32 * count)
    return (3 if setting.zero_stage in (1, 2) else 2) * FP32 * count, 0


def reference(shape: Shape, setting: Setting) -> tuple[int, int]:
    """(on the device, on the host): a copy of the model, s bytes per parameter; with LoRA none, for
    there it is the model without its adapters."""
    size = 0 if setting.lora_rank else setting.itemsize * shape.model
    if setting.reference == "host":
        return setting.place(size)
    return (ceil(size / setting.ranks) if setting.reference == "sharded" else size), 0


# ---- what comes and goes ------------------------------------------------------------------------


def engine(shape: Shape, setting: Setting) -> int:
    """vLLM: on CUDA its share of the device, given back while the trainer computes; on a CPU its
    weights and the keys and values of 2 n_env turns of full length.

    transformers: the trainer's weights. The largest of: all keys and values with those of one layer
    repeated for each query head; all keys and values with the distribution of a token, 24 V (logits
    and log-probs in fp32, p and its sum in fp64); the prompts' keys and values while a layer works
    on all prompts: hidden states twice, queries, repeated keys and values, three blocks of the MLP.
    """
    s, wide = setting.itemsize, 2 * shape.n_layers * shape.keys  # keys and values of a token
    if setting.engine == "vllm":
        cache = 2 * setting.n_env * setting.length * wide * s
        return setting.vllm_share if setting.cuda else cache + s * shape.model
    s = s if setting.lora_rank else FP32  # that of the weights
    busy = 2 * shape.hidden + 3 * shape.queries + 3 * shape.intermediate
    return setting.n_env * max(
        s * setting.length * (wide + 2 * shape.queries),
        s * setting.length * wide + 24 * shape.vocab,
        s * setting.prompt_limit * (wide + busy),
    )


def casts(setting: Setting, actor: int, branch: int = 0) -> int:
    """Autocast computes with a bf16 copy of an fp32 matrix, held until its backward pass. LoRA's
    frozen actor is bf16 already, and DeepSpeed's stage 3 makes one copy at a time."""
    if setting.itemsize == FP32 or setting.zero_stage == 3:
        return 0
    return 2 * (branch + (0 if setting.lora_rank else actor))


def kept(shape: Shape, setting: Setting) -> int:
    """Bytes per token that a decoder layer keeps for its backward pass.

    Each of two norms: its input in fp32 and the normalised input, 2 (4 + s) D. Their outputs, which
    enter five matrices: one tensor for q, k, v and one for gate, up (2 s D); under autocast a cast
    for each of the five instead. Attention without a matrix of scores: q, k, v and its output
    s (2 Q + 2 K), packed on CUDA with k and v repeated for each query head (4 s Q), and a log-sum
    per head; the rotation of q and k keeps only sines. The MLP: gate, silu(gate), up and their
    product, 4 s F. Norms of q and k: as above, (4 + s) (Q + K).
    """
    s = setting.itemsize
    repeated = setting.cuda and s < FP32
    norms = (2 * (FP32 + s) + (2 if s == FP32 else 5) * s) * shape.hidden
    keys = shape.queries if repeated else shape.keys
    attention = 2 * s * (shape.queries + keys) + FP32 * shape.heads
    extra = (FP32 + s) * (shape.queries + shape.keys) if shape.qk_norm else 0
    return norms + attention + extra + 4 * s * shape.intermediate


def backward_of_layer(shape: Shape, setting: Setting) -> int:
    """Temporaries: gradients of the MLP's product, of its two factors and of the hidden states at
    both ends, and of one matrix, D x F (in bf16 and fp32 under autocast)."""
    s = setting.itemsize
    matrix = shape.hidden * shape.intermediate * (FP32 if s == FP32 else s + FP32)
    return setting.tokens * s * (3 * shape.intermediate + 2 * shape.hidden) + matrix


def head(shape: Shape, setting: Setting) -> tuple[int, int, int]:
    """(forward, backward, kept on): bytes of the log-probs, one block of e = tokens x V at a time.

    Forward 12 e: logits, p and their product. Backward 20 e: logits, their gradient by the token's
    own entry, and z - logsumexp, exp of it, and that times the gradient. Then, with one block left,
    the gradient of the matrix (V D; under autocast in bf16 as well, beside the cast of the matrix).
    From the second block on there is the sum over earlier ones, and once a new sum beside both. A
    tied matrix keeps the sum until the embedding's gradient is added.
    """
    at_a_time = max(1, LOGITS_PER_CHUNK // shape.vocab)
    e = min(setting.decisions, at_a_time) * shape.vocab
    matrix = 0 if setting.lora_rank else FP32 * shape.vocab * shape.hidden
    summed = matrix if setting.decisions > at_a_time else 0
    half = 0 if setting.itemsize == FP32 else matrix  # a cast and a gradient of 2 bytes
    backward = max(20 * e + summed, FP32 * e + matrix + half + summed, matrix + 2 * summed)
    return 12 * e, backward, shape.tied * matrix


def activations(shape: Shape, setting: Setting) -> int:
    """The largest micro-batch, forward and backward. The branch's backward pass comes first, then
    that of the log-probs, then that of the actor's layers.

    Recomputing, a layer keeps its input (s D per token) until its turn, then what `kept` says; its
    casts are dropped when the forward pass is over.
    """
    s, n, k, L = setting.itemsize, setting.tokens, setting.critic_layers, shape.n_layers
    full, layer = n * kept(shape, setting), shape.layer
    each, again = (n * s * shape.hidden, full) if setting.recompute else (full, 0)
    # of response tokens, actor and critic: the norm's input twice, its output and the casts of it
    ends = setting.decisions * shape.hidden * 2 * (FP32 + 2 * s)
    forward, backward, tied = head(shape, setting)
    one_layer = again + backward_of_layer(shape, setting)
    in_branch = (
        casts(setting, 0, layer) if setting.recompute else casts(setting, L * layer, k * layer)
    )
    in_actor = casts(setting, layer if setting.recompute else L * layer)
    return ends + max(
        all_casts(shape, setting) + L * each + max(forward, k * each),  # all the way forward
        in_branch + (L + k) * each + one_layer,  # back at the branch's last layer
        in_actor + L * each + backward,  # back at the log-probs
        in_actor + L * each + one_layer + tied,  # back at the actor's last layer
    )


def all_casts(shape: Shape, setting: Setting) -> int:
    actor = shape.n_layers * shape.layer + shape.vocab * shape.hidden
    return casts(setting, actor, setting.critic_layers * shape.layer)


def scoring(shape: Shape, setting: Setting) -> int:
    """Without gradients: the casts of all matrices, and either a layer's temporaries (three blocks
    of the MLP, its input and output and the fork, a norm in fp32) or the block of log-probs; and
    the part of the reference that is brought here for it."""
    s, n = setting.itemsize, setting.tokens
    layer = n * (3 * s * shape.intermediate + (3 * s + FP32) * shape.hidden)
    block = head(shape, setting)[0] + 2 * n * s * shape.hidden
    _, from_host = reference(shape, setting)
    gathered = setting.itemsize * min(shape.model, LIVE) if setting.reference == "sharded" else 0
    return all_casts(shape, setting) + max(layer, block) + from_host + gathered


def step_buffers(shape: Shape, setting: Setting) -> int:
    """AdamW's denominator: none on CUDA, where one kernel does it all; on a CPU, of one parameter
    after the other, two temporaries of the largest. A shard of ZeRO is one parameter, and stages 1
    and 2 first copy its gradient."""
    if setting.offload:
        return 0
    count = setting.shard(trained(shape, setting), 1)
    flat = FP32 * count if setting.zero_stage in (1, 2) else 0
    if setting.cuda:
        return flat
    largest = shape.vocab * shape.hidden if not setting.zero_stage else count
    return flat + 2 * FP32 * min(largest, count)
