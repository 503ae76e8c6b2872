"""A run survives: resumed it is the run that was interrupted, whatever interrupted it."""

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from real_runs import CLOCK, contents, launch, load_checkpoint, start, wait_for
from transformers import AutoModelForCausalLM

import main
from arguments import get_args
from common.errors import RunError
from common.ranks import ALONE
from envs.pool.resilient import ResilientPool
from ppo.model.make import build
from ppo.optimizer import Stepper
from recipes import TINY
from reports.run_files import read_runs
from run import context, saved
from run.saved import checkpoints, damaged
from run.snapshot import save_snapshot

ROOT = Path(__file__).resolve().parents[2]
SMALL = """--n-env 2 --e-len 2 --num-updates 4 --minibatch 4 --w-epoch 1 --w-iter 1 --w-fraction 1
--lr 0.01 --critic-lr 0.01 --response-limit 6 --prompt-limit 8192 --save-interval 1
--eval-interval 2 --eval-episodes 2 --max-episode-steps 3
--engine transformers"""
LOGS = ("metrics.jsonl", "eval.jsonl", "eval_episodes.jsonl", "warmup.jsonl", "trajectories.jsonl")


def train(run: Path, model: str, flags: str = "") -> int:
    return main.main(get_args([*SMALL.split(), "--model", model, "--run-dir", str(run)]
                              + flags.split()))  # fmt: skip


def resume(run: Path, flags: str = "") -> int:
    return main.main(get_args(["--resume", str(run), *flags.split()]))


def outcome(run: Path, without: tuple[str, ...] = CLOCK) -> dict:
    """All that a run computed, without clock times."""
    logs = {}
    for name in LOGS:
        records = map(json.loads, (run / name).read_text().splitlines())
        logs[name] = [{k: v for k, v in r.items() if not k.startswith(without)} for r in records]
    weights = (run / "model" / "model.safetensors").read_bytes()
    return logs | {"weights": weights}


def forget_since(run: Path, update: int) -> None:
    """As a kill leaves it: what was saved later was never saved, what was logged was logged."""
    for path in checkpoints(run):
        if path.name > f"update-{update:06d}":
            shutil.rmtree(path)
    shutil.rmtree(run / "model")


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="module", autouse=True)
def all_checkpoints_are_kept():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("run.checkpoint.KEPT", 9)
        yield


