"""Agent programs for the tests, and a client without any SDK.

`ask` posts a request as SDKs do. Programs pass on the keyword arguments that AgentEnv gives them.
Tests name the programs `agent:agent_programs:NAME`.
"""

import asyncio
import http.client
import json
import logging
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

Error = RuntimeError


def post(base_url: str, api_key: str, body: dict | bytes, timeout=20, **headers):
    """Return (status, text) of a POST to the endpoint. headers: their names have _ instead of -"""
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
    """Return the next message of a conversation. texts: of the user and the assistant, in turn"""
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
    """Asks three times, with a reward for each answer that begins with y."""
    answers = []
    for turn in range(3):
        answers.append(say(to, f"seed {seed} turn {turn} said {' '.join(answers)}"))
        to["reward"](0.25 * answers[-1].startswith("y"))
    return {"reward": 1, "metrics": {"letters": len("".join(answers))}}


async def later(seed, **to):
    """An async program with two requests at the same time."""
    first = asyncio.to_thread(say, to, "first")
    await asyncio.sleep(0)
    one = asyncio.ensure_future(first)
    await asyncio.sleep(0.2)
    two = asyncio.ensure_future(asyncio.to_thread(say, to, "second"))
    return float((await one, await two) == ("1", "2"))


async def waits(seed, **to):
    """An async program with one request; its event loop has files, too."""
    return float(await asyncio.to_thread(say, to, "hello") == "1")


def together(seed, **to):
    """Asks four times at once, and returns how many answers are right."""
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
    raise ConnectionError("lost")  # here crash


class APIConnectionError(Exception):
    """As SDKs have it: not an OSError."""


class APITimeoutError(APIConnectionError):
    pass


def breaks(seed, **to):
    """Pays for each response, and raises the exception that a response names."""
    while (response := say(to, "say good")) == "good":
        to["reward"](0.25)
    to["reward"](0.5)
    raise eval(response)  # here breaks


SHARED, PLAYED = {}, []


def overwrites(seed, **to):
    """Keeps its client in a global setting, which other agents of the process overwrite."""
    SHARED["client"] = to
    say(SHARED["client"], f"first of {seed}")
    say(SHARED["client"], f"second of {seed}")


def overwrites_for_threads(seed, **to):
    """The same, but asks in a thread of its own, of which nobody knows whose it is."""
    SHARED["client"] = to
    with ThreadPoolExecutor() as helpers:
        helpers.submit(say, SHARED["client"], f"first of {seed}").result()
        helpers.submit(say, SHARED["client"], f"second of {seed}").result()


def keeps_the_first_key(seed, **to):
    """Sets the key only where none is set, as a program does with a variable of the environment."""
    SHARED.setdefault("client", to)
    with ThreadPoolExecutor() as helpers:
        helpers.submit(say, SHARED["client"], f"first of {seed}").result()


def asks_twice_or_late(seed, **to):
    """Every other episode asks twice at once; the others wait before they ask."""
    PLAYED.append(seed)
    if seed % 4:
        time.sleep(0.5)
        return float(say(to, "late") == "OK")
    with ThreadPoolExecutor() as helpers:
        return float(len(list(helpers.map(partial(say, to), ["one", "two"]))) == 2)


def asks_thrice_or_works(seed, **to):
    """Every other episode asks three times at once; the others work after their only response."""
    with ThreadPoolExecutor() as helpers:
        asked = helpers.map(partial(say, to), ["one"] if seed % 4 else ["one", "two", "three"])
        count = len(list(asked))
    time.sleep(0.5)
    return float(count)


def shares_connections(seed, **to):
    """Has its own key, and a global client, whose connections all agents share."""
    import httpx

    client = SHARED.setdefault("httpx", httpx.Client())
    for turn in range(3):
        body = {"model": "policy", "messages": [{"role": "user", "content": f"{seed}: {turn}"}]}
        headers = {"Authorization": f"Bearer {to['api_key']}"}
        client.post(f"{to['base_url']}/chat/completions", json=body, headers=headers, timeout=20)
    return 1.0


