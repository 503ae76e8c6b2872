"""The choice of an engine: --engine names one, and auto takes the fastest that can run here."""

from common.cli import life_sign
from common.execution import execution
from common.plugins import UserError, check_call, find
from ppo.engines.contract import Engine
from ppo.engines.measured import MeasuredEngine
from ppo.engines.text import hidden_tokens

ENGINES = {  # --engine
    "vllm": "ppo.engines.vllm:VLLMEngine",
    "transformers": "ppo.engines.lockstep:TransformersEngine",
}
# On a CPU, vLLM's Python takes longer than the products of a model below this hidden size: at 64
# (embedded models) transformers is 1.6 times as fast, at 96 1.2 times, and at 128 they are equal.
NARROW = 128


class CannotRun(UserError):
    """This engine cannot run the model on this machine, but another one may."""


def make_engine(args, tokenizer, ends: set[int], slots: int, dtype) -> MeasuredEngine:
    """Make the engine that --engine names, or for auto the first of `by_speed` that can run.

    slots: prompts that may be submitted at the same time; dtype: of the weights to be pushed
    CannotRun: the named engine, or each of them, cannot run the model here
    """
    names = by_speed(args) if args.engine == "auto" else [args.engine]
    for name in names:
        try:
            life_sign(f"starting the engine {name} ...")
            return MeasuredEngine(_start(name, args, tokenizer, ends, slots, dtype))
        except CannotRun as error:
            if name == names[-1]:
                raise
            print(error)


def by_speed(args) -> list[str]:
    """Return the names of ENGINES, the one that is faster for this model first.

    With threads that is vLLM: their environments are slow, and lock-step would wait for
    them. With untrained calls it is vLLM too, the only one that has their sampling options.
    """
    import torch  # only here, because programs parse their command lines before it is loaded
    from transformers import PretrainedConfig

    config, _ = PretrainedConfig.get_config_dict(args.model)
    narrow = (config.get("hidden_size") or NARROW) < NARROW
    needed = execution(args.env_workers).threads or args.endpoint_sampling == "untrained"
    vllm_first = needed or not narrow or torch.cuda.is_available()
    return ["vllm", "transformers"] if vllm_first else ["transformers", "vllm"]


def _start(name: str, args, tokenizer, ends: set[int], slots: int, dtype) -> Engine:
    """Return an engine of one of ENGINES or of a user's class. CannotRun: see `make_engine`"""
    engine_class = _load(name)
    if name == "transformers":
        _check_lockstep(args)
    settings = dict(
        model=args.model,
        prompt_limit=args.prompt_limit,
        dtype=str(dtype).removeprefix("torch."),
        seed=args.seed,
        gpu_memory_utilization=args.gpu_memory_utilization,
        max_num_seqs=slots,
        sharded=args.zero_stage == 3,
        untrained=args.endpoint_sampling == "untrained",
    )
    check_call(engine_class, "tokenizer", "ends", "response_limit", "temperature", **settings)
    engine = engine_class(tokenizer, ends, args.response_limit, args.temperature, **settings)
    engine.hidden = hidden_tokens(tokenizer)
    return engine


def _load(name: str) -> type[Engine]:
    try:
        return find("engine", name, ENGINES)
    except ValueError as error:
        if name not in ENGINES:
            raise
        raise CannotRun(f"--engine {name} cannot be imported: {error.__cause__}") from error


def _check_lockstep(args) -> None:
    """CannotRun: the run needs what the transformers engine does not have."""
    if args.endpoint_sampling == "untrained":
        raise CannotRun(
            "--endpoint-sampling untrained needs --engine vllm, which has top_p and the like"
        )
    if args.zero_stage == 3:
        raise CannotRun("--zero-stage 3 needs --engine vllm: transformers needs whole weights")
