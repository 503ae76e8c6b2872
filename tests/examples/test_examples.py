"""The example agents with their real libraries, on the loopback address, without a model."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from own_files import work_in, write
from real_runs import Forked, run
from transformers import AutoTokenizer

from common.chat import Sampling
from envs import make_env
from envs.checked import checked_act
from envs.text_env import act, begin
from envs.tools.calculator import Calculator
from memory.render import Renderer
from memory.verbatim import VerbatimMemory
from memory.window import WindowMemory
from models.players.calculator import TASKS, Player
from recipes import MODELS

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(MODELS / "tiny-calculator")
FAULTS = {name: share for name, share in TASKS["calculator"].items() if name != "episodes"}


@pytest.fixture(params=["langgraph_agent", "openai_agent"])
def agent(request):
    """Both work out the calculator's questions."""
    needed = {"langgraph_agent": ("langgraph", "langchain_openai"), "openai_agent": ("httpx",)}
    for package in (*needed[request.param], "openai"):
        pytest.importorskip(package)
    name = f"agent:examples.{request.param}:solve"
    env = make_env(name, tokenizer=MODEL, prompt_limit=1024, timeout=60)
    yield env
    env.close()


def test_an_agents_prompts_are_those_of_the_environment_with_tools(agent):
    """Both are played with the same responses, the mistakes of the player among them."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    render, seen = Renderer(tokenizer, 1024), set()
    for seed in range(12):
        env, player = Calculator(), Player("calculator", np.random.default_rng(seed), **FAULTS)
        player.env, shown, sent = env, WindowMemory(8), VerbatimMemory(8)
        observation = begin(env, seed)
        shown.reset(observation)
        sent.reset(begin(agent, seed))
        player.start()
        while True:
            assert render(sent.messages()).ids == render(shown.messages()).ids
            response = player.respond(observation.text)[1]
            theirs, ours = act(agent, response), act(env, response)
            assert (theirs.reward, theirs.success, theirs.done) == (
                ours.reward, ours.success, ours.done
            )  # fmt: skip
            seen |= {f"reward {ours.reward:g}", ours.observation.text.partition(":")[0]}
            if ours.done:
                break
            observation = ours.observation
            shown.update(ours)
            sent.update(theirs)
    assert seen >= {"reward 0", "reward 1", "Error"}  # answers of both kinds, errors of the tool


def test_the_agent_that_rewrites_its_history():
    pytest.importorskip("httpx")
    pytest.importorskip("openai")
    env = make_env("agent:examples.summarising_agent:solve", timeout=60)
    first = begin(env, 1)
    assert [message["role"] for message in first.messages] == ["system", "user"]
    steps = [act(env, response) for response in ("100", "100", "-", "It is below 100.", "100")]
    assert [step.reward for step in steps] == pytest.approx([-0.02, -0.02, -0.02, 0, -0.02])
    texts = [step.observation.messages[-1]["content"] for step in steps]
    assert texts[0] == texts[1] == "The hidden number is below 100."
    assert texts[2].startswith("Sum up in one line")
    assert steps[2].observation.sampling == Sampling(0.7, 32)
    # the summary replaces the earlier messages
    assert texts[3] == "You know this: It is below 100.\nGuess."
    assert len(steps[3].observation.messages) == 2 and len(steps[4].observation.messages) == 4
    env.close()


def test_the_agent_of_the_page_in_docs(tmp_path, monkeypatch):
    pytest.importorskip("httpx")
    pytest.importorskip("openai")
    page = (ROOT / "docs" / "agents.md").read_text()
    write(tmp_path, {"my_agent.py": page.partition("```python\n")[2].partition("```")[0]})
    work_in(tmp_path, monkeypatch)
    env = make_env("agent:my_agent:solve", timeout=60)
    assert begin(env, 92).text == "What is 2 + 1?"
    draft, final = act(env, "Perhaps 4."), act(env, " 3\n")
    texts = [message["content"] for message in draft.observation.messages]
    assert texts[1:] == ["Perhaps 4.", "Check it, and say the number alone."]
    assert final.terminated and final.reward == 1
    env.close()


@pytest.fixture
def handoff():
    pytest.importorskip("openai")
    env = make_env("agent:examples.handoff_agent:solve", timeout=60)
    yield env
    env.close()


def test_a_triage_is_paid_for_passing_on_when_the_answer_is_right(handoff):
    task = Calculator()
    task.reset(seed=8)
    first = begin(handoff, 8)
    assert [tool["function"]["name"] for tool in first.template["tools"]] == [
        "transfer_to_calculator"]  # fmt: skip
    passed = checked_act(handoff, "The other agent goes on.")
    assert passed.reward == 0 and passed.observation.template == task.template
    # the conversation is the same: the question, and each step but the last with its result
    assert passed.observation.messages[1:] == first.messages[1:]
    assert len(first.messages) == 2 + 2 * (len(task.chain) - 1)
    answered = checked_act(handoff, f"ANSWER: {task.answer}")
    assert (answered.terminated, answered.success, answered.reward) == (True, True, 1.0)
    assert answered.earlier == ((1, 0.5),)


def test_a_triage_that_calls_what_it_has_not_breaks_the_program(handoff):
    begin(handoff, 8)
    call = '<tool_call>\n{"name": "calculate", "arguments": {"a": 1}}\n</tool_call>'
    step = checked_act(handoff, call)
    assert (step.terminated, step.success, step.reward, step.fault) == (True, False, 0.0, "")
    assert "KeyError('calculate')" in step.observation.text
    assert step.metrics == {"parse_failures": 0, "program_errors": 1}


@pytest.mark.parametrize("name", ["langgraph_agent", "openai_agent"])
def test_the_same_file_runs_against_a_server(name, run_of_calculator):
    """Also where the server is that of `reports.serve`."""
    needed = {"langgraph_agent": "langgraph", "openai_agent": "openai"}
    pytest.importorskip(needed[name])
    pytest.importorskip("httpx")
    url, key = run_of_calculator
    words = ["-m", f"examples.{name}", "--base-url", url, "--api-key", key, "--episodes", "2"]
    done = run(words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("of 2 answers are right\n")


@pytest.fixture(scope="module")
def run_of_calculator(tmp_path_factory):
    """Where a run with the embedded model of the calculator is served, and the key."""
    pytest.importorskip("httpx")
    from arguments import get_args

    folder = tmp_path_factory.mktemp("run")
    flags = f"--env-name tools-calculator --engine transformers --model {MODEL}"
    args = vars(get_args(flags.split()))
    args = {key: value for key, value in args.items() if not isinstance(value, Path)}
    (folder / "args.json").write_text(json.dumps({"args": args}))
    words = ["-m", "reports.serve", folder, "--initial", "--port", "0"]
    process = Forked(words, ROOT)
    key, url = (process.stdout.readline().split()[-1] for _ in range(2))
    yield url, key
    process.send_signal(signal.SIGTERM)
    process.communicate()
