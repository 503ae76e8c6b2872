"""An environment that can be checked by hand: name the colour that is shown.

Each turn shows a colour. Naming it pays 1 / turns, and the episode is a success if every answer was
right. Tests and long runs use it, and it is the shortest example of a new environment.
"""

from envs.text_env import TextEnv


class Toy(TextEnv):
    """`turns` colours, one after the other; a wrong answer costs only its share of the return."""

    family = "toy"
    actions = ("pass", "red", "green", "blue")
    default_action = "pass"

    def __init__(
        self, format_penalty: float = 0.1, max_episode_steps: int | None = None, turns: int = 4
    ):
        super().__init__(max_episode_steps or turns + 1, format_penalty)
        self.turns = turns

    def _start(self) -> str:
        colours = self.actions[1:]  # all but "pass"
        self.shown = [colours[k] for k in self.np_random.integers(len(colours), size=self.turns)]
        self.right = 0
        return self._text(0)

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        right = action == self.shown[self.steps]
        self.right += right
        over = self.steps + 1 == self.turns
        success = over and self.right == self.turns
        return self._text(self.steps + 1), right / self.turns, over, success

    def _text(self, turn: int) -> str:
        return f"The colour is {self.shown[turn]}." if turn < self.turns else "No colour is left."

    def episode_metrics(self) -> dict[str, float]:
        return {"right": self.right / self.turns}

    def system_prompt(self) -> str:
        words = ", ".join(self.actions)
        return f"You are shown one colour at a time. Say its name. Your actions are: {words}."
