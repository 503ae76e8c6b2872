"""Cloning demonstrations: which turns are imitated, exactly which tokens, and going on."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from tempfile import TemporaryFile
from types import SimpleNamespace

import pytest
import torch
from real_runs import ROOT, Forked, wait_for
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer

import main
from arguments import get_args
from common import cli
from common.cli import MAIN
from common.errors import RunError
from envs import family
from envs.prompts import prompts_of
from envs.text_env import begin
from envs.variants import make_variant
from memory.render import Renderer
from memory.window import WindowMemory
from models import before_after, clone, clone_files
from models.demonstrations import encoded, read_turns
from models.imitation import Imitation
from models.players import PLAYERS, babyai
from ppo.model.make import build
from recipes import TINY
from storage.minibatch import Sample

CONVERSATIONS = [
    {"messages": [{"role": "system", "content": "Obey."},
                  {"role": "user", "content": f"a wall {k}"},
                  {"role": "assistant", "content": f"THINK: a wall.\nACTION: turn {way}"}]}
    for k in range(5) for way in ("left", "right")
]  # fmt: skip


@pytest.fixture(autouse=True)
def signals_of_pytest():
    """Let the handlers of signals, which a program changes, stay those of pytest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clone, "end_silently_on_signals", lambda: None)
        yield


@pytest.fixture
def conversations(tmp_path):
    path = tmp_path / "turns.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in CONVERSATIONS))
    return path


def cloned(out, conversations, *flags: str) -> int:
    words = ["--model", str(TINY), "--turns", str(conversations), "--out", str(out)]
    return clone.main([*words, "--batch", "4", "--lr", "1e-3", "--check-interval", "2", *flags])


def weights(folder) -> dict:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


# ---- what is imitated ---------------------------------------------------------------------------


def turn(episode: int, prompt: str, reward: float = 0.0, **changes) -> dict:
    ends = dict(terminated=False, truncated=False, fault="", response_truncated=False)
    told = dict(env=0, episode=episode, prompt=prompt, response=f"to {prompt}", reward=reward)
    rest = dict(update=1, seed=1, step=1, action_at=0, action="", valid=True, success=False)
    rest |= dict(prompt_overflow=False, tokens=[], logps=[], values=[], advantages=[], kl=[])
    return rest | told | ends | changes


def test_a_run_gives_the_turns_of_its_good_episodes(tmp_path):
    log = [
        turn(0, "won"),
        turn(0, "won at last", 1.0, terminated=True),
        turn(1, "lost", truncated=True),
        turn(2, "won cut off", response_truncated=True),
        turn(2, "won again", 1.0, terminated=True),
        turn(3, "under way", 1.0),
    ]
    path = tmp_path / "trajectories.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in log))
    prompts = [prompt for prompt, _ in read_turns(str(tmp_path), least=1.0, seed=0)]
    assert prompts == ["won", "won at last", "won again"]
    assert ("lost", "to lost") in read_turns(str(tmp_path), least=0.0, seed=0)
    with pytest.raises(ValueError, match="no episode there has a return of 2 or more"):
        read_turns(str(tmp_path), least=2.0, seed=0)


def test_one_task_of_a_scripted_player():
    turns = read_turns("player:guess", least=0.0, seed=1)
    messages, response = turns[0]
    assert messages[0]["role"] == "system" and isinstance(response, str)


