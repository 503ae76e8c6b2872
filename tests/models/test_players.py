"""The scripted players: without mistakes they win, and their responses are valid and short."""

import importlib
import re

import numpy as np
import pytest
from transformers import AutoTokenizer

from memory.render import Renderer
from models.demonstrations import demonstrations
from models.players import PLAYERS, babaisai, babyai, calculator, crafter
from models.players.crafter import Sight
from models.players.repeats import unchanged
from recipes import MODELS

BABA = ("babaisai", "babaisai-memory")


def play(player, episodes):
    """(text, learnt, executed, info after it) of every turn."""
    turns = []
    for seed in range(episodes):
        text, _ = player.env.reset(seed=seed)
        player.start()
        done = False
        while not done and (responses := player.respond(text)) is not None:
            seen = text
            text, _, terminated, truncated, info = player.env.step(responses[1])
            turns.append((seen, *responses, info))
            done = terminated or truncated
    return turns


def make(family, task, **given):
    return importlib.import_module(PLAYERS[family]).Player(task, np.random.default_rng(0), **given)


@pytest.mark.parametrize("task", babaisai.TASKS)
def test_without_mistakes_it_wins_every_baba_level(task):
    turns = play(make("babaisai", task), 20)
    assert sum(info["success"] for *_, info in turns) == 20


def test_the_way_in_baba_is_a_shortest_one():
    # baba at (1, 3), ball at (3, 2) of an 8x8 room, nothing between: 2 to the right and 1 up
    rules = [[1, 1, ["noun:ball"]], [2, 1, ["is"]], [3, 1, ["prop:win"]]]
    rules += [[1, 6, ["noun:baba"]], [2, 6, ["is"]], [3, 6, ["prop:you"]]]
    cells = [*rules, [1, 3, ["obj:baba"]], [3, 2, ["obj:ball:red"]]]
    level = babaisai.Level.from_cells(8, 8, cells)
    plan = babaisai.search(level)
    assert sorted(plan) == ["right", "right", "up"]
    cell = babaisai.target(level, plan)
    assert cell == 2 * 8 + 3
    assert babaisai.thought(level, cell) == "go to ball 2 steps to the right and 1 step up."


def test_a_block_in_the_way_of_baba_is_pushed_first():
    # walls fill column 4, baba at (3, 3) is below `stop` at (3, 2): up breaks `wall is stop`, then
    # from (3, 2) to the ball at (5, 3) 2 to the right and 1 down
    rules = [[5, 4, ["noun:ball"]], [5, 5, ["is"]], [5, 6, ["prop:win"]]]
    rules += [[1, 6, ["noun:baba"]], [2, 6, ["is"]], [3, 6, ["prop:you"]]]
    rules += [[1, 2, ["noun:wall"]], [2, 2, ["is"]], [3, 2, ["prop:stop"]]]
    walls = [[4, y, ["obj:wall"]] for y in range(1, 7)]
    cells = [*rules, *walls, [3, 3, ["obj:baba"]], [5, 3, ["obj:ball:red"]]]
    level = babaisai.Level.from_cells(8, 8, cells)
    plan = babaisai.search(level)
    assert plan[0] == "up" and sorted(plan[1:]) == ["down", "right", "right"]
    reasoning = babaisai.thought(level, babaisai.target(level, plan))
    assert reasoning == "push rule `stop` 1 step up."


def test_a_shy_baba_player_waits_in_front_of_the_winning_object():
    turns = play(make("babaisai", "goto_win", shy=1.0), 2)
    assert not any(info["success"] for *_, info in turns)
    # 100 turns each; a level that starts n steps away has n - 1 turns before it only waits
    assert sum("ACTION: idle" in learnt for _, learnt, _, _ in turns) > 180


def test_a_baba_player_waits_at_most_arrivals_and_once_it_waits_goes_on():
    """About half of the arrivals win. In one of nine levels it starts there, and waits too."""
    learns = dict.fromkeys(("ball", "key", "door"), 3)
    player = make("babaisai-memory", "goto_win", shy=0.5, learns=learns)
    player.memory_length = 1  # fewer turns than it waits for
    turns = play(player, 100)
    assert 30 < sum(info["success"] for *_, info in turns) < 60
    waiting = [learnt for _, learnt, _, _ in turns if "I saw this once before." in learnt]
    assert waiting and all("ACTION: idle" in learnt for learnt in waiting)


