"""Imports point one way. Read with ast, so that imports inside of functions count as well."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("envs", "memory", "storage", "ppo", "models")
FILES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))
FILES += [ROOT / "main.py", ROOT / "arguments.py"]
OURS = {*FOLDERS, "main", "arguments"}
# A program of its own, beside the trainer: it plays environments to make the embedded model.
TINY_MODEL = "models/make.py"
PLAYERS = "models/players/"
REPLAY = "ppo/reports/replay.py"  # another one: it plays logged episodes again for their pictures


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> set[str]:
    """Top-level packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(path.relative_to(ROOT).parts[0] if node.level else node.module.split(".")[0])
    return found


def part_of(name: str) -> str:
    """ "envs" for envs/toy.py, "main" for main.py."""
    return name.removesuffix(".py").split("/")[0]


IMPORTS = {name_of(path): imported(path) for path in FILES}
ARROWS = {
    "storage": {"storage"},
    "envs": {"envs", "storage"},  # storage.named alone: see below
    "memory": {"memory", "storage"},
    "ppo": {"ppo", "storage"},
    "arguments": {"envs"},  # the family of an environment decides its defaults
    "models": {"envs", "memory", "models", "ppo", "storage"},
    "main": {"arguments", "envs", "memory", "ppo", "storage"},
}


@pytest.mark.parametrize("name", IMPORTS)
def test_imports_point_one_way(name):
    allowed = ARROWS[part_of(name)]
    if name == REPLAY:
        allowed = allowed | {"envs"}
    assert IMPORTS[name] & OURS <= allowed


def test_the_files_were_found():
    assert {"main.py", "envs/toy.py", "memory/window.py", "storage/rollout.py"} <= IMPORTS.keys()
    assert "ppo/advantages.py" in IMPORTS and IMPORTS["main.py"] >= {"torch", "arguments"}


@pytest.mark.parametrize("name", [n for n in IMPORTS if part_of(n) in ("envs", "memory")])
def test_environments_and_memories_import_no_torch(name):
    assert not IMPORTS[name] & {"torch", "transformers", "tokenizers"}


def test_importing_them_leaves_torch_out():
    # what a worker process imports; transitively, which ast does not see
    modules = "envs.pool.vec_env, envs.babyai, envs.toy, envs.foreign, memory, memory.chat"
    modules += ", memory.window, memory.variants"
    code = f"import sys, {modules}; print(*sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "memory.window" in loaded
    assert not loaded & {"torch", "transformers", "ppo", "main", "arguments"}
    assert {name for name in loaded if name.startswith("storage")} <= {"storage", "storage.named"}


@pytest.mark.parametrize(
    ("packages", "home"),
    [
        ({"vllm"}, "ppo/engines/vllm.py"),
        ({"accelerate", "deepspeed"}, "ppo/distributed.py"),
        ({"peft"}, "ppo/model/lora.py"),
        ({"crafter"}, "envs/crafter.py"),
        ({"minigrid"}, "envs/babyai.py"),
        ({"matplotlib"}, "ppo/reports/charts.py"),
    ],
)
def test_heavy_packages_are_imported_in_one_file(packages, home):
    users = {name for name, names in IMPORTS.items() if names & packages}
    assert {user for user in users if not user.startswith(PLAYERS)} <= {home}


def test_only_the_program_that_makes_it_asks_for_the_players():
    users = {n for n in IMPORTS if "models.players" in (ROOT / n).read_text()}
    assert {n for n in users if not n.startswith(PLAYERS)} == {TINY_MODEL}
    assert not IMPORTS[TINY_MODEL] & {"vllm", "deepspeed", "accelerate", "minigrid", "crafter"}
