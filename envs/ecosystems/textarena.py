"""The single-player games of textarena, as `textarena:GuessTheNumber-v0`.

textarena gathers all messages since the start into each observation. Here the rules are the system
message, and a turn brings only what is new, under the board where the game has one: how much of
the past a prompt shows is the memory's business.
"""

import gymnasium
import textarena
from textarena.envs.registration import ENV_REGISTRY

from envs.ecosystems import TEXT, Refused, answer_with, check_name

BEGINNING, NOTHING_NEW = "The game begins.", "The game goes on."


class TextArena(gymnasium.Env):
    """A game ends by its own rules. It pays in the end: 1 is a win, less a part of the way."""

    observation_space = action_space = TEXT

    def __init__(self, name: str):
        check_name(name, (k for k in ENV_REGISTRY if not k.endswith(("-raw", "-train"))), "game")
        self.game = self.bare = textarena.make(name)  # its outer layers put brackets around moves
        while isinstance(self.bare, textarena.Wrapper):
            self.bare = self.bare.env
        try:
            self.reset()
            alone = isinstance(self.bare.state, textarena.SinglePlayerState)
        except (AssertionError, ValueError):  # for instance "number of players has to be 2"
            alone = False
        if not alone:
            raise Refused("only games of a single player can be played, and this is none")

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.game.reset(num_players=1, seed=seed)
        news = self._news()
        self.rules = "\n\n".join(said for kind, said in news if kind == "PROMPT")
        self.board = ""
        return self._seen([(kind, said) for kind, said in news if kind != "PROMPT"], BEGINNING)

    def step(self, action: str):
        over, _ = self.game.step(action)
        news, reward, invalid = self._news(), 0.0, False
        if over:
            rewards, ends = self.bare.close()
            # Three games mix up the reward and the reason of what an invalid move ends.
            reward = 0.0 if isinstance(rewards[0], str) else float(rewards[0])
            news.append(("END", ends[0].get("reason") or "The game is over."))
            invalid = ends[0]["invalid_move"]
        text, info = self._seen(news, NOTHING_NEW)
        info |= {"success": over and reward >= 1}
        info |= {"metrics": {"ended_by_invalid_move": float(invalid)}}  # read when it has ended
        return text, reward, over, False, info

    def _news(self) -> list[tuple[str, str]]:
        """Return (kind, text) of what the game has said since the last turn.

        A few games mix up the order of a message's parts in what they repeat of the player's move;
        its text is then no string, and nothing is lost.
        """
        _, messages = self.bare.get_observation()
        told = [(getattr(kind, "name", ""), text) for _, text, kind in messages]
        told = [(k, t) for k, t in told if k != "PLAYER_ACTION" and isinstance(t, str)]
        return [(k, t.strip()) for k, t in told if t.strip()]

    def _seen(self, news: list[tuple[str, str]], otherwise: str) -> tuple[str, dict]:
        """Return what is new, with the board even if it is old, and keep all but the boards."""
        boards = [said for kind, said in news if kind == "GAME_BOARD"]
        kept = "\n\n".join(said for kind, said in news if kind != "GAME_BOARD") or otherwise
        shown = [said for _, said in news]
        if not boards and self.board:
            shown = [self.board, *shown]
        self.board = (boards or [self.board])[-1]
        text = "\n\n".join(shown) or otherwise
        return text, dict(system=self.rules, instruction=answer_with("your move"), kept=kept)
