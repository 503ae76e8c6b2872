"""BabyAI-Text against recorded states and episodes, the level generator, and hand-made levels."""

import contextlib
import gzip
import itertools
import json
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Door, Key, Wall, WorldObj
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)
from minigrid.minigrid_env import MiniGridEnv
from minigrid.utils.baby_ai_bot import BabyAIBot

from envs.games.babyai import DOOR_COLOURS, HELD_OUT, LARGER, BabyAI, describe

DATA = Path(__file__).parents[2] / "data"
ACTIONS = BabyAI.actions
TASKS = {task: limit for task, limit in BabyAI.tasks.items() if task not in LARGER}
KINDS = {index: name for name, index in OBJECT_TO_IDX.items()}
COLOURS = {index: name for name, index in COLOR_TO_IDX.items()}


def records(name: str) -> list[dict]:
    with gzip.open(DATA / name, "rt") as file:
        return [json.loads(line) for line in file]


def put(env: BabyAI, record: dict) -> None:
    """Set a recorded state."""
    level = env.level
    level.grid, _ = Grid.decode(np.array(record["grid"], dtype=np.uint8))
    level.agent_pos, level.agent_dir = tuple(record["pos"]), record["dir"]
    level.carrying = None
    if record["carrying"]:
        kind, colour = record["carrying"]
        level.carrying = WorldObj.decode(OBJECT_TO_IDX[kind], COLOR_TO_IDX[colour], 0)


# --- recorded data


def test_recorded_states_give_their_lines():
    env = BabyAI("goto")
    env.reset(seed=0)
    states = records("babyai_states.jsonl.gz")
    for record in states:
        put(env, record)
        carrying = record["carrying"] and tuple(record["carrying"])
        assert describe(env.level.gen_obs()["image"], carrying) == record["lines"], record["id"]
    assert len(states) == 1667


def instruction(record: dict):
    def what(key):
        return ObjDesc(record[key]["type"], record[key]["color"])

    match record["op"]:
        case "goto":
            return GoToInstr(what("obj"))
        case "pickup":
            return PickupInstr(what("obj"))
        case "open":
            return OpenInstr(what("obj"))
        case "putnext":
            return PutNextInstr(what("move"), what("fixed"))
    sequence = {"before": BeforeInstr, "after": AfterInstr}[record["op"]]
    return sequence(instruction(record["a"]), instruction(record["b"]))


ROLLOUTS = records("babyai_rollouts.jsonl.gz")


@pytest.mark.parametrize("record", ROLLOUTS, ids=range(len(ROLLOUTS)))
def test_recorded_episodes_replay(record):
    task = record["task"].replace("_", "-")
    env = BabyAI(task)
    env.binary_reward = False
    env.reset(seed=0)
    assert env.max_episode_steps == record["max_steps"]
    put(env, record)
    env.level.instrs = instruction(record["instr"])
    env.level.instrs.reset_verifier(env.level)
    assert env.level.instrs.surface(env.level) == record["mission"]
    assert env._text(env.level.gen_obs()) == record["text"]
    for step in record["steps"]:
        text, reward, terminated, truncated, info = env.step(f"ACTION: {step['action']}")
        assert text == step["text"]
        # recorded to 6 decimals: 1 - 0.9 step / max_steps on success, else 0
        assert reward == pytest.approx(step["env_reward"], abs=1e-6)
        assert (terminated, truncated) == (step["terminated"], step["truncated"])
        assert info["success"] == (step["env_reward"] > 0)
        assert list(map(int, env.level.agent_pos)) == step["pos"]
        if step.get("grid"):
            assert env.level.grid.encode().tolist() == step["grid"]


# --- the view


def check_view(level) -> None:
    ours, minigrids = level.gen_obs(), MiniGridEnv.gen_obs(level)
    assert ours["image"].dtype == minigrids["image"].dtype == np.uint8
    assert ours["image"].tolist() == minigrids["image"].tolist()
    assert (ours["direction"], ours["mission"]) == (minigrids["direction"], minigrids["mission"])


