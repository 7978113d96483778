// Slots as they passed: cumulative counts come about once a second, what is shown are whole seconds. Pure.

/** So many seconds are kept and drawn. */
export const SECONDS = 120;
/** Samples that lie further apart than this have a hole between them: nobody knows when those slots passed. */
const HOLE_MS = 3500;
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
  const { all, byClass } = total(seconds.slice(-60).filter((second) => second !== null));
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
