"""What the run remembers against what real chat templates write of it.

The templates are read from the package trl, which ships those of many models.
"""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

import memory
from common.chat import Chat
from envs.text_env import Observation, Step
from memory.checks import make_render
from memory.render import Renderer
from memory.thoughts import ThoughtMemory
from models.embedded import CHAT_TEMPLATE

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"
ARGUMENT = {"type": "object", "properties": {"word": {"type": "string", "description": "a word"}}}
LOOK = dict(name="look", description="Look it up.", parameters=ARGUMENT | {"required": ["word"]})
TOOLS = {"tools": [{"type": "function", "function": LOOK}]}
THOUGHT = "<think>\nIt may be in the book.\n</think>\n\n"
KEEPS, REMOVES = "keeps thoughts", "removes the reasoning of earlier turns"
NO_TOOLS = "does not list tools"
TEMPLATES = {
    # what the template does with thoughts before a user's message, and before a tool's result
    "qwen2_5": (KEEPS, KEEPS),
    "qwen3": (REMOVES, KEEPS),
    "qwen3_5_think": (REMOVES, KEEPS),
    "qwen3_5_nothink": (KEEPS, KEEPS),  # it ends the thought before the response begins
    "llama3_1": (KEEPS, REMOVES),  # it drops all words before a call
    "llama3_2": (KEEPS, REMOVES),
    "deepseek_r1_distill": (REMOVES, NO_TOOLS),
    "deepseekv3": (REMOVES, NO_TOOLS),
}
OPENED = {name: "<think>\n" for name in ("qwen3_5_think", "deepseek_r1_distill", "deepseekv3")}


def tokenizer_of(name: str):
    found = importlib.util.find_spec("trl")
    if found is None:
        pytest.skip("the package trl is not installed")
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.bos_token = "<|endoftext|>"
    folder = Path(found.submodule_search_locations[0]) / "chat_templates"
    tokenizer.chat_template = (folder / f"{name}.jinja").read_text()
    return tokenizer


