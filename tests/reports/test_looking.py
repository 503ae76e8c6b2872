"""Looking at somebody else's run: nothing that it names is imported, contacted or followed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import write_run

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "reports"))
from test_viewer import turn  # noqa: E402

EVIL = "from pathlib import Path\nPath('imported').touch()\nraise SystemExit('evil')\n"


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A run that names a module, which lies in the working directory and leaves a trace."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(EVIL)
    run = write_run(
        tmp_path / "run", env_name="evil:Env-v0", format_penalty=0.1, max_episode_steps=None,
        upstream="http://me:s3cret@evil.example/v1", model="nowhere",
    )  # fmt: skip
    logged = [turn(step=1), turn(step=2, terminated=True)]
    text = "".join(json.dumps(record) + "\n" for record in logged)
    (run / "trajectories.jsonl").write_text(text)
    yield run
    sys.modules.pop("evil", None)


def turnwise(*words) -> subprocess.CompletedProcess:
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    command = [sys.executable, str(ROOT), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)


def error_of(*words) -> str:
    done = turnwise(*words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("words", [["view"], ["view", "--env", "0"], ["failures"], ["report"]])
def test_plain_looking_needs_no_trust(words, foreign):
    done = turnwise(words[0], foreign, *words[1:])
    assert done.returncode == 0, done.stderr
    assert not Path("imported").exists()


@pytest.mark.parametrize("flags", [["--frames"], ["--gif"]])
def test_pictures_of_a_users_own_environment_need_trust(flags, foreign):
    line = f"{foreign / 'args.json'} names what this would import: --env-name evil:Env-v0; --trust"
    assert line in error_of("view", foreign, *flags)
    assert not Path("imported").exists()
    assert "evil" in error_of("view", foreign, *flags, "--trust")
    assert Path("imported").exists()


def test_an_evaluation_needs_trust(foreign):
    line = (
        "names what this would import and contact: --env-name evil:Env-v0 "
        "--upstream 'http://***@evil.example/v1'; type these flags (turnwise evaluate: --trust)"
    )
    assert line in error_of("evaluate", foreign)
    assert line in error_of("train", "--resume", foreign, "--eval-only")
    line = "names what this would contact: --upstream 'http://***@evil.example/v1'"
    assert line in error_of("evaluate", foreign, "--env-name", "evil:Env-v0")
    assert not Path("imported").exists()


def test_a_trusted_run_is_evaluated_as_it_is(foreign, monkeypatch):
    """The flags that --trust stands for are those that the user would type."""
    monkeypatch.syspath_prepend(str(ROOT))
    from importlib.util import module_from_spec, spec_from_file_location

    import __main__  # noqa: F401

    spec = spec_from_file_location("turnwise_main", ROOT / "__main__.py")
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    words = ["turnwise evaluate", "--eval-only", "--resume", "run", "--trust", "--seed", "3"]
    named = ["--env-name", "evil:Env-v0", "--upstream", "http://me:s3cret@evil.example/v1"]
    assert program.typed_for(foreign, words) == [*words[:4], *named, "--seed", "3"]
    assert program.typed_for(Path("nothing"), words) == words


def test_a_log_that_is_a_link_is_not_read(foreign):
    Path("secret").write_text("secret\n")
    for name in ("trajectories.jsonl", "metrics.jsonl"):
        (foreign / name).unlink()
        (foreign / name).symlink_to("../secret")
    assert "it is a link, which is not followed" in error_of("view", foreign)
    assert "it is a link, which is not followed" in error_of("failures", foreign)
    done = turnwise("report", foreign)
    assert "run/metrics.jsonl: it is a link, which is not followed" in done.stdout


def test_a_page_does_not_go_through_a_link(foreign):
    Path("mine").write_text("mine")
    (foreign / "trajectories.html").symlink_to("../mine")
    (foreign / "trajectories.html.tmp").symlink_to("../mine")
    assert turnwise("view", foreign).returncode == 0
    assert Path("mine").read_text() == "mine"
    assert not (foreign / "trajectories.html").is_symlink()


@pytest.mark.parametrize("whole", [False, True])
def test_links_in_a_model_are_not_pushed(whole, foreign):
    Path("secret").write_text("secret")
    (foreign / "model").mkdir()
    (foreign / "model" / "config.json").write_text("{}")
    if whole:
        shutil.move(foreign / "model", "elsewhere")
        (foreign / "model").symlink_to(Path("elsewhere").absolute())
        line = f"{foreign / 'model'} is a link to {Path('elsewhere').absolute()}"
    else:
        (foreign / "model" / "key").symlink_to("../../secret")
        line = f"{foreign / 'model' / 'key'} is a link to ../../secret"
    assert f"{line}; it is not pushed, unless you type --trust" in error_of(
        "push", foreign, "org/name"
    )
