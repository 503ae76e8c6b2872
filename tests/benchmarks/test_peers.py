"""Peers: what TRL is given is ours, the page is made of recorded runs, commands are main.py's."""

import json
import math
import shlex
from types import SimpleNamespace

import pytest
from made_runs import EVALUATION, write_run
from transformers import AutoTokenizer
from transformers.utils import get_json_schema

import arguments
from benchmarks.peers import compare, learning, perform, trl_grpo
from benchmarks.peers.page import write_peers
from benchmarks.peers.plan import FACTORS, METHODS, SEARCH_SEED, TASKS, PeerRun, Plan
from benchmarks.peers.turns import TurnRollouts, rows_of
from common.plugins import UserError
from envs.tools.calculator import Calculator
from paper.runs import PROJECT, read_run

TOOLS, GOTO = TASKS
DUAL, GRPO, TRL, STEPS = METHODS


@pytest.fixture
def environment():
    return trl_grpo.class_for(Calculator)()


def test_trl_is_shown_the_same_question_and_the_same_tool(environment):
    ours = Calculator()
    assert environment.reset(seed=6, prompt="unused") == ours.reset(seed=6)[0]
    assert [get_json_schema(environment.calculate)] == ours.template["tools"]


def test_a_call_through_trl_is_answered_as_ours_is(environment):
    environment.reset(seed=6)
    assert environment.calculate(a=2, operation="add", b=3) == '{"result": 5}'
    assert environment.calculate(a=9, operation="multiply", b=99).startswith("Error: the result")
    assert environment.calculate(c=1).startswith("Error: ")


def test_only_an_answer_is_judged(environment):
    environment.reset(seed=6)
    right = {"role": "assistant", "content": f"ANSWER: {environment._env.answer}"}
    assert environment._judge([right]) == 1
    assert environment._judge([right | {"tool_calls": ["one"]}]) == 0  # the last turn was a call
    assert environment._judge([right, {"role": "tool", "content": "5"}]) == 0


def test_a_turn_has_the_advantage_of_its_episode():
    # returns 1 and 0: the mean is .5, the standard deviation of a sample sqrt(.5) = .7071,
    # so A = +- .5 / (.7071 + .0001) = +- .7070; an episode counts once, also with two turns
    group = [SimpleNamespace(ret=1.0, turns=[([1], [2]), ([3], [4])]),
             SimpleNamespace(ret=0.0, turns=[([5], [6])])]  # fmt: skip
    turns, advantages = zip(*rows_of(group), strict=True)
    assert turns == (([1], [2]), ([3], [4]), ([5], [6]))
    assert advantages == pytest.approx([0.7070, 0.7070, -0.7070], abs=1e-4)


@pytest.mark.parametrize("by_vllm", [False, True])
def test_a_batch_of_turns_has_its_rows_and_counts_all_that_were_played(by_vllm):
    tokenizer = AutoTokenizer.from_pretrained(PROJECT / "models" / "tiny")
    flags = SimpleNamespace(
        env_name="babyai-goto", memory="window", memory_length=1, prompt_limit=1024,
        prompts=None, max_episode_steps=None, on_invalid="default", format_penalty=0.1, data=None,
    )  # fmt: skip
    played = []
    record = SimpleNamespace(add=lambda successes, turns: played.append((successes, turns)))
    ids_of_a_turn = tokenizer("THINK: on.\nACTION: turn left<|im_end|>")["input_ids"]
    logps = [-0.5] * len(ids_of_a_turn)  # of the sampled tokens, which transformers does not give

    def generate(ids, *others):
        return [ids_of_a_turn] * len(ids), [logps] * len(ids) if by_vllm else None

    trainer = SimpleNamespace(_generate_single_turn=generate)
    seeds = SimpleNamespace(draw=lambda k: 2 * k)
    play = TurnRollouts(flags, tokenizer, seeds, rows=20, group=2, record=record)
    batch = play(["", ""], trainer)
    # Nobody gets anywhere by turning left: both episodes of a group end at the limit of 64 turns.
    assert played == [([False, False], 128)] and play.length == 64
    assert batch["completion_ids"] == [ids_of_a_turn] * 20 and batch["advantage"] == [0.0] * 20
    assert batch["logprobs"] == ([logps] * 20 if by_vllm else None)
    texts = [tokenizer.decode(ids) for ids in batch["prompt_ids"]]
    assert len(texts) == 20 and all(text.endswith("<|im_start|>assistant\n") for text in texts)