@pytest.fixture(scope="module")
def toy_run(model_dir, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "toy"
    assert train(run, model_dir, "--env-name toy") == 0
    return run


@pytest.fixture
def copied(toy_run, tmp_path):
    return shutil.copytree(toy_run, tmp_path / "run")


# ---- exact resume -------------------------------------------------------------------------------

FLAGS = [
    *("toy --kl-target 0.1", "toy --memory full --lr-schedule linear", "toy --env-workers 2"),
    "toy --use-proper-time-limits --critic-layers 0",
    "babyai-goto --num-updates 2",
    "baba-goto_win --num-updates 2",
    f"crafter --num-updates 2 --eval-episodes 1 --model {TINY}-crafter",
    f"tools-calculator --num-updates 2 --response-limit 40 --model {TINY}-calculator",
    f"dialogue-guess --num-updates 2 --model {TINY}-guess",
]


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_a_run_with_vllm_resumes(tmp_path):
    train(
        tmp_path,
        str(TINY),
        "--env-name babyai-goto --engine vllm --prompt-limit 256 --num-updates 2",
    )
    # no prompt was asked before the first push of a process: weights are compared on others there
    without = (*CLOCK, "engine/push_gap")
    whole = outcome(tmp_path, without)
    forget_since(tmp_path, 1)
    resume(tmp_path)
    assert outcome(tmp_path, without) == whole


@pytest.mark.parametrize("flags", FLAGS)
def test_a_resumed_run_is_the_run_that_was_interrupted(flags, model_dir, tmp_path):
    """A kill in the second update and --resume equal the run that was not killed, bit for bit.
    After 2 turns of warm-up and 2 of an update, 1 turn of the second episode of 3 is played (of
    tools-calculator 2 in one of them, where an answer has ended the first)."""
    run = tmp_path / "run"
    # which worker answers first decides what the engine batches together, and so its rounding
    without = ("time/", "engine/") if "workers" in flags else CLOCK
    train(run, model_dir if "toy" in flags else str(TINY), f"--env-name {flags}")
    whole = outcome(run, without)
    forget_since(run, 1)
    played = [len(env["responses"]) for env in load_checkpoint(run)["envs"]]
    assert played == ([1, 2] if "calculator" in flags else [1, 1])
    assert resume(run) == 0
    assert outcome(run, without) == whole


def test_without_a_checkpoint_it_begins_again(copied, toy_run, capsys):
    """As a run that was killed before its first checkpoint leaves it."""
    forget_since(copied, -1)
    (copied / "metrics.jsonl").write_text("")
    assert checkpoints(copied) == []
    assert resume(copied) == 0
    assert f"{copied} has no checkpoint yet: it begins again" in capsys.readouterr().out
    assert outcome(copied) == outcome(toy_run)


@pytest.mark.parametrize("left", ["model", "metrics.jsonl"])
@pytest.mark.parametrize("flags", ["", "--eval-only"])
def test_a_run_that_lost_its_checkpoints_is_refused(left, flags, copied):
    shutil.rmtree(copied / "checkpoints")
    for name in {"model", "metrics.jsonl"} - {left}:
        remove(copied / name)
    before = contents(copied)
    with pytest.raises(ValueError, match="it has been trained, but nothing is in .*/checkpoints; "):
        resume(copied, flags)
    assert contents(copied) == before


def test_a_resumed_run_says_where_it_goes_on(copied, capsys):
    forget_since(copied, 3)
    assert resume(copied) == 0
    assert f"{copied} goes on after update 3 of 4" in capsys.readouterr().out


def test_a_finished_run_is_left_as_it_is(copied, capsys, monkeypatch):
    before = contents(copied)
    monkeypatch.setattr("main.make_model", None)  # nothing is loaded for it
    assert resume(copied) == 0
    assert f"{copied} is finished: all 4 updates are made" in capsys.readouterr().out
    assert contents(copied) == before


@pytest.mark.parametrize("lost", ["model", "the last evaluation"])
def test_a_finished_run_makes_missing_files_again(lost, copied, toy_run):
    if lost == "model":  # killed between the last checkpoint and model/
        remove(copied / "model")
    else:
        lines = (copied / "eval.jsonl").read_text().splitlines(keepends=True)
        (copied / "eval.jsonl").write_text("".join(lines[:-1]))
    stamp = (checkpoints(copied)[-1] / "state.pt").stat().st_ino
    assert resume(copied) == 0
    assert outcome(copied) == outcome(toy_run)
    assert (checkpoints(copied)[-1] / "state.pt").stat().st_ino == stamp  # not saved again


def test_a_requested_evaluation_does_not_end_a_run(copied, toy_run, monkeypatch):
    lines = (copied / "eval.jsonl").read_text().splitlines(keepends=True)
    (copied / "eval.jsonl").write_text("".join(lines[:-1]))  # killed in its last evaluation
    played = []
    resume_envs = ResilientPool.resume
    monkeypatch.setattr(ResilientPool, "resume", lambda *a: played.append(a[1]) or resume_envs(*a))
    assert resume(copied, "--eval-only --eval-episodes 1") == 0
    assert played == [None, None]  # no episode of the training is played again for it
    asked = json.loads((copied / "eval.jsonl").read_text().splitlines()[-1])
    assert asked["asked"] and asked["update"] == 4 and asked["eval/episodes"] == 1
    assert resume(copied) == 0
    own = json.loads((copied / "eval.jsonl").read_text().splitlines()[-1])
    wanted = json.loads((toy_run / "eval.jsonl").read_text().splitlines()[-1])
    assert "asked" not in own and own["eval/return"] == wanted["eval/return"]


def test_fewer_updates_than_were_made_are_refused(copied):
    with pytest.raises(ValueError, match="--num-updates 3: .* has made 4 already"):
        resume(copied, "--num-updates 3")


def test_a_finished_run_can_be_made_longer(copied, toy_run):
    assert resume(copied, "--num-updates 5") == 0
    longer, short = outcome(copied), outcome(toy_run)
    assert longer["metrics.jsonl"][:4] == short["metrics.jsonl"]
    assert [record["update"] for record in longer["metrics.jsonl"]] == [1, 2, 3, 4, 5]
    assert json.loads((copied / "args.json").read_text())["args"]["num_updates"] == 5


@pytest.mark.parametrize(
    ("flags", "longer"),
    [
        ("--num-updates 3", "--num-updates 5"),
        ("--num-updates 9 --num-turns 12", "--num-turns 20"),  # an update has 4 turns
        ("--num-updates 3 --num-turns 1000", "--num-updates 5"),
    ],
)
def test_a_run_that_is_made_longer_keeps_its_evaluations(flags, longer, model_dir, tmp_path):
    run = tmp_path / "run"

    def evaluations():
        return [json.loads(line) for line in (run / "eval.jsonl").open()]

    train(run, model_dir, f"--env-name toy {flags}")  # the interval is 2
    resume(run, "--eval-only --eval-episodes 1")
    first = evaluations()
    with (run / "eval.jsonl").open("ab") as log:
        log.write(b'5\n[]\n{"a": 1}\n\xff\n{"upd')  # what a person or a torn write left there
    resume(run, longer)
    # 3 was the end, and is no multiple of 2: neither is played again
    assert evaluations()[:4] == first and [e["update"] for e in first] == [0, 2, 3, 3]
    assert [e["update"] for e in evaluations()[4:]] == [4, 5]
    assert [bool(e.get("asked")) for e in evaluations()] == [False] * 3 + [True] + [False] * 2


def test_a_run_goes_on_from_another_directory(toy_run, tmp_path, monkeypatch):
    run = shutil.copytree(toy_run, tmp_path / "run")
    about = json.loads((run / "args.json").read_text())
    model = Path(about["args"]["model"])
    about["args"]["model"], about["cwd"] = model.name, str(model.parent)
    (run / "args.json").write_text(json.dumps(about))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Path(get_args(["--resume", str(run)]).model) == model
    assert Path(get_args(["--resume", str(run), "--model", str(model)]).model) == model
    shutil.copytree(TINY, model.name)  # another model of this name lies here
    assert Path(get_args(["--resume", str(run)]).model) == model
    assert Path(get_args(["--resume", str(run), "--model", str(model)]).model) == model
    monkeypatch.chdir(model.parent)
    assert get_args(["--resume", str(run)]).model == model.name
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(SystemExit):
        get_args(["--resume", str(run), "--model", str(TINY)])


def test_evaluation_only_leaves_a_run_as_it_is(copied):
    before = outcome(copied)
    resume(copied, "--eval-only --eval-episodes 3")
    after = outcome(copied)
    for name in ("eval.jsonl", "eval_episodes.jsonl"):
        assert after.pop(name)[:-1] == before.pop(name)
    assert after == before


def test_settings_that_a_checkpoint_depends_on_cannot_change(toy_run, capsys):
    def refused(flags: str) -> str:
        with pytest.raises(SystemExit):
            get_args(["--resume", str(toy_run), *flags.split()])
        return capsys.readouterr().err

    output = refused("--n-env 4 --lr 0.5 --num-updates 4")
    assert "--n-env 4 (was 2)" in output and "--lr 0.5 (was 0.01)" in output
    assert "--num-updates" not in output  # it is as before
    output = refused("--n-env 4")
    assert "with --n-env 4 (was 2): start a new run for that" in output
    assert get_args(["--resume", str(toy_run), "--lr", "0.5"]).lr == 0.5


# ---- damage -------------------------------------------------------------------------------------


def tear(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [tear, flip, Path.unlink])
@pytest.mark.parametrize("file", ["state.pt", "SHA256SUMS"])
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(harm, file, copied, capsys):
    harm(checkpoints(copied)[-1] / file)
    assert load_checkpoint(copied)["update"] == 3
    assert "update-000004 is damaged" in capsys.readouterr().out


def test_no_whole_checkpoint(copied):
    for path in checkpoints(copied):
        tear(path / "state.pt")
    with pytest.raises(ValueError, match="none of its checkpoints is whole"):
        load_checkpoint(copied)


def test_sha256sum_checks_a_checkpoint(toy_run):
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=checkpoints(toy_run)[0])
    assert checked.returncode == 0


