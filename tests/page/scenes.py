"""Mornings at a Korean broker: what the fake service has to tell. Every call of a scene makes it anew."""


#: The fake service's own, as it tells of itself to the store.
PROCESS = "5ad0c3f19e774b02"


def well():
    """One key, four kinds of callers, everything in order."""
    return {
        "budgets": {
            "kis-real": budget(
                18,
                61_174,
                {
                    "order": caller(0, 0.1, 1.4, sway=1.0),
                    "minute": caller(1, 0.4, 9.1, queue=14, sway=0.25),
                    "index": caller(2, 0.05, 2.6, queue=2, sway=0.4),
                    "eod": caller(3, 0.1, 2.9, queue=31, sway=0.5),
                },
            ),
        },
        "breakers": [],
        "breakers_here": [own("kis/real/order"), own("kis/real/quote"), own("kis/real/balance")],
        "server": server(),
    }


def black_hole():
    """09:00:41: quotes have opened, orders are pushed back by the vendor's "too many"."""
    world = well()
    quote = {
        "surfaces": ["kis/real/quote", "kis/real/minute-chart", "kis/real/index"],
        "state": "open",
        "why": "a probe failed",
        "retry_us": 43_200_000,
        "rung": 1,
        "episode": episode(74_000_000, 71_000_000, 1, 1, "streak"),
    }
    world["breakers"] = [
        told("kis/real/quote", "3f9c1d20aa41b7e6", "minute-worker", successes=5127, failures=6, rejected=811, **quote),
        told("kis/real/quote", "a10b77c2d94e5f03", "index-nav", **{**quote, "retry_us": 9_400_000, "rung": 0}, successes=912, failures=5, rejected=77),
        told("kis/real/quote", PROCESS, "call-budget serve", **quote, successes=48, failures=6, rejected=12),
        told("kis/real/balance", "77d1e0a94c1f2b38", "order-desk", holds=[hold('credential "desk-2" at kis/real', 212_000_000)]),
    ]
    world["breakers_here"][1] = own("kis/real/quote", **quote, successes=48, failures=6, rejected=19)
    for name, rate in {"order": 2.2, "minute": 0.7, "index": 0.3, "eod": 9.1}.items():
        world["budgets"]["kis-real"]["classes"][name].update(rate=rate, queue=31 if name == "eod" else 0)
    return world


def alarms():
    """Everything at once, for whoever draws it."""
    world = black_hole()
    world["budgets"]["kis-real"].update(paused=True, paused_reason="KIS 점검 공지, 09:10까지 (운영 김)", paused_by="call_budget_ops")
    world["budgets"]["kis-paper"] = budget(2, 611_000, {"backtest": caller(0, 0, 1.5, queue=4, sway=0.2)})
    world["budgets"]["kis-paper"].update(blocked_for_us=900_000_000, blocked_reason="EGW00201", blocked_by="call_budget_client")
    world["budgets"]["krx-data"] = budget(100, 21_000, {"daily": caller(0, 0.5, 20, sway=0.3), "ad-hoc": caller(1, 0, 9, sway=1)}, window_us=2_000_000)
    world["budgets"]["krx-data"].update(fenced_for_us=600_000_000, fences=3)
    world["breakers"].append(told("yahoo/quote", "0c55e9b1f2a3d471", "order-book", state="probing", why="the rate of bad ones", retry_us=1_000_000))
    world["breakers"].append(told("dart/filing", "0c55e9b1f2a3d471", "order-book", state="open", why="bad ones in a row", retry_us=0, age_us=184_000_000, stale=True))
    world["server"]["fsync"] = "off"
    return world


def store_out():
    world = well()
    why = "connect: 127.0.0.1:5432 refused the connection within 0.5 s"
    world.update(reachable=False, why=why, age_s=14)
    return world


def off():
    world = well()
    world["enabled"] = False
    return world


HOSTILE = "<img src=x onerror=\"window.harmed=1\">"
LONG = "a-name-of-sixty-four-characters-which-no-narrow-screen-can-hold1"
HANGUL = "한국투자증권-실전-시세-조회-예산-이름이-아주-긴-경우"


def hostile():
    """Names that want to be markup, names that nobody can read, and names that every object has."""
    world = well()
    harm = [HOSTILE, LONG, HANGUL, "__proto__", "constructor", "</script><script>window.harmed=1</script>"]
    world["budgets"] = {
        name: budget(18, 61_174, {harm[(at + n) % len(harm)]: caller(n, 0.1, 2, queue=3, sway=0.5) for n in range(3)}) for at, name in enumerate(harm)
    }
    for one in world["budgets"].values():
        one.update(paused=True, paused_reason=HOSTILE * 3, paused_by=LONG)
    world["breakers"] = [
        told(name, f"{at:016x}", HOSTILE, surfaces=harm, state="open", why=HOSTILE, retry_us=9_000_000, holds=[hold(HOSTILE, 60_000_000, HOSTILE)])
        for at, name in enumerate(harm)
    ]
    world["breakers_here"] = []
    world["server"]["processes"] = [{"application_name": name, "sessions": 2} for name in harm]
    world["server"]["version"] = HOSTILE
    return world


SCENES = {"well": well, "black-hole": black_hole, "alarms": alarms, "store-out": store_out, "off": off, "hostile": hostile}


def budget(limit, interval_us, classes, window_us=1_000_000):
    return {
        "limit": limit,
        "window_us": window_us,
        "send_window_us": 50_000,
        "arrival_jitter_us": 50_000,
        "max_cost": 1,
        "interval_us": interval_us,
        "lookahead_us": 1_000_000,
        "version": 7,
        "fences": 1,
        "paused": False,
        "paused_reason": None,
        "paused_by": None,
        "blocked_for_us": 0,
        "blocked_reason": None,
        "blocked_by": None,
        "fenced_for_us": 0,
        "last_slot_age_us": -21_000,
        "classes": classes,
    }


def caller(priority, floor, rate, queue=0, sway=0.0):
    return {
        "priority": priority,
        "floor_ppm": int(floor * 1e6),
        "rate": rate,
        "sway": sway,
        "queue": queue,
        "exact": 100_000.0 * rate,
        "waiting_units": queue,
        "last_slot_age_us": 180_000 * (priority + 1) - 200_000,
    }


def own(name, **more):
    kept = {"surfaces": [name], "state": "closed", "why": "", "retry_us": None, "rung": 0, "failure_rate_ppm": None, "slow_rate_ppm": None}
    return {"breaker": name, **kept, "calls": 0, "successes": 0, "failures": 0, "rejected": 0, "episode": None, "holds": [], **more}


def told(name, process, application_name, **more):
    return {**own(name), "process": process, "application_name": application_name, "age_us": 3_000_000, "stale": False, **more}


def episode(age_us, total_open_us, reopen_count, probe_count, cause):
    return {"age_us": age_us, "total_open_us": total_open_us, "reopen_count": reopen_count, "probe_count": probe_count, "cause": cause}


def hold(scope, left_us, why="The key or its secret is wrong (EGW00103)."):
    return {"scope": scope, "why": why, "left_us": left_us}


def server():
    names = {"call-budget serve": 2, "eod-batch": 1, "index-nav": 2, "minute-worker": 4, "order-desk": 2, "": 1}
    return {
        "version": "18.1 (Debian 18.1-1.pgdg12+2)",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "processes": [{"application_name": name, "sessions": sessions} for name, sessions in names.items()],
        "oldest_snapshot": {"application_name": "eod-batch", "transactions": 412, "age_us": 1_900_000},
    }
