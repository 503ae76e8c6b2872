"""Writes run directories without a run, and reads the commands of runs that nobody starts."""

import json
import shlex

from paper import reproduce

EVALUATION = {
    "update": 0,
    "eval/success": 0.25,
    "eval/success_low": 0.1,
    "eval/success_high": 0.5,
    "eval/return": 0.2,
    "eval/return_stderr": 0.05,
}


def write_run(path, metrics=(), evals=(EVALUATION,), **settings):
    """Write a run directory. By default an update has 2 x 4 turns. settings: other arguments"""
    path.mkdir(parents=True)
    args = dict(env_name="toy", n_env=2, e_len=4, seed=1, num_updates=3, w_epoch=0) | settings
    (path / "args.json").write_text(json.dumps({"args": args, "git": "a" * 40 + "-dirty"}))
    for name, rows in (("metrics", metrics), ("eval", evals)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def dry_run(capsys, *words: str) -> list[list[str]]:
    """The arguments of main.py in the commands that `paper.reproduce --dry-run` prints."""
    assert reproduce.main(["--dry-run", *words]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    commands = [shlex.split(line) for line in lines]
    assert all(command[:2] == ["python", "main.py"] for command in commands)
    return [command[2:] for command in commands]
