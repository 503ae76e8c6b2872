"""The container files run the README's commands, on what the repository has. They are built only
where TURNWISE_BUILD names a builder, for this needs a network."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "containers"
BUILDER = os.environ.get("TURNWISE_BUILD")
SMALL = "--n-env 4 --e-len 2 --num-updates 1 --w-epoch 0 --eval-interval 0"
KINDS = pytest.mark.parametrize("kind", ["cpu", "cuda"])


def instructions(kind: str) -> list[tuple[str, str]]:
    """Return (FROM, python:...), (RUN, ...) and so on, each on one line."""
    text = (FOLDER / f"{kind}.Dockerfile").read_text().replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line[0] != "#"]


def printed(*words, folder: Path) -> str:
    env = {"PATH": os.environ["PATH"]}  # without the variables of the make that runs these tests
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@KINDS
def test_the_image_has_a_python_that_the_package_takes(kind):
    (name, version), = (re.fullmatch(r"(python):([\d.]+)-slim", words).groups()
                        for key, words in instructions(kind) if key == "FROM")  # fmt: skip
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version in SpecifierSet(project["requires-python"])
    assert f"Python {version}" in (ROOT / f"constraints-{kind}.txt").read_text()  # tested there


@KINDS
def test_what_is_copied_first_is_enough_to_install(kind, tmp_path):
    (copied, last) = (words.split() for key, words in instructions(kind) if key == "COPY")
    for name in copied[:-1]:
        shutil.copy(ROOT / name, tmp_path)
    assert last == [".", "."]
    (make,) = (words for key, words in instructions(kind) if key == "RUN" and "make " in words)
    plan = printed("make", "-n", *make.split()[1:], folder=tmp_path)
    assert f"--compile -c constraints-{kind}.txt torch\n" in plan
    assert f"--no-deps -r constraints-{kind}.txt\n" in plan


@KINDS
def test_the_container_runs_the_commands_of_the_readme_and_installs_nothing_more(kind, tmp_path):
    words = json.loads(dict(instructions(kind))["CMD"])
    for name in ("Makefile", "constraints-cpu.txt", "constraints-cuda.txt"):
        shutil.copy2(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "ready").touch()
    readme = (ROOT / "README.md").read_text()
    command = re.search(r"python main\.py (.*)", readme).group(1)
    assert words == ["make", "train"] and "\nmake train " in readme and "\nmake test " in readme
    plan = printed(words[0], "-n", *words[1:], folder=tmp_path)
    assert plan.strip().endswith(f"python main.py {command}") and "pip" not in plan
    assert "pip" not in printed("make", "-n", "test", folder=tmp_path)


def test_the_files_differ_in_their_packages_alone():
    cpu, cuda = instructions("cpu"), instructions("cuda")
    assert [(key, words.replace("-cpu", "-cuda")) for key, words in cpu] == cuda


def test_images_leave_out_what_git_ignores():
    git, docker = (
        (ROOT / name).read_text().splitlines() for name in (".gitignore", ".dockerignore")
    )
    assert {f"**/{line.rstrip('/')}" for line in git} == set(docker[1:])


@pytest.mark.skipif(not BUILDER, reason="TURNWISE_BUILD=docker or podman builds the images")
@KINDS
def test_the_image_is_built_and_trains(kind):
    file = FOLDER / f"{kind}.Dockerfile"
    subprocess.run([BUILDER, "build", "-f", file, "-t", f"turnwise-{kind}", ROOT], check=True)
    train = ["make", "train", f"ARGS={SMALL}"]
    subprocess.run([BUILDER, "run", "--rm", f"turnwise-{kind}", *train], check=True)
