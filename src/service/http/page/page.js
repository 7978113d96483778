// The page that `call-budget serve` shows: what is going on now. It follows the service's events and draws each as it comes;
// ages and countdowns go on in between. It holds no state but what it was told last.

import { alarms, wellDetail } from "./page/alarms.js";
import { showBreakers } from "./page/breakers.js";
import { showBudgets } from "./page/budgets.js";
import { Act, Ask, tokens } from "./page/dialogs.js";
import { byId, element, keyed, mark, put, putName, show } from "./page/dom.js";
import { Queue, rateNow, Samples } from "./page/figures.js";
import { Stream } from "./page/stream.js";
import { age, language, number, say, speak, span } from "./page/words.js";

/** Figures that are older are greyed. */
const STALE_MS = 4000;
/** A line that broke this long ago is said to be lost; before, it may be back at once. */
const LOST_MS = 2500;
const OTHERS = 5;
const SIGNS = { ok: "✓", note: "i", warn: "!", bad: "✕", wait: "…" };

const line = { state: "connecting", heard: null, brokeAt: null, retryAt: null };
const samples = new Map();
const queues = new Map();
const firstSeen = new Map();
let status = null;
let receivedAt = 0;
let saidBefore = "";

const stream = new Stream({
  token: () => tokens.look,
  trying() {
    line.retryAt = null;
    if (line.state === "asks") line.state = "connecting";
    draw();
  },
  on(name, data) {
    heard();
    if (name === "history") remember(data.samples);
    if (name === "status") take(data);
    // Apart from the reading of the line: a fault in drawing is none of the line's.
    queueMicrotask(draw);
  },
  lost(retryAt) {
    line.retryAt = retryAt;
    if (line.state !== "lost") line.brokeAt ??= performance.now();
    if (line.state === "live") line.state = "connecting";
    draw();
  },
  refused(given) {
    tokens.forget("admin", "look");
    line.state = "asks";
    line.retryAt = null;
    draw();
    ask.open(given);
  },
});

const ask = new Ask(() => stream.connect());
const act = new Act({
  done(kind, name, view) {
    const at = status?.budgets.findIndex((budget) => budget.name === name) ?? -1;
    // As of now, while the others are as of their reading.
    if (at >= 0) status.budgets[at] = asOfReading(view);
    announce(say(`did_${kind}`, { name }));
    draw();
  },
  changed: () => draw(),
});

function heard() {
  line.state = "live";
  line.heard = Date.now();
  line.brokeAt = null;
  line.retryAt = null;
}

function remember(history) {
  for (const { unix_ms, granted } of history) {
    for (const [budget, counts] of Object.entries(granted)) samplesOf(budget).add(unix_ms, counts);
  }
}

function take(data) {
  const before = status === null;
  status = data;
  receivedAt = performance.now();
  for (const budget of data.budgets) {
    if (data.store.reachable) {
      const counts = Object.fromEntries(budget.classes.map((one) => [one.name, one.granted]));
      const read = data.unix_ms - (data.store.age_ms ?? 0);
      samplesOf(budget.name).add(read, counts);
      const seconds = samplesOf(budget.name).seconds(read);
      for (const one of budget.classes) queueOf(budget.name, one.name).add(read, one.waiting_units, seconds);
    }
    note(`paused ${budget.name}`, budget.paused, before);
  }
}

function samplesOf(budget) {
  if (!samples.has(budget)) samples.set(budget, new Samples());
  return samples.get(budget);
}

function queueOf(budget, name) {
  const key = JSON.stringify([budget, name]);
  if (!queues.has(key)) queues.set(key, new Queue(name));
  return queues.get(key);
}

/** Since when something is so, as far as this page has seen it. */
function note(key, so, before) {
  if (!so) firstSeen.delete(key);
  else if (!firstSeen.has(key)) firstSeen.set(key, { at: Date.now(), before });
}

function elapsedUs() {
  return (performance.now() - receivedAt + (status?.store.age_ms ?? 0)) * 1000;
}

function asOfReading(view) {
  const elapsed = elapsedUs();
  const moved = { ...view };
  for (const key of ["blocked_for_us", "fenced_for_us"]) if (moved[key] > 0) moved[key] += elapsed;
  return moved;
}