def test_a_player_that_is_shown_all_turns(monkeypatch):
    monkeypatch.setitem(babyai.TASKS["goto"], "episodes", 12)
    turns = read_turns("player:babyai:goto", 0.0, 1, full=True)
    before = []
    for messages, _ in turns:
        roles = [message["role"] for message in messages]
        assert roles == ["system", *["user", "assistant"] * (len(roles) // 2 - 1), "user"]
        if len(messages) > 2:  # else an episode begins
            assert messages[: len(before)] == before and len(messages) == len(before) + 2
        before = messages
    assert max(len(messages) for messages, _ in turns) > 2 * 8
    with pytest.raises(ValueError, match="--memory full: this player .* its own memories"):
        read_turns("player:errands", 0.0, 1, full=True)
    with pytest.raises(ValueError, match="--memory full is for scripted players; --turns x.jsonl"):
        read_turns("x.jsonl", 0.0, 1, full=True)


def test_players_are_asked_in_your_own_words(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(babyai.TASKS["goto"], "episodes", 12)
    path = tmp_path / "prompts.toml"
    path.write_text('[babyai]\nsystem = "Please {mission}."\ninstruction = "What now?"\n')
    source = "player:babyai:goto"
    turns = read_turns(source, least=0.0, seed=1, table=before_after.own_words(path, source))
    # as main.py asks them in the first turn of the first episode, and in every later one
    env = make_variant("babyai-goto", prompts=prompts_of(path))
    memory = WindowMemory(0)
    memory.reset(begin(env, 100_003))
    assert turns[0][0] == memory.messages()
    asked = {tuple(messages[i]["content"] for i in (0, -1)) for messages, _ in turns}
    assert all(first.startswith("Please go to the ") for first, _ in asked)
    assert all(last.endswith("\n\nWhat now?") for _, last in asked)
    words = ["--turns", "player:guess", "--prompts", str(path), "--out", str(tmp_path / "out")]
    assert clone.main(["--model", str(TINY), *words]) == 2
    assert "--prompts: dialogue-guess takes none" in capsys.readouterr().err
    words[1] = "player:chess"
    assert clone.main(["--model", str(TINY), *words]) == 2
    assert "unknown player 'chess'; choices: babyai, " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        clone.main([*words, "--prompts", str(tmp_path / "none.toml")])
    assert "none.toml: No such file or directory" in capsys.readouterr().err


def test_the_ids_are_the_trainers(conversations):
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    render = Renderer(tokenizer, 64)
    turns = read_turns(str(conversations), least=0.0, seed=0)
    samples = encoded(turns, render, tokenizer)
    for line, sample in zip(CONVERSATIONS, samples, strict=True):
        *asked, answer = line["messages"]
        assert sample.prompt == render(asked).ids
        assert tokenizer.decode(sample.response) == answer["content"] + tokenizer.eos_token
    # a logged prompt is text with its special tokens
    text = tokenizer.apply_chat_template(
        CONVERSATIONS[0]["messages"][:2], add_generation_prompt=True, tokenize=False
    )
    assert encoded([(text, "x")], render, tokenizer)[0].prompt == samples[0].prompt
    # what does not fit is left out, not shortened
    assert encoded(turns, Renderer(tokenizer, 5), tokenizer) == []


def test_lines_of_a_file_end_at_line_feeds_alone(tmp_path):
    """An editor may write a byte order mark and empty lines, and JSON may hold U+2028 as it is."""
    path = tmp_path / "turns.jsonl"
    asked, answer = {"role": "user", "content": "a\u2028b\u0085c"}, "d\u2029e"
    messages = [asked, {"role": "assistant", "content": answer}]
    line = json.dumps({"messages": messages}, ensure_ascii=False)
    path.write_text(f"\ufeff{line}\r\n\n{line}\n \n", encoding="utf-8", newline="")
    assert read_turns(str(path), least=0.0, seed=0) == [([asked], answer)] * 2


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("player:chess", "unknown player 'chess'; choices: babyai, "),
        ("player:babyai:chess", "babyai has no task 'chess'; choices: goto, "),
        ("nowhere.jsonl", "--turns nowhere.jsonl: No such file or directory"),
        ("not json", "is not JSONL"),
        ('{"messages": []}', "line 1: expected"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "line 1: expected"),
        ("[1]", "line 1: expected"),
        ("\n[1]", "line 2: expected"),
        ("\n", "turns.jsonl: it is empty"),
    ],
)
def test_what_cannot_be_imitated_is_one_line(source, line, tmp_path, capsys):
    if not source.startswith(("player:", "nowhere")):
        (tmp_path / "turns.jsonl").write_text(source + "\n")
        source = str(tmp_path / "turns.jsonl")
    assert cloned(tmp_path / "out", source) == 2
    error = capsys.readouterr().err.splitlines()
    assert line in error[-1] and not (tmp_path / "out").exists()


# ---- the steps ----------------------------------------------------------------------------------

SAMPLES = [Sample([5, 6, 7], [8, 9]), Sample([5], [10, 11, 12, 2]), Sample([7, 7], [9])]


def imitation(samples=SAMPLES, batch=3) -> Imitation:
    lm = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32, attn_implementation="sdpa")
    return Imitation(build(lm, None), samples, steps=10, batch=batch, lr=1e-3, seed=0)


