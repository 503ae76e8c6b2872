"""Environments of other libraries by name. Each library's tests need its package."""

import random
import shutil
import tomllib
from importlib import metadata, util
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Text

import envs
from arguments import get_args
from envs.ecosystems.broken import Breakable
from envs.foreign import ForeignEnv
from envs.registered import announce_time_limit
from envs.text_env import act, begin

HAVE = {
    "textarena": util.find_spec("textarena"),
    "reasoning-gym": util.find_spec("reasoning_gym"),
    "gem": util.find_spec("gem"),
    "textworld": util.find_spec("textworld"),
    "scienceworld": util.find_spec("scienceworld") and shutil.which("java"),
    "pettingzoo": util.find_spec("pettingzoo"),
    "openenv": util.find_spec("openenv"),
}


def lacks(library: str) -> str:
    return f"{library} is not installed: pip install '{envs.LIBRARIES[library][1]}'"


def needs(library: str):
    return pytest.mark.skipif(not HAVE[library], reason=lacks(library))


def turn(env, move: str):
    return act(env, f"THINK: hm\nACTION: {move}")


def line_of(name: str) -> str:
    """The one-line reason why the environment cannot be made."""
    with pytest.raises(ValueError) as raised:
        envs.make_env(name)
    line = str(raised.value)
    assert "\n" not in line and name in line
    return line


NAMES = [f"{library}:x" for library in envs.LIBRARIES]


@pytest.mark.parametrize("name", NAMES)
def test_a_library_is_a_family(name):
    library = name.partition(":")[0]
    assert envs.family(name) == envs.library(name) == library
    assert get_args(["--env-name", name]).prompt_limit == 4096
    announce_time_limit(name, None)  # it imports nothing, and there is nothing to tell


def test_names_of_a_users_own_modules():
    assert envs.library("textarena") == envs.library("textarena_of_mine:x") == ""
    assert envs.family("textarena_of_mine:x") == "foreign"
    with pytest.raises(ValueError, match="unknown environment 'textarena'; nearest first: "):
        envs.make_env("textarena")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package(name, monkeypatch):
    def version(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)
    wanted = envs.LIBRARIES[name.partition(":")[0]][1]
    line, package = line_of(name), wanted.partition("==")[0].partition("[")[0]
    assert line.startswith(f"{name} needs the package {package}: pip install {wanted}, see docs/")
    assert "a module of your own must have another name" in line


def test_a_package_that_lacks_one_of_its_own(monkeypatch):
    monkeypatch.setitem(envs.LIBRARIES, "moon", ("no_such_package.moon:Moon", "numpy==2"))
    assert line_of("moon:walk") == "moon:walk needs the package no_such_package, please install it"


class Lunatic:
    def __init__(self, name):
        random.random(), np.random.random()
        raise RuntimeError("many\nlines")


def test_a_constructor_that_fails(monkeypatch):
    monkeypatch.setitem(envs.LIBRARIES, "moon", (f"{__name__}:Lunatic", "numpy==2"))
    before = random.getstate(), np.random.get_state()[1].tolist()
    line = "environment 'moon:walk' cannot be made: RuntimeError: many lines"
    assert line_of("moon:walk") == line
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_all_lists_name_the_same_versions():
    root = Path(__file__).resolve().parents[3]
    listed = tomllib.loads((root / "pyproject.toml").read_text())
    for library, (_, wanted) in envs.LIBRARIES.items():
        assert listed["project"]["optional-dependencies"][library] == [wanted]
        assert wanted in (root / "docs" / "ecosystems.md").read_text()
    tested = {envs.LIBRARIES[name][1] for name in ("textarena", "reasoning-gym")}
    assert tested <= {*listed["dependency-groups"]["games"]}


# What a library's own tests play: the environment's name and moves, some of them invalid.
PLAYED = {
    "textarena": ("textarena:2048-v0", ["left", "up", "fly", "[right]", "down"]),
    "reasoning-gym": ("reasoning-gym:chain_sum", ["12"]),
    "gem": ("gem:Game2048-v0-easy", ["left", "\\boxed{up}", "right", "down", "fly"]),
    "textworld": ("textworld:{games}", ["look", "fly", "inventory", "go north", "go east"]),
    "scienceworld": ("scienceworld:find-animal", ["look around", "fly", "inventory"]),
    "pettingzoo": ("pettingzoo:connect_four_v3", ["3", "3", "fly"]),
    "openenv": ("openenv:openenv_guess:GuessEnvironment", ["9", "0", "nine"]),
}


