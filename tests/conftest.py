"""Fixtures: a random two-layer Qwen2, a character tokenizer, and batches of random turns."""

import os
import re
import signal
import sys

# A shell lets what it starts in the background ignore Ctrl-C, and programs that tests start, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # expected numbers are of the CPU
# Where nobody keeps bytecode, each process that starts vLLM compiles its sources for seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

from types import SimpleNamespace  # noqa: E402

import pytest  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from common.ranks import ALONE  # noqa: E402
from envs.pool.resilient import ResilientPool  # noqa: E402
from envs.text_env import Observation, Step  # noqa: E402
from memory.render import Prompt  # noqa: E402
from ppo.engines.contract import Response  # noqa: E402
from storage.batch import Batch, Scoring  # noqa: E402
from storage.collection import Collection, FixedTurns, at_faults  # noqa: E402
from storage.criticless import CriticlessBatch  # noqa: E402
from storage.merged import merged  # noqa: E402
from storage.minibatch import MicroBatch  # noqa: E402
from storage.schedules import WholeEpisodes  # noqa: E402

torch.set_num_threads(1)
EOS = 0
SLOWEST_FIRST = (
    "test_distributed", "test_cuda", "test_checkpoint", "test_vllm", "test_stop", "test_main",
    "test_agent_runs", "test_reproduce", "test_episodes", "test_faults_and_replay",
)  # fmt: skip


# `pytest -m core` runs the tests of the paper's method, which are in these files.
CORE_FILES = re.compile(
    r"""tests/(
        memory/test_(memory|history|window|render)
        | storage/test_(rollout|collection|batch|minibatch|episodes)
        | ppo/test_(advantages|estimators|agent|losses|kl|optimizer|warmup|evaluation)
        | ppo/model/test_(actor_critic|reference|decoder)
        | ppo/engines/test_lockstep
        | (examples/)?test_minimal
        | test_path
    )\.py$""",
    re.VERBOSE,
)


def pytest_addoption(parser) -> None:
    parser.addoption("--cases", type=int, default=8, help="cases of the oracle (%(default)s)")


def pytest_generate_tests(metafunc) -> None:
    if "oracle_seed" in metafunc.fixturenames:
        metafunc.parametrize("oracle_seed", range(metafunc.config.option.cases))


