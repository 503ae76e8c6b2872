"""The package as pip installs it: one folder `turnwise`, which runs far from the repository."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SMALL = """train --n-env 4 --e-len 2 --num-updates 1 --w-epoch 0 --eval-interval 0
--engine transformers --run-dir run"""
# In one process, for imports take most of the time: the main job, a page about it, and mistakes
# that the command line, the loop and a user's own file make.
TYPED = [
    SMALL, "view run", "view none", "evaluate none", "train --run-dir run",
    "train --env-name own:Env-v0",
]  # fmt: skip
JOBS = """
import sys
from importlib import import_module
turnwise = import_module("turnwise.__main__")
for words in sys.argv[1:]:
    sys.argv[1:] = words.split()
    try:
        code = turnwise.main()
    except SystemExit as end:
        code = end.code
    print("code", code, flush=True)
import envs, main
print(envs.__file__, main.__file__)
"""
OWN = """
import gymnasium
from envs.text_env import TextEnv

gymnasium.register("Env-v0", lambda: 1 / 0)
"""


LISTED = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL = LISTED["project"]["optional-dependencies"]
INSTALLED = ("ranks", "lora", "agents", "wandb", "textarena", "reasoning-gym", "test")


@pytest.mark.parametrize(
    ("file", "extras"),
    [("constraints-cpu.txt", INSTALLED), ("constraints-cuda.txt", (*INSTALLED, "vllm"))],
)
def test_the_exact_versions_agree_with_the_list(file, extras):
    """What `make` installs has all dependencies, the extras but rare libraries, and both groups."""
    lines = (ROOT / file).read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    exact = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}
    assert list(exact) == sorted(exact) and len(exact) == len(pins)
    groups = LISTED["dependency-groups"]
    wanted = [*LISTED["project"]["dependencies"], *groups["games"], *groups["templates"]]
    for line in (*wanted, *(line for extra in extras for line in OPTIONAL[extra])):
        requirement = Requirement(line)
        assert exact[canonicalize_name(requirement.name)] in requirement.specifier, line


def test_tensorboard_takes_the_protobuf_that_agents_bring():
    """AutoGen needs protobuf 5. Code that a newer protoc generated would refuse it at import."""
    generated = distribution("tensorboard").locate_file("tensorboard/compat/proto/event_pb2.py")
    assert "ValidateProtobufRuntimeVersion" not in Path(generated).read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder of packages in which pip has installed the wheel that setuptools builds, offline."""
    there = tmp_path_factory.mktemp("wheel")
    site = there / "site-packages"
    build = f"setup.py -q build --build-base {there} egg_info --egg-base {there} bdist_wheel"
    pip = "-m pip install -q --no-deps --no-index --no-compile --disable-pip-version-check"
    for words in (f"{build} -d {there}", f"{pip} --target {site} {there}/turnwise_ppo-0.1.0-*.whl"):
        words = [str(w) for word in words.split() for w in glob(word)]
        done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return site


def glob(word: str) -> list:
    path = Path(word)
    return sorted(path.parent.glob(path.name)) if "*" in word else [word]


def test_an_installed_copy_trains_and_reports_mistakes_in_one_line(site, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    env = os.environ | {"PYTHONPATH": str(site), "CUDA_VISIBLE_DEVICES": ""}

    def run(*words) -> subprocess.CompletedProcess:
        command = [str(word) for word in words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    assert {"bin", "turnwise"} == {p.name for p in site.iterdir() if p.suffix != ".dist-info"}
    assert "\n  reproduce " in run(site / "bin" / "turnwise", "--help").stdout
    missed = run(sys.executable, "-m", "turnwise", "trian")
    message = "turnwise: error: unknown command 'trian'; did you mean train?\n"
    assert (missed.returncode, missed.stderr) == (2, message)

    done = run(sys.executable, "-c", JOBS, *TYPED)
    assert done.returncode == 0, done.stderr
    out, errors = done.stdout.splitlines(), done.stderr.splitlines()
    assert [line for line in out if line[:5] == "code "] == ["code 0"] * 2 + ["code 2"] * 4
    assert out[-1] == f"{site}/turnwise/envs/__init__.py {site}/turnwise/main.py"
    made = "cannot be made: ZeroDivisionError: division by zero"
    assert errors == [
        "turnwise view: error: none is not a directory; RUN must be the --run-dir of a training "
        "run",
        "turnwise evaluate: error: --resume none: no run there (args.json is missing)",
        "turnwise train: error: run is not empty; go on from it with --resume run, or name "
        "another --run-dir",
        f"turnwise train: error: own.py:5: environment 'own:Env-v0' {made}",
    ]
    assert (tmp_path / "run" / "model" / "config.json").exists()
    assert (tmp_path / "run" / "trajectories.html").exists()