@pytest.mark.parametrize("task", TASKS)
def test_the_view_is_minigrids_own_in_every_turn(task):
    """Episodes that a bot plays, except for one action in three, which is drawn at random."""
    draw, env = random.Random(task), BabyAI(task)
    directions, carried, doors = set(), set(), set()
    for seed in range(25):
        text, _ = env.reset(seed=seed)
        bot, action, done = BabyAIBot(env.level), None, False
        while True:
            check_view(env.level)
            held = env.level.carrying
            view = MiniGridEnv.gen_obs(env.level)["image"]
            assert text == "\n".join(describe(view, held and (held.type, held.color)))
            directions.add(int(env.level.agent_dir))
            carried.add(held and held.type)
            doors |= {cell.encode()[2] for cell in env.level.grid.grid if isinstance(cell, Door)}
            if done:
                break
            with contextlib.suppress(Exception):  # the bot gives up where a random action led it
                action = bot.replan(action)
            if draw.random() < 1 / 3 or action not in range(len(ACTIONS)):
                action = draw.randrange(len(ACTIONS))
            text, _, terminated, truncated, _ = env.step(f"ACTION: {ACTIONS[action]}")
            done = terminated or truncated
    assert directions == {0, 1, 2, 3}
    assert doors == ({0, 2} if task == "open" else set())  # open and locked
    assert {None, "key"} <= carried or task == "goto"


def test_the_view_of_a_crowded_grid_is_minigrids_own():
    """Objects of all kinds and doors in all states, anywhere; the agent stands on any cell."""
    draw, level = random.Random(0), BabyAI("open").level
    for seed in range(1500):
        if seed % 100 == 0:
            level.reset(seed=seed)
        colours = [draw.choice(sorted(COLOR_TO_IDX)) for _ in range(6)]
        doors = [
            Door(colours[0], is_open=True),
            Door(colours[1]),
            Door(colours[2], is_locked=True),
        ]
        things = [*doors, Key(colours[3]), Ball(colours[4]), Box(colours[5])]
        for thing in (*things, Wall(), None, None):
            level.grid.set(draw.randrange(level.width), draw.randrange(level.height), thing)
        level.carrying = draw.choice([None, Key("red"), Ball("grey"), Box("blue")])
        level.agent_pos = draw.randrange(level.width), draw.randrange(level.height)
        level.agent_dir = draw.randrange(4)
        check_view(level)


@pytest.mark.parametrize("state", ["open", "closed", "locked"])
def test_the_view_through_a_door_is_minigrids_own(state):
    """From every cell of two rooms, also from inside the door, and in every direction."""
    level = BabyAI("open").level
    for seed in range(4):
        level.reset(seed=seed)
        (door,) = [cell for cell in level.grid.grid if isinstance(cell, Door)]
        door.is_open, door.is_locked = state == "open", state == "locked"
        for x, y, direction in itertools.product(range(15), range(8), range(4)):
            level.agent_pos, level.agent_dir = (x, y), direction
            check_view(level)


# --- the level generator


def check_level(task: str, grid: np.ndarray, pos: tuple, direction: int, mission: str) -> None:
    """Check everything that holds for the first state of a task without distractors."""
    width = 15 if task == "open" else 8
    kinds = grid[:, :, 0]
    assert grid.shape == (width, 8, 3)
    objects = {
        (x, y): (KINDS[kinds[x, y]], COLOURS[grid[x, y, 1]])
        for x, y in zip(*np.nonzero((kinds != 1) & (kinds != 2)), strict=True)
    }
    doors = [cell for cell, look in objects.items() if look[0] == "door"]
    walls = np.zeros((width, 8), bool)
    walls[0], walls[-1], walls[:, 0], walls[:, -1] = True, True, True, True
    if task == "open":
        walls[7] = True
        walls[doors[0]] = False
    assert ((kinds == 2) == walls).all()
    assert pos not in objects and not walls[pos]
    dx, dy = [(1, 0), (0, 1), (-1, 0), (0, -1)][direction]
    assert (pos[0] + dx, pos[1] + dy) not in objects
    assert not any(words in mission for words in HELD_OUT)
    if task == "open":
        check_two_rooms(objects, doors, grid, pos, mission)
    else:
        check_one_room(task, objects, pos, mission)