def idle_agent(lm):
    """What a checkpoint is made of, but for the snapshot."""
    actor_critic = build(lm, 0)
    return SimpleNamespace(
        actor_critic=actor_critic, stepper=Stepper(actor_critic, None, 1.0, ALONE)
    )


def test_the_newest_checkpoints_are_kept(tmp_path, lm, tokenizer):
    save = partial(save_snapshot, tmp_path, keep=2, agent=idle_agent(lm), tokenizer=tokenizer)
    save = partial(save, whole=set())
    for update in range(5):
        save({"update": update, "logs": {}, "envs": []}, ranks=ALONE)
    assert [path.name for path in checkpoints(tmp_path)] == ["update-000003", "update-000004"]


def test_a_damaged_checkpoint_does_not_push_out_a_whole_one(tmp_path, lm, tokenizer):
    options = dict(agent=idle_agent(lm), tokenizer=tokenizer, ranks=ALONE)
    save = partial(save_snapshot, tmp_path, keep=2, **options)
    for update in range(1, 3):
        save({"update": update, "logs": {}, "envs": [], "agent": {}}, whole=set())
    tear(checkpoints(tmp_path)[1] / "state.pt")
    save({"update": 3, "logs": {}, "envs": [], "agent": {}}, whole=set())
    names = [path.name for path in checkpoints(tmp_path) if not damaged(path)]
    assert names == ["update-000001", "update-000003"]


