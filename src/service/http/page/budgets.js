// A card for each budget: its state, slots as they pass, and each class with its share against its floor.

import { isStopped, left } from "./alarms.js";
import { drawn, element, keyed, mark, put, putName, show } from "./dom.js";
import { holes, layer, rateNow, SECONDS, shares } from "./figures.js";
import { age, number, percent, rate, say, span } from "./words.js";

const COLOURS = 8;
const HEIGHT = 100;
/** A class that has waited for so long and got less than its floor is marked. */
const UNDER_FLOOR_MS = 60_000;
const COLUMNS = ["class", "now", "share", "waiting", "last"];

/** `shown`: for each budget `{budget, at, elapsed, seconds, queue, admin, cannot}`; `act(kind, name)` opens the dialog. */
export function showBudgets(parent, shown, act) {
  keyed(parent, shown, ({ budget }) => budget.name, ({ budget }) => card(budget.name, act));
}

function card(budgetName, act) {
  const name = element("h2", { class: "name" });
  const state = element("span", { class: "chip state" });
  const limit = element("span", { class: "quiet limit" });
  const buttons = { pause: button(), resume: button(), pushback: button() };
  for (const [kind, node] of Object.entries(buttons)) {
    node.dataset.act = kind;
    node.addEventListener("click", () => act(kind, budgetName));
  }
  const deeds = element("div", { class: "deeds" }, buttons.pause, buttons.resume, buttons.pushback);
  const situation = element("ul", { class: "situation" });
  const flow = flowPart();
  const classes = classTable();
  const facts = element("p", { class: "quiet facts" });
  const node = element(
    "article",
    { class: "card panel", tabindex: "-1" },
    element("header", {}, element("div", { class: "title" }, name, state, limit), deeds),
    situation,
    element("div", { class: "body" }, flow.node, classes.node),
    facts,
  );

  const update = ({ budget, at, elapsed, seconds, queue, admin, cannot }) => {
    node.id = `budget-${at + 1}`;
    name.id = `budget-${at + 1}-name`;
    mark(node, "aria-labelledby", name.id);
    putName(name, budget.name);
    const now = rateNow(seconds);
    const [kind, level] = stateOf(budget, elapsed, now);
    put(state, say(kind));
    mark(state, "data-level", level);
    mark(node, "data-level", level);
    put(limit, say("limit", { units: number(budget.limit), window: span(budget.window_us) }));
    show(deeds, admin);
    if (show(buttons.pause, !budget.paused)) put(buttons.pause, say("pause"));
    if (show(buttons.resume, budget.paused)) put(buttons.resume, say("resume"));
    put(buttons.pushback, say("push_back"));
    for (const one of Object.values(buttons)) {
      mark(one, "aria-label", `${one.textContent}: ${budget.name}`);
      one.disabled = cannot;
      mark(one, "title", cannot ? say("cannot_now") : "");
    }
    keyed(situation, situations(budget, elapsed), ([key]) => key, situationPart);
    show(situation, situation.children.length > 0);
    flow.update(budget, seconds, now);
    classes.update(budget, seconds, now, elapsed, queue);
    put(facts, factsOf(budget, elapsed));
  };
  return { node, update };
}

function button() {
  return element("button", { type: "button" });
}

function stateOf(budget, elapsed, now) {
  if (budget.paused) return ["state_paused", "bad"];
  if (budget.blocked_for_us > elapsed) return ["state_pushback", "warn"];
  if (budget.fenced_for_us > elapsed) return ["state_fenced", "warn"];
  if (now === null) return ["unknown", "quiet"];
  return now.all > 0 ? ["running", "ok"] : ["idle", "quiet"];
}

function situations(budget, elapsed) {
  const found = [];
  if (budget.paused) found.push(["paused", `${say("state_paused")} · ${budget.paused_by ?? say("nobody")}: ${budget.paused_reason || say("no_reason")}`]);
  if (budget.blocked_for_us > elapsed) {
    const words = { left: left(budget.blocked_for_us, elapsed), who: budget.blocked_by ?? say("nobody"), why: budget.blocked_reason || say("no_reason") };
    found.push(["pushback", `${say("state_pushback")} · ${say("pushback_detail", words)}`]);
  }
  if (budget.fenced_for_us > elapsed) {
    found.push(["fenced", `${say("state_fenced")} · ${say("fenced_detail", { left: left(budget.fenced_for_us, elapsed) })}`]);
  }
  return found;
}

