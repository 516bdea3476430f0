/** The banner above the views: connection problems, or the end of the run. */

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

  /** Draw the message, or hide the banner. */
  show(state) {
    const text = bannerText(state);
    mark(this._element, "hidden", text === "");
    mark(this._element, "data-state", state.link.state);
    mark(this._button, "hidden", state.link.state === "ended");
    write(this._text, text);
    this.tick(state);
  }

  /** Count down to the next try. */
  tick({ link }) {
    const left = link.state === "lost" ? Math.max(0, Math.ceil((link.retryAt - Date.now()) / 1000)) : null;
    write(this._left, left === null ? "" : left > 0 ? `Reconnecting in ${some(left, "second")}.` : "Reconnecting.");
  }
}

function bannerText({ link, run, watched }) {
  if (link.state === "lost") return run ? "Connection lost: the data shown may be out of date." : "The server does not answer.";
  if (link.state === "failed") return `The server refused the request: ${link.message}`;
  if (link.state === "ended" && watched) {
    return `The run has ended (${run.outcome}). After the server has stopped, edge-server dashboard RUN shows the run folder.`;
  }
  return "";
}
