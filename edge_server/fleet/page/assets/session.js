/** Who is logged in and what they may do; whether the server answers. */

import { mark, write } from "../dom.js";
import { setServerTime } from "./times.js";

/** The session, from `/api/me`. */
export class Session {
  constructor(me, { banner, spoken, changed = () => {} }) {
    Object.assign(this, { me, _banner: banner, _spoken: spoken, _changed: changed });
    this._actions = new Map(me.actions.map((action) => [action.name, action]));
    setServerTime(me.now);
  }

  /** The name without its kind. */
  get name() {
    return this.me.who.replace(/^[a-z]+:/, "");
  }

  /** The action's form, or undefined where the visitor may not do it. */
  action(name) {
    return this._actions.get(name);
  }

  /** Whether a list may be read. */
  reads(name) {
    return this.me.reads.includes(`${name}.read`);
  }

  /** Tell screen readers, and everybody, what was done. */
  say(text) {
    write(this._spoken, text);
    this._changed();
  }

  /** The server has answered. */
  reached({ now }) {
    if (now) setServerTime(now);
    mark(this._banner, "hidden", true);
  }

  /** The server does not answer. */
  lost() {
    write(this._banner, "Connection lost: what is shown may be out of date. Trying again every 5 seconds.");
    mark(this._banner, "hidden", null);
  }
}
