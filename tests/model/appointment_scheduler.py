#!/usr/bin/env python3
"""The slot scheduler as an executable model, a fleet that uses it, and a line mode for comparing.

    appointment_scheduler.py           simulates some forty fleets and prints how each fared
    appointment_scheduler.py shares    the shares of the saturated fleets, as one JSON object
    appointment_scheduler.py lines     one JSON command a line on stdin, one JSON answer a line on stdout

Written from the design and not from the SQL or the Rust: a slip in one of them is not repeated here. Python alone, no
packages. Integers only: microseconds on the store's clock, floors in parts per million.

The idea in five lines
  1. A slot is granted only if it starts within the lookahead H of now, so a later and more important caller never waits
     behind more than H of promises.
  2. A lane (one process, one class) that cannot be served now keeps ONE row: how much it wants and when it will be back
     (its appointment). The lane's own random id is the key, so repeating a lost call changes nothing and leaves no ghost.
  3. A waiting lane blocks others only if it ranks better AND its appointment comes in time for this slot: the absent
     never hold a slot idle.
  4. Rank = a class whose floor is due (earliest due first), else the smaller priority number, else the class served
     least recently; inside a class the place in the queue, which the appointments themselves enforce.
  5. A floor falls due interval/floor after the class's last slot. Only waiters can claim it: it is a guaranteed share
     while there is demand, never a reservation for the absent, never a ceiling.
"""
import collections
import copy
import heapq
import json
import math
import random
import sys

PPM = 1_000_000
NAP = 5_000_000         # nobody sleeps longer: new settings and dead lanes are noticed by then
FORGET = 600_000_000    # a lane that missed its appointment by this much is gone
CALLS_BEHIND = 3        # a class whose floor is due may have to wait for so many due before it, and loses nothing by it


class Class:
    def __init__(self, priority, floor=0):
        self.priority, self.floor = priority, floor
        self.due = self.last_slot = 0

    def rank(self, at):                                       # smaller goes first
        if self.floor and self.due <= at:
            return (0, self.due, 0)
        return (1, self.priority, self.last_slot)


class Row:
    """What a lane still wants (0: nothing), its place in the queue and when it comes back."""

    def __init__(self, cls, units, place, appointment):
        self.cls, self.units, self.place, self.appointment = cls, units, place, appointment


