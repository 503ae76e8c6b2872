"""How a request is handed to vLLM, with its sampling options."""

import sys

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from common.chat import Sampling
from ppo.engines.vllm_steps import Request


def add_request(llm_engine, adapter, name: str, request: Request) -> None:
    """Hand a request to vLLM. Untrained options that vLLM refuses are left out.

    adapter: a LoRARequest, or None
    """

    def add(extra: dict) -> None:
        params, prompt = sampling_params(request, extra), {"prompt_token_ids": request.ids}
        llm_engine.add_request(name, prompt, params, lora_request=adapter)

    try:
        add(extra_options(request.sampling))
    except ValueError as error:
        if request.sampling.trained:
            raise
        line = f"vLLM cannot give {request.sampling.extra}: {' '.join(str(error).split())}"
        print(f"warning: {line:.300}; the policy answers as it is", file=sys.stderr)
        add({})


def sampling_params(request: Request, extra: dict) -> SamplingParams:
    """Return vLLM's settings of a request.

    extra: those of `extra_options`, which may replace the temperature; ValueError: they are wrong
    """
    settings = dict(
        temperature=request.temperature,
        seed=request.seed,
        max_tokens=request.limit,
        # Only these ids stop a response, and they are kept in it.
        stop_token_ids=sorted(request.ends),
        ignore_eos=True,
        detokenize=False,
        logprobs=0,  # those of the sampled tokens alone
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    return SamplingParams(**settings | extra)


def extra_options(sampling: Sampling) -> dict:
    """Return the extra options of an untrained request as arguments of SamplingParams."""
    options = dict(sampling.extra)
    options.pop("n", None)  # the prompt is submitted n times
    for name in ("response_format", "tool_choice"):
        if (schema := options.pop(name, None)) is not None:
            options["structured_outputs"] = StructuredOutputsParams(json=schema)
    return options