def asks_greedily(seed, **to):
    """Asks for what is refused, after its first response."""
    say(to, say(to, "hello"), temperature=0)


def early_crash(seed, **to):
    raise KeyError("at once")  # here early_crash


def never_asks(seed, **to):
    wait()


def wait():
    while True:
        time.sleep(0.01)  # here wait


def hangs_in_a_pool(seed, **to):
    """Calls a tool in a thread pool, as programs with a time limit do; the tool never returns."""
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
        headers = {"Authorization": f"Bearer {to['api_key']}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        kept.append(connection)
        time.sleep(0.1)
    return float(say(to, "three") == "3")


def impatient(seed, **to):
    """Times out after a moment and retries as SDKs do."""
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
    """Times out, and retries only when the first request has been answered."""
    body = {"model": "policy", "messages": [{"role": "user", "content": "well?"}]}
    try:
        post(to["base_url"], to["api_key"], body, timeout=0.1)
    except TimeoutError:
        pass
    time.sleep(0.6)
    _, text = post(to["base_url"], to["api_key"], body, x_stainless_retry_count="1")
    first = json.loads(text)["choices"][0]["message"]["content"]
    return float((first, say(to, "well?")) == ("once", "twice"))  # an equal request, not a retry


def refused(seed, **to):
    """Sends a request that is refused; the error's text is the next request."""
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
    """Asks something random, so that it cannot be replayed."""
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
    """Returns 1 if the finish reason of all its answers is "length"."""
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


def keeps_the_first_answer(seed, **to):
    """Has a cache of its own, which answers for the policy from the second episode on."""
    SHARED["answer"] = SHARED.get("answer") or say(to, "hello")


def returns(seed, **to):
    """Evaluates the response, and returns the result."""
    return eval(say(to, "what?"))


def pays_words(seed, **to):
    say(to, "hello")
    to["reward"]("much")


def with_tools(seed, **to):
    """Runs the policy's calls of a tool until a message has none; returns the number of rounds."""
    properties = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    parameters = {"type": "object", "properties": properties}
    schema = {"name": "add", "description": "Adds.", "parameters": parameters}
    tools = [{"type": "function", "function": schema}]
    messages = [{"role": "system", "content": "You add."}, {"role": "user", "content": "1 + 2?"}]
    for calls in range(9):
        body = {"model": "policy", "messages": messages, "tools": tools}
        _, text = post(to["base_url"], to["api_key"], body)
        message = json.loads(text)["choices"][0]["message"]
        messages.append(message)
        if "tool_calls" not in message:
            return calls
        for call in message["tool_calls"]:
            given = json.loads(call["function"]["arguments"])
            result = {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": str(sum(given.values())),
            }
            messages.append(result)


def object_schema(name: str, values: list[str]) -> dict:
    """Return the JSON schema of an object with one property that has one of some values."""
    return {
        "type": "object",
        "required": [name],
        "additionalProperties": False,
        "properties": {name: {"enum": values}},
    }


PLAN = object_schema("a", ["one", "two"])
PARAMETERS = object_schema("b", ["x"])


def planner(seed, **to):
    """Plans in JSON, takes two turns with a forced call between them, and judges greedily. Only the
    two turns are trained on. Returns 1 if all answers are as requested."""
    plan = json.loads(
        say(to, "plan", response_format={"type": "json_schema", "json_schema": {"schema": PLAN}})
    )
    first = say(to, f"turn 1 of {seed}, plan {plan['a']}", max_tokens=4)
    tool = {"type": "function", "function": {"name": "use", "parameters": PARAMETERS}}
    [call] = ask(to, "call", tools=[tool], tool_choice="required")["tool_calls"]
    to["reward"](0.5)
    say(to, f"turn 2 of {seed} after {first}", max_tokens=4)
    body = {"model": "policy", "messages": [{"role": "user", "content": "judge"}]}
    greedy = {"temperature": 0, "n": 2, "max_tokens": 3}
    status, text = post(to["base_url"], to["api_key"], body | greedy)
    judged = [choice["message"]["content"] for choice in json.loads(text)["choices"]]
    fine = json.loads(call["function"]["arguments"]) == {"b": "x"} and plan["a"] in ("one", "two")
    return float(fine and len(judged) == 2 and judged[0] == judged[1])


def retries(seed, **to):
    """Logs every error of a request and asks again, as frameworks do, in this thread and others."""
    while True:
        try:
            if seed % 4:
                say(to, "again")
            else:
                with ThreadPoolExecutor() as helpers:
                    helpers.submit(say, to, "again").result()
        except Exception as error:
            logging.getLogger("framework").error("retrying: %s", error)


async def sleeps(seed, **to):
    """Waits in its event loop, which no answer wakes."""
    for _ in range(2):
        threading.Thread(target=say, args=(to, "thread")).start()
    await asyncio.sleep(60)


async def forgets(seed, **to):
    """Leaves a task alone, whose error nobody reads, and a thread."""
    threading.Thread(target=say, args=(to, "thread")).start()
    task = asyncio.ensure_future(asyncio.to_thread(say, to, "task"))
    await asyncio.sleep(60)
    return task


def completion(to: dict, text: str) -> tuple[str, str]:
    """Return the id and the text of an answer to one message of the user."""
    body = {"model": "policy", "messages": [{"role": "user", "content": text}]}
    answer = json.loads(post(to["base_url"], to["api_key"], body)[1])
    return answer["id"], answer["choices"][0]["message"]["content"]


def pays_earlier(seed, **to):
    """Four answers. One such as "pay 2" pays 1 for the second of them, and "pay x" the turn "x"."""
    ids = []
    for _ in range(4):
        known, response = completion(to, f"so far {ids}")
        ids.append(known)
        if response.startswith("pay "):
            named = response.removeprefix("pay ")
            to["reward"](1.0, turn=ids[int(named) - 1] if named.isdigit() else eval(named))
    return 0.5


def pays_first(seed, **to):
    """Three answers. The first is worth 1, which is known at the end, and .25 after the second."""
    first, _ = completion(to, f"first of {seed}")
    completion(to, f"second of {seed}")
    to["reward"](0.25, turn=first)
    completion(to, f"third of {seed}")
    to["reward"](1.0, turn=first)
    return 0.5


def pays_parallel(seed, **to):
    """Asks for four answers at once, and pays each by its own text, when all are here."""
    with ThreadPoolExecutor(4) as requests:
        answers = list(requests.map(lambda k: completion(to, f"number {k}"), range(4)))
    for known, text in answers:
        to["reward"](float(text.removeprefix("worth ")), turn=known)
    return 0.5


async def keeps_a_lock(seed, **to):
    """Keeps a lock from episode to episode, as frameworks keep clients. It belongs to a loop."""
    lock = SHARED.setdefault("lock", asyncio.Lock())

    async def locked(text):
        async with lock:  # the second one waits, which binds the lock
            return await asyncio.to_thread(say, to, text)

    asyncio.ensure_future(asyncio.sleep(60))  # nobody waits for it
    return float(await asyncio.gather(locked("one"), locked("two")) == ["1", "2"])


async def reports(seed, **to):
    """Logs whatever ends it, and raises something else instead, as AutoGen's runtime does."""
    try:
        while True:
            await asyncio.to_thread(say, to, "hello")
    except BaseException:
        logging.getLogger("framework").error("processing failed")
        raise ValueError("done too often") from None


def asks_langchain(seed, **to):
    """Begins an event loop in each episode; langchain-openai keeps one client for all of them."""
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="policy", base_url=to["base_url"], api_key=to["api_key"])
    return float(asyncio.run(model.ainvoke(f"hello {seed}")).content == "hello")
