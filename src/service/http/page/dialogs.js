// What a person may change, behind the admin token: asked for once more, and said clearly when it did not happen.

import { byId, element, put, show } from "./dom.js";
import { say, span } from "./words.js";

const KEPT = "call-budget.token";
const CHOICES_S = [10, 30, 60, 300];
const ANSWER_MS = 15_000;

/** The tokens of this tab: in its session storage and nowhere else, or in memory where storage is forbidden. */
export const tokens = {
  held: held(),
  get admin() {
    return this.held.getItem(`${KEPT}.admin`);
  },
  /** The admin token is good for looking too. */
  get look() {
    return this.held.getItem(`${KEPT}.look`) ?? this.admin;
  },
  keep(which, token) {
    this.held.setItem(`${KEPT}.${which}`, token);
  },
  forget(...those) {
    for (const which of those) this.held.removeItem(`${KEPT}.${which}`);
  },
};

/** The dialog for pause, resume and pushback. `done(kind, budget, view)` hears of what was done, `changed()` of tokens. */
export class Act {
  #dialog = byId("act");
  #what = null;
  #busy = false;
  #events;

  constructor(events) {
    this.#events = events;
    byId("act-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#go();
    });
    byId("act-cancel").addEventListener("click", () => this.#dialog.close());
    byId("act-forget").addEventListener("click", () => {
      tokens.forget("admin");
      this.#events.changed();
      this.#showToken();
      byId("act-token").focus();
    });
    this.#dialog.addEventListener("close", () => {
      // Nothing typed outlives the dialog. It may be open again by now: this is told late.
      if (this.#dialog.open) return;
      byId("act-token").value = "";
      this.#what = null;
    });
    for (const seconds of CHOICES_S) {
      const choice = element("button", { type: "button", class: "plain", "data-seconds": String(seconds) });
      choice.addEventListener("click", () => (byId("act-duration").value = String(seconds)));
      byId("act-choices").append(choice);
    }
  }

  /** `kind`: pause, resume or pushback. */
  open(kind, budget) {
    this.#what = { kind, budget };
    byId("act-reason").value = "";
    byId("act-token").value = "";
    byId("act-duration").value = "30";
    this.#failed(null);
    this.#showToken();
    this.words();
    this.#dialog.showModal();
    const first = [byId(kind === "pushback" ? "act-duration" : "act-reason"), byId("act-token"), byId("act-go")];
    first.find((field) => field.checkVisibility()).focus();
  }

  /** Its texts, in the language of now. */
  words() {
    for (const choice of byId("act-choices").children) put(choice, span(choice.dataset.seconds * 1e6));
    if (!this.#what) return;
    const { kind, budget } = this.#what;
    const name = budget.name;
    put(byId("act-title"), say(`ask_${kind}`, { name }));
    const who = budget.paused_by ?? say("nobody");
    put(byId("act-what"), say(`ask_${kind}_what`, { name, who, why: budget.paused_reason || say("no_reason") }));
    put(byId("act-go"), say(kind === "pushback" ? "push_back" : kind));
    show(byId("act-duration-row"), kind === "pushback");
    show(byId("act-reason-row"), kind !== "resume");
  }

  #showToken() {
    show(byId("act-kept"), Boolean(tokens.admin));
    show(byId("act-token-row"), !tokens.admin);
  }

  #failed(text, field) {
    if (show(byId("act-failed"), text !== null)) put(byId("act-failed"), text);
    for (const id of ["act-duration", "act-reason", "act-token"]) byId(id).removeAttribute("aria-invalid");
    field?.setAttribute("aria-invalid", "true");
    field?.focus();
  }

  /** What the service is asked, or null: then it is said what is missing. */
  #order() {
    const { kind, budget } = this.#what;
    const order = { budget: budget.name };
    if (kind === "pushback") {
      const seconds = byId("act-duration").valueAsNumber;
      if (!(seconds >= 0.001 && seconds <= 3600)) return this.#failed(say("duration_wrong"), byId("act-duration")) ?? null;
      order.duration_ms = Math.round(seconds * 1000);
    }
    if (kind !== "resume") {
      order.reason = byId("act-reason").value.trim();
      if (order.reason === "") return this.#failed(say("reason_missing"), byId("act-reason")) ?? null;
    }
    return order;
  }

  async #go() {
    if (this.#busy) return;
    const { kind, budget } = this.#what;
    const order = this.#order();
    if (!order) return;
    const typed = byId("act-token").value.trim();
    const token = tokens.admin ?? typed;
    if (token === "") return this.#failed(say("token_missing"), byId("act-token"));
    this.#busy = true;
    byId("act-go").setAttribute("aria-busy", "true");
    const answer = await post(`/v1/admin/${kind}`, order, token);
    byId("act-go").removeAttribute("aria-busy");
    this.#busy = false;

    if (answer.view) {
      tokens.keep("admin", token);
      if (this.#what?.budget === budget) this.#dialog.close();
      this.#events.done(kind, budget.name, answer.view);
      this.#events.changed();
    } else if (answer.status === 401) {
      // The one for looking was not asked, and may be a good one.
      tokens.forget("admin");
      this.#events.changed();
      this.#showToken();
      byId("act-token").select();
      this.#failed(say("wrong_token"), byId("act-token"));
    } else {
      this.#failed(answer.failed);
    }
  }
}

/** The dialog for looking. */
export class Ask {
  #dialog = byId("ask");

  /** `given()`: there is a token to try. */
  constructor(given) {
    byId("ask-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const token = byId("ask-token").value.trim();
      if (token === "") return byId("ask-token").focus();
      tokens.keep("look", token);
      byId("ask-token").value = "";
      this.#dialog.close();
      given();
    });
    byId("ask-cancel").addEventListener("click", () => this.#dialog.close());
  }

  /** `refused`: a token was given, and it was a wrong one. */
  open(refused) {
    show(byId("ask-failed"), refused);
    if (!this.#dialog.open) this.#dialog.showModal();
    byId("ask-token").focus();
  }
}

async function post(path, order, token) {
  let status = 0;
  try {
    // A token that cannot stand in a header is a wrong one.
    if (!/^[\x21-\x7e]+$/.test(token)) return { status: 401 };
    const answer = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
      body: JSON.stringify(order),
      signal: AbortSignal.timeout(ANSWER_MS),
      cache: "no-store",
    });
    status = answer.status;
    if (answer.ok) return { status, view: await answer.json() };
    const problem = await answer.json().catch(() => ({}));
    if (status === 403 && problem.code === "CALL_BUDGET_NO_ADMIN_TOKEN") return { status, failed: say("no_admin") };
    return { status, failed: say("refused", { status, detail: problem.detail ?? problem.title ?? "" }) };
  } catch {
    return { status, failed: say("no_answer") };
  }
}

function held() {
  try {
    return sessionStorage;
  } catch {
    const memory = new Map();
    return {
      getItem: (name) => memory.get(name) ?? null,
      setItem: (name, value) => memory.set(name, value),
      removeItem: (name) => memory.delete(name),
    };
  }
}
