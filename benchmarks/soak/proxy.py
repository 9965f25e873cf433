"""A network that can be cut: everything to and from the broker passes through here."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from enum import StrEnum

from deploy.ports import HOST

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)
#: A slow network passes on so many bytes at a time, and pauses so many seconds between.
_PIECE, _PAUSE = 64, 0.02


class Network(StrEnum):
    """The network's behaviour."""

    WHOLE = "whole"
    #: Swallows everything, both ways; nobody is told.
    CUT = "cut"
    #: Swallows what the broker says: it has taken what nobody hears of.
    DEAF = "deaf"
    #: Holds everything back, and lets it through once it is whole again.
    STALLED = "stalled"
    #: Refuses connections, and ends those that there are.
    REFUSED = "refused"
    #: Ends those that there are, each amid whatever it is at.
    RESET = "reset"
    #: Ends one direction of each, to the broker, and leaves the other open.
    HALF_CLOSED = "half closed"
    #: Ends each in the middle of whatever is sent next.
    TORN = "torn"
    #: Passes on a few bytes at a time.
    SLOW = "slow"


class _Connection:
    """One client and the broker."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        # The ends whose bytes have been swallowed: nothing of theirs may follow.
        self.swallowed: set[socket.socket] = set()
        self.half_closed = False

    def abort(self) -> None:
        """End both sides at once, with a reset."""
        for end in (self.client, self.broker):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on a free port of loopback and passes on to another."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = 0
        self._network = Network.WHOLE
        self._whole = threading.Event()
        self._whole.set()
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def become(self, network: Network) -> None:
        """Change the network. Bytes swallowed before it is whole are lost with their connection."""
        self._network = network
        if network is Network.WHOLE:
            self._whole.set()
        else:
            self._whole.clear()
        with self._lock:
            connections = tuple(self._connections)
        for each in connections:
            ends = network in (Network.REFUSED, Network.RESET)
            if ends or each.half_closed or (network is Network.WHOLE and each.swallowed):
                each.abort()
            elif network is Network.HALF_CLOSED:
                each.half_closed = True
                with contextlib.suppress(OSError):
                    each.broker.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End all connections and stop listening."""
        self._listener.close()
        self.become(Network.REFUSED)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        broker = socket.socket()
        made = _Connection(client, broker)
        try:
            if self._network is Network.REFUSED:
                raise ConnectionRefusedError
            broker.connect((HOST, self.target))
        except OSError:
            made.abort()
            return
        with self._lock:
            self._connections.add(made)
        answers = threading.Thread(target=self._pump, args=(made, broker, client), daemon=True)
        answers.start()
        self._pump(made, client, broker)
        answers.join()
        made.abort()
        with self._lock:
            self._connections.discard(made)

    def _pump(self, made: _Connection, source: socket.socket, sink: socket.socket) -> None:
        """Pass on one direction until it ends."""
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if self._network is Network.STALLED:
                    self._whole.wait()
                deaf = self._network is Network.DEAF and source is made.broker
                if deaf or self._network is Network.CUT:
                    made.swallowed.add(source)
                if source in made.swallowed:
                    continue
                if self._network is Network.TORN:
                    sink.sendall(data[: len(data) // 2])
                    made.abort()
                    return
                while self._network is Network.SLOW and data:
                    sink.sendall(data[:_PIECE])
                    data = data[_PIECE:]
                    time.sleep(_PAUSE)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
