"""A shop: a customer orders one or two things, and the agent buys them with tools.

`search` lists the goods of a kind with colour and price, as in "red lamp for 40"; `add` and
`remove` take an item of this list. `check_out` ends the episode: the right basket pays 1, and in
any other basket each wrong item costs WRONG_ITEM_COST. A message without a call ends it with 0.

Errors of the tools are ValueErrors, whose text the model reads.
"""

from dataclasses import dataclass

from envs.tools.tool_env import ToolEnv

COLOURS = ("red", "green", "blue", "black")
KINDS = ("lamp", "cup", "bag")
PRICES = tuple(range(10, 70, 10))
LIMITS = PRICES[1:-2]  # each has prices below and above it
WRONG_ITEM_COST = 0.1  # of each wrong item in the basket at the check-out


@dataclass(frozen=True)
class Good:
    """A thing on the shelf. No two are equal."""

    colour: str
    kind: str
    price: int

    def __str__(self) -> str:
        return f"{self.colour} {self.kind} for {self.price}"


@dataclass(frozen=True)
class Want:
    """One thing that the customer orders."""

    colour: str
    kind: str
    limit: int

    def __str__(self) -> str:
        return f"{self.colour} {self.kind} for at most {self.limit}"

    def fits(self, good: Good) -> bool:
        same = (good.colour, good.kind) == (self.colour, self.kind)
        return same and good.price <= self.limit


class Shop(ToolEnv):
    """The customer orders one thing or two, and exactly one good of the shop fits each."""

    family = "shop"
    tasks = ()
    tools = ("search", "add", "remove", "check_out")
    system = (
        "You buy in a shop what the customer wants, and nothing else. Use the tools. Before each "
        "call, say in a few words why you make it. Check out when the basket is right."
    )
    max_turns = 8

    def question(self, seed: int | None) -> str:
        rng = self.np_random
        kinds = [str(kind) for kind in rng.permutation(KINDS)[: rng.integers(1, 3)]]
        self.wanted = [Want(str(rng.choice(COLOURS)), k, int(rng.choice(LIMITS))) for k in kinds]
        wants = {want.kind: want for want in self.wanted}
        goods = [good for kind in KINDS for good in self._goods(kind, wants.get(kind))]
        self.shelf = {str(good): good for good in goods}
        self.basket: list[str] = []
        return f"Buy a {' and a '.join(map(str, self.wanted))}."

    def _goods(self, kind: str, want: Want | None) -> list[Good]:
        """Return three goods of a kind; of the wanted colour, one fits and one is too dear."""
        if want is None:
            colours = self.np_random.permutation(COLOURS)[:3]
            return [Good(str(colour), kind, self._draw(PRICES)) for colour in colours]
        cheap = [price for price in PRICES if price <= want.limit]
        dear = [price for price in PRICES if price > want.limit]
        others = [colour for colour in COLOURS if colour != want.colour]
        goods = [
            Good(want.colour, kind, self._draw(cheap)),
            Good(want.colour, kind, self._draw(dear)),
            Good(self._draw(others), kind, self._draw(PRICES)),
        ]
        return [goods[k] for k in self.np_random.permutation(3)]

    def _draw(self, options):
        return options[self.np_random.integers(len(options))]

    def search(self, kind: str) -> str:
        """
        List the things of a kind that the shop has.

        Args:
            kind: what to look for (choices: ["lamp", "cup", "bag"])
        """
        return _bullets([item for item, good in self.shelf.items() if good.kind == kind])

    def add(self, item: str) -> str:
        """
        Put a thing into the basket.

        Args:
            item: the thing as it is listed
        """
        if item not in self.shelf:
            raise ValueError(f"there is no {item}")
        if item in self.basket:
            raise ValueError(f"the {item} is in the basket already")
        self.basket.append(item)
        return self._basket_text()

    def remove(self, item: str) -> str:
        """
        Take a thing out of the basket.

        Args:
            item: the thing as it is listed
        """
        if item not in self.basket:
            raise ValueError(f"the {item} is not in the basket")
        self.basket.remove(item)
        return self._basket_text()

    def check_out(self) -> str:
        """
        Pay for what is in the basket and leave the shop.
        """
        if self.over:  # by an earlier call of the same message
            raise ValueError("you have left the shop")
        wrong, missing = self.check_basket()
        self.pay(-WRONG_ITEM_COST * len(wrong) if wrong or missing else 1.0)
        self.end()
        return "Thank you."

    def reward(self, answer: str) -> float:
        return 0.0  # the agent left without buying anything

    def check_basket(self) -> tuple[list[str], list[Want]]:
        """Return the items of the basket that fit no order, and the orders that no item fits."""
        goods = {item: self.shelf[item] for item in self.basket}
        wrong = [
            item for item, good in goods.items() if not any(want.fits(good) for want in self.wanted)
        ]
        missing = [want for want in self.wanted if not any(map(want.fits, goods.values()))]
        return wrong, missing

    def _basket_text(self) -> str:
        return f"Basket:\n{_bullets(self.basket)}" if self.basket else "The basket is empty."


def _bullets(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