function draw() {
  // A service that does not answer is lost when it has been gone for a moment, not at the first hitch.
  const now = Date.now();
  const elapsed = elapsedUs();
  const silence = line.heard === null ? 0 : now - line.heard;
  const broken = line.brokeAt !== null && performance.now() - line.brokeAt > LOST_MS;
  if (line.state === "connecting" && (broken || silence > STALE_MS)) line.state = "lost";
  const stale = status !== null && (silence > STALE_MS || elapsed > STALE_MS * 1000);
  mark(document.documentElement, "data-stale", String(stale));
  if (show(byId("stale"), stale)) put(byId("stale"), say("stale_note", { age: age(elapsed) }));

  const shown = status ? status.budgets.map((budget, at) => budgetShown(budget, at, elapsed)) : [];
  drawLine(silence);
  drawHeadline(shown, elapsed, now, silence);
  show(byId("forget"), Boolean(tokens.look));
  if (!status) return;
  show(byId("look-only"), !status.service.admin);
  showBudgets(byId("cards"), shown, (kind, name) => act.open(kind, status.budgets.find((budget) => budget.name === name)));
  const none = say(status.service.enabled ? "no_budget" : "no_budget_off");
  if (show(byId("no-budget"), shown.length === 0 && (status.store.reachable || !status.service.enabled))) put(byId("no-budget"), none);
  showBreakers(status, elapsed);
  drawProcesses(status.server?.processes ?? []);
  drawFoot(elapsed);
}

function budgetShown(budget, at, elapsed) {
  const serverNow = status.unix_ms - (status.store.age_ms ?? 0) + elapsed / 1000;
  const seconds = samplesOf(budget.name).seconds(serverNow);
  const queue = (name) => queueOf(budget.name, name);
  return { budget, at, elapsed, seconds, queue, admin: status.service.admin, cannot: storeIsOut() };
}

function storeIsOut() {
  return status !== null && status.service.enabled && !status.store.reachable;
}

function drawLine(silence) {
  const live = silence > STALE_MS ? "silent" : storeIsOut() ? "store-out" : "live";
  mark(byId("link"), "data-link", line.state === "live" ? live : line.state);
  const left = line.retryAt === null ? 0 : line.retryAt - performance.now();
  const words = {
    live: () => (live === "silent" ? say("silent", { age: age(silence * 1000) }) : say(live === "live" ? "live" : "link_store_out")),
    asks: () => say("no_token"),
    connecting: () => say(line.heard === null && line.brokeAt === null ? "connecting" : "reconnecting"),
    lost: () => (left > 1000 ? say("reconnecting_in", { left: age(left * 1000) }) : say("reconnecting")),
  };
  put(byId("link-text"), words[line.state]());
}

function drawHeadline(shown, elapsed, now, silence) {
  const seen = (key) => firstSeen.get(key) ?? { at: now, before: true };
  // An open line that says nothing is as good as none.
  const state = line.state === "live" && silence > STALE_MS ? "lost" : line.state;
  const found = alarms({ line: { state, heard: line.heard, where: location.host }, status, elapsed, now, seen, queue: queueOf });
  const [worst, ...others] = found;
  const level = worst?.level ?? (status ? "ok" : "wait");
  const perSecond = shown.reduce((sum, { seconds }) => sum + (rateNow(seconds)?.all ?? 0), 0);
  const nothing = { title: say("connecting"), detail: say("first_look"), doing: "" };
  const head = worst ?? (status ? { title: say("well"), detail: wellDetail(status, perSecond), doing: "" } : nothing);

  mark(byId("headline"), "data-level", level);
  mark(byId("headline"), "data-kind", worst?.kind ?? level);
  put(byId("headline").querySelector(".sign"), SIGNS[level]);
  putName(byId("headline-title"), head.title);
  if (show(byId("headline-detail"), head.detail !== "")) put(byId("headline-detail"), head.detail);
  if (show(byId("headline-doing"), head.doing !== "")) put(byId("headline-doing"), head.doing);
  show(byId("look"), line.state === "asks");
  const rest = others.slice(0, OTHERS);
  if (others.length > OTHERS) rest.push({ key: "more", level: "note", title: say("more", { count: others.length - OTHERS }), detail: "", doing: "" });
  keyed(byId("others"), rest, ({ key }) => key, otherPart);
  show(byId("others"), rest.length > 0);

  put(document.querySelector("title"), worst ? `${SIGNS[level]} ${head.title} · call-budget` : "call-budget");
  // Told when it changes, never because a second has passed.
  const all = [head.title, ...others.map((other) => other.title)].join(". ");
  if (all !== saidBefore && level !== "wait") announce((saidBefore = all));
}

function otherPart() {
  const title = element("strong");
  const detail = element("span");
  const node = element("li", {}, title, detail);
  const update = (other) => {
    mark(node, "data-level", other.level);
    mark(node, "title", other.doing);
    putName(title, other.title);
    put(detail, other.detail);
  };
  return { node, update };
}

function announce(text) {
  put(byId("said"), text);
}