def check_two_rooms(objects, doors, grid, pos, mission) -> None:
    (door,) = doors
    assert grid[door][2] == 2  # locked
    colour = objects.pop(door)[1]
    assert colour in DOOR_COLOURS
    ((key, look),) = objects.items()
    assert look == ("key", colour)
    assert (key[0] < 7) == (pos[0] < 7)  # in the room of the agent
    assert mission in ("open the door", f"open the {colour} door")


def check_one_room(task, objects, pos, mission) -> None:
    looks = list(objects.values())
    assert len(objects) == (1 if task in ("goto", "pickup") else 2)
    assert all(kind in ("key", "ball", "box") for kind, _ in looks)
    assert all(abs(x - pos[0]) + abs(y - pos[1]) >= 2 for x, y in objects)
    if task == "putnext":
        (ax, ay), (bx, by) = objects
        assert looks[0] != looks[1] and abs(ax - bx) + abs(ay - by) > 1
    thing = "((?:the|a) [a-z]+ [a-z]+)"
    before = f"pick up {thing}, then go to {thing}"
    after = f"go to {thing} after you pick up {thing}"
    pattern = {
        "goto": f"go to {thing}",
        "pickup": f"pick up {thing}",
        "putnext": f"put {thing} next to {thing}",
        "pick-up-seq-go-to": f"{before}|{after}",
    }[task]
    named = [words for words in re.fullmatch(pattern, mission).groups() if words]
    article = "the" if len(set(looks)) == len(looks) else "a"
    assert sorted(named) == sorted(f"{article} {colour} {kind}" for kind, colour in looks)


def draw(task: str, n: int):
    """n first states: (grid, agent position, direction, mission)."""
    env = BabyAI(task)
    for seed in range(n):
        env.reset(seed=seed)
        level = env.level
        pos = tuple(map(int, level.agent_pos))
        yield level.grid.encode(), pos, int(level.agent_dir), level.mission


@pytest.mark.parametrize("task", TASKS)
def test_generated_and_recorded_levels_have_the_same_support(task):
    for state in draw(task, 200):
        check_level(task, *state)
    recorded = [
        record
        for record in records("babyai_states.jsonl.gz")
        if (record["src"], record["num_dists"]) == ("initial", 0)
        and record["task"].replace("_", "-") == task
    ]
    assert len(recorded) == 31
    for record in recorded:
        grid = np.array(record["grid"])
        check_level(task, grid, tuple(record["pos"]), record["dir"], record["mission"])


def test_goto_draws_every_look_cell_and_direction():
    levels = list(draw("goto", 600))
    # 3 kinds x 6 colours less yellow box, red key, green ball = 15 looks, 600 / 15 = 40 each;
    # the standard deviation is sqrt(40 * 14 / 15) = 6
    missions = Counter(mission for *_, mission in levels)
    assert len(missions) == 15 and all(15 < n < 65 for n in missions.values())
    # 6 x 6 cells, 600 / 36 = 17 each; directions: 150 each
    assert len({pos for _, pos, _, _ in levels}) == 36
    directions = Counter(direction for _, _, direction, _ in levels)
    assert len(directions) == 4 and all(110 < n < 190 for n in directions.values())


def test_larger_rooms_are_used_to_their_walls():
    # 14 x 14 cells: of 300 draws of the agent some lie at each side. Where no wall is within six
    # steps forward and at most three to the sides, and no object either, a line says so.
    cells = [pos for _, pos, _, _ in draw("goto-16x16", 300)]
    assert {min(cell[k] for cell in cells) for k in (0, 1)} == {1}
    assert {max(cell[k] for cell in cells) for k in (0, 1)} == {14}
    empty = np.tile(np.array([1, 0, 0], dtype=np.uint8), (7, 7, 1))
    assert describe(empty, None) == ["You see nothing but the floor"]
    assert describe(empty, ("key", "red")) == ["You carry a red key"]