# SmolLM2's own, and ours, which also writes tools
SMOLLM2 = """\
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
OURS = (TINY.parent / "smollm2.jinja").read_text()


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "Be brief. "}]])
@pytest.mark.parametrize("generates", [True, False])
def test_our_template_for_smollm2_is_its_own_where_there_are_no_tools(system, generates):
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    roles = ("user", "assistant", "user")
    chat = [*system, *({"role": role, "content": f" {role}\n"} for role in roles)]
    own, ours = (
        tokenizer.apply_chat_template(
            chat, chat_template=text, tokenize=False, add_generation_prompt=generates
        )
        for text in (SMOLLM2, OURS)
    )
    assert own == ours


def test_our_template_for_smollm2_writes_tools_calls_and_results():
    tokenizer, kept = AutoTokenizer.from_pretrained(TINY), memory.make("full", 0)
    tokenizer.chat_template = OURS
    kept.reset(asked(True))
    environment = SimpleNamespace(history_thinking="keep", memory="full")
    render = make_render(environment, 5000, tokenizer, [kept])  # its checks pass
    kept.update(called(["fjord", "island"]))
    prompt = render.write(kept.messages(), TOOLS)
    call = '<tool_call>\n{"name": "look", "arguments": {"word": "%s"}}\n</tool_call>'
    assert f"I look.\n{call % 'fjord'}\n{call % 'island'}<|im_end|>\n" in prompt
    assert "<|im_start|>user\n<tool_response>\nisland is a word\n</tool_response>" in prompt
    assert prompt.count('"Look it up."') == 1


def asked(tools: bool) -> Observation:
    opening = {"role": "user", "content": "What is a fjord?"}
    return Observation("What?", "What?", "Be brief.", "", (opening,), TOOLS if tools else {})


def called(words: list[str], thought: str = THOUGHT) -> Step:
    """A turn that looks words up, and their results."""
    named = [{"name": "look", "arguments": {"word": word}} for word in words]
    calls = [{"type": "function", "function": call} for call in named]
    reply = {"role": "assistant", "content": f"{thought}I look.", "tool_calls": calls}
    results = tuple({"role": "tool", "content": f"{word} is a word"} for word in words)
    seen = Observation("results", "results", "Be brief.", "", results, TOOLS)
    ends = dict(reward=0.0, terminated=False, truncated=False, success=False)
    text = dict(response="...", kept_response="...", action="look", valid=True, action_at=0)
    return Step(**text, **ends, observation=seen, reply=reply)


def probed(name: str, tools: bool, thinking: str, **template):
    first = asked(tools)
    remembered = memory.make("full", 0)
    remembered.reset(first)
    environment = SimpleNamespace(history_thinking=thinking, memory="full")
    return make_render(environment, 5000, tokenizer_of(name), [remembered])


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_template_and_flag_must_agree(name, tools):
    does = TEMPLATES[name][tools]
    if does == KEEPS:
        probed(name, tools, "keep")
    else:
        with pytest.raises(ValueError, match=does) as raised:
            probed(name, tools, "keep")
        assert "\n" not in str(raised.value)
    if does == NO_TOOLS:
        with pytest.raises(ValueError, match=NO_TOOLS):
            probed(name, tools, "strip")
    else:
        probed(name, tools, "strip")


@pytest.mark.parametrize("role", ["system", "tool"])
def test_a_template_that_refuses_a_role_is_one_line(role):
    tokenizer, first = tokenizer_of("qwen2_5"), memory.make("full", 0)
    first.reset(asked(True))
    refuses = f"{{% if m.role == '{role}' %}}{{{{ raise_exception('no\\n{role}') }}}}{{% endif %}}"
    each = "{%- for m in messages %}"
    assert each in CHAT_TEMPLATE
    tokenizer.chat_template = CHAT_TEMPLATE.replace(each, each + refuses)
    environment = SimpleNamespace(history_thinking="keep", memory="full")
    with pytest.raises(ValueError, match=rf"^the model's chat template refuses .*: no {role}$"):
        make_render(environment, 5000, tokenizer, [first])


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_thought_opened_by_the_template_belongs_to_the_response(name):
    assert probed(name, False, "strip")(asked(False).messages).opened == OPENED.get(name, "")


@pytest.mark.parametrize("name", [n for n in TEMPLATES if TEMPLATES[n][1] != NO_TOOLS])
@pytest.mark.parametrize("thinking", ["keep", "strip"])
def test_ids_are_the_templates_own_rendering(name, thinking):
    # What production sends: the same messages and tools through apply_chat_template.
    tokenizer = tokenizer_of(name)
    remembered = ThoughtMemory(memory.make("full", 0), thinking == "keep")
    remembered.reset(asked(True))
    steps = [called(["fjord"]), called(["ria"]), called(["lake"])]
    for step in steps:
        remembered.update(step)
    messages = [{"role": "system", "content": "Be brief."}, *asked(True).messages]
    for step in steps:
        shown = step.reply["content"] if thinking == "keep" else "I look."
        messages += [step.reply | {"content": shown}, *step.observation.messages]
    assert remembered.messages() == messages
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, **TOOLS)["input_ids"]
    # Llama 3.2 prints today's date, unless it is told another one.
    dated = dict(date_string="26 Jul 2024") if name == "llama3_2" else {}
    if dated:
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, **TOOLS, **dated)[
            "input_ids"
        ]
    assert Renderer(tokenizer, 5000)(remembered.messages()).ids == ids


@pytest.mark.parametrize("name", ["qwen2_5", "llama3_1"])
def test_several_calls_in_one_message(name):
    remembered = memory.make("full", 0)
    remembered.reset(asked(True))
    remembered.update(called(["fjord", "ria"], thought=""))
    tokenizer = tokenizer_of(name)
    text = tokenizer.decode(Renderer(tokenizer, 5000)(remembered.messages()).ids)
    places = [text.index(f'{{"word": "{word}"}}') for word in ("fjord", "ria")]
    results = [text.index(f"{word} is a word") for word in ("fjord", "ria")]
    if name == "llama3_1":  # it takes one call per message: each stands before its result
        assert places[0] < results[0] < places[1] < results[1]
    else:
        assert places[0] < places[1] < results[0] < results[1]


@pytest.mark.parametrize("name", [name for name in memory.MEMORIES if name != "verbatim"])
def test_a_call_and_its_result_stay_together_in_every_memory(name):
    remembered = memory.make(name, 2)
    remembered.reset(asked(True))
    for t in range(7):
        chat = remembered.messages()
        assert chat[:2] == [{"role": "system", "content": "Be brief."}, *asked(True).messages]
        roles = [message["role"] for message in chat[2:]]
        assert roles == ["assistant", "tool", "tool"] * (len(roles) // 3)
        words = [m["tool_calls"][k]["function"]["arguments"]["word"]
                 for m in chat[2:] if m["role"] == "assistant" for k in (0, 1)]  # fmt: skip
        results = [m["content"].split()[0] for m in chat[2:] if m["role"] == "tool"]
        assert words == results
        # Without its wrapper nobody asks for a summary.
        kept = {"full": t, "summary": t, "periodic": (t - 1) % 2 + 1 if t else 0}.get(
            name, min(t, 3)
        )
        assert len(roles) == 3 * kept
        remembered.update(called([f"a{t}", f"b{t}"]))


def test_the_prompt_limit_drops_calls_with_their_results():
    tokenizer, remembered = tokenizer_of("qwen2_5"), memory.make("window", 9)
    remembered.reset(asked(True))
    for t in range(6):
        remembered.update(called([f"w{t}"], thought=""))
    chat = remembered.messages()
    lengths = [len(Renderer(tokenizer, 9999)(Chat(chat.head, chat.turns[5 - n :], chat.now,
               chat.template)).ids) for n in range(6)]  # fmt: skip
    for n in range(5):
        prompt = Renderer(tokenizer, lengths[n + 1] - 1)(chat)
        assert prompt.overflow and not prompt.shortened and len(prompt.ids) == lengths[n]
        text = tokenizer.decode(prompt.ids)
        assert "What is a fjord?" in text
        for t in range(6):
            shown = t >= 5 - n
            assert (f'"w{t}"' in text) == (f"w{t} is a word" in text) == shown


def test_a_huge_result_loses_its_middle():
    tokenizer, remembered = tokenizer_of("qwen2_5"), memory.make("full", 0)
    remembered.reset(asked(True))
    step = called(["w"], thought="")
    results = ({"role": "tool", "content": "w" * 3000},)
    remembered.update(replace(step, observation=replace(step.observation, messages=results)))
    prompt = Renderer(tokenizer, 1500)(remembered.messages())
    text = tokenizer.decode(prompt.ids)
    assert prompt.shortened and len(prompt.ids) == 1500
    assert "characters are left out here" in text and '{"word": "w"}' in text


def test_two_huge_results_both_lose_their_middles():
    tokenizer, remembered = tokenizer_of("qwen2_5"), memory.make("full", 0)
    remembered.reset(asked(True))
    step = called(["v", "w"], thought="")
    results = tuple({"role": "tool", "content": word * 3000} for word in "vw")
    remembered.update(replace(step, observation=replace(step.observation, messages=results)))
    prompt = Renderer(tokenizer, 1500)(remembered.messages())
    text = tokenizer.decode(prompt.ids)
    assert prompt.shortened and 1490 < len(prompt.ids) <= 1500
    assert text.count("characters are left out here") == 2 and '{"word": "w"}' in text
    assert "What is a fjord?" in text and abs(text.count("v") - text.count("w")) < 60


def test_a_huge_call_goes_with_its_result():
    tokenizer, remembered = tokenizer_of("qwen2_5"), memory.make("full", 0)
    remembered.reset(asked(True))
    opening = Renderer(tokenizer, 1500)(remembered.messages())
    remembered.update(called(["w" * 3000], thought=""))
    prompt = Renderer(tokenizer, 1500)(remembered.messages())
    assert prompt.shortened and prompt.ids == opening.ids


@pytest.mark.parametrize(
    "text, kept, stripped",
    [
        ("ACTION: go", "ACTION: go", "ACTION: go"),
        ("<think>\na\n</think>\n\nb", "<think>\na\n</think>\n\nb", "b"),
        ("so <think>a</think> b", "so <think>a</think> b", "so b"),
        ("<think>\na", "<think>\na\n</think>", ""),  # the response limit cut it
        ("a</think>b", "a</think>b", "b"),
    ],
)
def test_thoughts_in_the_history(text, kept, stripped):
    for thoughts, shown in ((True, kept), (False, stripped)):
        remembered = ThoughtMemory(memory.make("window", 1), thoughts)
        observation = Observation("now", "was", "rules", "Answer!")
        remembered.reset(observation)
        ends = dict(reward=0.0, terminated=False, truncated=False, success=False)
        turn = dict(response=text, kept_response=text, action="go", valid=True, action_at=0)
        remembered.update(Step(**turn, **ends, observation=observation))
        assert remembered.messages()[2] == {"role": "assistant", "content": shown}
