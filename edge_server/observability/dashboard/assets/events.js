/** The server's event stream; reconnects by itself with growing pauses. */

const KINDS = ["run", "fleet", "round"];
const SLOWEST_S = 15;

/** A refused request, with the server's status and message. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Request JSON; throws Refused with the server's reason, or TypeError without a server. */
export async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
  const body = await answer.text();
  let value = null;
  try {
    value = JSON.parse(body);
  } catch {
    // A proxy's error page is not JSON; its status suffices.
  }
  if (!answer.ok) throw new Refused(answer.status, value?.error ?? `the server answered ${answer.status}`);
  return value;
}

/** Seconds to wait before attempt number `tries` (from 1): 1, 2, 4, 8, then 15. */
export const pause = (tries) => Math.min(SLOWEST_S, 2 ** (tries - 1));

/** Calls `onEvent(kind, value)` and `onLink(link)`; `since()` gives the last known round. */
export class Events {
  constructor({ since, onEvent, onLink }) {
    Object.assign(this, { _since: since, _onEvent: onEvent, _onLink: onLink });
    this._source = null;
    this._timer = null;
    this._tries = 0;
  }

  /** Connect now, also while waiting for the next attempt. */
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

  /** Close the connection, or stop waiting for the next attempt. */
  close() {
    clearTimeout(this._timer);
    this._source?.close();
    this._source = null;
  }

  _listen() {
    const since = this._since();
    const source = new EventSource(since === null ? "api/stream" : `api/stream?since=${since}`);
    this._source = source;
    for (const kind of KINDS) source.addEventListener(kind, (event) => this._received(kind, event));
    source.addEventListener("end", (event) => {
      this.close();
      this._onEvent("end", JSON.parse(event.data));
    });
    source.onerror = () => this._lost(source);
  }

  _received(kind, event) {
    this._tries = 0;
    this._onLink({ state: "live" });
    this._onEvent(kind, JSON.parse(event.data));
  }

  async _lost(source) {
    if (source !== this._source) return;
    this.close();
    try {
      // The browser does not report why a stream ended; a request does.
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
