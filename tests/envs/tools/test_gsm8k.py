"""GSM8K: rows and their split, answers right and wrong, what checking costs, a safe calculator."""

import json
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import make_lm, make_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils import get_json_schema

import arguments
import main
from arguments import get_args
from envs import make_env
from envs.text_env import act, begin
from envs.tools.arithmetic import evaluate
from envs.tools.gsm8k import GSM8K
from envs.tools.gsm8k_rows import number_of, source
from memory import make_memories
from memory.checks import make_render
from models.embedded import CHAT_TEMPLATE
from ppo.engines.contract import Engine
from ppo.model.pretrained import load_lm
from reports import viewer

DATA = str(Path(__file__).parents[2] / "data" / "gsm8k.jsonl")  # twelve rows
PENS = 2  # the third row that trains, which seed 4 plays: "17 pens and 25 more"
ANSWER = "42"


def call(name: str, **arguments) -> str:
    tool_call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{tool_call}\n</tool_call>"


def check(answer: str) -> str:
    return call("calc_gsm8k_reward", answer=answer)


def played(*responses: str, seed=2 * PENS) -> list:
    env = make_env("gsm8k", data=DATA)
    assert begin(env, seed).messages
    return [act(env, response) for response in responses]


# ---- an episode ---------------------------------------------------------------------------------


def test_a_problem_that_is_solved():
    env = make_env("gsm8k", data=DATA)
    [question] = begin(env, 2 * PENS).messages
    assert question["content"] == "Lea has 17 pens and buys 25 more. How many pens has she?"
    steps = [act(env, text) for text in (call("calculate", expression="17 + 25"), check(ANSWER))]
    results = [step.observation.messages[0] for step in steps]
    assert [(m["role"], m["content"]) for m in results] == [("tool", "42"), ("tool", "1.0")]
    assert [step.reward for step in steps] == [0, 0] and not any(step.done for step in steps)
    last = act(env, "She has 42 pens.\n#### 42")
    assert (last.reward, last.terminated, last.success) == (1, True, True)


def test_a_wrong_answer_ends_the_episode_without_reward():
    [step] = played("#### 43")
    assert (step.reward, step.terminated, step.success) == (0, True, False)


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        # an answer is worth 1 or 0, and before the first there is 0: only 0 -> 1 is better
        (["42"], [0]),
        (["41"], [-0.05]),
        (["41", "43", "42"], [-0.05, -0.05, 0]),
        (["42", "42"], [0, -0.05]),
        (["42", "41", "42"], [0, -0.05, 0]),
        (["no number"], [-0.05]),
    ],
)
def test_the_cost_of_checking_answers(answers, rewards):
    steps = played(*map(check, answers))
    assert [step.reward for step in steps] == pytest.approx(rewards)
    results = [step.observation.messages[0]["content"] for step in steps]
    assert results == ["1.0" if answer == "42" else "0.0" for answer in answers]


def test_two_checks_in_one_message_cost_both():
    [step] = played(check("1") + "\n" + check("2"))
    assert step.reward == pytest.approx(-0.1)
    assert [m["content"] for m in step.observation.messages] == ["0.0", "0.0"]


def test_a_new_episode_forgets_the_last_score():
    env = make_env("gsm8k", data=DATA)
    for _ in range(2):
        begin(env, 2 * PENS)
        assert act(env, check("42")).reward == 0


def test_a_calculator_that_cannot_calculate_says_why():
    [step] = played(call("calculate", expression="exit()"))
    [result] = step.observation.messages
    assert "'exit' is not arithmetic" in result["content"] and result["content"].startswith("Error")


def test_the_system_message_names_the_tools_and_the_form_of_the_answer():
    now = begin(make_env("gsm8k", data=DATA), 0)
    assert all(word in now.system for word in ("calculate", "calc_gsm8k_reward", "#### 42"))
    wanted = [get_json_schema(getattr(GSM8K, name)) for name in GSM8K.tools]
    assert [tool["function"] for tool in now.template["tools"]] == [t["function"] for t in wanted]


