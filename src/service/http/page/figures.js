// Slots as they passed: cumulative counts come about once a second, what is shown are whole seconds. Pure.

/** So many seconds are kept and drawn. */
export const SECONDS = 120;
/** Samples that lie further apart than this have a hole between them: nobody knows when those slots passed. */
const HOLE_MS = 3500;
const MINUTE = 60;
const QUEUE_MS = MINUTE * 1000;
/** Who waits for longer is likely to give up. */
const LONG_WAIT_S = 30;
const LONG_FOR_MS = 10_000;
/** The rate of now is the mean of so many seconds. */
const NOW_SECONDS = 5;

/** The samples of one budget: `{at, granted: {class: count}}`, oldest first. */
export class Samples {
  #kept = [];

  add(at, granted) {
    const last = this.#kept.at(-1);
    if (last && at <= last.at) return;
    this.#kept.push({ at, granted: Object.assign(bare(), granted) });
    while (this.#kept.length > 2 && this.#kept[1].at < at - (SECONDS + 5) * 1000) this.#kept.shift();
  }

  /**
   * The last seconds before `now` (milliseconds), oldest first: for each the slots by class, or null where that is not known. The last one is
   * the second that the newest sample completes, as long as that is fresh.
   */
  seconds(now, count = SECONDS) {
    const newest = this.#kept.at(-1)?.at ?? -Infinity;
    const end = now - newest < HOLE_MS ? Math.floor(newest / 1000) : Math.floor(now / 1000);
    const cursor = { at: 0 };
    let before = this.#at((end - count) * 1000, cursor);
    return Array.from({ length: count }, (_, i) => {
      const after = this.#at((end - count + i + 1) * 1000, cursor);
      const slots = before && after && difference(before, after);
      before = after;
      return slots;
    });
  }

  /** The counts at an instant, between two samples in proportion; null in a hole. */
  #at(instant, cursor) {
    const kept = this.#kept;
    while (cursor.at + 1 < kept.length && kept[cursor.at + 1].at <= instant) cursor.at += 1;
    const left = kept[cursor.at];
    const right = kept[cursor.at + 1];
    if (!left || left.at > instant) return null;
    if (left.at === instant) return left.granted;
    if (!right || right.at - left.at > HOLE_MS) return null;
    const part = (instant - left.at) / (right.at - left.at);
    const between = bare();
    for (const [name, count] of Object.entries(right.granted)) {
      const from = left.granted[name] ?? count;
      between[name] = from + (count - from) * part;
    }
    return between;
  }
}

/** How many units of a class have waited, and how long one that comes now is likely to wait. */
export class Queue {
  #name;
  #kept = [];
  #waitsSince = null;
  #longSince = null;
  units = 0;
  /** Seconds, at the class's rate of the last minute, or since it has waited where that is less; null without a slot in that time. */
  expected = null;
  /** Seconds for which it has waited without a break, as far as that was seen. */
  waited = 0;
  /** It waits for more than it ever did a minute ago, and still for more. */
  grows = false;
  /** The wait has been long for a while: a burst that is soon over is none. */
  long = false;

  constructor(name) {
    this.#name = name;
  }

  /** `at` in milliseconds; `seconds` are those of its budget until then. */
  add(at, units, seconds) {
    const last = this.#kept.at(-1);
    if (last && at <= last.at) return;
    // What waits already when the page is opened may have waited for ever.
    if (units > 0) this.#waitsSince ??= { at, before: !last };
    else this.#waitsSince = null;
    this.#kept.push({ at, units });
    while (this.#kept[0].at <= at - QUEUE_MS) this.#kept.shift();
    this.units = units;
    this.waited = this.#waitsSince ? (at - this.#waitsSince.at) / 1000 : 0;
    const over = this.#waitsSince?.before ? MINUTE : Math.min(MINUTE, Math.max(MINUTE / 6, Math.ceil(this.waited)));
    const known = seconds.slice(-over).filter((second) => second !== null);
    const slots = known.reduce((sum, second) => sum + (second[this.#name] ?? 0), 0);
    this.expected = slots > 0 ? (units * known.length) / slots : null;
    this.grows = this.#isGrowing(at);
    const isLong = units > 0 && (this.expected ?? this.waited) > LONG_WAIT_S;
    this.#longSince = isLong ? this.#longSince ?? at : null;
    this.long = isLong && at - this.#longSince >= LONG_FOR_MS;
  }

  /** A queue that goes up and down has a high in each third of the minute, and one that has filled stays as it is in the last two. */
  #isGrowing(now) {
    if (this.#kept[0].at > now - QUEUE_MS + HOLE_MS) return false;
    const third = (n) => this.#kept.filter(({ at }) => Math.floor((now - at) / (QUEUE_MS / 3)) === 2 - n).map(({ units }) => units);
    const [first, middle, last] = [third(0), third(1), third(2)];
    if ([first, middle, last].some((units) => units.length === 0)) return false;
    const mean = (units) => units.reduce((sum, one) => sum + one, 0) / units.length;
    return Math.min(...last) > Math.max(...first) + 2 && mean(last) > mean(middle) * 1.1;
  }
}

/** Slots a second, by class and in sum, over the last few seconds that are known; null where none of them is. */
export function rateNow(seconds) {
  const known = seconds.slice(-NOW_SECONDS).filter((second) => second !== null);
  if (known.length === 0) return null;
  const { all, byClass } = total(known);
  for (const name of Object.keys(byClass)) byClass[name] /= known.length;
  return { all: all / known.length, byClass };
}

/** Each class's part of what was granted in the last minute, 0 to 1; null where nothing was. */
export function shares(seconds) {
  const { all, byClass } = total(seconds.slice(-MINUTE).filter((second) => second !== null));
  if (all < 0.5) return null;
  for (const name of Object.keys(byClass)) byClass[name] /= all;
  return byClass;
}

/** The path of one layer of stacked bars: a unit wide each, upwards from `floors`, which it raises. */
export function layer(seconds, name, floors, scale, height) {
  let path = "";
  seconds.forEach((second, at) => {
    const slots = second?.[name] ?? 0;
    if (slots <= 0) return;
    const bottom = height - floors[at] * scale;
    floors[at] += slots;
    const top = height - floors[at] * scale;
    path += `M${at + 0.1} ${bottom.toFixed(2)}V${top.toFixed(2)}h0.8V${bottom.toFixed(2)}z`;
  });
  return path;
}

/** Where nothing is known, as `[from, to)` in seconds. */
export function holes(seconds) {
  const found = [];
  seconds.forEach((second, at) => {
    if (second !== null) return;
    const last = found.at(-1);
    if (last && last[1] === at) last[1] = at + 1;
    else found.push([at, at + 1]);
  });
  return found;
}

// Names are the operators': one may be called as something that every object has.
function bare() {
  return Object.create(null);
}

function difference(before, after) {
  const slots = bare();
  // A count that fell began anew: nothing is known of that second.
  for (const [name, count] of Object.entries(after)) slots[name] = Math.max(0, count - (before[name] ?? count));
  return slots;
}

function total(seconds) {
  const byClass = bare();
  let all = 0;
  for (const second of seconds) {
    for (const [name, slots] of Object.entries(second)) {
      byClass[name] = (byClass[name] ?? 0) + slots;
      all += slots;
    }
  }
  return { all, byClass };
}
