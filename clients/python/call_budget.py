"""Leave to call a vendor, from `call-budget serve`. One file, nothing but the standard library, Python 3.9 or later.

    from call_budget import Budgets, DoNotSend

    budgets = Budgets("http://127.0.0.1:8181")          # one for the process; threads share it
    with budgets.acquire("kis-real", "minute", max_wait=5.0) as permit:
        answer = permit.send(lambda: session.get(url))  # sends inside the permit's window, or raises Closed

    with budgets.call("kis/real/quote", credential="desk-1") as call:  # breaker and budget; one attempt
        answer = call.send(lambda: session.get(url, timeout=call.attempt_timeout))
        call.settle(answer.status_code)

`AsyncBudgets` is the same with `async with` and `await`. All durations are seconds.

The contract of time: the clock is read before the request leaves (`t_req`); a call may be sent from the moment at which the
answer has been read until `t_req + held_ms + remaining_ms`. The clock goes on while the machine sleeps, where there is such a
one, and is looked at again right before sending. On any doubt nothing is sent: an answer that is late, cut, malformed or not our
service's is never a permit. Every DoNotSend means what it is called.

What is asked again: a service that cannot be connected to, that stops or is full is passed over for the next URL. A request
whose connection ended before the first byte of an answer is repeated once: it may have been carried out, which costs a slot and
never breaks the limit. Where the answer was read too late, another slot is asked for, three in all. Nothing else is repeated. A
call is settled with the service that gave it.

Every wait ends: `max_wait` and `margin` together bound it, connecting included, and `margin` bounds settling. Only the system's
own lookup of a host's name knows no limit in `Budgets`: give an address.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import warnings
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Coroutine, Dict, Generator, Generic, List, Optional, Protocol, Sequence, Set
from typing import Tuple, TypeVar, Union

__all__ = ["AsyncBudgets", "AsyncCall", "AsyncPermit", "Budgets", "Call", "Closed", "DoNotSend", "Finding", "Permit"]
__all__ += ["Refused", "Unsettled", "error_of", "machine_clock"]

T = TypeVar("T")
P = TypeVar("P", bound="Permit")
A = TypeVar("A", bound="AsyncPermit")
C = TypeVar("C", bound="_Connection")
UNREACHABLE = "CALL_BUDGET_SERVICE_UNREACHABLE"
BAD_ANSWER = "CALL_BUDGET_BAD_ANSWER"
LATE_ANSWER = "CALL_BUDGET_LATE_ANSWER"
log = logging.getLogger("call_budget")


class DoNotSend(Exception):
    """Nothing may be sent: a Refused or a Closed."""


class Refused(DoNotSend):
    """No permit.

    code: stable; those of the service, and of this client CALL_BUDGET_SERVICE_UNREACHABLE (not connected, or no answer),
    CALL_BUDGET_BAD_ANSWER (what came is no answer of the service) and CALL_BUDGET_LATE_ANSWER (the window was over when it was
    read). detail: a sentence. status: of the answer, where one came. retry_after: seconds until trying again can help, where that
    is known. may_have_spent: a slot may be spent although nothing was sent. transient: trying again later can help. stage: of the
    store call.
    """

    def __init__(
        self, code: str, detail: str, *, status: Optional[int] = None, retry_after: Optional[float] = None,
        may_have_spent: bool = False, transient: bool = True, stage: Optional[str] = None,
    ) -> None:  # fmt: skip
        super().__init__(code, detail)
        self.code, self.detail, self.status, self.retry_after = code, detail, status, retry_after
        self.may_have_spent, self.transient, self.stage = may_have_spent, transient, stage

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class Closed(DoNotSend):
    """The permit is over, by time or by use: ask for another."""


class Unsettled(RuntimeError):
    """A bug: the block of a call ended well, the call was sent, and nobody said how it ended."""


@dataclass(frozen=True)
class Finding:
    """What the vendor table of the service makes of an attempt."""

    verdict: str  # good, bad or none
    code: Optional[str]
    meaning: str
    throttled: bool
    outcome_unknown: bool
    never_again: bool
    no_data: bool


def machine_clock() -> int:
    """Nanoseconds of a monotonic clock that goes on while the machine sleeps, where there is such a one."""
    return _read_clock()


if hasattr(time, "clock_gettime_ns"):
    _CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def _read_clock() -> int:
        return time.clock_gettime_ns(_CLOCK)

else:
    _read_clock = time.monotonic_ns


class _Leave:
    """Leave for one call, until its window closes or it is used.

    governed: the shared budget stands behind it; False while the service's switch is off, and then there is no window.
    nonce: a number that no other permit has, for logs. closes_ns: the last moment to send at, on the clock of the client.
    """

    def __init__(self, grant: _Grant, clock: Callable[[], int]) -> None:
        self.governed, self.nonce, self.closes_ns = grant.governed, grant.nonce, grant.closes_ns
        self._opens_ns, self._clock = grant.opens_ns, clock
        self._spent, self._lock = False, threading.Lock()

    def is_open(self) -> bool:
        """Whether it could be sent now. To send, use send() or check()."""
        return not self._spent and self._is_inside(self._clock())

    def seconds_left(self) -> Optional[float]:
        """Until the window closes, negative when it has; None where there is none."""
        return None if self.closes_ns is None else (self.closes_ns - self._clock()) / 1e9

    def check(self) -> None:
        """Uses the permit, if the call may leave now. Send at once, and once; nothing else may come in between.

        Raises Closed: the window is over, or the permit was used before. Nothing may be sent.
        """
        with self._lock:
            if self._spent:
                raise Closed("the permit is used up: one permit is leave for one call, acquire another")
            now = self._clock()
            if not self._is_inside(now):
                raise Closed("the permit's send window has closed: do not send, acquire another")
            self._spent = True
            self._used_at(now)

    def _used_at(self, now: int) -> None:
        pass

    def _is_inside(self, now: int) -> bool:
        return self.closes_ns is None or self._opens_ns <= now <= self.closes_ns


class Permit(_Leave):
    __doc__ = _Leave.__doc__

    def send(self, send: Callable[[], T]) -> T:
        """Calls `send` if the call may still leave, and returns what it returns. Raises Closed: it was not called."""
        self.check()
        return send()

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, kind: object, error: Optional[BaseException] = None, trace: object = None) -> None:
        self._spent = True


class AsyncPermit(_Leave):
    __doc__ = _Leave.__doc__

    async def send(self, send: Callable[[], Awaitable[T]]) -> T:
        """Calls `send` and awaits it, if the call may still leave. Raises Closed: it was not called."""
        self.check()
        return await send()

    async def _left(self, error: Optional[BaseException]) -> None:
        self._spent = True


class _Calling(_Leave):
    """Leave for one attempt, to be settled by how it ended: once, in its block.

    id: what the service calls it. attempt_timeout: seconds that the attempt may take, to the last byte. finding: what the service
    made of it, once settled; None where it could not be told (that is logged; what the vendor answered is as good as before).

    Leaving the block unsettled settles too. Not sent: as not sent. By an exception after check(): connecting failed, timed out or
    interrupted, as its type says; where the caller gave up (cancelled, interrupted, closed), that nothing was learned, or that it
    timed out, if that is over. Without an exception: as if nothing was learned, and Unsettled is raised.
    """

    def __init__(self, grant: _Grant, clock: Callable[[], int]) -> None:
        super().__init__(grant, clock)
        self.id, self.attempt_timeout, self._base = grant.id, grant.attempt_timeout, grant.base
        self.finding: Optional[Finding] = None
        self._began_ns: Optional[int] = None
        self._settled = False

    def _used_at(self, now: int) -> None:
        self._began_ns = now

    def _elapsed(self) -> float:
        return 0.0 if self._began_ns is None else max(0.0, (self._clock() - self._began_ns) / 1e9)

    def _settle_once(self, body: Dict[str, Any], elapsed: Optional[float]) -> Dict[str, Any]:
        if self._settled:
            raise RuntimeError("the call is settled already")
        self._settled = self._spent = True
        taken = self._elapsed() if elapsed is None else elapsed
        return {**body, "elapsed_ms": round(min(max(taken, 0.0), DAY) * 1000, 3)}

    def _by_answer(
        self, status: int, code: Optional[str], text: Optional[str], retry_after: Optional[float], elapsed: Optional[float]
    ) -> Dict[str, Any]:
        if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
            raise ValueError("a status is a whole number from 100 to 599")
        wait = None if retry_after is None else math.ceil(min(max(retry_after, 0.0), DAY) * 1000)
        said = {"status": status, "code": code, "text": text, "retry_after_ms": wait}
        return self._settle_once({name: value for name, value in said.items() if value is not None}, elapsed)

    def _by_error(self, error: str, elapsed: Optional[float]) -> Dict[str, Any]:
        if error not in ERRORS:
            raise ValueError(f"an error is one of {', '.join(ERRORS)}")
        return self._settle_once({"error": error}, elapsed)

    def _by_leaving(self, error: Optional[BaseException]) -> Dict[str, Any]:
        if self._began_ns is None or isinstance(error, DoNotSend):
            return self._by_error("not_sent", None)
        if isinstance(error, urllib.error.HTTPError) and 100 <= error.code <= 599:
            return self._by_answer(error.code, None, None, None, None)
        if isinstance(error, Exception):
            return self._by_error(error_of(error), None)
        over = error is not None and self._elapsed() >= self.attempt_timeout
        return self._by_error("timed_out" if over else "not_sent", None)

    def _must_be_settled(self, error: Optional[BaseException]) -> None:
        if error is None and self._began_ns is not None:
            raise Unsettled("the call was sent and nobody said how it ended: say settle(...) or fail(...) in its block")

    def __del__(self) -> None:
        if not getattr(self, "_settled", True):
            warnings.warn(f"call {self.id} was never settled: use it in a with block", ResourceWarning, source=self)


class Call(_Calling, Permit):
    __doc__ = _Calling.__doc__

    def __init__(self, grant: _Grant, budgets: Budgets) -> None:
        super().__init__(grant, budgets._clock)
        self._budgets = budgets

    def settle(
        self, status: int, *, code: Optional[str] = None, text: Optional[str] = None, retry_after: Optional[float] = None,
        elapsed: Optional[float] = None,
    ) -> Optional[Finding]:  # fmt: skip
        """The whole answer came. status: HTTP's. code, text: the vendor's own, from the body. retry_after: what the vendor asks
        for. elapsed: from sending to the last byte; measured from check() where it is not said.

        Never raises because the service cannot be told: then it is logged, and None is returned.
        """
        return self._tell(self._by_answer(status, code, text, retry_after, elapsed))

    def fail(self, error: str, *, elapsed: Optional[float] = None) -> Optional[Finding]:
        """No whole answer came: not_connected, interrupted, timed_out, or not_sent (not sent, or nothing was learned)."""
        return self._tell(self._by_error(error, elapsed))

    def _tell(self, body: Dict[str, Any]) -> Optional[Finding]:
        self.finding = self._budgets._run(self._budgets._settle(self._base, self.id, body))
        return self.finding

    def __exit__(self, kind: object, error: Optional[BaseException] = None, trace: object = None) -> None:
        if not self._settled:
            self._tell(self._by_leaving(error))
            self._must_be_settled(error)


class AsyncCall(_Calling, AsyncPermit):
    __doc__ = _Calling.__doc__

    def __init__(self, grant: _Grant, budgets: AsyncBudgets) -> None:
        super().__init__(grant, budgets._clock)
        self._budgets = budgets

    async def settle(
        self, status: int, *, code: Optional[str] = None, text: Optional[str] = None, retry_after: Optional[float] = None,
        elapsed: Optional[float] = None,
    ) -> Optional[Finding]:  # fmt: skip
        """As Call.settle."""
        return await self._tell(self._by_answer(status, code, text, retry_after, elapsed))

    async def fail(self, error: str, *, elapsed: Optional[float] = None) -> Optional[Finding]:
        """As Call.fail."""
        return await self._tell(self._by_error(error, elapsed))

    async def _tell(self, body: Dict[str, Any]) -> Optional[Finding]:
        self.finding = await self._budgets._run(self._budgets._settle(self._base, self.id, body))
        return self.finding

    async def _left(self, error: Optional[BaseException]) -> None:
        if self._settled:
            return
        telling = self._tell(self._by_leaving(error))
        if isinstance(error, GeneratorExit):
            self._budgets._later(telling)  # a coroutine that is being closed may not wait
        else:
            await telling
            self._must_be_settled(error)


DAY = 86400.0
ERRORS = ("not_connected", "interrupted", "timed_out", "not_sent")


def error_of(error: BaseException) -> str:
    """What an exception of an HTTP client says: not_connected, timed_out or interrupted. Clients of others are known by the names
    of their exceptions (requests, urllib3, httpx, aiohttp); what is not known at all counts as interrupted."""
    reason = getattr(error, "reason", None)
    if isinstance(error, urllib.error.URLError) and isinstance(reason, BaseException):
        return error_of(reason)
    if isinstance(error, (ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)):
        return "not_connected"
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    if re.search(r"ConnectTimeout|ConnectError|ConnectorError|NewConnectionError|PoolTimeout", names):
        return "not_connected"
    if isinstance(error, (TimeoutError, socket.timeout, asyncio.TimeoutError)) or "Timeout" in names:
        return "timed_out"
    return "interrupted"


# What is asked and what an answer means: no I/O. A flow yields what is to be tried and is sent how that ended.


@dataclass(frozen=True)
class _Base:
    """Where a service is."""

    url: str
    host: str
    port: int
    tls: bool
    prefix: str
    authority: str

    @classmethod
    def of(cls, url: str) -> _Base:
        parts = urllib.parse.urlsplit(url)
        odd = parts.username is not None or parts.query or parts.fragment
        if parts.scheme not in ("http", "https") or not parts.hostname or odd:
            raise ValueError("the URL of a service is http://host:port or https://host:port, and holds no password")
        tls = parts.scheme == "https"
        host, port = parts.hostname, parts.port or (443 if tls else 80)
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        prefix = parts.path.rstrip("/")
        if not re.fullmatch(r"[!-~]*", authority + prefix):
            raise ValueError("the URL of a service is plain ASCII without spaces")
        return cls(f"{parts.scheme}://{authority}{prefix}", host, port, tls, prefix, authority)


class _Secret:
    """A token that no text shows."""

    def __init__(self, token: Optional[str]) -> None:
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise ValueError("a token is one line of visible ASCII characters")
        self.header = b"" if token is None else b"Authorization: Bearer " + token.encode() + b"\r\n"

    def __repr__(self) -> str:
        return "(not shown)"

    def __reduce__(self) -> Tuple[Any, ...]:
        raise TypeError("a token is not pickled")


@dataclass
class _Try:
    """One request to one service, to be over at `until` of time.monotonic()."""

    base: _Base
    path: str
    body: bytes
    until: float
    secret: _Secret

    def wire(self) -> bytes:
        head = f"POST {self.base.prefix}{self.path} HTTP/1.1\r\nHost: {self.base.authority}\r\nAccept: application/json\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n"
        return head.encode() + self.secret.header + b"\r\n" + self.body

    def left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole answer in time")
        return left


@dataclass
class _Ended:
    """How a try ended. how: answered, unconnected, unread (ended before the first byte), cut, silent or garbled."""

    how: str
    why: str = ""
    answer: Optional[_Answer] = None
    t_req: int = 0
    t_resp: int = 0

    @classmethod
    def by(cls, error: Exception, answer: _Answer) -> _Ended:
        if isinstance(error, (TimeoutError, socket.timeout)):
            return cls("silent", "it gave no whole answer in time")
        if isinstance(error, ValueError):
            return cls("garbled", f"its answer is no HTTP: {error}")
        why = f"the connection ended before the answer was whole ({type(error).__name__})"
        return cls("unread" if not answer.began else "cut", why)


@dataclass
class _Grant:
    base: _Base
    governed: bool
    nonce: Optional[int]
    opens_ns: int
    closes_ns: Optional[int]
    id: str = ""
    attempt_timeout: float = 0.0


class _Answer:
    """Reads one answer of HTTP/1.1, however its bytes are cut. Strict: ValueError where it is not sure what was meant."""

    HEAD, BODY = 32768, 1048576

    def __init__(self) -> None:
        self.began = self.done = self.keeps = False
        self.status, self.body, self._buffer = 0, bytearray(), bytearray()
        self.headers: Dict[str, str] = {}
        self._steps = self._read()
        next(self._steps)

    def feed(self, data: bytes) -> None:
        """Takes what came; `done` says whether that was all."""
        self.began = self.began or bool(data)
        self._buffer += data
        try:
            self._steps.send(None)
        except StopIteration:
            self.done = True
            self.keeps = self.keeps and not self._buffer  # what comes unasked is nobody's answer

    def _read(self) -> Generator[None, None, None]:
        yield
        while True:
            version, self.status = yield from self._status_line()
            self.headers = yield from self._header_lines()
            if not 100 <= self.status < 200:
                break
            if self.status == 101:
                raise ValueError("it changes the protocol")
        length, coding = self.headers.get("content-length"), self.headers.get("transfer-encoding")
        if coding is not None:
            if length is not None or coding.lower() != "chunked":
                raise ValueError("its length is told in two ways, or in an unknown one")
            while size := (yield from self._chunk_size()):
                yield from self._take(size)
                if (yield from self._line()) != b"":
                    raise ValueError("a chunk is longer than it says")
            yield from self._header_lines()
        elif length is not None and re.fullmatch(r"[0-9]{1,9}", length):
            yield from self._take(int(length))
        elif self.status not in (204, 304):
            raise ValueError("its length is not told")
        self.keeps = version == b"1" and "close" not in self.headers.get("connection", "").lower()

    def _line(self) -> Generator[None, None, bytes]:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > self.HEAD:
                raise ValueError("a line does not end")
            yield
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if not line.endswith(b"\r") or b"\r" in line[:-1] or b"\0" in line:
            raise ValueError("a line ends strangely")
        return line[:-1]

    def _status_line(self) -> Generator[None, None, Tuple[bytes, int]]:
        line = yield from self._line()
        parts = re.fullmatch(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?", line)
        if parts is None:
            raise ValueError("it has no status")
        return parts.group(1), int(parts.group(2))

    def _header_lines(self) -> Generator[None, None, Dict[str, str]]:
        headers: Dict[str, str] = {}
        size = 0
        while line := (yield from self._line()):
            size += len(line)
            parts = re.fullmatch(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", line)
            if parts is None or size > self.HEAD:
                raise ValueError("a header cannot be read")
            name, value = parts.group(1).decode().lower(), parts.group(2).decode("latin-1")
            if name in headers and name in ("content-length", "transfer-encoding", "content-type"):
                raise ValueError(f"{name} is told twice")
            headers[name] = value
        return headers

    def _chunk_size(self) -> Generator[None, None, int]:
        line = yield from self._line()
        size = re.fullmatch(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?", line)
        if size is None:
            raise ValueError("a chunk has no size")
        return int(size.group(1), 16)

    def _take(self, size: int) -> Generator[None, None, None]:
        if len(self.body) + size > self.BODY:
            raise ValueError("it is too long")
        while len(self._buffer) < size:
            yield
        self.body += self._buffer[:size]
        del self._buffer[:size]

    def json(self, media: str) -> Dict[str, Any]:
        """The object of its body. ValueError: it is none, or says that it is something else."""
        kind = self.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != media:
            raise ValueError(f"its content-type is not {media}")
        value = json.loads(self.body.decode(), parse_constant=_no_number)
        if not isinstance(value, dict):
            raise ValueError("it is no object")
        return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _milliseconds(value: Any, most: float = 1e15) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ValueError("a duration is no number of milliseconds, or out of its range")
    return float(value)


class _Connection(Protocol):
    def is_quiet(self) -> bool: ...
    def close(self) -> None: ...


class _Idle(Generic[C]):
    """Connections that wait to be used again: for a short time, by the process (and the event loop) that opened them."""

    MOST, LONGEST = 100, 20.0

    def __init__(self) -> None:
        self._kept: List[Tuple[object, float, C]] = []
        self._lock, self._closed = threading.Lock(), False

    def keep(self, whose: object, connection: C) -> None:
        with self._lock:
            if not self._closed and len(self._kept) < self.MOST:
                self._kept.append((whose, time.monotonic(), connection))
                return
        connection.close()

    def take(self, whose: object) -> Optional[C]:
        """The one that was used last and is still good; those that are not are closed."""
        with self._lock:
            young = time.monotonic() - self.LONGEST
            for place in range(len(self._kept) - 1, -1, -1):
                owner, since, connection = self._kept[place]
                if since < young or owner == whose:
                    del self._kept[place]
                    if since >= young and connection.is_quiet():
                        return connection
                    connection.close()
        return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for _, _, connection in self._kept:
                connection.close()
            self._kept.clear()


Flow = Generator[_Try, _Ended, T]
NOT_HERE = ("CALL_BUDGET_STOPPING", "CALL_BUDGET_BUSY")  # this process took nobody in: another one may
LONGEST_WINDOW_MS = 60000.0
MOST_LATE = 3  # each costs a slot


class _Client(Generic[C]):
    """What both clients have in common: whom they ask, what, and what the answer means."""

    def __init__(
        self, urls: Union[str, Sequence[str]], *, token: Optional[str] = None,
        token_file: Union[str, os.PathLike[str], None] = None, max_wait: float = 30.0, margin: float = 2.0,
        connect_timeout: float = 1.0, tls: Optional[ssl.SSLContext] = None, clock: Callable[[], int] = machine_clock,
    ) -> None:  # fmt: skip
        """urls: of one service, or of several that stand side by side: the next is asked where one cannot be connected to.
        token, token_file: the caller token, or the file whose first line it is, read once. max_wait: how long an acquire or a call
        waits where it does not say, 0 to 86400 s. margin: what a request may take beyond that, and what settling may take.
        connect_timeout: for one URL. tls: for https. clock: nanoseconds, for tests.
        """
        self._bases = [_Base.of(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._bases or (token is not None and token_file is not None):
            raise ValueError("it needs the URL of a service, and a token or the file of one, not both")
        if token_file is not None:
            with open(token_file, encoding="ascii", errors="replace") as file:
                token = file.readline().strip()
        self._secret, self._clock, self._first, self._closed = _Secret(token), clock, 0, False
        self._idle: _Idle[C] = _Idle()
        self._telling: Set[asyncio.Task[Any]] = set()
        self._max_wait, self._margin, self._connect_timeout = max_wait, margin, connect_timeout
        self._tls = tls or (ssl.create_default_context() if any(base.tls for base in self._bases) else None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({[base.url for base in self._bases]})"

    def _acquire(self, budget: str, class_: str, cost: int, max_wait: Optional[float]) -> Flow[_Grant]:
        return self._ask("/v1/acquire", {"budget": budget, "class": class_, "cost": cost}, max_wait)

    def _call(self, surface: str, said: Dict[str, Any], max_wait: Optional[float]) -> Flow[_Grant]:
        body = {"surface": surface, **{name: value for name, value in said.items() if value is not None}}
        return self._ask("/v1/calls", body, max_wait)

    def _ask(self, path: str, body: Dict[str, Any], max_wait: Optional[float]) -> Flow[_Grant]:
        if self._closed:
            raise RuntimeError("these budgets are closed")
        until = time.monotonic() + (self._max_wait if max_wait is None else max_wait)
        queue = self._bases[self._first :] + self._bases[: self._first]
        lost, late = False, 0
        while True:
            base = queue.pop(0)
            left_ms = max(0, math.ceil((until - time.monotonic()) * 1000))
            ended = yield self._try(base, path, {**body, "max_wait_ms": left_ms}, until)
            if ended.how == "unread" and not lost:
                lost = True
                queue.insert(0, base)
                continue
            refusal = self._refusal(base, ended)
            if ended.answer is not None and not (refusal and refusal.code in NOT_HERE):
                self._first = self._bases.index(base)
            if refusal is None:
                grant = self._granted(base, ended, path == "/v1/calls")
                if grant.closes_ns is None or self._clock() <= grant.closes_ns:
                    return grant
                if grant.id:
                    yield from self._settle(base, grant.id, {"error": "not_sent"})
                lost, late = True, late + 1
                if late < MOST_LATE and time.monotonic() < until:
                    queue.insert(0, base)
                    continue
                why = f"the answer of {base.url} was read after its window had closed, {late} times: nothing may be sent"
                refusal = Refused(LATE_ANSWER, why, status=200)
            lost = refusal.may_have_spent = lost or refusal.may_have_spent
            if not queue or (ended.how != "unconnected" and refusal.code not in NOT_HERE):
                raise refusal

    def _granted(self, base: _Base, ended: _Ended, is_call: bool) -> _Grant:
        try:
            return _grant(base, ended, is_call)
        except (KeyError, ValueError, RecursionError) as error:
            why = f"{base.url} answered what is no permit ({error}): nothing may be sent"
            raise Refused(BAD_ANSWER, why, status=200, may_have_spent=True) from None

    def _settle(self, base: _Base, id: str, body: Dict[str, Any]) -> Flow[Optional[Finding]]:
        until, path = time.monotonic(), f"/v1/calls/{urllib.parse.quote(id, safe='')}/settle"
        ended = yield self._try(base, path, body, until)
        if ended.how == "unread":
            ended = yield self._try(base, path, body, until)
        refusal: Optional[Exception] = self._refusal(base, ended)
        if refusal is None and ended.answer is not None:
            try:
                return _finding(ended.answer)
            except (KeyError, ValueError, RecursionError) as error:
                refusal = error
        log.warning("the service could not be told how call %s ended, and counts it as lost: %s", id, refusal)
        return None

    def _try(self, base: _Base, path: str, body: Dict[str, Any], until: float) -> _Try:
        return _Try(base, path, json.dumps(body, allow_nan=False).encode(), until + self._margin, self._secret)

    def _refusal(self, base: _Base, ended: _Ended) -> Optional[Refused]:
        """None where it is an answer of 200."""
        if ended.answer is None:
            code = BAD_ANSWER if ended.how == "garbled" else UNREACHABLE
            sent = ended.how != "unconnected"
            return Refused(code, f"{base.url}: {ended.why}: nothing may be sent", may_have_spent=sent)
        status, headers = ended.answer.status, ended.answer.headers
        if status == 200:
            return None
        after = headers.get("retry-after", "")
        wait = float(after) if re.fullmatch(r"[0-9]{1,9}", after) else None
        passing = status in (408, 429) or status >= 502
        try:
            said = ended.answer.json("application/problem+json")
            code, detail, stage = said["code"], said["detail"], said.get("stage")
            if not re.fullmatch(r"CALL_BUDGET_[A-Z_]{1,60}", code) or not isinstance(detail, str):
                raise ValueError("it has no code")
            spent = said.get("may_have_spent") is True
            if "retry_after_ms" in said:
                wait = _milliseconds(said["retry_after_ms"]) / 1000
        except (KeyError, TypeError, ValueError, RecursionError):
            why = f"{base.url} answered {status}, and not as call-budget does: nothing may be sent"
            code, detail, stage, spent = BAD_ANSWER, why, None, status >= 500
        return Refused(
            code, detail, status=status, retry_after=wait, may_have_spent=spent, transient=passing,
            stage=stage if isinstance(stage, str) else None,
        )  # fmt: skip


def _grant(base: _Base, ended: _Ended, is_call: bool) -> _Grant:
    assert ended.answer is not None
    said = ended.answer.json("application/json")
    governed, nonce, remaining = said["governed"], said["nonce"], said["remaining_ms"]
    held_ns = int(_milliseconds(said["held_ms"]) * 1e6)
    # Held for longer than the whole way took: two clocks that do not tick alike, and then nothing that they say holds.
    if held_ns > (ended.t_resp - ended.t_req) * 1.001 + 1e6:
        raise ValueError("it says that it held the request for longer than the answer took")
    grant = _Grant(base, governed, None, ended.t_resp, None)
    if governed is True:
        if not isinstance(nonce, str) or not re.fullmatch(r"[0-9]{1,20}", nonce):
            raise ValueError("its nonce is no number")
        grant.nonce = int(nonce)
        grant.closes_ns = ended.t_req + held_ns + int(_milliseconds(remaining, LONGEST_WINDOW_MS) * 1e6)
    elif governed is not False or remaining is not None:
        raise ValueError("it does not say whether it is governed")
    if is_call:
        grant.id, grant.attempt_timeout = said["id"], _milliseconds(said["attempt_timeout_ms"]) / 1000
        if not isinstance(grant.id, str) or not 1 <= len(grant.id) <= 200:
            raise ValueError("its call has no id")
    return grant


def _finding(answer: _Answer) -> Finding:
    said = answer.json("application/json")
    finding = Finding(**{name: said[name] for name in Finding.__dataclass_fields__})
    flags = (finding.throttled, finding.outcome_unknown, finding.never_again, finding.no_data)
    texts = isinstance(finding.code, (str, type(None))) and isinstance(finding.meaning, str)
    if finding.verdict not in ("good", "bad", "none") or not texts or not all(isinstance(flag, bool) for flag in flags):
        raise ValueError("its finding is none")
    return finding


class _Socket:
    """A connection of the blocking client."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.close = sock, sock.close

    @classmethod
    def open(cls, attempt: _Try, timeout: float, tls: Optional[ssl.SSLContext]) -> _Socket:
        base, until = attempt.base, time.monotonic() + min(timeout, attempt.left())
        failed: OSError = OSError("its name has no address")
        for family, kind, proto, _, address in socket.getaddrinfo(base.host, base.port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, proto)
            try:
                sock.settimeout(max(0.001, until - time.monotonic()))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return cls(tls.wrap_socket(sock, server_hostname=base.host) if base.tls and tls else sock)
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                failed = error
        raise failed

    def ask(self, attempt: _Try, answer: _Answer) -> None:
        self.sock.settimeout(attempt.left())
        self.sock.sendall(attempt.wire())
        while not answer.done:
            self.sock.settimeout(attempt.left())
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError
            answer.feed(data)

    def is_quiet(self) -> bool:
        """Neither ended nor said anything that nobody asked for."""
        try:
            self.sock.setblocking(False)
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        return False