# ---- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 42", 42),
        ("#### $1,250.00.", 1250),
        ("#### 7 of 9 pens", 7),
        ("first #### 1, no:\n#### 2", 2),
        ("ANSWER: 42. I am sure of all 3 steps.", 42),
        ("**Answer:** -3", -3),
        ("Answer: 1\n#### 2", 2),
        ("There are 3 boxes with 4 each, so 12.", 12),
        ("it costs $.50", Decimal("0.5")),
        ("-$5", -5),
        ("10-5", 5),
        ("- 5 pens", 5),
        ("−5", -5),
        ("1,2,3", 3),
        ("1,000,000", 10**6),
        ("<think>#### 1</think>it is 2", 2),
        ("#### unknown, perhaps", None),
        ("no idea", None),
        ("", None),
    ],
)
def test_the_number_of_an_answer(text, number):
    assert number_of(text) == number


@given(
    st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "{}.0", "{:,}.00.", "#### {}"])
)
def test_a_number_is_found_however_it_is_written(number, form):
    assert number_of(form.format(number)) == number


@pytest.mark.parametrize("text", ["9" * 10**5, "1," * 10**5, "-$" * 10**5, "answer:" * 10**5])
def test_long_texts_are_read(text):
    number_of(text)


# ---- rows ---------------------------------------------------------------------------------------


def test_evaluation_and_training_share_no_row():
    row = source(DATA)
    panel = [row(2 * k + 1) for k in range(12)]
    training = {row(2 * k) for k in range(100)}
    rows = [json.loads(line)["question"] for line in Path(DATA).read_text().splitlines()]
    # of twelve rows the panel has the first and the eleventh, in turn
    assert [question for question, _ in panel] == [rows[0], rows[10]] * 6
    assert training.isdisjoint(panel) and len(training) == 10
    assert row(3) == row(3) and row(3)[1] == Decimal("42")


def broken(tmp_path, content: str | bytes, name="rows.jsonl") -> str:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


GOOD = '{"question": "1 + 1?", "answer": "#### 2"}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no row"),
        ("\n\n", "holds no row"),
        (GOOD, "holds one row"),
        (GOOD + "\n{", "line 3: this is not JSON"),
        (GOOD + "[1]", 'line 2: a row needs a "question" and an "answer"'),
        (GOOD + '{"question": "1 + 1?"}', 'line 2: a row needs a "question" and an "answer"'),
        (GOOD + '{"question": "1 + 1?", "answer": 2}', "which are texts"),
        (GOOD + '{"question": " ", "answer": "#### 2"}', "which are texts"),
        (GOOD + '{"question": "1 + 1?", "answer": "2"}', 'line 2: the answer must end in "#### N"'),
        (GOOD + '{"question": "1 + 1?", "answer": "#### two"}', "where N is a number"),
        (b"\xff\xfe" + GOOD.encode("utf-16-le"), "is not a text in UTF-8"),
    ],
)
def test_bad_rows_are_reported_in_one_line_before_a_run_begins(tmp_path, capsys, content, message):
    path = broken(tmp_path, content)
    with pytest.raises(SystemExit):
        get_args(["--env-name", "gsm8k", "--data", path])
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"main.py: error: --data {path}") and message in line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--env-name gsm8k --data /nowhere/rows.jsonl",
            "/nowhere/rows.jsonl: there is no such file",
        ),
        ("--env-name gsm8k --data .", "there is no such file"),
        ("--env-name toy --data rows.jsonl", "toy takes none; those that do: gsm8k"),
        ("--env-name mine:Own-v0 --data rows.jsonl", "mine:Own-v0 takes none"),
    ],
)
def test_invalid_values_of_data(capsys, flags, message):
    with pytest.raises(SystemExit):
        get_args(flags.split())
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("main.py: error: --data") and message in line


