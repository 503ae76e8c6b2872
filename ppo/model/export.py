"""Makes a model ready to be exported when it is loaded, and tries its small files.

A checkpoint writes model/ with `save_pretrained`, which refuses what `from_pretrained` has let
pass. A run learns that here and not after its warm-up.
"""

import tempfile

from torch import nn

from common.cli import print_status
from common.errors import reason_of
from common.plugins import UserError


def make_exportable(lm, tokenizer, model: str) -> None:
    """Let the model and its tokenizer be exported as they are used.

    model: the beginning of an error; UserError: their files cannot be written
    """
    # transformers keeps a head of its own that the file has, though the config says "tied"; who
    # reads only the config, as vLLM does, would drop it.
    lm.config.tie_word_embeddings = is_tied(lm)
    buffers_to_parameters(lm)
    repair_generation_config(lm)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for part in (lm.config, lm.generation_config, tokenizer):
                part.save_pretrained(folder)
        except Exception as error:  # each library has its own
            problem = f"its files cannot be exported again: {reason_of(error)}"
            raise UserError(f"{model}: {problem}") from error


def is_tied(lm) -> bool:
    """Return whether the head and the embeddings are one tensor."""
    head = lm.get_output_embeddings()
    return head is not None and head.weight is lm.get_input_embeddings().weight


def buffers_to_parameters(lm) -> None:
    """Make frozen parameters of the buffers that are weights, as DeepSeek-V3's correction of its
    router: what exports and pushes parameters then has them."""
    for module in lm.modules():
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and name not in module._non_persistent_buffers_set:
                delattr(module, name)
                module.register_parameter(name, nn.Parameter(buffer, requires_grad=False))


def repair_generation_config(lm) -> None:
    """Turn sampling on where settings of sampling stand beside `do_sample: false`; no run reads
    these settings, but `save_pretrained` refuses them."""
    try:
        lm.generation_config.validate(strict=True)
    except ValueError:
        settings = lm.generation_config.to_dict() | dict(do_sample=True)
        lm.generation_config = type(lm.generation_config)(**settings)
        print_status("generation_config.json has sampling settings but do_sample: false; the "
                     "exported one says true")  # fmt: skip
