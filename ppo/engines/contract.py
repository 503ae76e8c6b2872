"""Generation: the Engine contract, and an engine on plain transformers.

Token ids in, token ids out. `submit(i, prompt)` queues a prompt for slot i, `step()` returns the
responses that are complete, `push_weights(actor_critic)` takes over the trainer's weights. What an
engine samples depends on the seed that comes with the prompt alone, not on what else is in the
batch. It knows nothing of templates, environments or rewards.
"""

import importlib
import time
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Response:
    """What was sampled for a prompt; what was sampled is what is trained on."""

    prompt: object  # as submitted, with .ids
    ids: list[int]  # end-of-turn token included
    logps: list[float]  # at the sampling temperature, over the full vocabulary
    text: str
    pieces: list[str]  # the text of each token; without the end-of-turn token's they make `text`
    truncated: bool  # by the response limit

    def action_token(self, action_at: int) -> int:
        """The token in which the ACTION part begins; their number if there is none.

        action_at: where in `text` its marker begins; the text's length if there is none
        """
        return action_token(self.pieces, self.text, action_at)


class CannotRun(ValueError):
    """This engine cannot run the model here; another one may."""


class Engine:
    """temperature 0 is greedy. ends: ids that end a response.

    Subclasses take these four and, by keyword, what of `make_engine`'s settings they need.
    """

    def __init__(self, tokenizer, ends: set[int], response_limit: int, temperature: float):
        self.tokenizer, self.ends = tokenizer, ends
        self.response_limit, self.temperature = response_limit, temperature
        self.pieces: dict[int, str] = {}  # text of each token seen so far
        self.totals = Counter()  # tokens and seconds since `stats` was last called

    def response(self, prompt, ids: list[int], logps: list[float]) -> Response:
        ended = ids[-1] in self.ends
        said = ids[:-1] if ended else ids
        text = self.tokenizer.decode(said, skip_special_tokens=True)
        for token in set(ids) - self.pieces.keys():
            self.pieces[token] = self.tokenizer.decode([token])
        pieces = [self.pieces[token] for token in said]
        if "".join(pieces) != text:
            pieces = split_text(self.tokenizer, said)
        pieces += [self.pieces[token] for token in ids[len(said) :]]
        return Response(prompt, ids, logps, text, pieces, truncated=not ended)

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        raise NotImplementedError

    def step(self) -> list[tuple[int, Response]]:
        raise NotImplementedError

    def push_weights(self, actor_critic) -> None:
        raise NotImplementedError

    def sleep(self) -> None:
        """Give memory back while the trainer computes; push_weights wakes the engine."""

    def account(self, began: float, responses, cached: int = 0) -> None:
        """Add a step that began at `began` (time.perf_counter) to the totals.

        responses: what it completed; cached: prompt tokens of theirs that were not computed again
        """
        if not self.totals:
            self.started = began
        self.stopped = time.perf_counter()
        self.totals["seconds"] += self.stopped - began
        self.totals["cached"] += cached
        self.totals["prompt"] += sum(len(response.prompt.ids) for response in responses)
        self.totals["sampled"] += sum(len(response.ids) for response in responses)

    def stats(self) -> dict[str, float]:
        """Work since the last call, as "group/name". Rates are per second spent in `step`; idle is
        the share of the time, from the first step to the last, that was spent elsewhere. What
        depends on the clock is under time/: all the rest is the same in equal runs."""
        totals, self.totals = self.totals, Counter()
        if not totals:
            return {}
        span = self.stopped - self.started
        return {
            "engine/prefix_hits": totals["cached"] / totals["prompt"],
            "time/prefill_rate": (totals["prompt"] - totals["cached"]) / totals["seconds"],
            "time/decode_rate": totals["sampled"] / totals["seconds"],
            "time/engine_idle": 1 - totals["seconds"] / span,
            "time/engine": totals["seconds"],
        }

    @property
    def idle(self) -> bool:
        """Nothing is queued or running."""
        raise NotImplementedError


def split_text(tokenizer, ids: list[int]) -> list[str]:
    """The text of each token where that depends on its neighbours: tokens that are a part of a
    character (the last of them has it), a space that only the first token of a text loses."""
    text = lambda begin, end: tokenizer.decode(ids[begin:end], skip_special_tokens=True)
    pieces, before, begin = [], 0, 0  # two places where characters begin
    for end in range(1, len(ids) + 1):
        known, now = text(before, begin), text(before, end)
        whole = not now.endswith("\N{REPLACEMENT CHARACTER}")
        pieces.append(now[len(known) :] if whole else "")
        if whole:
            before, begin = begin, end
    return pieces


def action_token(pieces: list[str], text: str, action_at: int) -> int:
    """The token of a response in which its ACTION part begins; their number if there is none.

    pieces: the text of each token, the end-of-turn token's too; action_at: a place in the text
    """
    if action_at >= len(text):
        return len(pieces)
    return sum(end <= action_at for end in accumulate(map(len, pieces)))


ENGINES = {  # the one that is preferred first
    "vllm": "ppo.engines.vllm:VLLMEngine",
    "transformers": "ppo.engines.lockstep:TransformersEngine",
}


def make_engine(args, tokenizer, ends: set[int], slots: int, dtype) -> Engine:
    """`args.engine` of ENGINES; auto is the first that can run the model here, and says why others
    cannot.

    CannotRun: this one, or none, can
    """
    names = list(ENGINES) if args.engine == "auto" else [args.engine]
    for name in names:
        try:
            return _load(name)(
                *(tokenizer, ends, args.response_limit, args.temperature),
                model=args.model,
                prompt_limit=args.prompt_limit,
                dtype=str(dtype).removeprefix("torch."),
                seed=args.seed,
                gpu_memory_utilization=args.gpu_memory_utilization,
                max_num_seqs=slots,
                sharded=args.zero_stage == 3,
            )
        except CannotRun as error:
            if name == names[-1]:
                raise
            print(error)


def _load(name: str) -> type[Engine]:
    module, _, engine = ENGINES[name].partition(":")
    try:
        return getattr(importlib.import_module(module), engine)
    except ImportError as error:
        raise CannotRun(f"--engine {name} cannot be imported: {error}") from error
