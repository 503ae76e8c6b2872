"""The actor-critic: one shared trunk, the actor's layers on top of it, and a critic branch.

    ids -> embeddings -> trunk layers --> top k layers, norm --> lm_head --> log-probs   (actor)
                                     \\--> a copy of them ------> linear head --> values  (critic)

One forward pass gives both. With k = 0 the critic is a plain head on the actor's last hidden state.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from common.cli import life_sign
from common.plugins import UserError
from ppo.distributed import shard
from ppo.model import decoder
from ppo.model.decoder import decide, decode, embed, precision, token_logps
from ppo.model.lora import adapted, adapters_off, add_adapters, export_adapter, merged_weights
from ppo.model.packing import use_packing
from ppo.model.pretrained import load_lm
from ppo.model.reference import AdaptersOff, NoReference, Reference
from storage.minibatch import MicroBatch


class Scores(NamedTuple):
    """What one forward pass says about the R response tokens in row-major order, all (R,)."""

    logps: Tensor
    entropies: Tensor  # (0,) where gradients are off
    values: Tensor | None  # V of the state before the token; None without a critic


class ActorCritic(nn.Module):
    """A Hugging Face causal LM with a critic branch of `critic_layers` copied decoder layers.

    value_grad_trunk: let the value loss train the shared trunk, too
    dtype: dtype of activations and matrix products; trained parameters and the softmax are fp32
    recompute: compute activations again in the backward pass instead of storing them
    packed: train on turns without padding (`ppo.model.packing`)
    lora_rank: rank of the actor's adapters, which freeze its own weights; 0: no adapters
    critic: whether there is a critic at all; without it critic_layers is 0
    ValueError: the model is not a plain decoder or has too few layers, or peft is missing
    """

    def __init__(self, lm, critic_layers: int, value_grad_trunk: bool = False,
                 dtype: torch.dtype = torch.float32, recompute: bool = False,
                 packed: bool = False, lora_rank: int = 0, critic: bool = True):  # fmt: skip
        super().__init__()
        n_layers = decoder.check_decoder(lm)
        if packed:
            use_packing(lm)
        if not 0 <= critic_layers <= n_layers:
            problem = f"must be 0..{n_layers} for this model, got {critic_layers}"
            raise UserError(f"--critic-layers {problem}")
        # Without a critic the top layer is not the trunk's, so it can run at the responses alone.
        self.lm, self.n_trunk = lm, n_layers - (critic_layers if critic else 1)
        # The actor's last hidden state says little about returns: a plain head on it explains next
        # to none of them, and a new random layer no more. A copy of the trained layers does better.
        self.head = None
        if critic:
            self.branch = copy.deepcopy(lm.model.layers[self.n_trunk :])
            self.branch_norm = copy.deepcopy(lm.model.norm)
            self.head = nn.Linear(lm.config.hidden_size, 1, dtype=torch.float32)
            # At zero an untrained critic says V = 0. Random weights would make noisy advantages.
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)
        if lora_rank:  # after the copy: the critic trains its layers whole, without adapters
            add_adapters(lm, lora_rank, dtype)
        self.value_grad_trunk, self.dtype, self.recompute = value_grad_trunk, dtype, recompute
        self.whole = nullcontext  # `with whole(parameters):` gathers them where they are sharded

    def forward(self, batch: MicroBatch, entropy_grad: bool = False, critic_only: bool = False,
                base_only: bool = False) -> Scores | Tensor:  # fmt: skip
        """Score the R response tokens of a batch, at the temperature at which each was sampled.

        entropy_grad: whether entropies carry a gradient (only an entropy bonus needs it)
        critic_only: return values (R,) alone; no gradient reaches what is shared with the actor
        base_only: return the log-probs (R,) of the actor without its adapters
        """
        lm, layers = self.lm, self.lm.model.layers
        if base_only:
            with adapters_off(lm):
                return decoder.response_logps(lm, batch, self.dtype)
        with precision(batch.ids.device, self.dtype):
            # In the warm-up .grad stays None here, so AdamW leaves the actor as it is, to the bit.
            with torch.set_grad_enabled(torch.is_grad_enabled() and not critic_only):
                hidden, layout, mask = embed(lm, batch.ids, batch.response_mask, self.dtype)
                hidden = decode(layers[: self.n_trunk], hidden, layout, self.recompute)  # (B, L, D)
            if not critic_only:  # values need neither the actor's layers nor the softmax
                top = layers[self.n_trunk :]
                decided = decide(top, hidden, layout, mask, self.recompute)  # (R, D)
                decided = lm.model.norm(decided)
                logps, entropies = token_logps(
                    lm, decided, batch.tokens, batch.temperature, entropy_grad
                )
                if self.head is None:
                    return Scores(logps, entropies, None)
            # Detached, the value loss does not train the layers that the policy acts with.
            shared = hidden if self.value_grad_trunk else hidden.detach()
            decided = decide(self.branch, shared, layout, mask, self.recompute)  # (R, D)
            features = self.branch_norm(decided)
        # The head leaves autocast: bfloat16 would round values just above 1 to steps of 1/128.
        values = self.head(features.float()).squeeze(-1)
        return values if critic_only else Scores(logps, entropies, values)

    def values(self, batch: MicroBatch) -> Tensor:
        """Return the critic's values alone, (R,)."""
        # ZeRO gathers parameters in hooks, which a call of the module runs and a method would not.
        return self(batch, critic_only=True)

    def actor_parameters(self) -> list[nn.Parameter]:
        return [p for p in self.lm.parameters() if p.requires_grad]  # adapters freeze the rest

    def critic_parameters(self) -> list[nn.Parameter]:
        return [p for name, p in self.named_parameters() if not name.startswith("lm.")]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the actor's weights by name, adapters merged. All ranks must read to the end."""
        return merged_weights(self.lm, self.whole)

    def export(self, folder: Path, keep: bool) -> None:
        """Write the actor as a Hugging Face model; with adapters, write them to folder/"adapter".

        keep: whether this rank writes. All ranks must call this: gathering is collective.
        """
        weights = {name: w.to("cpu", self.dtype) for name, w in self.weights() if keep}
        if keep:
            self.lm.save_pretrained(folder, state_dict=weights)
            # Else the file would name the dtype of training, fp32, for weights in self.dtype.
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            config["dtype"] = str(self.dtype).removeprefix("torch.")
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
        if adapted(self.lm):
            export_adapter(self.lm, folder / "adapter", self.whole, keep)


