"""Notices within seconds that another rank has died, also where this rank is blocked.

A collective of NCCL waits for a dead rank until its watchdog wakes, and the start of vLLM waits for
one that has not come. So each rank keeps a connection to the first one. It carries a farewell at an
orderly end; if it breaks without one, the process at its other end is gone. The system closes the
connections of a dead process at once, and keepalive probes those of a dead machine.
"""

import os
import secrets
import selectors
import socket
import sys
import threading
from contextlib import suppress

from common.cli import command
from common.errors import OtherRankFailed
from run.stop import Stopped

GRACE_SECONDS = 5.0  # in which a rank may notice by itself, and end with a line of its own
CONNECT_SECONDS = 60.0
PROBES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}  # seconds, seconds, times
TOKEN = 16  # bytes: only ranks of this run are believed
FAREWELL = b"."


class Peers:
    """`with Peers(ranks):` the process ends with a line if another rank dies inside of the block.

    ranks: a `StoppableRanks`; with one rank, nothing happens
    """

    def __init__(self, ranks):
        self.ranks, self.links, self.left = ranks, {}, threading.Event()

    def __enter__(self) -> "Peers":
        if self.ranks.size > 1:
            try:
                self._connect()
            except OSError as error:
                line = f"warning: a rank that dies may be noticed late: {error}"
                print(f"rank {self.ranks.rank}: {line}", file=sys.stderr)
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        """Leave. The others are to end as well, unless the run is over or they know the error."""
        self.left.set()
        reported = isinstance(error, OtherRankFailed) or self.ranks.failure
        over = error is None or isinstance(error, Stopped)
        for link in self.links:
            with suppress(OSError):
                if over or reported:
                    link.sendall(FAREWELL)
                link.close()

    def _connect(self) -> None:
        """Connect the first rank with each of the others."""
        if self.ranks.rank:
            port, token = self.ranks.first(None)
            link = socket.create_connection((os.environ["MASTER_ADDR"], port), CONNECT_SECONDS)
            link.sendall(token + self.ranks.rank.to_bytes(4, "big"))
            self._keep(link, 0)
            return
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        with socket.create_server(("", 0), family=family, dualstack_ipv6=both) as server:
            token = secrets.token_bytes(TOKEN)
            self.ranks.first((server.getsockname()[1], token))
            server.settimeout(CONNECT_SECONDS)
            while len(self.links) < self.ranks.size - 1:
                link, _ = server.accept()
                link.settimeout(CONNECT_SECONDS)
                hello = link.recv(TOKEN + 4, socket.MSG_WAITALL)
                if hello[:TOKEN] == token:
                    self._keep(link, int.from_bytes(hello[TOKEN:], "big"))
                else:
                    link.close()

    def _keep(self, link: socket.socket, rank: int) -> None:
        link.settimeout(None)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in PROBES.items():
            if hasattr(socket, name):  # macOS has other names
                link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.links[link] = rank
        # A forked worker must not hold the connection open when this process has died.
        os.register_at_fork(after_in_child=link.close)

    def _watch(self) -> None:
        """Wait for farewells and broken connections, until all ranks have left."""
        with selectors.DefaultSelector() as selector:
            for link in self.links:
                selector.register(link, selectors.EVENT_READ)
            while selector.get_map() and not self.left.is_set():
                for key, _ in selector.select(timeout=1.0):
                    if (gone := self._read(key.fileobj)) is not None:
                        self._end(gone)
                    selector.unregister(key.fileobj)

    def _read(self, link: socket.socket) -> int | None:
        """Return the rank that has died; None: the one at the other end has left in order."""
        try:
            said = link.recv(64)
        except OSError:
            said = b""
        if said.startswith(FAREWELL):
            return None
        return int(said) if said else self.links[link]

    def _end(self, gone: int) -> None:
        """Tell the others which rank has died, and end this process unless it is ending."""
        if self.left.is_set():
            return
        for link, rank in self.links.items():
            if self.ranks.rank == 0 and rank != gone:
                with suppress(OSError):
                    link.sendall(str(gone).encode())
        if self.left.wait(GRACE_SECONDS):
            return
        line = f"error: rank {self.ranks.rank}: another rank has ended (rank {gone})"
        with suppress(OSError):
            os.write(2, f"{command('main.py')}: {line}\n".encode())
        os._exit(1)
