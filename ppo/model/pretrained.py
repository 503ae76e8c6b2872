"""Load a Hugging Face model with its tokenizer, and check that the parts belong together.

Whatever is wrong with a directory or hub name becomes a ValueError of one line. The libraries go
on instead, with random numbers for missing weights and an empty tokenizer for a missing one.
"""

import json
import os
from collections.abc import Callable

import torch

from common.control import turn_ends
from common.errors import reason_of
from common.plugins import UserError
from ppo.model.export import make_exportable

# transformers imports DeepSpeed wherever accelerate is installed, too; it need not guess aloud.
os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
# On a CPU torch compiles products in bfloat16 for each shape. Rows differ in length, so most are
# used once: the 1,024 that oneDNN and its wrapper each keep by default would take gigabytes.
for cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(cache, "128")

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from transformers.utils.logging import disable_progress_bar, set_verbosity_error  # noqa: E402

from ppo.model.quantized import forget_quantization, read_whole  # noqa: E402


def load_lm(path: str, device: str, tokens: int = 0, template: dict | None = None):
    """Return the model (fp32, without dropout), its tokenizer and the ids that end a response.

    path: a directory or hub name; tokens: largest length of a prompt and its response together
    template: arguments that the chat template gets in every prompt, see `preset`
    ValueError: the model cannot be loaded, or its parts do not fit each other or `tokens`
    """
    model = f"--model {path}"  # the beginning of each error
    here, hub = os.path.isdir(path), path.count("/") == 1 and not path.startswith((".", "/", "~"))
    if not here and (os.path.exists(path) or not hub):
        raise UserError(f"{model}: no such directory (give one, or a hub name as org/model)")
    silence()
    safe = dict(trust_remote_code=False)  # refuse a model that brings code, instead of asking
    reported = dict(ignore_mismatched_sizes=True, output_loading_info=True)  # `_misfit` reads it
    try:
        # If that fails, the errors of the rest mislead.
        config = AutoConfig.from_pretrained(path, **safe)
        tokenizer = AutoTokenizer.from_pretrained(path, **safe)
        whole = read_whole(config)
        options = dict(dtype=torch.float32) | safe | reported | whole
        lm, report = with_attention(AutoModelForCausalLM.from_pretrained, path, **options)
    except Exception as error:  # broken files raise errors of any type in the libraries
        where = "" if here else " (no such directory here, and from the hub:)"
        raise UserError(f"{model}: cannot load it{where}: {reason_of(error)}") from error
    if whole:
        forget_quantization(lm)
    preset(tokenizer, template or {})
    problem = _misfit(lm, tokenizer, report, tokens) or _template_problem(tokenizer)
    if problem:
        raise UserError(f"{model}: {problem}")
    ends = lm.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
    ends |= turn_ends(tokenizer)
    if not ends:
        raise UserError(f"{model}: its tokenizer has no end-of-turn token")
    lm.generation_config.eos_token_id = sorted(ends)  # the exported model ends its turns as well
    make_exportable(lm, tokenizer, model)
    return lm.to(device).eval(), tokenizer, ends


def silence() -> None:
    """Let transformers print nothing: a run says itself what it does, an error is one line, and
    `load_lm` checks what matters in the library's report."""
    disable_progress_bar()
    set_verbosity_error()


def with_attention(make: Callable, *args, **options):
    """Make a model with torch's fast attention or, where it has none (gpt-oss), a slow one."""
    try:
        return make(*args, attn_implementation="sdpa", **options)
    except ValueError as error:
        if "attention implementation" not in str(error):
            raise
        return make(*args, attn_implementation="eager", **options)


def preset(tokenizer, template: dict) -> None:
    """Write default arguments into a chat template, so that training, evaluation and the exported
    model have the same ones. What is passed to the template still wins.

    The argument `chat_template` takes the template's place.
    """
    template = dict(template)
    tokenizer.chat_template = template.pop("chat_template", tokenizer.chat_template)
    lines = [
        f"{{%- if {name} is not defined %}}{{%- set {name} = {_jinja(value)} %}}{{%- endif %}}"
        for name, value in template.items()
    ]
    own = tokenizer.chat_template
    if lines and own is not None:
        named = own if isinstance(own, dict) else {"": own}
        named = {name: "\n".join([*lines, text]) for name, text in named.items()}
        tokenizer.chat_template = named if isinstance(own, dict) else named[""]


def _jinja(value) -> str:
    """Write a JSON value as Jinja does, which has no word `null` and takes it for a variable, and
    no pairs of escapes for a character beyond the basic plane."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_jinja(key)}: {_jinja(x)}' for key, x in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_jinja, value))}]"
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _misfit(lm, tokenizer, report: dict, tokens: int) -> str | None:
    """Return what does not belong together in a model's directory, if anything."""
    wrong = sorted(report["missing_keys"]) + sorted(key for key, *_ in report["mismatched_keys"])
    if wrong:  # the library has put random numbers there
        count = f"{len(wrong)} missing or of another shape"
        return f"its weights do not fit its config.json: {count} ({wrong[0]}, ...)"
    if not all(p.isfinite().all() for p in lm.parameters()):
        return "it has weights that are not finite"
    rows, last = lm.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
    if last >= rows:
        return f"its tokenizer has ids up to {last}, its embeddings only up to {rows - 1}"
    positions = getattr(lm.config, "max_position_embeddings", None) or tokens
    if tokens > positions:
        return f"it has {positions} positions, --prompt-limit + --response-limit are {tokens}"
    return None


def _template_problem(tokenizer) -> str | None:
    """Return why the chat template and the tokenizer do not render a conversation, if so."""
    if tokenizer.chat_template is None:
        return "its tokenizer has no chat template; use an instruct model"
    words = dict(system="rules", user="question", assistant="answer")
    messages = [{"role": role, "content": words[role]} for role in (*words, "user")]
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        shown = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])
    except Exception as error:  # templates refuse with errors of many types
        return f"its chat template fails on system, user and assistant messages: {reason_of(error)}"
    lost = [role for role, word in words.items() if word not in shown]
    return f"its tokenizer or chat template drops {', '.join(lost)} messages" if lost else None
