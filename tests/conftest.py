"""A random two-layer Qwen2 with a character tokenizer, and batches of made-up turns."""

import os
import re

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # tests speak of the CPU

from dataclasses import dataclass, field  # noqa: E402

import pytest  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from common.chat import Sampling  # noqa: E402
from common.ranks import ALONE  # noqa: E402
from envs.pool.resilient import ResilientPool  # noqa: E402
from envs.text_env import Observation  # noqa: E402
from ppo.engines.contract import Response  # noqa: E402
from storage.minibatch import MicroBatch  # noqa: E402
from storage.rollout import RolloutStorage  # noqa: E402

torch.set_num_threads(1)
EOS = 0
LONGEST = (
    "distributed checkpoint vllm stop main agent_runs reproduce episodes faults_and_replay".split()
)


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


def pytest_ignore_collect(collection_path, config) -> bool | None:
    """With `-m core` do not even import the other test files: that takes most of a minute."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if config.option.markexpr == "core" and is_test:
        return True if not CORE_FILES.search(collection_path.as_posix()) else None
    return None


def pytest_collection_modifyitems(items) -> None:
    """The files that take longest come first, so that in the end no process waits for another.
    (xdist needs --no-loadscope-reorder for that.)"""
    place = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))
    for item in items:
        if CORE_FILES.search(item.path.as_posix()):
            item.add_marker(pytest.mark.core)


@dataclass
class FakePrompt:
    ids: list[int]
    overflow: bool = False
    shortened: bool = False
    reencoded: bool = False
    opened: str = ""
    sampling: Sampling = Sampling()


@dataclass
class FakeStep:
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    valid: bool = True
    action_at: int = 0
    action: str = "go"
    metrics: dict = field(default_factory=dict)
    first: object = "of the next episode"
    fault: str = ""
    episode: int = 0
    seed: int = 0
    number: int = 0
    reply: dict | None = None
    observation: Observation = Observation("", "", "", "")
    seen: str = ""
    saw: str = ""

    @property
    def done(self):
        return self.terminated or self.truncated


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """On a busy machine an answer may take longer than a second: tests wait for it."""
    monkeypatch.setattr("envs.pool.resilient.POLL_SECONDS", 60.0)


@pytest.fixture
def pool():
    """Make pools that are closed at the end of the test."""
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
    """The random model on disk. A character is a token: prompts take --prompt-limit 4096."""
    path = tmp_path_factory.mktemp("model")
    make_lm(std=0.05).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def lm():
    return make_lm()


def make_lm(vocab_size=260, tie=True, seed=0, std=0.3):
    """Weights large enough that sampled distributions are far from uniform."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tie,
        eos_token_id=EOS, bos_token_id=None, initializer_range=std,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()


def make_decoder(name: str, **settings):
    """A random model of the library. name: as in "Llama" """
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**settings)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def fill_storage(
    E=3,
    N=4,
    seed=0,
    token_budget=10**6,
    vocab_size=260,
    ranks=ALONE,
    extends=False,
    merge="auto",
    temperature=1.0,
) -> RolloutStorage:
    """A full storage of random turns: prompts of 3-12 tokens, responses of 1-6. Each rank of a
    ranks puts in its share of the same ones. extends: most prompts begin with the last prompt and
    response, but for its end; merge: see `RolloutStorage`; temperature: of all responses"""
    g = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high, (), generator=g))
    ids = lambda count: [draw(1, vocab_size) for _ in range(count)]
    rollouts = RolloutStorage(E, N, token_budget, ranks, merge=merge)
    mine = ranks.share(N)
    for n in range(N):
        turns, before = [], []
        for _ in range(E):
            response = ids(draw(1, 7))
            logps = [-1.0] * len(response)
            pieces = ["x"] * len(response)
            prompt = FakePrompt(before + ids(draw(3, 13)))
            before = prompt.ids + response[:-1] + ids(1) if extends and draw(0, 4) else []
            turn = Response(
                prompt, response, logps, "x" * len(response), pieces, False, temperature
            )
            turns.append((turn, FakeStep(reward=draw(0, 10) / 10, terminated=draw(0, 4) == 0)))
        last = FakePrompt(ids(draw(3, 13)))
        if n in mine:
            for turn, step in turns:
                rollouts.act(n - mine.start, turn)
                rollouts.insert(n - mine.start, step)
            rollouts.finish(n - mine.start, last)
    rollouts.join()
    return rollouts


def batch(*turns, temperature=1.0) -> MicroBatch:
    """A micro-batch of (prompt, response) pairs, a row each, padded on the right with id 3."""
    width = max(len(p) + len(r) for p, r in turns)
    ids = torch.full((len(turns), width), 3)
    mask = torch.zeros(len(turns), width, dtype=torch.bool)
    for b, (p, r) in enumerate(turns):
        ids[b, : len(p) + len(r)] = torch.tensor(p + r)
        mask[b, len(p) : len(p) + len(r)] = True
    tokens = ids[mask]
    return MicroBatch(
        torch.arange(len(turns)), ids, mask, tokens, torch.full(tokens.shape, float(temperature))
    )
