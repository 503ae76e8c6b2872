"""Serve the model of a run to agents over OpenAI's chat completions API, as in training.

    python -m reports.serve runs/RUN --port 8000
    python -m reports.serve runs/RUN --initial      # the initial model of the run

It runs the training endpoint (`envs.agents.endpoint`), so you can try an agent by hand before and
after training, and it rejects the same requests. The model's name is "policy", and the API key is
printed at the start. Requests that wait at the same time are answered as a batch.
"""

import json
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from queue import Empty

from common.chat import Chat
from common.cli import Parser, run_printing
from common.masked import masked
from common.plugins import UserError
from common.run_file import links_in, read_text
from envs.agents.completions import parse_response
from envs.agents.endpoint import Endpoint
from envs.agents.errors import Refused
from envs.agents.session import Call, Session
from envs.agents.tokens import TokenCounter
from envs.pool.cursor import ResponseText
from envs.trust import refuse_foreign
from memory.render import Renderer
from memory.spelled import SafeRenderer
from ppo.engines.choose import make_engine
from ppo.engines.contract import Engine
from run.checks import check_url
from run.earlier import model_begun
from run.process import raise_file_limit

SLOTS = 32  # responses sampled at the same time


def main(argv: list[str] | None = None) -> int:
    """Serve until Ctrl-C. Returns the exit code; a user's mistake prints one line."""
    parser = Parser("reports.serve", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory")
    parser.add_argument("--port", type=int, default=8000, help="port; 0: a free port")
    parser.add_argument("--initial", action="store_true", help="serve the initial model of the run")
    parser.add_argument("--engine", help="inference engine (default: the engine of the run)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampling noise")
    upstream = "base URL that answers requests for other models; a run's own is not used"
    parser.add_argument("--upstream", metavar="URL", default="", help=upstream)
    any_key = "need no API key: every user of this machine can use the model"
    parser.add_argument("--any-key", action="store_true", help=any_key)
    trust = "import the engine that RUN names, and follow links in RUN/model"
    parser.add_argument("--trust", action="store_true", help=trust)
    options = parser.parse_args(argv)
    raise_file_limit()  # each client has a connection
    with suppress(KeyboardInterrupt):  # Ctrl-C also works while the model is loading
        try:
            args = args_of(options.run, options.initial, options.engine, options.trust)
            check_upstream(options, args.upstream)
            tokens = TokenCounter(args.model, args.template_kwargs, args.prompt_limit)
            session = Session(tokens, args.endpoint_sampling, options.upstream)
            endpoint = open_endpoint(options.port, session, options.any_key)
            engine, render = make_policy(args)
        except ValueError as error:
            print(f"{parser.prog}: error: {error}", file=sys.stderr)
            return 2
        key = "any" if options.any_key else session.secret
        lines = f"API key: {key}\n{args.model} is served at {endpoint.base_url}"
        if code := run_printing(lambda: print(lines), parser.prog):
            return code
        answer_all(engine, render, session, options.seed)
    return 0


def args_of(run: Path, initial: bool, engine: str | None, trust: bool) -> Namespace:
    """Return the run's arguments, reduced to what its policy needs.

    trust: whether an engine of the user's own is imported and links to the model are followed
    UserError: there is no run or no model, or it needs `trust`
    """
    try:
        about = json.loads(read_text(run / "args.json"))
        known, begun = {"engine": "auto", "upstream": None} | about["args"], model_begun(about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{run} is not a run directory (its args.json cannot be read)") from error
    model = begun if initial else str(run / "model")
    if not (initial or Path(model).is_dir()):
        raise UserError(f"{run} has not saved a model yet; --initial serves its initial model")
    if not (trust or initial) and (links := links_in(run / "model")):
        raise UserError(f"{links[0]} is a link to {links[0].readlink()}; --trust follows it")
    if not (trust or engine):
        refuse_foreign(run, {"engine": known["engine"]})
    # A saved model has its LoRA adapters merged, and serving needs no critic.
    policy = dict(
        model=model, no_critic=True, eval_only=True, lora_rank=0, top_layers=0, zero_stage=0
    )
    return Namespace(**known | policy | ({"engine": engine} if engine else {}))


def check_upstream(options: Namespace, of_run: str | None) -> None:
    """UserError: --upstream is no URL, or everybody could spend its key"""
    check_url(options.upstream)
    if options.upstream and options.any_key:
        raise UserError("--any-key would let every user of this machine spend --upstream's key")
    if of_run and not options.upstream:
        print(f"the run's upstream {masked(of_run)} is not used; --upstream names one")


def open_endpoint(port: int, session: Session, any_key: bool = False) -> Endpoint:
    """Open a server of one session. UserError: the port is in use"""
    try:
        endpoint = Endpoint(port, session_of=(lambda secret: session) if any_key else None)
        endpoint.open(session)
        return endpoint
    except (OSError, OverflowError) as error:
        raise UserError(f"--port {port} cannot be opened: {error}") from error


def make_policy(args: Namespace) -> tuple[Engine, Renderer]:
    """Load the model and return an engine with its weights. UserError: it cannot be loaded."""
    import torch  # here, so that errors and --help need not wait for it

    from ppo.model.make import make_model

    device = "cuda" if torch.cuda.is_available() else "cpu"
    actor_critic, tokenizer, ends = make_model(args, args, device, args.seed)
    engine = make_engine(args, tokenizer, ends, SLOTS, actor_critic.dtype, args.seed)
    engine.push_weights(actor_critic)
    return engine, SafeRenderer(tokenizer, args.prompt_limit)


def answer_all(engine: Engine, render: Renderer, session: Session, seed: int) -> None:
    """Answer the calls of `session`, up to `max_num_seqs` at a time. Never returns."""
    free, waiting, number = set(range(engine.max_num_seqs)), {}, 0
    while True:
        while free and (call := next_call(session, wait=engine.idle)):
            request, number = call.request, number + 1
            chat = Chat([], [], request.messages, request.template, request.sampling)
            try:
                prompt = render(chat, whole=True)
            except Exception as error:  # a prompt over the limit, or any error of the template
                call.give(Refused(str(error), code="invalid_request_error"))
                continue
            slot, request.tokens = free.pop(), len(prompt.ids)
            waiting[slot] = call, number
            engine.submit(slot, prompt, seed=(seed, number))
        for slot, response in engine.step():
            call, turn = waiting.pop(slot)
            free.add(slot)
            text = ResponseText(response.text, response.truncated)
            message = parse_response(call.request, text)
            call.respond(text, message, turn, len(response.ids))


def next_call(session: Session, wait: bool) -> Call | None:
    """Return the next call, or None. It waits at most half a second, so that Ctrl-C works."""
    with suppress(Empty):
        return session.events.get(block=wait, timeout=0.5 if wait else None)


if __name__ == "__main__":
    sys.exit(main())
