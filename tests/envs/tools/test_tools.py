"""Environments with tools: calls, answers, mistakes, and exact replays."""

import gc
import json
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from own_files import location, work_in, write
from tool_envs import Odd, Shop, double
from transformers.utils import get_json_schema

from envs import make_env
from envs.errors import BrokenContract, EnvError
from envs.pool.serial import training_seeds
from envs.text_env import act, begin
from envs.tools.schemas import BadArgument, arguments_of, describe, fits
from envs.tools.thread import MAX_HUNG, hung
from envs.tools.tool_env import ToolEnv

ROOT = Path(__file__).parents[3]


def call(name: str, **arguments) -> str:
    text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


def contents(step) -> list[str]:
    return [message["content"] for message in step.observation.messages]


@pytest.fixture
def shop():
    env = Shop()
    begin(env, 3)
    yield env
    env.close()


@pytest.fixture
def odd():
    env = Odd()
    begin(env, 0)
    yield env
    env.close()


def test_schemas_are_those_of_transformers(shop):
    methods = [shop.put, shop.price, double, shop.wait, shop.leave]
    assert shop.template == {"tools": [get_json_schema(method) for method in methods]}
    assert shop.template["tools"][2]["function"]["parameters"]["properties"]["kind"]["enum"]


def test_the_first_observation(shop):
    observation = begin(shop, 3)
    assert observation.system == "You shop." and observation.text.startswith("Buy ")
    assert observation.messages == ({"role": "user", "content": observation.text},)
    assert observation.template == shop.template


def test_a_call_and_its_result(shop):
    response = f"<think>\nhm\n</think>\nI take it.\n{call('put', thing='Öl', count=2)}"
    step = act(shop, response)
    result = dict(role="tool", name="put", tool_call_id="call00100", content='{"Öl": 2}')
    assert step.observation.messages == (result,)
    function = {"name": "put", "arguments": {"thing": "Öl", "count": 2}}
    assert step.reply == {
        "role": "assistant",
        "content": "<think>\nhm\n</think>\nI take it.",
        "tool_calls": [{"type": "function", "id": "call00100", "function": function}],
    }
    assert step.action_at == response.index("<tool_call>") and step.valid and not step.done
    assert json.loads(step.action) == [function] and "Ö" in step.action
    assert step.reward == 0.2


def test_several_calls_state_across_turns_and_a_reward_in_each(shop):
    step = act(shop, call("put", thing="tea") + call("put", thing="stone") + call("double", x=4))
    assert contents(step) == ['{"tea": 1}', "Error: there are no stones", "8"]
    ids = [message["tool_call_id"] for message in step.observation.messages]
    assert ids == ["call00100", "call00101", "call00102"] and step.reward == 0.1
    step = act(shop, call("put", thing="tea", count=2) + call("put", thing="ink"))
    assert contents(step) == ['{"tea": 3}', '{"tea": 3, "ink": 1}']
    assert step.reward == pytest.approx(0.3)  # .1 for each of three things
    assert begin(shop, 4) and shop.basket == {}


def test_a_message_to_the_user_and_an_answer(shop):
    step = act(shop, "<think>a</think>Which?")
    assert contents(step) == ["Yes?"] and not step.done and step.reward == 0.0
    assert step.action_at == len("<think>a</think>") and step.action == "Which?"
    step = act(shop, "<think>b</think> {}")
    assert (step.reward, step.terminated, step.success) == (1.0, True, True)
    assert step.metrics == {
        "parse_failures": 0, "unknown_tools": 0, "tool_errors": 0, "shortened_results": 0,
        "tool_calls_per_turn": 0.0, "basket": 0,
    }  # fmt: skip
    begin(shop, 5)
    step = act(shop, "no")
    assert (step.reward, step.terminated, step.success) == (-1.0, True, False)


