// What is not well, the worst first: since when, and what to do. Pure apart from the words.

import { age, clock, number, rate, said, say, span } from "./words.js";

const ORDER = [
  "lost",
  "asks",
  "store_out",
  "paused",
  "open",
  "forced_open",
  "unsafe",
  "pushback",
  "fenced",
  "stopping",
  "growing",
  "long",
  "held",
  "probing",
  "probe_due",
  "hold",
  "nothing_sent",
  "bypass",
  "observe",
  "forgetful",
  "off",
];
const BAD = new Set(["lost", "store_out", "paused", "open", "forced_open", "unsafe"]);
/** At night that is nothing; in the morning somebody wants to know. */
const NOTHING_SENT_US = 60e6;
const NOTES = new Set(["off", "observe", "bypass", "asks", "nothing_sent", "forgetful"]);

/**
 * `line` is how the service is reached (`{state, heard, where}`), `status` the last one that came or null, `elapsed` the microseconds since its
 * reading, `seen(key)` since when (milliseconds, and whether from before the page was opened) something is so,
 * `queue(budget, class)` its `Queue`.
 * Each alarm: `{kind, level, key, title, detail, doing}`.
 */
export function alarms({ line, status, elapsed, now, seen, queue }) {
  const found = [];
  const add = (kind, name, title, detail, doing) => {
    const level = BAD.has(kind) ? "bad" : NOTES.has(kind) ? "note" : "warn";
    found.push({ kind, level, key: `${kind} ${name}`, title, detail, doing });
  };

  if (line.state === "asks") add("asks", "", say("asks"), say("asks_detail"), "");
  if (line.state === "lost") {
    const detail =
      line.heard === null
        ? say("lost_never", { where: line.where })
        : say("lost_detail", { clock: clock(line.heard), age: age((now - line.heard) * 1000) });
    add("lost", "", say("lost"), detail, say("lost_doing"));
  }
  if (status) {
    ofService(status, elapsed, now, add);
    for (const budget of status.budgets) ofBudget(budget, elapsed, seen, add);
    // What was read a while ago says nothing of who waits and sends now.
    if (line.state !== "lost" && status.store.reachable) {
      const free = status.budgets.filter((budget) => !isStopped(budget, elapsed));
      for (const budget of free) ofQueues(budget, queue, add);
      ofSilence(free, elapsed, add);
    }
    ofBreakers(status, elapsed, add);
  }
  return found.sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind));
}

/** What the headline says when nothing is wrong. */
export function wellDetail(status, perSecond) {
  const waiting = status.budgets.flatMap((budget) => budget.classes).reduce((sum, one) => sum + one.waiting_units, 0);
  if (!perSecond && waiting === 0) return say("well_quiet");
  return say("well_detail", { rate: rate(perSecond ?? 0), waiting: number(waiting) });
}

/** The breakers of all processes: those of this service as it holds them now, those of others as they told. */
export function allBreakers(status) {
  const here = status.breakers_here.map((breaker) => ofThisService(breaker, (status.store.age_ms ?? 0) * 1000));
  const own = status.service.process;
  const named = new Set(here.map((breaker) => breaker.breaker));
  const told = status.breakers.filter((breaker) => !(own && breaker.process === own && named.has(breaker.breaker)));
  return [...here, ...told];
}

/** Its times are as of the status, while everything else is as of the store's last reading, which was `ago` before. */
function ofThisService(breaker, ago) {
  const { retry_us, episode } = breaker;
  return {
    ...breaker,
    retry_us: typeof retry_us === "number" ? retry_us + ago : null,
    episode: episode && { ...episode, age_us: episode.age_us - ago },
    holds: breaker.holds.map((hold) => ({ ...hold, left_us: hold.left_us + ago })),
    here: true,
    process: "",
    application_name: "",
    stale: false,
  };
}

/** What is left of something, in words. */
export function left(us, elapsed) {
  return span(us - elapsed);
}

/** When something can change. */
export function retry(us, elapsed) {
  return us > elapsed ? say("retry", { left: left(us, elapsed) }) : say("retry_now");
}

function ofService(status, elapsed, now, add) {
  const { service, store, server } = status;
  for (const name of ["fsync", "full_page_writes"]) {
    if (server?.[name] === "off") add("unsafe", name, say("unsafe", { name }), say("unsafe_detail"), say("unsafe_doing", { name }));
  }
  if (server?.synchronous_commit === "off") add("forgetful", "", say("forgetful"), say("forgetful_detail"), say("forgetful_doing"));
  if (service.stopping) add("stopping", "", say("stopping"), "", say("stopping_doing"));
  if (!service.enabled) add("off", "", say("off"), say("off_detail"), say("off_doing"));
  if (service.enabled && !store.reachable) {
    const why = store.why ?? "";
    const detail =
      store.age_ms === null
        ? say("store_out_never", { why })
        : say("store_out_detail", { clock: clock(now - elapsed / 1000), age: age(elapsed), why });
    add("store_out", "", say("store_out"), detail, say("store_out_doing"));
  }
}

