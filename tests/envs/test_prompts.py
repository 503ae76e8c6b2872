"""A user's own prompts: what they put in the place of ours, and mistakes in the file."""

import json
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from arguments import get_args
from envs import make_env
from envs.checks import check_prompts
from envs.games.babyai import ACTIONS, TIPS
from envs.prompts import prompts_of
from envs.text_env import THINK_ACT, act, begin
from envs.variants import make_variant
from recipes import TINY

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "prompts.toml"


def test_the_example_replaces_the_built_in_prompts():
    env = make_variant("babyai-goto", prompts=prompts_of(str(EXAMPLE)))
    first = begin(env, 3)
    mission = env.unwrapped.level.mission
    assert first.system == (
        f"You steer a robot through rooms. It must {mission}, and nothing else counts.\n"
        f"In each turn the robot does one of these things:\n{ACTIONS}.\n{TIPS}"
    )
    assert first.instruction.startswith("Reason briefly") and THINK_ACT not in first.instruction
    plain = begin(make_env("babyai-goto"), 3)
    assert plain.text == first.text and plain.system != first.system  # the game stays as it was


def test_prompts_that_the_file_omits_stay_built_in():
    prompts = prompts_of(str(EXAMPLE))
    ours, theirs = (begin(make_variant("baba-goto_win", prompts=p), 0) for p in (None, prompts))
    assert ours.instruction == theirs.instruction and ours.system != theirs.system
    toys = (begin(make_variant("toy", prompts=p), 0) for p in (None, prompts))
    assert len({(toy.system, toy.instruction) for toy in toys}) == 1


def test_fields_are_filled_anew_in_each_turn():
    env = make_variant(
        "crafter", prompts={"crafter": {"instruction": "Left: {achievements} {0: 1}"}}
    )
    first = begin(env, 0)
    assert first.instruction.startswith("Left: 1. Collect Wood,\n2. Place Table")
    assert first.instruction.endswith("{0: 1}")  # these braces hold no name of a field
    env.unwrapped.world.player.achievements["collect_wood"] = 1
    step = act(env, "ACTION: Noop")
    assert step.observation.instruction.startswith("Left: 1. Place Table")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "prompts.toml: No such file or directory"),
        ("[toy", "is not TOML: "),
        ("system = 'x'", "'system' must stand in a table named after an environment, as [babyai]"),
        ("[toy]", "the table [toy] must have system or instruction, or both"),
        ("[toy]\ntips = 'x'", "[toy] tips is unknown; choices: system, instruction"),
        ("[toy]\nsystem = 3", "[toy] system must be a text"),
    ],
)
def test_an_unusable_file_is_one_line(text, message, tmp_path):
    path = tmp_path / "prompts.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ArgumentTypeError) as error:
        prompts_of(str(path))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "prompts", "message"),
    [
        (
            "toy",
            {"tye": {"system": "x"}},
            "takes [tye]; choices: babyai, baba, crafter, ",
        ),
        ("toy", {"crafter": {"system": "{goal}"}}, "has {goal}; choices: {actions}, {tips}, {ach"),
        ("baba-goto_win", {"toy": {"system": "x"}}, "no [baba] for baba-goto_win in the file"),
        ("tools-shop", {"toy": {"system": "x"}}, "tools-shop takes none, its words are in"),
        ("toy-box:Own-v0", {"toy": {"system": "x"}}, "toy-box:Own-v0 takes none"),
    ],
)
def test_prompts_for_an_environment_without_them_are_refused(name, prompts, message):
    with pytest.raises(ValueError) as error:
        check_prompts(name, prompts)
    assert message in str(error.value)


def test_a_resumed_run_keeps_the_prompts_without_the_file(tmp_path, capsys):
    file, run, model = tmp_path / "own.toml", tmp_path / "run", ["--model", str(TINY)]
    file.write_text("[toy]\nsystem = 'Say {actions}.'")
    args = get_args(["--env-name", "toy", "--prompts", str(file), *model])
    run.mkdir()  # as run.directory writes it
    (run / "args.json").write_text(json.dumps({"args": vars(args)}, default=str))
    file.unlink()
    again = get_args(["--resume", str(run), "--eval-only"])
    assert again.prompts == args.prompts == {"toy": {"system": "Say {actions}."}}
    file.write_text("[toy]\nsystem = 'Other words.'")
    changed = get_args(["--resume", str(run), "--prompts", str(file)])
    assert changed.prompts == {"toy": {"system": "Other words."}}