def test_a_tool_may_end_the_episode(shop):
    step = act(shop, call("put", thing="tea") + call("leave"))
    assert step.terminated and step.success and step.reward == 0.1
    assert contents(step) == ['{"tea": 1}', "You left."] and step.metrics["basket"] == 1


def test_a_truncated_episode_is_not_a_success(shop):
    shop.limit_reached = lambda: shop.end() or 0.5  # it may pay, and there is nothing to end
    *_, last = [act(shop, call("wait")) for _ in range(6)]
    assert last.truncated and not last.terminated and not last.success and last.reward == 0.5


def test_an_unreadable_message_costs_the_penalty(shop):
    for turn, response in enumerate(["<think>I look", "<tool_call>put(tea)</tool_call>", ""], 1):
        step = act(shop, response)
        assert not step.valid and step.reward == -0.1 and not step.done
        assert step.reply == {"role": "assistant", "content": response}
        (message,) = step.observation.messages
        assert message["role"] == "user" and message["content"].startswith("Error: the ")
        assert shop.toolbox.counts["parse_failures"] == turn
    # nothing of such a message is run
    act(shop, call("put", thing="tea") + "<tool_call>put(ink)</tool_call>")
    assert shop.basket == {}


def test_the_turn_limit_and_the_metrics_of_an_episode(shop):
    texts = [
        call("put", thing="tea") * 3,
        "<tool_call>",
        call("buy"),
        call("put"),
        call("wait"),
    ]
    steps = [act(shop, response) for response in [*texts, call("put", thing="tea")]]
    assert [step.truncated for step in steps] == [False] * 5 + [True]
    assert steps[-1].reward == 0.1 and not steps[-1].terminated and not steps[-1].success
    # calls: 3 + 0 + 1 + 1 + 1 + 1 = 7 in 6 turns
    assert steps[-1].metrics == {
        "parse_failures": 1, "unknown_tools": 1, "tool_errors": 1, "shortened_results": 0,
        "tool_calls_per_turn": 7 / 6, "basket": 1,
    }  # fmt: skip
    assert contents(steps[2]) == [
        "Error: there is no tool 'buy'; the tools are put, price, double, wait, leave"
    ]
    assert contents(steps[4]) == ["null"]


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (call("put"), "put needs the argument 'thing'"),
        (call("put", thing="tea", size=3), "put takes no argument 'size'; it takes thing, count"),
        (call("leave", now=True), "leave takes no argument 'now'; it takes none"),
        (call("put", thing=3), "the argument 'thing' of put must be string, and not 3"),
        (call("put", thing="tea", count="3"),
         "the argument 'count' of put must be integer, and not \"3\""),
        (call("put", thing="tea", count=True),
         "the argument 'count' of put must be integer, and not true"),
        (call("put", thing="tea", count=1.5),
         "the argument 'count' of put must be integer, and not 1.5"),
        (call("price", of=["ä", 3]),
         "the argument 'of' of price must be array of string, and not [\"ä\", 3]"),
        (call("price", of=[], at="noon"),
         "the argument 'at' of price must be number or null, and not \"noon\""),
        (call("double", x=1, kind="odd"),
         'the argument \'kind\' of double must be one of ["plain", "loud"], and not "odd"'),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(shop, response, error):
    step = act(shop, response)
    assert contents(step) == [f"Error: {error}"] and step.valid and step.reward == 0.0
    assert shop.toolbox.counts["tool_errors"] == 1 and shop.basket == {}


def test_a_whole_number_may_be_written_as_a_fraction(shop):
    assert contents(act(shop, call("put", thing="tea", count=2.0))) == ['{"tea": 2}']


def mixed(
    a: int, b: float, c: str, d: bool, e: list[int], f: dict[str, int], g: int | str, h: int | None,
    i: tuple[int, str] | None = None,
) -> str:  # fmt: skip
    """Take one of each.

    Args:
        a: a
        b: b
        c: c
        d: d
        e: e
        f: f
        g: g
        h: h
        i: i
    """