function ofBudget(budget, elapsed, seen, add) {
  const { name } = budget;
  if (budget.paused) {
    const { at, before } = seen(`paused ${name}`);
    const since = say(before ? "since_before" : "since_clock", { clock: clock(at) });
    const who = budget.paused_by ?? say("nobody");
    const why = budget.paused_reason || say("no_reason");
    add("paused", name, say("paused", { name }), say("paused_detail", { since, who, why }), say("paused_doing"));
  }
  if (budget.blocked_for_us > elapsed) {
    const words = { left: left(budget.blocked_for_us, elapsed), who: budget.blocked_by ?? say("nobody"), why: budget.blocked_reason || say("no_reason") };
    add("pushback", name, say("pushback", { name }), say("pushback_detail", words), say("pushback_doing"));
  }
  if (budget.fenced_for_us > elapsed) {
    const detail = say("fenced_detail", { left: left(budget.fenced_for_us, elapsed) });
    add("fenced", name, say("fenced", { name }), detail, say("fenced_doing"));
  }
}

/** What is told otherwise: paused, pushed back or fenced. */
export function isStopped(budget, elapsed) {
  return budget.paused || budget.blocked_for_us > elapsed || budget.fenced_for_us > elapsed;
}

function ofQueues(budget, queue, add) {
  for (const one of budget.classes) {
    const { units, expected, waited, grows, long } = queue(budget.name, one.name);
    if (!grows && !long) continue;
    const words = { units: number(units), wait: span((expected ?? waited) * 1e6) };
    const detail = say(expected === null ? "waits_unknown" : "waits_detail", words);
    const kind = grows ? "growing" : "long";
    add(kind, `${budget.name} ${one.name}`, say(kind, { class: one.name, name: budget.name }), detail, say("waits_doing"));
  }
}

/** Budgets that had slots, and now have none: nobody calls any more, or nobody gets that far. */
function ofSilence(budgets, elapsed, add) {
  const used = budgets.filter((budget) => budget.last_slot_age_us !== null);
  const waits = budgets.some((budget) => budget.classes.some((one) => one.waiting_units > 0));
  const ago = Math.min(...used.map((budget) => budget.last_slot_age_us)) + elapsed;
  if (used.length === 0 || waits || ago <= NOTHING_SENT_US) return;
  add("nothing_sent", "", say("nothing_sent"), say("nothing_sent_detail", { age: age(ago) }), say("nothing_sent_doing"));
}

function ofBreakers(status, elapsed, add) {
  const all = allBreakers(status).filter((breaker) => !breaker.stale);
  // A service that does not say which process it is has told of itself too: it counts once.
  const told = new Set(all.filter((breaker) => !breaker.here).map(({ breaker, state }) => `${state} ${breaker}`));
  const fresh = status.service.process ? all : all.filter(({ here, breaker, state }) => !(here && told.has(`${state} ${breaker}`)));
  for (const [name, group] of Map.groupBy(fresh, (breaker) => breaker.breaker)) {
    for (const [state, those] of Map.groupBy(group, (breaker) => breaker.state)) {
      if (state === "closed") continue;
      ofState(name, state, those, group.length, elapsed, add);
    }
  }
  for (const [scope, those] of Map.groupBy(all.flatMap((breaker) => breaker.holds), (hold) => hold.scope)) {
    const longest = those.reduce((one, other) => (other.left_us > one.left_us ? other : one));
    if (longest.left_us <= elapsed) continue;
    const detail = say("hold_detail", { left: left(longest.left_us, elapsed), why: said(longest.why) });
    add("hold", scope, say("hold", { name: scope }), detail, say("hold_doing"));
  }
}

function ofState(name, state, those, all, elapsed, add) {
  const retries = those.map((breaker) => breaker.retry_us).filter((us) => us !== null && us !== undefined);
  const ages = those.map((breaker) => breaker.episode?.age_us).filter((us) => us !== null && us !== undefined);
  const parts = [said(those[0].why)];
  if (ages.length) parts.push(say("breaker_for", { age: age(Math.max(...ages) + elapsed) }));
  if (all > 1) parts.push(say("breaker_in", { count: those.length, all }));
  if (retries.length) parts.push(retry(Math.min(...retries), elapsed));
  const detail = parts.filter((part) => part !== "").join(" · ");
  switch (state) {
    case "open":
      return add(state, name, say("open", { name }), detail, say("open_doing"));
    case "forced_open":
      return add(state, name, say("forced_open", { name }), detail, say("forced_doing"));
    case "held":
      return add(state, name, say("calendar", { name }), detail, say("calendar_doing"));
    case "probing":
    case "probe_due":
      return add(state, name, say(state, { name }), detail, say("probing_doing"));
    case "bypass":
    case "observe":
      return add(state, name, say("by_hand", { name, state: say(`state_${state}`) }), detail, say("by_hand_doing"));
  }
}
