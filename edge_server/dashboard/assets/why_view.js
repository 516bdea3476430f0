/** Why: of a device, why it was chosen or refused in each round; of a channel, why it was cut. */

import { ChannelWhy } from "./channel_why.js";
import { DeviceWhy } from "./device_why.js";
import { choices, el, emptyState, field, mark } from "./dom.js";
import { ask } from "./events.js";
import { channelRoute, deviceRoute } from "./router.js";

const SOONEST_MS = 1500;

/** The section: two questions, and the answer to the one in the address. */
export class WhyView {
  constructor() {
    Object.assign(this, { _path: [], _asked: {}, _turn: 0, _groups: [] });
    [this._devices, this._channel] = [new DeviceWhy(), new ChannelWhy()];
    this._none = emptyState("Ask about a device or a channel", "Choose one here, or click on a device in the fleet or a channel in the model.");
    this._said = el("div", { "aria-live": "polite" });
    this.element = el("section", { class: "view", "aria-labelledby": "why-title" }, el("h2", { id: "why-title", text: "Why" }),
      el("div", { class: "questions" }, this._deviceForm(), this._channelForm()), this._none, this._said, this._devices.element, this._channel.element);
  }

  /** Ask what the address asks. */
  go(route) {
    this._path = route.path;
    this._asked = {};
    const [kind, name, index] = route.path;
    mark(this._none, "hidden", Boolean(name));
    mark(this._devices.element, "hidden", true);
    mark(this._channel.element, "hidden", true);
    this._said.replaceChildren();
    if (kind === "device") this._name.value = name ?? "";
    if (kind === "channel") this._index.value = index ?? "0";
    if (this._state) this.show(this._state, Date.now() / 1000);
  }

  /** Ask again if the round is another one than last time. */
  show(state, now) {
    this._state = state;
    const [kind, name] = this._path;
    this._offer(state);
    if (kind === "device") this._devices.now(state.fleet?.get(name), state, now);
    const at = `${state.run?.run} ${state.run?.round} ${state.run?.phase} ${state.history.length}`;
    if (!name || !state.run || this._asked.at === at || now * 1000 - (this._asked.when ?? 0) < SOONEST_MS) return;
    this._asked = { at, when: now * 1000 };
    this._load();
  }

  /** What was put off is asked for later. */
  tick(state, now) {
    this.show(state, now);
  }

  async _load() {
    const turn = (this._turn += 1);
    const [kind, name, index] = this._path;
    const device = kind === "device";
    const path = device ? `api/device/${encodeURIComponent(name)}` : `api/channel/${encodeURIComponent(name)}/${encodeURIComponent(index ?? 0)}`;
    try {
      const [answer, model] = await Promise.all([ask(path), device && this._groups.length ? null : ask("api/model")]);
      if (turn !== this._turn) return;
      if (model) this._know(model.groups ?? []);
      this._draw(device, answer);
    } catch (error) {
      if (turn === this._turn) this._said.replaceChildren(emptyState(device ? `Nothing is known of ${name}` : "Nothing is known of that channel", error.message));
    }
  }

  _draw(device, answer) {
    this._said.replaceChildren();
    mark(this._devices.element, "hidden", !device);
    mark(this._channel.element, "hidden", device);
    if (device) this._devices.show(answer);
    else this._channel.show(answer, this._groups.find(({ group }) => group === answer.group));
  }

  _know(groups) {
    this._groups = groups;
    choices(this._group, groups.map(({ group }) => [group, group]));
    if (this._path[0] === "channel") this._group.value = this._path[1];
  }

  _offer(state) {
    const names = [...(state.fleet?.keys() ?? [])];
    if (names.length === this._offered) return;
    this._offered = names.length;
    this._known.replaceChildren(...names.sort().map((value) => el("option", { value })));
  }

  _deviceForm() {
    this._known = el("datalist", { id: "known-devices" });
    this._name = el("input", { list: "known-devices", autocomplete: "off", spellcheck: "false", required: true });
    const asked = (event) => {
      event.preventDefault();
      location.hash = deviceRoute(this._name.value.trim());
    };
    return el("form", { class: "tools card", on: { submit: asked } }, field("Device", this._name), this._known, el("button", { text: "Why this device" }));
  }

  _channelForm() {
    this._group = el("select");
    this._index = el("input", { type: "number", min: 0, step: 1, value: 0, inputmode: "numeric" });
    const asked = (event) => {
      event.preventDefault();
      if (this._group.value) location.hash = channelRoute(this._group.value, this._index.value);
    };
    // The groups are asked for when somebody is about to choose one.
    this._group.addEventListener("focus", async () => {
      if (!this._groups.length) this._know((await ask("api/model").catch(() => ({}))).groups ?? []);
    });
    return el("form", { class: "tools card", on: { submit: asked } }, field("Channel group", this._group), field("Channel", this._index), el("button", { text: "Why this channel" }));
  }
}
