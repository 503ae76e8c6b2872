"""Crafter against recorded play, its rewards by hand, and its reproducibility."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import crafter
import numpy as np
import opensimplex
import pytest
from crafter import constants, objects
from gymnasium.utils.env_checker import check_env
from numpy.testing import assert_array_equal

from envs.games import crafter_noise, crafter_text
from envs.games.crafter import Crafter, World
from envs.games.crafter_text import describe, list_missing, system_prompt

ROOT = Path(__file__).parents[3]
RAW = {name: i for i, name in enumerate(Crafter.actions)}


def golden(name):
    with gzip.open(ROOT / "tests" / "data" / f"crafter_{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


class Script:
    """Stands in for np_random: returns fixed numbers, the world's seed and raw actions."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def integers(self, high):
        return self.numbers.pop(0)


def respond(action):
    return f"THINK: go on\nACTION: {action}"


@pytest.fixture(scope="module")
def env():
    return Crafter()


@pytest.fixture
def quarry(env):
    """The player stands on path, facing south, in a world of nothing but stone."""
    env.reset(seed=0)
    game, player = env.world._world, env.world.player
    for thing in game.objects:
        if thing is not player:
            game.remove(thing)
    game._mat_map[:] = game._mat_ids["stone"]
    game[player.pos] = "path"
    player.facing = (0, 1)
    return env


def put(env, material):
    player = env.world.player
    env.world._world[player.pos + np.array(player.facing)] = material


# --- recorded play ---------------------------------------------------------------------------


def test_states_match_the_records():
    for r in golden("states"):
        texts = describe(r["view"], r["facing"], r["inventory"], r["sleeping"], r["dead"])
        assert texts == (r["long_term_context"], r["short_term_context"]), r["id"]


def test_borders_match_the_records_with_balrogs_rule_for_the_faced_cell():
    inventory = golden("states")[0]["inventory"]
    differ = 0
    for r in golden("borders"):
        long_term, _ = describe(r["view"], r["facing"], inventory, False, False)
        seen, front = long_term.split("\n\n")
        assert front == r["balrog"].split("\n\n")[1]
        differ += long_term != r["verlog"]
        if r["verlog"] is not None:
            assert seen == r["verlog"].split("\n\n")[0]
    assert differ == 8  # seven wrong `nothing` and one crash


def test_achievement_lists_match_the_records():
    for r in golden("achievement_lists"):
        assert list_missing(set(r["unlocked"])) == r["list_text"]


@pytest.mark.parametrize("record", golden("rollouts"), ids=lambda r: f"{r['mode']}-{r['seed']}")
def test_rollouts_match_the_records(env, record):
    env.np_random = Script(record["seed"])
    text, info = env.reset()
    assert (text, info["kept"]) == both(record["first"])
    for r in record["steps"]:
        env.np_random = Script(*r["raw_actions"][1:])
        response = respond(r["action"] if r["valid"] else "Fly")
        text, reward, terminated, truncated, info = env.step(response)
        assert (info["action"], info["valid"]) == (r["action"], r["valid"])
        assert (terminated, truncated) == (r["terminated"], r["truncated"])
        assert sorted(env.world.unlocked) == r["achievements"]
        if env.np_random.numbers:
            # the reference plays one more step after a death in sleep
            assert terminated and info["kept"] == r["long"]
            continue
        assert (text, info["kept"]) == both(r)
        if r["valid"] and len(r["raw_actions"]) == 1:
            assert reward == pytest.approx(r["reward"])


def both(r):
    return f"{r['short']}\n{r['long']}", r["long"]


# --- the words -------------------------------------------------------------------------------


def test_the_prompt_states_the_packages_rules():
    prompt = system_prompt(set())
    assert prompt.endswith("PLAY!")
    lines = {line.partition(":")[0]: line for line in prompt.splitlines()}
    ways = dict(left="west", right="east", up="north", down="south")
    words = [[ways.get(word, word) for word in name.split("_")] for name in constants.actions]
    assert list(Crafter.actions) == [" ".join(name).title() for name in words]
    assert all(action in lines for action in Crafter.actions)
    assert all(re.search(rf"\d+\. {name}\b", prompt) for name in crafter_text.ACHIEVEMENTS)
    keys = sorted(crafter_text.key(name) for name in crafter_text.ACHIEVEMENTS)
    assert keys == sorted(constants.achievements)
    for verb, table in {"Place": constants.place, "Make": constants.make}.items():
        for name, rule in table.items():
            line = lines[f"{verb} {name.replace('_', ' ').title()}"]
            assert all(f"{n} {item}" in line for item, n in rule["uses"].items()), line
            assert all(place in line for place in rule.get("where", []) + rule.get("nearby", []))
    for name, rule in constants.collect.items():
        line = lines[f"- {name}"]
        assert all(f"{n} {item}" in line for item, n in rule["receive"].items()), line
        assert all(tool.replace("_", " ") in line for tool in rule["require"]), line
    assert constants.walkable == ["grass", "path", "sand"]


