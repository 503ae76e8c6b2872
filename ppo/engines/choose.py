"""The choice of an engine: --engine names one, and auto takes the fastest that can run here."""

from common.cli import print_status
from common.engine_flag import parted
from common.plugins import UserError, check_call, find
from common.wrapper import Wrapper
from ppo.engines.contract import Engine
from ppo.engines.measured import MeasuredEngine
from ppo.engines.text import hidden_tokens

ENGINES = {  # --engine
    "vllm": "ppo.engines.vllm:VLLMEngine",
    "vllm-lora": "ppo.engines.vllm_lora:make_engine_with_adapters",
    "transformers": "ppo.engines.lockstep:TransformersEngine",
}
# On a CPU, vLLM's Python takes longer than the products of a model below this hidden size: at 64
# (embedded models) transformers is 1.6 times as fast, at 96 1.2 times, and at 128 they are equal.
NARROW = 128


class CannotRun(UserError):
    """This engine cannot run the model on this machine, but another one may."""


def make_engine(
    generation, tokenizer, ends: set[int], slots: int, dtype, seed: int, sharded: bool = False,
    slow_envs: bool = False, lora_rank: int = 0,
) -> Wrapper:  # fmt: skip
    """Make the engine that --engine names, or for auto the first of `by_speed` that can run.

    generation: the flags of this part; slots: prompts that may be submitted at the same time
    dtype: of the weights to be pushed; sharded: whether ZeRO stage 3 shards them
    slow_envs: whether environments wait for something besides the engine, as those in threads do
    lora_rank: of the adapters that vllm-lora keeps apart from the weights
    CannotRun: the named engine, or each of them, cannot run the model here
    """
    settings = dict(
        model=generation.model,
        prompt_limit=generation.prompt_limit,
        dtype=str(dtype).removeprefix("torch."),
        seed=seed,
        gpu_memory_utilization=generation.gpu_memory_utilization,
        max_num_seqs=slots,
        sharded=sharded,
        untrained=generation.endpoint_sampling == "untrained",
    )
    named, sharing = parted(generation.engine)
    if sharing > 1:
        settings["sharing"] = sharing
    names = by_speed(generation, slow_envs) if named == "auto" else [named]
    for name in names:
        try:
            print_status(f"starting the engine {name} ...")
            engine_class = _load(name)
            if name == "transformers":
                _check_lockstep(settings)
            if name == "vllm-lora":
                settings["lora_rank"] = lora_rank
            check_call(
                engine_class, "tokenizer", "ends", "response_limit", "temperature", **settings
            )
            limit, temperature = generation.response_limit, generation.temperature
            engine = engine_class(tokenizer, ends, limit, temperature, **settings)
            engine.hidden = hidden_tokens(tokenizer)
            engine = MeasuredEngine(engine)
            if name not in ENGINES:  # it may be scripted: a gap to the trainer is only a warning
                return engine
            from ppo.engines.checked import CheckedEngine  # after the command line: it needs torch

            return CheckedEngine(engine, generation.prompt_limit)
        except CannotRun as error:
            if name == names[-1]:
                raise
            print(error)


def by_speed(generation, slow_envs: bool) -> list[str]:
    """Return the names of ENGINES, the one that is faster for this model first.

    With slow environments that is vLLM: lock-step would wait for them. With untrained calls it is
    vLLM too, the only one that has their sampling options.
    """
    import torch  # only here, because programs parse their command lines before it is loaded
    from transformers import PretrainedConfig

    config, _ = PretrainedConfig.get_config_dict(generation.model)
    narrow = (config.get("hidden_size") or NARROW) < NARROW
    needed = slow_envs or generation.endpoint_sampling == "untrained"
    vllm_first = needed or not narrow or torch.cuda.is_available()
    return ["vllm", "transformers"] if vllm_first else ["transformers", "vllm"]


def _load(name: str) -> type[Engine]:
    try:
        return find("engine", name, ENGINES)
    except ValueError as error:
        if name not in ENGINES:
            raise
        raise CannotRun(f"--engine {name} cannot be imported: {error.__cause__}") from error


def _check_lockstep(settings: dict) -> None:
    """CannotRun: the run needs what the transformers engine does not have."""
    if settings["untrained"]:
        raise CannotRun(
            "--endpoint-sampling untrained needs --engine vllm, which has top_p and the like"
        )
    if settings["sharded"]:
        raise CannotRun("--zero-stage 3 needs --engine vllm: transformers needs whole weights")