def pytest_ignore_collect(collection_path, config) -> bool | None:
    """With `-m core` skip the other test files unimported: importing takes most of a minute."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if config.option.markexpr == "core" and is_test:
        return True if not CORE_FILES.search(collection_path.as_posix()) else None
    return None


def pytest_collection_modifyitems(items) -> None:
    """Run the slowest files first, so that no xdist process works alone at the end.

    xdist keeps this order with --no-loadscope-reorder.
    """
    rank = {name: number for number, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(SLOWEST_FIRST)))
    for item in items:
        if CORE_FILES.search(item.path.as_posix()):
            item.add_marker(pytest.mark.core)


def make_prompt(ids, **flags) -> Prompt:
    return Prompt(ids, **flags)


def make_step(**fields) -> Step:
    """Return a turn in the middle of an episode; fields: those that differ."""
    empty = Observation("", "", "", "")
    defaults = dict(
        response="go", kept_response="go", action="go", valid=True, action_at=0, reward=0.0,
        terminated=False, truncated=False, success=False, observation=empty, first=empty,
    )  # fmt: skip
    return Step(**(defaults | fields))


def make_response(prompt, ids, logps=None, pieces=None, truncated=False, temperature=1.0, **flags):
    """Return a Response. prompt: ids; flags: other fields of the Prompt"""
    pieces = pieces or ["x"] * len(ids)
    return Response(
        make_prompt(prompt, **flags), ids, logps or [-1.0] * len(ids), "".join(pieces), pieces,
        truncated, temperature,
    )  # fmt: skip


def make_collection(
    e_len, n_env, token_budget=10**6, group_size=0, needs_bootstrap=at_faults, critic=True,
    **scoring,
) -> Collection:  # fmt: skip
    """Return an empty Collection.

    group_size: makes batches of whole episodes; 0: of fixed turns
    scoring: other fields of `Scoring`
    """
    schedule = WholeEpisodes(e_len, group_size) if group_size else FixedTurns(e_len)
    scoring = Scoring(token_budget, **scoring)
    return Collection(
        n_env, schedule, scoring, needs_bootstrap=needs_bootstrap,
        make_batch=Batch if critic else CriticlessBatch,
    )  # fmt: skip


def make_settings(**changes) -> SimpleNamespace:
    """Return the settings of an `Agent`; changes: those that differ from these defaults."""
    defaults = dict(
        lr=1e-3, critic_lr=1e-3, lr_schedule="constant", clip=0.2, value_clip=float("inf"),
        first_token_weight=3.0, entropy_coef=0.0, max_grad_norm=1.0, ppo_epoch=1, minibatch=12,
        whiten=True,
    )  # fmt: skip
    return SimpleNamespace(**(defaults | changes))


@pytest.fixture(autouse=True)
def long_polls(monkeypatch):
    """Let pools wait for slow answers: on a busy machine one may take longer than a second."""
    monkeypatch.setattr("envs.pool.resilient.POLL_SECONDS", 60.0)


@pytest.fixture
def pool():
    """Return a function that makes pools, which are closed at the end of the test."""
    pools = []

    def make(*args, **options):
        pools.append(ResilientPool(*args, **options))
        return pools[-1]

    yield make
    for made in pools:
        made.close()


@pytest.fixture
def tokenizer():
    return make_tokenizer()


def make_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<end>", chat_template=template + "assistant: "
    )


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory) -> str:
    """Return the folder of the random model. A character is a token: use --prompt-limit 4096."""
    path = tmp_path_factory.mktemp("model")
    make_lm(std=0.05).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def lm():
    return make_lm()


def make_lm(vocab_size=260, tie=True, seed=0, std=0.3):
    """Return a random model; std: large enough that its distributions are far from uniform."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tie,
        eos_token_id=EOS, bos_token_id=None, initializer_range=std,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()


def make_decoder(name: str, **settings):
    """Return a random model of transformers. name: such as "Llama" """
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**settings)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def fill_batch(
    E=3, N=4, seed=0, token_budget=10**6, vocab_size=260, ranks=ALONE, extends=False, layout=merged,
    temperature=1.0,
) -> Batch:  # fmt: skip
    """Return a batch of random turns: prompts of 3-12 tokens, responses of 1-6.

    ranks: each collects its share of the same turns
    extends: most prompts begin with the last prompt and its response without the last token
    """
    g = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return int(torch.randint(low, high, (), generator=g))

    def ids(count):
        return [draw(1, vocab_size) for _ in range(count)]

    collection = make_collection(E, N, token_budget, ranks=ranks, layout=layout)
    mine = ranks.share(N)
    for n in range(N):
        turns, before = [], []
        for _ in range(E):
            sampled = ids(draw(1, 7))
            prompt = before + ids(draw(3, 13))
            before = prompt + sampled[:-1] + ids(1) if extends and draw(0, 4) else []
            response = make_response(prompt, sampled, temperature=temperature)
            turns.append((response, make_step(reward=draw(0, 10) / 10, terminated=draw(0, 4) == 0)))
        last = make_prompt(ids(draw(3, 13)))
        if n in mine:
            for response, step in turns:
                collection.keep_response(n - mine.start, response)
                collection.insert(n - mine.start, step)
            collection.finish(n - mine.start, last)
    return collection.join()


def batch(*turns, temperature=1.0) -> MicroBatch:
    """Return a micro-batch of (prompt, response) pairs, one row each, padded with id 3."""
    width = max(len(p) + len(r) for p, r in turns)
    ids = torch.full((len(turns), width), 3)
    mask = torch.zeros(len(turns), width, dtype=torch.bool)
    for b, (p, r) in enumerate(turns):
        ids[b, : len(p) + len(r)] = torch.tensor([*p, *r])
        mask[b, len(p) : len(p) + len(r)] = True
    tokens = ids[mask]
    return MicroBatch(
        torch.arange(len(turns)), ids, mask, tokens, torch.full(tokens.shape, float(temperature))
    )
