"""Plays `call-budget serve` for the page: its files under the same policy, and the contract with figures that move.

    python3 tests/page/fake.py --port 8123 --scene well      (well, black-hole, alarms, store-out, off, hostile)
"""

import argparse
import json
import math
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from scenes import PROCESS, SCENES

FILES = Path(__file__).resolve().parents[2] / "src/service/http/page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
ADMIN_TOKEN = "not-a-real-admin-token"
HISTORY_S = 120


class Fake:
    """The service and the store behind it. What a test changes here, the page is to show."""

    def __init__(self, scene="well", look_token=None):
        self.lock = threading.RLock()
        self.look_token = look_token
        self.posted = []  # every admin call: (path, status, body)
        self.reachable = True
        self.why = None
        self.silent = False  # connected, and nothing more comes
        self.port = 0
        self.server = None
        self.read_at = self.moved_at = time.time()
        self.started = time.time() - 93_784
        self.scene(scene)
        self.streams = []

    def scene(self, name):
        with self.lock:
            self.world = SCENES[name]()
            self.reachable, self.samples = True, []
            now = time.time()
            for second in range(HISTORY_S - 1, -1, -1):
                if second >= self.world.get("age_s", 0):
                    self.move(now - second, 1.0, past=True)
            self.moved_at = now
            self.reachable = self.world.get("reachable", True)
            self.why = self.world.get("why")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        fake = self

        class Bound(Door):
            pass

        Bound.fake = fake
        self.stopping = threading.Event()
        self.server = Server(("127.0.0.1", self.port), Bound)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        threading.Thread(target=self.tick, args=(self.stopping,), daemon=True).start()
        return self

    def stop(self):
        """Every connection ends, and nobody listens any more."""
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        self.tell()

    def tick(self, stopping):
        while not stopping.wait(1.0):
            with self.lock:
                now = time.time()
                self.move(now, now - self.moved_at)
                self.moved_at = now
            self.tell()

    def tell(self):
        """A status to everybody who follows, at once."""
        for stream in list(self.streams):
            stream.put(None)

    def move(self, now, seconds, past=False):
        for name, budget in self.world["budgets"].items():
            # What stops it now had not begun in the past that a scene comes with.
            if not past:
                for left in ("blocked_for_us", "fenced_for_us"):
                    budget[left] = max(0, budget[left] - int(seconds * 1e6))
                if budget["paused"] or budget["blocked_for_us"] or budget["fenced_for_us"]:
                    continue
            wave = lambda one: one["rate"] * (1 + 0.35 * math.sin(now / 7 + one["priority"]) * one["sway"])
            wanted = sum(map(wave, budget["classes"].values()))
            part = min(1.0, 1e6 / budget["interval_us"] / wanted) if wanted else 0
            for one in budget["classes"].values():
                one["exact"] += wave(one) * part * seconds
                one["waiting_units"] = max(0, round(one["queue"] * (1 + 0.5 * math.sin(now / 5 + one["priority"]))))
        for breaker in [] if past else self.world["breakers"] + self.world["breakers_here"]:
            gone = int(seconds * 1e6)
            if breaker["retry_us"]:
                breaker["retry_us"] = max(0, breaker["retry_us"] - gone)
            if breaker["episode"]:
                breaker["episode"]["age_us"] += gone
            for held in breaker["holds"]:
                held["left_us"] = max(0, held["left_us"] - gone)
        granted = {name: {c: int(one["exact"]) for c, one in budget["classes"].items()} for name, budget in self.world["budgets"].items()}
        if self.reachable:
            self.read_at = now
            self.samples = (self.samples + [{"unix_ms": int(now * 1000), "granted": granted}])[-HISTORY_S:]

    def view(self, name):
        budget = self.world["budgets"][name]
        classes = budget["classes"]
        all_granted = sum(int(one["exact"]) for one in classes.values())
        kept = {key: value for key, value in budget.items() if key != "classes"}
        shown = [
            {
                "budget": name,
                "name": class_name,
                "priority": one["priority"],
                "floor_ppm": one["floor_ppm"],
                "granted": int(one["exact"]),
                "waiting_lanes": math.ceil(one["waiting_units"] / 3),
                "waiting_units": one["waiting_units"],
                "last_slot_age_us": one["last_slot_age_us"],
                "share": int(one["exact"]) / all_granted if all_granted else None,
            }
            for class_name, one in classes.items()
        ]
        return {"name": name, **kept, "classes": shown}

    def status(self):
        with self.lock:
            now = time.time()
            off = not self.world.get("enabled", True)
            gone = round(now - self.read_at, 3)
            status = {
                "unix_ms": int(now * 1000),
                "service": {
                    "version": "0.1.0",
                    "enabled": not off,
                    "uptime_s": round(now - self.started, 1),
                    "stopping": self.stopping.is_set(),
                    "admin": self.world.get("admin", True),
                    "waiting": 3,
                    "open_calls": 2,
                    "process": self.world.get("process", PROCESS),
                },
                "store": {"reachable": self.reachable and not off, "why": self.why, "age_ms": None if off else int(gone * 1000)},
                "server": None if off else self.world["server"],
                "budgets": [] if off else [self.view(name) for name in self.world["budgets"]],
                "breakers": [] if off else self.world["breakers"],
                "breakers_here": self.world["breakers_here"],
            }
            if "breakers_unseen" in self.world:
                status["breakers_unseen"] = self.world["breakers_unseen"]
            return status

    def admin(self, path, order):
        """Status and body of an admin call whose token was right."""
        with self.lock:
            budget = self.world["budgets"].get(order.get("budget"))
            if budget is None:
                return 404, problem(404, "CALL_BUDGET_UNKNOWN_BUDGET", f"there is no budget {order.get('budget')!r}")
            deed = path.rsplit("/", 1)[1]
            if deed == "pause":
                budget.update(paused=True, paused_reason=order.get("reason"), paused_by="serve")
            elif deed == "resume":
                budget.update(paused=False, paused_reason=None, paused_by=None)
            elif deed == "pushback":
                left = max(budget["blocked_for_us"], int(order["duration_ms"]) * 1000)
                budget.update(blocked_for_us=left, blocked_reason=order.get("reason"), blocked_by="serve")
            else:
                return 404, problem(404, "CALL_BUDGET_NO_SUCH_PATH", path)
            view = self.view(order["budget"])
        self.tell()
        return 200, view


