"""Imports point one way between the rooms, without an exception.

The files are read with ast, so imports inside of functions count as well.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOOP = {"arguments", "branch", "common", "envs", "memory", "ppo", "reports", "run", "storage"}
# room or file at the top -> what it may import besides itself
ARROWS = {
    "common": set(),
    "memory": {"common"},
    "envs": {"common", "memory"},
    "storage": {"common"},
    "ppo": {"common", "storage"},
    "run": {"common", "ppo", "storage"},
    "reports": {"common", "envs", "memory", "ppo", "run"},
    "paper": {"common", "ppo", "reports", "run"},
    "models": {"common", "envs", "memory", "ppo", "run", "storage"},
    "recipes": {"common"},
    "arguments": {"common", "envs", "recipes", "run"},
    "fit": {"arguments", "common", "run"},
    "sweep": {"arguments", "common", "paper", "reports"},
    "doctor": {"arguments", "common", "run"},
    "branch": {"common", "envs", "memory", "ppo", "storage"},
    "critic": {"main"} | LOOP,
    "main": LOOP,
}
# Between the rooms of ppo/: a file or folder of it may import itself and what is named here.
INSIDE_PPO = {
    "advantages": set(),
    "kl": set(),
    "terms": {"kl", "losses"},
    "losses": set(),
    "optimizer": set(),
    "warmup": {"losses"},
    "known_trunk": {"model", "warmup"},
    "thoughts": {"engines"},
    "evaluation": {"thoughts"},
    "continuations": {"evaluation"},
    "vine": {"continuations"},
    "distributed": {"optimizer"},
    "agent": {"advantages", "kl", "losses", "optimizer"},
    "criticless": {"agent"},
    "episode_ratios": {"agent", "losses"},
    "make": {
        "agent",
        "criticless",
        "distributed",
        "episode_ratios",
        "kl",
        "known_trunk",
        "optimizer",
        "terms",
        "warmup",
    },
    "model": {"distributed"},
    "engines": {"distributed", "model"},
}
PLAYERS = "models/players/"
USE_PLAYERS = {
    "models/demonstrations.py",
    "models/embedded.py",
    "models/make.py",
}


def files_of(room: str) -> list[Path]:
    folder = ROOT / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules_imported(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports a relative name"
            found.add(node.module)
    return found


MODULES = {name_of(path): modules_imported(path) for room in ARROWS for path in files_of(room)}
IMPORTS = {name: {module.split(".")[0] for module in found} for name, found in MODULES.items()}


def room_of(name: str) -> str:
    """ "envs" for envs/games/toy.py, "main" for main.py."""
    return name.removesuffix(".py").split("/")[0]


@pytest.mark.parametrize("name", IMPORTS)
def test_imports_point_one_way(name):
    room = room_of(name)
    assert IMPORTS[name] & ARROWS.keys() <= ARROWS[room] | {room}


@pytest.mark.parametrize("arrows", [ARROWS, INSIDE_PPO])
def test_no_arrow_runs_back(arrows):
    """The rooms can be put in an order in which each imports only earlier ones."""
    left = dict(arrows)
    while left:
        free = [room for room, needs in left.items() if not needs & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for room in free:
            del left[room]


PPO = [name for name in MODULES if room_of(name) == "ppo" and name != "ppo/__init__.py"]


@pytest.mark.parametrize("name", PPO)
def test_the_rooms_of_ppo_point_one_way(name):
    inside = {module.split(".")[1] for module in MODULES[name] if module.startswith("ppo.")}
    room = name.removesuffix(".py").split("/")[1]
    assert inside <= INSIDE_PPO[room] | {room}


def test_the_command_line_answers_quickly():
    # `python main.py --help` reads this file, so it imports nothing that takes its time
    quick = {"run.checks", "run.earlier", "run.unused"}
    assert {m for m in MODULES["arguments.py"] if m.startswith("run.")} == quick
    for module in quick:
        name = f"{module.replace('.', '/')}.py"
        assert IMPORTS[name] <= sys.stdlib_module_names | {"common"}


def test_the_loop_imports_no_report():
    """Only main writes reports while a run goes on, sweep and critic after it; training none."""
    readers = {name for name in IMPORTS if IMPORTS[name] & {"reports", "paper"}}
    assert {room_of(name) for name in readers} <= {"reports", "paper", "main", "sweep", "critic"}


def test_the_files_were_found():
    known = {"main.py", "envs/games/toy.py", "memory/window.py", "storage/batch.py"}
    assert known | {"ppo/advantages/gae.py"} <= IMPORTS.keys()
    assert IMPORTS["main.py"] >= {"itertools", "arguments"}


@pytest.mark.parametrize("name", [n for n in IMPORTS if room_of(n) in ("envs", "memory")])
def test_environments_and_memories_import_no_torch(name):
    # on demand: the schemas of tools are transformers' own, and an agent's prompts are counted
    asks = {"transformers"} if name in ("envs/tools/schemas.py", "envs/agents/tokens.py") else set()
    assert not IMPORTS[name] & {"torch", "transformers", "tokenizers"} - asks


def test_importing_them_leaves_torch_out():
    # what a worker process imports; transitively, which ast does not see
    modules = "envs.pool.resilient, envs.games.babyai, envs.games.toy, envs.foreign, memory"
    modules += ", memory.render, memory.window, memory.variants"
    modules += ", envs.tools.tool_env, envs.tools.classes"
    code = f"import sys, {modules}; print(*sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "memory.window" in loaded
    assert not loaded & {"torch", "transformers", "ppo", "main", "arguments"}
    assert "storage" not in loaded


@pytest.mark.parametrize(
    ("packages", "home"),
    [
        ({"vllm"}, "ppo/engines/vllm"),
        ({"accelerate", "deepspeed"}, "ppo/distributed.py"),
        ({"peft"}, "ppo/model/lora.py"),
        ({"crafter"}, "envs/games/crafter.py"),
        ({"minigrid"}, "envs/games/babyai.py"),
        ({"matplotlib"}, "reports/drawing.py"),
        ({"textarena"}, "envs/ecosystems/textarena.py"),
        ({"gem"}, "envs/ecosystems/gem.py"),
        ({"textworld"}, "envs/ecosystems/textworld.py"),
        ({"scienceworld"}, "envs/ecosystems/scienceworld.py"),
    ],
)
def test_heavy_packages_are_imported_in_one_place(packages, home):
    """home: a file, or for vLLM how the names of its files begin"""
    users = {name for name, names in IMPORTS.items() if names & packages}
    assert all(user.startswith(home) for user in users if not user.startswith(PLAYERS))


def test_only_the_program_that_makes_it_asks_for_the_players():
    users = {n for n in IMPORTS if "models.players" in (ROOT / n).read_text()}
    assert {n for n in users if not n.startswith(PLAYERS)} == USE_PLAYERS
    assert not IMPORTS["models/embedded.py"] & {
        "vllm",
        "deepspeed",
        "accelerate",
        "minigrid",
        "crafter",
    }
