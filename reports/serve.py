"""Serve the model of a run as agents saw it in training, behind OpenAI's chat completions.

    python -m reports.serve runs/RUN --port 8000
    python -m reports.serve runs/RUN --initial      # the model that the run began with

It is the endpoint of `envs.agents.endpoint`, so an agent can be tried by hand before and after
training. What it refuses in training it refuses here. The model's name is "policy", and any key
will do. Requests that wait at the same time are answered as a batch.
"""

import json
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from queue import Empty

from common.chat import Chat
from common.cli import Parser
from common.plugins import UserError
from envs.agents.completions import completion, heard
from envs.agents.endpoint import Call, Endpoint, Session
from envs.agents.requests import Refused
from envs.text_env import Said
from memory.render import Renderer
from ppo.engines.contract import Engine, make_engine
from run.earlier import model_begun

SLOTS = 32  # responses that are sampled at the same time


def main(argv: list[str] | None = None) -> int:
    """Serve until Ctrl-C. Returns the exit code; a mistake is told in one line."""
    parser = Parser("reports.serve", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="directory of a run")
    parser.add_argument("--port", type=int, default=8000, help="of the endpoint; 0: a free one")
    parser.add_argument("--initial", action="store_true", help="serve what the run began with")
    parser.add_argument("--engine", help="what generates (default: as the run had it)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampling noise")
    given = parser.parse_args(argv)
    with suppress(KeyboardInterrupt):  # Ctrl-C ends it, also while the model is loaded
        try:
            args = args_of(given.run, given.initial, given.engine)
            session = Session(sampling=args.endpoint_sampling, upstream=args.upstream or "")
            endpoint = open_endpoint(given.port, session)
            engine, render = make_policy(args)
        except ValueError as error:
            print(f"{parser.prog}: error: {error}", file=sys.stderr)
            return 2
        print(f"{args.model} is served at {endpoint.base_url}", flush=True)
        answer_all(engine, render, session, given.seed)
    return 0


def args_of(run: Path, initial: bool, engine: str | None) -> Namespace:
    """Return the arguments of a run, for its model alone. ValueError: there is no such run"""
    try:
        about = json.loads((run / "args.json").read_text(encoding="utf-8"))
        known, begun = dict(about["args"]), model_begun(about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{run}: no run there (its args.json cannot be read)") from error
    model = begun if initial else str(run / "model")
    if not (initial or Path(model).is_dir()):
        raise UserError(f"{run} has not saved a model yet; --initial serves what it began with")
    # LoRA's adapters are merged in what a run saves, and nobody asks the critic.
    alone = dict(model=model, lora_rank=0, critic_layers=0, eval_only=True, zero_stage=0)
    return Namespace(**known | alone | ({"engine": engine} if engine else {}))


def open_endpoint(port: int, session: Session) -> Endpoint:
    """Open a server on which every key belongs to `session`. ValueError: the port is in use"""
    try:
        return Endpoint(port, session_of=lambda secret: session)
    except (OSError, OverflowError) as error:
        raise UserError(f"--port {port} cannot be opened: {error}") from error


def make_policy(args: Namespace) -> tuple[Engine, Renderer]:
    """Load the model, and return an engine that has its weights. ValueError: it cannot be loaded"""
    import torch  # here, so that a mistake and --help do not wait for it

    from ppo.model.actor_critic import make_models

    device = "cuda" if torch.cuda.is_available() else "cpu"
    actor_critic, _, tokenizer, ends = make_models(args, device)
    engine = make_engine(args, tokenizer, ends, SLOTS, actor_critic.dtype)
    engine.push_weights(actor_critic)
    return engine, Renderer(tokenizer, args.prompt_limit)


def answer_all(engine: Engine, render: Renderer, session: Session, seed: int) -> None:
    """Answer the calls of `session`, as many at a time as the engine has slots; never returns."""
    free, waiting, number = set(range(engine.max_num_seqs)), {}, 0
    while True:
        while free and (call := next_call(session, wait=engine.idle)):
            asked, number = call.request, number + 1
            chat = Chat([], [], asked.messages, asked.template, asked.sampling)
            try:
                prompt = render(chat, whole=True)
            except Exception as error:  # too long, or the template refuses it, with any error
                call.give(Refused(str(error), code="invalid_request_error"))
                continue
            slot, asked.tokens = free.pop(), len(prompt.ids)
            waiting[slot] = call, number
            engine.submit(slot, prompt, seed=(seed, number))
        for slot, response in engine.step():
            call, turn = waiting.pop(slot)
            free.add(slot)
            said, asked = Said(response.text, response.truncated), call.request
            call.give(completion(asked, said, heard(asked, said), turn, len(response.ids)))


def next_call(session: Session, wait: bool) -> Call | None:
    with suppress(Empty):
        return session.events.get(block=wait, timeout=0.5 if wait else None)


if __name__ == "__main__":
    sys.exit(main())
