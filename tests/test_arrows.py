"""Imports point one way, between the folders and between the rooms of ppo/.

The files are read with ast, so imports inside of functions count as well.
"""

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
MAKE = "models/clone.py"  # the work of models.make, which makes the embedded models
PLAYERS = "models/players/"
EARLIER = "ppo.run.earlier"  # what arguments.py may ask about the run that goes on
# Two programs of ppo/ are exceptions. One plays logged episodes again for pictures, the other puts
# the endpoint of agents over a trained model.
EXCEPTIONS = {"ppo/reports/replay.py": {"envs"}, "ppo/engines/serve.py": {"envs", "memory"}}


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
    "envs": {"envs", "memory", "storage"},  # memory.messages, storage.named alone: see below
    "memory": {"memory", "storage"},
    "ppo": {"ppo", "storage"},
    # the family of an environment decides its defaults; of ppo, see `EARLIER` alone; of storage,
    # `named`, which imports nothing
    "arguments": {"envs", "ppo", "storage"},
    "models": {"envs", "memory", "models", "ppo", "storage"},
    "main": {"arguments", "envs", "memory", "ppo", "storage"},
}


@pytest.mark.parametrize("name", IMPORTS)
def test_imports_point_one_way(name):
    allowed = ARROWS[part_of(name)] | EXCEPTIONS.get(name, set())
    assert IMPORTS[name] & OURS <= allowed


def test_the_arguments_know_one_file_of_ppo():
    nodes = list(ast.walk(ast.parse((ROOT / "arguments.py").read_text())))
    modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [a.name for node in nodes if isinstance(node, ast.Import) for a in node.names]
    assert [name for name in modules if name.startswith("ppo")] == [EARLIER]
    # `python main.py --help` reads this file, so it imports nothing that takes its time
    assert IMPORTS["ppo/run/earlier.py"] <= sys.stdlib_module_names


# Between the rooms of ppo/: a file or folder of it may import itself and what is named here.
ROOMS = {
    "advantages": set(),
    "errors": set(),
    "kl": set(),
    "losses": set(),
    "optimizer": set(),
    "warmup": {"losses"},
    "evaluation": set(),
    "distributed": {"errors", "optimizer"},
    "agent": {"advantages", "distributed", "kl", "losses", "optimizer"},
    "model": {"distributed"},
    "engines": {"errors", "model"},
    "run": {"errors"},
    "fit": {"model"},
    "reports": {"engines", "evaluation"},
    "paper": {"evaluation", "reports"},
}
SERVES = {"ppo/engines/serve.py": {"run"}}  # a program that reads the arguments of a run
INSIDE = [name for name in IMPORTS if name.startswith("ppo/") and name != "ppo/__init__.py"]


def room_of(name: str) -> str:
    """ "agent" for ppo/agent.py, "model" for ppo/model/lora.py."""
    return name.removesuffix(".py").split("/")[1]


def rooms_imported(name: str) -> set[str]:
    """Rooms of ppo/ that a file imports."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / name).read_text())):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        found |= {module.split(".")[1] for module in modules if module.startswith("ppo.")}
    return found


@pytest.mark.parametrize("name", INSIDE)
def test_rooms_point_one_way(name):
    assert rooms_imported(name) <= ROOMS[room_of(name)] | {room_of(name)} | SERVES.get(name, set())


def test_no_arrow_between_rooms_runs_back():
    """The rooms can be put in an order in which each imports only earlier ones."""
    assert {room_of(name) for name in INSIDE} == ROOMS.keys()
    left = dict(ROOMS)
    while left:
        free = [room for room, needs in left.items() if not needs & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for room in free:
            del left[room]


def test_the_loop_imports_no_report():
    """Only main writes reports while a run goes on; whoever trains knows none of them."""
    readers = {name for name in INSIDE if rooms_imported(name) & {"reports", "paper"}}
    assert {room_of(name) for name in readers} <= {"reports", "paper"}


def test_the_files_were_found():
    assert {"main.py", "envs/toy.py", "memory/window.py", "storage/rollout.py"} <= IMPORTS.keys()
    assert "ppo/advantages/gae.py" in IMPORTS and IMPORTS["main.py"] >= {"contextlib", "arguments"}


@pytest.mark.parametrize("name", [n for n in IMPORTS if part_of(n) in ("envs", "memory")])
def test_environments_and_memories_import_no_torch(name):
    # on demand: the schemas of tools are transformers' own, and an agent's prompts are counted
    asks = {"transformers"} if name in ("envs/tool_schemas.py", "envs/agent.py") else set()
    assert not IMPORTS[name] & {"torch", "transformers", "tokenizers"} - asks


def test_importing_them_leaves_torch_out():
    # what a worker process imports; transitively, which ast does not see
    modules = "envs.pool.vec_env, envs.babyai, envs.toy, envs.foreign, memory, memory.chat"
    modules += ", memory.window, memory.variants, envs.tools, envs.tool_classes"
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
        ({"textarena"}, "envs/ecosystems/textarena.py"),
        ({"gem"}, "envs/ecosystems/gem.py"),
        ({"textworld"}, "envs/ecosystems/textworld.py"),
        ({"scienceworld"}, "envs/ecosystems/scienceworld.py"),
    ],
)
def test_heavy_packages_are_imported_in_one_file(packages, home):
    users = {name for name, names in IMPORTS.items() if names & packages}
    assert {user for user in users if not user.startswith(PLAYERS)} <= {home}


def test_only_the_program_that_makes_it_asks_for_the_players():
    users = {n for n in IMPORTS if "models.players" in (ROOT / n).read_text()}
    assert {n for n in users if not n.startswith(PLAYERS)} == {MAKE, "models/make.py"}
    assert not IMPORTS[MAKE] & {"vllm", "deepspeed", "accelerate", "minigrid", "crafter"}
