"""Libraries whose tasks ask for completions by themselves: programs of agents, by name."""

import re
import tomllib
from importlib import metadata, util
from pathlib import Path

import pytest

import envs
from common.plugins import UserError
from envs.text_env import act, begin

HAVE = {"inspect": util.find_spec("inspect_ai"), "verifiers": util.find_spec("verifiers")}
TASKS = {"inspect": "inspect_sums.sums", "verifiers": "verifiers-sums"}
ADD = '<tool_call>{"name": "add", "arguments": {"a": %d, "b": 1}}</tool_call>'


def needs(library: str):
    reason = f"{library} is not installed: pip install '{envs.PROGRAMS[library][1]}'"
    return pytest.mark.skipif(not HAVE[library], reason=reason)


@pytest.fixture
def make():
    made = []

    def make(name: str):
        made.append(envs.make_env(name, timeout=60))
        return made[-1]

    yield make
    for env in made:
        env.close()


LIBRARIES = [pytest.param(library, marks=needs(library)) for library in TASKS]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_librarys_program_calls_its_tool_and_is_paid_by_its_scorer(library, make):
    env = make(f"agent:{library}:{TASKS[library]}")
    questions = set()
    for seed, right in ((0, True), (2, True), (4, False), (6, True)):
        first = begin(env, seed)
        questions.add(first.text)
        [k] = re.findall(r"What is (\d) \+ 1\?", first.text)
        assert [tool["function"]["name"] for tool in first.template["tools"]] == ["add"]
        step = act(env, ADD % int(k))
        assert (step.observation.text, step.reward, step.done) == (str(int(k) + 1), 0.0, False)
        step = act(env, str(int(k) + 1 if right else 9))
        assert (step.reward, step.terminated, step.success) == (float(right), True, right)
        assert step.metrics["program_errors"] == 0
        assert float(right) in (step.metrics.get("match"), step.metrics.get("right"))
    assert len(questions) > 1


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_unknown_task_is_one_line(library, make):
    with pytest.raises(UserError) as raised:
        make(f"agent:{library}:no_such_module.task")
    line = str(raised.value)
    assert "no_such_module" in line and "\n" not in line


@pytest.mark.parametrize("library", envs.PROGRAMS)
def test_a_missing_package_is_one_line(library, monkeypatch):
    def version(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)
    wanted = envs.PROGRAMS[library][1]
    with pytest.raises(UserError, match=f"needs the package .*: pip install {wanted}, see docs/"):
        envs.make_env(f"agent:{library}:task")


@pytest.mark.parametrize("library", envs.PROGRAMS)
def test_all_lists_name_the_same_versions(library):
    root = Path(__file__).resolve().parents[3]
    listed = tomllib.loads((root / "pyproject.toml").read_text())
    wanted = envs.PROGRAMS[library][1]
    assert listed["project"]["optional-dependencies"][library] == [wanted]
    assert wanted in (root / "docs" / "ecosystems.md").read_text()
