"""A shop: a customer says what to buy, and the agent buys it with tools.

`search` lists the things of a kind with colour and price, as in "red lamp for 40", and `add` and
`remove` take what is listed. The basket lasts for the episode, which `check_out` ends: the right
basket pays 1, and in any other basket each wrong thing costs. A message without a call leaves the
shop with nothing.
"""

from dataclasses import dataclass

from common.plugins import UserError
from envs.tools.tool_env import ToolEnv

COLOURS = ("red", "green", "blue", "black")
KINDS = ("lamp", "cup", "bag")
PRICES = tuple(range(10, 70, 10))
LIMITS = PRICES[1:-2]  # some prices are below and above each of them
COST = 0.1  # of each wrong thing in the basket at the check-out


@dataclass(frozen=True)
class Good:
    """A thing on the shelf, of which there is one."""

    colour: str
    kind: str
    price: int

    def __str__(self) -> str:
        return f"{self.colour} {self.kind} for {self.price}"


@dataclass(frozen=True)
class Want:
    """What the customer asks for."""

    colour: str
    kind: str
    limit: int

    def __str__(self) -> str:
        return f"{self.colour} {self.kind} for at most {self.limit}"

    def fits(self, good: Good) -> bool:
        same = (good.colour, good.kind) == (self.colour, self.kind)
        return same and good.price <= self.limit


class Shop(ToolEnv):
    """One thing or two are to be bought; exactly one good of the shop fits each of them."""

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
        """Return three goods of a kind; of the wanted colour one fits, and one is too dear."""
        rng = self.np_random
        draw = lambda options: options[rng.integers(len(options))]
        if want is None:
            return [
                Good(str(colour), kind, draw(PRICES)) for colour in rng.permutation(COLOURS)[:3]
            ]
        cheap = [price for price in PRICES if price <= want.limit]
        dear = [price for price in PRICES if price > want.limit]
        others = [colour for colour in COLOURS if colour != want.colour]
        goods = [
            Good(want.colour, kind, draw(cheap)),
            Good(want.colour, kind, draw(dear)),
            Good(draw(others), kind, draw(PRICES)),
        ]
        return [goods[k] for k in rng.permutation(3)]

    def search(self, kind: str) -> str:
        """
        List the things of a kind that the shop has.

        Args:
            kind: what to look for (choices: ["lamp", "cup", "bag"])
        """
        return self._listed([item for item, good in self.shelf.items() if good.kind == kind])

    def add(self, item: str) -> str:
        """
        Put a thing into the basket.

        Args:
            item: the thing as it is listed
        """
        if item not in self.shelf:
            raise UserError(f"there is no {item}")
        if item in self.basket:
            raise UserError(f"the {item} is in the basket already")
        self.basket.append(item)
        return self._told()

    def remove(self, item: str) -> str:
        """
        Take a thing out of the basket.

        Args:
            item: the thing as it is listed
        """
        if item not in self.basket:
            raise UserError(f"the {item} is not in the basket")
        self.basket.remove(item)
        return self._told()

    def check_out(self) -> str:
        """
        Pay for what is in the basket and leave the shop.
        """
        if self.over:  # by an earlier call of the same message
            raise UserError("you have left the shop")
        wrong, missing = self.faults()
        self.pay(-COST * len(wrong) if wrong or missing else 1.0)
        self.end()
        return "Thank you."

    def reward(self, answer: str) -> float:
        return 0.0  # whoever leaves without a purchase is paid nothing

    def faults(self) -> tuple[list[str], list[Want]]:
        """Return the items of the basket that nobody wants, and what is still to be bought."""
        fits = lambda item: any(want.fits(self.shelf[item]) for want in self.wanted)
        wrong = [item for item in self.basket if not fits(item)]
        bought = [self.shelf[item] for item in self.basket]
        return wrong, [want for want in self.wanted if not any(map(want.fits, bought))]

    def _told(self) -> str:
        return f"Basket:\n{self._listed(self.basket)}" if self.basket else "The basket is empty."

    def _listed(self, items: list[str]) -> str:
        return "\n".join(f"- {item}" for item in items)