def test_a_damaged_checkpoint_is_set_aside_when_the_one_before_is_resumed(copied, toy_run):
    tear(checkpoints(copied)[-1] / "state.pt")
    assert resume(copied) == 0
    assert (copied / "checkpoints" / "update-000004.damaged").is_dir()
    assert [path.name[-1] for path in checkpoints(copied)] == ["0", "1", "2", "3", "4"]
    assert outcome(copied) == outcome(toy_run)


def test_a_save_that_was_killed_between_its_renames_is_recovered(copied, toy_run, capsys):
    """Only `.old` and `.tmp` are left then."""
    for folder in (checkpoints(copied)[-1], copied / "model"):
        shutil.copytree(folder, f"{folder}.tmp")
        folder.rename(f"{folder}.old")
    assert resume(copied) == 0
    assert "update-000004 is there again" in capsys.readouterr().out
    assert outcome(copied) == outcome(toy_run)
    assert contents(copied).keys() == {copied / p.relative_to(toy_run) for p in contents(toy_run)}


@pytest.mark.parametrize("resumed", ["", "--eval-only"])
def test_nothing_that_a_kill_leaves_outlives_the_next_start(resumed, copied, toy_run):
    names = ["model.tmp", "model.trash", "model.trash-2", "model.old.trash", "model.old.trash-2"]
    last = checkpoints(copied)[-1].name
    for name in [*names, *(f"checkpoints/{name.replace('model', last)}" for name in names)]:
        (copied / name).mkdir()
        (copied / name / "state.pt").write_text("x")
    for name in ("args.json.tmp", "eval.md.tmp", "eval_trajectories.jsonl.tmp"):
        (copied / name).write_text("{")
    (copied / "model" / "README.md.tmp").write_text("x")
    (copied / "notes.txt.tmp").write_text("a user's own")
    resume(copied, resumed)
    left = {p.relative_to(copied) for p in contents(copied)}
    made = {p.relative_to(toy_run) for p in contents(toy_run)}
    of_evaluation = {Path(name) for name in ("zero_shot.json", "zero_shot.md")}
    of_evaluation.add(Path("eval_trajectories.jsonl"))
    assert left - made - of_evaluation == {Path("notes.txt.tmp")} and made <= left
    assert not [path for path in copied.rglob("*") if ".trash" in path.name]


def test_checkpoints_are_ordered_by_their_numbers(tmp_path):
    for name in ("999999", "1000000", "000002", "1000001.tmp", "1000001.damaged", "12", "word"):
        (tmp_path / "checkpoints" / f"update-{name}").mkdir(parents=True)
    assert [saved.number_of(path) for path in checkpoints(tmp_path)] == [2, 999999, 1000000]
    saved.set_damaged_aside(tmp_path, checkpoints(tmp_path)[1])
    assert [saved.number_of(path) for path in checkpoints(tmp_path)] == [2, 999999]


def test_files_have_the_mode_that_the_umask_wants(tmp_path, lm, tokenizer):
    before = os.umask(0o007)
    try:
        save = partial(save_snapshot, tmp_path, keep=2, agent=idle_agent(lm), tokenizer=tokenizer)
        save({"update": 1, "logs": {}, "envs": []}, ranks=ALONE, whole=set())
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in contents(tmp_path)}
    assert {"state.pt", "model.safetensors", "tokenizer.json"} <= modes.keys()
    assert set(modes.values()) == {0o660}


