// The events of the service: fetched rather than by EventSource, which cannot send a token. A line that breaks or falls
// silent is tried again, each time a little later.

/** A status comes about every second: so long without anything is a line that is dead, whatever TCP believes. */
const SILENT_MS = 10_000;
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;

/**
 * Follows /v1/events for as long as the page is open.
 * `events`: `token()`, `on(name, data)`, `lost(retryAt)` (on the page's own clock), `trying()`, and `refused()`: it waits for a token.
 */
export class Stream {
  #events;
  #wait = FIRST_RETRY_MS;
  #timer = null;
  #abort = null;

  constructor(events) {
    this.#events = events;
  }

  /** Connects now, whatever it was waiting for. */
  async connect() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    this.#events.trying();
    try {
      const token = this.#events.token();
      const headers = token ? { accept: "text/event-stream", authorization: `Bearer ${token}` } : { accept: "text/event-stream" };
      const watch = watchdog(abort);
      try {
        const answer = await fetch("/v1/events", { headers, signal: abort.signal, cache: "no-store" });
        if (answer.status === 401) {
          abort.abort();
          if (abort === this.#abort) this.#events.refused(Boolean(token));
          return;
        }
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        await this.#read(answer.body, watch, abort);
      } finally {
        watch.stop();
      }
    } catch {
      // However it ended, the line is gone.
    }
    if (abort !== this.#abort) return;
    const wait = this.#wait * (0.8 + 0.4 * Math.random());
    this.#wait = Math.min(LAST_RETRY_MS, this.#wait * 2);
    this.#events.lost(performance.now() + wait);
    this.#timer = setTimeout(() => this.connect(), wait);
  }

  async #read(body, watch, abort) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || abort !== this.#abort) return;
      watch.feed();
      const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const { name, data } = parse(block);
        if (data === "") continue;
        this.#wait = FIRST_RETRY_MS;
        this.#events.on(name, JSON.parse(data));
      }
    }
  }
}

/** One event of a stream, without its empty line. Comment lines begin with a colon. */
export function parse(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
  return { name, data: data.join("\n") };
}

function watchdog(abort) {
  let timer;
  const stop = () => clearTimeout(timer);
  const feed = () => {
    stop();
    timer = setTimeout(() => abort.abort(), SILENT_MS);
  };
  feed();
  return { feed, stop };
}
