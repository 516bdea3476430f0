/** What stands above the views while something is wrong with the connection, or the run is over. */

import { el, mark, write } from "./dom.js";
import { some } from "./units.js";

/** The banner; `retry()` connects at once. */
export class Banner {
  constructor(element, retry) {
    this._element = element;
    this._text = el("p", { role: "status" });
    this._left = el("span", { "aria-hidden": "true" });
    this._button = el("button", { type: "button", class: "quiet", text: "Try now", on: { click: retry } });
    element.append(this._text, this._left, this._button);
  }

  /** Draw what is wrong, or nothing. */
  show(state) {
    const text = said(state);
    mark(this._element, "hidden", text === "");
    mark(this._element, "data-state", state.link.state);
    mark(this._button, "hidden", state.link.state === "ended");
    write(this._text, text);
    this.tick(state);
  }

  /** Count down to the next try. */
  tick({ link }) {
    const left = link.state === "lost" ? Math.max(0, Math.ceil((link.retryAt - Date.now()) / 1000)) : null;
    write(this._left, left === null ? "" : left > 0 ? `Next try in ${some(left, "second")}.` : "Trying now.");
  }
}

function said({ link, run, watched }) {
  if (link.state === "lost") return run ? "Connection lost: what is shown may be old." : "The server does not answer.";
  if (link.state === "failed") return `The server refuses: ${link.message}`;
  if (link.state === "ended" && watched) {
    return `The run has ended (${run.outcome}). Once its server is gone, edge-server dashboard shows its folder.`;
  }
  return "";
}
