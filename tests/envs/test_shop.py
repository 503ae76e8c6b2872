"""The shop against orders worked out by hand."""

import json

import pytest

from envs import make_env
from envs.shop import Good, Shop, Want

SHELF = {
    1: Good("red", "lamp", 30),
    2: Good("red", "lamp", 70),
    3: Good("blue", "lamp", 20),
    4: Good("red", "bag", 20),
    5: Good("green", "cup", 50),
}


@pytest.fixture
def shop():
    """Somebody wants a red lamp for at most 60 and a green cup for at most 50: items 1 and 5."""
    env = Shop()
    env.reset(seed=0)
    env.shelf, env.basket = dict(SHELF), []
    env.wanted = [Want("red", "lamp", 60), Want("green", "cup", 50)]
    return env


def call(name, **arguments):
    text = json.dumps({"name": name, "arguments": arguments})
    return f"I try.\n<tool_call>\n{text}\n</tool_call>"


def add(item):
    return call("add", item=item)


def play(env, *responses):
    """Return (text, reward, terminated, truncated, success) of the last response."""
    for response in responses:
        text, reward, terminated, truncated, info = env.step(response)
    return text, reward, terminated, truncated, info["success"]


def test_a_list_has_all_things_of_a_kind(shop):
    text, reward, *_ = play(shop, call("search", kind="lamp"))
    assert text.splitlines() == [
        "- red lamp for 30, item 1",
        "- red lamp for 70, item 2",
        "- blue lamp for 20, item 3",
    ]
    assert reward == 0


def test_the_right_order_pays_one(shop):
    assert play(shop, add(5)) == ("Basket:\n- green cup for 50, item 5", 0, False, False, False)
    assert play(shop, add(1))[1:] == (0, False, False, False)
    assert play(shop, call("check_out")) == ("Thank you.", 1, True, False, True)


@pytest.mark.parametrize(
    ("items", "reward"),
    [
        ([], 0),  # what is missing costs nothing
        ([1], 0),
        ([1, 5, 3], -0.1),  # 3 is of another colour
        ([2, 3], -0.2),  # and 2 is too dear
    ],
)
def test_wrong_orders_cost_per_wrong_thing(shop, items, reward):
    order = play(shop, *map(add, items), call("check_out"))
    assert order[1:] == (pytest.approx(reward), True, False, False)


def test_what_was_put_back_does_not_count(shop):
    assert play(shop, add(2), call("remove", item=2))[0] == "The basket is empty."
    assert play(shop, add(1), add(5), call("check_out"))[1] == 1


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (add(9), "Error: there is no item 9"),
        (call("remove", item=1), "Error: item 1 is not in the basket"),
        (call("search", kind="car"), "Error: there is no kind 'car'; choices: lamp, cup, bag"),
    ],
)
def test_mistakes_are_told_and_change_nothing(shop, response, error):
    assert play(shop, response)[:3] == (error, 0, False)
    assert shop.basket == []


def test_there_is_one_of_each_thing(shop):
    assert play(shop, add(1), add(1))[0] == "Error: item 1 is in the basket already"
    assert shop.basket == [1]


def test_a_message_without_a_call_leaves_the_shop_without_pay(shop):
    assert play(shop, add(1), add(5), "I give up.")[1:] == (0, True, False, False)


def test_who_checks_out_twice_in_a_message_is_paid_once(shop):
    twice = play(shop, add(1), add(5), call("check_out") + call("check_out"))
    assert twice == ("Thank you.\nError: you have left the shop", 1, True, False, True)


def test_the_time_limit_is_no_end(shop):
    shop.max_turns = 2
    assert play(shop, add(1), add(5))[1:] == (0, False, True, False)


def test_each_question_has_one_right_order():
    env = make_env("tools-shop")
    counts = set()
    for seed in range(200):
        text, _ = env.reset(seed=seed)
        counts.add(len(env.wanted))
        for want in env.wanted:
            fitting = [item for item, good in env.shelf.items() if want.fits(good)]
            same = [g for g in env.shelf.values() if (g.colour, g.kind) == (want.colour, want.kind)]
            assert len(fitting) == 1 and str(want) in text
            assert any(good.price > want.limit for good in same)  # the price has to be looked at
        assert env.reset(seed=seed)[0] == text
    assert counts == {1, 2} and env.family == "shop"


def test_an_episode_begins_with_an_empty_basket(shop):
    play(shop, add(1))
    shop.reset(seed=1)
    assert shop.basket == []
