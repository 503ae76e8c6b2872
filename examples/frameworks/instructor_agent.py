"""instructor: a typed answer, by a forced call of a tool or by JSON in plain text."""

import instructor
from openai import OpenAI
from pydantic import BaseModel

from examples.frameworks.sums import begin


class Answer(BaseModel):
    result: int


def solve(seed, base_url, api_key, reward):
    return work(seed, base_url, api_key, instructor.Mode.MD_JSON)


def structured(seed, base_url, api_key, reward):
    return work(seed, base_url, api_key, instructor.Mode.TOOLS)


def work(seed, base_url, api_key, mode) -> float:
    task, question = begin(seed)
    client = instructor.from_openai(OpenAI(base_url=base_url, api_key=api_key), mode=mode)
    messages = [{"role": "user", "content": question}]
    answer = client.chat.completions.create(
        model="policy", messages=messages, response_model=Answer, max_retries=2
    )
    return task.reward(f"ANSWER: {answer.result}")
