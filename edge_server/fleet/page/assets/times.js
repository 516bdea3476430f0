/** Times that are written again as they pass: ages, and how long a certificate lasts. */

import { el, mark, write } from "../dom.js";
import { agoText, momentText, UNKNOWN } from "../units.js";

const DAY_S = 86400;
const SOON_S = 30 * DAY_S;
let clock = 0;

/** The server's time, by its own clock. */
export const setServerTime = (now) => (clock = now - Date.now() / 1000);
const serverNow = () => Date.now() / 1000 + clock;

/** How long ago that was; `UNKNOWN` for null. */
export const ago = (at) => timed("ago", at);

/** How long that lasts: days, or that it is over. */
export const until = (at) => timed("until", at);

/** Write all times below an element again. */
export function tick(element) {
  for (const time of element.querySelectorAll("[data-time]")) fill(time, time.dataset.time, Number(time.dataset.at));
}

function timed(kind, at) {
  if (at === null || at === undefined) return UNKNOWN;
  const element = el("time", { "data-time": kind, "data-at": at, title: momentText(at) });
  fill(element, kind, at);
  return element;
}

function fill(element, kind, at) {
  const left = at - serverNow();
  if (kind === "ago") write(element, agoText(-left));
  else {
    mark(element, "class", left <= 0 ? "over" : left < SOON_S ? "late" : null);
    write(element, untilText(left));
  }
}

function untilText(left) {
  if (left <= 0) return `ended ${agoText(-left)}`;
  if (left < DAY_S) return `${Math.ceil(left / 3600)} h`;
  return `${Math.floor(left / DAY_S)} d`;
}
