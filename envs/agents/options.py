"""The sampling options of OpenAI's chat completions: which ones change the policy's distribution.

A response can be trained on only if it is sampled from the policy's distribution at some
temperature. By default other sampling options are refused. `--endpoint-sampling run` ignores them;
`untrained` passes them on to the engine, and the response is not trained on.
"""

from numbers import Real

from common.chat import Sampling
from envs.agents.errors import Refused

# Options that change the policy's distribution: neutral values (null and empty ones are neutral,
# too), and the reason why other values are refused.
FOREIGN = {
    "top_p": ((1,), "cuts the distribution off"),
    "top_k": ((-1, 0), "cuts the distribution off"),
    "min_p": ((0,), "cuts the distribution off"),
    "typical_p": ((1,), "cuts the distribution off"),
    "xtc_probability": ((0,), "cuts the distribution off"),
    "logit_bias": ((), "changes the distribution"),
    "presence_penalty": ((0,), "changes the distribution"),
    "frequency_penalty": ((0,), "changes the distribution"),
    "repetition_penalty": ((1,), "changes the distribution"),
    "response_format": (({"type": "text"},), "allows only some tokens"),
    "tool_choice": (("auto", "none"), "forces a tool, and so changes what the policy may say"),
    "n": ((1,), "asks for several answers, and a turn has one"),
    "best_of": ((1,), "keeps the likeliest of several answers"),
    "logits_processors": ((), "changes the distribution"),
    "use_beam_search": ((False,), "keeps the likeliest of several answers"),
}
# Options of vLLM's server that also restrict the tokens
RESTRICTIONS = [
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "grammar",
    "structured_outputs",
    "allowed_token_ids",
    "bad_words",
    "ignore_eos",
    "min_tokens",
]
FOREIGN.update(dict.fromkeys(RESTRICTIONS, ((0,), "allows only some tokens")))
# Options that the engine does not get, not even for an untrained answer
UNSUPPORTED = [
    *RESTRICTIONS,
    "best_of",
    "logits_processors",
    "typical_p",
    "use_beam_search",
    "xtc_probability",
]
TEMPERATURES = (0.001, 1000)
RANGES = {  # of the numbers among the options of FOREIGN
    "temperature": (0, 0),
    "top_p": (1e-6, 1),
    "top_k": (1, 10**6),
    "min_p": (0, 1),
    "n": (1, 128),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "repetition_penalty": (0.01, 10),
}
INTEGERS = {"top_k", "n"}


def foreign_sampling(body: dict) -> dict[str, str]:
    """Return the options that change the policy's distribution: name -> the reason to refuse it."""
    found = {"temperature": "0 is greedy"} if body.get("temperature") == 0 else {}
    for name, (neutral, why) in FOREIGN.items():
        if body.get(name) not in (None, [], {}, *neutral):
            found[name] = why
    return found


def option_value(name: str, body: dict):
    """Return the value of an option of FOREIGN, as engines take it: a number, a bias for each token
    id, or a JSON schema. Refused: the value is invalid, or no engine supports the option"""
    value, wrong = body[name], Refused(f"{name} cannot be {body[name]!r:.80}")
    if name in RANGES:
        low, high = RANGES[name]
        kind = int if name in INTEGERS else Real
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise wrong
        return value
    if name in UNSUPPORTED:
        raise wrong
    if name == "logit_bias":
        if not all(isinstance(added, Real) and -100 <= added <= 100 for added in value.values()):
            raise wrong
        return {int(token): float(added) for token, added in value.items()}
    if name == "response_format":
        schemas = {"json_object": {"type": "object"}}
        schemas["json_schema"] = (value.get("json_schema") or {}).get("schema")
        if not isinstance(schemas.get(value.get("type")), dict):
            raise wrong
        return schemas[value["type"]]
    return _forced_call(body["tool_choice"], body.get("tools") or [], wrong)


def _forced_call(choice: str | dict, tools: list[dict], wrong: Refused) -> dict:
    """Return the JSON schema of the calls that a tool_choice allows."""
    named = choice["function"]["name"] if isinstance(choice, dict) else None
    if not isinstance(choice, dict) and choice != "required":
        raise wrong
    functions = [tool["function"] for tool in tools]
    allowed = [function for function in functions if named in (None, function["name"])]
    if not allowed:
        raise wrong
    return {"anyOf": [_call_schema(function) for function in allowed]}


def _call_schema(function: dict) -> dict:
    return {
        "type": "object",
        "required": ["name", "arguments"],
        "additionalProperties": False,
        "properties": {
            "name": {"const": function["name"]},
            "arguments": function.get("parameters") or {"type": "object"},
        },
    }


def sampling_of(body: dict, extra: dict) -> Sampling:
    """Check temperature and max_tokens. extra: the request's other options"""
    temperature, limits = body.get("temperature"), []
    if temperature:  # 0 is refused, in `extra`, or ignored
        low, high = TEMPERATURES
        if not low <= float(temperature) <= high:
            raise Refused(f"temperature must be from {low} to {high}, got {temperature}")
    for name in ("max_completion_tokens", "max_tokens"):
        limit = body.get(name)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise Refused(f"{name} must be a whole number above 0, got {limit!r:.80}")
        if limit is not None:
            limits.append(limit)
    temperature = float(temperature) if temperature else None
    return Sampling(temperature, limits[0] if limits else None, extra)