def test_prompt_lists_only_what_is_missing(quarry):
    assert "1. Collect Wood" in quarry.system_prompt()
    put(quarry, "tree")
    *_, info = quarry.step(respond("Do"))
    assert "1. Place Table" in info["system"] and "Collect Wood" not in info["system"]
    assert "PLAY!" in system_prompt(set(constants.achievements))


def test_later_turns_do_not_see_the_inventory(quarry):
    text, *_, info = quarry.step(respond("Noop"))
    assert text.startswith("Your status:\n- health: 9/9")
    assert info["kept"] == "You see:\n- stone 1 steps to your west\n\nYou face stone at your front."
    assert text.endswith("\n" + info["kept"])


# --- rewards, by hand ------------------------------------------------------------------------


def test_an_achievement_pays_once(quarry):
    put(quarry, "tree")
    assert quarry.step(respond("Do"))[1] == 1.0  # first wood
    put(quarry, "tree")
    assert quarry.step(respond("Do"))[1] == 0.0


def test_death_in_lava_terminates(quarry):
    put(quarry, "lava")
    text, reward, terminated, truncated, info = quarry.step(respond("Move South"))
    # health 9 -> 0: -9/10
    assert reward == pytest.approx(-0.9)
    assert (terminated, truncated, info["success"]) == (True, False, False)
    assert info["kept"].startswith("You died.\n\n\n\nYou see:")
    assert info["metrics"]["achievements"] == 0 and len(info["metrics"]) == 23


def test_penalty_is_added_to_the_reward_of_the_default_action(quarry):
    player = quarry.world.player
    player._recover, player.health, player._last_health = 25, 5, 5
    quarry.world._last_health = 5
    _, reward, *_, info = quarry.step("I cannot decide.")
    # the Noop heals one health: 1/10 - 0.1
    assert reward == pytest.approx(0.0)
    assert (info["action"], info["valid"]) == ("Noop", False)
    assert info["kept_response"].endswith("ACTION: Noop")


def rest(env, energy=8, fatigue=0):
    player = env.world.player
    player.inventory["energy"], player._fatigue = energy, fatigue


def test_sleep_is_one_turn_with_all_its_rewards(quarry):
    rest(quarry)
    player = quarry.world.player
    player.health = player._last_health = quarry.world._last_health = 5
    player._recover = 20
    before = quarry.world._step
    quarry.np_random = Script(*[RAW["Noop"]] * 11)
    text, reward, terminated, _, info = quarry.step(respond("Sleep"))
    # fatigue falls by 1 per sleeping step and gives 1 energy below -10: after 11 steps; the
    # player wakes on the 12th. Recovery grows by 2 per sleeping step: 22, 24, 26 > 25 on the
    # third step, +1 health and from 0 again: 2, .., 16 after 8 more steps.
    # 1/10 for the health + 1 for Wake Up
    assert quarry.world._step - before == 12 and quarry.steps == 1
    assert reward == pytest.approx(1.1)
    assert (terminated, info["success"]) == (False, False)
    assert quarry.world.unlocked == {"wake_up"}
    assert "energy: 9/9" in text and "sleeping" not in text


def test_two_achievements_in_one_step_pay_once(quarry):
    rest(quarry, fatigue=-10)
    put(quarry, "tree")
    quarry.np_random = Script(RAW["Do"])
    # asleep with energy 9 after one step; the next wakes the player, who chops the tree: max +1
    assert quarry.step(respond("Sleep"))[1] == pytest.approx(1.0)
    assert quarry.world.unlocked == {"wake_up", "collect_wood"}


def test_sleep_stops_at_death(quarry):
    rest(quarry, energy=3)
    player, game = quarry.world.player, quarry.world._world
    player.health = player._last_health = quarry.world._last_health = 4
    game.add(objects.Zombie(game, player.pos + np.array([1, 0]), player))
    before = quarry.world._step
    quarry.np_random = Script()  # no further step is drawn
    text, reward, terminated, truncated, info = quarry.step(respond("Sleep"))
    # the zombie takes 7 from a sleeper, health 4 -> 0: -4/10
    assert quarry.world._step - before == 1
    assert reward == pytest.approx(-0.4)
    assert (terminated, truncated) == (True, False)
    assert info["kept"].startswith("You died.")