def test_xml_texts_are_converted_to_the_schemas_types():
    texts = dict(a="3", b="1e3", c="[7]", d="True", e="[1, 2]", f='{"x": 1}', g="seven", h="None")
    texts |= dict(i='[1, "a"]')
    given = {"name": "mixed", "arguments": texts, "raw": True}
    assert arguments_of(given, describe(mixed)) == dict(
        a=3, b=1000.0, c="[7]", d=True, e=[1, 2], f={"x": 1}, g="seven", h=None, i=[1, "a"]
    )
    assert arguments_of(given | {"arguments": texts | {"g": "7"}}, describe(mixed))["g"] == 7
    for name, text in dict(a="x", b="", d="yes", e="[1, 2.5]", f='{"x": "y"}', i="[1]").items():
        with pytest.raises(BadArgument, match=f"^the argument '{name}' of mixed must be "):
            arguments_of(given | {"arguments": texts | {name: text}}, describe(mixed))
    assert not fits(True, {"type": "integer"}) and fits(None, {"type": "string", "nullable": True})


def test_results(odd):
    given = ["text", "none", "list", "dict", "array", "number", "set"]
    texts = ['Ä "quoted"', "null", '["ö", 1, null]', '{"ß": true}', "[0, 1, 2]", "7", '["a", "b"]']
    given, texts = [*given, "keys"], [*texts, '{"(1, 2)": {"3": [{"null": 4}]}}']
    step = act(odd, "".join(call("give", what=name) for name in given))
    assert contents(step) == texts
    assert act(odd, call("give", what="empty")).observation.text == "(empty)"


def test_the_model_reads_exceptions(odd):
    step = act(odd, "".join(call("fail", how=how) for how in ("key", "exit", "none", "late")))
    assert contents(step) == [
        "Error: KeyError: 'x'", "Error: SystemExit: 3", "Error: RuntimeError",
        "Error: TimeoutError",
    ]  # fmt: skip
    assert not step.done and odd.toolbox.counts["tool_errors"] == 4


def test_a_tool_that_changes_its_arguments_changes_no_history(odd):
    step = act(odd, call("first", things=["a", "b"]))
    (function,) = [call["function"] for call in step.reply["tool_calls"]]
    assert contents(step) == ["a"] and function["arguments"] == {"things": ["a", "b"]}
    assert json.loads(step.action) == [function]


def test_a_huge_result_loses_its_middle(odd):
    (text,) = contents(act(odd, call("huge")))
    left_out = "\n[... 950 characters are left out here ...]\n"
    assert text == "a" * 25 + left_out + "ü" * 25
    assert odd.toolbox.counts["shortened_results"] == 1


def test_too_many_calls_of_a_message(odd):
    step = act(odd, call("give", what="text") * 10)
    error = "Error: only 8 calls of a message are run"
    assert contents(step) == ['Ä "quoted"'] * 8 + [error] * 2


def test_a_tool_that_hangs(odd):
    before, odd.toolbox.timeout = threading.active_count(), 0.2
    step = act(odd, call("sleep", seconds=1) + call("spin"))
    assert contents(step) == ["Error: the tool did not answer within 0.2 s"] * 2 and not step.done
    odd.toolbox.timeout = 60
    assert contents(act(odd, call("give", what="text"))) == ['Ä "quoted"']
    assert odd.toolbox.counts["tool_errors"] == 2
    for thread in list(hung):
        thread.join(60)  # what sleeps ends when it wakes up, and what loops at once
        assert not thread.is_alive()
    assert odd.late == "" and threading.active_count() <= before + 1


def test_hanging_threads_do_not_accumulate():
    env, release = Shop(), threading.Event()
    hung[:] = [threading.Thread(target=release.wait, daemon=True) for _ in range(MAX_HUNG)]
    threads = list(hung)
    for thread in threads:
        thread.start()
    try:
        begin(env, 0)  # an episode can begin all the same
        step = act(env, call("double", x=2))
        assert contents(step) == ["Error: the tool cannot run, because too many calls hang"]
    finally:
        release.set()
    for thread in threads:
        thread.join(60)
    assert contents(act(env, call("double", x=2))) == ["4"] and not hung
    env.close()


