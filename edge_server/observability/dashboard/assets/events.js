/** The server's events, with a connection that is made again by itself, ever more slowly. */

const KINDS = ["run", "fleet", "round"];
const SLOWEST_S = 15;

/** What the server refuses to answer, with its status and its own words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Ask for JSON; raises Refused with the server's reason, or TypeError where there is no server. */
export async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
  const body = await answer.text();
  let value = null;
  try {
    value = JSON.parse(body);
  } catch {
    // A proxy's error page is no JSON; its status says enough.
  }
  if (!answer.ok) throw new Refused(answer.status, value?.error ?? `the server answered ${answer.status}`);
  return value;
}

/** How long to wait before try number `tries` (from 1), in seconds: 1, 2, 4, 8, then 15. */
export const pause = (tries) => Math.min(SLOWEST_S, 2 ** (tries - 1));

/** Tells `onEvent(kind, value)` and `onLink(link)`; `since()` says which round is the last one known. */
export class Events {
  constructor({ since, onEvent, onLink }) {
    Object.assign(this, { _since: since, _onEvent: onEvent, _onLink: onLink });
    this._source = null;
    this._timer = null;
    this._tries = 0;
  }

  /** Connect now, also while waiting for the next try. */
  async open() {
    this.close();
    try {
      if (this._since() === null) this._onEvent("run", await ask("api/run"));
    } catch (error) {
      this._failed(error);
      return;
    }
    this._listen();
  }

  /** End the connection, or the wait for the next one. */
  close() {
    clearTimeout(this._timer);
    this._source?.close();
    this._source = null;
  }

  _listen() {
    const since = this._since();
    const source = new EventSource(since === null ? "api/stream" : `api/stream?since=${since}`);
    this._source = source;
    for (const kind of KINDS) source.addEventListener(kind, (event) => this._heard(kind, event));
    source.addEventListener("end", (event) => {
      this.close();
      this._onEvent("end", JSON.parse(event.data));
    });
    source.onerror = () => this._lost(source);
  }

  _heard(kind, event) {
    this._tries = 0;
    this._onLink({ state: "live" });
    this._onEvent(kind, JSON.parse(event.data));
  }

  async _lost(source) {
    if (source !== this._source) return;
    this.close();
    try {
      // The browser does not say why a stream ended: a request of its own does.
      this._onEvent("run", await ask("api/run"));
      this._again();
    } catch (error) {
      this._failed(error);
    }
  }

  _failed(error) {
    const final = error instanceof Refused && error.status < 500;
    if (final) this._onLink({ state: "failed", message: error.message });
    else this._again();
  }

  _again() {
    this._tries += 1;
    const wait = pause(this._tries) * 1000;
    this._onLink({ state: "lost", retryAt: Date.now() + wait });
    this._timer = setTimeout(() => this.open(), wait);
  }
}
