/** One device: its alerts, what the inventory knows of it, its last day, rollouts, and what it answers when it is asked. */

import { RoundChart, TIMES } from "../charts.js";
import { el, mark, write } from "../dom.js";
import { bytesText, celsiusText, momentText, ratioText, UNKNOWN } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { alertListing } from "./alert_listing.js";
import { DetailView, LogLines, part } from "./detail_view.js";
import { labelList, mark as stateMark, stateOf } from "./device_parts.js";
import { Listing } from "./listing.js";
import { withdrawButton } from "./rollouts_view.js";
import { ago, until } from "./times.js";

const LEVELS = { failure: "bad", warning: "warn", ok: "good" };
const warm = (min, max) => [Math.min(20, min - 2), Math.max(60, max + 2)];

/** The page of the device in the address. */
export class DeviceView extends DetailView {
  constructor(session) {
    const more = { done: (result) => this.done(result) };
    const lists = {
      alerts: alertListing(session, more, { about: false }),
      rollouts: new Listing({ caption: "Rollouts to this device, the newest first", id: ({ id }) => id, columns: rolloutColumns(session, more) }),
      doctor: new Listing({ caption: "Checks of the device", id: (finding) => JSON.stringify(finding), columns: [
        { head: "Check", cell: ({ check }) => check },
        { head: "Result", cell: ({ level }) => stateMark(LEVELS[level] ?? "rest", level) },
        { head: "What", kind: "value-cell", cell: ({ detail }) => detail || UNKNOWN },
        { head: "Remedy", kind: "value-cell", cell: ({ remedy }) => remedy || UNKNOWN },
      ] }),
    };
    const log = new LogLines("Last lines of the device's log");
    const charts = {
      celsius: new RoundChart({ title: "Temperature", format: celsiusText, bounds: warm, along: TIMES }),
      disk_free_bytes: new RoundChart({ title: "Free disk", format: bytesText, along: TIMES }),
    };
    const asked = { doctor: el("p", { class: "note", role: "status" }), logs: el("p", { class: "note", role: "status" }) };
    const parts = {
      alerts: part("device-alerts-title", "Alerts", lists.alerts.element),
      curves: part("device-curves-title", "The last day", el("div", { class: "charts" }, Object.values(charts).map(({ element }) => element))),
      rollouts: part("device-rollouts-title", "Rollouts", lists.rollouts.element),
      doctor: part("device-doctor-title", "Doctor", asked.doctor, lists.doctor.element),
      logs: part("device-logs-title", "Log", asked.logs, log.element),
    };
    const { alerts, ...rest } = parts;
    super({ session, id: "device-title", back: { href: "#devices", text: "All devices" }, more: Object.values(rest) });
    this.element.insertBefore(alerts, this._facts);
    Object.assign(this, { _lists: lists, _log: log, _charts: charts, _asked: asked, _parts: parts });
  }

  name({ path: [, device] }) {
    return device;
  }

  path() {
    return `api/device/${this.route.path.map(encodeURIComponent).join("/")}`;
  }

  shown(device) {
    const { curves = { at: [] }, answers = {} } = device ?? {};
    for (const name of ["alerts", "rollouts"]) {
      const federation = device?.federation;
      this._lists[name].show((device?.[name] ?? []).map((row) => ({ federation, ...row })));
      mark(this._parts[name], "hidden", !device?.[name].length);
    }
    mark(this._parts.curves, "hidden", !curves.at.length);
    for (const [key, chart] of Object.entries(this._charts)) chart.show(curves.at, [{ key, label: chart.title, style: 0 }], { [key]: curves[key] ?? [] });
    for (const name of ["doctor", "logs"]) {
      mark(this._parts[name], "hidden", !answers[name]);
      const zone = name === "logs" && answers.logs?.lines ? " Times are UTC by the device's clock." : "";
      write(this._asked[name], answers[name] ? askedText(answers[name]) + zone : "");
    }
    this._lists.doctor.show(answers.doctor?.findings ?? []);
    const lines = answers.logs?.lines ?? [];
    mark(this._log.element, "hidden", !lines.length);
    this._log.show(lines);
  }

  buttonsOf(device) {
    const given = { federation: device.federation, device: device.device };
    const more = { done: (result) => this.done(result), subject: device.device };
    const button = (name, further = {}) => actionButton(this.session, name, given, { ...more, ...further });
    return [
      button("devices.doctor"), button("devices.logs"), button("devices.label"), button("devices.note", { values: { note: device.note } }),
      device.revoked_at === null ? button("devices.revoke") : null,
    ];
  }

  factsOf(device) {
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
      ...Object.entries(device.shown),
      ...(device.broken_files ? [["Broken files", device.broken_files]] : []),
      ["Temperature", celsiusText(board.celsius)],
      ["Battery", ratioText(board.battery)],
      ["Free disk", bytesText(device.disk_free_bytes)],
      ...(device.revoked_at === null ? [] : [["Revoked", momentText(device.revoked_at)]]),
      ...(device.removed_at === null ? [] : [["Removed", momentText(device.removed_at)]]),
      ...(device.replaces ? [["Replaces", device.replaces]] : []),
    ];
  }
}

function rolloutColumns(session, more) {
  return [
    { head: "Version", kind: "value-cell", cell: ({ version }) => version },
    { head: "Rollout", cell: ({ phase }) => phase },
    { head: "Here", cell: ({ status }) => status },
    { head: "Model before", kind: "value-cell", cell: ({ before }) => before || UNKNOWN },
    { head: "With it", kind: "value-cell", cell: ({ after }) => after || UNKNOWN },
    { head: "When", cell: ({ at }) => ago(at) },
    { head: "Why", kind: "value-cell", cell: ({ why }) => why || UNKNOWN },
    ...(session.action("rollouts.withdraw") ? [{ head: "Change", cell: (row) => el("div", { class: "acts" }, withdrawButton(session, row, { ...more, subject: row.version })) }] : []),
  ];
}

/** When a device was asked and by whom, and why it has not answered. */
function askedText({ asked_by: who, asked_at: at, status, why, findings }) {
  const asked = `Asked by ${who.replace(/^[a-z]+:/, "")} at ${momentText(at)}`;
  if (status === "waiting") return `${asked}; waiting for the answer.`;
  if (status !== "answered") return `${asked}: ${why}.`;
  return findings?.length === 0 ? `${asked}; its answer has no findings.` : `${asked}.`;
}
