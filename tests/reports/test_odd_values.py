"""Logs with other values than a run writes, as texts for numbers: one line, never a traceback."""

import json
import sys
from pathlib import Path

import pytest
from made_runs import EVALUATION, write_run

from reports import curves, evaluations, failures, viewer
from run.logged_turn import is_turn

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "reports"))
from test_viewer import turn  # noqa: E402

ODD = ["x", "3", 3, -1, 0.5, None, True, [], [1], ["x"], {}, {"a": 1}, [{"role": 1}], 10**400]
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
REPLY = {"role": "assistant", "content": "c", "tool_calls": [CALL]}
WHOLE = turn(reply=REPLY, followed=[{"role": "tool", "name": "add", "content": "3"}])
FIELDS = [*WHOLE, "observation"]


def test_whole_turns_are_turns():
    assert is_turn(WHOLE) and is_turn(turn())
    assert not is_turn({})


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": "1"},
        {"reward": float("inf")},
        {"step": "1"},
        {"kl": [None]},  # of two tokens
        {"values": ["x", 1.0]},
        {"tokens": [1, 2]},
        {"reply": {"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}},
        {"reply": {"role": "assistant", "tool_calls": "x"}},
        {"followed": "x"},
        {"followed": [{"content": "no role"}]},
    ],
)
def test_other_records_are_not(changes):
    assert not is_turn(WHOLE | changes)


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_a_turn_breaks_a_report(field, tmp_path, capsys):
    run = write_run(tmp_path / "run")
    for odd in ODD:
        records = [WHOLE | {field: odd, "terminated": True}, turn(episode=5, terminated=True)]
        text = "".join(json.dumps(record) + "\n" for record in records)
        (run / "trajectories.jsonl").write_text(text)
        for program, flags in (
            (viewer, []),
            (viewer, ["--env", "0", "--prompts", "--color", "kl"]),
            (failures, []),
        ):
            assert program.main([str(run), *flags]) in (0, 2), (field, odd)
    capsys.readouterr()


@pytest.mark.parametrize("file", ["args.json", "eval.jsonl", "metrics.jsonl"])
def test_no_value_of_a_run_breaks_a_report(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(curves, "draw_charts", lambda groups, draw=None: {})  # it takes seconds
    metrics = {"update": 1, "turns": 8, "rollout/success": 0.5, "time/total": 1.0}
    args = dict(env_name="toy", n_env=2, e_len=4, seed=1, num_updates=3, w_epoch=0, model="m")
    fields = {"args.json": args, "eval.jsonl": EVALUATION, "metrics.jsonl": metrics}[file]
    for field in fields:
        for odd in ODD:
            run, changed = tmp_path / f"{field.replace('/', '-')}-{ODD.index(odd)}", {field: odd}
            write_run(run, metrics=[metrics])
            if file == "args.json":
                text = json.dumps({"args": args | changed, "git": None})
            else:
                text = json.dumps(fields | changed) + "\n"
            (run / file).write_text(text)
            for program in (evaluations, curves):
                flags = ["--out", str(tmp_path / "out")] * (program is curves)
                assert program.main([str(run), *flags]) in (0, 2), (field, odd)
    capsys.readouterr()
