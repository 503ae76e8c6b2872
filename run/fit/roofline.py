"""How long an update may take, by arithmetic from shapes alone: nothing here is measured.

Each phase of an update is a sum of parts. A part is work divided by the rate that is assumed for it
(a GPU's published peak times the share in SHARES), and its name says what limits it. Nothing
overlaps, except that a step of decoding takes the longer of its arithmetic and its reading. All
turns have their full length, as in `run.fit.estimate`, whose letters the formulas use: D, Q, K, V,
L, k, s. Besides, P and R are the tokens of a prompt and a response, and T = P + R. Not counted:
turns that are merged, environments, ranks that wait for one another, prefixes that are cached,
vLLM's sleep and start, values at the ends of batches, the warm-up, evaluations, checkpoints.
"""

from dataclasses import dataclass
from math import ceil

from run.fit.estimate import FP32, Setting, Shape, trained

PHASES = ("generation", "scoring", "training", "push")
# What limits a part: matrix products, the GPU's own memory, the steps that vLLM's Python plans, the
# links among GPUs, the link to the host and the host's memory.
ARITHMETIC, MEMORY, STEPS, LINKS, HOST = LIMITS = ("arithmetic", "memory", "steps", "links", "host")
# The shares of the published rates that are assumed to be reached
SHARES = {ARITHMETIC: 0.4, MEMORY: 0.6, LINKS: 0.7, HOST: 0.5}
STEP = 0.005  # seconds that are assumed for each step of vLLM beside the GPU's own work
NODE = 8  # GPUs of a machine
ADAMW = 7 * FP32  # bytes: it reads a parameter, its gradient and two averages, and writes three

Parts = dict[str, float]  # what limits a part -> its seconds


@dataclass(frozen=True)
class Device:
    """What its maker publishes of a GPU in a machine of eight; all rates are per second and GPU."""

    name: str
    flops: float  # of dense bf16 matrix products
    flops_fp32: float
    memory: float  # bytes of its own memory
    inside: float  # bytes to GPUs of the same machine, one way
    between: float  # bytes that all links between two machines carry together, one way
    host: float  # bytes to or from the host
    host_memory: float  # bytes of the host's memory, of which each GPU has an eighth

    def rate(self, limit: str, setting: Setting) -> float:
        """Operations or bytes per second that are assumed for a setting."""
        peaks = {
            ARITHMETIC: self.flops if setting.itemsize < FP32 else self.flops_fp32,
            MEMORY: self.memory,
            # The pieces that machines exchange pass each of their links once.
            LINKS: self.inside if setting.ranks <= NODE else min(self.inside, self.between),
            HOST: self.host,
        }
        return SHARES[limit] * peaks[limit]


DEVICES = [
    Device("H100", 989e12, 67e12, 3.35e12, 450e9, 400e9, 64e9, 77e9),
    Device("H200", 989e12, 67e12, 4.8e12, 450e9, 400e9, 64e9, 77e9),
    Device("A100", 312e12, 19.5e12, 2.04e12, 300e9, 200e9, 32e9, 51e9),
]


def find_device(name: str) -> Device:
    """Return the device that a GPU's name contains, else the H100."""
    return next((device for device in DEVICES if device.name in name), DEVICES[0])


def seconds(shape: Shape, setting: Setting, device: Device) -> dict[str, Parts]:
    """Give phase -> what limits -> seconds of an update. Generation is as vLLM does it, and takes
    forever where its share of the GPU does not hold the weights and one whole turn."""
    phases = (generation, scoring, training, push)
    return {name: f(shape, setting, device) for name, f in zip(PHASES, phases, strict=True)}


def generation(shape: Shape, setting: Setting, device: Device) -> Parts:
    """Each of e_len turns reads its prompts and then samples R tokens, in waves if the cache does
    not hold all environments. A step reads the weights and what the cache holds so far."""
    s, P, R, wave = (
        setting.itemsize,
        setting.prompt_limit,
        setting.response_limit,
        room(shape, setting),
    )
    if not wave:
        return {MEMORY: float("inf")}
    fast, wide = device.rate(ARITHMETIC, setting), device.rate(MEMORY, setting)
    prompts = setting.n_env * shape.n_layers * layer_flops(shape, P) / fast
    past, used = P + R / 2, shape.n_layers * shape.layer + shape.vocab * shape.hidden
    operations = wave * (2 * used + 4 * past * shape.queries * shape.n_layers)
    reading = s * used + wave * past * cached(shape, setting)
    slower = ARITHMETIC if operations / fast > reading / wide else MEMORY
    steps = R * setting.n_env / wave  # a last wave with fewer turns takes its part of the time
    parts = {ARITHMETIC: prompts, MEMORY: 0.0, STEPS: steps * STEP}
    parts[slower] += steps * max(operations / fast, reading / wide)
    return {limit: setting.e_len * part for limit, part in parts.items()}


