"""The model card: what a run says of its model, without a word about this machine."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

import main
from run.card import evaluation_table, model_card, refresh_card

SMALL = """--env-name toy --n-env 2 --e-len 2 --minibatch 4 --num-updates 1 --w-epoch 0
--response-limit 4 --prompt-limit 8192 --eval-episodes 2 --eval-interval 1 --engine transformers"""


@pytest.fixture(scope="module")
def run(model_dir, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    assert main.program([*SMALL.split(), "--model", model_dir, "--run-dir", str(run)]) == 0
    return run


def test_every_model_has_a_card(run, model_dir):
    card = (run / "model" / "README.md").read_text()
    assert card == model_card(run, 1)
    head, _, text = card.removeprefix("---\n").partition("\n---\n")
    assert "library_name: transformers" in head and "base_model" not in head  # a directory here
    evals = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
    rows = [row for row in text.splitlines() if row.startswith(("| 0 |", "| 1 |"))]
    assert len(rows) == 2  # of the initial model, and of this one, which was evaluated later
    for row, e in zip(rows, evals, strict=True):
        assert f"| {e['update']} | 2 | {e['eval/success']:.3f} [" in row
    assert "| e_len | 2 |" in text and "trained there (updates: 1)" in text
    assert "--env-name toy --model THIS --memory window --memory-length 1 --prompt-limit" in text
    for place in (str(run), str(Path(model_dir).parent)):
        assert place not in card
    assert AutoModelForCausalLM.from_pretrained(run / "model").config.model_type == "qwen2"


def test_a_card_names_the_base_of_its_model(run, tmp_path):
    about = json.loads((run / "args.json").read_text())
    about["args"] |= {"model": "org/base", "train": "lora:8", "prompts": {"toy": {"system": "Go."}}}
    (tmp_path / "args.json").write_text(json.dumps(about))
    card = model_card(tmp_path, 3)
    assert "base_model: org/base\n" in card and "The folder `adapter` holds the LoRA" in card
    assert "--eval-episodes 2 --prompts FILE" in card and '{"toy": {"system": "Go."}}' in card
    assert "None yet." in card  # there is no eval.jsonl


def test_a_shell_reads_the_command_of_a_card_as_the_run_did(run, tmp_path):
    about = json.loads((run / "args.json").read_text())
    about["args"] |= {"env_name": "babyai-*=weak", "memory": "my module:Notes"}
    (tmp_path / "args.json").write_text(json.dumps(about))
    command = "turnwise evaluate --env-name 'babyai-*=weak' --model THIS --memory 'my module:Notes'"
    assert command in model_card(tmp_path, 1)


def test_a_card_written_elsewhere_names_no_directory_as_the_base(run, tmp_path, monkeypatch):
    about = json.loads((run / "args.json").read_text())
    model = Path(about["args"]["model"])
    about["args"]["model"], about["cwd"] = model.name, str(model.parent)
    (tmp_path / "args.json").write_text(json.dumps(about))
    monkeypatch.chdir(tmp_path)
    assert "base_model" not in model_card(tmp_path, 3)


def test_the_command_of_a_card_has_the_settings_that_differ_from_the_defaults(run, tmp_path):
    about = json.loads((run / "args.json").read_text())
    about["args"] |= {"memory": "full", "max_episode_steps": 9, "history_thinking": "strip"}
    about["args"] |= {"data": "/home/me/rows.jsonl"}  # its path says nothing to others
    (tmp_path / "args.json").write_text(json.dumps(about))
    [command] = [line for line in model_card(tmp_path, 3).splitlines() if "--model THIS" in line]
    assert command.split("--model THIS ")[1] == (
        "--memory full --prompt-limit 8192 --response-limit 4 --eval-episodes 2 "
        "--history-thinking strip --max-episode-steps 9 --data PATH"
    )


def test_a_card_counts_evaluations_up_to_its_model(tmp_path):
    line = '{{"update": {}, "eval/episodes": 4, "eval/success": {}, "eval/success_low": 0.1, '
    line += '"eval/success_high": 0.9, "eval/return": 0, "eval/return_stderr": 0, '
    line += '"eval/episode_len": 3}}\n'
    lines = [line.format(0, 0.25), '{"upd\n', "\n", line.format(2, 0.5), line.format(2, 0.75)]
    (tmp_path / "eval.jsonl").write_text("".join([*lines, line.format(4, 1)]))
    rows = evaluation_table(tmp_path, 2).splitlines()[2:4]
    assert rows == ["| 0 | 4 | 0.250 [0.100, 0.900] | 0.000 +- 0.000 | 3.0 |",
                    "| 2 | 4 | 0.750 [0.100, 0.900] | 0.000 +- 0.000 | 3.0 |"]  # fmt: skip


def test_requested_evaluations_fill_gaps(tmp_path):
    def line(update, success, **more):
        figures = {"episodes": 4, "success": success, "success_low": 0.1, "success_high": 0.9}
        figures |= {"return": 0, "return_stderr": 0, "episode_len": 3}
        figures = {f"eval/{name}": figure for name, figure in figures.items()}
        return json.dumps({"update": update} | figures | more) + "\n"

    asked = [line(1, 0.25, asked=True), line(2, 0.25, asked=True), line(3, 0.25, asked=True)]
    lines = [asked[0], line(1, 0.5), line(2, 0.5), *asked[1:], line(3, 0.75, asked=True)]
    (tmp_path / "eval.jsonl").write_text("".join(lines))
    rows = evaluation_table(tmp_path, 3).splitlines()[2:5]
    shown = [row.split(" [")[0] for row in rows]
    assert shown == ["| 1 | 4 | 0.500", "| 2 | 4 | 0.500", "| 3 | 4 | 0.750"]


def test_a_run_without_a_model_gets_no_card(tmp_path):
    refresh_card(tmp_path)
    assert not list(tmp_path.iterdir())
