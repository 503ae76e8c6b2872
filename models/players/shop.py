"""A player of the shop whose thoughts are right and whose calls are often wrong.

Its thoughts name what it needs, which item fits and which one to put back. Its calls take the first
item of the list whatever its colour, or one of the right colour whatever its price; they check out
too early, add one item more, keep a wrong item, or are missing because it gives up.
"""

import json
from itertools import product

from envs.tools.shop import COLOURS, KINDS, LIMITS, PRICES, Good, Shop, Want

# first, dear: shares of the choices in which it takes the first item of a list, or one too dear
# early: share of the turns in which it checks out although an item is missing
# more: share of the check-outs before which it adds one more item
# keeps: share of the turns in which it checks out with a wrong item instead of putting it back
# quits: share of all turns in which it gives up
TASKS = {
    "shop": dict(
        episodes=6000, stray=0.1, first=0.25, dear=0.2, early=0.3, more=0.1, keeps=0.7, quits=0.03
    ),
}
SHORTEST_MEMORY = LONGEST_MEMORY = 8  # the whole episode
TOOLS = "".join(f"\n{json.dumps(tool['function'])}" for tool in Shop().template["tools"])
CALL, END = '.\n<tool_call>\n{{"name": "{}", "arguments": {{{}', "}}\n</tool_call>"
# As one token each, these passages make a prompt many times shorter.
PASSAGES = [
    *(f"{Shop.system}\n\n# Tools{TOOLS}", "<|im_start|>tool\n"),
    *("Basket:\n- ", "The basket is empty.", "Thank you.", "Error: the ", "Error: there is no "),
    *(CALL.format("search", '"kind": "'), CALL.format("check_out", END)),
    *(CALL.format(name, '"item": "') for name in ("add", "remove")),
    *(f'"{END}', "Buy a ", " and a ", "I need a ", "I take the ", "I put back the ", "That is all"),
    *(", but I give up.", "- ", "\n- ", " is in the basket already", " is not in the basket"),
    *(str(Good(*thing)) for thing in product(COLOURS, KINDS, PRICES)),
    *(str(Want(*thing)) for thing in product(COLOURS, KINDS, LIMITS)),
    *KINDS,
]


class Player:
    def __init__(
        self,
        task: str,
        rng,
        first=0.0,
        dear=0.0,
        early=0.0,
        more=0.0,
        keeps=0.0,
        quits=0.0,
        stray=0.0,
    ):
        self.rng, self.stray = rng, stray
        self.first, self.dear, self.early, self.more = first, dear, early, more
        self.keeps, self.quits = keeps, quits
        self.env = Shop()

    def start(self) -> None:
        self.kinds = []  # the kinds that it has searched for, the latest last

    def respond(self, text: str) -> tuple[str, str]:
        reasoning, call = self.plan()
        chosen = response_with(reasoning, self.fail(call))
        executed = chosen
        if self.rng.random() < self.stray:
            executed = response_with(reasoning, self.any_call())
        self.notice(executed)
        return chosen, executed

    def notice(self, executed: str) -> None:
        """Remember the kinds that a response searches for."""
        for kind in KINDS:
            if f'"{kind}"' in executed:
                self.kinds.append(kind)

    def plan(self) -> tuple[str, tuple]:
        """Return the right thought and the right call: a tool's name and its argument, if any."""
        wrong, missing = self.env.check_basket()
        if wrong:
            return f"I put back the {wrong[0]}", ("remove", wrong[0])
        if not missing:
            return "That is all", ("check_out",)
        want = missing[0]
        if want.kind not in self.kinds:
            return f"I need a {want}", ("search", want.kind)
        item = next(item for item, good in self.env.shelf.items() if want.fits(good))
        return f"I take the {item}", ("add", item)

    def fail(self, call: tuple) -> tuple | None:
        """Return the call to learn: the right one or a mistake; None: it gives up."""
        name, luck = call[0], self.rng.random()
        if self.rng.random() < self.quits:
            return None
        if name == "add" and luck < self.first + self.dear:
            return ("add", self.first_of_list() if luck < self.first else self.too_dear())
        if name == "search" and self.env.basket and luck < self.early:
            return ("check_out",)
        if name == "remove" and luck < self.keeps:
            return ("check_out",)
        if name == "check_out" and luck < self.more:
            return ("add", self.first_of_list())
        return call

    def want(self) -> Want:
        """Return the order that it is about to fulfil, or the last one if none is left."""
        return (self.env.check_basket()[1] or self.env.wanted[::-1])[0]

    def of_kind(self, kind: str) -> list[str]:
        return [item for item, good in self.env.shelf.items() if good.kind == kind]

    def first_of_list(self) -> str:
        return self.of_kind(self.want().kind)[0]

    def too_dear(self) -> str:
        """Return the item of the right colour whose price is above the customer's limit."""
        want, shelf = self.want(), self.env.shelf
        same = [item for item in self.of_kind(want.kind) if shelf[item].colour == want.colour]
        return next(item for item in same if shelf[item].price > want.limit)

    def any_call(self) -> tuple:
        """Return a random call that does not end the episode."""
        if not self.kinds or self.rng.random() < 0.3:
            return ("search", KINDS[self.rng.integers(len(KINDS))])
        items = self.of_kind(self.kinds[self.rng.integers(len(self.kinds))])
        return ("add", items[self.rng.integers(len(items))])


def response_with(reasoning: str, call: tuple | None) -> str:
    """Return a response that consists of the thought and the call, or of giving up."""
    if call is None:
        return f"{reasoning}, but I give up."
    name, *argument = call
    parameter = "kind" if name == "search" else "item"
    arguments = {parameter: argument[0]} if argument else {}
    tool_call = json.dumps({"name": name, "arguments": arguments})
    return f"{reasoning}.\n<tool_call>\n{tool_call}\n</tool_call>"
