"""The client against a service that a test scripts: every case through the blocking client and through the asyncio one."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import socket
import ssl
import struct
import sys
import threading
import time
import traceback
import unittest
import unittest.mock
import urllib.error
import warnings
from typing import Any, Awaitable, Callable, Dict, Iterator, List, Optional, Tuple

import call_budget
from call_budget import AsyncBudgets, Budgets, Closed, DoNotSend, Refused, Unsettled, machine_clock

TOKEN = "not-a-real-token"
Act = Callable[["Connection"], bool]


class Connection:
    """One that a client opened, and the request that is to be answered."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.file = sock, sock.makefile("rb")
        self.path, self.headers, self.body, self.arrived = "", {}, {}, 0  # type: str, Dict[str, str], Dict[str, Any], int

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
        self.acts, self.requests, self.connections = list(acts), [], 0  # type: List[Act], List[Tuple[str, Dict[str, Any]]], int
        self.heads: List[Dict[str, str]] = []
        self._lock, self._open = threading.Lock(), set()  # type: threading.Lock, set[socket.socket]
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


FINDING = {"verdict": "good", "code": None, "meaning": "", "throttled": False, "outcome_unknown": False, "never_again": False, "no_data": False}


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


GRANTED = {"requests": 1}
BAD = {"code": call_budget.BAD_ANSWER, "may_have_spent": True, "requests": 1}
GONE = {"code": call_budget.UNREACHABLE, "transient": True, "may_have_spent": True}