@pytest.fixture(scope="session")
def games(tmp_path_factory):
    """A folder with two games of TextWorld."""
    textworld = pytest.importorskip("textworld.generator")
    folder = tmp_path_factory.mktemp("games")
    for seed in (7, 8):
        options = textworld.GameOptions()
        options.seeds, options.nb_rooms, options.nb_objects, options.quest_length = seed, 2, 4, 2
        options.path = str(folder / f"game{seed}.z8")
        textworld.compile_game(textworld.make_game(options), options)
    return folder


@pytest.fixture
def played(request):
    """Makes environments of a library, which are closed when the test ends."""
    library = request.param
    if not HAVE[library]:
        pytest.skip(lacks(library))
    name, moves = PLAYED[library]
    if "{games}" in name:
        name = name.format(games=request.getfixturevalue("games"))
    made = []

    def make(**options):
        made.append(envs.make_env(name, **options))
        return made[-1]

    yield make, moves
    for env in made:
        env.close()


def play(env, moves, other=None) -> list:
    """Play an episode, or its beginning, and let another environment act in between."""
    results = [begin(env, 12)]
    for move in moves:
        if other and turn(other, move).done:
            begin(other, 5)
        step = turn(env, move)
        results.append(step)
        if step.done:
            break
    return results


@pytest.mark.parametrize("played", PLAYED, indirect=True)
def test_an_episode_replays_beside_another_environment(played):
    make, moves = played
    one, two = make(), make()
    before = random.getstate(), np.random.get_state()[1].tolist()
    alone = play(one, moves)
    begin(two, 7)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    random.seed(3), np.random.seed(3)
    assert play(one, moves, other=two) == alone
    assert play(two, moves, other=one) == alone


@pytest.mark.parametrize("played", PLAYED, indirect=True)
def test_the_contract_of_every_library(played):
    make, moves = played
    env = make(format_penalty=0.25)
    first, *steps = play(env, moves)
    assert first.text and first.system and "ACTION: " in first.instruction
    assert len({begin(env, seed).text for seed in range(4)}) > 1
    for step in steps:
        seen = step.observation
        assert 0 < len(seen.kept) <= len(seen.text)
        assert step.observation.system == first.system
        assert step.valid and not step.truncated
    begin(env, 12)
    silent = act(env, "THINK: hm\nACTION:")  # costs the penalty, and in gem also what gem takes
    assert not silent.valid and silent.reward <= -0.25


@pytest.mark.parametrize("played", PLAYED, indirect=True)
def test_the_time_limit_truncates(played):
    make, moves = played
    env = make(max_episode_steps=1)
    begin(env, 12)
    step = turn(env, moves[0])
    assert step.done and (step.truncated or step.terminated)


@needs("textarena")
def test_textarena_shows_new_messages_and_keeps_the_rules():
    env = envs.make_env("textarena:GuessTheNumber-v0")
    first = begin(env, 3)
    assert "between 1 and 20" in first.system and first.text == "The game begins."
    hints, low, high = [], 1, 20
    while True:  # halving finds one of 20 numbers in five turns
        guess = (low + high) // 2
        step = turn(env, str(guess))
        if step.done:
            break
        assert step.reward == 0 and not step.success
        hints.append(step.observation.text)
        low, high = (low, guess - 1) if hints[-1].endswith("lower.") else (guess + 1, high)
    assert len(hints) <= 4 and set(hints) <= {
        f"The target number is {x}er." for x in ("low", "high")
    }
    assert (step.reward, step.terminated, step.success) == (1.0, True, True)
    assert step.metrics == {"ended_by_invalid_move": 0.0, "program_errors": 0.0}
    assert step.observation.text == "Congratulations! You guessed the correct number."


@needs("textarena")
def test_textarena_ends_with_the_second_invalid_move_in_a_row():
    env = envs.make_env("textarena:GuessTheNumber-v0")
    begin(env, 3)
    step = turn(env, "banana")
    assert "invalid move" in step.observation.text and not step.done
    step = turn(env, "banana")
    assert step.terminated and not step.success
    assert step.metrics == {"ended_by_invalid_move": 1.0, "program_errors": 0.0}


@needs("textarena")
def test_textarena_shows_the_board_in_each_turn_and_keeps_none():
    env = envs.make_env("textarena:2048-v0")
    board = begin(env, 3).text
    assert "|" in board and begin(env, 3).kept == "The game begins."
    step = turn(env, "fly")  # no move, so the game itself shows no board
    assert step.observation.text.startswith(board)
    assert "invalid move" in step.observation.kept and board not in step.observation.kept