def test_lines_end_at_newlines_alone(tmp_path):
    # JSON may hold other characters that end lines elsewhere
    row = json.dumps(dict(question="one\u2028two?", answer="#### 2"), ensure_ascii=False)
    assert source(broken(tmp_path, f"\ufeff{row}\r\n{row}"))(0)[0] == "one\u2028two?"


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in Path(DATA).read_text().splitlines()]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert source(str(tmp_path / "rows.parquet"))(4) == source(DATA)(4)
    parquet.write_table(arrow.Table.from_pylist([{"question": "1?"}]), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match="bad.parquet, row 1: a row needs"):
        source(str(tmp_path / "bad.parquet"))


def test_a_file_that_is_not_parquet(tmp_path):
    path = broken(tmp_path, "no", "rows.parquet")
    with pytest.raises(ValueError, match="is not a parquet file|needs the package pyarrow"):
        source(path)


def test_without_reasoning_gym_a_line_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(SystemExit):
        get_args(["--env-name", "gsm8k"])
    [line] = capsys.readouterr().err.splitlines()
    assert "pip install -e .[reasoning-gym]" in line and "--data" not in line.split("gsm8k")[0]


def test_rows_of_reasoning_gym():
    pytest.importorskip("reasoning_gym")
    row = source(None)
    assert row(6) == row(6)
    assert len({row(seed) for seed in range(50)}) == 50
    assert all(isinstance(answer, Decimal) for _, answer in map(row, range(50)))


def test_the_defaults_of_the_family():
    args = get_args(["--env-name", "gsm8k", "--data", DATA, "--model", "no/real-model"])
    assert args.memory_length == GSM8K.max_turns and args.prompt_limit == 3072
    assert (args.response_limit, args.data) == (512, DATA)


def test_without_a_gpu_the_default_model_lists_its_tools(monkeypatch):
    monkeypatch.setattr(arguments, "has_gpu", lambda quick: False)
    args = get_args(["--env-name", "gsm8k", "--data", DATA])
    tokenizer = load_lm(args.model, "cpu")[1]
    memories = make_memories(args.environment, [(begin(make_env("gsm8k", data=DATA), 0), [])])
    make_render(args.environment, args.prompt_limit, tokenizer, memories)  # refuses, if it does not


# ---- the calculator -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("6*7", "42"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("7 / 2", "3.5"),
        ("7 // 2", "3"),
        ("1 / 3", "0.333333333333"),
        ("0.1 + 0.2", "0.3"),
        ("2 ** 10", "1024"),
        ("2 ** -1", "0.5"),
        ("2 ** 0.5", "1.41421356237"),
        ("-2 ** 2", "-4"),
        ("-" * 299 + "1", "-1"),
        ("((((((((((1))))))))))", "1"),
        ("$1,250 × 2", "2500"),
        ("1e3", "1000"),
        ("10 ** 20", "1" + "0" * 20),
    ],
)
def test_arithmetic(expression, value):
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("__import__('os').system('ls')", "is not arithmetic"),
        ("abs(1)", "is not arithmetic"),
        ("True", "is not arithmetic"),
        ("'a' * 10**9", "is not arithmetic"),
        ("e", "'e' is not arithmetic"),
        ("1 + exp(2)", "'exp' is not arithmetic"),
        ("2(3)", "no arithmetic expression"),
        ("()", "no arithmetic expression"),
        ("1 +", "no arithmetic expression"),
        ("", "no arithmetic expression"),
        ("1 \n 2", "no arithmetic expression"),
        ("1\0", "is not arithmetic"),
        ("1, 2", "is not arithmetic"),
        ("5 % 2", "is not arithmetic"),
        ("1 / 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("((9 ** 99) ** 9) ** 9", "too large"),
        ("9 ** 9 ** 9 ** 9 ** 9", "too large"),
        ("0.1 ** 10 ** 9", "too large"),
        ("1e999", "too large"),
        ("(-8) ** 0.5", "no such root"),
        ("1" * 301, "longer than 300"),
        ("9" * 10**6, "longer than 300"),
    ],
)
def test_expressions_that_have_no_value(expression, message):
    with pytest.raises(ValueError, match=message):
        evaluate(expression)


