"""A caller of call_budget_acquire without the library: psycopg 3, one lane, every rule of docs/sql.md.

    lane = Lane("hostaddr=10.0.0.5 dbname=calls user=collector", "kis-real", "eod")
    window = lane.acquire(max_wait=30.0)
    if window.is_open():      # looked at again right before sending, since anything may have taken time
        send()

It speaks to PostgreSQL through psycopg.pq, because every wait has to end at its deadline: an ordinary execute() waits for as
long as the network likes. Every exception means: do not send.
"""

from __future__ import annotations

import argparse
import json
import secrets
import select
import threading
import time
from dataclasses import dataclass

from psycopg import Error, pq

CONTRACT = 1
STORE_CALL = 1_000_000  # one store call, connecting included: the server's statement_timeout and 0.5 s
RETRY = 200_000
COLUMNS = "contract nonce waits_us retry_us reason lookahead_us send_window_us store_us".split()
ACQUIRE = f"SELECT {', '.join(COLUMNS)} FROM call_budget.call_budget_acquire($1, $2, $3, $4, $5, $6)".encode()
TYPES = [25, 25, 20, 1007, 20, 20]  # text, text, bigint, integer[], bigint, bigint
# An argument, the isolation, the rights or the schema: asking again will not help.
PERMANENT = {"CB001", "CB002", "42501", "3F000", "42883", "42P01"}


def now_us() -> int:
    """One monotonic clock for everything, and one that goes on while the machine sleeps where there is such a one."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def sleep_until(moment: int) -> None:
    while (rest := moment - now_us()) > 0:
        time.sleep(rest / 1e6)


class DoNotSend(Exception):
    """No permit. retry_after: seconds until trying again can help, where that is known."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class StoreFailed(Exception):
    """One attempt brought no answer that counts. What it may have been granted is spent."""


@dataclass(frozen=True)
class Window:
    """When one granted call may leave, on this machine's clock; both ends belong to it."""

    opens: int
    closes: int
    slot: int  # on the store's clock: for the log, never for a decision

    def is_open(self) -> bool:
        return self.opens <= now_us() <= self.closes


