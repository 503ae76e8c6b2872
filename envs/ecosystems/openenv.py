"""Environments written for OpenEnv: a class, as `openenv:my_env.server:MyEnvironment`, or a running
server, as `openenv:http://localhost:8000`.

Actions and observations of OpenEnv have fields. A text is the action if it has one field of text or
number; otherwise the agent writes a JSON object. An observation with one text shows that text.
"""

import json
from typing import get_type_hints

import gymnasium
import requests
from openenv.core import GenericEnvClient

from common.plugins import UserError, find
from envs.ecosystems import TEXT, CannotMake, answer_with

URLS = ("http://", "https://")


class OpenEnv(gymnasium.Env):
    """The rewards are the environment's. An action that it refuses ends the game as a failure."""

    observation_space = action_space = TEXT
    time_limit = 100  # turns; OpenEnv has no limit of its own

    def __init__(self, name: str):
        self.game = (_Server if name.startswith(URLS) else _Local)(name)
        schema = self.game.schema["properties"]
        self.fields = {key: field for key, field in schema.items() if key != "metadata"}
        if not self.fields:
            raise CannotMake("its actions have no fields")
        self.one = [key for key, f in self.fields.items() if f.get("type") in PARSERS]
        self.one = self.one[0] if len(self.fields) == len(self.one) == 1 else None

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        observation, _, _ = self.game.reset(seed)
        return _text(observation), self._info()

    def step(self, action: str):
        if self.one:
            values = {self.one: PARSERS[self.fields[self.one]["type"]](action)}
        else:
            values = json.loads(action)
        observation, reward, done = self.game.step(values)
        return _text(observation), float(reward or 0), bool(done), False, self._info()

    def close(self):
        self.game.close()

    def _info(self) -> dict:
        parts = [f"{key} ({f.get('description') or f.get('type', 'any')})"
                 for key, f in self.fields.items()]  # fmt: skip
        wanted = parts[0] if self.one else f"a JSON object with the fields {', '.join(parts)}"
        return dict(system=self.game.description, instruction=answer_with(wanted))


PARSERS = {"string": str, "integer": int, "number": float}


class _Local:
    """An environment's class, in this process."""

    def __init__(self, name: str):
        try:
            cls = find("environment", name, {})
        except UserError as error:
            raise CannotMake(str(error)) from error
        self.env, self.action = cls(), get_type_hints(cls.step)["action"]
        self.schema = self.action.model_json_schema()
        self.description = self.env.get_metadata().description  # a server sends the same

    def reset(self, seed: int | None):
        return self._seen(self.env.reset(seed=seed))

    def step(self, values: dict):
        return self._seen(self.env.step(self.action.model_validate(values)))

    def close(self) -> None:
        self.env.close()

    def _seen(self, observation) -> tuple[dict, float | None, bool]:
        fields = observation.model_dump(mode="json", exclude={"reward", "done", "metadata"})
        return fields, observation.reward, observation.done


class _Server:
    """A server of OpenEnv. Each environment of a run has a session of its own."""

    def __init__(self, url: str):
        found = {}
        for path in ("schema", "metadata"):
            answer = requests.get(f"{url.rstrip('/')}/{path}", timeout=30)
            answer.raise_for_status()
            found[path] = answer.json()
        self.schema, self.description = found["schema"]["action"], found["metadata"]["description"]
        self.client = GenericEnvClient(base_url=url).sync()

    def reset(self, seed: int | None):
        return self._seen(self.client.reset(seed=seed))

    def step(self, values: dict):
        return self._seen(self.client.step(values))

    def close(self) -> None:
        self.client.close()

    def _seen(self, result) -> tuple[dict, float | None, bool]:
        fields = {key: x for key, x in result.observation.items() if key != "metadata"}
        return fields, result.reward, result.done


def _text(fields: dict) -> str:
    """Return an observation as a text: its only text alone, or all fields as JSON."""
    texts = [x for x in fields.values() if isinstance(x, str)]
    if len(texts) == len(fields) == 1 and texts[0].strip():
        return texts[0]
    return json.dumps(fields, ensure_ascii=False)
