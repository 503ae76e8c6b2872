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

from run.files import append_records, write_text


def write_turns(run: Path, update: int, rollouts, tokenizer, n_env: int) -> None:
    """Append the turns of environments 0 .. n_env - 1 of a batch whose advantages are known.

    update: number of the update that the batch is for, from 1
    """
    N = rollouts.n_env
    rows = sorted((row for row in rollouts.rows if row % N < n_env), key=lambda row: row % N)
    write_rows(run / "trajectories.jsonl", update, rollouts, tokenizer, rows)


def write_open_episodes(run: Path, rollouts, tokenizer, n_env: int) -> None:
    """Append, as turns of update 0, those turns of the critic's warm-up whose episodes go on in the
    first update. Without them the first episodes of the log would lack their beginnings.

    rollouts: the warm-up's, with the advantages of its last round
    """
    rollouts.logps = rollouts.ref_logps = rollouts.engine_logps()  # the actor stood still: KL is 0
    N, rows = rollouts.n_env, []
    for n in range(min(n_env, N)):
        mine = [row for row in rollouts.rows if row % N == n]
        ends = [k for k, row in enumerate(mine, start=1) if rollouts.steps[row // N][n].done]
        rows += mine[ends[-1] if ends else 0 :]
    write_rows(run / "trajectories.jsonl", 0, rollouts, tokenizer, rows)


def write_rows(path: Path, update: int, rollouts, tokenizer, rows: list[int]) -> None:
    """Append the turns of `rows` to a file; row t * N + n is turn t of environment n."""
    places = [divmod(row, rollouts.n_env) for row in rows]
    records = [{"env": n, "turn": t} | _turn(rollouts, tokenizer, t, n) for t, n in places]
    append_records(path, update, records)


def write_evaluation(run: Path, update: int, turns: list, tokenizer, n_env: int) -> None:
    """Write the turns (environment, Response, Step) of environments 0 .. n_env - 1 of a panel."""
    records = []
    for n, response, step in turns:
        if n < n_env:
            unknown = [None] * len(response.ids)
            scores = dict(values=unknown, advantages=unknown, kl=unknown)
            logps = [round(x, 5) for x in response.logps]  # the engine's
            said = {"update": update, "env": n} | _told(response, step, tokenizer)
            records.append(said | {"logps": logps} | scores)
    text = "".join(json.dumps(record) + "\n" for record in records)
    write_text(run / "eval_trajectories.jsonl", text)


def _turn(rollouts, tokenizer, t: int, n: int) -> dict:
    response, step = rollouts.responses[t][n], rollouts.steps[t][n]
    length = len(response.ids)
    per_token = lambda tensor: [round(x, 5) for x in tensor[t, n, :length].tolist()]
    kl = per_token(rollouts.logps - rollouts.ref_logps)
    return _told(response, step, tokenizer) | {
        "logps": per_token(rollouts.logps),
        "values": [None] * length if rollouts.values is None else per_token(rollouts.values),
        "advantages": per_token(rollouts.advantages),
        "kl": [x if isfinite(x) else None for x in kl],  # there may be no reference
    }


def _told(response, step, tokenizer) -> dict:
    """What was said and done in a turn."""
    return {
        "episode": step.episode,
        "seed": step.seed,
        "step": step.number,
        "observation": step.seen,
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