class Budget:
    def __init__(self, interval, lookahead, grace, max_cost=1):
        self.interval, self.lookahead, self.grace, self.max_cost = int(interval), int(lookahead), int(grace), max_cost
        self.classes, self.lanes = {}, {}
        self.last_slot, self.last_cost = 0, 1
        self.last_seen = self.blocked_until = self.fenced_until = 0
        self.fences, self.paused, self.trusted = 0, False, False   # trusted: nothing was forgotten since the last fence
        self.widest = (self.lookahead, self.max_cost)         # that may have been promised since the last fence

    # ---- settings
    def set(self, interval, lookahead, grace, max_cost):
        self.interval, self.lookahead, self.grace, self.max_cost = interval, lookahead, grace, max_cost
        self.widest = (max(self.widest[0], lookahead), max(self.widest[1], max_cost))

    def set_class(self, name, priority, floor):
        c = self.classes.setdefault(name, Class(priority))
        c.priority, c.floor = priority, floor

    def delete_class(self, name):
        del self.classes[name]
        self.lanes = {lane: row for lane, row in self.lanes.items() if row.cls != name}

    def push_back(self, duration, cap, now):
        self.follow_clock(now)
        if now + min(duration, cap) > self.blocked_until:
            self.blocked_until, self.last_seen = now + min(duration, cap), now
        return self.blocked_until - now

    # ---- what can go wrong with the store
    def follow_clock(self, now):
        """The clock stepped back: EVERYTHING that holds a date goes back with it."""
        step = max(0, self.last_seen - now)
        self.last_seen, self.last_slot = self.last_seen - step, self.last_slot - step
        self.blocked_until, self.fenced_until = self.blocked_until - step, self.fenced_until - step
        for c in self.classes.values():
            c.due, c.last_slot = c.due - step, c.last_slot - step
        for row in self.lanes.values():
            row.place, row.appointment = row.place - step, row.appointment - step

    def fence(self, now):
        """Commits may have been forgotten: nothing starts before all that they can have promised is over."""
        lookahead, cost = max(self.widest[0], self.lookahead), max(self.widest[1], self.max_cost)
        self.fenced_until = max(self.fenced_until, now + lookahead + cost * self.interval)
        self.widest = (self.lookahead, self.max_cost)
        self.last_seen, self.fences, self.trusted = now, self.fences + 1, True
        self.lanes.clear()

    # ---- one call = one short transaction; the row lock is held and only then `now` has been read
    def reserve(self, now, cls, costs, lane, patience=1 << 60):
        """(waits of the slots granted, when to come back or None, why nothing was granted or None)"""
        if self.paused:
            return [], 1_000_000, "paused"
        if not all(1 <= c <= self.max_cost for c in costs):
            return [], None, "cost_out_of_range"
        if cls not in self.classes:
            return [], None, "unknown_class"
        self.follow_clock(now)
        if not self.trusted:            # only after the clock: a machine whose clock is behind must not undo the fence
            self.fence(now)
        self.last_seen = now

        I, H, mine = self.interval, self.lookahead, self.classes[cls]
        row = self.lanes.get(lane)
        queued = row if row and row.units and row.cls == cls else None     # under another class: a newcomer
        alive = [w for other, w in self.lanes.items() if other != lane and w.units and now <= w.appointment + self.grace]
        base = max(self.next_slot(), now, self.blocked_until)
        share = max(1, H // (I * (1 + min(4, len(alive)))))   # a fair share, never so thin that calls pile up
        heads = {}                                            # class -> [earliest appointment, units]
        for w in alive:
            h = heads.setdefault(w.cls, [w.appointment, 0])
            h[0], h[1] = min(h[0], w.appointment), h[1] + min(w.units, share)

        rank = mine.rank(base)
        blocked = any(first <= base and (queued is None if name == cls else self.classes[name].rank(base) < rank)
                      for name, (first, _) in heads.items())
        slots, used = [], 0
        for cost in () if blocked else costs:
            if base + used * I > now + H or (slots and alive and used + cost > share):
                break
            slots.append(base + used * I)
            used += cost
        if slots:
            self.last_slot = mine.last_slot = slots[-1]
            self.last_cost = costs[len(slots) - 1]
            if mine.floor and rank[0] == 0:
                mine.due = max(mine.due, base - max(H, CALLS_BEHIND * self.max_cost * I)) + used * I * PPM // mine.floor
            elif mine.floor:
                mine.due = slots[-1] + self.last_cost * I * PPM // mine.floor
        waits, rest = [s - now for s in slots], sum(costs[len(slots):])
        if not rest:
            if row:
                row.units = 0
            return waits, None, None

        # an appointment for what is left; the estimate is a lower bound
        at = max(self.next_slot(), base)
        place = queued.place if queued and not slots else now
        rank = mine.rank(at)

        def before_me(name, units):
            its = self.classes[name].rank(at)
            if its >= rank:
                return 0
            return 1 if its[0] == 0 else units if its[1] < mine.priority else min(units, share)

        ahead = sum(min(w.units, share) for w in alive if w.cls == cls and w.place < place)
        estimate = at + (ahead + sum(before_me(name, units) for name, (_, units) in heads.items() if name != cls)) * I
        if mine.floor and mine.due > at:
            estimate = min(estimate, mine.due + ahead * I * PPM // mine.floor)
        if not slots and estimate - now > patience:           # refuse the head before waiting; nothing is booked for him
            if queued and rest > costs[0]:                    # the others come back at once, to the place they have
                row.units, row.appointment = rest - costs[0], now
            elif row:
                row.units = 0
            return [], estimate - now, "patience"
        wait = min(max(estimate - H // 2 - now, min(I, H) // 4), NAP)
        if row is None or row.units == 0:
            self.lanes = {other: w for other, w in self.lanes.items() if w.appointment >= now - FORGET}
        self.lanes[lane] = Row(cls, rest, place, now + wait)
        return waits, wait, None

    def next_slot(self):
        return max(self.last_slot + self.last_cost * self.interval, self.fenced_until)   # with today's interval


# ------------------------------------------------------------------------------------------ the fleet
def run(title, lanes, rate=16.0, H=60e3, T=60e6, rtt=(.4e3, 2e3), service=800, seed=1, W=50e3, kill=0.0,
        restart_every=None, lost=None, new_rate=None, max_cost=1, costs=None, classes=None):
    """lanes: (class, 'keep', n) n callers always waiting | (class, 'poisson', per second). One store call in flight per
    lane. service: time one call holds the row. kill: chance that a lane dies with its row booked. lost: (from, to),
    answers lost in between while the store commits. new_rate: (when, rate). costs: weights drawn per caller."""
    classes = classes or {"orders": (0, .3), "quotes": (1, .2), "batch": (2, .1)}
    R, I = random.Random(seed), 1e6 / rate
    b = Budget(I, H, W, max_cost)
    b.trusted = True
    for name, (priority, floor) in classes.items():
        b.set_class(name, priority, round(floor * PPM))
    b.last_slot = -1 << 60
    events, seq, free_at = [], 0, 0.0
    waits, sends, granted, calls = collections.defaultdict(list), [], [], 0

    def push(t, *e):
        nonlocal seq
        seq += 1
        heapq.heappush(events, (t, seq, e))

    L = [dict(id=n, c=c, kind=k, n=per, q=collections.deque(), busy=False, timer=None) for n, (c, k, per) in enumerate(lanes)]
    for l in L:
        for _ in range(l["n"] if l["kind"] == "keep" else 1):
            push(R.uniform(0, 50e3) if l["kind"] == "keep" else R.expovariate(l["n"] / 1e6), "arrive", l)
    if restart_every:
        push(restart_every, "restart", None)
    if new_rate:
        push(new_rate[0], "rate", None)

    def kick(t, l):
        if not l["busy"] and l["q"]:
            l["busy"] = True
            push(t + R.uniform(*rtt) / 2, "serve", l, t)

    while events:
        t, _, e = heapq.heappop(events)
        if t > T:
            break
        what, l = e[0], e[1]
        if what == "restart":
            b.trusted = False
            b.last_slot -= int(R.uniform(0, H))               # the last commits were forgotten
            push(t + restart_every, "restart", None)
        elif what == "rate":
            b.interval = int(1e6 / new_rate[1])
        elif what == "arrive":
            l["q"].append((t, R.choice(costs) if costs else 1))
            if l["timer"] is None:
                kick(t, l)
            if l["kind"] == "poisson":
                push(t + R.expovariate(l["n"] / 1e6), "arrive", l)
        elif what == "serve":                                 # calls queue for the row lock
            calls += 1
            start = max(t, free_at)
            free_at = start + service
            offers, retry, _ = b.reserve(int(start), l["c"], [c for _, c in l["q"]], l["id"])
            slots = [int(start) + w for w in offers]
            granted += [(s, c) for s, (_, c) in zip(slots, l["q"])]
            if lost and lost[0] <= t < lost[1]:
                push(e[2] + 1e6, "timeout", l, len(slots))    # the caller's own deadline; its slots are spent
            else:
                push(free_at + R.uniform(*rtt) / 2, "answer", l, e[2], int(start), slots, retry)
        elif what == "timeout":
            l["busy"] = False
            kick(t, l)
        elif what == "answer":
            _, _, asked, served, slots, retry = e
            l["busy"] = False
            if retry is not None and kill and R.random() < kill:
                l["timer"] = None
                push(t + 1e6, "timer", l, None)
                continue
            for s in slots:
                arrived, cost = l["q"].popleft()
                opens, closes = t + (s - served), asked + (s - served) + W
                if opens <= closes:
                    sends.append((opens + R.uniform(0, closes - opens) * .2, cost))
                    waits[l["c"]].append(sends[-1][0] - arrived)
                if l["kind"] == "keep":
                    push(max(opens, t), "arrive", l)
            if retry is not None:                             # come back counted from the question, not from the answer
                l["timer"] = max(t, asked + retry)
                push(l["timer"], "timer", l, l["timer"])
            else:
                l["timer"] = None
                kick(t, l)
        elif what == "timer" and l["timer"] == e[2]:
            l["timer"] = None
            kick(t, l)
    sends.sort()
    worst, units, j = 0, 0, 0
    for x, c in sends:
        units += c
        while sends[j][0] < x - 1e6:
            units -= sends[j][1]
            j += 1
        worst = max(worst, units)
    n, bound = sum(c for _, c in sends), math.floor((1e6 + W) / b.interval) + max_cost
    if title:
        print(f"{title:44s} use={n / (T / I):.3f} calls/send={calls / max(1, len(sends)):.2f} calls/s={calls / T * 1e6:.0f} "
              f"worst 1s window={worst} (bound {bound})", end="")
        for c in classes:
            w = sorted(waits[c])
            if w:
                p50, p99 = w[len(w) // 2] / 1e3, w[int(len(w) * .99)] / 1e3
                print(f" | {c} {len(w) / T * 1e6:.1f}/s p50={p50:.0f} p99={p99:.0f} max={w[-1] / 1e3:.0f}ms", end="")
        print()
    if not restart_every and not new_rate:
        gaps = [y[0] - x[0] - x[1] * b.interval for x, y in zip(granted, granted[1:])]
        assert min(gaps, default=0) >= 0, "two slots closer than the spacing"
    if not new_rate:
        assert worst <= bound, "a window over the bound"
    return {c: len(waits[c]) / max(1, len(sends)) for c in classes}


def keep(c, n, lanes=1):
    return [(c, "keep", n)] * lanes


P = "poisson"
KIS = {"order": (0, .1), "minute": (1, .4), "index": (2, .2), "eod": (3, .1)}
EQUAL = {"a": (1, 0), "b": (1, 0), "c": (1, 0)}
WHOLE = {"a": (0, .5), "b": (1, .3), "c": (2, .2)}
SLOW = {"a": (0, 0), "b": (1, .3)}
SLOW_AND_ODD = {"a": (0, .1), "b": (1, .45), "c": (2, .2), "d": (3, .25)}
KIS_LANES = keep("order", 4, 2) + keep("minute", 4, 2) + keep("index", 4, 2) + keep("eod", 4, 2)


def simulate():
    run("light load", [("orders", P, 2), ("quotes", P, 3)])
    run("one class, 4 lanes", keep("batch", 1, 4))
    run("all saturated, 6 lanes", keep("orders", 4, 2) + keep("quotes", 4, 2) + keep("batch", 4, 2))
    run("all saturated, 60 lanes", keep("orders", 4, 20) + keep("quotes", 4, 20) + keep("batch", 4, 20))
    run("KIS: orders 2/s, the rest saturated", [("order", P, 2)] + KIS_LANES[2:], classes=KIS)
    run("KIS: one caller per lane, all saturated", keep("order", 1) + keep("minute", 1) + keep("index", 1) + keep("eod", 1), classes=KIS)
    run("equal classes, 3, 1 and 1 lanes", keep("a", 4, 3) + keep("b", 4) + keep("c", 1), classes=EQUAL)
    run("equal classes, one Poisson 8/s", [("a", P, 8)] + keep("b", 4, 2), classes=EQUAL)
    run("floors that sum to 1", keep("a", 4, 2) + keep("b", 4, 2) + keep("c", 4, 2), classes=WHOLE)
    run("round trip 20-40 ms, H=100 ms", keep("orders", 4, 2) + keep("quotes", 4, 2) + keep("batch", 4, 2), rtt=(20e3, 40e3), H=100e3)
    run("costs 1, 1, 3, 5", keep("orders", 4, 2) + keep("batch", 4, 2), costs=[1, 1, 3, 5], max_cost=5)
    run("5 % of booked lanes die", keep("orders", 4, 2) + keep("quotes", 4, 3) + keep("batch", 4, 5), kill=.05)
    run("store restarts every 5 s, commits forgotten", keep("orders", 4, 2) + keep("batch", 4, 4), restart_every=5e6)
    run("answers lost for 12 s of 60", keep("orders", 4, 20) + keep("batch", 4, 40), lost=(10e6, 22e6))
    run("rate 0.1/s, then 16/s after 30 s", keep("orders", 4, 4) + keep("batch", 4, 8), rate=.1, new_rate=(30e6, 16))
    run("1,000/s, 24 lanes", keep("orders", 100, 8) + keep("quotes", 100, 8) + keep("batch", 100, 8), rate=1000, T=20e6)
    run("1,000/s, 200 lanes of one class", keep("batch", 10, 200), rate=1000, T=20e6)
    run("10,000/s, 12 lanes", keep("orders", 500, 4) + keep("quotes", 1000, 4) + keep("batch", 2000, 4), rate=10000, T=5e6)
    for seed in range(20):
        R = random.Random(seed)
        lanes = [(R.choice(["orders", "quotes", "batch"]), R.choice(["keep", P]), R.randint(1, 6)) for _ in range(R.randint(1, 15))]
        run(f"random fleet {seed}", lanes, rate=R.choice([2, 16, 20, 100]), H=R.choice([60e3, 100e3, 250e3]),
            rtt=(R.uniform(.5e3, 5e3), R.uniform(5e3, 20e3)), seed=seed, T=30e6, kill=R.choice([0, .02]))


def shares():
    saturated = lambda classes: sum((keep(c, 4, 2) for c in classes), [])
    print(json.dumps({
        "kis": run(None, saturated(KIS), classes=KIS),
        "equal": run(None, saturated(EQUAL), classes=EQUAL),
        "whole": run(None, saturated(WHOLE), classes=WHOLE),
        "slow": run(None, saturated(SLOW), classes=SLOW, rate=1 / 1.101101, T=600e6),
        "slow and odd": run(None, saturated(SLOW_AND_ODD), classes=SLOW_AND_ODD, rate=1 / 1.101101, T=600e6),
    }))


# ------------------------------------------------------------------------------------------ the line mode
def lines(commands, out):
    """new, set, class, drop, pause, push, fence, forget, remember and restore, reserve: see each below."""
    b, kept = None, None
    for line in commands:
        c = json.loads(line)
        do, answer = c["do"], {}
        if do == "new":
            b = Budget(c["interval"], c["lookahead"], c["grace"], c["max_cost"])
        elif do == "set":
            b.set(c["interval"], c["lookahead"], c["grace"], c["max_cost"])
        elif do == "class":
            b.set_class(c["class"], c["priority"], c["floor"])
        elif do == "drop":
            b.delete_class(c["class"])
        elif do == "pause":
            b.paused = c["paused"]
        elif do == "push":
            answer = {"left": b.push_back(c["duration"], c["cap"], c["now"])}
        elif do == "fence":
            b.follow_clock(c["now"])
            b.fence(c["now"])
        elif do == "forget":                                  # the marker is gone
            b.trusted = False
        elif do == "remember":
            kept = copy.deepcopy(b)
        elif do == "restore":                                 # every commit since then is forgotten, and the marker gone
            b = copy.deepcopy(kept)
            b.trusted = False
        elif do == "reserve":
            waits, retry, reason = b.reserve(c["now"], c["class"], c["costs"], c["lane"], c["patience"])
            answer = {"waits": waits, "retry": retry, "reason": reason}
        else:
            sys.exit(f"unknown command {do}")
        # enough of the state to notice the first step that parts
        answer["state"] = [b.last_slot, b.last_seen, b.blocked_until, b.fenced_until, b.fences,
                           sum(row.units for row in b.lanes.values()), sum(c.due for c in b.classes.values())]
        out.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    mode = sys.argv[1] if len(sys.argv) > 1 else "simulate"
    if mode == "lines":
        lines(sys.stdin, sys.stdout)
    elif mode == "shares":
        shares()
    elif mode == "simulate":
        simulate()
    else:
        sys.exit(f"unknown mode {mode}: simulate (the default), shares or lines")
