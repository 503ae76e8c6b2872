"""Every causal LM of transformers, tried as a tiny random one: python -m benchmarks.architectures

A line per architecture: how it trains, or the line that refuses it. What is accepted is compared
with the model's own forward pass on three turns; its export is loaded again, and the transformers
engine is checked. It takes minutes and asserts nothing: read the lines with WRONG and ERROR.
With --lines FILE the lines are also appended to a file, and a command that was stopped goes on.
"""

import inspect
import signal
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from io import StringIO
from pathlib import Path
from warnings import catch_warnings, simplefilter

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from benchmarks.common import VOCABULARY
from benchmarks.families import turn
from common.cli import Parser
from common.errors import RunError, typed_reason_of
from common.plugins import UserError
from ppo.engines.checked import CheckedEngine
from ppo.engines.lockstep import TransformersEngine
from ppo.engines.measured import MeasuredEngine
from ppo.model.export import buffers_to_parameters
from ppo.model.layers import is_packed
from ppo.model.make import build
from ppo.model.pretrained import silence, with_attention
from ppo.model.reloaded import try_export
from recipes import TINY

SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=4,
    num_attention_heads=2, num_key_value_heads=2, head_dim=32, max_position_embeddings=512,
    eos_token_id=2, pad_token_id=0, bos_token_id=1, tie_word_embeddings=False,
    initializer_range=0.2, sliding_window=16,
    num_experts=4, num_local_experts=4, n_routed_experts=4, moe_num_experts=4, moe_k=2,
    num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32, n_group=1,
    topk_group=1, first_k_dense_replace=1, linear_num_value_heads=2, linear_num_key_heads=2,
    linear_key_head_dim=32, linear_value_head_dim=32, q_lora_rank=16, kv_lora_rank=16,
    qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, mamba_d_head=32, mamba_n_heads=4,
    mamba_d_state=16, mamba_n_groups=1, mamba_expand=2, mamba_d_ssm=128, n_shared_experts=1,
    vocab_size_per_layer_input=VOCABULARY, hidden_size_per_layer_input=16, num_kv_shared_layers=1,
    laurel_rank=8, ffn_hidden_size=64, expert_ffn_hidden_size=32, zero_expert_num=2, moe_topk=2,
    router_hidden_size=16,
)  # fmt: skip
LOCAL = ["sliding_attention", "full_attention"] * 2
MORE = {
    "gemma3n_text": dict(layer_types=LOCAL),
    "lfm2_moe": dict(layer_types=["conv", "full_attention"] * 2),
    "zaya": dict(num_experts_per_tok=1),
}
TURNS = [(10, 20), (25, 40), (5, 12)]  # length of the prompt, and of the prompt with its response
LARGEST, SECONDS = 5e7, 30  # parameters of a model, and time for it, beyond which it is left out
EXACT = 1e-3  # largest difference of a log-prob in float32


class TooSlow(BaseException):
    """Not an Exception, which the test of a model would take for the model's own."""


def main() -> None:
    parser = Parser("benchmarks.architectures", description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", help="model types such as qwen3; default: all")
    parser.add_argument("--lines", type=Path, help="file of lines; what it has is not tried again")
    args = parser.parse_args()
    lines = args.lines.read_text().splitlines() if args.lines and args.lines.exists() else []
    done = {line.split()[0] for line in lines}
    silence()
    for kind in args.kinds or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if kind in done:
            continue
        with catch_warnings():
            simplefilter("ignore")
            line = f"{kind:28} {outcome(kind)}"
        print(line, flush=True)
        if args.lines:
            with args.lines.open("a") as file:
                print(line, file=file)


def outcome(kind: str) -> str:
    """Return what became of an architecture."""
    try:
        with limited(SECONDS), redirect_stdout(StringIO()):
            lm = tiny(kind)
    except Exception as error:  # many need settings of their own
        return f"not made: {typed_reason_of(error)}"
    except TooSlow:
        return f"left out: not made in {SECONDS} s"
    if lm is None:
        return "left out: not tiny"
    said = StringIO()
    try:
        with limited(SECONDS), redirect_stdout(said), torch.no_grad():
            return trial(lm)
    except (UserError, RunError) as error:
        return f"refused: {typed_reason_of(error)}"
    except TooSlow:
        return f"left out: not tried in {SECONDS} s"
    except Exception as error:
        return f"ERROR: {typed_reason_of(error)}"


def tiny(kind: str):
    """Return a random model of an architecture, with the sizes that its config knows.

    None: it has more than LARGEST parameters all the same
    """
    made = CONFIG_MAPPING[kind]
    known = {*inspect.signature(made.__init__).parameters, *made.attribute_map}
    for base in made.__mro__:
        known |= set(getattr(base, "__annotations__", {}))
    sizes = {name: size for name, size in SIZES.items() if name in known}
    config = made(**sizes | MORE.get(kind, {}))
    if hasattr(config, "text_config"):
        raise ValueError("its config is of several models")
    with torch.device("meta"):  # where a model of any size takes no memory
        shapes = AutoModelForCausalLM.from_config(config)
    if sum(p.numel() for p in shapes.parameters()) > LARGEST:
        return None
    torch.manual_seed(0)
    return with_attention(AutoModelForCausalLM.from_config, config, dtype=torch.float32).eval()


def trial(lm) -> str:
    """Return how a model trains. UserError, RunError: it does not"""
    ids = torch.randint(3, VOCABULARY, (3, 40), generator=torch.Generator().manual_seed(1))
    rows = [(row[:end], prompt) for row, (prompt, end) in zip(ids, TURNS, strict=True)]
    plain = deepcopy(lm)  # before its parts are changed
    buffers_to_parameters(lm)
    actor_critic = build(lm, 1, packed=True, tokens=40)
    gaps = [
        actor_critic(turn(row, prompt), part="actor").logps - own_logps(plain, row, prompt)
        for row, prompt in rows
    ]
    gap = torch.cat(gaps).abs().max().item()
    try_export(actor_critic, "its export")
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    engine = TransformersEngine(tokenizer, {2}, 14, 1.0, max_num_seqs=3)
    CheckedEngine(MeasuredEngine(engine), 26).push_weights(actor_critic)
    rows = "packed" if is_packed(actor_critic.compute) else "padded"
    return f"trains, {rows}; differs by {gap:.1e}{'' if gap < EXACT else ' WRONG'}"


def own_logps(lm, row: torch.Tensor, prompt: int) -> torch.Tensor:
    """Return the log-probs of a response, (R,), by the model's own forward pass."""
    logps = lm(row[None], use_cache=False).logits[0, :-1].log_softmax(-1)  # (L - 1, V)
    return logps.gather(-1, row[1:, None])[prompt - 1 :, 0]


@contextmanager
def limited(seconds: int):
    """`with limited(9):` TooSlow after 9 seconds of processor time"""

    def stop(number, frame):
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


if __name__ == "__main__":
    main()
