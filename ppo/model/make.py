"""The models of a command line: how a model is loaded and put together from the flags."""

from contextlib import nullcontext

import torch

from common.cli import print_status
from common.plugins import UserError
from ppo.model.acceptance import accept, accept_adapters
from ppo.model.actor_critic import ActorCritic, Reference
from ppo.model.decoder import Compute, padded, recomputed, stored
from ppo.model.pretrained import load_lm
from ppo.model.reloaded import try_export
from ppo.model.variants import unscale_critic

WIDE = 512  # hidden size from which the dtype decides how long products take


def make_model(generation, update, device: str, seed: int):
    """Return (actor_critic, tokenizer, ends) for the flags of the generation and the update.

    seed: of new weights; ends: the token ids that end a response
    UserError: the model cannot be loaded or used, or flags do not fit it or the device
    """
    print_status(f"loading {generation.model} ...")
    torch.manual_seed(seed)  # adapters and heads begin alike in equal runs
    tokens = generation.prompt_limit + generation.response_limit
    with loading(update):
        lm, tokenizer, ends = load_lm(generation.model, device, tokens, generation.template_kwargs)
    dtype = choose_dtype(update.dtype, device)
    if device == "cpu" and lm.config.hidden_size >= WIDE:
        note_dtype(update.dtype)
    with computing(update, lm):
        actor_critic = build(
            lm,
            critic_layers=None if update.no_critic else update.critic_layers,
            dtype=dtype,
            packed=choose_packing(update.rows, device, dtype),
            recompute=update.gradient_checkpointing,
            lora_rank=update.lora_rank,
            top_layers=update.top_layers,
            tokens=tokens,
        )
    if in_shards(update):
        print_status("the export of a model that is loaded in shards is not tried")
    else:
        try_export(actor_critic, f"--model {generation.model}")
    return actor_critic.to(device), tokenizer, ends


def in_shards(update) -> bool:
    """Return whether the model is loaded in shards. With adapters, each rank loads all of it."""
    return update.zero_stage == 3 and not update.lora_rank


def loading(update):
    """Return a context to load the model in."""
    if not in_shards(update):
        return nullcontext()
    from ppo.model.sharded import loading_shards

    return loading_shards()


def computing(update, lm):
    """Return a context in which the model computes and the critic's layers can be copied."""
    if not in_shards(update):
        return nullcontext()
    from ppo.model.sharded import computing_in_shards

    return computing_in_shards(lm, update.critic_layers)


def build(
    lm, critic_layers: int | None, dtype: torch.dtype = torch.float32, packed: bool = False,
    recompute: bool = False, lora_rank: int = 0, top_layers: int = 0, tokens: int = 0,
) -> ActorCritic:  # fmt: skip
    """Put an actor-critic together. What a run does not use is not imported.

    critic_layers: None: there is no critic; packed: train on turns without padding
    recompute: compute activations again in the backward pass
    lora_rank: 0: no adapters; top_layers: the only ones that are trained, 0: all
    tokens: most tokens of a prompt and its response
    UserError: `ppo.model.acceptance` refuses it, it has too few layers, or peft is missing
    """
    compute = accept(
        lm, Compute(dtype, padded, recomputed if recompute else stored), packed, tokens
    )
    n_layers = len(lm.model.layers)
    if not 0 <= (critic_layers or 0) <= n_layers:
        problem = f"must be 0..{n_layers} for this model, got {critic_layers}"
        raise UserError(f"--critic-layers {problem}")
    if critic_layers is None:
        return _without_critic(lm, compute, lora_rank, top_layers)
    if top_layers:
        from ppo.model.top_layers import TopLayersActorCritic

        actor_critic = TopLayersActorCritic(top_layers, lm, critic_layers, compute)
    elif lora_rank:
        from ppo.model.lora import LoraActorCritic

        actor_critic = LoraActorCritic(lora_rank, lm, critic_layers=critic_layers, compute=compute)
        accept_adapters(lm, compute)
    else:
        actor_critic = ActorCritic(lm, critic_layers, compute)
    unscale_critic(actor_critic)
    return actor_critic


def _without_critic(lm, compute: Compute, lora_rank: int, top_layers: int) -> ActorCritic:
    if top_layers:
        from ppo.model.top_layers import TopLayersActor

        return TopLayersActor(top_layers, lm, compute)
    if lora_rank:
        from ppo.model.lora import LoraActor

        actor = LoraActor(lora_rank, lm, compute=compute)
        accept_adapters(lm, compute)
        return actor
    from ppo.model.actor import ActorOnly

    return ActorOnly(lm, compute)


def make_reference(update, actor_critic: ActorCritic):
    """Return the frozen initial model where `update.reference` keeps it, or as what was trained
    began: the actor without its adapters, or with the layers that it had.

    What it is called with and returns is as in `Reference`.
    """
    if update.reference == "none":
        from ppo.model.reference import NoReference

        return NoReference()
    if update.top_layers:
        from ppo.model.top_layers import TopLayersReference

        return TopLayersReference(actor_critic)
    if update.lora_rank:
        from ppo.model.lora import AdaptersOff

        return AdaptersOff(actor_critic)
    if in_shards(update):
        from ppo.model.sharded import GatheredHostReference as HostReference
        from ppo.model.sharded import ShardedReference
    else:
        from ppo.model.reference import HostReference
    if update.reference == "host":
        return HostReference(actor_critic.lm, actor_critic.compute)
    if update.reference == "sharded":
        from ppo.distributed import shard

        reference = ShardedReference(actor_critic.lm, actor_critic.compute)
        shard(reference)
        return reference
    return Reference(actor_critic.lm, actor_critic.compute)


def choose_dtype(name: str, device: str) -> torch.dtype:
    """Return the dtype of --dtype; "auto" is bfloat16 on a GPU and float32 on a CPU."""
    auto = "bfloat16" if device.startswith("cuda") else "float32"
    return getattr(torch, auto if name == "auto" else name)


def note_dtype(name: str) -> None:
    """Say which --dtype is faster on a processor of which torch knows whether it has bfloat16."""
    known = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.11 does not have it yet
    if known.get("architecture") != "x86_64":
        return
    if known.get("avx512_bf16") or known.get("amx_bf16"):
        if name != "bfloat16":
            print_status("note: --dtype bfloat16 is faster: this processor has it")
    elif name != "float32":
        chosen = "float32 is chosen" if name == "auto" else "--dtype float32 is faster"
        print_status(f"note: {chosen}, because this processor only emulates bfloat16")


def choose_packing(rows: str, device: str, dtype: torch.dtype) -> bool:
    """Return whether --rows means that turns are packed here."""
    cuda = device.startswith("cuda")
    kernel = cuda and dtype == torch.bfloat16  # elsewhere packed attention is slow
    packed = rows in ("packed", "packed+merged")
    if packed and cuda and not kernel:
        raise UserError(f"--rows {rows} needs --dtype bfloat16 on a GPU: its kernel knows no other")
    return packed or (rows == "auto" and kernel)