STUBBORN = """
import time
from envs.tools.thread import ToolThread

def hang():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

try:
    ToolThread().call(hang, 0.01)
except TimeoutError:
    print("ends all the same")
"""


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending():
    run = subprocess.run([sys.executable, "-c", STUBBORN], cwd=ROOT, capture_output=True, text=True)
    assert (run.stdout, run.stderr, run.returncode) == ("ends all the same\n", "", 0)


def test_all_of_an_environment_runs_in_one_thread_that_ends_with_it():
    env, seen = Shop(), []
    env.question = lambda seed: seen.append(threading.current_thread()) or "?"
    env.toolbox.functions["leave"] = lambda: seen.append(threading.current_thread())
    begin(env, 0)
    act(env, call("leave"))
    assert seen[0] is seen[1] is not threading.current_thread() and seen[0].daemon
    del env
    gc.collect()
    seen[0].join(30)
    assert not seen[0].is_alive()


def test_without_a_time_limit_there_is_no_thread():
    env = Shop()
    env.tool_timeout, before = 0, threading.active_count()
    begin(env, 0)
    assert contents(act(env, call("put", thing="tea"))) == ['{"tea": 1}']
    assert threading.active_count() == before


def test_registered_by_gymnasium():
    env = make_env("tool_envs:Shop-v0", format_penalty=0.5)
    first = begin(env, 3)
    assert begin(env, 3) == first  # also with random's own numbers
    step = act(env, "<tool_call>")
    assert step.reward == -0.5 and not step.valid
    assert act(env, call("put", thing="tea")).reward == 0.1
    turns = [act(env, "Well?") for _ in range(4)]  # the class's own limit is six
    assert [step.truncated for step in turns] == [False] * 3 + [True] and turns[-1].metrics
    for name, options, turns in [
        ("tool_envs:ShortShop-v0", {}, 2),  # the registration's limit
        ("tool_envs:ShortShop-v0", dict(max_episode_steps=3), 3),
        ("tools:tool_envs:Shop", dict(max_episode_steps=1), 1),
    ]:
        env = make_env(name, **options)
        begin(env, 0)
        steps = [act(env, "Well?") for _ in range(turns)]
        assert [step.truncated for step in steps] == [False] * (turns - 1) + [True]
        assert steps[-1].metrics["basket"] == 0


@pytest.mark.parametrize(
    ("name", "workers"),
    [("tool_envs:Shop-v0", 0), ("tools:tool_envs:Shop", 0), ("tool_envs:Shop-v0", 1)],
)
def test_an_episode_is_played_again_from_its_middle(name, workers, pool):
    make = partial(make_env, name)
    one = pool(make, training_seeds(0, range(2)), workers)
    one.reset()
    texts = [
        call("put", thing="tea"),
        call("put", thing="ink") + call("put", thing="tea"),
        "<tool",
    ]
    for response in texts:
        one.send(1, response + "?")
        ((_, step),) = one.poll()
    state = json.loads(json.dumps(one.state_dict()))
    two = pool(make, training_seeds(0, range(2)), workers)
    (_, none), (_, steps) = two.resume(state)
    assert len(steps) == 3 and not none and steps[-1] == step
    last = []
    for envs in (one, two):
        envs.send(1, call("put", thing="tea"))
        ((_, step),) = envs.poll()
        envs.send(1, "{'tea': 3, 'ink': 1}")  # the basket remembers what was put before
        ((_, end),) = envs.poll()
        last.append((step, end))
    assert last[0] == last[1] and not one.faults and not two.faults
    assert contents(last[0][0]) == ['{"tea": 3, "ink": 1}'] and last[0][1].success


