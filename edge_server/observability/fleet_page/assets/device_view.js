/** One device: what the inventory knows of it, and what may be changed. */

import { el, write } from "../dom.js";
import { bytesText, celsiusText, momentText, ratioText, UNKNOWN } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { labelList, stateOf } from "./device_parts.js";
import { ListView } from "./list_view.js";
import { ago, until } from "./times.js";

/** The page of the device in the address. */
export class DeviceView extends ListView {
  constructor(session) {
    const acts = el("div", { class: "acts" });
    const facts = el("dl", { class: "card facts" });
    const back = el("p", {}, el("a", { href: "#devices", text: "All devices" }));
    super({ session, id: "device-title", title: "", none: [""], head: [acts], more: [facts] });
    this.element.prepend(back);
    Object.assign(this, { _acts: acts, _facts: facts, _made: "" });
  }

  go(route) {
    [this._federation, this._device] = route.path;
    this._made = "";
    write(this.heading, this._device ?? "");
    this._acts.replaceChildren();
    this._facts.replaceChildren();
    super.go(route);
  }

  path() {
    return `api/device/${encodeURIComponent(this._federation)}/${encodeURIComponent(this._device)}`;
  }

  answered(device) {
    const { now, ...known } = device;
    const made = JSON.stringify(known);
    if (made === this._made) return;
    const focused = this._acts.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    this._made = made;
    this._facts.replaceChildren(...factsOf(device).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", {}, value instanceof Node ? value : String(value)))));
    this._acts.replaceChildren(...this._buttons(device));
    if (focused) this._acts.querySelector(`[data-action="${focused}"]`)?.focus();
  }

  _buttons(device) {
    const given = { federation: device.federation, device: device.device };
    const more = { done: ({ said }) => (this.session.say(said), this.load()), subject: device.device };
    const revoke = device.revoked_at === null ? actionButton(this.session, "devices.revoke", given, more) : null;
    return [actionButton(this.session, "devices.label", given, more), actionButton(this.session, "devices.note", given, { ...more, values: { note: device.note } }), revoke]
      .filter((button) => button !== null);
  }
}

function factsOf(device) {
  const { board } = device;
  return [
    ["State", stateOf(device.state)],
    ["Last seen", ago(device.seen_at)],
    ["Federation", device.federation],
    ["Labels (yours are framed)", labelList(device.labels, device.own_labels)],
    ["Note", device.note || UNKNOWN],
    ["Site", device.site || UNKNOWN],
    ["Certificate lasts", until(device.certificate_until)],
    ["Enrolled", momentText(device.enrolled_at)],
    ["Board", device.machine || UNKNOWN],
    ["Versions", Object.entries(device.versions).map(([name, version]) => `${name} ${version}`).join(", ") || UNKNOWN],
    ["Model", device.model || UNKNOWN],
    ["Data", device.drifts ? "drifts from what it was trained on" : UNKNOWN],
    ...(device.broken_files ? [["Broken files", device.broken_files]] : []),
    ["Temperature", celsiusText(board.celsius)],
    ["Battery", ratioText(board.battery)],
    ["Free disk", bytesText(device.disk_free_bytes)],
    ...(device.revoked_at === null ? [] : [["Revoked", momentText(device.revoked_at)]]),
    ...(device.removed_at === null ? [] : [["Removed", momentText(device.removed_at)]]),
    ...(device.replaces ? [["Replaces", device.replaces]] : []),
  ];
}
