/** The columns of the fleet: heads, sort values and cells. */

import { el, mark, write } from "./dom.js";
import { deviceRoute } from "./router.js";
import { kindOf, orderOf, refusedText, stateText, trained } from "./states.js";
import { textColumn } from "./table.js";
import { agoText, bytesText, celsiusText, countText, lossText, momentText, ratioText, scoreText, UNKNOWN } from "./units.js";

const number = { number: true, downFirst: true };

/** All columns; `now()` is the server's time or null where the run is over. */
export function fleetColumns(now) {
  const seen = ({ seen_at: at }) => (now() === null ? momentText(at) : agoText(at && now() - at));
  return [
    { key: "device", head: "Device", card: "wide", width: 160, value: ({ device }) => device, fill: fillDevice },
    { key: "state", head: "State", card: "wide", width: 168, value: (row) => orderOf(row.state) + (1 - (trained(row) ?? 0)) / 2, fill: fillState },
    textColumn({ key: "tier", head: "Tier", card: true, width: 54, number: true, value: ({ tier }) => tier }, ({ tier }) => String(tier ?? UNKNOWN)),
    { key: "board", head: "Board", card: "wide", width: 144, value: ({ board }) => board || null, fill: fillBoard },
    textColumn({ key: "labels", head: "Labels", card: "wide", width: 160, title: "Labels that the operator and the device have set; the search field takes site=barn and role!=camera", value: (row) => labelsText(row) || null }, (row) => labelsText(row) || UNKNOWN),
    textColumn({ key: "seen", head: "Last seen", card: "wide", width: 252, number: true, value: ({ seen_at: at }) => at && -at }, seen),
    textColumn({ key: "examples", head: "Examples", title: "Examples that the device trains on, and how many are new to it", width: 150, ...number, value: ({ examples }) => examples ?? null }, dataText),
    textColumn({ key: "attention", head: "Attention", title: "The device's selection score (AdaFL)", width: 90, ...number, value: ({ attention }) => attention }, ({ attention }) => scoreText(attention)),
    textColumn({ key: "ratio", head: "Pruned", width: 74, ...number, value: ({ ratio }) => ratio }, ({ ratio }) => ratioText(ratio)),
    textColumn({ key: "rounds", head: "Rounds", card: true, title: "Rounds in which its update counted", width: 74, ...number, value: ({ rounds }) => rounds }, ({ rounds }) => countText(rounds)),
    { key: "refusals", head: "Refusals", card: "wide", width: 140, ...number, value: ({ refusals }) => refusals, fill: fillRefusals },
    textColumn({ key: "celsius", head: "Temp.", title: "Temperature of the board", width: 76, ...number, value: ({ celsius }) => celsius }, ({ celsius }) => celsiusText(celsius)),
    textColumn({ key: "memory", head: "Memory", title: "Memory used by the device's process", width: 78, ...number, value: ({ memory_bytes: bytes }) => bytes }, ({ memory_bytes: bytes }) => bytesText(bytes)),
    textColumn({ key: "battery", head: "Battery", width: 76, ...number, value: ({ battery }) => battery }, ({ battery }) => ratioText(battery)),
    textColumn({ key: "loss", head: "Loss", title: "Training loss in this round", width: 76, ...number, value: ({ loss }) => loss }, ({ loss }) => lossText(loss)),
    textColumn({ key: "free", head: "Free", title: "Memory still available to the device's process", width: 84, ...number, value: ({ memory_free_bytes: bytes }) => bytes }, ({ memory_free_bytes: bytes }) => bytesText(bytes)),
    textColumn({ key: "down", head: "Received", card: true, title: "Bytes received over its own link in this run, including broadcasts", width: 92, ...number, value: ({ downlink_bytes: bytes }) => bytes }, ({ downlink_bytes: bytes }) => bytesText(bytes)),
    textColumn({ key: "up", head: "Sent", card: true, title: "Bytes sent over its own link in this run", width: 84, ...number, value: ({ uplink_bytes: bytes }) => bytes }, ({ uplink_bytes: bytes }) => bytesText(bytes)),
  ];
}

/** The labels of a device: `role=camera, site=barn`. */
export function labelsText({ labels }) {
  return Object.entries(labels ?? {}).sort().map(([key, value]) => `${key}=${value}`).join(", ");
}

/** How many examples a device has, how many are new to it, and whether they drift or files are broken. */
export function dataText({ examples, new_examples: added, drift, broken_files: broken }) {
  return [countText(examples), added ? `${countText(added)} new` : "", drift ? "drift" : "", broken ? "broken files" : ""].filter(Boolean).join(", ");
}

function fillDevice(cell, { device }) {
  const link = cell.firstChild ?? cell.appendChild(el("a"));
  write(link, device);
  mark(link, "href", deviceRoute(device));
  mark(link, "title", device);
}

function fillState(cell, row) {
  const state = cell.firstChild ?? cell.appendChild(stateMark());
  const text = stateText(row);
  mark(state, "data-kind", kindOf(row.state));
  write(state.children[1], text);
  mark(state, "title", text);
  const bar = state.children[2];
  const share = trained(row);
  mark(bar, "hidden", share === null);
  mark(bar, "value", share);
}

/** A state's mark, text and progress bar. */
export function stateMark(kind = null, text = "") {
  return el("span", { class: "state", "data-kind": kind }, el("span", { class: "dot", "aria-hidden": "true" }),
    el("span", { class: "words", text }), el("progress", { max: 1, hidden: true, "aria-hidden": "true" }));
}

function fillBoard(cell, { board, accelerator, cores }) {
  write(cell, board || UNKNOWN);
  const more = [board, cores ? `${cores} cores` : "", accelerator].filter(Boolean).join(", ");
  mark(cell, "title", more || null);
}

function fillRefusals(cell, { refusals, refused }) {
  const reasons = refusedText(refused);
  write(cell, reasons || countText(refusals ?? 0));
  mark(cell, "title", reasons || null);
}
