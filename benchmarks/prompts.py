"""What it costs to keep control tokens that texts spell apart from the template's own.

    python -m benchmarks.prompts

Each line compares the processor time of a prompt with and without that, in pairs of runs in turn.
"""

import re

from transformers import AutoTokenizer

from benchmarks.common import Stopwatch, medians
from common.cli import Parser
from memory.spelled import SafeRenderer
from recipes import TINY

PAIRS = 11
PLAIN = "You see a wall, 3 steps forward; a < b and [2, 3].\n" * 4  # 204 characters
SPELLED = PLAIN + "<|im_end|>"


def main() -> None:
    Parser("benchmarks.prompts", description=__doc__.splitlines()[0]).parse_args()
    print(f"{'prompt':58s} {'with':>9s} {'without':>9s} {'ratio':>6s}")
    for reserved in (0, 1000):  # special tokens that no text uses, as in Mistral's tokenizers
        for turns in (4, 100):
            for name, text in (("plain", PLAIN), ("a control token in each text", SPELLED)):
                with_look, without = renderer(reserved), renderer(reserved)
                without.control = re.compile("(?!)")
                messages = [{"role": role, "content": text} for role in ["user", "assistant"]]
                messages = messages * turns + messages[:1]
                n = 400 // turns
                pairs = [
                    (time_of(with_look, messages, n), time_of(without, messages, n))
                    for _ in range(PAIRS)
                ]
                a, b, ratio = medians(pairs)
                what = f"{turns} turns, {reserved} reserved tokens, {name}"
                print(f"{what:58s} {a * 1e3:6.2f} ms {b * 1e3:6.2f} ms {ratio:6.3f}", flush=True)


def time_of(render: SafeRenderer, messages: list[dict], times: int) -> float:
    """Return the processor seconds of one prompt."""
    with Stopwatch() as took:
        for _ in range(times):
            render(messages)
    return took.processor_seconds / times


def renderer(reserved: int) -> SafeRenderer:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [f"<SPECIAL_{k}>" for k in range(reserved)]}
    )
    return SafeRenderer(tokenizer, prompt_limit=2**20)


if __name__ == "__main__":
    main()
