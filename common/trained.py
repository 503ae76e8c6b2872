"""What --train means: which of the actor's weights are trained."""

from argparse import ArgumentTypeError

ALL, LORA, TOP = "all", "lora:", "top:"
FORMS = "all, lora:RANK or top:LAYERS"


def trained(text: str) -> str:
    """The type of --train."""
    kind = next((kind for kind in (LORA, TOP) if text.startswith(kind)), None)
    number = text.removeprefix(kind or "")
    if text != ALL and not (kind and number.isascii() and number.isdigit() and int(number)):
        raise ArgumentTypeError(f"{text!r} is not of the form {FORMS}, with a number above 0")
    return text if text == ALL else f"{kind}{int(number)}"


def lora_rank(train: str) -> int:
    """Return the rank of the adapters that a --train asks for, or 0."""
    return _number(train, LORA)


def _number(train: str, kind: str) -> int:
    return int(train.removeprefix(kind)) if train.startswith(kind) else 0


class Trained:
    """Mixed into flags with --train: the numbers that it names. They are 0 where it does not."""

    @property
    def lora_rank(self) -> int:
        """The rank of the adapters."""
        return lora_rank(self.train)

    @property
    def top_layers(self) -> int:
        """How many layers are trained, from the top."""
        return _number(self.train, TOP)
