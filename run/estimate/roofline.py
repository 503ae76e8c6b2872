"""Estimates how long an update takes on a GPU, from shapes alone: nothing is measured.

The time of a phase is its work divided by an assumed rate: the GPU's published peak times COMPUTE
or READ. All turns have their full length. The formulas use the letters of `run.estimate.memory` (D,
Q, K, V, L, k, s). P and R are the tokens of a prompt and a response, and T = P + R.

The estimate counts matrix products, and for generation also reads of the GPU's memory and vLLM's
overhead. It leaves out communication between ranks, transfers to and from the host, AdamW, merged
turns, cached prefixes, environments, weight pushes, continuations, the critic's warm-up and
evaluations.
"""

from dataclasses import dataclass

from run.estimate.setting import FP32, Setting
from run.estimate.shape import Shape

COMPUTE, READ = 0.4, 0.6  # assumed fractions of the published rates
STEP = 0.005  # assumed overhead of a vLLM step, in seconds


@dataclass(frozen=True)
class Device:
    """The published peak rates of a GPU, per second."""

    name: str
    flops: float  # of dense bf16 matrix products
    flops_fp32: float
    memory: float  # bytes of its own memory

    def compute(self, setting: Setting) -> float:
        """Return the assumed operations per second in a setting's dtype."""
        return COMPUTE * (self.flops if setting.itemsize < FP32 else self.flops_fp32)


DEVICES = [
    Device("H100", 989e12, 67e12, 3.35e12),
    Device("H200", 989e12, 67e12, 4.8e12),
    Device("A100", 312e12, 19.5e12, 2.04e12),
]


def find_device(name: str) -> Device:
    """Return the device whose name is part of the GPU's name, or the H100 if there is none."""
    return next((device for device in DEVICES if device.name in name), DEVICES[0])


def seconds(shape: Shape, setting: Setting, device: Device) -> dict[str, float]:
    """Return the seconds of each phase of an update, which generates with vLLM."""
    return {
        "generation": generation(shape, setting, device),
        "scoring": scoring(shape, setting) / device.compute(setting),
        "training": training(shape, setting) / device.compute(setting),
    }


def generation(shape: Shape, setting: Setting, device: Device) -> float:
    """Return the seconds of generation, or infinity if vLLM has no room for a turn (`room`).

    Each of the e_len turns reads its prompts and then samples R tokens. If the cache cannot hold
    all environments, they are sampled in waves. A step takes as long as the slower of its memory
    reads (the weights and the cache so far) and its arithmetic. Ranks that share an engine compute
    their part of it for the environments of all, so a rank reads less and computes as much.
    """
    P, R = setting.prompt_limit, setting.response_limit
    wave = room(shape, setting)
    if not wave:
        return float("inf")
    prompts = setting.n_env * shape.n_layers * layer_flops(shape, P) / device.compute(setting)
    past, used = P + R / 2, shape.n_layers * shape.layer + shape.vocab * shape.hidden
    operations = wave * (2 * used + 4 * past * shape.queries * shape.n_layers)
    read = setting.engine_weights(used) + wave * past * cached(shape, setting)
    step = STEP + max(operations / device.compute(setting), read / (READ * device.memory))
    steps = R * setting.n_env / wave  # a last, smaller wave takes its share of the time
    return setting.e_len * (prompts + steps * step)


def room(shape: Shape, setting: Setting) -> int:
    """Return how many turns are sampled at the same time: all, or as many as fit into vLLM's share
    of the GPU next to the weights."""
    free = setting.vllm_share - setting.engine_weights(shape.model)
    fit = int(max(0, free) // (setting.length * cached(shape, setting)))
    return min(setting.n_env, fit) if setting.cuda else setting.n_env


def cached(shape: Shape, setting: Setting) -> int:
    """Return the bytes of one token's keys and values in all layers."""
    return 2 * setting.itemsize * shape.keys * shape.n_layers


def scoring(shape: Shape, setting: Setting) -> float:
    """Return the operations of scoring: actor, critic and reference run forward over all turns.

    Top layers are counted in full. With --tis-cap the actor stops at the critic's first layer.
    """
    L, k, layer = shape.n_layers, setting.critic_layers, layer_flops(shape, setting.length)
    values = L * layer * (not setting.no_critic)
    actor = values if setting.tis_cap else (L + k) * layer + head_flops(shape, setting)
    again = setting.trained_layers(L)  # what lies below is known from the actor's pass
    reference = 0 if setting.reference == "none" else again * layer + head_flops(shape, setting)
    return turns(setting) * (actor + reference)


def training(shape: Shape, setting: Setting) -> float:
    """Return the operations of all epochs.

    A backward pass takes twice as many as a forward pass. Matrices that LoRA freezes have no
    gradient, so their backward pass takes as many as the forward pass. Checkpointing adds a forward
    pass of the layers, and logits are always computed twice. What lies below the top layers is
    known from scoring in the first epoch, and computed forward in each other.
    """
    again, frozen = setting.gradient_checkpointing, setting.lora_rank > 0
    top = setting.trained_layers(shape.n_layers)
    layer = layer_flops(shape, setting.length)
    matrices = 2 * setting.length * shape.layer  # `layer` without the attention
    actor = top * ((3 + again) * layer - frozen * matrices)
    critic = setting.critic_layers * (3 + again) * layer
    head = (4 - setting.frozen_head) * head_flops(shape, setting)
    below = (setting.ppo_epoch - 1) * (shape.n_layers - top) * layer
    return turns(setting) * (setting.ppo_epoch * (actor + critic + head) + below)


def layer_flops(shape: Shape, tokens: int) -> int:
    """Return the operations of a layer's forward pass over a turn.

    These are 2 per parameter and token, and causal attention, which multiplies T^2 / 2 pairs of Q
    numbers twice: 4 T^2 Q / 2.
    """
    return 2 * tokens * shape.layer + 2 * tokens**2 * shape.queries


def head_flops(shape: Shape, setting: Setting) -> int:
    """Return the operations of lm_head's forward pass over the R response tokens of a turn."""
    return 2 * setting.response_limit * shape.vocab * shape.hidden


def turns(setting: Setting) -> int:
    """Return the number of turns that a rank scores and trains on in an epoch."""
    return setting.n_env * setting.e_len
