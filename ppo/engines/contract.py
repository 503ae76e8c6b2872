"""Generation: the contract that every engine keeps, and the choice of an engine.

Token ids go in and token ids come out; an engine knows nothing of templates, environments or
rewards. What it samples depends only on the prompt and on the seed that comes with it, not on what
else is in the batch.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from common.cli import life_sign
from common.plugins import UserError, check_call, find


@dataclass(frozen=True)
class Response:
    """What was sampled for a prompt; exactly these ids are trained on."""

    prompt: object  # as it was submitted, with .ids
    ids: list[int]  # sampled tokens, the end-of-turn token included
    logps: list[float]  # at the sampling temperature, over the full vocabulary
    text: str  # what the prompt had begun of it (Prompt.opened), without the end-of-turn token
    pieces: list[str]  # text of each token; without the end-of-turn token's they make up `text`
    truncated: bool  # cut off by the response limit
    temperature: float = 1.0  # at which it was sampled; 0 is greedy

    def action_token(self, action_at: int) -> int:
        return action_token(self.pieces, self.text, action_at)


class CannotRun(UserError):
    """This engine cannot run the model on this machine; another one may."""


class Engine:
    """Base of the engines; a subclass takes the other settings of `make_engine` by keyword.

    ends: ids that end a response; response_limit: tokens after which it is cut off
    temperature: sampling temperature; 0 is greedy; max_num_seqs: slots, of one prompt at a time
    """

    def __init__(self, tokenizer, ends, response_limit, temperature, *, max_num_seqs=1, **others):
        self.tokenizer, self.ends, self.max_num_seqs = tokenizer, ends, max_num_seqs
        self.response_limit, self.temperature = response_limit, temperature
        self.queue = {}  # what is queued or being sampled
        self.pieces: dict[int, str] = {}  # text of each token seen so far
        self.hidden = hidden_tokens(tokenizer)
        self.totals = Counter()  # tokens and seconds since the last call of `stats`

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        """Queue a prompt. A slot has one prompt at a time."""
        raise NotImplementedError

    def step(self) -> list[tuple[int, Response]]:
        """Work on the queue; return (slot, response) of each response that is complete."""
        raise NotImplementedError

    def push_weights(self, actor_critic) -> None:
        """Take over the actor's weights. No response may be under way."""
        raise NotImplementedError

    def sleep(self) -> None:
        """Give memory back while the trainer computes; push_weights wakes the engine."""

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being sampled."""
        return not self.queue

    def response(self, prompt, ids: list[int], logps: list[float]) -> Response:
        """Put the sampled ids and their log-probs into a Response, with their text."""
        ended = ids[-1] in self.ends
        said = ids[:-1] if ended else ids
        text = self.decode(said)
        for token in set(ids) - self.pieces.keys():
            self.pieces[token] = self.decode([token]) or self.tokenizer.decode([token])
        pieces = [self.pieces[token] for token in ids]
        if "".join(pieces[: len(said)]) != text:  # with some tokenizers neighbours change a token
            pieces[: len(said)] = split_text(self.decode, said)
        text, pieces[0] = prompt.opened + text, prompt.opened + pieces[0]
        temperature = self.temperature_of(prompt)
        return Response(prompt, ids, logps, text, pieces, not ended, temperature)

    def temperature_of(self, prompt) -> float:
        """Return the temperature that a prompt asks for, or else the run's."""
        asked = prompt.sampling.temperature
        return self.temperature if asked is None else asked

    def limit_of(self, prompt) -> int:
        """Return the most tokens that its response may have."""
        return min(self.response_limit, prompt.sampling.max_tokens or self.response_limit)

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode([token for token in ids if token not in self.hidden])

    def account(self, began: float, responses, busy: float, cached: int = 0) -> None:
        """Add a step to the totals: its start by time.perf_counter(), the responses that it
        completed, the mean number of its busy slots, and the prompt tokens that were cached."""
        seconds = time.perf_counter() - began
        self.totals["seconds"] += seconds
        self.totals["busy"] += busy * seconds
        self.totals["cached"] += cached
        self.totals["prompt"] += sum(len(response.prompt.ids) for response in responses)
        self.totals["sampled"] += sum(len(response.ids) for response in responses)

    def stats(self) -> dict[str, float]:
        """Return figures of the work since the last call. Seconds are those spent in `step`;
        occupancy is the mean share of the slots that were busy in them."""
        totals, self.totals = self.totals, Counter()
        if not totals["prompt"]:
            return {}
        return {
            "time/engine_occupancy": totals["busy"] / totals["seconds"] / self.max_num_seqs,
            "engine/prefix_hits": totals["cached"] / totals["prompt"],
            "time/prefill_rate": (totals["prompt"] - totals["cached"]) / totals["seconds"],
            "time/decode_rate": totals["sampled"] / totals["seconds"],
            "time/engine": totals["seconds"],
        }


