"""What an engine is: prompts go in as token ids, responses come out as token ids and log-probs.

An engine knows nothing of templates, environments or rewards. What it samples depends only on the
prompt and on the seed that comes with it, not on what else is in the batch: a run can be repeated
although its environments answer in another order.

`ppo.engines.lockstep` is the engine that the paper needs. `ppo.engines.choose` makes the one that
--engine names.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Response:
    """What was sampled for a prompt.

    Training uses exactly these ids: a text that is decoded and encoded again may have others.
    """

    prompt: object  # as it was submitted, with .ids, .opened and .sampling
    ids: list[int]  # sampled tokens, the end-of-turn token included
    logps: list[float]  # at the sampling temperature, over the full vocabulary
    text: str  # what the prompt had begun of it (Prompt.opened), without the end-of-turn token
    pieces: list[str]  # text of each token; without the end-of-turn token's they make up `text`
    truncated: bool  # cut off by the response limit
    temperature: float = 1.0  # at which it was sampled; 0 is greedy


class Engine:
    """Base class of the engines. A subclass defines `submit`, `step` and `push_weights`.

    ends: ids that end a response
    response_limit: tokens after which a response is cut off
    temperature: sampling temperature; 0 is greedy
    max_num_seqs: number of slots
    others: what `make_engine` passes to every engine and this one does not need
    """

    def __init__(self, tokenizer, ends, response_limit, temperature, *, max_num_seqs=1, **others):
        self.tokenizer, self.ends, self.max_num_seqs = tokenizer, ends, max_num_seqs
        self.response_limit, self.temperature = response_limit, temperature
        self.queue = {}  # prompts that wait or are being sampled
        # Special tokens have no text here: a model that could write them into its responses could
        # begin a message of the user's in the next prompt.
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self.hidden = {id for id, token in added.items() if token.special}
        self.pieces: dict[int, str] = {}  # text of each token seen so far

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        """Queue a prompt. A slot has one prompt at a time.

        seed: all sampling noise of the response is drawn from it
        """
        raise NotImplementedError

    def step(self) -> list[tuple[int, Response]]:
        """Work on the queue and return (slot, response) of each response that is complete.

        One step may sample a token or whole responses: the caller steps until the engine is idle.
        """
        raise NotImplementedError

    def push_weights(self, actor_critic) -> None:
        """Take over the actor's weights. No response may be under way."""
        raise NotImplementedError

    def sleep(self) -> None:
        """Give memory back while the trainer computes. `push_weights` wakes the engine."""

    def stats(self) -> dict[str, float]:
        """Return this engine's own log figures since the last call. Others are measured outside."""
        return {}

    @property
    def idle(self) -> bool:
        """Whether no prompt waits or is being sampled."""
        return not self.queue

    def temperature_of(self, prompt) -> float:
        """Return the temperature that the prompt asks for, or else the run's."""
        asked = prompt.sampling.temperature
        return self.temperature if asked is None else asked

    def limit_of(self, prompt) -> int:
        """Return the most tokens that the response to the prompt may have."""
        # A request may only ask for less: tensors and caches are as wide as the run's limit.
        return min(self.response_limit, prompt.sampling.max_tokens or self.response_limit)

    def response(self, prompt, ids: list[int], logps: list[float]) -> Response:
        """Return the Response of sampled ids and their log-probs, both of equal length."""
        assert ids, f"the engine {type(self).__name__} sampled a response without ids"
        ended = ids[-1] in self.ends
        shown = ids[:-1] if ended else ids
        text, pieces = self.decode(shown), [self.piece(token) for token in ids]
        if "".join(pieces[: len(shown)]) != text:
            # The tokens' texts depend on their neighbours, as where two make up one character.
            from ppo.engines.text import split_text

            pieces[: len(shown)] = split_text(self.decode, shown)
        # Some templates begin the response ("<think>"): to the environment that is a part of it.
        text, pieces[0] = prompt.opened + text, prompt.opened + pieces[0]
        temperature = self.temperature_of(prompt)
        return Response(prompt, ids, logps, text, pieces, not ended, temperature)

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode([token for token in ids if token not in self.hidden])

    def piece(self, token: int) -> str:
        """Return the text of one token, for a hidden token its name."""
        if token not in self.pieces:  # remembered, since a vocabulary is decoded slowly
            self.pieces[token] = self.decode([token]) or self.tokenizer.decode([token])
        return self.pieces[token]
