/** A device: its properties, its current state, and the outcome of each round. */

import { el, emptyState, mark, plainTable, write } from "./dom.js";
import { dataText, labelsText, stateMark } from "./fleet_columns.js";
import { kindOf, refusedText, stateText } from "./states.js";
import { serverNow } from "./store.js";
import { agoText, bytesText, celsiusText, countText, momentText, msText, percentText, ratioText, scoreText } from "./units.js";

const KINDS = { counted: "good", refused: "bad", dropped: "warn", "under way": "busy", "not chosen": "rest" };
const SIGNS = { counted: "✓", refused: "✕", dropped: "!", "under way": "…", "not chosen": "·" };

/** The panel of a device. */
export class DeviceWhy {
  constructor() {
    this._state = el("p");
    this._facts = el("dl", { class: "facts" });
    this._strip = el("ol", { class: "strip", "aria-hidden": "true" });
    this._tally = el("p", { class: "note" });
    this._table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rounds of this device" });
    this._none = emptyState("No round yet", "Each planned round is listed here with the reason why the device was chosen or not.");
    this.element = el("article", { hidden: true }, this._state, this._facts, this._strip, this._tally, this._none, this._table);
  }

  /** Draw its row of the fleet. */
  now(row, state, now) {
    if (!row) return;
    this._row = row;
    const live = state.run?.live && !state.run.outcome;
    const seen = live ? agoText(row.seen_at && serverNow(state, now) - row.seen_at) : momentText(row.seen_at);
    const text = stateText(row);
    if (this._state.textContent !== text) this._state.replaceChildren(stateMark(kindOf(row.state), text));
    this._list([...standing(row), ["Last seen", seen], ...(this._more ?? [])]);
  }

  /** Draw the server's answer about its rounds. */
  show({ device, rounds, delivery, profile, replaces }) {
    this._more = [["Takes the place of", (replaces ?? []).join(", ")], ...ability(profile), ...served(delivery)];
    this._list([...(this._row?.device === device ? standing(this._row) : []), ...this._more]);
    mark(this._none, "hidden", rounds.length > 0);
    mark(this._table, "hidden", rounds.length === 0);
    this._strip.replaceChildren(...rounds.map(box));
    write(this._tally, tally(rounds));
    const heads = ["Round", "Outcome", "Why", "Score", "Weight", "Late by"];
    this._table.replaceChildren(plainTable(`Rounds of ${device}, the latest first`, heads, rounds.toReversed().map(line)));
  }

  _list(facts) {
    const known = facts.filter(([, text]) => text && text !== "-");
    const made = JSON.stringify(known);
    if (made === this._made) return;
    this._made = made;
    this._facts.replaceChildren(...known.map(([name, text]) => el("div", {}, el("dt", { text: name }), el("dd", { text }))));
  }
}

const standing = (row) => [
  ["Tier", `${row.tier}, ${ratioText(row.ratio)} pruned`],
  ["Board", row.board],
  ["Labels", labelsText(row)],
  ["Data", dataText(row)],
  ["Drift", row.drift],
  ["Broken files", row.broken_files],
  ["Attention", scoreText(row.attention)],
  ["Rounds counted", countText(row.rounds)],
  ["Refusals", row.refusals ? `${countText(row.refusals)}: ${refusedText(row.refused)}` : ""],
  ["Not eligible", row.ineligible_because],
  ["Temperature", celsiusText(row.celsius)],
  ["Memory", bytesText(row.memory_bytes)],
  ["Memory free", bytesText(row.memory_free_bytes)],
  ["Battery", ratioText(row.battery)],
  ["Sent over its link", bytesText(row.uplink_bytes)],
  ["Received over its link", bytesText(row.downlink_bytes)],
];

const ability = (profile) => [
  ["Processor", [profile?.processor, profile?.cores ? `${profile.cores} cores` : "", profile?.architecture].filter(Boolean).join(", ")],
  ["Total memory", bytesText(profile?.memory_bytes || null)],
  ["Accelerator", profile?.accelerator],
  ["torch trains on", profile?.trains_on && `${profile.trains_on.kind}, ${profile.trains_on.name}`],
  ["Power", profile?.power],
  ["Link", profile?.link],
];

const served = (delivery) => [
  ...(delivery?.verdict?.served === false ? earlier(delivery.verdict) : []),
  [delivery?.verdict?.served === false ? "New model" : "Serves", delivery?.variant && `${delivery.variant}, ${bytesText(delivery.onnx_bytes)}, ${msText(delivery.latency_ms)}`],
  ["Accuracy", percentText(delivery?.variant_accuracy ?? delivery?.onnx_accuracy)],
  ["Chosen because", delivery?.why],
];

const earlier = ({ earlier: version, earlier_accuracy: accuracy, why }) => [
  ["Serves", `${version}, its earlier model`],
  ["Accuracy of the earlier model", percentText(accuracy)],
  ["Kept because", why],
];

function box({ round, outcome, reason }) {
  const title = `round ${round}: ${outcome}${reason ? `, ${reason}` : ""}`;
  return el("li", { "data-kind": KINDS[outcome] ?? "rest", title, text: SIGNS[outcome] ?? "·" });
}

function line({ round, outcome, because, reason, score, weight, staleness }) {
  const why = [because, reason && `refused: ${reason}`].filter(Boolean).join("; ");
  return [String(round), stateMark(KINDS[outcome] ?? "rest", outcome), why || "-", scoreText(score), scoreText(weight), staleness ? countText(staleness) : "-"];
}

function tally(rounds) {
  const counts = Object.keys(KINDS).map((outcome) => [outcome, rounds.filter((one) => one.outcome === outcome).length]);
  return counts.filter(([, count]) => count).map(([outcome, count]) => `${countText(count)} ${outcome}`).join(" · ");
}