MISTAKES = """
from envs.tools.tool_env import ToolEnv


def look() -> str:
    '''Look.'''
    return "a door"


class Good(ToolEnv):
    tools = [look]

    def question(self, seed):
        return "What is there?"

    def reward(self, answer):
        return 1.0


def silent(x: int) -> int:  # here silent
    return x


def untyped(x) -> int:  # here untyped
    '''Do.

    Args:
        x: it
    '''
    return x


def undescribed(x: int) -> int:  # here undescribed
    '''Do.'''
    return x


def many(*x: int) -> int:  # here many
    '''Do.'''
    return x


class NoDocstring(Good):
    tools = [look, silent]


class NoHint(Good):
    tools = [untyped]


class NoDescription(Good):
    tools = [undescribed]


class Many(Good):
    tools = [many]


class NoTools(Good):  # here NoTools
    tools = ()


class Twice(Good):  # here Twice
    tools = [look, "look"]

    def look(self) -> str:
        '''Look.'''
        return "nothing"


class Unknown(Good):  # here Unknown
    tools = ["look_up"]


class Private(Good):  # here Private
    tools = ["_look"]

    def _look(self) -> str:
        '''Look.'''


class Number(Good):  # here Number
    tools = [3]


class Taken(Good):
    tools = ["end"]

    def end(self) -> str:  # here Taken
        '''End.'''


class NoReward(ToolEnv):  # here NoReward
    tools = [look]

    def question(self, seed):
        return "What?"


class NoQuestion(Good):
    def question(self, seed):  # here NoQuestion
        return None


class BadReward(Good):
    def reward(self, answer):  # here BadReward
        return "good"


class BadAnswer(Good):
    def answered(self, text):  # here BadAnswer
        return 3


class BadPay(Good):
    tools = ["buy"]

    def buy(self) -> str:
        '''Buy.'''
        self.pay(None)


class Raises(Good):
    def question(self, seed):
        return [][0]  # here Raises
"""
TELLS = "needs a docstring, and a type hint and a line under Args: for each argument: "
SCHEMA = f"{TELLS}Cannot generate JSON schema for"  # as transformers says it
CANNOT = {
    "NoDocstring": ("silent", f"tool 'silent' {SCHEMA} silent because it has no docstring!"),
    "NoHint": ("untyped", f"tool 'untyped' {TELLS}Argument x is missing a type hint in function"),
    "NoDescription": ("undescribed", f"tool 'undescribed' {SCHEMA} undescribed because the docstr"),
    "Many": ("many", f"tool 'many' {TELLS}argument *x: int cannot be given by name"),
    "NoTools": ("NoTools", "NoTools.tools is (); it must be a list or a tuple of functions or"),
    "Twice": ("Twice", "Twice.tools holds two tools of the name 'look'"),
    "Unknown": ("Unknown", "Unknown.tools holds 'look_up', which is neither a function nor"),
    "Private": ("Private", "Private.tools holds '_look', which is neither a function nor a"),
    "Number": ("Number", "Number.tools holds 3, which is neither a function nor a public method"),
    "Taken": ("Taken", "Taken.end cannot be a tool: ToolEnv itself has this name"),
    "NoReward": ("NoReward", "NoReward.reward is missing: a class with tools must define it"),
    "NoQuestion": ("NoQuestion", "NoQuestion.question returned the observation None; it must be a"),
    "BadReward": ("BadReward", "BadReward.reward returned the reward 'good'; it must be a finite"),
    "BadAnswer": ("BadAnswer", "BadAnswer.answered returned the observation 3; it must be a text"),
}  # fmt: skip


@pytest.fixture
def mistakes(tmp_path, monkeypatch):
    work_in(write(tmp_path, {"own_tools.py": MISTAKES}), monkeypatch)
    yield
    sys.modules.pop("own_tools", None)


