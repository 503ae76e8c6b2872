"""What `turnwise check` says about a whole run, a damaged one and one of somebody else."""

import json
import shutil

import pytest
from made_runs import write_run

import main as trainer
from arguments import get_args
from recipes import TINY
from reports.check import main
from run.saved import checkpoints

FLAGS = f"""--env-name toy --model {TINY} --engine transformers --n-env 2 --e-len 2 --minibatch 4
--num-updates 2 --w-epoch 0 --save-interval 1 --eval-interval 0 --response-limit 4"""
WHOLE = """update-000000 is whole
update-000001 is whole
update-000002 is whole
model/ has had 2 updates
metrics.jsonl has 2 lines
trajectories.jsonl has 8 lines
nothing is damaged
"""


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "toy"
    assert trainer.main(get_args([*FLAGS.split(), "--run-dir", str(run)])) == 0
    (run / "lock").write_text("")  # it names this process, which lives on
    return run


@pytest.fixture
def copied(toy_run, tmp_path):
    return shutil.copytree(toy_run, tmp_path / "run")


def test_a_whole_run(toy_run, capsys):
    before = sorted(toy_run.rglob("*"))
    assert main([str(toy_run)]) == 0
    assert capsys.readouterr().out == WHOLE
    assert sorted(toy_run.rglob("*")) == before


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def spoil(path) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])


def link(path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


DAMAGES = [
    ("args.json", cut, "args.json does not describe a run"),
    ("args.json", lambda path: path.unlink(), "args.json is gone"),
    ("args.json", link, "args.json does not describe a run"),
    ("checkpoints/update-000001/state.pt", spoil, "update-000001: the checksum of state.pt is"),
    ("checkpoints/update-000002/state.pt", link, "update-000002: state.pt is a link"),
    ("model/model.safetensors", cut, "model/model.safetensors: "),
    ("model", shutil.rmtree, "model/ is gone; a resume writes it again"),
    ("metrics.jsonl", cut, "bytes that the checkpoint counted"),
    ("metrics.jsonl", lambda path: path.unlink(), "metrics.jsonl has 0 of the "),
    ("trajectories.jsonl", spoil, "trajectories.jsonl: line 1 cannot be read (1 in all)"),
]


@pytest.mark.parametrize(("name", "damage", "line"), DAMAGES)
def test_each_damage_is_named(name, damage, line, copied, capsys):
    damage(copied / name)
    assert main([str(copied)]) == 1
    said = [text for text in capsys.readouterr().out.splitlines() if text.startswith("damaged: ")]
    assert said and line in said[0]


def test_what_a_kill_has_left(copied, capsys):
    shutil.rmtree(checkpoints(copied)[-1])
    for name in ("model.old.trash-2", "checkpoints/update-000002.tmp"):
        (copied / name).mkdir()
    (copied / "lock").write_text("process 0 on elsewhere since 2026-01-01 00:00:00\n")
    assert main([str(copied)]) == 0
    assert "note: it may be in use by process 0 on elsewhere" in capsys.readouterr().out
    (copied / "lock").write_text("")
    assert main([str(copied)]) == 0
    said = capsys.readouterr().out
    for name in ("model.old.trash-2", "checkpoints/update-000002.tmp"):
        assert f"note: {name} is left by a kill; a resume cleans up\n" in said
    assert "of metrics.jsonl, which are newer" in said


def test_what_a_resume_would_import_and_contact(tmp_path, capsys):
    settings = dict(
        env_name="agent:evil:solve", engine="mine:Engine", upstream="http://me:secret@far.org/v1",
        model="org/name", track="wandb", zero_stage=2,
    )  # fmt: skip
    run = write_run(tmp_path / "run", evals=[], **settings)
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    assert main([str(run)]) == 0
    said = capsys.readouterr().out
    assert "a resume imports --env-name agent:evil:solve --engine mine:Engine\n" in said
    assert "contacts http://***@far.org/v1, the Hugging Face hub, for org/name, Weights & B" in said
    assert "DeepSpeed unpickle its checkpoint" in said and "secret" not in said


def test_a_directory_without_a_run(tmp_path, capsys):
    (tmp_path / "thesis.json").write_text(json.dumps({}))
    assert main([str(tmp_path)]) == 2
    assert "is not the directory of a run" in capsys.readouterr().err
