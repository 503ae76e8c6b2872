"""Families of models, tried as tiny random ones: python -m benchmarks.families

It prints the table of docs/larger-models.md. A row says what `ppo.model.acceptance` decides and
whether adapters train. What became of runs with each engine is read from family_runs.json, which
`python -m benchmarks.family_runs` writes.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from common.cli import Parser
from common.plugins import UserError
from ppo.model.layers import is_packed
from ppo.model.make import build
from storage.minibatch import MicroBatch

RUNS = Path(__file__).with_name("family_runs.json")
WINDOW, PROMPT, RESPONSE = 16, 24, 8  # tokens
SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=128, initializer_range=0.3,
    bos_token_id=None, eos_token_id=0, pad_token_id=0, tie_word_embeddings=False,
)  # fmt: skip
LOCAL = dict(sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"])
LINEAR = dict(
    layer_types=["linear_attention", "full_attention"], linear_num_value_heads=2,
    linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
)  # fmt: skip
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
# (name, config and model without their endings, settings besides SIZES)
FAMILIES = [
    ("Llama 3", "Llama", "Llama", {}),
    ("Qwen2.5", "Qwen2", "Qwen2", {}),
    ("Qwen3", "Qwen3", "Qwen3", {}),
    ("Qwen3-MoE", "Qwen3Moe", "Qwen3Moe", EXPERTS),
    ("Qwen3-Next", "Qwen3Next", "Qwen3Next",
     LINEAR | EXPERTS | dict(shared_expert_intermediate_size=16)),
    ("Qwen3.5", "Qwen3_5Text", "Qwen3_5", LINEAR),
    ("Mistral", "Mistral", "Mistral", dict(sliding_window=WINDOW)),
    ("Ministral 3", "Ministral3", "Ministral3", dict(sliding_window=WINDOW)),
    ("Gemma 3 (text)", "Gemma3Text", "Gemma3", LOCAL),
    ("Gemma 4 (text)", "Gemma4Text", "Gemma4",
     LOCAL | dict(global_head_dim=16, vocab_size_per_layer_input=64, num_kv_shared_layers=1,
                  hidden_size_per_layer_input=16, final_logit_softcapping=30.0)),
    ("OLMo 3", "Olmo3", "Olmo3", LOCAL),
    ("OLMo-hybrid", "OlmoHybrid", "OlmoHybrid", LINEAR),
    ("gpt-oss", "GptOss", "GptOss", LOCAL | dict(num_local_experts=4, num_experts_per_tok=2)),
    ("SmolLM3", "SmolLM3", "SmolLM3", {}),
    ("StableLM", "StableLm", "StableLm", {}),
    ("Granite", "Granite", "Granite",
     dict(logits_scaling=8.0, embedding_multiplier=12.0, residual_multiplier=0.22,
          attention_multiplier=0.1)),
    ("LFM2", "Lfm2", "Lfm2", dict(layer_types=["conv", "full_attention"], block_ff_dim=32)),
    ("LFM2-MoE", "Lfm2Moe", "Lfm2Moe",
     EXPERTS | dict(layer_types=["conv", "full_attention"], num_dense_layers=1)),
    ("Llama 4 (text)", "Llama4Text", "Llama4",
     dict(attention_chunk_size=WINDOW, num_local_experts=2, intermediate_size_mlp=32,
          no_rope_layers=[1, 0])),
]  # fmt: skip


@dataclass
class Row:
    """What was found for a family; the texts of the columns of the table."""

    family: str
    trains: str = "no"
    packed: str = ""
    merged: str = ""
    masks: str = ""
    lora: str = ""
    transformers: str = ""
    vllm: str = ""
    notes: str = ""


def try_family(name: str, config: str, model: str, more: dict) -> Row:
    """Build the tiny model of a family in all ways, and return what became of it."""
    row, notes = Row(name), []
    try:
        actor_critic = build(tiny(config, model, more), 1, packed=True, tokens=PROMPT + RESPONSE)
        two_steps(actor_critic)
        row.trains = "yes"
        packed = is_packed(actor_critic.compute)
        row.packed = "yes" if packed else "no"
        row.merged = "yes" if merged_gap(actor_critic) < 1e-4 else "no"
        plain = packed or not hasattr(actor_critic.compute.activations, "kinds")
        row.masks = "causal" if plain else "its own"
        lora = build(tiny(config, model, more), 1, tokens=PROMPT + RESPONSE, lora_rank=2)
        two_steps(lora)
        row.lora = "yes"
    except UserError as error:
        row.lora = "no" if row.trains == "yes" else ""
        notes.append(str(error).split(";")[0])
    for engine, found in recorded(name).items():
        if row.trains == "yes":
            setattr(row, engine, "no" if "reason" in found else "yes")
        if row.trains == "yes" and "reason" in found:
            notes.append(found["reason"].split(";")[0])
    row.notes = ". ".join(notes)
    return row


def recorded(name: str) -> dict[str, dict]:
    """Return by engine what became of a run with a family, as `benchmarks.family_runs` wrote it."""
    runs = json.loads(RUNS.read_text()).get(name, {}) if RUNS.exists() else {}
    return {engine: runs[engine] for engine in ("transformers", "vllm") if engine in runs}


def tiny(config: str, model: str, more: dict):
    torch.manual_seed(0)
    settings = getattr(transformers, f"{config}Config")(**SIZES | more)
    return getattr(transformers, f"{model}ForCausalLM")(settings).eval()


def two_steps(actor_critic) -> None:
    """Take two steps of SGD; each must give finite gradients."""
    for _ in range(2):
        scores = actor_critic(turn(torch.arange(1, PROMPT + RESPONSE + 1), PROMPT))
        (scores.logps.mean() + scores.values.square().mean()).backward()
        for p in [*actor_critic.actor_parameters(), *actor_critic.critic_parameters()]:
            if p.grad is not None:
                assert p.grad.isfinite().all()
                p.data -= 1e-4 * p.grad
                p.grad = None


@torch.no_grad()
def merged_gap(actor_critic) -> float:
    """Return the largest difference of a log-prob between two turns in one row and in two."""
    ids, half = torch.arange(1, PROMPT + RESPONSE + 1), PROMPT // 2
    both = turn(ids, PROMPT)
    both.response_mask[0, half : half + RESPONSE] = True
    both.tokens = ids[both.response_mask[0]]
    both.temperature = torch.ones(len(both.tokens))
    merged = actor_critic(both).logps
    first, second = turn(ids[: half + RESPONSE], half), turn(ids, PROMPT)
    apart = torch.cat([actor_critic(one).logps for one in (first, second)])
    return (merged - apart).abs().max().item()


def turn(ids: torch.Tensor, prompt: int) -> MicroBatch:
    """Return a turn as a micro-batch; prompt: its number of prompt tokens"""
    mask = torch.arange(len(ids))[None] >= prompt
    return MicroBatch(
        torch.tensor([0]), ids[None], mask, ids[prompt:], torch.ones(len(ids) - prompt)
    )


def table() -> str:
    """Return the table of docs/larger-models.md."""
    lines = [
        "| family | trains | packed | merged | masks | LoRA | transformers | vLLM | notes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, config, model, more in FAMILIES:
        lines.append(cells(try_family(name, config, model, more)))
    return "\n".join(lines)


def cells(row: Row) -> str:
    """Return a row as a line of the table."""
    texts = (
        row.family, row.trains, row.packed, row.merged, row.masks, row.lora, row.transformers,
        row.vllm, row.notes,
    )  # fmt: skip
    return f"| {' | '.join(texts)} |".replace("|  ", "| ")


if __name__ == "__main__":
    Parser("benchmarks.families", description=__doc__.splitlines()[0]).parse_args()
    transformers.logging.set_verbosity_error()
    print(table())