@needs("textarena")
def test_textarena_with_mixed_up_messages():
    env = envs.make_env("textarena:Countdown-v0")
    begin(env, 3)
    assert "100" in turn(env, "banana").observation.text
    step = turn(env, "banana")
    assert (step.reward, step.terminated) == (0.0, True)


@needs("textarena")
def test_textarena_names():
    assert "no such game; nearest first: GuessTheNumber-v0, " in line_of("textarena:GuessNumber-v0")
    for name in ("TicTacToe-v0", "PublicGoodsGame-v0"):
        assert "only games of a single player" in line_of(f"textarena:{name}")
    assert "cannot be made: SyntaxError" in line_of("textarena:Klondike-v0")


@needs("reasoning-gym")
def test_reasoning_gym_asks_one_question():
    env = envs.make_env("reasoning-gym:chain_sum")
    question = begin(env, 3)
    answer = eval(question.text.partition(":")[2].rstrip("= "))  # such as 205 - 838 + 505
    step = turn(env, str(answer))
    assert (step.reward, step.terminated, step.success) == (1.0, True, True)
    begin(env, 3)
    step = turn(env, str(answer + 1))
    assert step.reward < 0.1 and step.terminated and not step.success
    assert str(answer) in step.observation.text
    assert len({begin(env, seed).text for seed in range(0, 60, 2)}) > 25


@needs("reasoning-gym")
def test_reasoning_gym_scores_unreadable_answers_0():
    env = envs.make_env("reasoning-gym:prime_factorization")
    begin(env, 3)
    step = turn(env, "banana")  # its score raises ValueError
    assert (step.reward, step.terminated, step.success) == (0.0, True, False)


@needs("reasoning-gym")
def test_reasoning_gym_names():
    assert "no such data set; nearest first: chain_sum, " in line_of("reasoning-gym:chainsum")
    assert "name one of them" in line_of("reasoning-gym:composite")


@needs("gem")
def test_gem():
    for name in ("gem:GuessTheNumber-v0-easy", "gem:game:GuessTheNumber-v0-easy"):
        env = envs.make_env(name)
        assert "between 1 and 10" in begin(env, 3).system
        low, high, guess, step = 1, 10, 0, None
        while not (step and step.done):
            if step:
                lower = "lower" in step.observation.kept
                low, high = (low, guess - 1) if lower else (guess + 1, high)
                assert step.observation.text.endswith("Enter your next guess.")
            guess = (low + high) // 2
            step = turn(env, str(guess))
        assert (step.reward, step.terminated, step.truncated, step.success) == (
            1,
            True,
            False,
            True,
        )
    begin(env, 3)
    step = turn(env, "banana")
    assert (step.reward, step.terminated, step.success) == (-0.1, True, False)
    assert "no such game; nearest first: GuessTheNumber-v0-" in line_of("gem:GuessTheNumber-v0")


@needs("textworld")
def test_textworld(games):
    for file in sorted(games.glob("*.z8")):
        env = envs.make_env(f"textworld:{file}")
        assert "look" in begin(env, 1).instruction.partition("commands: ")[2].split("; ")
        for command in env.unwrapped.game.state["extra.walkthrough"]:
            step = turn(env, command)
        assert (step.reward, step.terminated, step.success) == (1.0, True, True)
        env.close()
    for name in (f"textworld:{games}/none.z8", "textworld:MyEnv-v0", "textworld:"):
        assert "neither a .z8 or .ulx file nor a folder with some" in line_of(name)
    (games / "x").mkdir()
    (games / "x" / "old.ulx").write_text("")
    assert "Glulx games are not supported" in line_of(f"textworld:{games}/x/old.ulx")


@needs("scienceworld")
def test_scienceworld():
    env = envs.make_env("scienceworld:find-animal")
    first = begin(env, 3)
    assert "Your task is to" in first.system and "pick up OBJ" in first.system
    assert "inventory" in first.text and "inventory" not in first.kept
    step = turn(env, "focus on agent")  # a wrong focus ruins the task
    assert (step.reward, step.terminated, step.success) == (-1.0, True, False)
    env.close()
    assert "no such task; nearest first: boil, " in line_of("scienceworld:boyl")


