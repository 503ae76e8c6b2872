"""Demonstrations to imitate: turns of scripted players, of earlier runs, or of a file.

A demonstration is the messages of a prompt and the text of a response. Its ids are those that the
trainer would make: the prompt is rendered as in training, and the response ends with the
tokenizer's end token.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from common.plugins import UserError
from common.template import is_message
from envs.prompts import filled
from envs.text_env import act, begin
from memory.variants import FullMemory
from memory.window import WindowMemory
from models.players import PLAYERS
from models.remembering import demonstrations as remembered
from run.dialogue_log import episodes_of, read_log
from storage.minibatch import Sample

PLAYER = "player:"


def demonstrations(
    player, episodes: int, seed: int, longest_memory: int = 0, shortest: int = 0, table=None,
    full: bool = False,
):  # fmt: skip
    """Return (messages, response) of every turn that the player plays.

    The memory's length cycles from shortest to longest_memory. If prompts always showed the last
    turn, a clone would learn to rely on it and fail in the first turn.

    full: prompts show all turns instead; table: a user's own prompts, see `envs.prompts`
    """

    def worded(observation):
        return replace(observation, **filled(table or {}, player.env))

    turns = []
    for episode in range(episodes):
        observation = worded(begin(player.env, seed * 100_003 + episode))
        length = shortest + episode % (longest_memory - shortest + 1)
        memory = (FullMemory if full else WindowMemory)(length)
        memory.reset(observation)
        player.memory_length = memory.length
        player.start()
        done = False
        while not done and (responses := player.respond(observation.text)) is not None:
            target, executed = responses
            turns.append((memory.messages(), target))
            step = act(player.env, executed)
            observation, done = worded(step.observation), step.done
            memory.update(replace(step, observation=observation))
    return turns


def play_tasks(players, tasks: dict, seed: int, table: dict | None = None, full=False) -> list:
    """Return the demonstrations of all tasks, (messages, response) each.

    players: the module of a player; tasks: as its TASKS; table, full: as those of `demonstrations`
    UserError: the player has memories of its own, and `full` asks for another one
    """
    if full and hasattr(players, "MEMORIES"):
        raise UserError("--memory full: this player shows how to play with its own memories")
    turns = []
    for task, options in tasks.items():
        options = dict(options)
        episodes = options.pop("episodes")
        player = players.Player(task, np.random.default_rng(seed), **options)
        if hasattr(players, "MEMORIES"):
            task_turns = remembered(player, episodes, seed, players.MEMORIES, table)
        else:
            shortest = getattr(players, "SHORTEST_MEMORY", 0)
            longest = players.LONGEST_MEMORY
            task_turns = demonstrations(player, episodes, seed, longest, shortest, table, full)
        print(f"{task}: {len(task_turns)} turns in {episodes} episodes", flush=True)
        turns += task_turns
    return turns


def read_turns(
    source: str, least: float, seed: int, table: dict | None = None, full: bool = False
) -> list:
    """Return the demonstrations of `player:FAMILY` or `player:FAMILY:TASK`, a run, or a JSONL file.

    least: the smallest return of an episode of a run that is imitated
    table, full: of a scripted player, as those of `demonstrations`
    Returns pairs: a prompt, as messages or as text with its special tokens, and a response.
    UserError: there is nothing to imitate there, or `full` is for something else than a player
    """
    if source.startswith(PLAYER):
        _, players, tasks = player_of(source.removeprefix(PLAYER))
        return play_tasks(players, tasks, seed, table, full)
    if full:
        raise UserError(
            f"--memory full is for scripted players; --turns {source} has prompts already"
        )
    path = Path(source)
    if path.is_dir():
        turns = list(good_turns(path, least))
        missing = f"no episode there has a return of {least:g} or more"
    else:
        turns, missing = list(last_messages(conversations(path), source)), "it is empty"
    if not turns:
        raise UserError(f"--turns {source}: {missing}")
    return turns


def player_of(name: str) -> tuple[str, ModuleType, dict]:
    """Return the family, the module and the tasks that FAMILY or FAMILY:TASK names.

    UserError: there is no such player
    """
    family, _, task = name.partition(":")
    if family not in PLAYERS:
        raise UserError(f"unknown player {family!r}; choices: {', '.join(PLAYERS)}")
    players = import_module(PLAYERS[family])
    if task and task not in players.TASKS:
        raise UserError(f"{family} has no task {task!r}; choices: {', '.join(players.TASKS)}")
    return family, players, {task: players.TASKS[task]} if task else players.TASKS


def good_turns(run: Path, least: float) -> Iterator[tuple[str, str]]:
    """Yield the turns of a run's logged episodes that ended with a return of at least `least`.
    Turns with a fault or a response that was cut off are left out."""
    for episode in episodes_of(read_log(run)):
        if episode.outcome != "unfinished" and episode.ret >= least:
            for turn in episode.turns:
                if not (turn["fault"] or turn["response_truncated"]):
                    yield turn["prompt"], turn["response"]


def conversations(path: Path) -> list[tuple[int, object]]:
    """Return (line number, value) of each line of a JSONL file that is not empty.
    UserError: it is none"""
    try:  # not splitlines, which also splits at U+2028 in a text
        lines = enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1)
        return [(number, json.loads(line)) for number, line in lines if line.strip()]
    except OSError as error:
        raise UserError(f"--turns {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"--turns {path}: it is not JSONL ({error})") from error


def last_messages(
    records: Iterable[tuple[int, object]], source: str
) -> Iterator[tuple[list[dict], str]]:
    """Yield the last message of each conversation {"messages": [...]} as a response to the others.

    records: as `conversations` returns them. UserError: one is something else
    """
    for number, record in records:
        messages = record.get("messages") if isinstance(record, dict) else None
        good = isinstance(messages, list) and len(messages) > 1 and all(map(is_message, messages))
        if not good or messages[-1]["role"] != "assistant":
            raise UserError(
                f'--turns {source}, line {number}: expected {{"messages": [...]}}, each with a '
                "role and a content, the last one from the assistant"
            )
        yield messages[:-1], messages[-1]["content"]


def encoded(turns: list, render, tokenizer) -> list[Sample]:
    """Return the ids of the turns. render: a `memory.render.Renderer`

    Turns whose prompts do not fit whole are left out.
    """
    samples = []
    for prompt, response in turns:
        if isinstance(prompt, str):  # a logged prompt already has its special tokens
            ids = render.encode(prompt)
        else:
            try:
                ids = render(prompt, whole=True).ids
            except UserError:  # it is too long
                continue
        if len(ids) <= render.prompt_limit:
            answer = tokenizer(response, add_special_tokens=False)["input_ids"]
            samples.append(Sample(ids, [*answer, tokenizer.eos_token_id]))
    return samples