@given(st.text(alphabet="0123456789.eE+-*/() ", max_size=40))
def test_any_expression_has_a_value_or_an_error(text):
    try:
        assert len(evaluate(text)) < 2000
    except ValueError as error:
        assert 5 < len(str(error)) < 100


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_a_value_is_exact_in_twelve_digits(a, b):
    assert abs(float(evaluate(f"({a}) / {b}")) - a / b) <= 1e-11 * abs(a / b)


# ---- a run --------------------------------------------------------------------------------------

SAID = (
    "<think>I add</think>" + call("calculate", expression="17 + 25"),
    check("41") + check("42"),
    "#### 42",
)
PLAY = f"""--env-name gsm8k --data {DATA} --engine test_gsm8k:Speaker --prompt-limit 8192 --n-env 2
--eval-episodes 2"""
FLAGS = f"{PLAY} --e-len 3 --minibatch 6 --num-updates 1 --w-epoch 0 --eval-interval 0"


class Speaker(Engine):
    """Says the same in the first, second and third turn of every episode."""

    def submit(self, slot, prompt, seed):
        self.queue[slot] = prompt, SAID[seed[2] % 3]

    def step(self):
        asked, self.queue = self.queue, {}
        return [(slot, self.say(prompt, text)) for slot, (prompt, text) in asked.items()]

    def say(self, prompt, text):
        ids = [*self.tokenizer(text, add_special_tokens=False)["input_ids"], min(self.ends)]
        return self.response(prompt, ids, [-1.0] * len(ids))

    def push_weights(self, actor_critic):
        pass


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A random one that reads characters, with the chat template of embedded models."""
    path, tokenizer = tmp_path_factory.mktemp("model"), make_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    make_lm(std=0.05).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def test_training_logs_calls_and_results(model, tmp_path, capsys):
    run = tmp_path / "run"
    assert main.program([*FLAGS.split(), "--model", model, "--run-dir", str(run)]) == 0
    turns = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    assert [turn["step"] for turn in turns] == [1, 2, 3] * 2
    for first, second, third in (turns[:3], turns[3:]):
        [calculated] = first["followed"]
        assert (calculated["role"], calculated["content"]) == ("tool", "42")
        assert "<|im_start|>tool\n42" in second["prompt"] and "17 + 25" in second["prompt"]
        right = third["reward"] == 1
        assert [message["content"] for message in second["followed"]] == ["0.0", f"{right:.1f}"]
        assert second["reward"] == pytest.approx(-0.05 if right else -0.1)
        assert third["terminated"] and third["success"] == right
    capsys.readouterr()
    assert viewer.main([str(run), "--env", "0"]) == 0
    output = capsys.readouterr().out
    assert '-> calculate(expression="17 + 25")\n   <- calculate: 42\n' in output
    assert "   reasoning:\n<think>I add</think>\n" in output


def test_the_evaluation_counts_calls(model, tmp_path, capsys):
    run = tmp_path / "run"
    flags = [*PLAY.split(), "--model", model, "--run-dir", str(run), "--eval-only"]
    assert main.program(flags) == 0
    # two episodes of three turns with answers 7 and 42: two calculations and four checks
    assert json.loads((run / "eval.jsonl").read_text())["eval/success"] == 0.5
    assert json.loads((run / "zero_shot.json").read_text())["actions"] == pytest.approx(
        {"calc_gsm8k_reward": 4 / 6, "calculate": 2 / 6, "message without a call": 2 / 6}
    )
    assert "tool calls per turn: `calc_gsm8k_reward` 0.667" in capsys.readouterr().out
