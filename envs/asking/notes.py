"""Notes that the agent keeps: each response may replace them, and each prompt shows them."""

import gymnasium

from common.parts import NOTES, marker
from common.plugins import UserError
from common.shorten import beginning
from envs.actions import split
from envs.variants import Variant

SHOWN = "Your notes:\n{notes}\n\n"
NONE = "(none)"
ACTION_LINE = "    ACTION:"
NOTES_LINE = "    NOTES: all that you must still know later; they replace your notes above\n"
SENTENCE = "\nBefore ACTION write a line NOTES: with all that you must still know later."


class AsksForNotes(Variant):
    """Asks for THINK, NOTES, ACTION, and shows the last notes with the current observation.

    A response without NOTES leaves the notes as they were. Longer ones than `memory().limit` tokens
    are cut, with a mark. The turns of the history show no notes: the current ones replaced them.
    UserError: the environment reads whole messages, which have no parts
    """

    def __init__(self, env: gymnasium.Env, memory, tokens):
        super().__init__(env)
        name = "names_actions"
        if not (env.has_wrapper_attr(name) and env.get_wrapper_attr(name)):
            raise UserError("--memory notes: this environment reads whole messages; take summary")
        self.limit, self.tokens = memory().limit, tokens

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        text, info = self.env.reset(seed=seed, options=options)
        self.notes, self.turns, self.missing, self.cut, self.length = "", 0, 0, 0, 0
        return text, self._asked(info)

    def step(self, response: str):
        text, reward, terminated, truncated, info = self.env.step(response)
        kept = info["kept_response"]
        begin, end, action = *marker(kept, NOTES, split(kept)), split(kept)
        self.turns += 1
        if begin < action:
            self._write(kept[end:action].strip())
            info = info | {"kept_response": kept[:begin] + kept[action:]}
        else:
            self.missing += 1
        self.length += self.tokens.count(self.notes)
        if terminated or truncated:
            info = info | {"metrics": info.get("metrics", {}) | self._metrics()}
        return text, reward, terminated, truncated, self._asked(info)

    def _write(self, notes: str) -> None:
        """Replace the notes, and cut new ones that are too long."""
        self.notes = beginning(notes, lambda text: self.tokens.count(text) <= self.limit)
        self.cut += self.notes != notes

    def _asked(self, info: dict) -> dict:
        asked = info["instruction"].replace(ACTION_LINE, NOTES_LINE + ACTION_LINE, 1)
        asked += SENTENCE * (asked == info["instruction"])
        return info | {"instruction": SHOWN.format(notes=self.notes or NONE) + asked}

    def _metrics(self) -> dict[str, float]:
        return {
            "notes_tokens": self.length / self.turns,
            "notes_missing": self.missing / self.turns,
            "notes_cut": self.cut / self.turns,
        }