def refusal(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        trl_grpo.main(["--model", "models/tiny", *words])
    assert stopped.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_without_trl_one_line_says_what_is_missing(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(trl_grpo, "find_spec", lambda name: None if name == "trl" else name)
    assert "trl missing: install TRL into a folder" in refusal(capsys, "--run-dir", str(tmp_path))
    monkeypatch.setattr(trl_grpo, "find_spec", lambda name: name)
    assert "exists: name another --run-dir" in refusal(capsys, "--run-dir", str(tmp_path))


def test_the_commands_are_those_of_both_programs(capsys, tmp_path, monkeypatch):
    assert compare.main(["--dry-run", "--runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert (
        f"# then the comparison on {GOTO.env}, with the rates that this search chooses" in printed
    )
    lines = [shlex.split(line)[1:] for line in printed if not line.startswith("#")]
    monkeypatch.setattr(trl_grpo, "find_spec", lambda name: None if name == "trl" else name)
    theirs = [words[2:] for words in lines if words[:2] == ["-m", "benchmarks.peers.trl_grpo"]]
    assert len(theirs) == 2 * 2 * 2  # environments, methods, learning rates
    for words in theirs:
        with pytest.raises(SystemExit):
            trl_grpo.main(words)
        assert "trl missing" in capsys.readouterr().err  # each flag was understood
    ours = [words[1:] for words in lines if words[0] == "main.py"]
    # 2 environments x (the initial model, 3 methods x 2 learning rates, and 5 seeds of the method
    # without a search)
    assert len(ours) == 24
    for words in ours:
        at = words.index("--model") + 1
        words[at] = "models/tiny-calculator" if TOOLS.env in words else "models/tiny"
        args = arguments.get_args(words)
        assert args.eval_only or args.num_turns == 20_480 or args.w_epoch + args.num_updates == 80


def test_mistakes_have_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "find_spec", lambda name: None)
    folders = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    for words, message in [
        ([], "TRL is missing: name the folder that it is installed in with --trl"),
        (["--only", "moon"], "--only moon: the runs are tools-calculator-dual-gae, "),
    ]:
        assert compare.main([*folders, *words]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def made(plan, task, method, factor: float, seed: int, success: float) -> None:
    """A finished run of three updates, each of 256 turns and half a minute."""
    metrics = [{"update": u, "turns": 256 * u, "time/processor": 30.0,
                "rollout/success": success * u / 3} for u in (1, 2, 3)]  # fmt: skip
    evals = [EVALUATION | {"update": 3, "eval/success": success}]
    settings = dict(env_name=task.env, num_turns=768, num_updates=80, seed=seed)
    versions = {"versions": {"trl": "1.16.0"}} if method is TRL else {}
    write_run(
        plan.path(PeerRun(task, method, factor, seed)), metrics, evals, **settings, **versions
    )


def test_the_page_shows_recorded_and_missing_runs(tmp_path):
    plan = Plan(tmp_path / "runs")
    for factor, success in zip(FACTORS, (0.6, 0.8), strict=True):
        assert plan.factor(TOOLS, TRL) is None
        made(plan, TOOLS, TRL, factor, SEARCH_SEED, success)
    assert plan.factor(TOOLS, TRL) == 2 and plan.factor(TOOLS, GRPO) is None
    for seed in (1, 2):
        made(plan, TOOLS, TRL, 2.0, seed, 0.96)
        made(plan, TOOLS, DUAL, 1.0, seed, 0.8)
    initial = [EVALUATION | {"update": 0, "eval/success": 0.28}]
    write_run(plan.before(TOOLS).path, evals=initial, env_name=TOOLS.env, eval_only=True)
    write_peers(tmp_path / "peer-trl.md", plan)
    page = (tmp_path / "peer-trl.md").read_text()
    assert "4 of 40 runs are finished" in page and "Versions: trl 1.16.0, ours at" in page
    [table, soon, search] = [line for line in page.splitlines() if TRL.label in line][:3]
    # 768 turns took three half minutes: 90 s, and 1,000 turns would take 117.2 s
    assert f"| {DUAL.label} | 0.280 | 0.800" in page
    assert "0.960 0.960 | 768 | 1.5 | 2 of 5" in table
    assert soon.endswith("| 768 768 | 1.5 1.5 | 117.2 117.2 |")
    assert "0.600 | 0.800 | 2 |" in page and search.startswith("|")
    assert "| never never | never never |" in page  # our default: .8 is below .9
    assert (tmp_path / f"peer-trl-{TOOLS.env}-turns.png").exists()
    assert not (tmp_path / f"peer-trl-{GOTO.env}-turns.png").exists()


def test_a_run_of_trl_ends_with_the_evaluation_by_main(tmp_path, capsys):
    plan = Plan(tmp_path)
    made(plan, TOOLS, STEPS, 1.0, 1, 0.5)
    run = PeerRun(TOOLS, STEPS, 1.0, 1)
    path = plan.path(run)
    (path / "evaluation").mkdir()
    (path / "evaluation" / "eval.jsonl").write_text(json.dumps(EVALUATION | {"update": 0}) + "\n")
    perform.adopt_evaluation(path)
    assert plan.found(run).evals == [EVALUATION | {"update": 3}]
    assert perform.make(plan, run, None, dry=True) == 0
    assert capsys.readouterr().out.endswith("is finished\n")


def test_the_copied_model_ends_the_agents_messages_without_a_line_break(tmp_path):
    plan = Plan(tmp_path)
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    for task in TASKS:
        plan.make_model(task)
        tokenizer = AutoTokenizer.from_pretrained(plan.model(task))
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        assert text == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny<|im_end|>"


def test_what_a_real_model_learns_is_counted_over_parts_of_its_updates(tmp_path):
    # five updates in four parts, which end after 1.25, 2.5, 3.75 and 5 of them: after 1, 2, 4, 5;
    # no episode ends in the second. The third: (1 * 1 + 1 / 3 * 3) / 4
    ended = [(4, 0.5), (0, None), (1, 1.0), (3, 1 / 3), (2, 1.0)]
    lines = [{"turns": 10 * (k + 1), "time/total": 360.0, "batch/episodes": n} for k, (n, _) in
             enumerate(ended)]  # fmt: skip
    for line, (n, success) in zip(lines, ended, strict=True):
        line |= {"batch/success": success} if n else {}
    found = learning.parts_of(read_run(write_run(tmp_path / "run", lines)))
    assert [part["turns"] for part in found] == [10, 20, 40, 50]
    successes = [part["success"] for part in found]
    assert successes == pytest.approx([0.5, math.nan, 0.5, 1], nan_ok=True)
    assert [part["hours"] for part in found] == pytest.approx([0.1, 0.2, 0.4, 0.5])
    assert learning.cell(found[0]) == "0.50 of 4 (10 turns, 0.10 h)"
    assert learning.picture({"ours": found}).startswith(b"\x89PNG")
    write_run(tmp_path / "short", lines[:3])
    with pytest.raises(UserError, match="short has fewer than 4 updates"):
        learning.compare([tmp_path / "short"], None)