# What is played, and what is to come of it: a permit, or a Refused with these attributes.
CASES: Dict[str, Tuple[List[Act], Dict[str, Any]]] = {
    "a grant": ([grant()], GRANTED),
    "a grant that was held": ([grant(held=250)], GRANTED),
    "the switch is off": ([grant(governed=False, nonce=None, remaining_ms=None)], GRANTED),
    "a field more": ([grant(new_field={"x": 1})], GRANTED),
    "chunked": ([chunked], GRANTED),
    "it says that it goes on first": ([lambda c: raw(b"HTTP/1.1 100 Continue\r\n\r\n")(c) and grant()(c)], GRANTED),
    "the connection ends after the answer": ([lambda c: not grant()(c)], GRANTED),
    "unread, and then granted": ([unread, grant()], {"requests": 2}),
    "read late": ([grant(remaining=30, late=150)], {"code": call_budget.LATE_ANSWER, "may_have_spent": True, "transient": True}),
    "no JSON": ([says(b'{"governed": true')], BAD),
    "no text": ([says(b"\xff\xfe{}")], BAD),
    "no object": ([says(b"[true]")], BAD),
    "deeper than anybody reads": ([says(b"[" * 500000)], BAD),
    "no field governed": ([without("governed")], BAD),
    "no field nonce": ([without("nonce")], BAD),
    "no field held_ms": ([without("held_ms")], BAD),
    "no field remaining_ms": ([without("remaining_ms")], BAD),
    "a negative window": ([says_permit("-1")], BAD),
    "a window that is no number": ([says_permit("NaN")], BAD),
    "a window without end": ([says_permit("Infinity")], BAD),
    "a window that is too large a number": ([says_permit("1e999")], BAD),
    "a window of more digits than there are": ([says_permit("9" * 400)], BAD),
    "a window longer than any": ([says_permit("60001")], BAD),
    "a window that is text": ([says_permit('"20000"')], BAD),
    "a window that is true": ([says_permit("true")], BAD),
    "no window, though governed": ([says_permit("null")], BAD),
    "a window, though not governed": ([grant(governed=False)], BAD),
    "governed is text": ([grant(governed="yes")], BAD),
    "a nonce that is none": ([grant(nonce="0x7")], BAD),
    "held for longer than the way took": ([grant(held_ms=5000.0)], BAD),
    "another type": ([says(b'{"governed": false, "nonce": null, "held_ms": 0, "remaining_ms": null}', media="text/html")], BAD),
    "two lengths": ([raw(head(200, "application/json", 2, "content-length: 4\r\n") + b"{}  ")], BAD),
    "two codings": ([raw(head(200, "application/json", 2, "transfer-encoding: chunked\r\n") + b"{}")], BAD),
    "no length": ([raw(head(200, "application/json", None) + b"{}", keep=False)], BAD),
    "no HTTP": ([raw(b"SSH-2.0-x\r\n")], BAD),
    "a line without end": ([raw(b"HTTP/1.1 200 " + b"x" * 100000)], BAD),
    "longer than anybody reads": ([raw(head(200, "application/json", 50000000))], BAD),
    "a proxy's page": (
        [says(b"<html>", 502, "text/html")],
        {"code": call_budget.BAD_ANSWER, "status": 502, "transient": True, "may_have_spent": True},
    ),
    "moved": ([says(b"", 302, "text/html", "location: /x\r\n")], {"code": call_budget.BAD_ANSWER, "status": 302, "transient": False}),
    "wait exceeded": (
        [problem(429, "WAIT_EXCEEDED", "retry-after: 2\r\n", retry_after_ms=1250.5, may_have_spent=False)],
        {"code": "CALL_BUDGET_WAIT_EXCEEDED", "status": 429, "retry_after": 1.2505, "transient": True, "may_have_spent": False},
    ),
    "out": (
        [problem(503, "STORE_UNAVAILABLE", "retry-after: 3\r\n", may_have_spent=True, stage="connect")],
        {"code": "CALL_BUDGET_STORE_UNAVAILABLE", "retry_after": 3.0, "may_have_spent": True, "stage": "connect"},
    ),
    "paused": ([problem(503, "PAUSED", "retry-after: 5\r\n")], {"code": "CALL_BUDGET_PAUSED", "retry_after": 5.0, "transient": True}),
    "a refusal that is none": ([problem(503, "PAUSED", retry_after_ms=-1)], {"code": call_budget.BAD_ANSWER, "status": 503}),
    "unknown": ([problem(404, "UNKNOWN_BUDGET")], {"code": "CALL_BUDGET_UNKNOWN_BUDGET", "transient": False, "retry_after": None}),
    "misconfigured": ([problem(500, "MISCONFIGURED")], {"code": "CALL_BUDGET_MISCONFIGURED", "transient": False}),
    "unauthorized": ([problem(401, "UNAUTHORIZED")], {"code": "CALL_BUDGET_UNAUTHORIZED", "transient": False}),
    "it stops, and stands alone": ([problem(503, "STOPPING", "retry-after: 1\r\n")], {"code": "CALL_BUDGET_STOPPING", "transient": True}),
    "accepted, and silent": ([silent], {**GONE, "requests": 1}),
    "slow, byte by byte": ([drip], {**GONE, "requests": 1}),
    "reset in the middle": ([reset_in_the_middle], {**GONE, "requests": 1}),
    "unread twice": ([unread, unread], {**GONE, "requests": 2}),
}


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

    def test_only_an_answer_without_doubt_is_a_permit(self) -> None:
        async def work(budgets: Any, wait: Any) -> Any:
            try:
                permit = await wait(budgets.acquire("kis-real", "minute"))
                permit.check()
                return permit
            except Refused as refused:
                return refused

        for case, (acts, expected) in CASES.items():
            with self.subTest(case=case), Service(*acts) as service:
                began = time.monotonic()
                options = SHORT if acts[0] in (silent, drip) else LONG
                result = self.way.run(service.url, work, **options, token=TOKEN)
                self.assertLess(time.monotonic() - began, 5.0)
                self.assertEqual("code" in expected, isinstance(result, Refused), result)
                for name, value in expected.items():
                    if name != "requests":
                        self.assertEqual(getattr(result, name), value, name)
                self.assertEqual(len(service.requests), expected.get("requests", 1))
                if isinstance(result, Refused):
                    shown = traceback.TracebackException.from_exception(result, capture_locals=True).format()
                    self.assertNotIn(TOKEN, f"{result!r} {result} {''.join(shown)}")
                self.assertEqual(service.heads[0]["authorization"], f"Bearer {TOKEN}")

    def test_a_window_ends_no_later_than_the_service_means(self) -> None:
        ends: List[int] = []

        def act(connection: Connection) -> bool:
            time.sleep(random.random() * 0.02)
            now = machine_clock()
            remaining = random.randrange(1_000_000, 2_000_000) / 1000
            ends.append(now + int(remaining * 1e6))
            said = permit(connection, (now - connection.arrived) // 1000 / 1000, remaining)
            time.sleep(random.random() * 0.02)
            return says(json.dumps(said).encode())(connection)

        async def work(budgets: Any, wait: Any) -> List[Any]:
            return [(await wait(budgets.acquire("b", "c"))).closes_ns for _ in range(25)]

        ends.clear()
        with Service(*[act] * 25) as service:
            closes = self.way.run(service.url, work, **LONG)
            for closing, end in zip(closes, ends):
                self.assertLessEqual(closing, end)
                self.assertGreater(closing, end - 500_000_000)
            self.assertEqual(service.connections, 1, "a connection is used again")

    def test_a_permit_closes_while_the_machine_sleeps_and_is_good_once(self) -> None:
        ahead = [0]

        async def work(budgets: Any, wait: Any) -> None:
            async with block(budgets.acquire("b", "c")) as permit:
                self.assertTrue(permit.is_open())
                ahead[0] = 60_000_000_000
                self.assertFalse(permit.is_open())
                self.assertLess(permit.seconds_left(), 0)
                with self.assertRaises(Closed):
                    await wait(permit.send(lambda: self.fail("it was sent")))
                ahead[0] = -60_000_000_000
                with self.assertRaises(Closed):
                    permit.check()
                ahead[0] = 0
                permit.check()
                with self.assertRaises(Closed):
                    permit.check()
            permit = await wait(budgets.acquire("b", "c"))
            async with block(budgets.acquire("b", "c")) as left:
                self.assertEqual(left.nonce, 7)
            with self.assertRaises(DoNotSend):
                left.check()
            sent = await wait(permit.send(lambda: coroutine("sent") if hasattr(budgets, "__aenter__") else "sent"))
            self.assertEqual(sent, "sent")

        ahead[0] = 0
        with Service() as service:
            self.way.run(service.url, work, clock=lambda: machine_clock() + ahead[0], **LONG)

    def test_what_is_asked_is_what_was_said(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            await wait(budgets.acquire("b", "c", cost=2, max_wait=5.0))
            async with block(budgets.call("s/t", class_="c", credential="desk-1", revision=3, max_wait=0)) as call:
                self.assertEqual((call.id, call.attempt_timeout), ("c-1", 10.0))

        with Service() as service:
            self.way.run(service.url + "/below/", work, **LONG)
            (first, asked), (second, called), _ = service.requests
            self.assertEqual((first, second), ("/below/v1/acquire", "/below/v1/calls"))
            self.assertAlmostEqual(asked.pop("max_wait_ms"), 5000, delta=1000)
            self.assertEqual(asked, {"budget": "b", "class": "c", "cost": 2})
            said = {"surface": "s/t", "class": "c", "credential": "desk-1", "revision": 3, "cost": 1, "max_wait_ms": 0}
            self.assertEqual(called, said)


    def test_the_next_service_is_asked_where_one_is_away_or_stops(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            for _ in range(3):
                await wait(budgets.acquire("b", "c"))

        with Service() as there:
            self.way.run([refused_port(), there.url], work, **LONG)
            self.assertEqual(len(there.requests), 3)
        with Service(problem(503, "STOPPING", may_have_spent=True)) as stopping, Service() as there:
            self.way.run([stopping.url, there.url], work, **LONG)
            self.assertEqual((len(stopping.requests), len(there.requests)), (1, 3))

    def test_no_service_at_all_is_said_at_once_and_costs_nothing(self) -> None:
        async def work(budgets: Any, wait: Any) -> Refused:
            with self.assertRaises(Refused) as caught:
                await wait(budgets.acquire("b", "c"))
            return caught.exception

        began = time.monotonic()
        refused = self.way.run([refused_port(), refused_port()], work, **LONG)
        self.assertEqual((refused.code, refused.transient, refused.may_have_spent), (call_budget.UNREACHABLE, True, False))
        self.assertLess(time.monotonic() - began, 5.0)
        with socket.create_server(("127.0.0.1", 0)) as listener, Service() as there:  # its backlog is full: nobody answers
            full = [socket.socket() for _ in range(200)]
            for sock in full:
                sock.setblocking(False)
                sock.connect_ex(listener.getsockname())
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            listener.listen(1)
            self.way.run([url, there.url], acquire_one, connect_timeout=0.3, max_wait=2.0, margin=1.0)
            for sock in full:
                sock.close()

    def test_a_connection_that_ended_between_requests_is_not_used_again(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            for _ in range(4):
                await wait(budgets.acquire("b", "c"))
                service.hang_up()
                await wait(coroutine(asyncio.sleep(0.05)) if self.way.is_async else time.sleep(0.05))

        with Service() as service:
            self.way.run(service.url, work, **LONG)
            self.assertGreaterEqual(service.connections, 4)

    def test_another_process_uses_no_connection_of_this_one(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            await wait(budgets.acquire("b", "c"))
            with unittest.mock.patch("os.getpid", return_value=1):
                await wait(budgets.acquire("b", "c"))
            await wait(budgets.acquire("b", "c"))

        with Service() as service:
            self.way.run(service.url, work, **LONG)
            self.assertEqual(service.connections, 2)

    def test_what_a_service_says_unasked_is_nobodys_answer(self) -> None:
        body = b'{"governed": false, "nonce": null, "held_ms": 0, "remaining_ms": null}'
        twice = raw((head(200, "application/json", len(body)) + body) * 2)

        async def work(budgets: Any, wait: Any) -> Tuple[Any, Any]:
            return (await wait(budgets.acquire("b", "c")), await wait(budgets.acquire("b", "c")))

        with Service(twice) as service:
            first, second = self.way.run(service.url, work, **LONG)
            self.assertEqual((first.governed, second.governed, service.connections), (False, True, 2))

    def test_a_call_is_settled_as_it_ended(self) -> None:
        class ConnectTimeout(Exception):
            """As HTTP clients call theirs."""

        class ReadTimeout(Exception):
            pass

        def refuse(*_: Any) -> None:
            raise ConnectionRefusedError

        endings: List[Tuple[Optional[BaseException], Dict[str, Any]]] = [
            (ConnectionRefusedError(), {"error": "not_connected"}),
            (urllib.error.URLError(socket.gaierror()), {"error": "not_connected"}),
            (ssl.SSLCertVerificationError(), {"error": "not_connected"}),
            (ConnectTimeout(), {"error": "not_connected"}),
            (socket.timeout(), {"error": "timed_out"}),
            (asyncio.TimeoutError(), {"error": "timed_out"}),
            (ReadTimeout(), {"error": "timed_out"}),
            (ConnectionResetError(), {"error": "interrupted"}),
            (KeyError("of the vendor's client, or of a bug"), {"error": "interrupted"}),
            (urllib.error.HTTPError("u", 503, "m", None, None), {"status": 503}),  # type: ignore[arg-type]
            (KeyboardInterrupt(), {"error": "not_sent"}),
            (asyncio.CancelledError(), {"error": "not_sent"}),
        ]

        async def work(budgets: Any, wait: Any) -> None:
            for ending, _ in endings:
                with self.assertRaises(type(ending)):
                    async with block(budgets.call("s")) as call:
                        call.check()
                        raise ending
            with self.assertRaises(KeyError):
                async with block(budgets.call("s")):
                    raise KeyError("before it was sent")
            async with block(budgets.call("s")) as call:
                pass
            with self.assertRaises(Unsettled):
                async with block(budgets.call("s")) as call:
                    call.check()
            async with block(budgets.call("s")) as call:
                call.check()
                finding = await wait(call.settle(429, code="EGW00201", text="too many", retry_after=1.5, elapsed=0.25))
                self.assertEqual((finding.verdict, call.finding), ("good", finding))
                with self.assertRaises(RuntimeError):
                    await wait(call.fail("timed_out"))
            async with block(budgets.call("s")) as call:
                for wrong in (42, 600, True, "200"):
                    with self.assertRaises(ValueError):
                        await wait(call.settle(wrong))
                with self.assertRaises(ValueError):
                    await wait(call.fail("broken"))
                await wait(call.fail("timed_out"))

        with Service() as service:
            self.way.run(service.url, work, **LONG)
            told = [body for path, body in service.requests if path == "/v1/calls/c-1/settle"]
            taken = [body.pop("elapsed_ms") for body in told]
            self.assertTrue(all(0 <= took < 10000 for took in taken), taken)
            expected = [ending for _, ending in endings]
            expected += [{"error": "not_sent"}] * 3
            expected += [{"status": 429, "code": "EGW00201", "text": "too many", "retry_after_ms": 1500}, {"error": "timed_out"}]
            self.assertEqual(told, expected)
            self.assertEqual(taken[-2], 250)

    def test_a_call_whose_window_was_over_is_settled_as_not_sent(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            with self.assertRaises(Refused) as caught:
                await wait(budgets.call("s"))
            self.assertEqual(caught.exception.code, call_budget.LATE_ANSWER)

        with Service(grant(remaining=10, late=100)) as service:
            self.way.run(service.url, work, **LONG)
            self.assertEqual(service.requests[1][1]["error"], "not_sent")

    def test_a_service_that_cannot_be_told_harms_nobody_and_is_logged(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            for _ in range(4):
                async with block(budgets.call("s")) as call:
                    call.check()
                    self.assertIsNone(await wait(call.settle(200)))

        bad = says(b'{"verdict": "perhaps"}')
        acts = [grant(), problem(404, "UNKNOWN_CALL"), grant(), bad, grant(), silent, grant(), unread, unread]
        with Service(*acts) as service, self.assertLogs("call_budget", "WARNING") as logs:
            self.way.run(service.url, work, max_wait=5.0, margin=0.5)
            self.assertEqual(len(logs.output), 4)

    def test_a_call_is_settled_with_the_service_that_gave_it(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            async with block(budgets.call("s")) as first:
                stopping.acts.append(problem(503, "STOPPING"))
                async with block(budgets.call("s")) as second:
                    second.check()
                    await wait(second.settle(200))
                first.check()
                await wait(first.settle(200))

        with Service() as stopping, Service() as there:
            self.way.run([stopping.url, there.url], work, **LONG)
            self.assertEqual([path for path, _ in there.requests], ["/v1/calls", "/v1/calls/c-1/settle"])
            self.assertEqual(stopping.requests[-1][0], "/v1/calls/c-1/settle")

    def test_no_text_shows_a_token_and_none_is_taken_that_could_be_more_than_one(self) -> None:
        client = AsyncBudgets if self.way.is_async else Budgets
        budgets = client("http://127.0.0.1:1", token=TOKEN)
        self.assertNotIn(TOKEN, f"{budgets!r} {budgets} {vars(budgets)}")
        for wrong in ("", "two\r\nX-Header: 1", "a b"):
            with self.assertRaises(ValueError) as caught:
                client("http://127.0.0.1:1", token=wrong)
            self.assertNotIn("X-Header", str(caught.exception))
        for url in ("ftp://h", "http://user:s3cret@h", "h:8181", "http://h/?x", [], "http://h\u00e9"):
            with self.assertRaises(ValueError) as caught:
                client(url)
            self.assertNotIn("s3cret", str(caught.exception))

    def test_a_closed_client_gives_nothing_and_leaves_no_file_open(self) -> None:
        open_files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
        kept: List[Any] = []

        async def work(budgets: Any, wait: Any) -> None:
            kept.append(budgets)
            await wait(budgets.acquire("b", "c"))
            await wait(budgets.close())
            with self.assertRaises(RuntimeError):
                await wait(budgets.acquire("b", "c"))

        with Service() as service:
            self.way.run(service.url, work, **LONG)
        if open_files:
            self.assertEqual(len(os.listdir("/proc/self/fd")), open_files)

    def test_a_call_that_nobody_settles_is_told(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            await wait(budgets.call("s"))

        warnings.simplefilter("always", ResourceWarning)
        with Service() as service, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.way.run(service.url, work, **LONG)
            gc.collect()
            self.assertIn("call c-1 was never settled", " ".join(str(warning.message) for warning in told))


async def coroutine(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) else value


async def acquire_one(budgets: Any, wait: Any) -> Any:
    return await wait(budgets.acquire("b", "c"))


class Blocking(Promises):
    way = Way(False)

    def test_fifty_threads_each_get_an_answer_of_their_own(self) -> None:
        wrong: List[Any] = []

        def ask(number: int) -> None:
            for turn in range(4):
                permit = budgets.acquire("b", str(1000 * number + turn))
                if permit.nonce != 1000 * number + turn:
                    wrong.append(permit.nonce)

        with Service() as service, Budgets(service.url, **LONG) as budgets:
            threads = [threading.Thread(target=ask, args=(number,)) for number in range(50)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((wrong, len(service.requests)), ([], 200))


class Asynchronous(Promises):
    way = Way(True)

    def test_five_hundred_tasks_each_get_an_answer_of_their_own(self) -> None:
        async def main() -> List[Optional[int]]:
            async with AsyncBudgets(service.url, max_wait=60.0, margin=30.0, connect_timeout=30.0) as budgets:
                permits = await asyncio.gather(*[budgets.acquire("b", str(number)) for number in range(500)])
            return [permit.nonce for permit in permits]

        with Service() as service:
            self.assertEqual(asyncio.run(main()), list(range(500)))

    def test_a_cancelled_task_gives_its_place_up_and_leaves_nothing(self) -> None:
        gone = threading.Event()

        def waits(connection: Connection) -> bool:
            connection.sock.recv(1)
            gone.set()
            return False

        async def main() -> None:
            async with AsyncBudgets(service.url, **LONG) as budgets:
                for timeout in (0.0, 0.2):
                    with self.assertRaises(asyncio.TimeoutError):
                        await asyncio.wait_for(budgets.acquire("b", "c"), timeout)
                await asyncio.get_running_loop().run_in_executor(None, gone.wait, 10)
            self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

        with Service(waits) as service:
            asyncio.run(main())
            self.assertTrue(gone.is_set())

    def test_a_task_cancelled_after_sending_settles_that_nothing_was_learned_or_that_it_timed_out(self) -> None:
        ahead = [0]

        async def main() -> None:
            async with AsyncBudgets(service.url, clock=lambda: machine_clock() + ahead[0], **LONG) as budgets:
                for sleep in (0, 11_000_000_000):

                    async def attempt() -> None:
                        async with budgets.call("s") as call:
                            call.check()
                            ahead[0] += sleep
                            sent.set()
                            await asyncio.sleep(60)

                    sent = asyncio.Event()
                    task = asyncio.create_task(attempt())
                    await sent.wait()
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task

        with Service() as service:
            asyncio.run(main())
            self.assertEqual([body["error"] for path, body in service.requests if "settle" in path], ["not_sent", "timed_out"])

    def test_a_coroutine_that_is_closed_settles_before_the_client_is(self) -> None:
        async def main() -> None:
            async with AsyncBudgets(service.url, **LONG) as budgets:

                async def attempt() -> None:
                    async with budgets.call("s") as call:
                        call.check()
                        await never

                never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                coroutine = attempt()
                task = coroutine.__await__()
                waited: Any = task.send(None)
                while waited is not None and waited is not never:
                    await asyncio.wait({waited})
                    waited = task.send(None)
                    if waited is None:
                        break
                coroutine.close()

        with Service() as service:
            asyncio.run(main())
            self.assertEqual([body["error"] for path, body in service.requests if "settle" in path], ["not_sent"])


class Reader(unittest.TestCase):
    """The reader of answers, which both clients have in common."""

    BODY = json.dumps({"text": "x" * 50}).encode()
    WHOLE = head(200, "application/json", len(BODY)) + BODY
    CHUNKS = head(200, "application/json", None, "transfer-encoding: chunked\r\n") + b"1e\r\n" + BODY[:30] + b"\r\n1E;x\r\n"
    CHUNKS += BODY[30:60] + b"\r\n%x\r\n" % (len(BODY) - 60) + BODY[60:] + b"\r\n0\r\nx: y\r\n\r\n"

    def test_an_answer_is_the_same_however_its_bytes_are_cut(self) -> None:
        random.seed(1)
        for data in (self.WHOLE, self.CHUNKS, b"HTTP/1.1 100 Continue\r\n\r\n" + self.WHOLE):
            for _ in range(500):
                answer, at = call_budget._Answer(), 0
                while at < len(data):
                    self.assertFalse(answer.done, "it was done before its end")
                    cut = min(len(data), at + random.choice([1, 1, 2, 5, 20, 100]))
                    answer.feed(data[at:cut])
                    at = cut
                self.assertTrue(answer.done and answer.keeps)
                self.assertEqual(bytes(answer.body), self.BODY)

    def test_whatever_comes_is_an_answer_or_a_value_error(self) -> None:
        random.seed(2)
        for turn in range(6000):
            data = bytearray(self.CHUNKS if turn % 2 else self.WHOLE)
            for _ in range(random.randrange(1, 4)):
                at = random.randrange(len(data))
                data[at : at + random.randrange(3)] = bytes(random.choice(b"\r\n\0 :;0159afZ{}\xff") for _ in range(random.randrange(3)))
            answer = call_budget._Answer()
            try:
                for at in range(0, len(data), 7):
                    if not answer.done:
                        answer.feed(bytes(data[at : at + 7]))
                if answer.done:
                    answer.json("application/json")
            except ValueError:
                pass


del Promises  # its tests are those of Blocking and Asynchronous

if __name__ == "__main__":
    unittest.main()
