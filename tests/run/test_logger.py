"""What a run tells: one number for an update in every place, also after it was resumed."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from made_runs import EVALUATION
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import main
from memory.render import Prompt
from ppo.engines.contract import Engine
from reports import viewer
from run import records
from run.logger import Logger
from run.records import BOARD
from run.saved import checkpoints, number_of

# An update is 2 x 3 turns; an episode of the toy has 4 turns.
SMALL = """--env-name toy --n-env 2 --e-len 3 --minibatch 6 --num-updates 3 --w-epoch 1 --w-iter 1
--response-limit 4 --prompt-limit 8192 --eval-episodes 2 --eval-interval 1 --save-interval 1
--engine transformers"""


@pytest.fixture(autouse=True)
def boards(monkeypatch):
    """Close TensorBoard's files when a program has ended, as its process would."""
    opened, make = [], records.open_board

    def opening(*args):
        opened.append(make(*args))
        return opened[-1]

    monkeypatch.setattr(records, "open_board", opening)
    return opened


def program(boards, *flags) -> None:
    assert main.program([str(flag) for flag in flags]) == 0
    boards.pop().close()


def train(boards, run: Path, model: str) -> Path:
    program(boards, *SMALL.split(), "--model", model, "--run-dir", run)
    return run


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def shown(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> (step, value) of everything that TensorBoard shows."""
    board = EventAccumulator(str(run)).Reload()
    return {
        tag: [(event.step, event.value) for event in board.Scalars(tag)]
        for tag in board.Tags()["scalars"]
    }


def logged(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard should show, by the .jsonl files."""
    found = {}
    for file, group in BOARD.items():
        for record in lines(run / file):
            update = record.pop("update")
            for name, value in record.items():
                if value is not None and name.startswith(group):
                    found.setdefault(name, []).append((update, pytest.approx(value, rel=1e-6)))
    return found


def test_an_update_has_the_same_number_everywhere(boards, model_dir, tmp_path, capsys):
    run = train(boards, tmp_path / "run", model_dir)
    message = capsys.readouterr().out
    assert re.findall(r"^update +(\d+)/3 ", message, re.M) == ["1", "2", "3"]
    assert re.findall(r"^eval after (\d+) updates", message, re.M) == ["0", "1", "2", "3"]
    metrics, evals = lines(run / "metrics.jsonl"), lines(run / "eval.jsonl")
    assert [record["update"] for record in metrics] == [1, 2, 3]
    assert all(record["turns"] == record["update"] * 6 for record in metrics)
    assert [record["update"] for record in evals] == [0, 1, 2, 3]
    assert [record["update"] for record in lines(run / "warmup.jsonl")] == [0]
    board = shown(run)
    assert [step for step, _ in board["ppo/value_loss"]] == [1, 2, 3]
    assert [step for step, _ in board["eval/success"]] == [0, 1, 2, 3]
    assert board == logged(run)
    turns = lines(run / "trajectories.jsonl")
    # update 0 is the warm-up, whose only episode goes on in the first update
    assert [(turn["update"], turn["turn"]) for turn in turns if turn["env"] == 0] == [
        (update, t) for update in range(4) for t in range(3)
    ]
    assert viewer.main([str(run), "--env", "0"]) == 0
    assert re.findall(r"^-- turn \d  update (\d)", capsys.readouterr().out, re.M) == list(
        "000111222333"
    )
    assert [number_of(path) for path in checkpoints(run)] == [1, 2, 3]  # the newest three
    assert (run / "model" / "update.txt").read_text() == "3\n"
    rows = (run / "eval.md").read_text().splitlines()[4:8]
    assert [row.split("|")[2].strip() for row in rows] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("made", [-1, 0, 2])
def test_tensorboard_shows_what_the_logs_of_a_resumed_run_hold(
    made, boards, model_dir, tmp_path, monkeypatch
):
    """The checkpoint after `made` updates is the newest (-1: there is none)."""
    monkeypatch.setattr("run.checkpoint.KEPT", 9)
    run = train(boards, tmp_path / "run", model_dir)
    before = shown(run)
    for path in checkpoints(run):
        if number_of(path) > made:
            shutil.rmtree(path)
    shutil.rmtree(run / "model")
    if made < 0:
        (run / "metrics.jsonl").write_text("")
    program(boards, "--resume", run)
    after = shown(run)
    assert after == logged(run)  # each step once
    assert {tag: dict(points).keys() for tag, points in after.items()} == {
        tag: dict(points).keys() for tag, points in before.items()}  # fmt: skip


def test_an_evaluation_of_a_killed_run_leaves_its_curves(boards, model_dir, tmp_path):
    run = train(boards, tmp_path / "run", model_dir)
    shutil.rmtree(run / "checkpoints" / "update-000003")
    program(boards, "--resume", run, "--eval-only")  # of the second checkpoint
    assert [step for step, _ in shown(run)["ppo/value_loss"]] == [1, 2, 3]


def test_a_fault_has_the_number_of_its_update(tmp_path, boards, monkeypatch, capsys):
    """The warm-up and the evaluation count theirs, too."""
    args = SimpleNamespace(resume=None, eval_only=False, num_updates=9, log_envs=0, track="none")
    told = Logger(args, tmp_path, 0, None)
    empty = dict(logps=torch.zeros(0), response_mask=torch.zeros(0).bool(), device="cpu")
    fault, rollouts = (
        dict(env=3, error="boom"),
        SimpleNamespace(n_env=0, rows=(), played={}, **empty),
    )
    told.warm_up({"time/total": 1.0}, SimpleNamespace(faults=[fault]), rollouts)
    message = capsys.readouterr().out
    assert message == (
        "fault of environment 3: boom\ncritic warm-up: held-out explained variance -  (1 s)\n"
    )
    summary = EVALUATION | {"eval/episodes": 8, "eval/episode_len": 2.0, "time/eval": 3.0}
    del summary["update"]
    told.evaluation(7, summary, SimpleNamespace(faults=[fault, fault]), {})
    assert "(8 episodes, 2 faults of environments, 3 s)" in capsys.readouterr().out
    told.evaluation(8, summary, SimpleNamespace(faults=[]), {})
    assert "(8 episodes, 3 s)" in capsys.readouterr().out
    boards.pop().close()
    assert [record["update"] for record in lines(tmp_path / "faults.jsonl")] == [0, 7, 7]
    assert [record["eval/env_faults"] for record in lines(tmp_path / "eval.jsonl")] == [2, 0]
    assert lines(tmp_path / "warmup.jsonl")[0]["warmup/env_faults"] == 1


def test_blank_lines_of_a_repaired_log_are_skipped(tmp_path, boards):
    """A log that was lost may be filled with empty lines, after a torn one."""
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "a": 2.0, "b": null}\n{"upd\n\n\n')
    args = SimpleNamespace(resume=tmp_path, eval_only=False, num_updates=9, track="none")
    Logger(args, tmp_path, 1, None)
    boards.pop().close()
    assert shown(tmp_path) == {"a": [(1, 2.0)]}


def test_a_gap_that_rounding_does_not_explain_is_one_line_of_the_run(
    model_dir, tmp_path, monkeypatch, boards, capsys
):
    respond = Engine.response

    def shifted(self, prompt, ids, logps):
        # The run would not begin if the answers that test the first weights were shifted, too.
        shift = 0.75 if isinstance(prompt, Prompt) else 0.0
        return respond(self, prompt, ids, [logp - shift for logp in logps])

    monkeypatch.setattr(Engine, "response", shifted)
    train(boards, tmp_path / "run", model_dir)
    gaps = [line["engine/logp_gap_mean"] for line in lines(tmp_path / "run" / "metrics.jsonl")]
    assert gaps == pytest.approx([0.75] * 3, abs=1e-4)
    printed = capsys.readouterr().out
    assert printed.count("engine and trainer differ by 0.75 per token") == 1