class _Wire(asyncio.Protocol):
    """A connection of the asyncio client."""

    def __init__(self) -> None:
        self._transport: Optional[asyncio.Transport] = None
        self._answer = _Answer()
        self._waiter: Optional[asyncio.Future[None]] = None

    @classmethod
    async def open(cls, attempt: _Try, timeout: float, tls: Optional[ssl.SSLContext]) -> _Wire:
        loop, base = asyncio.get_running_loop(), attempt.base
        opening = loop.create_task(loop.create_connection(cls, base.host, base.port, ssl=tls if base.tls else None))
        try:
            await asyncio.wait({opening}, timeout=min(timeout, attempt.left()))
            if opening.done():
                return opening.result()[1]
            raise TimeoutError("no connection in time")
        except BaseException:
            opening.cancel()
            opening.add_done_callback(_drop)
            raise

    async def ask(self, attempt: _Try, answer: _Answer) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._answer, self._waiter = answer, waiter
        timer = loop.call_later(attempt.left(), self._over, TimeoutError())
        try:
            self._transport.write(attempt.wire())
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
            if waiter.done() and not waiter.cancelled():
                waiter.exception()  # seen, also where the task was cancelled at the same moment

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            return self.close()  # nobody asked for it
        try:
            self._answer.feed(data)
        except ValueError as error:
            return self._over(error)
        if self._answer.done:
            self._over(None)

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._over(error if isinstance(error, OSError) else ConnectionError())

    def _over(self, error: Optional[Exception]) -> None:
        if self._waiter is not None and not self._waiter.done():
            if error is None:
                self._waiter.set_result(None)
            else:
                self._waiter.set_exception(error)

    def is_quiet(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            try:
                self._transport.abort()
            except RuntimeError:
                pass  # its loop is closed, and so is it


def _drop(opening: asyncio.Task[Tuple[asyncio.Transport, _Wire]]) -> None:
    """A connection that nobody waits for any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].abort()


class Budgets(_Client[_Socket]):
    """The blocking client. Threads may share it; keep one for the process. A process that forks may use it on both sides."""

    def acquire(self, budget: str, class_: str, *, cost: int = 1, max_wait: Optional[float] = None) -> Permit:
        """Waits for leave to make one call: at most max_wait, and the margin. cost: units that the call counts at the vendor.

        Raises Refused: nothing may be sent. Every other exception means that too.
        """
        return Permit(self._run(self._acquire(budget, class_, cost, max_wait)), self._clock)

    def call(
        self, surface: str, *, class_: Optional[str] = None, credential: Optional[str] = None, revision: Optional[int] = None,
        cost: int = 1, max_wait: Optional[float] = None,
    ) -> Call:  # fmt: skip
        """Waits for leave to make one attempt at a surface, through its breaker and its budget; what is not said is as the
        settings of the service say. credential: a label of the key, never the key. revision: another one when the key behind it
        has changed.

        Raises Refused, as acquire does; also where the breaker is open or something is held (no slot is spent then).
        """
        said = {"class": class_, "credential": credential, "revision": revision, "cost": cost}
        return Call(self._run(self._call(surface, said, max_wait)), self)

    def close(self) -> None:
        """Closes what is idle. Who still waits goes on to its end."""
        self._closed = True
        self._idle.close()

    def __enter__(self) -> Budgets:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        try:
            attempt = next(flow)
            while True:
                attempt = flow.send(self._exchange(attempt))
        except StopIteration as end:
            value: T = end.value
            return value

    def _exchange(self, attempt: _Try) -> _Ended:
        whose = (os.getpid(), attempt.base)
        link = self._idle.take(whose)
        if link is None:
            try:
                link = _Socket.open(attempt, self._connect_timeout, self._tls)
            except OSError as error:
                return _Ended("unconnected", f"it cannot be connected to ({error})")
        answer, keeps = _Answer(), False
        t_req = self._clock()
        try:
            link.ask(attempt, answer)
            keeps = answer.keeps
            return _Ended("answered", "", answer, t_req, self._clock())
        except (OSError, ValueError) as error:
            return _Ended.by(error, answer)
        finally:
            if keeps:
                self._idle.keep(whose, link)
            else:
                link.close()


class AsyncBudgets(_Client[_Wire]):
    """The asyncio client. Tasks may share it; keep one for the event loop, and close it there."""

    def acquire(self, budget: str, class_: str, *, cost: int = 1, max_wait: Optional[float] = None) -> _Pending[AsyncPermit]:
        """As Budgets.acquire, with `async with budgets.acquire(...) as permit` or `permit = await budgets.acquire(...)`."""

        async def acquired() -> AsyncPermit:
            return AsyncPermit(await self._run(self._acquire(budget, class_, cost, max_wait)), self._clock)

        return _Pending(acquired)

    def call(
        self, surface: str, *, class_: Optional[str] = None, credential: Optional[str] = None, revision: Optional[int] = None,
        cost: int = 1, max_wait: Optional[float] = None,
    ) -> _Pending[AsyncCall]:  # fmt: skip
        """As Budgets.call, with `async with budgets.call(...) as call`."""
        said = {"class": class_, "credential": credential, "revision": revision, "cost": cost}

        async def called() -> AsyncCall:
            return AsyncCall(await self._run(self._call(surface, said, max_wait)), self)

        return _Pending(called)

    async def close(self) -> None:
        """Waits until what is still to be settled is, and closes what is idle. Who still waits goes on to its end."""
        self._closed = True
        if self._telling:
            await asyncio.wait(set(self._telling))
        self._idle.close()
        await asyncio.sleep(0)  # the connections see it

    async def __aenter__(self) -> AsyncBudgets:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, flow: Flow[T]) -> T:
        try:
            attempt = next(flow)
            while True:
                attempt = flow.send(await self._exchange(attempt))
        except StopIteration as end:
            value: T = end.value
            return value

    async def _exchange(self, attempt: _Try) -> _Ended:
        whose = (os.getpid(), asyncio.get_running_loop(), attempt.base)
        link = self._idle.take(whose)
        if link is None:
            try:
                link = await _Wire.open(attempt, self._connect_timeout, self._tls)
            except OSError as error:
                return _Ended("unconnected", f"it cannot be connected to ({error})")
        answer, keeps = _Answer(), False
        t_req = self._clock()
        try:
            await link.ask(attempt, answer)
            keeps = answer.keeps
            return _Ended("answered", "", answer, t_req, self._clock())
        except (OSError, ValueError) as error:
            return _Ended.by(error, answer)
        finally:
            if keeps:
                self._idle.keep(whose, link)
            else:
                link.close()

    def _later(self, telling: Coroutine[Any, Any, Any]) -> None:
        try:
            task = asyncio.get_running_loop().create_task(telling)
        except RuntimeError:
            telling.close()
            log.warning("a call ended without an event loop: the service counts it as lost")
            return
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


class _Pending(Generic[A]):
    """To be awaited, or to be entered with `async with`: once."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, A]]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, None, A]:
        return self._start().__await__()

    async def __aenter__(self) -> A:
        self._leave = await self._start()
        return self._leave

    async def __aexit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        await self._leave._left(error)
