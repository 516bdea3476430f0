/** The run: its progress, results and costs. */

import { fromZero, RoundChart, shareBounds } from "./charts.js";
import { ClassTable } from "./class_table.js";
import { DataTables, KeptFeatures } from "./data_tables.js";
import { el, emptyState, mark, write } from "./dom.js";
import { bestOf, figureText, measureOf, metricOf, nameOf, testedOf } from "./figures.js";
import { serverNow } from "./store.js";
import { RoundsTable } from "./rounds_table.js";
import { RolloutsTable } from "./rollouts_table.js";
import { TiersTable } from "./tiers_table.js";
import { bytesText, clockText, countText, durationText, lossText, momentText, ofRounds, percentText, ratioText, scoreText, some } from "./units.js";

const LAST_NOTES = 12;
const AT_REST = new Set(["offline", "quarantined", "incompatible"]);
const relative = (cost) => (cost === null || cost === undefined ? "-" : percentText(cost));

/** The section and its `show(state)`, `tick(state, now)`. */
export class RunView {
  constructor() {
    this._waiting = el("div", { hidden: true });
    this._charts = makeCharts();
    this._rounds = new RoundsTable();
    this._data = new DataTables();
    this._kept = new KeptFeatures();
    this._tiers = new TiersTable();
    this._classes = new ClassTable();
    this._rollouts = new RolloutsTable();
    this._parts = makeHead();
    this._tiles = el("dl", { class: "tiles" });
    this._notes = new Lines("Notes");
    this._warnings = new Lines("Warnings");
    this._curves = el("section", { "aria-label": "Curves" }, el("div", { class: "grid" }, this._charts.map(({ chart }) => chart.element)));
    this.element = el("section", { class: "view", "aria-labelledby": "run-title" }, this._parts.head, this._warnings.element, this._tiles,
      this._waiting, this._curves, this._data.element, this._kept.element, this._rollouts.element, this._tiers.element, this._classes.element, this._rounds.element, this._notes.element);
  }

  /** Draw the run. */
  show(state) {
    const { run, history } = state;
    if (!run) return;
    this._head(run, history);
    this._tell(state);
    mark(this._waiting, "hidden", history.length > 0);
    mark(this._curves, "hidden", history.length === 0);
    if (!history.length) this._waiting.replaceChildren(firstRound(run, state.fleet?.size ?? 0));
    const rounds = history.map(({ round }) => round);
    const wanted = this._charts.filter((one) => !one.wanted || one.wanted(run));
    // An odd number of charts would leave a gap next to the last one.
    mark(this._charts[0].chart.element, "data-wide", wanted.length % 2 === 1);
    for (const one of this._charts) {
      const { chart, columns, leads } = one;
      mark(chart.element, "hidden", !wanted.includes(one));
      if (leads) chart.measure(measureOf(metricOf(run)));
      const series = columns(history, tiersOf(state.fleet), metricOf(run));
      chart.show(rounds, series, Object.fromEntries(series.map(({ key, of }) => [key, history.map(of)])));
    }
    this._data.show(run);
    this._kept.show(run);
    this._tiers.show(run);
    this._classes.show(run);
    this._rounds.show(history, metricOf(run));
    this._notes.show((run.notes ?? []).slice(-LAST_NOTES).reverse());
    this._warnings.show(run.warnings ?? []);
  }

  /** Update the clocks. */
  tick(state, now) {
    const { run } = state;
    if (!run) return;
    this._rollouts.look();
    const at = serverNow(state, now);
    const counting = run.live && !run.outcome && run.deadline_at !== null && run.deadline_at !== undefined;
    mark(this._parts.deadline, "hidden", !counting);
    if (counting) write(this._parts.left, clockText(run.deadline_at - at));
  }