ENGINES = {  # --engine
    "vllm": "ppo.engines.vllm:VLLMEngine",
    "transformers": "ppo.engines.lockstep:TransformersEngine",
}
# On a CPU, vLLM's Python takes longer than the products of a model below this hidden size: at 64
# (embedded models) transformers is 1.6 times as fast, at 96 1.2 times, and at 128 they are equal.
NARROW = 128


def make_engine(args, tokenizer, ends: set[int], slots: int, dtype) -> Engine:
    """Make the engine that --engine names; auto takes the first of `by_speed` that can run the
    model.

    slots: prompts that may be submitted at the same time; dtype: of the weights to be pushed
    CannotRun: the named engine, or each of them, cannot run the model here
    """
    names = by_speed(args) if args.engine == "auto" else [args.engine]
    settings = dict(
        model=args.model, prompt_limit=args.prompt_limit, dtype=str(dtype).removeprefix("torch."),
        seed=args.seed, gpu_memory_utilization=args.gpu_memory_utilization, max_num_seqs=slots,
        sharded=args.zero_stage == 3, untrained=args.endpoint_sampling == "untrained",
    )  # fmt: skip
    for name in names:
        try:
            life_sign(f"starting the engine {name} ...")
            engine = _load(name)
            check_call(engine, "tokenizer", "ends", "response_limit", "temperature", **settings)
            return engine(tokenizer, ends, args.response_limit, args.temperature, **settings)
        except CannotRun as error:
            if name == names[-1]:
                raise
            print(error)


def by_speed(args) -> list[str]:
    """Return the names of ENGINES, for this model the faster one first. With --env-threads that is
    vLLM: their environments are slow, and lock-step would wait for them. Only vLLM has what
    untrained calls ask for."""
    import torch  # only here, because programs parse their command lines before it is loaded
    from transformers import PretrainedConfig

    config, _ = PretrainedConfig.get_config_dict(args.model)
    narrow = (config.get("hidden_size") or NARROW) < NARROW
    needed = getattr(args, "env_threads", 0) or args.endpoint_sampling == "untrained"
    vllm_first = needed or not narrow or torch.cuda.is_available()
    return ["vllm", "transformers"] if vllm_first else ["transformers", "vllm"]


def _load(name: str) -> type[Engine]:
    try:
        return find("engine", name, ENGINES)
    except ValueError as error:
        if name not in ENGINES:
            raise
        raise CannotRun(f"--engine {name} cannot be imported: {error.__cause__}") from error


def hidden_tokens(tokenizer) -> set[int]:
    """Return the special tokens that a response's text leaves out: all that the chat template does
    not use for tool calls and for reasoning. A model that could write the others into its text
    would begin messages of users in later prompts."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {id for id, token in added.items() if token.special}
    if not special:
        return set()
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    asked, said = {"role": "user", "content": "?"}, {"role": "assistant", "content": ""}
    spoken = set(tokenizer.convert_tokens_to_ids(["<think>", "</think>"]))
    for arguments in ({}, "{}"):  # templates want a mapping or a text
        call["function"]["arguments"] = arguments
        with suppress(Exception):  # templates refuse calls with errors of many types
            plain = tokenizer.apply_chat_template([asked, said], tokenize=False)
            calls = tokenizer.apply_chat_template(
                [asked, said | {"tool_calls": [call]}], tokenize=False
            )
            markers = set(tokenizer(calls).input_ids) - set(tokenizer(plain).input_ids)
            spoken |= markers
    return special - spoken


def split_text(decode: Callable[[list[int]], str], ids: list[int]) -> list[str]:
    """Return the text that each token adds to the text before it. If several tokens make one
    character, the last of them adds it."""
    # Tokens are decoded after one that comes before them, because a first word may lose its space.
    pieces, before, begin = [], 0, 0  # `before` and `begin` are places where characters begin
    for end in range(1, len(ids) + 1):
        known = decode(ids[before:begin])
        now = decode(ids[before:end])
        whole = not now.endswith("\N{REPLACEMENT CHARACTER}")
        pieces.append(now[len(known) :] if whole else "")
        if whole:
            before, begin = begin, end
    return pieces


def action_token(pieces: list[str], text: str, action_at: int) -> int:
    """Return the index of the token at place `action_at` of the text; len(pieces) beyond it."""
    if action_at >= len(text):
        return len(pieces)
    return sum(end <= action_at for end in accumulate(map(len, pieces)))
