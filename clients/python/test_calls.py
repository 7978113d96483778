"""How a call is settled, whatever becomes of it: through the blocking client and through the asyncio one."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import unittest
import urllib.error
import warnings
from typing import Any, Dict, List, Tuple

from call_budget import AsyncBudgets, Refused, Unsettled, machine_clock
from scripted_service import LONG, Promises, Service, Way, block, grant, problem, says, silent, unread


class Calls(Promises):
    def test_a_call_is_settled_as_it_ended(self) -> None:
        class ConnectTimeout(Exception):
            """As HTTP clients call theirs."""

        class ReadTimeout(Exception):
            pass

        def refuse(*_: Any) -> None:
            raise ConnectionRefusedError

        endings: List[Tuple[BaseException, Dict[str, Any]]] = [
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
            (Refused("CALL_BUDGET_PAUSED", "of another acquire in the block"), {"error": "not_sent"}),
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
            async with block(budgets.call("s")):
                pass

        with Service(grant(remaining=10, late=100)) as service:
            self.way.run(service.url, work, **LONG)
            paths = ["/v1/calls", "/v1/calls/c-1/settle"]
            self.assertEqual([path for path, _ in service.requests], paths + paths)
            self.assertEqual([body["error"] for path, body in service.requests if path == paths[1]], ["not_sent"] * 2)

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

    def test_a_call_that_nobody_settles_is_told(self) -> None:
        async def work(budgets: Any, wait: Any) -> None:
            await wait(budgets.call("s"))

        warnings.simplefilter("always", ResourceWarning)
        with Service() as service, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.way.run(service.url, work, **LONG)
            gc.collect()
            self.assertIn("call c-1 was never settled", " ".join(str(warning.message) for warning in told))


class Blocking(Calls):
    way = Way(False)


class Asynchronous(Calls):
    way = Way(True)

    def test_a_task_cancelled_after_sending_settles_that_nothing_was_learned_or_that_it_timed_out(self) -> None:
        ahead = [0]

        async def main() -> None:
            async with AsyncBudgets(service.url, clock=lambda: machine_clock() + ahead[0]) as budgets:
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
            async with AsyncBudgets(service.url, max_wait=20.0, margin=10.0) as budgets:

                async def attempt() -> None:
                    async with budgets.call("s") as call:
                        call.check()
                        await never

                never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                coroutine = attempt()
                task = coroutine.__await__()
                waited: Any = task.send(None)
                while waited is not never:
                    await asyncio.wait({waited})
                    waited = task.send(None)
                coroutine.close()

        with Service() as service:
            asyncio.run(main())
            self.assertEqual([body["error"] for path, body in service.requests if "settle" in path], ["not_sent"])


del Calls  # its tests are those of Blocking and Asynchronous

if __name__ == "__main__":
    unittest.main()