@pytest.mark.parametrize(
    ("name", "workers"), [(name, 0) for name in CANNOT] + [("NoDocstring", 1), ("BadReward", 1)]
)
def test_a_mistake_of_the_user_is_one_line(name, workers, mistakes, pool):
    envs = pool(partial(make_env, f"tools:own_tools:{name}"), training_seeds(0, range(1)), workers)
    with pytest.raises(ValueError) as raised:
        envs.reset()
        envs.send(0, "a door")
        envs.poll()
    where, line = CANNOT[name]
    assert str(raised.value).startswith(location("own_tools.py", where) + line)
    assert "\n" not in str(raised.value)


def test_exceptions_in_methods_name_the_users_line(mistakes, pool):
    env = make_env("tools:own_tools:BadPay")
    begin(env, 0)
    with pytest.raises(BrokenContract, match=r"BadPay.pay returned the reward None"):
        act(env, call("buy"))
    envs = pool(partial(make_env, "tools:own_tools:Raises"), training_seeds(0, range(1)))
    with pytest.raises(EnvError, match="IndexError") as raised:
        envs.reset()
    assert location("own_tools.py", "Raises") in str(raised.value)


class Later(ToolEnv):
    """All that a class may define as `async def`."""

    figures = {"asked": 1}

    async def look(self) -> str:
        """Look."""
        return "a lamp"

    tools = (look,)

    async def question(self, seed: int) -> str:
        return "Look."

    async def reward(self, answer: str) -> float:
        return 1.0

    async def succeeded(self, reward: float) -> bool:
        return False

    async def episode_metrics(self) -> dict:
        return self.figures


def test_methods_may_be_async():
    env = Later()
    assert begin(env, 0).text == "Look."
    assert contents(act(env, call("look"))) == ["a lamp"]
    step = act(env, "A lamp.")
    assert (step.reward, step.success, step.metrics["asked"]) == (1.0, False, 1)
    env.figures = None
    begin(env, 0)
    with pytest.raises(BrokenContract, match=r"Later.episode_metrics returned None; it must re"):
        act(env, "A lamp.")
    env.close()


def test_tool_environments_can_be_named_in_three_ways():
    class Ways(ToolEnv):
        def first(self) -> str:
            """First."""
            return f"{type(self).__name__} first"

        @staticmethod
        def second() -> str:
            """Second."""
            return "second"

        def third() -> str:
            """Third, which takes no self."""
            return "third"

        tools = [first, second, third, "fourth", double]

        def fourth(self) -> str:
            """Fourth."""
            return "fourth"

        def question(self, seed):
            return "?"

        def reward(self, answer):
            return 0

    class Below(Ways):
        def first(self) -> str:
            """Another first."""
            return "below"

    for kind, first in ((Ways, "Ways first"), (Below, "below")):
        env = kind()
        begin(env, 0)
        step = act(env, "".join(call(name) for name in ("first", "second", "third", "fourth")))
        assert contents(step) == [first, "second", "third", "fourth"]
        env.close()
    assert Below().template["tools"][0]["function"]["description"] == "Another first."


def test_the_example_of_the_page(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "tools.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    work_in(write(tmp_path, {"lamps_of_the_page.py": example}), monkeypatch)
    env = make_env("tools:lamps_of_the_page:Lamps")
    assert begin(env, 1).system.startswith("You try switches.")
    right = env.unwrapped.right
    step = act(env, call("press", switch=right))
    assert contents(step) == ['{"light": true}'] and step.reward == -0.05
    step = act(env, f"<think>a</think>\n{right}")
    assert (step.reward, step.terminated, step.success) == (1.0, True, True)


def test_the_page_names_every_attribute():
    page = (ROOT / "docs" / "tools.md").read_text()
    for name in ("system", "max_turns", "max_calls", "tool_timeout", "max_result_characters"):
        default = getattr(ToolEnv, name)
        text = f'"{default}"' if isinstance(default, str) else f"{default:g}"
        assert f"| `{name}` | {text} |" in page