@needs("pettingzoo")
def test_pettingzoo_plays_a_random_game_against_the_seeds_moves():
    env = envs.make_env("pettingzoo:tictactoe_v3")
    ends, starts = set(), set()
    for seed in range(0, 40, 2):
        first = begin(env, seed)
        starts.add(first.text.count("O"))
        step = None
        while not (step and step.done):
            board = step.observation.text if step else first.text
            free = [k for k, cell in enumerate(board.split()) if cell == "."]
            step = turn(env, str(free[0]))
            assert step.reward == 0 or step.done
        ends.add((step.reward, step.success))
    assert starts == {0, 1}  # the seed decides who begins
    assert {(1.0, True), (-1.0, False)} <= ends <= {(1.0, True), (-1.0, False), (0.0, False)}
    first = begin(env, 0)
    taken = first.text.split().index("O")
    step = turn(env, str(taken))
    assert (step.reward, step.terminated) == (
        -1.0,
        True,
    ) and "no legal move" in step.observation.text


@needs("pettingzoo")
def test_pettingzoos_chess_has_names_of_moves_for_both_sides():
    env = envs.make_env("pettingzoo:chess_v6")
    played = {}
    for seed in (0, 2):
        first = begin(env, seed)
        move = "e2e4" if "white" in first.system else "e7e5"
        assert f"{move}," in first.instruction
        step = turn(env, move)
        played[move] = step.observation.text.splitlines()
        assert step.reward == 0 and not step.done
    assert played["e2e4"][4].split()[4] == "P" and played["e7e5"][3].split()[4] == "p"
    assert "no such board game; nearest first: chess_v6, " in line_of("pettingzoo:chess")


@needs("openenv")
def test_openenv_in_this_process():
    env = envs.make_env("openenv:openenv_guess:GuessEnvironment")
    first = begin(env, 4)
    assert first.instruction.endswith("ACTION: number (your guess, from 1 to 8).")
    guesses = range(2 - ("odd" in first.text), 9, 2)
    steps = [turn(env, str(guess)) for guess in guesses if guess <= env.unwrapped.game.env.number]
    assert [step.observation.text for step in steps] == ["higher"] * (len(steps) - 1) + ["right"]
    assert (steps[-1].reward, steps[-1].terminated, steps[-1].success) == (1.0, True, True)
    begin(env, 4)
    step = turn(env, "nine")
    assert (step.reward, step.terminated, step.metrics) == (0.0, True, {"program_errors": 1.0})


@needs("openenv")
def test_openenv_with_several_fields():
    env = envs.make_env("openenv:openenv_guess:WalkEnvironment")
    assert "a JSON object with the fields direction (string), steps (how far)." in (
        begin(env, 0).instruction
    )
    step = turn(env, '{"direction": "east", "steps": 3}')
    assert (step.observation.text, step.reward, step.done) == ("east", 3.0, False)
    assert turn(env, '{"wings": 2}').metrics == {"program_errors": 1.0}
    assert "openenv:no_such_module:X: " in line_of("openenv:no_such_module:X")


@needs("openenv")
def test_openenv_at_a_server():
    import threading
    import time

    import uvicorn
    from openenv.core.env_server import create_app
    from openenv_guess import Answer, Guess, GuessEnvironment

    app = create_app(GuessEnvironment, Guess, Answer, env_name="guess", max_concurrent_envs=2)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    far = envs.make_env(f"openenv:http://127.0.0.1:{port}")
    near = envs.make_env("openenv:openenv_guess:GuessEnvironment")
    assert begin(far, 4) == begin(near, 4)
    for guess in "123":
        assert turn(far, guess) == turn(near, guess)
    far.close()
    server.should_exit = True
    thread.join(10)
    assert "cannot be made" in line_of(f"openenv:http://127.0.0.1:{port}")


class Fragile(gymnasium.Env):
    """Counts moves that are numbers; other moves raise, as in a library that trusts its players."""

    observation_space = action_space = Text(100)

    def reset(self, *, seed=None, options=None):
        return "A number?", {"system": "Say numbers."}

    def step(self, action):
        if action == "lost":
            raise ConnectionError("the server is gone")
        return "Again.", float(int(action)), False, False, {"system": "Say numbers."}


def test_a_move_that_breaks_a_library_ends_the_game_as_a_failure():
    env = ForeignEnv(Breakable(Fragile()))
    begin(env, 0)
    step = turn(env, "2")
    assert (step.reward, step.terminated, step.metrics) == (2.0, False, {"program_errors": 0.0})
    step = turn(env, "two")
    assert (step.reward, step.terminated, step.success) == (0.0, True, False)
    assert step.metrics == {"program_errors": 1.0} and "invalid literal" in step.observation.text
    assert step.observation.system == "Say numbers." and begin(env, 1).text == "A number?"
    with pytest.raises(ConnectionError):  # no move causes this: it stays a fault
        turn(env, "lost")
