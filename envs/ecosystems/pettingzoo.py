"""The board games of PettingZoo, as `pettingzoo:connect_four_v3`, against a player who moves at
random.

The episode's seed decides who begins and what the other player does. PettingZoo's observations are
arrays, so the boards are written here, but for chess, which PettingZoo can write.
"""

import importlib

import gymnasium
import numpy as np

from envs.ecosystems import TEXT, answer_with, check_name

MOVES = {  # of each game: how a move is named
    "tictactoe_v3": "the number of a free field; they count from 0, row by row",
    "connect_four_v3": "the number of a column, from 0",
    "chess_v6": "a move such as e2e4",
}


class PettingZoo(gymnasium.Env):
    """A game pays at its end: 1 for a win and -1 for a defeat. An illegal move is a defeat."""

    observation_space = action_space = TEXT

    def __init__(self, name: str):
        check_name(name, MOVES, "board game")
        self.name, options = name, dict(render_mode="ansi") if name == "chess_v6" else {}
        self.game = importlib.import_module(f"pettingzoo.classic.{name}").env(**options)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.game.reset(seed=int(self.np_random.integers(2**31)))
        self.player = self.game.possible_agents[self.np_random.integers(2)]
        self._let_the_other_play()
        return self._board(), self._info()

    def step(self, action: str):
        moves = self._moves()
        if action.strip() not in moves:
            text = f"{action.strip()[:40]!r} is no legal move, and the game is lost."
            return text, -1.0, True, False, self._info() | {"success": False}
        self.game.step(moves[action.strip()])
        self._let_the_other_play()
        over = self._is_over()
        reward = float(self.game.rewards[self.player]) if over else 0.0
        return self._board(), reward, over, False, self._info() | {"success": reward > 0}

    def _is_over(self) -> bool:
        return self.game.terminations[self.player] or self.game.truncations[self.player]

    def _let_the_other_play(self) -> None:
        while not self._is_over() and self.game.agent_selection != self.player:
            mask = self.game.observe(self.game.agent_selection)["action_mask"]
            self.game.step(int(self.np_random.choice(np.flatnonzero(mask))))

    def _moves(self) -> dict[str, int]:
        """Return the name and the number of each legal move."""
        numbers = map(int, np.flatnonzero(self.game.observe(self.player)["action_mask"]))
        if self.name != "chess_v6":
            return {str(number): number for number in numbers}
        from pettingzoo.classic.chess.chess_utils import action_to_move

        board, side = self.game.unwrapped.board, self.game.possible_agents.index(self.player)
        return {action_to_move(board, number, side).uci(): number for number in numbers}

    def _board(self) -> str:
        if self.name == "chess_v6":
            return self.game.render()
        own, other = np.moveaxis(self.game.observe(self.player)["observation"], 2, 0)
        cells = np.where(own, "X", np.where(other, "O", "."))
        return "\n".join(" ".join(row) for row in cells)

    def _info(self) -> dict:
        white = self.player == self.game.possible_agents[0]
        side = "X, and the other player is O"
        if self.name == "chess_v6":
            side = f"{'white, in capitals' if white else 'black, in small letters'}"
        system = f"You play {self.name.rpartition('_')[0]}. You are {side}."
        moves = ", ".join(self._moves())
        instruction = answer_with(f"{MOVES[self.name]}. Legal moves: {moves}")
        return dict(system=system, instruction=instruction)