function situationPart([key]) {
  const node = element("li", { "data-kind": key });
  return { node, update: ([, text]) => put(node, text) };
}

function factsOf(budget, elapsed) {
  const parts = [say("settings", { interval: span(budget.interval_us), send: span(budget.send_window_us) })];
  if (budget.max_cost > 1) parts.push(say("cost", { cost: number(budget.max_cost) }));
  const last = budget.last_slot_age_us;
  parts.push(last === null ? say("no_slot") : say("last_slot", { age: slotAge(last, elapsed) }), say("fences", { count: number(budget.fences) }));
  return parts.join(" · ");
}

/** Negative as read: the last slot was still ahead then. */
function slotAge(us, elapsed) {
  const now = us + elapsed;
  if (now < 0) return say("ahead", { age: span(-now) });
  return now < 2e6 ? say("chart_now") : say("ago", { age: age(now) });
}

// Slots as they pass: the rate of now, its part of the most that the interval allows, and a bar for each second.
function flowPart() {
  const figure = element("strong", { class: "figure" });
  const unit = element("span", { class: "quiet" });
  const title = element("p", { class: "caption" });
  const readout = element("p", { class: "readout quiet" });
  const layers = drawn("g", {});
  const gaps = drawn("g", { class: "gaps" });
  const line = drawn("line", { class: "limit-line", x1: 0, x2: SECONDS, "vector-effect": "non-scaling-stroke" });
  const cursor = drawn("rect", { class: "cursor", y: 0, width: 1, height: HEIGHT, visibility: "hidden" });
  const picture = drawn("svg", { viewBox: `0 0 ${SECONDS} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, gaps, cursor, layers, line);
  const limitLabel = element("span", { class: "limit-label" });
  const chart = element("div", { class: "chart" }, picture, limitLabel);
  const from = element("span");
  const until = element("span");
  const axis = element("div", { class: "axis quiet", "aria-hidden": "true" }, from, readout, until);
  const node = element("div", { class: "flow" }, element("p", { class: "rate" }, figure, unit), title, chart, axis);

  let pointed = null;
  let current = { seconds: [], classes: [] };
  const point = () => {
    mark(cursor, "visibility", pointed === null ? "hidden" : "visible");
    if (pointed === null) return put(readout, "");
    mark(cursor, "x", String(pointed));
    const second = current.seconds[pointed];
    const before = span((current.seconds.length - pointed) * 1e6);
    const what = second && current.classes.map(({ name }) => `${name} ${number(second[name] ?? 0, 1)}`).join(", ");
    put(readout, second ? say("chart_at", { age: before, what }) : say("chart_hole", { age: before }));
  };
  chart.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    pointed = Math.min(SECONDS - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * SECONDS)));
    point();
  });
  chart.addEventListener("pointerleave", () => {
    pointed = null;
    point();
  });

  const update = (budget, seconds, now) => {
    current = { seconds, classes: budget.classes };
    put(figure, now ? rate(now.all) : "–");
    put(unit, say("rate_of", { pace: rate(1e6 / budget.interval_us) }));
    put(title, say("chart_title"));
    const limit = (budget.limit * 1e6) / budget.window_us;
    const peak = Math.max(...seconds.map((second) => (second ? Object.values(second).reduce((sum, slots) => sum + slots, 0) : 0)));
    const scale = HEIGHT / (Math.max(limit, peak) * 1.12);
    const floors = seconds.map(() => 0);
    const stacked = budget.classes.map((one, at) => ({ name: one.name, at, path: layer(seconds, one.name, floors, scale, HEIGHT) }));
    keyed(layers, stacked, ({ name }) => name, layerPart);
    keyed(gaps, holes(seconds).map(([a, b], at) => ({ a, b, at })), ({ at }) => at, gapPart);
    const height = HEIGHT - limit * scale;
    mark(line, "y1", height.toFixed(2));
    mark(line, "y2", height.toFixed(2));
    limitLabel.style.setProperty("--at", `${height.toFixed(1)}%`);
    put(limitLabel, say("chart_limit", { limit: number(limit, Number.isInteger(limit) ? 0 : 1) }));
    put(from, say("chart_from", { seconds: SECONDS }));
    put(until, say("chart_now"));
    const what = budget.classes.map(({ name }) => `${name} ${rate(now?.byClass[name] ?? 0)}/s`).join(", ");
    mark(picture, "aria-label", say("chart", { seconds: SECONDS, what }));
    point();
  };
  return { node, update };
}

function layerPart() {
  const node = drawn("path", {});
  const update = ({ at, path }) => {
    mark(node, "class", `c${at % COLOURS}`);
    mark(node, "d", path);
  };
  return { node, update };
}

function gapPart() {
  const node = drawn("rect", { y: 0, height: HEIGHT });
  const update = ({ a, b }) => {
    mark(node, "x", String(a));
    mark(node, "width", String(b - a));
  };
  return { node, update };
}

// The roles are said again because the style sheet lays the rows out anew on a phone, which takes them away.
function classTable() {
  const heads = COLUMNS.map((column) => element("th", { scope: "col", role: "columnheader", class: column }));
  const body = element("tbody", { role: "rowgroup" });
  const head = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads));
  const table = element("table", { class: "classes", role: "table" }, head, body);
  const empty = element("p", { class: "empty" });
  const node = element("div", { class: "class-part" }, table, empty);
  const update = (budget, seconds, now, elapsed, queue) => {
    heads.forEach((cell, at) => put(cell, say(COLUMNS[at])));
    const part = shares(seconds);
    // While nobody gets a slot, the rate of before says nothing of the wait.
    const expected = ({ name }) => (isStopped(budget, elapsed) ? null : queue(name).expected);
    const rows = budget.classes.map((one, at) => ({ one, at, elapsed, expected: expected(one), rate: now && (now.byClass[one.name] ?? 0), share: part && (part[one.name] ?? 0) }));
    keyed(body, rows, ({ one }) => one.name, classRow);
    show(table, rows.length > 0);
    if (show(empty, rows.length === 0)) put(empty, say("no_class", { name: budget.name }));
  };
  return { node, update };
}

function classRow() {
  const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
  const label = element("span", { class: "cut" });
  const name = element("th", { scope: "row", role: "rowheader", class: "class" }, swatch, label);
  const now = cell("now");
  const fill = element("span", { class: "fill" });
  const floorMark = element("span", { class: "floor-mark" });
  const bar = element("span", { class: "bar", "aria-hidden": "true" }, fill, floorMark);
  const share = element("span", { class: "share-figure" });
  const floor = element("span", { class: "floor-figure quiet" });
  const shareCell = element("td", { role: "cell", class: "share" }, bar, share, floor);
  const units = element("span");
  const wait = element("span", { class: "wait quiet" });
  const waiting = element("td", { role: "cell", class: "waiting" }, units, wait);
  const last = cell("last");
  const node = element("tr", { role: "row" }, name, now, shareCell, waiting, last);
  let waitingSince = null;
  const update = ({ one, at, elapsed, expected, rate: perSecond, share: part }) => {
    mark(node, "class", `c${at % COLOURS}`);
    putName(label, one.name);
    mark(name, "title", `${one.name} · ${say("priority", { priority: one.priority })}`);
    put(now, perSecond === null ? "–" : `${rate(perSecond)}/s`);
    const least = one.floor_ppm / 1e6;
    fill.style.setProperty("--part", `${((part ?? 0) * 100).toFixed(1)}%`);
    floorMark.style.setProperty("--part", `${(least * 100).toFixed(1)}%`);
    show(floorMark, least > 0);
    put(share, part === null ? "–" : percent(part));
    waitingSince = one.waiting_units > 0 ? waitingSince ?? performance.now() : null;
    const under = part !== null && part < least * 0.9 && waitingSince !== null && performance.now() - waitingSince > UNDER_FLOOR_MS;
    mark(node, "data-under", String(under));
    put(floor, (least > 0 ? say("floor", { floor: percent(least) }) : say("no_floor")) + (under ? ` · ${say("under_floor")}` : ""));
    const words = { units: number(one.waiting_units), lanes: number(one.waiting_lanes) };
    put(units, one.waiting_units > 0 ? words.units : "–");
    const inWords = expected === null ? "" : span(expected * 1e6);
    if (show(wait, one.waiting_units > 0 && inWords !== "")) put(wait, `~${inWords}`);
    mark(waiting, "title", say("waiting_title", words) + (wait.hidden ? "" : say("wait_title", { wait: inWords })));
    mark(waiting, "data-head", say("waiting"));
    mark(waiting, "data-some", String(one.waiting_units > 0));
    put(last, one.last_slot_age_us === null ? "–" : slotAge(one.last_slot_age_us, elapsed));
    mark(last, "data-head", say("last"));
  };
  return { node, update };
}

function cell(name) {
  return element("td", { role: "cell", class: name });
}
