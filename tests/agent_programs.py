"""Agent programs for the tests, and a client without any SDK.

`ask` posts a request as SDKs do; programs call it with what AgentEnv gives them. Tests find the
programs by `agent:agent_programs:NAME`.
"""

import asyncio
import http.client
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

Error = RuntimeError


def post(base_url: str, api_key: str, body: dict | bytes, timeout=20, **headers):
    """Return (status, text) of a POST to the endpoint. headers: with _ for -"""
    host = base_url.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(host, timeout=timeout)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given |= {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/chat/completions", data, given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def ask(to: dict, *texts: str, **options) -> dict:
    """Return the message that answers texts, which user and assistant have said in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[k % 2], "content": text} for k, text in enumerate(texts)]
    body = {"model": "policy", "messages": messages} | options
    status, text = post(to["base_url"], to["api_key"], body)
    if status != 200:
        raise Error(f"{status}: {text}")
    return json.loads(text)["choices"][0]["message"]


def say(to: dict, *texts: str, **options) -> str:
    return ask(to, *texts, **options)["content"]


def echo(seed, **to):
    """Asks three times, and pays for what begins with y."""
    said = []
    for turn in range(3):
        said.append(say(to, f"seed {seed} turn {turn} said {' '.join(said)}"))
        to["reward"](0.25 * said[-1].startswith("y"))
    return {"reward": 1, "metrics": {"letters": len("".join(said))}}


async def later(seed, **to):
    """An async program whose two requests are under way at the same time."""
    first = asyncio.to_thread(say, to, "first")
    await asyncio.sleep(0)
    one = asyncio.ensure_future(first)
    await asyncio.sleep(0.2)
    two = asyncio.ensure_future(asyncio.to_thread(say, to, "second"))
    return float((await one, await two) == ("1", "2"))


def together(seed, **to):
    """Asks four times at once, and returns how many answers fit."""
    answers = {}

    def job(k):
        answers[k] = say(to, f"number {k}")

    threads = [threading.Thread(target=job, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    return sum(answers[k] == f"answer {k}" for k in range(4))


def crash(seed, **to):
    say(to, "hello")
    raise KeyError("lost")  # here crash


def early_crash(seed, **to):
    raise KeyError("at once")  # here early_crash


def never_asks(seed, **to):
    wait()


def wait():
    while True:
        time.sleep(0.01)  # here wait


def hangs_in_a_pool(seed, **to):
    """Calls a tool in a pool, as programs do that want a time limit, and the tool never returns."""
    with ThreadPoolExecutor() as tools:
        say(to, tools.submit(wait).result())  # here hangs_in_a_pool


def asks_once_and_waits(seed, **to):
    say(to, "hello")
    wait()


def ends_at_once(seed, **to):
    return 1.0


def stubborn(seed, **to):
    """Catches every exception and goes on."""
    while True:
        try:
            say(to, "again")
        except Exception:
            pass


def deaf(seed, **to):
    """Asks twice without reading the answers, and then reads one."""
    host = to["base_url"].removeprefix("http://").partition("/")[0]
    kept = []
    for text in ("one", "two"):
        connection = http.client.HTTPConnection(host, timeout=20)
        body = {"model": "policy", "messages": [{"role": "user", "content": text}]}
        headers = {"Authorization": f"Bearer {to['api_key']}"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        kept.append(connection)
        time.sleep(0.1)
    return float(say(to, "three") == "3")


def impatient(seed, **to):
    """Gives up after a moment, and asks again as SDKs do, whether or not the answer has come."""
    body = {"model": "policy", "messages": [{"role": "user", "content": "well?"}]}
    for retry in range(100):
        retries = {"x_stainless_retry_count": str(retry)}
        try:
            _, text = post(to["base_url"], to["api_key"], body, timeout=0.2, **retries)
            break
        except TimeoutError:
            continue
    return json.loads(text)["choices"][0]["message"]["content"] == "patience"


def hurried(seed, **to):
    """Breaks off, is answered meanwhile, and asks again only then."""
    body = {"model": "policy", "messages": [{"role": "user", "content": "well?"}]}
    try:
        post(to["base_url"], to["api_key"], body, timeout=0.1)
    except TimeoutError:
        pass
    time.sleep(0.6)
    _, text = post(to["base_url"], to["api_key"], body, x_stainless_retry_count="1")
    first = json.loads(text)["choices"][0]["message"]["content"]
    return float((first, say(to, "well?")) == ("once", "twice"))  # the second one is on purpose


def refused(seed, **to):
    """Asks for what cannot be had; the error's text is the next request."""
    try:
        say(to, "hello", top_p=0.5)
    except Error as error:
        return float(say(to, str(error)) == "yes")


def long_winded(seed, **to):
    """Sends two megabytes."""
    try:
        say(to, "x" * 2**21)
    except Error as error:
        return float(say(to, str(error)) == "yes")


def surrogate(seed, **to):
    return float(say(to, "Käse 🧀 \ud800 ∑") == "∑ Käse 🧀")


def moody(seed, **to):
    """Asks something else each time it is played."""
    while True:
        say(to, f"mood {random.SystemRandom().random()}")


moody.replayable = False


def tempered(seed, **to):
    """Asks with other temperatures and limits, three times."""
    for turn in range(3):
        temperature = (0.5, 1.5, None)[(seed // 2 + turn) % 3]
        options = {} if temperature is None else {"temperature": temperature}
        say(to, f"seed {seed} turn {turn}", max_tokens=4 + turn, **options)
    return seed % 4 / 3


def cut(seed, **to):
    """Returns 1 if it hears that the response limit cut both of its answers."""
    whole = []
    for turn in range(4):
        body = {
            "model": "policy",
            "messages": [{"role": "user", "content": f"turn {turn} {whole}"}],
        }
        _, text = post(to["base_url"], to["api_key"], body)
        whole.append(json.loads(text)["choices"][0]["finish_reason"])
    return float(whole == ["length"] * 4)


MEETING = threading.Barrier(8)


def meets(seed, **to):
    MEETING.wait(20)
    say(to, "all are here")


def returns(seed, **to):
    """Returns what the response names."""
    return eval(say(to, "what?"))


def pays_words(seed, **to):
    say(to, "hello")
    to["reward"]("much")


def with_tools(seed, **to):
    """Calls a tool until the policy says something without a call; returns the number of calls."""
    schema = {"name": "add", "description": "Adds.", "parameters": {"type": "object",
              "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}  # fmt: skip
    tools = [{"type": "function", "function": schema}]
    messages = [{"role": "system", "content": "You add."}, {"role": "user", "content": "1 + 2?"}]
    for calls in range(9):
        body = {"model": "policy", "messages": messages, "tools": tools}
        _, text = post(to["base_url"], to["api_key"], body)
        said = json.loads(text)["choices"][0]["message"]
        messages.append(said)
        if "tool_calls" not in said:
            return calls
        for call in said["tool_calls"]:
            given = json.loads(call["function"]["arguments"])
            result = {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": str(sum(given.values())),
            }
            messages.append(result)


SCHEMA = {"type": "object", "required": ["a"], "additionalProperties": False,
          "properties": {"a": {"enum": ["one", "two"]}}}  # fmt: skip
NAMED = {"type": "object", "required": ["b"], "additionalProperties": False,
         "properties": {"b": {"enum": ["x"]}}}  # fmt: skip


def wishful(seed, **to):
    """Plans in JSON, takes two turns with a call between them that it forces, and judges greedily.
    Only the two turns are samples. Returns 1 if all that it asked for has come."""
    plan = json.loads(
        say(to, "plan", response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    )
    first = say(to, f"turn 1 of {seed}, plan {plan['a']}", max_tokens=4)
    tool = {"type": "function", "function": {"name": "use", "parameters": NAMED}}
    [call] = ask(to, "call", tools=[tool], tool_choice="required")["tool_calls"]
    to["reward"](0.5)
    say(to, f"turn 2 of {seed} after {first}", max_tokens=4)
    body = {"model": "policy", "messages": [{"role": "user", "content": "judge"}]}
    wish = {"temperature": 0, "n": 2, "max_tokens": 3}
    status, text = post(to["base_url"], to["api_key"], body | wish)
    judged = [choice["message"]["content"] for choice in json.loads(text)["choices"]]
    fine = json.loads(call["function"]["arguments"]) == {"b": "x"} and plan["a"] in ("one", "two")
    return float(fine and len(judged) == 2 and judged[0] == judged[1])
