// Breakers, by name and then by process: state, what comes next, episode, holds.

import { allBreakers, left, retry } from "./alarms.js";
import { byId, element, keyed, mark, put, putName, show } from "./dom.js";
import { age, number, percent, said, say } from "./words.js";

const WORST = ["open", "forced_open", "held", "probing", "probe_due", "observe", "bypass", "closed"];
const LEVELS = { open: "bad", forced_open: "bad", held: "warn", probing: "warn", probe_due: "warn", observe: "note", bypass: "note" };

export function showBreakers(status, elapsed) {
  const all = allBreakers(status);
  const groups = [...Map.groupBy(all, (breaker) => breaker.breaker)].map(([name, those]) => ({ name, those, elapsed }));
  const quiet = ({ those }) => those.every((one) => one.state === "closed" && !one.episode && one.holds.length === 0);
  const told = groups.filter((group) => !quiet(group)).sort((one, other) => worst(one) - worst(other) || (one.name < other.name ? -1 : 1));
  keyed(byId("breaker-list"), told, (group) => group.name, breakerPart);

  const closed = groups.filter(quiet).map((group) => group.name);
  if (show(byId("breakers-closed"), closed.length > 0)) put(byId("breakers-closed"), say("all_closed", { names: closed.join(", ") }));
  const note = status.breakers_unseen ? say("unseen", { why: said(status.breakers_unseen) }) : say("none_told");
  if (show(byId("breakers-note"), Boolean(status.breakers_unseen) || groups.length === 0)) put(byId("breakers-note"), note);
}

export function stateWord(state) {
  return state === "closed" ? say("closed") : WORST.includes(state) ? say(`state_${state}`) : state;
}

function worst({ those }) {
  const ranks = those.map((one) => WORST.indexOf(one.state) + (one.stale ? WORST.length : 0));
  return Math.min(...ranks);
}

function breakerPart() {
  const name = element("h3", { class: "name" });
  const surfaces = element("p", { class: "quiet cut" });
  const rows = element("ul", { class: "rows" });
  const node = element("article", { class: "breaker" }, element("div", { class: "breaker-head" }, name, surfaces), rows);
  const update = (group) => {
    putName(name, group.name);
    const others = [...new Set(group.those.flatMap((one) => one.surfaces))].filter((surface) => surface !== group.name);
    if (show(surfaces, others.length > 0)) putName(surfaces, say("behind", { names: others.join(", ") }));
    const keyOf = ({ one }) => (one.here ? "here" : one.process);
    keyed(rows, group.those.map((one) => ({ one, elapsed: group.elapsed })), keyOf, processPart);
  };
  return { node, update };
}

function processPart() {
  const state = element("span", { class: "chip" });
  const process = element("span", { class: "process cut" });
  const next = element("span", { class: "next" });
  const more = element("span", { class: "quiet facts" });
  const why = element("strong");
  const episode = element("span", { class: "quiet" });
  const story = element("p", { class: "story" }, why, episode);
  const holds = element("ul", { class: "holds" });
  const node = element("li", {}, element("div", { class: "process-line" }, state, process, next, more), story, holds);
  const update = ({ one, elapsed }) => {
    mark(node, "data-stale", String(one.stale));
    mark(node, "data-here", String(Boolean(one.here)));
    mark(state, "data-level", one.stale ? "quiet" : LEVELS[one.state] ?? "ok");
    put(state, stateWord(one.state));
    putName(process, one.here ? say("this_service") : processName(one));
    const counts = one.retry_us !== null && one.retry_us !== undefined && one.state !== "closed" && !one.stale;
    if (show(next, counts)) put(next, retry(one.retry_us, elapsed));
    put(more, facts(one, elapsed));
    if (show(why, one.why !== "")) put(why, said(one.why));
    if (show(episode, Boolean(one.episode))) put(episode, episodeWords(one.episode, elapsed));
    show(story, !why.hidden || !episode.hidden);
    const held = one.holds.filter((hold) => hold.left_us > elapsed).map((hold) => ({ hold, elapsed }));
    keyed(holds, held, ({ hold }) => `${hold.scope} ${hold.why}`, holdPart);
  };
  return { node, update };
}

function holdPart() {
  const node = element("li");
  const update = ({ hold, elapsed }) => put(node, say("held", { scope: hold.scope, left: left(hold.left_us, elapsed), why: said(hold.why) }));
  return { node, update };
}

/** The name that its sessions give, and enough of its own to tell it from others of that name. */
function processName({ application_name, process }) {
  return `${application_name || say("nameless")} ${process.slice(0, 8)}`;
}

function facts(one, elapsed) {
  const parts = [say("rung", { rung: one.rung }), say("outcomes", { good: number(one.successes), bad: number(one.failures), rejected: number(one.rejected) })];
  if (typeof one.failure_rate_ppm === "number") parts.push(say("failure_rate", { rate: percent(one.failure_rate_ppm / 1e6) }));
  if (typeof one.slow_rate_ppm === "number") parts.push(say("slow_rate", { rate: percent(one.slow_rate_ppm / 1e6) }));
  if (!one.here) parts.push(say(one.stale ? "told_stale" : "told", { age: age(one.age_us + elapsed) }));
  return parts.join(" · ");
}

function episodeWords(episode, elapsed) {
  return say("episode", {
    age: age(episode.age_us + elapsed),
    open: age(episode.total_open_us),
    reopened: episode.reopen_count,
    probes: episode.probe_count,
    cause: said(episode.cause),
  });
}