def room(shape: Shape, setting: Setting) -> int:
    """How many turns are sampled at the same time: all, or what fits beside the weights into vLLM's
    share of a GPU."""
    free = setting.vllm_share - setting.itemsize * shape.model
    fit = int(max(0, free) // (setting.length * cached(shape, setting)))
    return min(setting.n_env, fit) if setting.cuda else setting.n_env


def cached(shape: Shape, setting: Setting) -> int:
    """Bytes of the keys and values of a token in all layers."""
    return 2 * setting.itemsize * shape.keys * shape.n_layers


def scoring(shape: Shape, setting: Setting, device: Device) -> Parts:
    """A forward pass of actor and critic over all turns and one of the reference, top layers
    counted whole. With --tis-cap the actor stops where the critic's layers begin. A reference on
    the host comes over once."""
    L, k, layer = shape.n_layers, setting.critic_layers, layer_flops(shape, setting.length)
    values = L * layer * (not setting.no_critic)
    actor = values if setting.tis_cap else (L + k) * layer + head_flops(shape, setting)
    reference = 0 if setting.reference == "none" else L * layer + head_flops(shape, setting)
    s, sharded = setting.itemsize, setting.reference == "sharded"
    passes = 1 + (setting.lora_rank > 0 and setting.reference != "none")  # of sharded parameters
    moved = passes * gathered(shape, setting) + sharded * s * shape.model
    coming = s * shape.model * (setting.cuda and setting.reference == "host")
    return {
        ARITHMETIC: turns(setting) * (actor + reference) / device.rate(ARITHMETIC, setting),
        LINKS: micro_batches(setting) * exchange(moved, setting, device),
        HOST: coming / device.rate(HOST, setting),
    }


def training(shape: Shape, setting: Setting, device: Device) -> Parts:
    """The epochs: forward and backward passes, what ranks exchange, and AdamW's steps.

    A backward pass takes twice the forward's operations, but the frozen matrices of a LoRA run once
    (they have no gradient). Checkpointing adds a forward pass of the layers, and logits are always
    computed twice. Stage 0 sums gradients at each step, and stage 1 shards and gathers at each
    step. Stage 2 sums gradients after each micro-batch, and stage 3 also gathers parameters twice.
    """
    epochs, count, again = (
        setting.ppo_epoch,
        trained(shape, setting),
        setting.gradient_checkpointing,
    )
    frozen = setting.lora_rank > 0
    layer = layer_flops(shape, setting.length)
    matrices = 2 * setting.length * shape.layer  # the part of `layer` that is no attention
    actor = shape.n_layers * ((3 + again) * layer - frozen * matrices)
    critic = setting.critic_layers * (3 + again) * layer
    flops = turns(setting) * (actor + critic + (4 - frozen) * head_flops(shape, setting))
    small, steps = micro_batches(setting), n_steps(setting)
    each = {0: 0, 1: 0, 2: FP32 * count, 3: FP32 * count + 2 * gathered(shape, setting)}
    end = {0: 2 * FP32 * count, 1: 2 * FP32 * count, 2: FP32 * count, 3: 0}
    stage = setting.zero_stage
    moved = small * exchange(each[stage], setting, device)
    moved += steps * exchange(end[stage], setting, device)
    mine, offloaded = setting.shard(count, 1), setting.offload_optimizer and setting.cuda
    stepping = 0 if offloaded else steps * ADAMW * mine / device.rate(MEMORY, setting)
    # Gradients go to the host, parameters come back, and AdamW computes in the host's memory.
    beside = 2 * FP32 / device.rate(HOST, setting) + ADAMW / (SHARES[HOST] * device.host_memory)
    return {
        ARITHMETIC: epochs * flops / device.rate(ARITHMETIC, setting),
        MEMORY: epochs * stepping,
        LINKS: epochs * moved,
        HOST: epochs * steps * mine * beside * offloaded,
    }


def push(shape: Shape, setting: Setting, device: Device) -> Parts:
    """The trainer's weights are gathered, read, written in the engine's dtype and copied there."""
    s = setting.itemsize
    copied = ((s if setting.lora_rank else FP32) + 3 * s) * shape.model
    moved = exchange(gathered(shape, setting), setting, device)
    return {MEMORY: copied / device.rate(MEMORY, setting), LINKS: moved}


def layer_flops(shape: Shape, tokens: int) -> int:
    """Operations of a layer's forward pass over a turn: 2 for each parameter and token, and causal
    attention, which multiplies T^2 / 2 pairs of Q numbers twice: 4 T^2 Q / 2."""
    return 2 * tokens * shape.layer + 2 * tokens**2 * shape.queries


def head_flops(shape: Shape, setting: Setting) -> int:
    """Operations of lm_head's forward pass over the R response tokens of a turn."""
    return 2 * setting.response_limit * shape.vocab * shape.hidden


def turns(setting: Setting) -> int:
    """Turns that a rank scores and trains in an epoch."""
    return setting.n_env * setting.e_len


def n_steps(setting: Setting) -> int:
    """Optimizer steps of an epoch."""
    return max(1, round(turns(setting) * setting.ranks / setting.minibatch))


def micro_batches(setting: Setting) -> int:
    """Forward passes of a rank in an epoch: whole turns that fit the token budget together."""
    rows = max(1, setting.token_budget // setting.length)
    return n_steps(setting) * ceil(turns(setting) / n_steps(setting) / rows)


def gathered(shape: Shape, setting: Setting) -> int:
    """Bytes that stage 3 gathers in a pass: trained parameters in fp32, frozen ones in s."""
    frozen = setting.itemsize * shape.model if setting.lora_rank else 0
    return (FP32 * trained(shape, setting) + frozen) * (setting.zero_stage == 3)


def exchange(size: int, setting: Setting, device: Device) -> float:
    """Seconds in which `size` bytes are gathered from all ranks, or summed and sharded over them:
    a rank receives all but its own part."""
    others = (setting.ranks - 1) / setting.ranks
    return others * size / device.rate(LINKS, setting)
