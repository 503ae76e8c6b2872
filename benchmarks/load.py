"""Shows what one process holds with 1,024 environments, and with 512 asynchronous agents.

    python -m benchmarks.load [--environments 1024] [--agents 512]

Each plays TURNS turns. No model takes part: every response is "yes". Agents are async programs, of
which each has a thread and keeps a connection to the endpoint open. For growth over many updates
see `benchmarks.soak`. Linux only.
"""

import argparse
import asyncio
import json
import os
import threading
from collections.abc import Callable
from functools import partial

from benchmarks.common import Stopwatch, proc_bytes
from common.cli import Parser
from envs import make_env
from envs.pool.resilient import ResilientPool
from run.process import set_up

TURNS = 8


async def agent(seed, base_url, api_key, reward):
    """Ask TURNS times over one connection, as HTTP clients with a pool do."""
    host, _, port = base_url.removeprefix("http://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for turn in range(TURNS):
        asked = {"model": "policy", "messages": [{"role": "user", "content": f"turn {turn}"}]}
        body = json.dumps(asked)
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {api_key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"chunked" in head:
            while size := int(await reader.readline(), 16):
                await reader.readexactly(size + 2)
            await reader.readline()
        else:
            length = head.partition(b"content-length: ")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
    writer.close()
    return 1.0


def play(make: Callable, count: int, threads: int) -> dict[str, float]:
    """Play TURNS turns in each of `count` environments; return what the process held at most."""
    before, most = proc_bytes("VmRSS"), {}
    with Stopwatch() as took:
        envs = ResilientPool(make, [[2 * i, 2 * i + 2**20] for i in range(count)], threads=threads)
        envs.reset()
        taken = dict.fromkeys(range(count), 0)
        for i in range(count):
            envs.send(i, "yes")
        while min(taken.values()) < TURNS:
            for i, step in envs.poll():
                assert not step.fault, step.fault
                taken[i] += 1
                if taken[i] < TURNS:
                    envs.send(i, "yes")
            held = {
                "MB": (proc_bytes("VmRSS") - before) / 2**20,
                "descriptors": len(os.listdir("/proc/self/fd")),
                "threads": threading.active_count(),
            }
            most = {name: max(value, most.get(name, 0)) for name, value in held.items()}
    assert not envs.faults, envs.faults[0]
    envs.close()
    return most | {"ms a turn": took.processor_seconds * 1000 / (count * TURNS)}


def print_rows(options: argparse.Namespace) -> None:
    program = partial(make_env, "agent:benchmarks.load:agent")
    rows = [
        ("environments", partial(make_env, "toy"), options.environments, 0),
        ("agents", program, options.agents, options.agents),
    ]
    print("| what | number | MB | descriptors | threads | ms of processor time a turn |")
    print("|---|---|---|---|---|---|")
    for name, make, count, threads in rows:
        held = play(make, count, threads)
        shown = f"{held['MB']:.0f} | {held['descriptors']} | {held['threads']}"
        print(f"| {name} | {count} | {shown} | {held['ms a turn']:.2f} |", flush=True)


def main() -> None:
    set_up()  # as main.py does: the limit of open files is raised
    parser = Parser("benchmarks.load", description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=int, default=1024, help="number of environments")
    parser.add_argument("--agents", type=int, default=512, help="number of agents")
    print_rows(parser.parse_args())


if __name__ == "__main__":
    main()
