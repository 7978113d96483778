"""A service that a test scripts, and the two ways to be its client."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
import sys
import threading
import time
import unittest
import warnings
from typing import Any, Awaitable, Callable, Dict, List, Optional, Set, Tuple

from call_budget import AsyncBudgets, Budgets, machine_clock

Act = Callable[["Connection"], bool]


class Connection:
    """One that a client opened, and the request that is to be answered."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.file = sock, sock.makefile("rb")
        self.path, self.arrived = "", 0
        self.headers: Dict[str, str] = {}
        self.body: Dict[str, Any] = {}

    def read(self) -> bool:
        line = self.file.readline()
        self.arrived = machine_clock()
        if not line:
            return False
        self.path, self.headers = line.decode().split(" ")[1], {}
        while (header := self.file.readline().decode().strip()) != "":
            name, value = header.split(": ", 1)
            self.headers[name.lower()] = value
        self.body = json.loads(self.file.read(int(self.headers["content-length"])))
        return True

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Service:
    """Plays one act a request, then grants."""

    def __init__(self, *acts: Act) -> None:
        self.acts, self.connections = list(acts), 0
        self.requests: List[Tuple[str, Dict[str, Any]]] = []
        self.heads: List[Dict[str, str]] = []
        self._lock = threading.Lock()
        self._open: Set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=600)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in list(self._threads):
            thread.join()

    def hang_up(self) -> None:
        with self._lock:
            for sock in self._open:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._open.add(sock)
                thread = threading.Thread(target=self._serve, args=(sock,))
                self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        connection = Connection(sock)
        try:
            while connection.read():
                with self._lock:
                    self.requests.append((connection.path, connection.body))
                    self.heads.append(connection.headers)
                    act = self.acts.pop(0) if self.acts else grant()
                if not act(connection):
                    break
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(sock)
            connection.file.close()
            sock.close()


def head(status: int, media: str, length: Optional[int], more: str = "") -> bytes:
    told = "" if length is None else f"content-length: {length}\r\n"
    return f"HTTP/1.1 {status} Some Words\r\ncontent-type: {media}\r\n{told}{more}\r\n".encode()


def says(body: bytes, status: int = 200, media: str = "application/json", more: str = "") -> Act:
    def act(connection: Connection) -> bool:
        connection.sock.sendall(head(status, media, len(body), more) + body)
        return True

    return act


def raw(data: bytes, keep: bool = True) -> Act:
    def act(connection: Connection) -> bool:
        connection.sock.sendall(data)
        return keep

    return act


def permit(connection: Connection, held: float, remaining: float, **more: Any) -> Dict[str, Any]:
    nonce = connection.body.get("class", "7")
    said = {"governed": True, "nonce": nonce if nonce.isdigit() else "7", "held_ms": held, "remaining_ms": remaining}
    if connection.path.endswith("/v1/calls"):
        said.update(id="c-1", attempt_timeout_ms=10000)
    return {**said, **more}


FINDING = {"verdict": "good", "code": None, "meaning": "", "throttled": False, "outcome_unknown": False}
FINDING.update(never_again=False, no_data=False)


def grant(held: float = 0.0, remaining: float = 20000.0, late: float = 0.0, **more: Any) -> Act:
    """Holds the request (ms), then grants; the answer is `late` (ms) after that. A settlement is found good."""

    def act(connection: Connection) -> bool:
        time.sleep((held + late) / 1000)
        settling = connection.path.endswith("/settle")
        return says(json.dumps(FINDING if settling else permit(connection, held, remaining, **more)).encode())(connection)

    return act


def without(field: str) -> Act:
    def act(connection: Connection) -> bool:
        said = permit(connection, 0.0, 20000.0)
        del said[field]
        return says(json.dumps(said).encode())(connection)

    return act


def problem(status: int, code: str, more: str = "", **said: Any) -> Act:
    body = {"title": "No", "status": status, "detail": "a sentence", "code": f"CALL_BUDGET_{code}", **said}
    return says(json.dumps(body).encode(), status, "application/problem+json", more)


def silent(connection: Connection) -> bool:
    connection.sock.recv(1)  # until the client goes
    return False


def unread(connection: Connection) -> bool:
    connection.reset()
    return False


def reset_in_the_middle(connection: Connection) -> bool:
    connection.sock.sendall(head(200, "application/json", 90) + b'{"governed": true, "nonce": "7", ')
    time.sleep(0.05)
    connection.reset()
    return False


def drip(connection: Connection) -> bool:
    body = json.dumps(permit(connection, 0.0, 60000.0)).encode()
    for byte in head(200, "application/json", len(body)) + body:
        connection.sock.sendall(bytes([byte]))
        time.sleep(0.02)
    return True


def chunked(connection: Connection) -> bool:
    body = json.dumps(permit(connection, 0.0, 20000.0)).encode()
    connection.sock.sendall(head(200, "application/json; charset=utf-8", None, "transfer-encoding: chunked\r\n"))
    for at in range(0, len(body), 13):
        piece = body[at : at + 13]
        connection.sock.sendall(f"{len(piece):X};x=y\r\n".encode() + piece[:5])
        time.sleep(0.002)
        connection.sock.sendall(piece[5:] + b"\r\n")
    connection.sock.sendall(b"0\r\ntrailer: x\r\n\r\n")
    return True


def says_permit(text: str) -> Act:
    return says(b'{"governed": true, "nonce": "7", "held_ms": 0, "remaining_ms": 20000}'.replace(b"20000", text.encode()))


class Way:
    """One of the two clients, told what to do in one way."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def run(self, urls: Any, work: Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]], **options: Any) -> Any:
        """Runs `work(budgets, wait)`, where `await wait(x)` waits for what the asyncio client gives, and is x for the other."""
        if self.is_async:

            async def main() -> Any:
                async def wait(pending: Any) -> Any:
                    return await pending

                async with AsyncBudgets(urls, **options) as budgets:
                    result = await work(budgets, wait)
                assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is left behind"
                return result

            return asyncio.run(main())

        async def at_once(value: Any) -> Any:
            return value

        with Budgets(urls, **options) as budgets:
            try:
                work(budgets, at_once).__await__().send(None)
            except StopIteration as end:
                return end.value
            raise AssertionError("the blocking client has waited for a loop")


class block:
    """`async with block(x)`: a with block for the blocking client, and an async one for the other."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __aenter__(self) -> Any:
        return await self.inner.__aenter__() if hasattr(self.inner, "__aenter__") else self.inner.__enter__()

    async def __aexit__(self, *end: Any) -> Any:
        return await self.inner.__aexit__(*end) if hasattr(self.inner, "__aexit__") else self.inner.__exit__(*end)


SHORT = {"max_wait": 0.4, "margin": 0.3}
LONG = {"max_wait": 20.0, "margin": 10.0}


def refused_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


class Promises(unittest.TestCase):
    way: Way

    def setUp(self) -> None:
        self.threads = threading.active_count()
        warnings.simplefilter("error", ResourceWarning)
        self.lost: List[Any] = []
        sys.unraisablehook, self.hook = self.lost.append, sys.unraisablehook

    def tearDown(self) -> None:
        gc.collect()
        sys.unraisablehook = self.hook
        self.assertEqual([str(lost.exc_value) for lost in self.lost], [], "something was left open")
        self.assertEqual(threading.active_count(), self.threads, "a thread is left behind")
