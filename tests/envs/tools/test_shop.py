"""The shop against orders worked out by hand."""

import json

import pytest

from envs import make_env
from envs.tools.shop import Good, Shop, Want

RIGHT, DEAR, BLUE = "red lamp for 30", "red lamp for 70", "blue lamp for 20"
CUP, BAG = "green cup for 50", "red bag for 20"
SHELF = {
    RIGHT: Good("red", "lamp", 30),
    DEAR: Good("red", "lamp", 70),
    BLUE: Good("blue", "lamp", 20),
    BAG: Good("red", "bag", 20),
    CUP: Good("green", "cup", 50),
}


@pytest.fixture
def shop():
    """Somebody wants a red lamp for at most 60 and a green cup for at most 50: RIGHT and CUP."""
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
        "- red lamp for 30",
        "- red lamp for 70",
        "- blue lamp for 20",
    ]
    assert reward == 0


def test_the_right_order_pays_one(shop):
    assert play(shop, add(CUP)) == ("Basket:\n- green cup for 50", 0, False, False, False)
    assert play(shop, add(RIGHT))[1:] == (0, False, False, False)
    assert play(shop, call("check_out")) == ("Thank you.", 1, True, False, True)


@pytest.mark.parametrize(
    ("items", "reward"),
    [
        ([], 0),  # missing items cost nothing
        ([RIGHT], 0),
        ([RIGHT, CUP, BLUE], -0.1),  # one is of another colour
        ([DEAR, BLUE], -0.2),  # and one is too dear
    ],
)
def test_wrong_orders_cost_per_wrong_thing(shop, items, reward):
    order = play(shop, *map(add, items), call("check_out"))
    assert order[1:] == (pytest.approx(reward), True, False, False)


def test_an_item_that_was_put_back_does_not_count(shop):
    assert play(shop, add(DEAR), call("remove", item=DEAR))[0] == "The basket is empty."
    assert play(shop, add(RIGHT), add(CUP), call("check_out"))[1] == 1


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (add("red car for 1"), "Error: there is no red car for 1"),
        (call("remove", item=CUP), "Error: the green cup for 50 is not in the basket"),
        (
            call("search", kind="car"),
            "Error: the argument 'kind' of search must be one of "
            '["lamp", "cup", "bag"], and not "car"',
        ),
    ],
)
def test_mistakes_are_reported_and_change_nothing(shop, response, error):
    assert play(shop, response)[:3] == (error, 0, False)
    assert shop.basket == []


def test_there_is_one_of_each_thing(shop):
    assert (
        play(shop, add(RIGHT), add(RIGHT))[0]
        == "Error: the red lamp for 30 is in the basket already"
    )
    assert shop.basket == [RIGHT]


def test_a_message_without_a_call_leaves_the_shop_without_pay(shop):
    assert play(shop, add(RIGHT), add(CUP), "I give up.")[1:] == (0, True, False, False)


def test_checking_out_twice_in_a_message_pays_once(shop):
    twice = play(shop, add(RIGHT), add(CUP), call("check_out") + call("check_out"))
    assert twice == ("Thank you.\nError: you have left the shop", 1, True, False, True)


def test_the_time_limit_is_a_truncation(shop):
    shop.max_turns = 2
    assert play(shop, add(RIGHT), add(CUP))[1:] == (0, False, True, False)


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
    play(shop, add(RIGHT))
    shop.reset(seed=1)
    assert shop.basket == []
