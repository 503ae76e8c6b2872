"""BabaIsAI against recorded play, against its benchmark's level statistics, and by hand.

The recordings (tests/data/baba_*) come from the BALROG benchmark. Maps in the hand-made tests are
rows of characters, see LEGEND; the border is left out.
"""

import collections
import gzip
import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.games.baba_game import TOKENS
from envs.games.baba_levels import generate
from envs.games.babaisai import SYSTEM, BabaIsAI, Level

ACTIONS = ("idle", "up", "right", "down", "left")
TASKS = BabaIsAI.tasks
DATA = Path(__file__).parents[2] / "data"


def golden(name: str) -> list[dict]:
    with gzip.open(DATA / f"baba_{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


# Recorded play


@pytest.mark.parametrize("name", ["layouts", "observations"])
def test_recorded_observations(name):
    for record in golden(name):
        layout = record.get("layout", record)
        level = Level.from_cells(layout["w"], layout["h"], layout["cells"])
        assert level.cells() == layout["cells"]
        assert level.rules() == record["rules"], record["env"]
        assert level.text() == record["text"], record["env"]


def test_recorded_rollouts():
    for record in golden("rollouts"):
        layout = record["layout"]
        level = Level.from_cells(layout["w"], layout["h"], layout["cells"])
        assert level.text() == record["text"]
        cells = layout["cells"]
        for i, step in enumerate(record["steps"]):
            reward, done = level.step(step["action"])
            where = (record["env"], i)
            cells = cells if step["layout"] is None else step["layout"]["cells"]
            assert level.cells() == cells, where
            assert level.rules() == step["rules"], where
            assert (reward, done) == (pytest.approx(step["reward"]), step["done"]), where
            assert (level.you is None) == step["you_lost"], where
            assert step["text"] in (None, level.text()), where


# Levels: what every task holds, written down a second time and applied to both


def box(left, right, top, bottom):
    return [(x, y) for x in range(left, right + 1) for y in range(top, bottom + 1)]


EDGES = box(4, 6, 6, 6) + box(4, 6, 1, 1) + box(6, 6, 1, 6)  # lists (6, 1) and (6, 6) twice
RIGHT_BORDER = [(11, y) for y in range(2, 7)] + [(x, 7) for x in range(8, 12)]


def rule(x, y, noun, prop):
    return [(f"noun:{noun}", [(x, y)]), ("is", [(x + 1, y)]), (f"prop:{prop}", [(x + 2, y)])]


def expected(task, kinds, loose):
    """(token without colour, cells it may lie in) of each thing of a level.

    kinds: of obj1, obj2, obj3; loose: 1 or 2, the block of a broken stop rule, `is` or `stop`
    """
    obj1, obj2, obj3 = kinds
    two_rooms = task.startswith("two_room")
    special = "make_you" in task or "make_wall" in task
    small = 1 if special else 0
    left, right = box(2, 5 - small, 3, 5), box(7 + small, 10, 3, 5)
    distr_win = "distr_win_rule" in task
    has_obj2 = special or "distr_obj" in task or distr_win
    if "irrelevant" in task or "make_wall" in task:
        block = [(f"noun:{obj3}", right if two_rooms else EDGES)]
    elif "make_you" in task:
        block = [(f"noun:{obj2}", left)]
    elif "distr_rule" in task or "distr_obj_rule" in task or distr_win:
        two_room_area = RIGHT_BORDER if has_obj2 else right
        block = [(f"noun:{obj2}", two_room_area if two_rooms else EDGES)]
    else:
        block = []

    if two_rooms:
        things = [("obj:wall", [(6, y)]) for y in range(1, 8) for _ in "w"]
        things += rule(1, 6 if "make_you" in task else 7, "baba", "you")
        x, y = (1, 1) if "make_you" in task else (2, 2) if "make_wall" in task else (1, 2)
        stop = rule(x, y, "wall", "stop")
        if not special and "break_stop" not in task:
            stop[loose] = (stop[loose][0], left)
        win = rule(9, 1, obj1, "win")
        objects = box(1, 4, 1, 7)
        if special or "-break_stop" in task:
            objects = box(7, 10, 2, 7)
        elif "maybe_break_stop" in task:
            objects = box(1, 11, 2, 7)
        baba, win_area = left, RIGHT_BORDER if "make_wall" in task else right
    else:
        things, stop = rule(1, 6, "baba", "you"), []
        win = rule(1, 1, obj1, "win")
        objects = baba = box(1, 6, 2, 6)
        win_area = box(2, 5, 2, 5)
    if "make_win" in task or "make_wall_win" in task:
        win[0] = (win[0][0], win_area)
    things += stop + win + block + [("obj:baba", baba), (f"obj:{obj1}", objects)]
    things += [(f"obj:{obj2}", objects)] if has_obj2 else []
    return things + (rule(9, 4, obj3, "win") if distr_win else [])


def fits(task, cells):
    """Whether a level holds exactly what the task asks for, with some choice of obj1, 2, 3."""
    flat = [(plain(token), (x, y)) for x, y, stack in cells for token in stack]
    for kinds in itertools.permutations(["ball", "key", "door"]):
        for loose in (1, 2):
            left = list(flat)
            for token, area in sorted(expected(task, kinds, loose), key=lambda e: len(e[1])):
                found = next((it for it in left if it[0] == token and it[1] in area), None)
                if found is None:
                    break
                left.remove(found)
            else:
                if not left:
                    return True
    return False


def plain(token):
    return ":".join(token.split(":")[:2])


def drawn(task, count, seed=0):
    rng = np.random.default_rng(seed)
    return [generate(task, rng)[2] for _ in range(count)]


@pytest.fixture(scope="module")
def recorded():
    levels = collections.defaultdict(list)
    for record in golden("layouts"):
        levels[record["env"].removeprefix("env/")].append(record["cells"])
    return levels


def test_forty_tasks(recorded):
    assert len(TASKS) == len(set(TASKS)) == 40
    assert {task for task, levels in recorded.items() if len(levels) == 20} == set(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_structure(task, recorded):
    sizes = {generate(task, np.random.default_rng(seed))[:2] for seed in range(3)}
    assert sizes == {(13, 9) if task.startswith("two_room") else (8, 8)}
    for cells in recorded[task] + drawn(task, 100):
        assert fits(task, cells), cells
        piles = [stack for _, _, stack in cells if len(stack) > 1]
        assert not piles or "distr_win_rule" in task
        # the distracting rule comes last: it lies on top of other text
        assert all(len(s) == 2 and s[0].startswith("noun") for s in piles)


def test_positions_are_recorded_ones(recorded):
    """Every recorded position is drawn, and about as often (two-sample chi-square)."""
    statistic = freedom = 0
    for base in sorted({task.split("-distr")[0] for task in TASKS}):
        tasks = [task for task in TASKS if task.split("-distr")[0] == base]
        theirs = positions([cells for task in tasks for cells in recorded[task]])
        ours = positions([cells for task in tasks for cells in drawn(task, 400)])
        for group, a in theirs.items():
            b = ours[group]
            assert set(a) <= set(b), (base, group)
            added, cells = chi_square(a, b)
            statistic += added
            freedom += cells - 1
    # A chi-square has mean n and variance 2 n; its tail beyond 3.3 sigma has about 0.001.
    assert freedom > 300
    assert statistic < freedom + 3.3 * (2 * freedom) ** 0.5


def positions(levels):
    """Histograms of the cells of baba, of the other objects, and of each sort of text."""
    counts = collections.defaultdict(collections.Counter)
    for cells in levels:
        for x, y, stack in cells:
            for token in map(plain, stack):
                kinds = ("ball", "key", "door")
                group = token.split(":")[0] if token.endswith(kinds) else token
                counts[group][x, y] += 1
    return {group: count for group, count in counts.items() if len(count) > 1}


def chi_square(a, b):
    """Statistic and number of classes; rare cells are counted as one class."""
    n, m = sum(a.values()), sum(b.values())
    rare = {cell for cell in b if (a[cell] + b[cell]) * n / (n + m) < 5}
    classes = [(a[cell], b[cell]) for cell in b if cell not in rare]
    pairs = np.array(classes + [(sum(a[c] for c in rare), sum(b[c] for c in rare))], float)
    pairs = pairs[pairs.sum(1) > 0]
    x, y = pairs.T
    return float((((m / n) ** 0.5 * x - (n / m) ** 0.5 * y) ** 2 / (x + y)).sum()), len(pairs)


def uniform_chi_square(counts, weights):
    """Statistic of counts against probabilities proportional to the weights."""
    total, scale = sum(counts.values()), sum(weights.values())
    assert set(counts) <= set(weights)
    ideal = {cell: total * weight / scale for cell, weight in weights.items()}
    return sum((counts[cell] - ideal[cell]) ** 2 / ideal[cell] for cell in ideal)


def test_frequencies_by_hand():
    # distracting block of one room: 12 entries over 10 cells, two of them listed twice.
    # 9 degrees of freedom: P(chi-square > 27.9) = 0.001
    levels = drawn("goto_win-distr_rule", 3000)
    blocks = collections.Counter(
        (x, y)
        for cells in levels
        for x, y, (token,) in cells
        if token in ("noun:ball", "noun:key", "noun:door") and (x, y) != (1, 1)
    )
    assert len(set(EDGES)) == 10
    assert uniform_chi_square(blocks, collections.Counter(EDGES)) < 27.9

    # baba of two rooms where nothing else can be in its way: 12 cells, P(> 31.3) = 0.001
    levels = drawn("two_room-break_stop-goto_win", 3000)
    babas = collections.Counter((x, y) for cells in levels for x, y, s in cells if "obj:baba" in s)
    assert uniform_chi_square(babas, collections.Counter(box(2, 5, 3, 5))) < 31.3

    # maybe_break_stop: left 5 x 6 cells less two rules and baba = 23, right 5 x 6 = 30 free
    levels = drawn("two_room-maybe_break_stop-goto_win", 3000)
    right = sum(x > 6 for cells in levels for x, y, (t,) in cells if t.count(":") == 2)
    assert right / 3000 == pytest.approx(30 / 53, abs=0.03)

    # distr_win_rule covers (11, 4), one of the block's 9 cells: 1/9 of the levels have a pile;
    # it also covers 2 of the loose noun's 12 cells: 1 - 8/9 * 10/12 = 7/27
    for task, share in (("goto_win", 1 / 9), ("make_win", 7 / 27)):
        levels = drawn(f"two_room-{task}-distr_win_rule", 3000)
        piles = sum(any(len(s) > 1 for _, _, s in cells) for cells in levels)
        assert piles / 3000 == pytest.approx(share, abs=0.03)


# Puzzles by hand

LEGEND = dict(
    zip(
        "bwokdBWOKD=Y!SLP",
        "obj:baba obj:wall obj:ball:red obj:key:red obj:door:red noun:baba noun:wall noun:ball "
        "noun:key noun:door is prop:you prop:win prop:stop prop:lose prop:push".split(),
        strict=True,
    )
)
LETTER = {plain(token): letter for letter, token in LEGEND.items()}


def level_of(*rows: str) -> Level:
    cells = [
        [x, y, [LEGEND[letter]]]
        for y, row in enumerate(rows, 1)
        for x, letter in enumerate(row, 1)
        if letter != "."
    ]
    return Level.from_cells(len(rows[0]) + 2, len(rows) + 2, cells)


def rows_of(level: Level) -> list[str]:
    tops = {(x, y): LETTER[plain(stack[-1])] for x, y, stack in level.cells()}
    return [
        "".join(tops.get((x, y), ".") for x in range(1, level.width - 1))
        for y in range(1, level.height - 1)
    ]


def play(level: Level, actions: str) -> list[float]:
    return [level.step(action)[0] for action in actions.split()]


def test_chain_of_text_stops_at_the_edge():
    level = level_of("B=Y....", "bKO.D..")
    play(level, "right")
    assert rows_of(level)[1] == ".bKOD.."  # two blocks moved, the gap closed
    play(level, "right right right")
    assert rows_of(level)[1] == "...bKOD"  # two steps, then the edge holds the chain
    play(level, "left")
    assert rows_of(level)[1] == "..b.KOD"  # nothing is pulled


def test_stop_holds_baba_and_text():
    level = level_of("B=Y...", "W=S...", "bK.w..", "b.w...")
    # above: K moves to x = 3, then the wall holds it; below: one step, then the wall itself
    play(level, "right right right")
    assert rows_of(level)[2:] == [".bKw..", ".bw..."]


def test_text_hides_what_it_is_pushed_onto():
    level = level_of("B=Y...", "bKow..")
    play(level, "right")
    assert rows_of(level)[1] == ".bKw.."
    assert [3, 2, ["obj:ball:red", "noun:key"]] in level.cells()
    play(level, "right right")
    # K lies on the empty cell behind the wall; baba stands on the wall, the ball is back
    assert rows_of(level)[1] == "..obK."


def test_breaking_stop_opens_the_wall():
    level = level_of("B=Y...", "......", "W=S...", "..b.w.", "......")
    play(level, "right right")
    assert rows_of(level)[3] == "...bw."  # stopped
    play(level, "left up")
    assert level.rules() == [["baba", "is", "you"]]
    assert rows_of(level)[1:4] == ["..S...", "W=b...", "....w."]
    play(level, "down right right right")
    assert rows_of(level)[3] == "....wb"  # walked over it


def test_making_win_and_stepping_on_it():
    level = level_of("B=Y...", "..b...", "..O...", "......", ".=.=!.", "..o...")
    # O goes down twice, between two `is`: it is read with the right one only
    assert play(level, "down down") == [0, 0]
    assert rows_of(level)[2:] == ["......", "..b...", ".=O=!.", "..o..."]
    assert level.rules() == [["baba", "is", "you"], ["ball", "is", "win"]]
    # around the rule to the ball; the win comes at step 2 + 8
    rewards = play(level, "right right right down down left left left")
    assert rewards == [0] * 7 + [pytest.approx(1 - 0.9 * 10 / 100)]


def test_vertical_and_shared_blocks():
    # The `is` in the middle reads across (baba is you), then down (ball is key).
    level = level_of(".O..", "B=Y.", ".K..")
    assert level.rules() == [["baba", "is", "you"], ["ball", "is", "key"]]
    # one `is` may not be a subject or a predicate; a property is no subject
    assert level_of("B==Y", "Y=B.").rules() == []
    # the same rule twice stays twice
    assert level_of("B=Y", "B=Y").rules() == [["baba", "is", "you"]] * 2


def test_the_rules_before_the_action_decide():
    # The upper baba completes `ball is win`; the lower one, later, steps onto the ball: too early.
    level = level_of("B=Y...", "bO.=!.", "bo....")
    assert play(level, "right") == [0]
    assert level.rules() == [["baba", "is", "you"], ["ball", "is", "win"]]
    # Standing there does not win, stepping off and on again does: step 4.
    assert play(level, "idle left right") == [0, 0, pytest.approx(1 - 0.9 * 4 / 100)]
    # The upper one breaks it, reading downwards; the lower one still wins.
    level = level_of("B=Y...", "bO....", ".=....", ".!....", "bo....")
    assert play(level, "right") == [pytest.approx(0.991)]
    assert level.rules() == [["baba", "is", "you"]]


def test_the_last_of_several_movers_decides():
    # movers go row by row; the first one's win is overwritten by the second one's empty cell
    level = level_of("B=Y..", "O=!..", "bo...", "b....")
    assert play(level, "right") == [0]
    level = level_of("B=Y..", "O=!..", "b....", "bo...")
    assert play(level, "right") == [pytest.approx(0.991)]


def test_a_mover_covers_the_next_one():
    # to the right the left baba goes first and lands on the other, which is then out of sight
    level = level_of("B=Y..", "bb...")
    play(level, "right")
    assert level.cells()[-1] == [2, 2, ["obj:baba", "obj:baba"]]
    play(level, "right")
    assert rows_of(level)[1] == ".bb.."  # the upper one left
    # to the left each makes room for the next
    level = level_of("B=Y..", ".bb..")
    play(level, "left")
    assert rows_of(level)[1] == "bb..."


def test_two_nouns_are_you():
    level = level_of("B=Y..", "K=Y..", "bkk..")
    # positions count from the last rule's first object, the key at (2, 3)
    assert level.you == 3 * 7 + 2
    # right: baba covers the first key, which stays; the second key moves
    play(level, "right")
    assert rows_of(level)[2] == ".b.k."


def test_bumping_with_baba_is_win():
    level = level_of("B=Y...", "B=!...", "b.....")
    # walking meets the empty cell, which is not WIN; the edge makes baba meet itself
    assert play(level, "right left") == [0, 0]
    assert play(level, "left") == [pytest.approx(1 - 0.9 * 3 / 100)]


def test_noun_is_noun_stacks():
    level = level_of("B=Y..", "O=K..", "b.o..")
    assert rows_of(level)[2] == "b.o.."  # not at the start
    play(level, "idle")
    assert rows_of(level)[2] == "b.o.."  # nor when nobody acts
    play(level, "up")  # into O and B, which the edge holds: nothing moves, but the rule acts
    assert rows_of(level)[2] == "b.k.."
    assert level.cells()[-1] == [3, 3, ["obj:ball:red", "obj:key:green"]]
    assert "is key" not in level.text()  # the text omits such rules


def test_x_is_x_stacks_a_copy_every_step():
    level = level_of("O=O...", "O=Y...", ".o....")
    play(level, "right")  # the ball moves to x = 3, then gets a copy on top
    assert level.cells()[-1] == [3, 3, ["obj:ball:red", "obj:ball:blue"]]
    play(level, "right")  # only the copy moves; both tops are copied
    assert level.cells()[-2:] == [
        [3, 3, ["obj:ball:red", "obj:ball:blue"]],
        [4, 3, ["obj:ball:blue", "obj:ball:blue"]],
    ]


def test_becoming_another():
    # pushing B up out of `baba is you` leaves nothing that is YOU
    level = level_of("......", "B=Y...", "b.....", "O.....", "o.....")
    play(level, "up")
    assert rows_of(level)[0] == "B....."
    assert level.you is None
    assert level.text().endswith("Nothing on the map is YOU any more. You have lost.")
    # pushing O into its place makes the ball YOU
    level = level_of("......", "B=Y...", "O.....", "b.....", "o.....")
    play(level, "up")
    assert rows_of(level)[:3] == ["B.....", "O=Y...", "b....."]
    assert level.rules() == [["ball", "is", "you"]]
    play(level, "right")
    assert rows_of(level)[2:] == ["b.....", "......", ".o...."]


def test_lose_and_push():
    level = level_of("B=Y..", "O=L..", "bo...")
    assert level.step("right") == (-1.0, True)
    level = level_of("B=Y..", "O=L..", "bo...", "O=!..")
    assert level.step("right") == (pytest.approx(0.991), True)  # win beats lose
    # keys and text push each other
    level = level_of("B=Y...", "K=P...", "bkOk..")
    play(level, "right right")
    assert rows_of(level)[2] == "..bkOk"
    # now the edge holds the last key, which is not STOP: O goes on top of it
    play(level, "right")
    assert rows_of(level)[2] == "...bkO"
    assert level.cells()[-1] == [6, 3, ["obj:key:red", "noun:ball"]]
    # and so does baba
    level = level_of("B=Y..", "K=P..", "...bk")
    play(level, "right")
    assert level.cells()[-1] == [5, 3, ["obj:key:red", "obj:baba"]]


def test_step_limit():
    level = level_of("B=Y.", "b...")
    for _ in range(99):
        assert level.step("idle") == (0.0, False)
    assert level.step("idle") == (0.0, True)


def test_text_by_hand():
    # Positions count from baba at (3, 3). The plural depends on the signed offset: right and down
    # from 2 on, left and up never. Another baba is not listed.
    level = level_of("B=Y..", "..K..", "..b.o", ".....", "b.d..")
    assert level.text() == (
        "Active rules:\nbaba is you\n\nObjects on the map:\n"
        "rule `baba` 2 step to the left and 2 step up\n"
        "rule `is` 1 step to the left and 2 step up\n"
        "rule `you` 2 step up\n"
        "rule `key` 1 step up\n"
        "ball 2 steps to the right\n"
        "door 2 steps down"
    )
    # An own line would stand at (0, 0): it is empty.
    assert level_of("K=Y", "k..").text().split("\n")[4:] == [
        "rule `key` 1 step up",
        "rule `is` 1 step to the right and 1 step up",
        "rule `you` 2 steps to the right and 1 step up",
        "",
    ]
    # no rule: an empty line
    assert level_of("B.Y", "b..").text().startswith("Active rules:\n\n\nNothing on the map")


def test_unknown_token():
    with pytest.raises(ValueError, match="noun:me"):
        Level.from_cells(4, 4, [[1, 1, ["noun:me"]]])


# Properties

token = st.sampled_from(
    sorted(TOKENS - {"", "#"}) + ["is", "noun:baba", "prop:you", "obj:baba"] * 4
)
stacks = st.lists(token, max_size=2)
WIDTH, HEIGHT = 6, 5


@st.composite
def layouts(draw):
    columns = draw(st.lists(stacks, min_size=12, max_size=12))
    places = [(x, y) for y in range(1, HEIGHT - 1) for x in range(1, WIDTH - 1)]
    return [[x, y, s] for (x, y), s in zip(places, columns, strict=True) if s]


def text_blocks(level):
    everything = (token for _, _, stack in level.cells() for token in stack)
    return sorted(token for token in everything if not token.startswith("obj"))


@settings(max_examples=200, deadline=None)
@given(layouts(), st.lists(st.sampled_from(ACTIONS), max_size=12))
def test_any_play_keeps_the_text_blocks(cells, actions):
    level = Level.from_cells(WIDTH, HEIGHT, cells)
    assert level.cells() == cells
    blocks = text_blocks(level)
    for action in actions:
        reward, done = level.step(action)
        assert text_blocks(level) == blocks
        assert done == (reward != 0)
        again = Level.from_cells(WIDTH, HEIGHT, level.cells())
        assert again.cells() == level.cells()
        assert (again.rules(), again.text()) == (level.rules(), level.text())
        inside = [(x, y) for x, y, _ in level.cells()]
        assert all(0 < x < WIDTH - 1 and 0 < y < HEIGHT - 1 for x, y in inside)


# The environment


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.filterwarnings("ignore")
def test_gymnasium_checks(task):
    check_env(BabaIsAI(task))


@pytest.mark.parametrize("task", TASKS)
def test_seeds_decide(task):
    def episode(seed):
        env, dice = BabaIsAI(task), random.Random(0)
        texts = [env.reset(seed=seed)[0]]
        for _ in range(30):
            text, _, terminated, truncated, _ = env.step(f"ACTION: {dice.choice(ACTIONS)}")
            texts.append(env.reset()[0] if terminated or truncated else text)
        return texts + [env.reset()[0]]

    assert episode(5) == episode(5)
    assert len({BabaIsAI(task).reset(seed=seed)[0] for seed in range(20)}) > 10


def env_with(*rows: str, **options) -> BabaIsAI:
    env = BabaIsAI("goto_win", **options)
    env.reset(seed=0)
    env.level = level_of(*rows)
    env.level.max_steps = env.max_episode_steps
    return env


WINNING = ("B=Y..", "O=!..", "b.o..")


def test_win_is_success():
    # the second step wins; native reward 1 - .9 * 2 / 100
    for binary, reward in ((True, 1.0), (False, 0.982)):
        env = env_with(*WINNING)
        env.binary_reward = binary
        assert env.step("THINK: go ACTION: right")[1:4] == (0.0, False, False)
        _, got, terminated, truncated, info = env.step("ACTION: right")
        assert (got, terminated, truncated) == (pytest.approx(reward), True, False)
        assert info["success"] and info["valid"]


def test_invalid_response_idles_and_costs():
    env = env_with(*WINNING)
    before = env.level.cells()
    text, reward, terminated, truncated, info = env.step("THINK: I fly. ACTION: fly")
    assert env.level.cells() == before
    assert (reward, terminated, truncated) == (pytest.approx(-0.1), False, False)
    assert (info["action"], info["valid"], info["success"]) == ("idle", False, False)
    assert info["kept_response"] == "THINK: I fly.\nACTION: idle"
    assert env_with(*WINNING, format_penalty=0.25).step("")[1] == -0.25


def test_no_you_is_failure():
    env = env_with("......", "B=Y...", "b.....")
    text, reward, terminated, truncated, info = env.step("ACTION: up")
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)
    assert text == "Active rules:\n\n\nNothing on the map is YOU any more. You have lost."


def test_time_limit_truncates():
    env = env_with(*WINNING)
    ends = [env.step("ACTION: idle")[2:4] for _ in range(100)]
    assert ends == [(False, False)] * 99 + [(False, True)]
    # a longer limit stretches the native reward: a win at step 122 of 150
    env = env_with(*WINNING, max_episode_steps=150)
    env.binary_reward = False
    for _ in range(120):
        assert env.step("ACTION: idle")[2:4] == (False, False)
    env.step("ACTION: right")
    _, reward, terminated, truncated, info = env.step("ACTION: right")
    assert (reward, terminated, truncated) == (pytest.approx(1 - 0.9 * 122 / 150), True, False)


def test_prompt_and_picture():
    env = BabaIsAI("two_room-goto_win")
    _, info = env.reset(seed=1)
    assert info["system"] == SYSTEM and SYSTEM.endswith("PLAY!")
    assert info["instruction"].splitlines()[1:] == [
        "    THINK: step-by-step reasoning",
        "    ACTION: One valid action from the allowed set: idle, up, right, down, left",
    ]
    frame = env.render()
    assert frame.dtype == np.uint8 and frame.shape == (9 * 32, 13 * 32, 3)
    assert (frame[4 * 32 + 3, 6 * 32 + 3] != frame[4 * 32 + 3, 0]).any()  # wall and border differ


def test_unknown_task():
    with pytest.raises(ValueError, match="two_room-goto_win"):
        BabaIsAI("two_rooms")