def problem(status, code, detail):
    return {"title": code, "status": status, "detail": detail, "code": code}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A browser that goes away in the middle is none of our business."""


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.startswith("/v1/") and not self.may_look():
            return self.unauthorized()
        if path == "/v1/events":
            return self.events()
        if path == "/v1/budgets":
            return self.answer(200, {"budgets": self.fake.status()["budgets"]})
        name = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}.get(path)
        if name is None and path.startswith("/page/"):
            name = Path(path).name
        file = FILES / name if name else None
        if file is None or not file.is_file():
            return self.answer(404, problem(404, "CALL_BUDGET_NO_SUCH_PATH", path))
        body = file.read_bytes()
        headers = {"content-type": TYPES[file.suffix], "content-security-policy": POLICY, "x-content-type-options": "nosniff", "cache-control": "no-cache"}
        self.send(200, headers, body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.path.startswith("/v1/admin/"):
            return self.answer(404, problem(404, "CALL_BUDGET_NO_SUCH_PATH", self.path))
        if self.headers.get("authorization") != f"Bearer {ADMIN_TOKEN}":
            self.fake.posted.append((self.path, 401, body.decode()))
            return self.unauthorized()
        status, answer = self.fake.admin(self.path, json.loads(body))
        self.fake.posted.append((self.path, status, body.decode()))
        self.answer(status, answer)

    def may_look(self):
        given = self.headers.get("authorization")
        return self.fake.look_token is None or given in (f"Bearer {self.fake.look_token}", f"Bearer {ADMIN_TOKEN}")

    def unauthorized(self):
        self.answer(401, problem(401, "CALL_BUDGET_UNAUTHORIZED", "a token is needed"), {"www-authenticate": "Bearer"})

    def answer(self, status, body, more=None):
        self.send(status, {"content-type": "application/json" if status < 400 else "application/problem+json", **(more or {})}, json.dumps(body).encode())

    def send(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def events(self):
        fake, stopping = self.fake, self.fake.stopping
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-store")
        self.send_header("connection", "close")
        self.end_headers()
        mine = queue.Queue()
        fake.streams.append(mine)
        try:
            self.event("history", {"samples": fake.samples})
            while not stopping.is_set():
                if not fake.silent:
                    self.event("status", fake.status())
                mine.get()
        except OSError:
            pass
        finally:
            fake.streams.remove(mine)

    def event(self, name, data):
        text = json.dumps(data, ensure_ascii=False)
        self.wfile.write(f": a comment\n\nevent: {name}\ndata: {text}\n\n".encode())
        self.wfile.flush()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--port", type=int, default=8123)
    arguments.add_argument("--scene", choices=sorted(SCENES), default="well")
    arguments.add_argument("--look-token")
    given = arguments.parse_args()
    fake = Fake(given.scene, given.look_token)
    fake.port = given.port
    fake.start()
    print(f"{fake.url}  admin token: {ADMIN_TOKEN}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