@pytest.mark.parametrize("words", [["--resume", "RUN"], ["--resume", "auto", "--run-dir", "RUN"]])
def test_a_run_survives_the_loss_of_args_json(words, copied, toy_run, capsys):
    forget_since(copied, 3)
    (copied / "args.json").unlink()
    assert main.main(get_args([word.replace("RUN", str(copied)) for word in words])) == 0
    assert "args.json is there again, from update-000003" in capsys.readouterr().out
    assert (copied / "args.json").read_text() == (toy_run / "args.json").read_text()
    assert outcome(copied) == outcome(toy_run)


def refused(capsys, words: list[str]) -> str:
    """The line with which a command line is refused."""
    try:
        code = main.program(words)
    except SystemExit as end:  # of the parser
        code = end.code
    assert code == 2
    return capsys.readouterr().err


def test_advice_about_a_damaged_run_can_be_followed(copied, capsys):
    (copied / "args.json").write_text("{")
    said = refused(capsys, ["--resume", str(copied)])
    assert f"if you delete it, {checkpoints(copied)[-1] / 'args.json'} takes its place" in said
    (copied / "args.json").unlink()
    assert resume(copied) == 0
    for path in (copied / "args.json", *(path / "args.json" for path in checkpoints(copied))):
        path.unlink()  # as in a run of an earlier version
    again = [*SMALL.split(), "--env-name", "toy", "--run-dir", str(copied)]
    for words in (["--resume", str(copied)], again, [*again, "--resume", "auto"]):
        line = refused(capsys, words)
        assert "no run there" in line or "there is no run in it; name another --run-dir" in line


def test_model_may_be_a_link(tmp_path, lm, tokenizer, capsys):
    options = dict(agent=idle_agent(lm), tokenizer=tokenizer, ranks=ALONE)
    save = partial(save_snapshot, tmp_path, keep=2, **options)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    for update, target in enumerate(("other", "other", "nowhere")):
        if (tmp_path / "model").exists():
            shutil.rmtree(tmp_path / "model")
        (tmp_path / "model").symlink_to(target)
        save({"update": update, "logs": {}, "envs": []}, whole=set())
        assert (tmp_path / "model" / "config.json").exists()
        assert not (tmp_path / "model").is_symlink() and (tmp_path / "other" / "file").exists()
        assert f"model was a link to {target}; that place stays" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", "model", "other"}


def test_a_checkpoint_that_cannot_be_deleted_is_reported(
    tmp_path, lm, tokenizer, capsys, monkeypatch
):
    options = dict(agent=idle_agent(lm), tokenizer=tokenizer, ranks=ALONE, whole=set())
    save = partial(save_snapshot, tmp_path, keep=1, **options)

    def refuse(path, ignore_errors=False):
        if not ignore_errors:
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    for update in range(3):
        save({"update": update, "logs": {}, "envs": []})
    assert [path.name for path in checkpoints(tmp_path)] == ["update-000002"]
    out = capsys.readouterr().out
    assert "cannot delete " in out and "update-000001.trash: Permission denied; the run goes" in out
    assert "model.old.trash-2: Permission denied" in out


def test_the_loaded_checkpoint_is_forgotten_once_it_is_restored(copied, monkeypatch):
    forget_since(copied, 3)
    loaded, left = [], []

    def remember(folder):
        state = saved.read(folder)
        tensors = state["agent"]["stepper"]["actor_critic"].values()
        loaded.extend(weakref.ref(tensor) for tensor in tensors)
        return state

    def begin(*args):  # the loop is about to begin
        left.extend(ref for ref in loaded if ref() is not None)
        return logger(*args)

    logger = context.Logger
    monkeypatch.setattr("run.checkpoint.read", remember)
    monkeypatch.setattr(context, "Logger", begin)
    assert resume(copied) == 0
    assert loaded and not left