  _head(run, history) {
    const closed = history.at(-1)?.round ?? 0;
    const { title, phase, progress, facts, trained, parts, detail } = this._parts;
    write(title, run.outcome ? `${some(closed, "round")}${ofRounds(run)}` : `Round ${run.round}${ofRounds(run)}`);
    write(phase, run.outcome ?? (run.waits_for ? `${run.phase} for ${run.waits_for}` : run.phase ?? ""));
    mark(phase, "data-state", run.outcome ?? "going");
    mark(progress, "hidden", !run.rounds);
    progress.max = Math.max(1, run.rounds);
    progress.value = closed;
    progress.textContent = `${closed}${ofRounds(run)} rounds closed`;
    write(facts, describe(run));
    write(trained, (run.trained ?? []).join(" · "));
    mark(trained, "hidden", !trained.textContent);
    write(parts, run.live ? describeParts(run.parts) : "");
    mark(parts, "hidden", !parts.textContent);
    write(detail, run.no_link ? `No connection to the broker: ${run.no_link}` : (run.detail ?? ""));
  }

  _tell({ run, history, fleet }) {
    const last = history.at(-1);
    const sum = (key) => history.reduce((total, line) => total + (line[key] ?? 0), 0);
    const metric = metricOf(run);
    const newest = history.findLast((line) => testedOf(metric, line) !== null);
    const best = bestOf(metric, history);
    const figure = (of) => figureText(metric, of ? testedOf(metric, of) : null);
    const costs = history.map(({ cost_relative: cost }) => cost).filter((cost) => cost !== null && cost !== undefined);
    const here = [...(fleet?.values() ?? [])].filter(({ state }) => !AT_REST.has(state)).length;
    const mean = costs.length ? costs.reduce((a, b) => a + b, 0) / costs.length : null;
    const tiles = [
      [capital(nameOf(metric)), figure(newest), [best ? `best ${figure(best)} in round ${best.round}` : "not measured yet", metric.naive].filter(Boolean).join(" · ")],
      ["Devices", fleet ? (run.live ? `${countText(here)} of ${countText(fleet.size)}` : countText(fleet.size)) : "-", run.live ? "connected" : "known"],
      ["Server received", bytesText(last ? run.received_bytes : null), last ? `${bytesText(last.uplink_bytes)} in round ${last.round}` : "in all rounds"],
      ["Server sent", bytesText(last ? run.sent_bytes : null), last ? `${bytesText(last.downlink_bytes)} in round ${last.round}` : "in all rounds"],
      ["Relative cost", relative(mean), "of a full exchange"],
      ["Time per round", durationText(last?.duration_s), last ? `${durationText(sum("duration_s"))} in all rounds` : "no round has closed"],
    ];
    if (run.privacy) tiles.push(["Privacy spent", `ε ${scoreText(run.privacy.epsilon)}`, `at δ ${scoreText(run.privacy.delta)}`]);
    if (this._tiles.childElementCount !== tiles.length) this._tiles.replaceChildren(...tiles.map(tile));
    tiles.forEach((texts, place) => [...this._tiles.children[place].children].forEach((part, at) => write(part, texts[at])));
  }
}

/** A titled list of texts, hidden while it is empty. */
class Lines {
  constructor(title) {
    this._list = el("ol", { class: "notes" });
    this.element = el("section", { hidden: true }, el("h3", { text: title }), this._list);
  }

