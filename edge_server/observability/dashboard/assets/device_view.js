/** One device: its properties, its current state, its rounds with reasons, its events. */

import { AnswerView } from "./answer_view.js";
import { DeviceWhy } from "./device_why.js";
import { EventFeed, EventTable } from "./event_table.js";
import { el } from "./dom.js";

/** The page of the device in the address. */
export class DeviceView extends AnswerView {
  constructor() {
    const table = new EventTable({ devices: false });
    const events = el("section", { "aria-labelledby": "device-events" }, el("h3", { id: "device-events", text: "Events" }), table.element);
    super({ id: "device-title", back: "All devices", to: "#fleet", panel: new DeviceWhy(), more: [events] });
    Object.assign(this, { _table: table, _feed: null });
  }

  title([name]) {
    return name;
  }

  unknown([name]) {
    return `${name} is not a device of this run`;
  }

  paths([name]) {
    return [`api/device/${encodeURIComponent(name)}`];
  }

  go(route) {
    this._feed = new EventFeed({ device: route.path[0] });
    this._table.show([]);
    super.go(route);
  }

  show(state, now) {
    super.show(state, now);
    this._panel.now(state.fleet?.get(this._path[0]), state, now);
    this._follow(this._feed, state.run?.events ?? 0);
  }

  answered([device]) {
    this._panel.show(device);
  }

  async _follow(feed, last) {
    if (feed && (await feed.follow(last)) && feed === this._feed) this._table.show(feed.events);
  }
}
