"""The dialogue log: every turn of the first few environments, one JSON object a line.

`trajectories.jsonl` is what a researcher reads to see what the model says: what it saw, its prompt,
the response token by token with its log-prob, value, advantage and KL, what the environment did,
and, where there are tools or users, the messages that were exchanged. `eval_trajectories.jsonl` is
the same of the last --eval-only, without what only the trainer knows.
`python -m reports.viewer RUN` shows them.
"""

import json
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor

from run.figures import engine_logps
from run.files import append_records, write_text


def write_turns(run: Path, update: int, batch, tokenizer, n_env: int) -> None:
    """Append the turns of environments 0 .. n_env - 1 of a batch whose advantages are known.

    update: number of the update that the batch is for, from 1
    """
    N = batch.n_env
    rows = sorted((row for row in batch.rows if row % N < n_env), key=lambda row: row % N)
    write_rows(run / "trajectories.jsonl", update, batch, tokenizer, rows)


def write_open_episodes(run: Path, batch, tokenizer, n_env: int) -> None:
    """Append, as turns of update 0, those turns of the critic's warm-up whose episodes go on in the
    first update. Without them the first episodes of the log would lack their beginnings.

    batch: the warm-up's, with the advantages of its last round
    """
    N, rows = batch.n_env, []
    for n in range(min(n_env, N)):
        mine = [row for row in batch.rows if row % N == n]
        ends = [k for k, row in enumerate(mine, start=1) if batch.played[row][1].done]
        rows += mine[ends[-1] if ends else 0 :]
    logps = engine_logps(batch)  # the warm-up computes none
    kl = torch.zeros_like(logps)  # the actor stood still
    _append(run / "trajectories.jsonl", 0, batch, tokenizer, rows, logps, kl)


def write_rows(path: Path, update: int, batch, tokenizer, rows: list[int]) -> None:
    """Append the turns of `rows` to a file; row t * N + n is turn t of environment n."""
    kl = batch.logps - batch.ref_logps
    _append(path, update, batch, tokenizer, rows, batch.logps, kl)


def _append(path: Path, update: int, batch, tokenizer, rows, logps: Tensor, kl: Tensor) -> None:
    """logps, kl: (E, N, T)"""
    records = []
    for row in rows:
        (t, n), (response, step) = divmod(row, batch.n_env), batch.played[row]
        tokens = t, n, slice(len(response.ids))
        unknown = [None] * len(response.ids)
        records.append({"env": n, "turn": t} | _turn(response, step, tokenizer) | {
            "logps": _rounded(logps[tokens]),
            "values": unknown if batch.values is None else _rounded(batch.values[tokens]),
            "advantages": _rounded(batch.advantages[tokens]),
            # there may be no reference
            "kl": [x if isfinite(x) else None for x in _rounded(kl[tokens])],
        })  # fmt: skip
    append_records(path, update, records)


def _rounded(numbers: Tensor) -> list[float]:
    return [round(x, 5) for x in numbers.tolist()]


def write_evaluation(run: Path, update: int, turns: list, tokenizer, n_env: int) -> None:
    """Write the turns (environment, Response, Step) of environments 0 .. n_env - 1."""
    records = []
    for n, response, step in turns:
        if n < n_env:
            unknown = [None] * len(response.ids)
            scores = dict(values=unknown, advantages=unknown, kl=unknown)
            logps = [round(x, 5) for x in response.logps]  # the engine's
            turn = {"update": update, "env": n} | _turn(response, step, tokenizer)
            records.append(turn | {"logps": logps} | scores)
    text = "".join(json.dumps(record) + "\n" for record in records)
    write_text(run / "eval_trajectories.jsonl", text)


def _turn(response, step, tokenizer) -> dict:
    """Return what was asked, answered and done in a turn."""
    return {
        "episode": step.episode,
        "seed": step.seed,
        "step": step.number,
        "observation": step.previous_text,
        "prompt": tokenizer.decode(response.prompt.ids),
        "response": response.text,
        "action_at": step.action_at,
        "action": step.action,
        "valid": step.valid,
        # the response as a chat message, and the messages that answered it; null and [] without
        "reply": step.reply,
        # a turn that a fault cut brought nothing: it repeats the observation before it
        "followed": [] if step.fault else list(step.observation.messages),
        "reward": step.reward,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "success": step.success,
        "fault": step.fault,
        "response_truncated": response.truncated,
        "prompt_overflow": response.prompt.overflow,
        "tokens": response.pieces,
    }
