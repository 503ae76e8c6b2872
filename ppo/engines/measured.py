"""How busy an engine is and how fast: measured around it, so engines keep no statistics."""

import time
from collections import Counter

from common.errors import RunError
from common.wrapper import Wrapper


class MeasuredEngine(Wrapper):
    """An engine whose steps are measured for `stats`."""

    def __init__(self, engine):
        super().__init__(engine)
        self.name = type(engine).__name__
        self.chosen = getattr(engine, "chosen", {})  # by the engine: name -> value, for the table
        self.slots: set[int] = set()  # with a prompt whose response is not complete
        self.submitted: set[int] = set()  # slots of the prompts submitted since the last step
        self.totals = Counter()  # tokens and seconds since the last call of `stats`

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.inner.submit(slot, prompt, seed)
        self.slots.add(slot)
        self.submitted.add(slot)

    def step(self) -> list:
        if self.inner.idle:
            return []
        began = time.perf_counter()
        done = self.inner.step()
        for _, response in done:
            self._check(response)
        seconds = time.perf_counter() - began
        self.totals["seconds"] += seconds
        self.totals["busy"] += self._busy(done) * seconds
        self.totals["prompt"] += sum(len(response.prompt.ids) for _, response in done)
        self.totals["sampled"] += sum(len(response.ids) for _, response in done)
        self.slots -= {slot for slot, _ in done}
        self.submitted = set()
        return done

    def _check(self, response) -> None:
        """RunError: nothing of the response can be trained, and its reward would have no place"""
        ids, logps = len(response.ids), len(response.logps)
        if not ids or ids != logps:
            raise RunError(
                f"the engine {self.name} returned a response of {ids} ids and {logps} log-probs: "
                "it must have one id or more, and a log-prob of each"
            )

    def _busy(self, done: list) -> float:
        """Return the mean number of busy slots in a step that completed these responses."""
        # A response that was begun and completed in one step held its slot for as long as it was,
        # relative to the longest of them; all others held theirs for the whole step.
        lengths = [len(response.ids) for slot, response in done if slot in self.submitted]
        if not lengths:
            return len(self.slots)
        return len(self.slots) - len(lengths) + sum(lengths) / max(lengths)

    def stats(self) -> dict[str, float]:
        """Return figures of the work since the last call, {} without work.

        Seconds are those spent in `step`; occupancy is the mean share of the slots that were busy
        in them. An engine with a prefix cache gives the share of prompt tokens found in it.
        """
        figures = {"engine/prefix_hits": 0.0} | self.inner.stats()
        totals, self.totals = self.totals, Counter()
        if not totals["prompt"]:
            return {}
        computed = totals["prompt"] * (1 - figures["engine/prefix_hits"])
        return figures | {
            "time/engine_occupancy": totals["busy"] / totals["seconds"] / self.max_num_seqs,
            "time/prefill_rate": computed / totals["seconds"],
            "time/decode_rate": totals["sampled"] / totals["seconds"],
            "time/engine": totals["seconds"],
        }