@pytest.mark.parametrize("token_budget", [1, 100])
def test_the_loss_is_the_mean_over_response_tokens(token_budget):
    """transformers' own forward gives log p of each response token, one row at a time."""
    lm = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    total = 0.0
    for prompt, response, _ in SAMPLES:
        with torch.no_grad():
            logps = lm(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        for k, token in enumerate(response, start=len(prompt)):
            total -= logps[k - 1, token].item()  # position k - 1 predicts token k
    work = imitation()
    assert work.measure(SAMPLES, token_budget)[0] == pytest.approx(total / 7, abs=1e-5)
    assert work.take_step(token_budget) == pytest.approx(total / 7, abs=1e-5)
    assert work.measure(SAMPLES, token_budget)[0] < total / 7  # it has learnt something


def test_the_entropy_is_that_of_the_next_tokens():
    work = imitation()
    lm = work.stepper.model.lm
    with torch.no_grad():
        logps = lm(torch.tensor([[5, 6, 7, 8, 9]])).logits[0].log_softmax(-1)
    expected = -(logps.exp() * logps).sum(-1)[2:4].mean()  # of what follows 7 and 8
    assert work.measure(SAMPLES[:1], 100)[1] == pytest.approx(expected.item(), abs=1e-5)


def test_the_learning_rate_rises_and_falls():
    work = imitation()
    group, rates = work.stepper.optimizer.param_groups[0], []
    for _ in range(10):
        work.take_step(100)
        rates.append(group["lr"])
    # ten steps: the first of them is the whole warm-up; then (1 + cos(pi step / 10)) / 2
    assert rates[0] == pytest.approx(1e-3) and rates[5] == pytest.approx(5e-4)
    assert rates == sorted(rates, reverse=True)


# ---- the program --------------------------------------------------------------------------------


class FillingUp(io.StringIO):
    """A standard output that is full from a certain line on."""

    def __init__(self, last: str):
        super().__init__()
        self.last = last

    def write(self, text: str) -> int:
        if self.last in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_clone_that_is_killed_in_its_first_save_begins_again(
    tmp_path, conversations, monkeypatch
):
    def killed(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Imitation, "state_dict", killed)
    with pytest.raises(KeyboardInterrupt):
        cloned(tmp_path / "out", conversations, "--steps", "1")
    (tmp_path / "out" / f"{clone_files.SETTINGS}.tmp").touch()
    monkeypatch.undo()
    assert cloned(tmp_path / "out", conversations, "--steps", "1") == 0
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_an_interrupted_clone_goes_on_as_if_nothing_had_happened(
    tmp_path, conversations, capsys, monkeypatch
):
    assert cloned(tmp_path / "whole", conversations, "--steps", "6", "--min-entropy", "0") == 0
    step = Imitation.take_step

    def killed(self, token_budget):
        if self.step == 5:
            raise KeyboardInterrupt
        return step(self, token_budget)

    monkeypatch.setattr(Imitation, "take_step", killed)
    with pytest.raises(KeyboardInterrupt):
        cloned(tmp_path / "cut", conversations, "--steps", "6", "--min-entropy", "0")
    monkeypatch.setattr(Imitation, "take_step", step)
    capsys.readouterr()
    with monkeypatch.context() as here:  # from the line of step 6 on the disk is full
        here.setattr(cli, "discard_output", lambda: None)
        here.setattr(sys, "stdout", FillingUp("step 6/6"))
        assert cloned(tmp_path / "cut", conversations, "--steps", "6", "--min-entropy", "0") == 1
    lost = "models.clone: error: cannot write to the standard output: No space left on device\n"
    assert capsys.readouterr().err == lost
    assert cloned(tmp_path / "cut", conversations, "--steps", "6", "--min-entropy", "0") == 0
    assert "goes on after step 6" in capsys.readouterr().out
    assert_close(weights(tmp_path / "cut"), weights(tmp_path / "whole"), rtol=0, atol=0)
    assert not (tmp_path / "cut" / clone_files.STATE).exists()
    # it is a model like any other, and complete; what a kill in the last rename leaves is deleted
    (tmp_path / "cut.old").mkdir()
    with pytest.raises(SystemExit):
        cloned(tmp_path / "cut", conversations, "--steps", "6", "--min-entropy", "0")
    assert "is complete; name another --out" in capsys.readouterr().err
    assert not (tmp_path / "cut.old").exists()


def in_this_process(words: list[str], **_) -> subprocess.CompletedProcess:
    """main.py, without another import of torch."""
    assert words[:2] == [sys.executable, str(MAIN)]
    try:
        return subprocess.CompletedProcess(words, main.main(get_args(words[2:])))
    except SystemExit as ended:
        return subprocess.CompletedProcess(words, ended.code, stderr="usage\nmain.py: error: no\n")


def test_success_and_valid_actions_before_and_after(tmp_path, conversations, monkeypatch, capsys):
    stand_in = SimpleNamespace(run=in_this_process, DEVNULL=None, PIPE=None)
    monkeypatch.setattr(before_after, "subprocess", stand_in)
    out, scores = (
        tmp_path / "out",
        "valid actions 0.000, success 0.000 [0.000, 0.658] in 2 episodes",
    )
    flags = ["--steps", "2", "--eval-episodes", "2", "--eval-flags"]
    assert cloned(out, conversations, *flags, "--env-name toy --max-episode-steps 2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.count(f"before: {scores}") == lines.count(f"after: {scores}") == 1
    card = (out / "README.md").read_text()
    assert f"| before | {scores} |\n| after | {scores} |" in card
    assert "--env-name toy --max-episode-steps 2`" in card and "--response-limit" in card
    # a refusal of main.py is one line, and nothing has been made
    assert cloned(tmp_path / "bad", conversations, *flags, "--env-name chess") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "models.clone: error: the evaluation failed: main.py: error: no"
    assert not (tmp_path / "bad").exists()


def test_without_its_last_evaluation_a_clone_is_only_evaluated(
    tmp_path, conversations, monkeypatch, capsys
):
    out, evaluations = tmp_path / "out", []

    def evaluate(model, flags):
        evaluations.append((str(model), flags))
        if len(evaluations) == 2:
            raise KeyboardInterrupt
        if len(evaluations) == 3:
            raise RunError("the evaluation failed: killed")
        return f"score {len(evaluations)}"

    monkeypatch.setattr(before_after, "evaluate", evaluate)
    command = (out, conversations, "--steps", "2", "--eval-flags", "--env-name toy")
    with pytest.raises(KeyboardInterrupt):
        cloned(*command)
    with monkeypatch.context() as here:
        here.setattr(clone, "make_clone", None)  # which is not called again
        assert cloned(*command) == 1
        assert capsys.readouterr().err == "models.clone: error: the evaluation failed: killed\n"
        assert cloned(*command) == 0
    assert capsys.readouterr().out == "after: score 4\n"
    assert [model for model, _ in evaluations] == [str(TINY), *[str(out)] * 3]
    assert all(flags == evaluations[0][1] for _, flags in evaluations)
    assert "| before | score 1 |\n| after | score 4 |" in (out / "README.md").read_text()
    with pytest.raises(SystemExit):
        cloned(*command)
    assert "is complete; name another --out" in capsys.readouterr().err


def test_a_clone_is_evaluated_with_the_memory_that_it_has_imitated(tmp_path):
    words = ["--model", str(TINY), "--turns", "player:babyai:goto", "--out", str(tmp_path / "out")]
    flags = before_after.flags_of(clone.get_args([*words, "--memory", "full"]), SAMPLES)
    # the longest of their responses has 4 tokens
    assert flags == [
        "--env-name", "babyai-goto", "--memory", "full", "--prompt-limit", "1024",
        "--response-limit", "8", "--eval-episodes", "8",
    ]  # fmt: skip
    assert get_args(["--model", str(TINY), *flags]).memory == "full"
    assert "--memory" not in before_after.flags_of(clone.get_args(words), SAMPLES)


def test_the_environment_that_is_evaluated(tmp_path):
    for player, env in before_after.ENVS.items():
        assert family(before_after.env_of(f"player:{player}")) and player in PLAYERS, env
    assert before_after.ENVS.keys() == PLAYERS.keys()
    assert before_after.env_of("player:babyai:open") == "babyai-open"
    assert before_after.env_of("turns.jsonl") == ""
    for name, env in (("baba-goto_win", "baba-goto_win"), ("agent:module:solve", "")):
        about = {"args": {"env_name": name, "model": "m"}, "cwd": "."}
        (tmp_path / "args.json").write_text(json.dumps(about))
        assert before_after.env_of(str(tmp_path)) == env  # a user's own has to be typed


def test_an_interrupt_ends_it_silently(tmp_path, conversations):
    """Also where `turnwise` starts it, which is __main__.py."""
    words = ["--model", TINY, "--turns", conversations, "--out", "out", "--steps", "99999"]
    with TemporaryFile("w+") as errors:
        started = Forked(["-u", ROOT / "__main__.py", "clone", *words], tmp_path, errors=errors)
        wait_for(started, "step 0/99999")
        started.send_signal(signal.SIGINT)
        assert started.wait() == -signal.SIGINT
        assert (errors.seek(0), errors.read())[1] == ""


def test_it_ends_before_the_policy_is_too_sharp(tmp_path, conversations, capsys):
    assert cloned(tmp_path / "out", conversations, "--steps", "400", "--min-entropy", "9") == 0
    output = capsys.readouterr().out.splitlines()
    assert output[-1].startswith("ended early, as the held-out entropy is below 9.0 after 2 steps")
    assert "9 turns to imitate, 1 held out" in output


def test_other_settings_and_other_files_are_left_alone(tmp_path, conversations, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / clone_files.SETTINGS).write_text(json.dumps({"seed": 2}))
    for out, line in ((tmp_path / "mine", "is not empty"), (begun, "was begun with another")):
        with pytest.raises(SystemExit):
            cloned(out, conversations)
        assert line in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    with pytest.raises(SystemExit):
        clone.main(["--model", str(TINY), "--turns", str(conversations)])
    assert "--out is missing" in capsys.readouterr().err