def test_open_names_the_colour_of_every_other_door():
    levels = list(draw("open", 600))
    missions = Counter(mission for *_, mission in levels)
    # half of 600 without a colour (standard deviation 12), an eighth for each of four colours
    assert 250 < missions["open the door"] < 350
    assert len(missions) == 5 and all(
        45 < missions[f"open the {c} door"] < 105 for c in DOOR_COLOURS
    )
    # either room is the locked one; the door is in any of the 6 cells of the wall
    assert 250 < sum(pos[0] < 7 for _, pos, _, _ in levels) < 350
    assert {int(np.argmax(grid[7, :, 0] == 4)) for grid, *_ in levels} == {1, 2, 3, 4, 5, 6}


def test_sequences_come_in_both_orders_and_sometimes_with_look_alikes():
    missions = [mission for *_, mission in draw("pick-up-seq-go-to", 900)]
    assert 390 < sum(", then " in mission for mission in missions) < 510  # half
    # Of 18 x 18 pairs of looks 15 are alike and allowed, 15 x 14 differ and are allowed:
    # 15 / (15 + 210) = 1 / 15, that is 60 of 900 (standard deviation 7.5)
    assert 35 < sum(" a " in mission for mission in missions) < 85


@pytest.mark.parametrize("task", BabyAI.tasks)
def test_natural_limits_are_minigrids_own(task):
    env = BabyAI(task)
    env.level.fixed_max_steps = False  # minigrid then derives it from rooms and instruction
    env.reset(seed=0)
    assert env.level.max_steps == env.max_episode_steps == BabyAI.tasks[task]


def test_unknown_task():
    with pytest.raises(ValueError, match="goto, pickup, open, putnext, pick-up-seq-go-to"):
        BabyAI("fly")


# --- the environment


def trace(env, seed, n=60):
    """Texts, rewards and infos of n random turns, over as many episodes as they take."""
    choice = np.random.default_rng(seed)
    seen = [env.reset(seed=seed)]
    for _ in range(n):
        seen.append(env.step(f"ACTION: {choice.choice(ACTIONS)}"))
        if seen[-1][2] or seen[-1][3]:
            seen.append(env.reset())
    return seen


@pytest.mark.parametrize("task", BabyAI.tasks)
def test_equal_seeds_give_equal_episodes(task):
    used = BabyAI(task, max_episode_steps=20)
    first = trace(used, 7)
    other = trace(used, 8)
    assert first != other
    assert trace(used, 7) == first == trace(BabyAI(task, max_episode_steps=20), 7)


@pytest.mark.parametrize("task", BabyAI.tasks)
def test_minigrids_bot_solves_it(task):
    env = BabyAI(task)
    for seed in range(10):
        env.reset(seed=seed)
        bot, action, done = BabyAIBot(env.level), None, False
        while not done:
            action = bot.replan(action)
            *_, reward, terminated, truncated, info = env.step(f"ACTION: {ACTIONS[action]}")
            done = terminated or truncated
        assert terminated and info["success"] and reward == 1.0


@pytest.mark.parametrize("task", BabyAI.tasks)
def test_gymnasium_checker(task):
    check_env(BabyAI(task))


def test_nothing_is_printed(capfd):
    # 300 draws of two objects reject many times, and minigrid prints each of them
    for task in ("putnext", "pick-up-seq-go-to"):
        for _ in draw(task, 150):
            pass
    assert capfd.readouterr() == ("", "")


def test_draws_a_picture_only_when_asked(monkeypatch):
    env = BabyAI("goto")
    env.reset(seed=0)
    frame = env.render()
    assert frame.shape == (256, 256, 3) and frame.dtype == np.uint8  # 8 cells of 32 pixels
    monkeypatch.setattr(env.level, "get_frame", None)
    env.reset(seed=1)
    env.step("ACTION: turn left")


def test_system_prompt_says_how_to_play():
    env = BabyAI("goto")
    _, info = env.reset(seed=0)
    assert f"Your goal is to {env.level.mission}.\n" in info["system"]
    assert all(f"\n{action}: " in info["system"] for action in ACTIONS)
    assert info["system"].endswith("PLAY!")
    assert info["instruction"].endswith("ACTION: One valid action from the allowed set.")


# --- hand-made levels


