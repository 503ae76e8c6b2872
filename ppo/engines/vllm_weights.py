"""The weights of the vLLM engine: how they come from the trainer, and whether they have arrived."""

from collections.abc import Iterable, Iterator
from functools import partial

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion
from vllm.distributed import get_tensor_model_parallel_rank

from ppo.engines.checked import Probe, token_gaps
from ppo.engines.vllm_settings import CUDA

PROBES = 4  # prompts on which the log-probs are compared
# gpt-oss: what its files have for all experts of a layer -> vLLM's name of the same for one expert
EXPERTS = {
    "gate_up_proj": "w13_weight",
    "gate_up_proj_bias": "w13_bias",
    "down_proj": "w2_weight",
    "down_proj_bias": "w2_bias",
}


class WholeWeights:
    """How the weights come into vLLM: the actor's parameters, with adapters merged into them."""

    options: dict = {}  # further arguments of LLM
    request = None  # the adapter of each prompt

    def load(self, llm, actor_critic, dtype: torch.dtype) -> None:
        """Fill vLLM's weights."""
        load_weights(llm, actor_critic.lm, actor_critic.weights(), dtype)


def load_weights(llm, lm, weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> None:
    """Stream parameters by name into vLLM's, one at a time. lm: the model they belong to"""
    weights = ((name, weight.to(dtype)) for name, weight in as_in_files(lm, weights))
    sinks = {}
    if lm.config.model_type == "gpt_oss":
        weights = as_gpt_oss(weights, sinks)
    # All in one call, because vLLM packs a fused layer when its last part has come. (Not by
    # load_weights: on a CPU it would miss the packed copies that layers compute with.)
    if not CUDA:
        llm.apply_model(_forget_packed_experts)
    llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
    if sinks:
        llm.apply_model(partial(_fill, weights=sinks))
    if not CUDA:
        llm.apply_model(_repack_head)
    emptied = llm.reset_prefix_cache()
    assert emptied, "blocks of the prefix cache are still in use"


def as_in_files(lm, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights by the names and shapes that the model's files have, which are those that
    vLLM reads: transformers fuses the experts of a layer, for one, and the files have them apart.
    """
    for name, weight in weights:
        yield from revert_weight_conversion(lm, {name: weight}).items()


def as_gpt_oss(
    weights: Iterable[tuple[str, Tensor]], sinks: dict[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a gpt-oss model, its experts one by one. Its attention sinks are put
    into `sinks` instead, by vLLM's names.

    vLLM's loader copies whole experts and sinks to where, in a reload, there is only a shape.
    """
    for name, weight in weights:
        place, _, last = name.rpartition(".")
        if last == "sinks":
            sinks[name.replace(".self_attn.", ".attn.")] = weight.clone()
        elif place.endswith(".mlp.experts"):
            for number, expert in enumerate(weight):
                yield f"{place}.{number}.{EXPERTS[last]}", expert
        else:
            yield name, weight


def _fill(model, weights: dict[str, Tensor]) -> None:
    rank = get_tensor_model_parallel_rank()  # of those that share the engine
    for name, weight in weights.items():
        part = model.get_parameter(name).data
        part.copy_(weight.narrow(0, rank * len(part), len(part)))


def _forget_packed_experts(model) -> None:
    """Let experts be packed again when their weights come; on a CPU vLLM 0.32 packs them once."""
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _repack_head(model) -> None:
    """Renew the packed copy that a tied lm_head computes with on a CPU; vLLM 0.32 forgets it."""
    if hasattr(model.lm_head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


def gap_of(engine, prompts: Iterable, actor_critic) -> float:
    """Return the mean |log-prob difference| per token between the engine and the trainer.

    They are compared on the first tokens of answers to the first PROBES of these prompts, and where
    there are fewer, of prompts of random ids.
    """
    generator, gaps = torch.Generator().manual_seed(0), []
    vocabulary = actor_critic.lm.config.vocab_size
    random_ids = torch.randint(vocabulary, (PROBES, 16), generator=generator).tolist()
    # Always equally many, because with ZeRO stage 3 all ranks take part in each forward pass.
    probes = [*(prompt.ids for prompt in prompts), *random_ids][:PROBES]
    for number, ids in enumerate(probes):
        engine.add_request(number, Probe(ids), number, min(8, engine.response_limit))
    answers = []
    while not engine.idle:
        answers += engine.completed()
    engine.llm.reset_prefix_cache()  # a batch must not depend on what was asked here
    # When all are there: ranks that share an engine, or a model, take part in one thing at a time.
    for answer in answers:
        ids, logps = answer.ids, answer.logps
        gaps.append(token_gaps(actor_critic, answer.prompt.ids, ids, logps, engine.temperature))
    return torch.cat(gaps).mean().item()