def test_a_full_disk_leaves_the_checkpoint_before_whole(tmp_path, lm, tokenizer):
    """A limit on the size of files stands for the disk that is full."""
    options = dict(agent=idle_agent(lm), tokenizer=tokenizer, ranks=ALONE, whole=set())
    save = partial(save_snapshot, tmp_path, keep=1, **options)
    save({"update": 1, "logs": {}, "envs": [], "x": torch.zeros(10)})
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(RunError, match="update-000002: File too large; what was saved before"):
            save({"update": 2, "logs": {}, "envs": [], "x": torch.zeros(10**5)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    (left,) = (tmp_path / "checkpoints").iterdir()
    assert left.name == "update-000001" and damaged(left) is None


def test_a_checkpoint_of_another_model_is_not_resumed(copied):
    forget_since(copied, 3)
    described = json.loads((copied / "args.json").read_text())
    described["args"]["model"] = str(TINY)
    (copied / "args.json").write_text(json.dumps(described))
    before = (copied / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match="its checkpoint is of another model or version .agent: "):
        resume(copied)
    assert (copied / "metrics.jsonl").read_bytes() == before


def test_a_log_that_lost_lines_is_not_resumed(copied, capsys):
    forget_since(copied, 3)
    tear(copied / "metrics.jsonl")
    before = (copied / "trajectories.jsonl").read_bytes()
    with pytest.raises(ValueError, match="metrics.jsonl is shorter than it was at the checkpoint"):
        resume(copied)
    assert (copied / "trajectories.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("harm", [tear, Path.unlink])
def test_a_log_that_was_shortened_or_deleted_is_named(name, harm, copied):
    """Each log, with the same words; nothing is cut, and what the line advises works."""
    forget_since(copied, 3)
    harm(copied / name)
    before = contents(copied)
    lost = "is gone" if harm is Path.unlink else "is shorter than it was at the checkpoint"
    with pytest.raises(ValueError) as refused:
        resume(copied)
    output = (
        f"--resume {copied}: {copied / name} {lost}; put it back, or fill it with empty lines: "
    )
    assert str(refused.value).startswith(output)
    assert contents(copied) == before
    subprocess.run(["bash", "-c", str(refused.value).removeprefix(output)], check=True)
    assert resume(copied) == 0
    (run,) = read_runs([copied], [])
    assert run.metrics[-1]["update"] == 4 and run.evals[-1]["update"] == 4


@pytest.mark.parametrize("name", ["warmup.jsonl", "args.json"])
def test_a_file_of_the_run_that_is_a_link_is_not_followed(name, copied, tmp_path, capsys):
    """A run directory that somebody else made must not empty a file of the user's, or show it."""
    forget_since(copied, 3)
    shutil.move(copied / name, tmp_path / "mine")
    (copied / name).symlink_to(tmp_path / "mine")
    before = (tmp_path / "mine").read_bytes()
    with pytest.raises((ValueError, SystemExit)) as refused:  # args.json: with the command line
        resume(copied)
    line = f"{refused.value} {capsys.readouterr().err}"
    assert str(copied / name) in line and "is a link, which is not followed" in line
    assert (tmp_path / "mine").read_bytes() == before


# ---- numbers that break down ------------------------------------------------------------------


def test_steps_that_are_not_finite_are_skipped_and_in_the_end_stop_the_run(
    model_dir, tmp_path, monkeypatch, capsys
):
    """One minibatch of 4 turns an update, all of them nan: one may be, the second is too many."""

    def nans(ratio, *rest):
        return ratio * float("nan"), ratio != ratio

    monkeypatch.setattr("ppo.losses.surrogate", nans)
    monkeypatch.setattr("run.logger.MAX_SKIPPED_STEPS", 1)
    run = tmp_path / "run"
    flags = f"--env-name toy --ppo-epoch 1 --model {model_dir} --run-dir {run}"
    assert main.program([*SMALL.split(), *flags.split()]) == 1
    out, err = capsys.readouterr()
    assert "2 optimizer steps had a loss or gradient that is not finite" in err
    assert err.count("\n") == 1 and out.count("optimizer step skipped") == 2
    turns = [json.loads(line) for line in (run / "non_finite.jsonl").read_text().splitlines()]
    assert [turn["update"] for turn in turns] == [2] * 4
    assert len(json.loads((run / "metrics.jsonl").read_text())) > 0  # of the first update alone
    started = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    state = load_checkpoint(run)["agent"]["stepper"]["actor_critic"]
    assert all(torch.equal(p, state[f"lm.{name}"]) for name, p in started.named_parameters())


# ---- signals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "begin"), [(signal.SIGTERM, launch), (signal.SIGINT, start)])
def test_a_signal_saves_and_says_how_to_go_on(number, begin, model_dir, toy_run, tmp_path):
    run = tmp_path / "run"
    flags = [*SMALL.split(), "--env-name", "toy", "--model", model_dir, "--run-dir", str(run)]
    process = begin(ROOT, *flags)
    wait_for(process, "update    1/4")
    process.send_signal(number)
    output = process.stdout.read()
    assert process.wait(timeout=60) == 128 + number
    assert f"{number.name}: saved; go on with: python main.py --resume {run}" in output
    assert "Traceback" not in output
    assert resume(run) == 0
    assert outcome(run) == outcome(toy_run)


def test_a_second_interrupt_ends_it_at_once(model_dir, tmp_path):
    flags = f"--env-name toy --model {model_dir} --run-dir {tmp_path / 'run'} --num-updates 99999"
    process = launch(ROOT, *SMALL.split(), *flags.split())
    wait_for(process, "update    1/")
    process.send_signal(signal.SIGSTOP)  # so that the first is not obeyed before the second
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    wait_for(process, "SIGINT: the run is saved and ends")
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait(timeout=60) in (-signal.SIGINT, 128 + signal.SIGINT)


def train_quietly(run: Path, model: str) -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    torch.set_num_threads(1)  # as in the run it is compared with
    if (run / "args.json").exists():
        resume(run)
    else:
        shutil.rmtree(run, ignore_errors=True)
        train(run, model, "--env-name toy --save-interval 1")


def owner(run: Path) -> int | None:
    """The process that the lock of a run names."""
    words = (run / "lock").read_text().split() if (run / "lock").exists() else []
    return int(words[1]) if words else None


def try_to_resume(run: Path, first: int, output: Path) -> None:
    """Again and again from the moment when the process `first` has the run."""
    sys.stdout, sys.stderr = open(os.devnull, "w"), open(output, "a", buffering=1)  # noqa: SIM115
    while owner(run) != first:
        time.sleep(0.01)
    while True:
        with suppress(SystemExit):  # of the parser, while args.json is not yet written
            main.program(["--resume", str(run)])
        time.sleep(0.05)


def test_kill_at_random_moments(model_dir, tmp_path):
    """Two kills; after each the newest checkpoint is at most an update old, and the run that
    was killed again and again is the run that never was. All the while a second process tries to
    resume the run. It gets one line each time, as long as the first one lives and has it: a
    process that has ended the run gives it back before it ends itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["main"])
    run, rng, finished, pids = tmp_path / "run", random.Random(0), 0, set()
    output = tmp_path / "output"

    def both():
        first = context.Process(target=train_quietly, args=(run, model_dir))
        first.start()
        second = context.Process(target=try_to_resume, args=(run, first.pid, output))
        second.start()
        pids.update((first.pid, second.pid))
        return first, second

    def end(first, second):
        has_it, whole = owner(run), (run / "checkpoints" / "update-000004").exists()
        assert has_it != second.pid or whole or not first.is_alive()
        for process in (first, second):  # the second may go on with the run in between
            process.kill()
            process.join()

    context.Process(target=os.getpid).start()  # its server imports meanwhile what all need
    train(tmp_path / "whole", model_dir, "--env-name toy --save-interval 1")
    for _ in range(2):
        if finished == 4:  # begin again, that all phases meet a kill
            shutil.rmtree(run)
        processes = both()
        time.sleep(rng.uniform(0.1, 2.5))
        end(*processes)
        metrics = run / "metrics.jsonl"
        logged = len(metrics.read_text().splitlines()) if metrics.exists() else 0
        saved = [path for path in checkpoints(run) if damaged(path) is None]
        finished = int(saved[-1].name[-6:]) if saved else 0
        assert len(saved) == len(checkpoints(run))
        assert logged <= finished + 1
    first, second = both()
    first.join()
    assert first.exitcode == 0
    end(first, second)
    assert outcome(run) == outcome(tmp_path / "whole")
    early = f"main.py: error: --resume {run}: no run there (args.json is missing)"
    refused = [line for line in output.read_text().splitlines() if line != early]
    in_use = f"main.py: error: {run} is in use by process"
    expected = {f"{in_use} {pid} on {os.uname().nodename}" for pid in pids}
    assert len(refused) >= 2
    assert {line.partition(" since 20")[0] for line in refused} <= expected