def test_a_baba_players_slips_are_in_later_prompts_and_never_learnt():
    task = "two_room-goto_win"
    turns = play(make("babaisai-memory", task, shy=1.0, slip=0.4, learns={"ball": 1}), 3)
    assert len(turns) > 200
    wrong = 0
    for text, learnt, shown, _ in turns:
        right, stated = (words.split("\n")[0].split(" I saw")[0] for words in (learnt, shown))
        pattern = r"THINK: go to (\w+) (.*)\."
        (noun, place), (stated_noun, stated_place) = (
            re.fullmatch(pattern, words).groups() for words in (right, stated)
        )
        assert f"\n{noun} {place}\n" in f"{text}\n" and stated_noun == noun
        assert f" {stated_place}\n" in f"{text}\n"  # where something is
        wrong += stated_place != place
    assert 0.3 < wrong / len(turns) < 0.45


@pytest.mark.parametrize(("length", "waited"), [(2, None), (3, 3), (4, 3)])
def test_a_shy_baba_player_waits_until_it_has_seen_the_same_often_enough(length, waited):
    """With a memory of fewer turns than it waits for, it waits for ever."""
    learns = dict.fromkeys(("ball", "key", "door"), 3)
    player = make("babaisai-memory", "goto_win", shy=1.0, learns=learns)
    player.memory_length = length
    turns = play(player, 1)
    idle = [learnt for _, learnt, _, _ in turns if "ACTION: idle" in learnt]
    assert turns[-1][-1]["success"] == (waited is not None)
    assert waited in (None, len(idle))
    assert f"I saw this {min(length, 3)} times before." in turns[-1][1]


def test_without_a_prompt_that_shows_turns_a_baba_player_remembers_nothing():
    given = dict(shy=1.0, noise=0.05, stray=0.3)
    turns = demonstrations(make("babaisai", "goto_win", **given), 2, seed=0)
    player = make("babaisai-memory", "goto_win", learns={"key": 1}, **given)
    assert demonstrations(player, 2, seed=0) == turns


SIGHT = """\
Your status:
- health: 9/9
- food: 9/9
- drink: {drink}/9
- energy: 9/9

Your inventory:
- wood: {wood}
- wood_pickaxe: 1
You see:
- water 4 steps to your west
- stone 2 steps to your north-east
- table 2 steps to your {where}

You face grass at your front."""


@pytest.mark.parametrize(
    ("drink", "wood", "where", "at_once", "wanted"),
    [
        (4, 1, "south", None, "water"),  # thirsty
        (5, 1, "south", None, "table"),  # wood for a sword, and two steps straight is not near
        (5, 1, "south-east", "Make Wood Sword", "table"),  # one cell away across a corner
        (5, 0, "south", None, "tree"),  # nothing to make a sword of
    ],
)
def test_the_aims_of_a_crafter_player(drink, wood, where, at_once, wanted):
    sight = Sight(SIGHT.format(drink=drink, wood=wood, where=where))
    assert sight.seen["stone"] == (2, "north-east") and sight.front == "grass"
    assert sight.at_once(missing=set()) == at_once
    assert sight.wanted(missing=set()) == wanted


@pytest.mark.parametrize("seed", [1000, 1003])
def test_without_mistakes_it_makes_progress_in_crafter(seed):
    player = make("crafter", "crafter", max_steps=150)
    text, _ = player.env.reset(seed=seed)
    player.start()
    done = False
    while not done:
        text, _, terminated, truncated, _ = player.env.step(player.respond(text)[1])
        done = terminated or truncated
    easy = {"collect_wood", "place_table", "collect_sapling", "place_plant", "make_wood_pickaxe"}
    assert easy <= player.env.world.unlocked


def test_a_clumsy_crafter_player_walks_on_but_makes_progress():
    turns = play(make("crafter", "crafter", clumsy=1.0, max_steps=60), 1)
    used = [learnt for _, learnt, response, _ in turns if response.endswith("ACTION: Do")]
    assert len(used) > 5 and all("ACTION: Move " in learnt for learnt in used)


def test_without_mistakes_it_works_out_every_sum():
    # each step takes a turn and the answer another one
    turns = play(make("calculator", "calculator"), 30)
    answers = [info["success"] for _, response, _, info in turns if "ANSWER" in response]
    assert answers == [True] * 30
    assert not any(seen.startswith("Error") for seen, *_ in turns)


