"""Estimates the memory that a forward and a backward pass take on top of the weights.

The letters in the formulas are those of `run.estimate.memory`. A micro-batch has n tokens, and each
of its sizes is in bytes unless a docstring says otherwise.
"""

from math import ceil

from ppo.model.decoder import LOGITS_PER_CHUNK
from run.estimate.setting import FP32, Setting
from run.estimate.shape import Shape
from run.estimate.zero import gathered, reductions


def casts(shape: Shape, setting: Setting) -> tuple[int, int, int]:
    """Return the bytes of the bf16 copies that autocast makes of fp32 matrices: those of the
    actor's layers, of lm_head and of the critic's layers.

    With LoRA the frozen actor is already in bf16. Copies of other frozen matrices do not stay, nor
    do those of layers in ZeRO stage 3.
    """
    width = 2 * (setting.itemsize < FP32)
    head = width * (not setting.lora_rank) * shape.vocab * shape.hidden
    stay = width * (setting.zero_stage < 3)
    actor = stay * (not setting.lora_rank) * setting.trained_layers(shape.n_layers) * shape.layer
    return actor, head, stay * setting.critic_layers * shape.layer


def saved_per_token(shape: Shape, setting: Setting) -> int:
    """Return the bytes per token that a decoder layer keeps for its backward pass.

    For each norm it keeps the input in fp32 and the normalised input (4 + s). It also keeps the
    inputs of the five matrices after the norms (10 D; in fp32, 8 D); q, k, v and the output of the
    attention; gate, silu(gate), up and their product. Where attention scores exist, they are kept,
    and k and v are repeated for each query head. With ZeRO stage 3, adapters keep the inputs of the
    two output matrices in fp32.
    """
    s, attention = setting.itemsize, shape.queries + shape.keys
    normed = 2 * shape.hidden + shape.qk_norm * attention
    kept = (FP32 + s) * normed + 10 * shape.hidden + s * (2 * attention + 4 * shape.intermediate)
    if scores := attention_scores(shape, setting):
        kept += scores + 2 * s * (shape.queries - shape.keys)
    if setting.lora_rank and setting.zero_stage == 3:
        kept += FP32 * (shape.queries + shape.intermediate)
    return kept


def decisions(setting: Setting) -> int:
    """Return the number of response tokens in a micro-batch."""
    share = 1 if setting.merged else setting.response_limit / setting.length
    return ceil(setting.token_budget * share)


def logits(shape: Shape, setting: Setting) -> int:
    """Return how many logits are computed at a time, at most: response tokens times V."""
    return min(decisions(setting), max(1, LOGITS_PER_CHUNK // shape.vocab)) * shape.vocab


def kept(shape: Shape, setting: Setting) -> tuple[int, int]:
    """Return the bytes that the actor's layers and the critic's keep of a micro-batch.

    After its attention, a top layer computes response tokens only, so for prompt tokens it keeps
    neither the norm, nor the inputs of the two matrices, nor the MLP (see `saved_per_token`). If
    the critic is a head without layers, the trunk is the whole model and computes all tokens. A
    layer that is recomputed keeps its input.
    """
    L, k, top = setting.trained_layers(shape.n_layers), setting.critic_layers, 0
    layer = setting.token_budget * saved_per_token(shape, setting)
    if setting.gradient_checkpointing:
        layer = setting.token_budget * setting.itemsize * shape.hidden
    elif shape.plain:
        s, prompts = setting.itemsize, setting.token_budget - decisions(setting)
        top = prompts * ((FP32 + s) * shape.hidden + 4 * shape.hidden + 4 * s * shape.intermediate)
    return L * layer - (k > 0 or setting.no_critic) * top, k * layer - (k > 0) * top


def attention_scores(shape: Shape, setting: Setting) -> int:
    """Return the bytes per token of a layer's attention scores, where they exist.

    For query heads that share a key head in fp32, a GPU has no kernel without them.
    """
    shared = shape.queries > shape.keys
    exist = setting.cuda and setting.itemsize == FP32 and shared
    return exist * FP32 * setting.length * shape.heads


def backward_of_layer(shape: Shape, setting: Setting, tokens: int) -> int:
    """Return the bytes that the backward pass of a layer takes: gradients of the MLP's product and
    of its two factors, of the hidden states at both ends, and of one D x F matrix; or three blocks
    of attention scores."""
    hidden, mlp = shape.hidden, shape.intermediate
    of_mlp = tokens * setting.itemsize * (3 * mlp + 2 * hidden) + FP32 * hidden * mlp
    return max(of_mlp, 3 * setting.token_budget * attention_scores(shape, setting))


def backward_of_log_probs(shape: Shape, setting: Setting) -> int:
    """Return the bytes that the backward pass of lm_head takes, block after block of logits.

    It holds five blocks in fp32, and 4 V D bytes: the sum of lm_head's gradients and, in bf16, a
    copy of lm_head. Or there are three such matrices, while a gradient is added or cast.
    """
    matrix = 0 if setting.frozen_head else shape.vocab * shape.hidden
    return max(4 * matrix + 20 * logits(shape, setting), 3 * setting.itemsize * matrix)


def activations(shape: Shape, setting: Setting) -> int:
    """Return the most bytes that a forward and a backward pass take: at the end of the forward
    pass, in the critic's backward pass, in that of the log-probs, in the actor's layers' or, where
    the embeddings are gathered for theirs, in that one.
    """
    n, few = setting.token_budget, decisions(setting)
    actor, critic = kept(shape, setting)
    copies, head, critic_copies = casts(shape, setting)
    early, late = reductions(shape, setting)
    head_gathered, embeddings, live = gathered(shape, setting)
    below = backward_of_layer(shape, setting, n) + late + live
    top = backward_of_layer(shape, setting, few) + late + live
    log_probs = backward_of_log_probs(shape, setting) + early
    if setting.gradient_checkpointing:
        # Copies end with the forward pass. A layer that is recomputed copies its matrices again.
        again = n * saved_per_token(shape, setting) + below + (copies > 0) * 2 * shape.layer
        forward = copies + head + critic_copies + 8 * logits(shape, setting)
        layers = actor + critic + max(forward, again), actor + log_probs
    else:
        held = copies + actor
        forward = held + head + critic_copies + critic
        critics = held + critic_copies + critic + (critic > 0) * top
        below_top = held - actor // setting.trained_layers(shape.n_layers) + below
        layers = forward, critics, held + log_probs, held + top, below_top
    return head_gathered + max(*layers, (embeddings > 0) * (2 * embeddings + late))


def scoring(shape: Shape, setting: Setting) -> int:
    """Return the bytes of scoring, which has no gradients.

    It holds three blocks of an MLP, two blocks of fp32 logits, or three of the critic's norm, and
    the part of the reference that is moved to the device for scoring.
    """
    s, n = setting.itemsize, setting.token_budget
    copies, head, critic_copies = casts(shape, setting)
    head_gathered, embeddings, live = gathered(shape, setting)
    layer = n * max(3 * s * shape.intermediate, 3 * attention_scores(shape, setting))
    after = max(8 * logits(shape, setting), critic_copies + 3 * FP32 * n * shape.hidden)
    actor = max(embeddings, copies + layer + live, copies + head + after)
    moved = s * shape.model * (setting.cuda and setting.reference == "host")
    return head_gathered + actor + moved