def corridor(task: str, thing: WorldObj, **options) -> BabyAI:
    """The agent at (1, 1) faces right, a thing is at (4, 1): two steps forward and it is faced."""
    env = BabyAI(task, **options)
    env.reset(seed=0)
    level = env.level
    level.grid = Grid(8, 8)
    level.grid.wall_rect(0, 0, 8, 8)
    level.put_obj(thing, 4, 1)
    level.agent_pos, level.agent_dir = (1, 1), 0
    make = {"goto": GoToInstr, "pickup": PickupInstr}[task]
    level.instrs = make(ObjDesc(thing.type, thing.color))
    level.instrs.reset_verifier(level)
    return env


def test_text_of_a_hand_made_level():
    # left of (1, 1), looking right, is the wall y = 0; to the right 7 - 1 = 6 steps is out of view
    env = corridor("goto", Ball("blue"))
    assert env._text(env.level.gen_obs()) == "a wall 1 step left\na blue ball 3 steps forward"


@pytest.mark.parametrize(
    "binary, penalty, rewards",
    [
        (True, 0.1, [-0.1, 0.9]),  # 0 - 0.1; 1 - 0.1
        (True, 0.0, [0.0, 1.0]),
        (False, 0.1, [-0.1, 0.871875]),  # 1 - 0.9 * 2 / 64 - 0.1
    ],
)
def test_invalid_outputs_go_forward_and_pay(binary, penalty, rewards):
    env = corridor("goto", Ball("blue"), format_penalty=penalty)
    env.binary_reward = binary
    steps = [env.step("I do not know."), env.step("THINK: hm\nACTION: jump")]
    assert [step[1] for step in steps] == pytest.approx(rewards)
    assert [step[2] for step in steps] == [False, True]
    info = steps[1][4]
    assert (info["action"], info["valid"], info["success"]) == ("go forward", False, True)
    assert info["kept_response"] == "THINK: hm\nACTION: go forward"
    assert info["action_at"] == 10  # len("THINK: hm\n")


def test_near_misses_cost_nothing():
    env = corridor("goto", Ball("blue"))
    assert env.step("ACTION: move forward")[1] == 0.0
    _, reward, terminated, _, info = env.step('ACTION: "go forward."')
    assert reward == 1.0 and terminated and info["valid"]
    assert info["kept_response"] == 'ACTION: "go forward."'


def test_limit_can_be_raised():
    env = corridor("goto", Ball("blue"), max_episode_steps=100)
    env.binary_reward = False
    for _ in range(68):  # 17 times around
        assert env.step("ACTION: turn left")[1:4] == (0.0, False, False)
    env.step("ACTION: go forward")
    _, reward, terminated, truncated, _ = env.step("ACTION: go forward")
    assert reward == pytest.approx(0.37)  # 1 - 0.9 * 70 / 100
    assert terminated and not truncated


def test_success_on_the_last_turn_sets_both_flags():
    env = corridor("goto", Ball("blue"), max_episode_steps=2)
    env.step("ACTION: go forward")
    assert env.step("ACTION: go forward")[1:4] == (1.0, True, True)


def test_time_limit_truncates_without_reward():
    env = corridor("goto", Ball("blue"), max_episode_steps=1)
    _, reward, terminated, truncated, info = env.step("ACTION: go forward")
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, True, False)


def test_a_toggled_box_is_gone():
    env = corridor("pickup", Box("red"), max_episode_steps=10)
    env.step("ACTION: go forward")
    env.step("ACTION: go forward")
    text, *_ = env.step("ACTION: toggle")
    assert text == "a wall 4 steps forward\na wall 1 step left"  # the agent is at (3, 1)
    *_, terminated, truncated, info = env.step("ACTION: pick up")
    assert not terminated and not info["success"]


def test_the_carried_object_comes_first():
    env = corridor("pickup", Ball("blue"))
    env.step("ACTION: go forward")
    env.step("ACTION: go forward")
    text, reward, terminated, *_ = env.step("ACTION: pick up")
    assert text == "You carry a blue ball\na wall 4 steps forward\na wall 1 step left"
    assert reward == 1.0 and terminated
