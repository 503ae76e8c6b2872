"""Libraries whose tasks ask for completions by themselves: programs of agents, by name."""

import json
import re
import tomllib
from importlib import metadata, util
from pathlib import Path

import pytest

import envs
from common.plugins import UserError
from envs.ecosystems import PROGRAMS
from envs.text_env import act, begin

MODULES = {"inspect": "inspect_ai", "verifiers": "verifiers", "tau2": "tau2"}
TASKS = {"inspect": "inspect_sums.sums", "verifiers": "verifiers-sums"}
ADD = '<tool_call>{"name": "add", "arguments": {"a": %d, "b": 1}}</tool_call>'


def needs(library: str):
    reason = f"{library} is not installed: pip install '{PROGRAMS[library][1]}'"
    return pytest.mark.skipif(not util.find_spec(MODULES[library]), reason=reason)


@pytest.fixture
def make():
    made = []

    def make(name: str, **options):
        made.append(envs.make_env(name, timeout=60, **options))
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


CALL = '<tool_call>{"name": "%s", "arguments": {%s}}</tool_call>'
UPDATE = CALL % ("update_task_status", '"task_id": "task_1", "status": "completed"')


@needs("tau2")
def test_the_policy_works_on_a_ticket_of_tau2(make):
    """Its solo mode asks for calls alone, which --endpoint-sampling run leaves to the policy."""
    env = make("agent:tau2:mock", sampling="run")
    seed = next(s for s in range(0, 99, 2) if "update the status of task_1" in begin(env, s).text)
    for calls, right in (([UPDATE], 1.0), ([], 0.0)):
        begin(env, seed)
        for call in calls:
            assert not act(env, call).done
        step = act(env, CALL % ("done", ""))
        assert (step.reward, step.terminated, step.success) == (right, True, right == 1)
        assert step.metrics["db"] == right


@needs("tau2")
def test_a_model_behind_upstream_plays_the_customer_of_tau2(make, monkeypatch):
    asked = []

    def answered(url, path, body):
        asked.append((url, path, json.loads(body)))
        text = "I want a task." if len(asked) == 1 else "###STOP###"
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        body = {"id": "1", "object": "chat.completion", "model": "gpt", "choices": choices}
        return 200, json.dumps(body).encode()

    monkeypatch.setattr("envs.agents.endpoint.ask_upstream", answered)
    env = make("agent:tau2:mock:some/gpt", upstream="http://far/v1")
    assert begin(env, 0).text == "I want a task."
    step = act(env, "No.")
    assert (step.reward, step.terminated, step.metrics["program_errors"]) == (0.0, True, 0)
    assert [(url, path, body["model"]) for url, path, body in asked] == [
        ("http://far/v1", "/chat/completions", "some/gpt")] * 2  # fmt: skip


@needs("tau2")
def test_a_domain_of_tau2_without_tickets_needs_a_customer(make):
    with pytest.raises(UserError, match="needs? a customer: agent:tau2:retail:MODEL names a model"):
        make("agent:tau2:retail")


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_unknown_task_is_one_line(library, make):
    with pytest.raises(UserError) as raised:
        make(f"agent:{library}:no_such_module.task")
    line = str(raised.value)
    assert "no_such_module" in line and "\n" not in line


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_missing_package_is_one_line(library, monkeypatch):
    def version(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)
    wanted = PROGRAMS[library][1]
    with pytest.raises(UserError, match=f"needs the package .*: pip install {wanted}, see docs/"):
        envs.make_env(f"agent:{library}:task")


@pytest.mark.parametrize("library", PROGRAMS)
def test_all_lists_name_the_same_versions(library):
    root = Path(__file__).resolve().parents[3]
    listed = tomllib.loads((root / "pyproject.toml").read_text())
    wanted = PROGRAMS[library][1]
    assert listed["project"]["optional-dependencies"][library] == [wanted]
    assert wanted in (root / "docs" / "ecosystems.md").read_text()
