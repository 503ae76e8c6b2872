"""dialogue-guess: the answers are true, seven guesses in the middle are enough, counting is not."""

import numpy as np
import pytest

from arguments import get_args
from envs import family, make_env
from envs.dialogue.guess import ANSWERS, LARGEST, LEFT, Guess


def begun(number):
    env = Guess()
    env.reset(seed=0)
    env.number = number
    return env


def test_it_is_made_by_its_whole_name():
    assert isinstance(make_env("dialogue-guess"), Guess)
    assert family("dialogue-guess") == "guess"
    assert make_env("dialogue-guess", max_episode_steps=3).max_turns == 3
    with pytest.raises(ValueError, match="unknown environment 'dialogue-gess'.*dialogue-guess"):
        make_env("dialogue-gess")


def test_by_default_a_prompt_shows_the_whole_dialogue():
    for model in ([], ["--model", "org/model"]):
        args = get_args(["--env-name", "dialogue-guess", *model])
        assert args.memory_length >= Guess.max_turns


def test_the_middle_finds_every_number_in_six_guesses():
    # six guesses that halve tell 2^6 - 1 = 63 >= 50 numbers apart
    for number in range(1, LARGEST + 1):
        env, turns, over, total = begun(number), 0, False, 0.0
        while not over:
            middle = (env.above + env.below) // 2
            text, reward, over, truncated, info = env.step(f"Is it {middle}?")
            turns, total = turns + 1, total + reward
            assert not truncated
        assert turns <= 6 and reward > 1 and info["success"]
        assert total == pytest.approx(2.0)
        assert info["metrics"] == {"wasted_guesses": 0.0}
        assert text == f"Yes, it is {number}!"


def test_counting_finds_only_the_first_seven():
    for number in range(1, 10):
        env = begun(number)
        for guess in range(1, 8):
            _, _, over, truncated, info = env.step(str(guess))
            if over or truncated:
                break
        assert info["success"] == over == (number <= 7)


def test_answers_are_true_and_vary():
    env, answers = begun(20), set()
    for _ in range(20):
        env.turns = 0
        answers.add(env.step("15")[0].removesuffix(LEFT.format(6)))
        answers.add(env.step("25")[0].removesuffix(LEFT.format(5)))
    small = {words.format(15) for words in ANSWERS[True]}
    assert answers == small | {words.format(25) for words in ANSWERS[False]}


def test_the_user_says_how_many_guesses_are_left():
    env = Guess(max_episode_steps=2)
    assert env.reset(seed=0)[0].endswith("guess it? Guesses left: 2.")
    assert env.step("<think>")[0] == Guess.pardon  # and the turn is used up
    assert env.step("nothing")[0] == "Please name a number. Guesses left: 0."


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("From 1 to 50, so 17?", "17"),  # the last number counts
        ("<think>12 or 13</think>I say 17", "17"),
        ("Number 0017.", "17"),
        ("What is it?", "Please name a number."),
        ("12345678901234567890", "Please name a number."),
        ("٣", "Please name a number."),
    ],
)
def test_the_last_number_is_the_guess(message, answer):
    text, reward, over, _, info = begun(20).step(message)
    assert text.startswith(answer) and not over
    assert (reward > 0) == (answer == "17")
    assert info["valid"] and not info["success"]


def test_the_reward_is_the_share_of_numbers_ruled_out():
    # 26 leaves the numbers 1 to 25 of 50: log(51 / 26) / log(51) = .6737 / 3.9318 = .1714
    # 12 then leaves 13 to 25: log(26 / 14) / log(51) = .6190 / 3.9318 = .1574; again, nothing
    # 20 is right: 1 + log(14 / 1) / log(51) = 1 + 2.6391 / 3.9318 = 1.6712; the sum is 2
    env = begun(20)
    rewards = [env.step(str(guess))[1] for guess in (26, 12, 12, 20)]
    assert rewards == pytest.approx([0.1714, 0.1574, 0.0, 1.6712], abs=1e-4)


def test_guesses_that_are_ruled_out_are_counted():
    # 10 and 30 are possible; 5 and 30 are not after that; 20 is: 2 of 5 are wasted
    env = begun(20)
    for guess in (10, 30, 5, 30, 20):
        *_, info = env.step(str(guess))
    assert info["metrics"] == {"wasted_guesses": 2 / 5}


def test_numbers_are_even():
    # 2,000 draws of 50 numbers: 40 of each +- 5 standard deviations of 6.3
    counts = np.zeros(LARGEST + 1)
    env = Guess()
    for seed in range(2000):
        env.reset(seed=seed)
        counts[env.number] += 1
    assert counts[0] == 0 and (abs(counts[1:] - 40) < 32).all()