@pytest.mark.parametrize(
    ("failing", "turns_left"),
    # early: the last of n steps is left out. skips: all but the last of n steps are skipped, one in
    # two: of n = 2, 3, 4 steps 1, 2 and 2 are done
    [("early", lambda n: n - 1), ("skips", lambda n: n - n // 2)],
)
def test_a_calculator_player_leaves_out_steps(failing, turns_left):
    player = make("calculator", "calculator", **{failing: 1.0})
    for seed in range(10):
        text, _ = player.env.reset(seed=seed)
        player.start()
        calls = 0
        while "ANSWER" not in (response := player.respond(text)[1]):
            text = player.env.step(response)[0]
            if text.startswith("Error"):
                break  # what it left out makes the rest impossible
            calls += 1
        else:
            assert calls == turns_left(len(player.env.chain))


def test_a_calculator_player_adds_where_its_thought_says_otherwise():
    turns = play(make("calculator", "calculator", adds=1.0), 5)
    calls = [learnt for _, learnt, _, _ in turns if "<tool_call>" in learnt]
    assert any("is to subtract." in response for response in calls)
    assert all('"operation": "add"' in response for response in calls)


def test_a_number_is_one_token_behind_a_passage():
    """A number of two tokens, or one behind a common token, would be hard to copy."""
    tokenizer = AutoTokenizer.from_pretrained(MODELS / "tiny-calculator")
    render = Renderer(tokenizer, 1024)
    turns = demonstrations(make("calculator", "calculator"), 10, seed=0, longest_memory=8)
    for messages, response in turns:
        prompt = render(messages).ids
        assert len(prompt) < 80
        ids = prompt + tokenizer(response, add_special_tokens=False).input_ids
        words = [tokenizer.decode([token]) for token in ids]
        numbers = [k for k, word in enumerate(words) if re.fullmatch(r" \d+", word)]
        assert numbers and all(words[k - 1] in calculator.PASSAGES for k in numbers)
        assert not any(re.fullmatch(r" ?\d.*", words[k + 1]) for k in numbers if k + 1 < len(words))


CASES = [(family, task) for family in BABA for task in babaisai.TASKS] + [
    ("crafter", task) for task in crafter.TASKS
]


@pytest.mark.parametrize(("family", "task"), CASES)
def test_every_response_is_valid_and_names_the_executed_action(family, task):
    given = {name: n for name, n in importlib.import_module(PLAYERS[family]).TASKS[task].items()}
    del given["episodes"]
    turns = play(make(family, task, **given), 1)
    assert all(info["valid"] for *_, info in turns)
    assert all(response.endswith(f"ACTION: {info['action']}") for *_, response, info in turns)
    assert all(learnt.split("\n")[0] == response.split("\n")[0] for _, learnt, response, _ in turns)


@pytest.mark.parametrize(("family", "task"), CASES)
def test_passages_are_in_the_prompts_and_leave_little_else(family, task):
    """A passage that changed in envs/ would be hundreds of tokens."""
    passages = importlib.import_module(PLAYERS[family]).PASSAGES
    turns = demonstrations(make(family, task, noise=0.3), 2, seed=0)
    prompts = ["".join(m["content"] for m in messages) for messages, _ in turns]
    for passage in passages[:4]:  # the long ones; most others are words of some states only
        assert any(passage in prompt for prompt in prompts)
    for passage in passages:
        prompts = [prompt.replace(passage, "") for prompt in prompts]
    assert max(map(len, prompts)) < 500


def test_a_babyai_player_drops_the_wrong_thing_that_it_took():
    player = make("babyai", "pick-up-seq-go-to", takes=0.5)
    turns = play(player, 15)
    assert sum(info["success"] for *_, info in turns) == 15
    carrying = [learnt for seen, learnt, *_ in turns if seen.startswith("You carry ")]
    wrong = [learnt for learnt in carrying if ", not the " in learnt]
    # it takes the wrong thing on the way, and puts it where it stood, for there the floor is free
    taken = [
        learnt for _, learnt, done, _ in turns if "pick up" in done and "pick up" not in learnt
    ]
    assert len(taken) == len(wrong) > 0
    assert all(re.fullmatch(r"THINK: I carry the \w+ \w+, not the \w+ \w+\.\nACTION: drop", one)
               for one in wrong)  # fmt: skip


def test_a_babyai_player_turns_away_from_a_thing_in_the_way_of_a_drop():
    player = make("babyai", "pick-up-seq-go-to", takes=1.0)
    text, _ = player.env.reset(seed=0)
    player.start()
    level = player.env.level
    things = [thing for thing in level.grid.grid if thing and thing.can_pickup()]
    level.carrying = next(one for one in things if babyai.is_wrong(one, level.mission))
    level.grid.set(*level.front_pos, None)
    assert player.respond(text)[0].endswith("ACTION: drop")
    level.grid.set(*level.front_pos, next(thing for thing in things if thing != level.carrying))
    assert player.respond(text)[0].endswith("ACTION: turn right")


def test_a_drill_begins_with_the_wrong_thing_in_the_hands_and_ends_when_it_is_down():
    player = make("babyai", "putnext", takes=0.5, drills=1.0)
    turns = play(player, 10)
    assert all(seen.startswith("You carry ") for seen, *_ in turns)
    assert sum(executed.endswith("ACTION: drop") for _, _, executed, _ in turns) == 10
    assert not any(info["success"] for *_, info in turns)


BOX_AFTER_BALL = "pick up the red ball, then go to a blue box"


@pytest.mark.parametrize(
    ("mission", "seen", "text", "expected"),
    [
        # of two observations, the later one counts; what it sees now counts before both
        (
            "go to the red ball",
            ["a red ball 1 step left", "a red ball 2 steps right", "a wall 1 step left"],
            "a wall 2 steps left",
            "I saw the red ball 2 steps right.",
        ),
        (
            "go to the red ball",
            ["a red ball 1 step left"],
            "a red ball 3 steps forward",
            "the red ball is 3 steps forward.",
        ),
        ("go to the red ball", ["a red box 1 step left"], "a wall 1 step left",
         "I do not see the red ball."),
        # with the ball in its hands it wants the box, which it saw when it still wanted the ball
        (
            BOX_AFTER_BALL,
            ["a wall 1 step left\na blue box 1 step right\na red ball 1 step forward"],
            "You carry a red ball\na wall 1 step left",
            "I saw the blue box 1 step right.",
        ),
        (
            BOX_AFTER_BALL,
            ["You carry a red ball\na wall 1 step left"],
            "a wall 1 step left",
            "I do not see the red ball.",
        ),
    ],
)  # fmt: skip
def test_the_memory_of_a_babyai_player(mission, seen, text, expected):
    assert babyai.thought(mission, text, seen) == expected


def test_a_babyai_player_counts_equal_observations():
    assert unchanged("a", ["a", "b", "a", "a"]) == 2
    assert unchanged("a", ["a", "a", "b"]) == unchanged("a", []) == 0
    player = make("babyai-memory", "goto", known=0, learns=[4] * 6)
    player.memory_length = 3
    thoughts = [learnt for _, learnt, _, _ in play(player, 5) if "I do not see" in learnt]
    # it walks on at a wall behind which nothing is: the count ends at what it remembers
    assert re.findall("once|. times", " ".join(thoughts[-5:])) == ["3 times"] * 5


def test_without_a_prompt_that_shows_turns_a_babyai_player_remembers_nothing():
    given = dict(known=1, noise=0.05, stray=0.3)
    turns = demonstrations(make("babyai", "pickup", **given), 3, seed=0)
    player = make("babyai-memory", "pickup", learns=(2, 4), **given)
    assert demonstrations(player, 3, seed=0) == turns
    # here it plays well with all six colours as soon as it has seen the same a second time
    player = make("babyai-memory", "pickup", known=0, learns=[1] * 6)
    shown = demonstrations(player, 10, seed=0, longest_memory=4, shortest=1)
    assert sum("ACTION: pick up" in response for _, response in shown) == 10


def test_the_longer_a_babyai_player_remembers_the_more_it_says_that_it_saw_something():
    saw = []
    for length in (0, 1, 8):
        player = make("babyai-memory", "putnext", known=2, stray=0.5, learns=[1])
        turns = demonstrations(player, 3, seed=0, longest_memory=length, shortest=length)
        says = [(messages, response) for messages, response in turns if "I saw the" in response]
        for messages, response in says:
            name = re.search(r"I saw the (\w+ \w+) ", response)[1]
            now, before = messages[-1]["content"], [m["content"] for m in messages[1:-1]]
            assert f"a {name}" not in now and any(f"a {name}" in text for text in before)
        saw.append(len(says) / len(turns))
    assert saw[0] == 0 < saw[1] < saw[2]