  show(texts) {
    mark(this.element, "hidden", texts.length === 0);
    if ([...this._list.children].map((item) => item.textContent).join("\n") === texts.join("\n")) return;
    this._list.replaceChildren(...texts.map((text) => el("li", { text })));
  }
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

function makeHead() {
  const parts = {
    title: el("h2", { id: "run-title" }),
    phase: el("span", { class: "phase" }),
    left: el("strong", { class: "value" }),
    progress: el("progress", { "aria-label": "Rounds closed" }),
    facts: el("p", { class: "note" }),
    trained: el("p", { class: "note" }),
    parts: el("p", { class: "note" }),
    detail: el("p", { class: "detail" }),
  };
  parts.deadline = el("p", { class: "deadline", hidden: true }, "deadline in ", parts.left);
  parts.head = el("div", { class: "head" }, el("div", { class: "line" }, parts.title, parts.phase, parts.deadline),
    parts.progress, parts.facts, parts.trained, parts.parts, parts.detail);
  return parts;
}

const tile = () => el("div", { class: "tile" }, el("dt"), el("dd", { class: "value" }), el("dd", { class: "note" }));

function describe(run) {
  const parts = [run.recipe, run.model, run.parameters ? `${countText(run.parameters)} parameters` : null,
    run.seed === null || run.seed === undefined ? null : `seed ${run.seed}`,
    run.began_at ? `began ${momentText(run.began_at)}` : null, run.virtual ? "simulated, times are virtual" : null];
  return parts.filter(Boolean).join(" · ");
}

/** What serves the run besides the server's own process. */
function describeParts(parts) {
  if (!parts) return "";
  return [parts.standby ? `standby on ${parts.standby}, up to date` : null,
    parts.epoch > 1 ? `epoch ${parts.epoch}` : null,
    ...Object.entries(parts.gateways).map(([site, there]) => `site ${site}${there ? "" : ": no gateway"}`),
    parts.receivers ? some(parts.receivers, "receiver") : null,
    parts.aggregators ? some(parts.aggregators, "aggregator") : null,
  ].filter(Boolean).join(" · ");
}

function firstRound(run, devices) {
  if (run.outcome) return emptyState("No round was closed", "The run ended during its first round.");
  if (!devices) {
    const command = `edge-client run --broker ADDRESS --federation ${run.federation} --device-id NAME`;
    return emptyState("Waiting for devices", "No device has joined yet. To start one, run on the device:", el("p", {}, el("code", { text: command })));
  }
  return emptyState("The first round is under way", "Curves appear after it has closed; the fleet shows what each device is doing.");
}

/** The tiers that some device has; null while no device is known. */
export const tiersOf = (fleet) => (fleet?.size ? new Set([...fleet.values()].map(({ tier }) => tier)) : null);

function makeCharts() {
  const line = (key, label, style) => ({ key, label, style, of: (record) => record[key] ?? null });
  const tiers = (history, had, { name }) => {
    const numbers = new Set(history.flatMap(({ tier_metrics: tiers }) => Object.keys(tiers ?? {})));
    return [...numbers].filter((tier) => !had || had.has(Number(tier))).sort((a, b) => a - b).map((tier) => ({
      key: `tier-${tier}`, label: `tier ${tier}`, style: Number(tier), of: (record) => record.tier_metrics?.[tier]?.[name] ?? null,
    }));
  };
  return [
    {
      leads: true,
      chart: new RoundChart({ title: "Accuracy", note: "The whole model and each tier's sub-model on the server's test data, and devices on their own", format: percentText, tick: ratioText, bounds: shareBounds }),
      columns: (history, had, metric) => [
        { ...line("test", "whole model", 0), of: (record) => record.test_metrics?.[metric.name] ?? null }, ...tiers(history, had, metric),
        { ...line("devices", "devices' own data", 7), of: (record) => record.client_metrics?.[metric.name] ?? null },
        { ...line("own", "devices' own models", 6), of: (record) => record.own_metrics?.[metric.name] ?? null },
      ],
    },
    {
      chart: new RoundChart({ title: "Loss", note: "Mean per example", format: lossText, tick: scoreText }),
      columns: () => [line("test_loss", "test", 0), line("train_loss", "training", 1)],
    },
    {
      chart: new RoundChart({ title: "Bytes per round", note: "Sent and received by the server; a broadcast counts once", format: bytesText }),
      columns: () => [line("downlink_bytes", "sent", 1), line("uplink_bytes", "received", 2)],
    },
    {
      chart: new RoundChart({ title: "Time per round", format: durationText, tick: (seconds) => `${scoreText(seconds)} s`, bars: true }),
      columns: () => [line("duration_s", "duration", 1)],
    },
    {
      chart: new RoundChart({ title: "Relative cost", note: "Bytes of a round relative to every device receiving and sending the full model", format: percentText, tick: ratioText }),
      columns: () => [line("cost_relative", "cost", 3)],
    },
    {
      chart: new RoundChart({ title: "Privacy spent", note: "ε of differential privacy over all rounds so far", format: scoreText, bounds: fromZero }),
      columns: () => [line("epsilon", "ε", 4)],
      wanted: (run) => Boolean(run.privacy),
    },
  ];
}
