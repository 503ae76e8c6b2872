"""Models whose files hold quantized weights: gpt-oss in mxfp4, DeepSeek-V3 and others in fp8.

They are trained, pushed and exported as whole numbers.
"""

from transformers import FineGrainedFP8Config, Mxfp4Config

from common.plugins import UserError

WHOLE = {"mxfp4": Mxfp4Config, "fp8": FineGrainedFP8Config}  # what transformers makes whole


def quantization_of(config) -> str | None:
    """Return by which method the weights in a model's files are quantized, if they are."""
    found = getattr(config, "quantization_config", None)
    return (found or {}).get("quant_method")


def read_whole(config) -> dict:
    """Return the options of `from_pretrained` that make whole numbers of quantized weights.

    UserError: transformers cannot make them
    """
    method = quantization_of(config)
    if method is None:
        return {}
    if method not in WHOLE:
        raise UserError(
            f"its weights are quantized ({method}) and cannot be trained; take the model that it "
            f"was made from (quantized weights can be of {' or '.join(WHOLE)})"
        )
    return dict(quantization_config=WHOLE[method](dequantize=True))


def forget_quantization(lm) -> None:
    """Let a model that was read by `read_whole` be exported as it is: in fp32, under the names of a
    model that was never quantized."""
    lm.float()
    # How its files were read. Without it, transformers writes files as for a new model.
    del lm._weight_conversions
