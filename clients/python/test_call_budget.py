"""What is a permit and what is not: every case through the blocking client and through the asyncio one."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import threading
import time
import traceback
import unittest
import unittest.mock
from typing import Any, Dict, List, Optional, Tuple

import call_budget
from call_budget import AsyncBudgets, Budgets, Closed, DoNotSend, Refused, machine_clock
from scripted_service import LONG, SHORT, Act, Connection, Promises, Service, Way
from scripted_service import block, chunked, drip, grant, head, permit, problem, raw, refused_port, reset_in_the_middle
from scripted_service import says, says_permit, silent, unread, without

TOKEN = "not-a-real-token"
OFF = b'{"governed": false, "nonce": null, "held_ms": 0, "remaining_ms": null}'
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
    "read late, and then in time": ([grant(remaining=10, late=100), grant()], {"requests": 2}),
    "always read late": (
        [grant(remaining=10, late=100)] * 3,
        {"code": call_budget.LATE_ANSWER, "may_have_spent": True, "transient": True, "requests": 3},
    ),
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
    "held for more digits than there are": ([grant(held_ms=10**400)], BAD),
    "a window longer than any": ([says_permit("60001")], BAD),
    "a window that is text": ([says_permit('"20000"')], BAD),
    "a window that is true": ([says_permit("true")], BAD),
    "no window, though governed": ([says_permit("null")], BAD),
    "a window, though not governed": ([grant(governed=False)], BAD),
    "governed is text": ([grant(governed="yes")], BAD),
    "a nonce that is none": ([grant(nonce="0x7")], BAD),
    "a nonce that is no text": ([grant(nonce=7)], BAD),
    "held for longer than the way took": ([grant(held_ms=5000.0)], BAD),
    "another type": ([says(OFF, media="text/html")], BAD),
    "two lengths": ([raw(head(200, "application/json", 2, f"content-length: {len(OFF)}\r\n") + OFF)], BAD),
    "two codings": ([raw(head(200, "application/json", 2, "transfer-encoding: chunked\r\n") + b"{}")], BAD),
    "no length": ([raw(head(200, "application/json", None) + b"{}", keep=False)], BAD),
    "no HTTP": ([raw(b"SSH-2.0-x\r\n")], BAD),
    "a line without end": ([raw(b"HTTP/1.1 200 " + b"x" * 100000)], BAD),
    "longer than anybody reads": ([raw(head(200, "application/json", 50000000))], BAD),
    "a proxy's page": (
        [says(b"<html>", 502, "text/html")],
        {"code": call_budget.BAD_ANSWER, "status": 502, "transient": True, "may_have_spent": True},
    ),
    "moved": (
        [says(b"", 302, "text/html", "location: /x\r\n")],
        {"code": call_budget.BAD_ANSWER, "status": 302, "transient": False},
    ),
    "wait exceeded": (
        [problem(429, "WAIT_EXCEEDED", "retry-after: 2\r\n", retry_after_ms=1250.5, may_have_spent=False)],
        {"code": "CALL_BUDGET_WAIT_EXCEEDED", "status": 429, "retry_after": 1.2505, "transient": True, "may_have_spent": False},
    ),
    "out": (
        [problem(503, "STORE_UNAVAILABLE", "retry-after: 3\r\n", may_have_spent=True, stage="connect")],
        {"code": "CALL_BUDGET_STORE_UNAVAILABLE", "retry_after": 3.0, "may_have_spent": True, "stage": "connect"},
    ),
    "paused": (
        [problem(503, "PAUSED", "retry-after: 5\r\n")],
        {"code": "CALL_BUDGET_PAUSED", "retry_after": 5.0, "transient": True},
    ),
    "a refusal that is none": (
        [problem(503, "PAUSED", retry_after_ms=-1)],
        {"code": call_budget.BAD_ANSWER, "status": 503},
    ),
    "unknown": (
        [problem(404, "UNKNOWN_BUDGET")],
        {"code": "CALL_BUDGET_UNKNOWN_BUDGET", "transient": False, "retry_after": None},
    ),
    "misconfigured": ([problem(500, "MISCONFIGURED")], {"code": "CALL_BUDGET_MISCONFIGURED", "transient": False}),
    "unauthorized": ([problem(401, "UNAUTHORIZED")], {"code": "CALL_BUDGET_UNAUTHORIZED", "transient": False}),
    "it stops, and stands alone": (
        [problem(503, "STOPPING", "retry-after: 1\r\n")],
        {"code": "CALL_BUDGET_STOPPING", "transient": True},
    ),
    "accepted, and silent": ([silent], {**GONE, "requests": 1}),
    "slow, byte by byte": ([drip], {**GONE, "requests": 1}),
    "reset in the middle": ([reset_in_the_middle], {**GONE, "requests": 1}),
    "unread twice": ([unread, unread], {**GONE, "requests": 2}),
}

class Permits(Promises):
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
                self.assertLess(time.monotonic() - began, 10.0)
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
        self.assertLess(time.monotonic() - began, 10.0)
        with socket.create_server(("127.0.0.1", 0)) as listener, Service() as there:  # its backlog is full: nobody answers
            full = [socket.socket() for _ in range(200)]
            for sock in full:
                sock.setblocking(False)
                sock.connect_ex(listener.getsockname())
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            listener.listen(1)
            self.way.run([url, there.url], acquire_one, connect_timeout=1.0, max_wait=5.0, margin=5.0)
            for sock in full:
                sock.close()

    def test_a_connection_that_ended_between_requests_is_not_used_again(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            for _ in range(4):
                await wait(budgets.acquire("b", "c"))
                service.hang_up()
                await asyncio.sleep(0.05) if self.way.is_async else time.sleep(0.05)  # until it knows

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
        twice = raw((head(200, "application/json", len(OFF)) + OFF) * 2)

        async def work(budgets: Any, wait: Any) -> Tuple[Any, Any]:
            return (await wait(budgets.acquire("b", "c")), await wait(budgets.acquire("b", "c")))

        with Service(twice) as service:
            first, second = self.way.run(service.url, work, **LONG)
            self.assertEqual((first.governed, second.governed, service.connections), (False, True, 2))

        def later(connection: Connection) -> bool:
            says(OFF)(connection)
            time.sleep(0.05)
            says(OFF)(connection)
            said.set()
            return True

        async def work_later(budgets: Any, wait: Any) -> Any:
            await wait(budgets.acquire("b", "c"))
            if self.way.is_async:
                await asyncio.get_running_loop().run_in_executor(None, said.wait, 10)
                await asyncio.sleep(0.1)
            else:
                said.wait(10)
                time.sleep(0.1)
            return await wait(budgets.acquire("b", "c"))

        said = threading.Event()
        with Service(later) as service:
            self.assertTrue(self.way.run(service.url, work_later, **LONG).governed)

    def test_no_text_shows_a_token_and_none_is_taken_that_could_be_more_than_one(self) -> None:
        client = AsyncBudgets if self.way.is_async else Budgets
        budgets = client("http://127.0.0.1:1", token=TOKEN)
        self.assertNotIn(TOKEN, f"{budgets!r} {budgets} {vars(budgets)}")
        for wrong in ("", "two\r\nX-Header: 1", "a b"):
            with self.assertRaises(ValueError) as caught:
                client("http://127.0.0.1:1", token=wrong)
            self.assertNotIn("X-Header", str(caught.exception))
        urls: List[Any] = ["ftp://h", "http://user:s3cret@h", "h:8181", "http://h/?x", [], "http://h\u00e9"]
        for url in urls:
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


async def coroutine(value: Any) -> Any:
    return value


async def acquire_one(budgets: Any, wait: Any) -> Any:
    return await wait(budgets.acquire("b", "c"))


class Blocking(Permits):
    way = Way(False)

    def test_fifty_threads_each_get_an_answer_of_their_own(self) -> None:
        wrong: List[Any] = []

        def ask(number: int) -> None:
            for turn in range(4):
                permit = budgets.acquire("b", str(1000 * number + turn))
                if permit.nonce != 1000 * number + turn:
                    wrong.append(permit.nonce)

        with Service() as service, Budgets(service.url, max_wait=20.0, margin=10.0) as budgets:
            threads = [threading.Thread(target=ask, args=(number,)) for number in range(50)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((wrong, len(service.requests)), ([], 200))


class Asynchronous(Permits):
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
            async with AsyncBudgets(service.url, max_wait=20.0, margin=10.0) as budgets:
                for timeout in (0.0, 0.2):
                    with self.assertRaises(asyncio.TimeoutError):
                        await asyncio.wait_for(budgets.acquire("b", "c"), timeout)
                await asyncio.get_running_loop().run_in_executor(None, gone.wait, 10)
            self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

        with Service(waits) as service:
            asyncio.run(main())
            self.assertTrue(gone.is_set())


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
                noise = [random.choice(b"\r\n\0 :;0159afZ{}\xff") for _ in range(random.randrange(3))]
                data[at : at + random.randrange(3)] = bytes(noise)
            answer = call_budget._Answer()
            try:
                for at in range(0, len(data), 7):
                    if not answer.done:
                        answer.feed(bytes(data[at : at + 7]))
                if answer.done:
                    answer.json("application/json")
            except ValueError:
                pass


del Permits  # its tests are those of Blocking and Asynchronous

if __name__ == "__main__":
    unittest.main()
