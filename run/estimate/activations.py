"""Estimates the memory that a forward and a backward pass take on top of the weights.

The letters in the formulas are those of `run.estimate.memory`. A micro-batch has n tokens, and each
of its sizes is in bytes unless a docstring says otherwise.
"""

from math import ceil

from ppo.model.decoder import LOGITS_PER_CHUNK
from run.estimate.setting import FP32, Setting
from run.estimate.shape import Shape

LIVE = 10**9  # numbers that DeepSpeed gathers at a time: stage3_max_live_parameters


def casts(shape: Shape, setting: Setting) -> int:
    """Return the bytes of the bf16 copies that autocast makes of the fp32 matrices.

    The matrices are those of the actor, the critic and lm_head. With LoRA the frozen actor is
    already in bf16, and ZeRO stage 3 copies one matrix at a time.
    """
    copies = setting.itemsize < FP32 and setting.zero_stage < 3
    actor = 0 if setting.lora_rank else shape.n_layers * shape.layer + shape.vocab * shape.hidden
    return copies * 2 * (actor + setting.critic_layers * shape.layer)


def saved_per_token(shape: Shape, setting: Setting) -> int:
    """Return the bytes per token that a decoder layer keeps for its backward pass.

    For each norm it keeps the input in fp32 and the normalised input (4 + s). It also keeps the
    inputs of the five matrices after the norms (10 D; in fp32, 8 D); q, k, v and the output of the
    attention; gate, silu(gate), up and their product.
    """
    s, attention = setting.itemsize, shape.queries + shape.keys
    normed = 2 * shape.hidden + shape.qk_norm * attention
    return (FP32 + s) * normed + 10 * shape.hidden + s * (2 * attention + 4 * shape.intermediate)


def decisions(setting: Setting) -> int:
    """Return the number of response tokens in a micro-batch."""
    share = 1 if setting.merged else setting.response_limit / setting.length
    return ceil(setting.token_budget * share)


def logits(shape: Shape, setting: Setting) -> int:
    """Return how many logits are computed at a time, at most: response tokens times V."""
    return min(decisions(setting), max(1, LOGITS_PER_CHUNK // shape.vocab)) * shape.vocab


def saved_by_top_layers(shape: Shape, setting: Setting) -> int:
    """Return the bytes per micro-batch that the top layers of actor and critic need not keep.

    After their attention, the top layers compute response tokens only, so for prompt tokens they
    keep neither the norm, nor the inputs of the two matrices, nor the MLP (see `saved_per_token`).
    If the critic is a head without layers, the trunk is the whole model and computes all tokens.
    """
    s, prompts = setting.itemsize, setting.token_budget - decisions(setting)
    behind = (FP32 + s) * shape.hidden + 4 * shape.hidden + 4 * s * shape.intermediate
    tops = 2 * (setting.critic_layers > 0) + setting.no_critic
    return shape.plain * tops * prompts * behind


def activations(shape: Shape, setting: Setting) -> int:
    """Return what all layers keep of a micro-batch, plus the peak of the backward pass.

    The backward pass of a layer holds gradients of the MLP's product and of its two factors, of the
    hidden states at both ends, and of one D x F matrix. The backward pass of the log-probs holds 5
    blocks of logits and the gradient of lm_head, or 3 copies of that gradient while it is summed.
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
    # Layers keep only their inputs. The forward pass ends with three blocks of logits and then
    # frees the bf16 copies, but a layer that is recomputed copies its matrices again.
    copies = casts(shape, setting)
    again = layer + backward + 2 * shape.layer * (copies > 0)
    return layers * n * s * shape.hidden + max(copies + 12 * e, again, log_probs)


def scoring(shape: Shape, setting: Setting) -> int:
    """Return the bytes of scoring, which has no gradients.

    It holds three blocks of an MLP or three blocks of fp32 logits, and the part of the reference
    that is moved to the device for scoring.
    """
    s, model = setting.itemsize, shape.model
    moved = {"device": 0, "host": setting.cuda * model, "sharded": min(model, LIVE), "none": 0}
    block = max(3 * s * setting.token_budget * shape.intermediate, 12 * logits(shape, setting))
    return casts(shape, setting) + block + s * moved[setting.reference]
