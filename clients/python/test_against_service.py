"""The client against `call-budget serve` as it runs, judged at a mock vendor (`call-budget mock-vendor`).

CALL_BUDGET_URL      of the service, or of several with commas between; without it everything here is skipped
VENDOR_URL           of the mock vendor, which counts as the budget says (limit, window, arrival jitter)
CALL_BUDGET_TOKEN_FILE, CALL_BUDGET_ADMIN_TOKEN_FILE     where the service has such tokens
TRY_BUDGET, TRY_CLASS, TRY_SURFACE    what is there to be tried: kis-real, minute and kis/real/quote where not said; the breaker
                                      of the surface opens after at most 50 failures. For a service of scratch: it is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import threading
import time
import unittest
import urllib.parse
import urllib.request
from typing import Any, Dict, List, Optional

from call_budget import AsyncBudgets, Budgets, Closed, DoNotSend, Permit, Refused, machine_clock

URLS = [url for url in os.environ.get("CALL_BUDGET_URL", "").split(",") if url]
VENDOR = os.environ.get("VENDOR_URL", "").rstrip("/")
TOKEN_FILE = os.environ.get("CALL_BUDGET_TOKEN_FILE") or None
ADMIN_TOKEN_FILE = os.environ.get("CALL_BUDGET_ADMIN_TOKEN_FILE") or None
BUDGET = os.environ.get("TRY_BUDGET", "kis-real")
CLASS = os.environ.get("TRY_CLASS", "minute")
SURFACE = os.environ.get("TRY_SURFACE", "kis/real/quote")
PRICE = "/uapi/domestic-stock/v1/quotations/inquire-price?FID_COND_MRKT_DIV_CODE=J&FID_INPUT_ISCD=005930"
THREADS, SECONDS, MOST_FAILURES = 8, 8.0, 50


def ask(url: str, body: Optional[Dict[str, Any]] = None, token: str = "") -> Any:
    """GET, or POST where there is a body; the JSON of the answer, where there is one."""
    headers = {"content-type": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def order(what: str, **body: Any) -> Any:
    assert ADMIN_TOKEN_FILE is not None
    with open(ADMIN_TOKEN_FILE, encoding="ascii") as file:
        return ask(f"{URLS[0].rstrip('/')}/v1/admin/{what}", body, file.readline().strip())


def stood_still(stalls: List[Dict[str, int]], arrival: Dict[str, Any]) -> bool:
    """Whether the vendor stood still between the end of the window and the arrival."""
    return any(stall["at_us"] <= arrival["at_us"] and stall["at_us"] + stall["for_us"] >= arrival["closes_us"] for stall in stalls)


@unittest.skipUnless(URLS, "CALL_BUDGET_URL names no service")
class AgainstTheService(unittest.TestCase):
    def setUp(self) -> None:
        self.budgets = Budgets(URLS, token_file=TOKEN_FILE)
        self.addCleanup(self.budgets.close)

    def refusal(self, *of: str, surface: str = "", max_wait: float = 5.0) -> Refused:
        with self.assertRaises(Refused) as caught:
            if surface:
                self.budgets.call(surface, max_wait=max_wait)
            else:
                self.budgets.acquire(*of, max_wait=max_wait)
        return caught.exception

    def test_a_permit_is_open_when_it_comes_and_closes_soon(self) -> None:
        with self.budgets.acquire(BUDGET, CLASS) as permit:
            left = permit.seconds_left()
            self.assertTrue(permit.governed and permit.nonce is not None and left is not None)
            self.assertLessEqual(left or 0.0, 60.0)
        with self.assertRaises(Closed):
            permit.check()

        async def main() -> bool:
            async with AsyncBudgets(URLS, token_file=TOKEN_FILE) as budgets:
                permits = await asyncio.gather(*[budgets.acquire(BUDGET, CLASS) for _ in range(5)])
            return len({permit.nonce for permit in permits}) == 5

        self.assertTrue(asyncio.run(main()))

    def test_what_does_not_exist_is_refused_for_good(self) -> None:
        for refused, code in [
            (self.refusal("no-such-budget", CLASS), "CALL_BUDGET_UNKNOWN_BUDGET"),
            (self.refusal(BUDGET, "no-such-class"), "CALL_BUDGET_UNKNOWN_CLASS"),
            (self.refusal(surface="no/such/surface"), "CALL_BUDGET_UNKNOWN_SURFACE"),
            (self.refusal("", CLASS), "CALL_BUDGET_BAD_REQUEST"),
        ]:
            self.assertEqual((refused.code, refused.transient), (code, False))
            self.assertIn(refused.status, (400, 404))

    def test_who_cannot_wait_is_told_when_to_come_back(self) -> None:
        refusals: List[Refused] = []

        def impatient() -> None:
            try:
                self.budgets.acquire(BUDGET, CLASS, max_wait=0.001)
            except Refused as refused:
                refusals.append(refused)

        threads = [threading.Thread(target=impatient) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(refusals)
        for refused in refusals:
            if refused.status == 429:
                self.assertEqual((refused.code, refused.transient), ("CALL_BUDGET_WAIT_EXCEEDED", True))
                self.assertGreater(refused.retry_after or 0.0, 0.0)
        self.assertTrue(any(refused.status == 429 for refused in refusals), [str(refused) for refused in refusals])

    @unittest.skipUnless(ADMIN_TOKEN_FILE, "CALL_BUDGET_ADMIN_TOKEN_FILE is not set")
    def test_a_paused_budget_refuses_until_it_is_resumed(self) -> None:
        self.assertTrue(order("pause", budget=BUDGET, reason="tried")["paused"])
        try:
            refused = self.refusal(BUDGET, CLASS)
            self.assertEqual((refused.code, refused.status, refused.transient), ("CALL_BUDGET_PAUSED", 503, True))
        finally:
            self.assertFalse(order("resume", budget=BUDGET)["paused"])
        self.budgets.acquire(BUDGET, CLASS).check()

    def test_failures_that_are_settled_open_the_breaker_and_cost_no_slot_then(self) -> None:
        if ADMIN_TOKEN_FILE:
            order("breaker", breaker=SURFACE, order="reset", who="test", why="begin anew")
            self.addCleanup(order, "breaker", breaker=SURFACE, order="reset", who="test", why="it is over")
        with self.budgets.call(SURFACE, credential="desk-1") as call:
            self.assertGreater(call.attempt_timeout, 0.0)
            call.check()
            finding = call.settle(200, code="0")
            self.assertIsNotNone(finding)
        with self.budgets.call(SURFACE) as call:
            finding = call.fail("not_sent")
            self.assertEqual(finding.verdict if finding else "", "none")
        for _ in range(MOST_FAILURES):
            try:
                with self.assertRaises(ConnectionResetError), self.budgets.call(SURFACE) as call:
                    call.check()
                    raise ConnectionResetError
            except Closed:
                continue  # this machine was busy
            except Refused as refused:
                self.assertEqual((refused.code, refused.status), ("CALL_BUDGET_CIRCUIT_OPEN", 503))
                self.assertGreater(refused.retry_after or 0.0, 0.0)
                self.assertFalse(refused.may_have_spent)
                return
            self.assertEqual(call.finding.verdict if call.finding else "", "bad")
        self.fail(f"{MOST_FAILURES} failures have not opened the breaker")

    @unittest.skipUnless(VENDOR, "VENDOR_URL names no mock vendor")
    def test_the_vendor_sees_no_call_outside_its_window_and_no_window_over_the_limit(self) -> None:
        ask(f"{VENDOR}/mock/reset", {})
        until = time.monotonic() + SECONDS
        unsent: List[str] = []
        gone_us: Dict[int, int] = {}  # by nonce: when the whole request had been handed over

        def calls() -> None:
            address = urllib.parse.urlsplit(VENDOR)
            vendor = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
            vendor.connect()  # at leisure: what is opened inside a window arrives later than it was sent
            with contextlib.closing(vendor):
                while time.monotonic() < until:
                    try:
                        permit = self.budgets.acquire(BUDGET, CLASS, max_wait=10.0)
                        permit.send(lambda: vendor.request("GET", PRICE, headers=self.headers(permit)))
                    except DoNotSend as no:
                        unsent.append(str(no))  # this machine was busy
                        continue
                    gone_us[permit.nonce or 0] = machine_clock() // 1000
                    vendor.getresponse().read()

        threads = [threading.Thread(target=calls) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = ask(f"{VENDOR}/mock/report")
        if report["violation_during_stall"]:
            self.skipTest("the mock vendor itself stood still: nothing can be said")
        self.assertGreater(len(gone_us), 10, f"{report} {unsent}")
        self.assertEqual((report["arrivals"], report["duplicate_nonces"]), (len(gone_us), 0), report)
        self.assertEqual(report["over_limit_windows_without_late"], 0, report)
        with urllib.request.urlopen(f"{VENDOR}/mock/arrivals", timeout=10) as answer:
            late = [arrival for arrival in map(json.loads, answer) if arrival["late"]]
        # What had gone in time was late on its way: a vendor that stood still, or somebody else's fault.
        stopped = [arrival for arrival in late if gone_us[arrival["nonce"]] > arrival["closes_us"]]
        slow = [arrival for arrival in late if arrival not in stopped and not stood_still(report["stalls"], arrival)]
        self.assertEqual(slow, [], report)
        # This process was stopped between its last look at the clock and the wire, which nobody can prevent, and is rare.
        self.assertLessEqual(len(stopped), len(gone_us) // 10, report)

    @staticmethod
    def headers(permit: Permit) -> Dict[str, str]:
        assert permit.closes_ns is not None, "the service's switch is off"
        return {
            "tr_id": "FHKST01010100",
            "appkey": "mock-app-key",
            "x-call-budget-class": CLASS,
            "x-call-budget-pid": str(os.getpid()),
            "x-call-budget-nonce": str(permit.nonce),
            "x-call-budget-closes-us": str(permit.closes_ns // 1000),
        }


if __name__ == "__main__":
    unittest.main()