class Lane:
    """One budget and class of this process. Not for several threads at once: give each its own."""

    def __init__(self, conninfo: str, budget: str, class_: str, rtt_max: float = 0.025) -> None:
        # libpq looks names up without any limit of time: name the server by its address (hostaddr).
        self.conninfo, self.budget, self.class_ = conninfo.encode(), budget, class_
        self.rtt_max = int(rtt_max * 1e6)
        self.id = secrets.randbits(63)  # drawn once: a call that is repeated under it changes nothing and loses no place
        self.connection: pq.abc.PGconn | None = None
        self.warnings = 0

    def acquire(self, max_wait: float, cost: int = 1) -> Window:
        """Returns when one call may leave. Raises DoNotSend, after max_wait seconds at the latest."""
        deadline = now_us() + int(max_wait * 1e6)
        why = "max_wait passed without a slot"
        while (asked := now_us()) < deadline:
            until = min(deadline, asked + STORE_CALL)
            try:
                if self.connection is None:
                    self._connect(until)
                asked = now_us()
                answer = self._ask(self.budget, self.class_, [cost], deadline - asked, until)
                answered = now_us()
            except StoreFailed as failure:
                why = f"max_wait passed; the store failed last: {failure}"
                self._disconnect()  # whatever was in doubt must not answer the next call
                sleep_until(min(deadline, now_us() + RETRY))
                continue
            if answer["reason"] is not None:
                retry = answer["retry_us"]
                raise DoNotSend(f"refused: {answer['reason']}", retry / 1e6 if retry is not None else None)
            if answered - asked > self.rtt_max:
                self._probe_until_short(deadline)  # the slot is dropped: it is not known well enough where it lies
            elif not answer["waits_us"]:
                sleep_until(min(deadline, asked + answer["retry_us"]))  # an appointment, counted from the question
            else:
                wait = answer["waits_us"][0]
                window = Window(answered + wait, asked + wait + answer["send_window_us"], answer["store_us"] + wait)
                sleep_until(min(deadline, window.opens))
                if window.is_open():
                    return window
        raise DoNotSend(why)

    def _probe_until_short(self, deadline: int) -> None:
        """Whoever asked again at once would take and drop for ever. A probe takes nothing."""
        pause = 20_000
        while now_us() + pause < deadline:
            sleep_until(now_us() + pause)
            try:
                asked = now_us()
                self._ask("", "", [1], 0, asked + STORE_CALL)
                if now_us() - asked <= self.rtt_max:
                    return
            except StoreFailed:
                return  # the next question finds the connection closed, and opens another
            pause = min(2 * pause, 1_000_000)

    def _ask(self, budget: str, class_: str, costs: list[int], patience: int, until: int) -> dict:
        """One statement, one transaction. An answer that does not keep the contract is none."""
        nonce = secrets.randbits(63)
        array = "{" + ",".join(map(str, costs)) + "}"
        values = [budget, class_, str(self.id), array, str(min(patience, 86_400_000_000)), str(nonce)]
        row = self._execute(ACQUIRE, [value.encode() for value in values], until)
        text = {name: None if value is None else value.decode() for name, value in zip(COLUMNS, row)}
        answer = {name: int(value) if value and name not in ("waits_us", "reason") else value for name, value in text.items()}
        answer["waits_us"] = [int(wait) for wait in (text["waits_us"] or "").strip("{}").split(",") if wait]
        if answer["contract"] != CONTRACT:
            raise DoNotSend(f"the schema speaks contract {answer['contract']}, this program speaks {CONTRACT}")
        granted = answer["waits_us"]
        if answer["nonce"] != nonce or any(not 0 <= wait <= answer["lookahead_us"] for wait in granted):
            raise StoreFailed("the answer breaks the contract")
        if answer["reason"] is None and not granted and not 0 <= (answer["retry_us"] or -1) <= 5_000_000:
            raise StoreFailed("neither slot nor appointment")
        return answer

    def _execute(self, sql: bytes, values: list[bytes], until: int) -> list[bytes | None]:
        connection = self.connection
        if connection is None:
            raise StoreFailed("not connected")
        try:
            self.warnings = 0
            connection.send_query_params(sql, values, param_types=TYPES[: len(values)])
            while connection.flush():
                self._wait(connection, True, until)
                connection.consume_input()
            results = []
            while True:
                while connection.is_busy():
                    self._wait(connection, False, until)
                    connection.consume_input()
                if (result := connection.get_result()) is None:
                    break  # ReadyForQuery: only now the transaction is committed
                results.append(result)
        except Error as error:
            raise StoreFailed(str(error)) from None
        for result in results:
            if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
                message = f"{result.error_message.decode(errors='replace').strip()} (SQLSTATE {state})"
                raise DoNotSend(message) if state in PERMANENT else StoreFailed(message)
        # A commit with a warning (a cancelled wait for a synchronous standby) can still be forgotten.
        if len(results) != 1 or connection.transaction_status != pq.TransactionStatus.IDLE or self.warnings:
            raise StoreFailed("the answer is not complete")
        result = results[0]
        return [result.get_value(0, column) for column in range(result.nfields)] if result.ntuples == 1 else []

    def _connect(self, until: int) -> None:
        try:
            self.connection = connection = pq.PGconn.connect_start(self.conninfo)
            while (status := connection.connect_poll()) != pq.PollingStatus.OK:
                if status == pq.PollingStatus.FAILED:
                    raise StoreFailed(connection.error_message.decode(errors="replace").strip())
                self._wait(connection, status == pq.PollingStatus.WRITING, until)
            connection.nonblocking = 1
            connection.notice_handler = lambda _: setattr(self, "warnings", self.warnings + 1)
        except Error as error:
            raise StoreFailed(str(error)) from None
        # Whatever the role's default is: a snapshot older than the lock would be refused (CB002).
        self._execute(b"SET default_transaction_isolation = 'read committed'", [], until)
        self._ask("", "", [1], 0, until)  # plans every statement, so that the first real call holds the lock shortly

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.finish()
            self.connection = None

    @staticmethod
    def _wait(connection: pq.abc.PGconn, to_write: bool, until: int) -> None:
        sockets, rest = [connection.socket], (until - now_us()) / 1e6
        if rest <= 0 or not any(select.select(sockets, sockets if to_write else [], [], rest)):
            raise StoreFailed("no answer in time")


def main() -> None:
    parser = argparse.ArgumentParser(description="Acquires a number of times in each thread; prints one JSON line a call.")
    parser.add_argument("conninfo")
    parser.add_argument("budget")
    parser.add_argument("class_", metavar="class")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-wait", type=float, default=30.0)
    arguments = parser.parse_args()

    def call_many() -> None:
        lane = Lane(arguments.conninfo, arguments.budget, arguments.class_)
        for _ in range(arguments.calls):
            try:
                window = lane.acquire(arguments.max_wait)
            except DoNotSend as refusal:
                print(json.dumps({"lane": lane.id, "refused": str(refusal), "retry_after": refusal.retry_after}), flush=True)
                continue
            sent = now_us()  # here the call would leave, if the window is still open
            line = {"lane": lane.id, "slot": window.slot, "opens": window.opens, "closes": window.closes, "sent": sent}
            print(json.dumps(line if window.opens <= sent <= window.closes else {"lane": lane.id, "lapsed": True}), flush=True)

    threads = [threading.Thread(target=call_many) for _ in range(arguments.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
