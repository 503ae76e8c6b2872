"""vLLM with the trainer's adapters beside its weights instead of merged into them.

In bfloat16 a merged weight is rounded once more, which adds to the gap between the engine's
log-probs and the trainer's. Adapters beside the weights cost time at each token.
docs/larger-models.md compares the two.
"""

from typing import get_args

import torch
from vllm.config.lora import MaxLoRARanks
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.request import LoRARequest

from common.errors import RunError
from common.plugins import UserError
from ppo.engines.vllm import VLLMEngine
from ppo.engines.vllm_settings import CUDA
from ppo.engines.vllm_weights import load_weights

NUMBER = 1  # vLLM's for the only adapter


def make_engine_with_adapters(
    tokenizer, ends, response_limit, temperature, *, lora_rank: int, **settings
) -> VLLMEngine:
    """Make the engine. UserError: there are no adapters, or they are too large for vLLM

    lora_rank: of the trainer's adapters; settings: those of VLLMEngine
    """
    ranks = sorted(get_args(MaxLoRARanks))
    if not 1 <= lora_rank <= ranks[-1]:
        raise UserError(f"--engine vllm-lora needs --train lora:RANK, up to {ranks[-1]}")
    largest = min(rank for rank in ranks if rank >= lora_rank)
    weights = SeparateAdapters(largest)
    return VLLMEngine(tokenizer, ends, response_limit, temperature, weights=weights, **settings)


class SeparateAdapters:
    """How the weights come into vLLM: the frozen base once, the adapters at each push.

    largest: the rank that vLLM makes room for
    """

    # The path is not read: the adapters come from the trainer's memory.
    request = LoRARequest("actor", NUMBER, "memory")

    def __init__(self, largest: int):
        self.options = dict(enable_lora=True, max_loras=1, max_lora_rank=largest)
        self.has_base = False

    def load(self, llm, actor_critic, dtype: torch.dtype) -> None:
        """Fill vLLM's weights and its adapter. RunError: vLLM has no place for the adapter"""
        config = actor_critic.lm.peft_config["default"]
        if config.target_parameters:
            raise RunError(
                "--engine vllm-lora has no place for adapters of experts; take --engine vllm"
            )
        if CUDA or not self.has_base:  # on CUDA vLLM has slept, and has forgotten the base as well
            load_weights(llm, actor_critic.lm, actor_critic.base_weights(), dtype)
            self.has_base = True
        # Copies, because vLLM scales B in place.
        tensors = {name: tensor.clone() for name, tensor in actor_critic.adapters().items()}
        helper = PEFTHelper(
            r=config.r, lora_alpha=config.lora_alpha, target_modules=sorted(config.target_modules)
        )
        llm.collective_rpc(_replace_adapter, args=(tensors, helper))
        emptied = llm.reset_prefix_cache()
        assert emptied, "blocks of the prefix cache are still in use"


def _replace_adapter(worker, tensors: dict[str, torch.Tensor], helper: PEFTHelper) -> None:
    """Take the adapters' tensors, by peft's names, in place of the last ones."""
    dtype = worker.model_runner.lora_config.lora_dtype
    adapter = LoRAModel.from_lora_tensors(NUMBER, tensors, helper, device="cpu", dtype=dtype)
    manager = worker.model_runner.lora_manager._adapter_manager
    manager.remove_adapter(NUMBER)
    manager.add_adapter(adapter)
    manager.activate_adapter(NUMBER)
    manager._last_mapping = None  # a sleep has emptied the tables of this mapping, too