def test_no_sleep_with_full_energy(quarry):
    before = quarry.world._step
    assert quarry.step(respond("Sleep"))[1] == 0.0
    assert quarry.world._step - before == 1


def test_success_is_all_achievements(quarry):
    player = quarry.world.player
    player.achievements = dict.fromkeys(player.achievements, 1) | {"eat_cow": 0}
    assert not quarry.step(respond("Noop"))[-1]["success"]
    player.achievements["eat_cow"] = 1
    _, _, terminated, _, info = quarry.step(respond("Noop"))
    assert info["success"] and not terminated
    assert set(quarry.episode_metrics().values()) == {22.0, 1.0}


def test_limit_of_turns_truncates():
    env = Crafter(max_episode_steps=2)
    assert Crafter().max_episode_steps == 2000
    env.reset(seed=0)
    assert env.step(respond("Noop"))[2:4] == (False, False)
    *_, terminated, truncated, info = env.step(respond("Noop"))
    assert (terminated, truncated) == (False, True)
    assert info["metrics"]["achievement/wake_up"] == 0.0


# --- reproducibility -------------------------------------------------------------------------


def trajectory(seed=1, turns=320, render=False):
    """A digest of an episode of random actions, and how many dark frames were drawn."""
    env, rng, frames = Crafter(), np.random.default_rng(seed), 0
    digest = hashlib.sha256(env.reset(seed=seed)[0].encode())
    for _ in range(turns):
        # rather moving than making, so that creatures come and go
        action = list(RAW)[rng.choice([0, 1, 2, 3, 4, 5, 6])]
        text, reward, terminated, _, _ = env.step(respond(action))
        digest.update(f"{text} {reward} {env.world._world.random.get_state()[2]}".encode())
        env.world.player.inventory |= dict(health=9, food=9, drink=9)  # live on
        if render:
            frames += env.world._world.daylight < 0.5
            frame = env.render()
            assert frame.shape == (256, 256, 3) and frame.dtype == np.uint8 and frame.any()
    return digest.hexdigest(), frames


def test_equal_seeds_give_equal_episodes_in_any_process():
    command = [sys.executable, "-c", "import test_crafter as t; print(t.trajectory()[0])"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "envs" / "games")])
    environ = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": path}
    other = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert other.stdout.strip() == trajectory()[0], other.stderr
    assert trajectory(turns=3)[0] != trajectory(seed=2, turns=3)[0]


def test_a_world_that_is_made_in_advance_is_the_same(monkeypatch):
    plain, ahead = Crafter(), Crafter()
    ahead.reset(seed=1)
    ahead.prepare(3)
    assert ahead.reset(seed=5) == plain.reset(seed=5)  # the prepared world is not used
    ahead.prepare(7)
    expected = [plain.reset(seed=7), *(plain.step("ACTION: Move West") for _ in range(20))]
    monkeypatch.setattr(World, "begin", lambda *_: pytest.fail("it was made again"))
    assert [ahead.reset(seed=7), *(ahead.step("ACTION: Move West") for _ in range(20))] == expected


def test_rendering_does_not_change_the_episode():
    digest, dark = trajectory(render=True)
    assert dark > 50
    assert digest == trajectory()[0]


def test_resets_without_a_seed_give_other_worlds(env):
    first = env.reset(seed=3)[0], env.world._seed
    second = env.reset()[0], env.world._seed
    assert first[1] != second[1]
    assert env.reset(seed=3)[0] == first[0]
    assert env.reset()[0] == second[0]


@pytest.mark.parametrize("seed", [11, 12])
def test_worlds_are_the_packages(seed, monkeypatch):
    stock = crafter.Env(area=(64, 64), view=(9, 9), seed=seed)
    monkeypatch.setattr(stock, "_obs", lambda: None)
    stock.reset()
    ours = World()
    ours.begin(seed)
    assert_array_equal(ours._world._mat_map, stock._world._mat_map)
    assert_array_equal(ours._world._obj_map, stock._world._obj_map)
    things = [[(type(thing), *thing.pos) for thing in e._world.objects] for e in (ours, stock)]
    assert things[0] == things[1] and len(things[0]) > 20
    assert ours._world.random.random() == stock._world.random.random()


def test_noise_equals_the_package_to_the_last_bit():
    rng = np.random.default_rng(0)
    points = rng.uniform(-8, 8, (3, 8000))
    points[:, :3000] = np.round(points[:, :3000] * 6) / 6  # ties and faces of the lattice
    package = opensimplex.OpenSimplex(5)
    expected = [package.noise3(*point) for point in points.T.tolist()]
    assert_array_equal(crafter_noise.Lattice(points).noise3(package), expected)


def test_gymnasium_checks_pass():
    check_env(Crafter(), skip_render_check=True)