def make_models(args, device: str):
    """Return (actor_critic, reference, tokenizer, ends) of the command line's model.

    reference: None with --eval-only; ends: the token ids that end a response
    ValueError: the model cannot be loaded or used, or flags do not fit it or the device
    """
    life_sign(f"loading {args.model} ...")
    torch.manual_seed(args.seed)  # adapters and heads begin alike in equal runs
    dtype, cuda = decoder.choose_dtype(args.dtype, device), device.startswith("cuda")
    kernel = cuda and dtype == torch.bfloat16  # elsewhere packed attention is slow
    tokens = args.prompt_limit + args.response_limit
    lm, tokenizer, ends = load_lm(args.model, device, tokens, args.template_kwargs)
    if args.packed == "on" and cuda and not kernel:
        raise UserError("--packed on needs --dtype bfloat16 on a GPU: its kernel knows no other")
    packed = args.packed == "on" or (args.packed == "auto" and kernel)
    options = dict(value_grad_trunk=args.value_grad_trunk, recompute=args.gradient_checkpointing)
    options |= dict(dtype=dtype, packed=packed, lora_rank=args.lora_rank, critic=not args.no_critic)
    actor_critic = ActorCritic(lm, args.critic_layers, **options).to(device)
    reference = None if args.eval_only else make_reference(args, actor_critic)
    return actor_critic, reference, tokenizer, ends


def make_reference(args, actor_critic: ActorCritic) -> Reference | AdaptersOff | NoReference:
    if args.reference == "none":
        return NoReference()
    if args.lora_rank:
        return AdaptersOff(actor_critic)
    home = "cpu" if args.reference == "host" else None
    reference = Reference(actor_critic.lm, actor_critic.dtype, home)
    if args.reference == "sharded":
        shard(reference)
    return reference
