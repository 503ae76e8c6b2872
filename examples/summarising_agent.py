"""An agent that replaces its history by a summary that the model itself writes.

    python main.py --env-name agent:examples.summarising_agent:solve --model Qwen/Qwen3-0.6B

The model guesses a hidden number and learns whether it is above or below the guess. After every
third guess the model sums up what it knows, and the earlier messages are dropped. So a prompt is
not the beginning of the next one, and a trainer that treats the conversation as one text cannot
train this agent. Here each completion is a turn with its own prompt, and a summary earns the
rewards of later turns. It needs `pip install -e .[agents]`.
"""

import argparse
import random
import re

from openai import AsyncOpenAI

RULES = (
    "A whole number from 0 to 99 is hidden. Say a number, and you hear whether the hidden one is "
    'above or below it. Find it in few turns. Say only the number, as in "50".'
)
SUM_UP = "Sum up in one line what you know about the hidden number. The rest is forgotten."
TURNS, EVERY = 12, 3


async def solve(seed: int, base_url: str, api_key: str, reward, model: str = "policy") -> dict:
    """Guess the number of a seed; each guess costs a little."""
    hidden = random.Random(seed).randrange(100)
    opening = [{"role": "system", "content": RULES}, {"role": "user", "content": "Guess."}]
    messages = list(opening)
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:

        async def ask(messages: list[dict], **options) -> str:
            answer = await client.chat.completions.create(
                model=model, messages=messages, max_tokens=32, **options
            )
            return answer.choices[0].message.content or ""

        for turn in range(1, TURNS + 1):
            response = await ask(messages)
            guess = re.search(r"\d+", response)
            if guess and int(guess[0]) == hidden:
                return {"reward": 1.0, "success": True, "metrics": {"guesses": turn}}
            reward(-0.02)
            messages += [{"role": "assistant", "content": response}, answer_to(guess, hidden)]
            if turn % EVERY == 0:
                # A lower temperature, because a summary should vary less than a guess.
                request = {"role": "user", "content": SUM_UP}
                summary = await ask([*messages, request], temperature=0.7)
                known = {"role": "user", "content": f"You know this: {summary}\nGuess."}
                messages = [opening[0], known]
    return {"reward": 0.0, "success": False, "metrics": {"guesses": TURNS}}


def answer_to(guess: re.Match | None, hidden: int) -> dict:
    """Return the user's answer to a guess."""
    if guess is None:
        return {"role": "user", "content": "Please say a number."}
    side = "above" if hidden > int(guess[0]) else "below"
    return {"role": "user", "content": f"The hidden number is {side} {int(guess[0])}."}


if __name__ == "__main__":
    import asyncio

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--model", default="policy")
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()
    server = dict(base_url=args.base_url, api_key=args.api_key, model=args.model)
    # Outside of training nobody collects rewards, so `reward` may be any function.
    results = [asyncio.run(solve(seed, reward=abs, **server)) for seed in range(args.episodes)]
    print(f"{sum(end['success'] for end in results)} of {len(results)} numbers are found")
