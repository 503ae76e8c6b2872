"""What takes memory, as plain numbers: `Shape` of a model's config.json, `Setting` of the flags.

Only here does the estimate look at arguments, and at what the launcher says of the ranks.
"""

import importlib.util
import os
from dataclasses import dataclass
from math import ceil
from textwrap import shorten

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ppo.model.decoder import choose_dtype

FP32 = 4  # bytes


@dataclass(frozen=True)
class Shape:
    """A Llama-like decoder. Parameters are counts, a tied lm_head not counted again."""

    n_layers: int  # L
    hidden: int  # D
    intermediate: int  # F
    queries: int  # Q, of all heads together
    keys: int  # K, and those of values
    heads: int
    vocab: int  # V
    layer: int  # parameters of one decoder layer
    model: int  # parameters of all
    tied: bool  # lm_head is the embedding
    qk_norm: bool = False  # queries and keys are normalised (Qwen3)


@dataclass(frozen=True)
class Setting:
    """What of a command line takes memory."""

    critic_layers: int  # k
    tokens: int  # n, padded tokens of a micro-batch
    prompt_limit: int
    response_limit: int
    n_env: int  # of this rank
    itemsize: int = FP32  # s: 2 for bfloat16
    recompute: bool = False  # gradient checkpointing
    ranks: int = 1
    zero_stage: int = 0
    offload: bool = False  # of the optimizer to the host
    reference: str = "device"  # or host, sharded
    lora_rank: int = 0  # 0: all parameters are trained
    engine: str = "transformers"  # or vllm
    cuda: bool = False
    vllm_share: int = 0  # bytes, CUDA only: gpu_memory_utilization x those of the device

    @property
    def length(self) -> int:
        return self.prompt_limit + self.response_limit

    @property
    def decisions(self) -> int:
        """Response tokens of a micro-batch whose turns are as long as the limits allow."""
        return ceil(self.tokens * self.response_limit / self.length)

    def place(self, size: int) -> tuple[int, int]:
        """(on the device, on the host) of what is moved to the host; a CPU's memory is both."""
        return (0, size) if self.cuda else (size, 0)

    def shard(self, count: int, from_stage: int) -> int:
        """Of what is sharded from a ZeRO stage on: this rank's part."""
        return ceil(count / self.ranks) if self.zero_stage >= from_stage else count


def load_shape(path: str) -> Shape:
    """Of a directory or hub name. ValueError: no configuration of a Llama-like decoder there."""
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        with torch.device("meta"):  # shapes without numbers
            lm = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # of any type, as in ppo.model.pretrained
        reason = shorten(str(error) or repr(error), 300)
        raise ValueError(f"--model {path}: cannot read its configuration: {reason}") from error
    try:
        return shape_of(lm)
    except AttributeError as error:
        raise ValueError(f"--model {path}: no estimate for {type(lm).__name__}") from error


def shape_of(lm) -> Shape:
    layer = lm.model.layers[0]
    return Shape(
        n_layers=len(lm.model.layers),
        hidden=lm.config.hidden_size,
        intermediate=layer.mlp.gate_proj.out_features,
        queries=layer.self_attn.q_proj.out_features,
        keys=layer.self_attn.k_proj.out_features,
        heads=lm.config.num_attention_heads,
        vocab=lm.config.vocab_size,
        layer=sum(p.numel() for p in layer.parameters()),
        model=sum(p.numel() for p in lm.parameters()),
        tied=lm.lm_head.weight is lm.model.embed_tokens.weight,
        qk_norm=hasattr(layer.self_attn, "q_norm"),
    )


def setting_of(args, device: int) -> Setting:
    ranks, cuda = world_size(), torch.cuda.is_available()
    vllm = args.engine != "transformers" and importlib.util.find_spec("vllm")
    return Setting(
        critic_layers=args.critic_layers,
        tokens=max(args.token_budget, args.prompt_limit + args.response_limit),  # one row at least
        prompt_limit=args.prompt_limit,
        response_limit=args.response_limit,
        n_env=max(1, args.n_env // ranks),
        itemsize=choose_dtype(args.dtype, "cuda" if cuda else "cpu").itemsize,
        recompute=args.gradient_checkpointing,
        ranks=ranks,
        zero_stage=args.zero_stage,
        offload=args.offload_optimizer,
        reference=args.reference,
        lora_rank=args.lora_rank,
        engine="vllm" if vllm else "transformers",
        cuda=cuda,
        vllm_share=int(args.gpu_memory_utilization * device) if cuda else 0,
    )


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))