function drawProcesses(processes) {
  keyed(byId("processes"), processes, ({ application_name }) => application_name, () => {
    const name = element("span", { class: "cut" });
    const count = element("span", { class: "count" });
    const update = (process) => {
      putName(name, process.application_name || say("nameless"));
      put(count, `×${number(process.sessions)}`);
    };
    return { node: element("li", {}, name, count), update };
  });
  show(byId("process-part"), status.server !== null);
  show(byId("no-process"), processes.length === 0);
}

function drawFoot(elapsed) {
  const { service, store, server } = status;
  const lines = (id, pairs) => keyed(byId(id), pairs, ([key]) => key, linePart);
  lines("service", [
    [say("service"), `call-budget ${service.version}`],
    [say("switch"), say(service.enabled ? "on" : "off_word"), service.enabled ? "" : "note"],
    [say("uptime"), age(service.uptime_s * 1e6 + (performance.now() - receivedAt) * 1000)],
    [say("callers"), number(service.waiting)],
    [say("open_calls"), number(service.open_calls)],
    [say("reading"), store.age_ms === null ? "–" : say("ago", { age: age(elapsed) })],
  ]);
  if (!server) return lines("server", []);
  const off = (value, level) => (value === "off" ? level : "");
  lines("server", [
    [say("server"), `PostgreSQL ${server.version}`],
    ["fsync", server.fsync, off(server.fsync, "bad")],
    ["synchronous_commit", server.synchronous_commit, off(server.synchronous_commit, "note")],
    ["full_page_writes", server.full_page_writes, off(server.full_page_writes, "bad")],
    [say("snapshot"), snapshot(server.oldest_snapshot)],
  ]);
}

function snapshot(oldest) {
  if (!oldest) return say("snapshot_none");
  const lasted = oldest.age_us === null ? "" : `, ${span(oldest.age_us)}`;
  return say("snapshot_is", { transactions: number(oldest.transactions), age: lasted, name: oldest.application_name || say("nameless") });
}

function linePart() {
  const key = element("dt");
  const value = element("dd");
  const update = ([name, text, level]) => {
    put(key, name);
    putName(value, text);
    mark(value, "data-level", level ?? "");
  };
  return { node: element("div", {}, key, value), update };
}

function speakNow(name) {
  speak(name);
  document.documentElement.lang = name;
  for (const node of document.querySelectorAll("[data-text]")) put(node, say(node.dataset.text));
  for (const node of document.querySelectorAll("[data-label][aria-label], dl[data-label]")) mark(node, "aria-label", say(node.dataset.label));
  const other = name === "ko" ? ["English", "en"] : ["한국어", "ko"];
  put(byId("language"), other[0]);
  byId("language").lang = other[1];
  saidBefore = "";
  act.words();
  draw();
}

function otherLanguage() {
  const name = language() === "ko" ? "en" : "ko";
  keep("language", name);
  speakNow(name);
}

/** Only tastes are kept for longer than the tab. */
function keep(name, value) {
  try {
    localStorage.setItem(`call-budget.${name}`, value);
  } catch {
    // Storage is forbidden here: the taste lasts as long as the page.
  }
}

function keptTaste(name) {
  try {
    return localStorage.getItem(`call-budget.${name}`);
  } catch {
    return null;
  }
}

function onKey(event) {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey || typing || document.querySelector("dialog[open]")) return;
  if (!byId("single-keys").checked) return;
  const go = (node) => {
    node?.focus();
    node?.scrollIntoView({ block: "start" });
  };
  if (event.key === "?") byId("help").showModal();
  else if (/^[1-9]$/.test(event.key)) go(byId(`budget-${event.key}`));
  else if (event.key.toLowerCase() === "b") go(byId("breakers"));
  else if (event.key.toLowerCase() === "l") otherLanguage();
  else return;
  event.preventDefault();
}

byId("where").textContent = location.host;
byId("language").addEventListener("click", otherLanguage);
byId("keys").addEventListener("click", () => byId("help").showModal());
byId("help-close").addEventListener("click", () => byId("help").close());
byId("look").addEventListener("click", () => ask.open(false));
byId("forget").addEventListener("click", () => {
  tokens.forget("admin", "look");
  announce(say("token_forgotten"));
  byId("language").focus();
  draw();
});
byId("single-keys").checked = keptTaste("keys") !== "off";
byId("single-keys").addEventListener("change", (event) => keep("keys", event.target.checked ? "on" : "off"));
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => document.hidden || draw());
addEventListener("online", () => line.state === "lost" && stream.connect());

speakNow(keptTaste("language") ?? (navigator.language.toLowerCase().startsWith("ko") ? "ko" : "en"));
setInterval(draw, 500);
stream.connect();
