"""The single-player games of textarena, as `textarena:GuessTheNumber-v0`.

textarena repeats all messages since the start in each observation. Here the rules are the system
message, and a turn shows the new messages alone, below the board if the game has one: the memory
decides how much of the past a prompt shows.
"""

import gymnasium
import textarena
from textarena.envs.registration import ENV_REGISTRY

from envs.ecosystems import TEXT, CannotMake, answer_with, check_name

BEGINNING, NOTHING_NEW = "The game begins.", "The game goes on."


class TextArena(gymnasium.Env):
    """A game ends by its own rules. It pays at the end: 1 for a win, less for partial success."""

    observation_space = action_space = TEXT

    def __init__(self, name: str):
        games = [game for game in ENV_REGISTRY if not game.endswith(("-raw", "-train"))]
        check_name(name, games, "game")
        self.game = self.bare = textarena.make(name)  # its wrappers put brackets around moves
        while isinstance(self.bare, textarena.Wrapper):
            self.bare = self.bare.env
        try:
            self.reset()
            alone = isinstance(self.bare.state, textarena.SinglePlayerState)
        except (AssertionError, ValueError):  # for instance "number of players has to be 2"
            alone = False
        if not alone:
            raise CannotMake("only games of a single player can be played, and this is none")

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.game.reset(num_players=1, seed=seed)
        messages = self._new_messages()
        self.rules = "\n\n".join(text for kind, text in messages if kind == "PROMPT")
        self.board = ""
        others = [(kind, text) for kind, text in messages if kind != "PROMPT"]
        return self._observe(others, BEGINNING)

    def step(self, action: str):
        over, _ = self.game.step(action)
        messages, reward, invalid = self._new_messages(), 0.0, False
        if over:
            rewards, ends = self.bare.close()
            # After an invalid move, three games put the reason in the reward's place.
            reward = 0.0 if isinstance(rewards[0], str) else float(rewards[0])
            messages.append(("END", ends[0].get("reason") or "The game is over."))
            invalid = ends[0]["invalid_move"]
        text, info = self._observe(messages, NOTHING_NEW)
        info["success"] = over and reward >= 1
        info["metrics"] = {"ended_by_invalid_move": float(invalid)}  # read at an episode's end only
        return text, reward, over, False, info

    def _new_messages(self) -> list[tuple[str, str]]:
        """Return (kind, text) of the game's messages since the last turn.

        The player's own moves are left out. Where a few games repeat them, they confuse the order
        of a message's parts, so its text is not a string; such messages are left out, too.
        """
        _, messages = self.bare.get_observation()
        return [
            (getattr(kind, "name", ""), text.strip())
            for _, text, kind in messages
            if getattr(kind, "name", "") != "PLAYER_ACTION" and isinstance(text, str)
            if text.strip()
        ]

    def _observe(self, messages: list[tuple[str, str]], default: str) -> tuple[str, dict]:
        """Return the text of new messages and its info. default: the text if there are none

        The text begins with the last board if no message has a new one; memories keep no boards.
        """
        boards = [text for kind, text in messages if kind == "GAME_BOARD"]
        kept = "\n\n".join(text for kind, text in messages if kind != "GAME_BOARD") or default
        texts = [text for _, text in messages]
        if not boards and self.board:
            texts = [self.board, *texts]
        self.board = (boards or [self.board])[-1]
        text = "\n\n".join(texts) or default
        return text, dict(system=self.rules, instruction=answer_with("your move"), kept=kept)
