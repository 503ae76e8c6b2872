"""The sizes of a model, read from its config.json. No weights are loaded or allocated.

Capital letters are those of the formulas in `run.estimate.memory` and `run.estimate.roofline`.
"""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from common.errors import reason_of
from common.plugins import UserError
from ppo.model.decoder import is_plain


class Shape:
    """The sizes of a Llama-like decoder `lm`. AttributeError: it is another kind of model"""

    def __init__(self, lm):
        layer = lm.model.layers[0]
        self.n_layers = len(lm.model.layers)  # L
        self.hidden = lm.config.hidden_size  # D
        self.intermediate = layer.mlp.gate_proj.out_features  # F
        self.queries = layer.self_attn.q_proj.out_features  # Q, all heads together
        self.heads = lm.config.num_attention_heads
        self.keys = layer.self_attn.k_proj.out_features  # K, and the width of values
        self.vocab = lm.config.vocab_size  # V
        self.layer = sum(p.numel() for p in layer.parameters())
        self.model = sum(p.numel() for p in lm.parameters())  # a tied lm_head counts once
        self.tied = lm.get_input_embeddings().weight is lm.get_output_embeddings().weight
        self.plain = is_plain(layer)  # so that a top layer runs in part at response tokens alone
        self.qk_norm = hasattr(layer.self_attn, "q_norm")  # normalised queries and keys (Qwen3)


def load_shape(path: str) -> Shape:
    """Read the shape of a model. path: a directory or hub name

    UserError: there is no configuration, or the model is not a Llama-like decoder
    """
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        with torch.device("meta"):  # tensors with shapes but without memory
            lm = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # transformers raises errors of many types here
        problem = f"cannot read its configuration: {reason_of(error)}"
        raise UserError(f"--model {path}: {problem}") from error
    try:
        return Shape(lm)
    except AttributeError as error:
        raise UserError(f"--model {path}: no estimate for {type(lm).__name__}") from error
