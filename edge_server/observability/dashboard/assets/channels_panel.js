/** The channels of a group: their scores in one round, the tiers that keep them, their scores over rounds. */

import { channelOrder, extremes, keeps, keptCount, ranks, shareOf } from "./channels.js";
import { el, emptyState, field, mark, plainTable, svg, write } from "./dom.js";
import { CellPicture, fillCell, sequential } from "./heatmap.js";
import { channelRoute, routeTo } from "./router.js";
import { colour } from "./theme.js";
import { tierBadge } from "./tiers_table.js";
import { scoreText, some } from "./units.js";

const MEASURES = { attention: "mean attention of the devices", magnitude: "L1 norm of the weights" };
const BAR = 84;
const MAX_HEIGHT = 260;

/** The panel; the address gives the group, the slider the round. */
export class ChannelsPanel {
  constructor() {
    Object.assign(this, { _groups: [], _tiers: [], _asked: "", _at: null, _byScore: false });
    this._list = el("ul", { class: "groups", "aria-label": "Channel groups" });
    this._readout = el("p", { class: "readout", text: "\u00a0" });
    this._slider = el("input", { type: "range", min: 0, step: 1 });
    this._round = el("output", { class: "value" });
    this._order = el("select", {}, el("option", { value: "", text: "channel" }), el("option", { value: "score", text: "score" }));
    this._slider.addEventListener("input", () => this._turn(Number(this._slider.value)));
    this._order.addEventListener("change", () => this._sort(this._order.value === "score"));
    this._title = el("h4");
    this._facts = el("p", { class: "note" });
    this._pictures();
    this._table = el("details", { class: "numbers", on: { toggle: () => this._tabulate() } }, el("summary", { text: "As a table" }));
    this._body = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Channels" });
    this._table.append(this._body);
    this._none = emptyState("No channel has been scored yet", "Scores appear after the first closed round if the strategy scores channels.");
    this._panel = this._layout();
    this.element = el("section", { "aria-labelledby": "channels-title" }, el("h3", { id: "channels-title", text: "Channels" }), this._none, this._panel);
  }

  /** Take the group of that name, once it is known. */
  choose(group) {
    this._asked = group;
    this._draw();
  }

  /** Show the groups; `tiers` are the numbers of all tiers. */
  show(groups, tiers) {
    const followed = this._at === null || this._at === this._last();
    Object.assign(this, { _groups: groups, _tiers: tiers });
    if (followed) this._at = null;
    this._draw();
  }

  _pictures() {
    const onPick = (_, column) => (location.hash = channelRoute(this._group.group, this._places[column]));
    const readout = this._readout;
    this._bars = new CellPicture({ readout, onPick, paint: (...given) => this._bar(...given), read: (_, column) => this._say(column) });
    this._kept = new CellPicture({ readout, onPick, paint: (...given) => this._keep(...given), read: (_, column) => this._say(column) });
    this._moved = new CellPicture({
      readout, onPick, paint: (...given) => this._move(...given), read: (row, column) => this._say(column, row),
    });
  }

  _layout() {
    const heading = (text) => el("h5", { text });
    return el("div", { class: "channels" }, this._list, el("div", { class: "card" }, this._title, this._facts,
      el("div", { class: "tools" }, field("Round", this._slider, this._round), field("Ordered by", this._order)),
      heading("Score of each channel (pale: pruned by some tier)"), this._bars.element, heading("Kept by"), this._kept.element,
      heading("Scores over the rounds, each scaled from its lowest to its highest"), this._moved.element, this._readout, scale(), this._table));
  }

  _draw() {
    mark(this._none, "hidden", this._groups.length > 0);
    mark(this._panel, "hidden", this._groups.length === 0);
    if (!this._groups.length) return;
    this._group = this._groups.find(({ group }) => group === this._asked) ?? this._groups[0];
    this._list.replaceChildren(...this._groups.map((group) => this._entry(group)));
    const { group, rounds } = this._group;
    write(this._title, group);
    this._slider.max = Math.max(0, rounds.length - 1);
    mark(this._slider, "disabled", rounds.length < 2);
    this._turn(Math.min(this._at ?? this._last(), this._last()));
  }

  _last() {
    return Math.max(0, (this._group?.rounds.length ?? 0) - 1);
  }

  _entry(group) {
    const link = el("a", { href: routeTo("model", [group.group]), "aria-current": group === this._group ? "true" : null },
      el("span", { class: "name", text: group.group }), el("span", { class: "note", text: some(group.channels, "channel") }), this._nested(group));
    return el("li", {}, link);
  }

  /** A bar per tier, as long as the share of the channels that it keeps. */
  _nested({ kept, channels }) {
    const said = this._tiers.map((tier) => `tier ${tier} keeps ${keptCount(kept[tier], channels)}`).join(", ");
    return svg("svg", { class: "nested", viewBox: `0 0 100 ${this._tiers.length * 5}`, preserveAspectRatio: "none", role: "img", "aria-label": said },
      this._tiers.map((tier, row) => svg("rect", {
        class: `inks${tier % 8}`, x: 0, y: row * 5, height: 4, width: Math.max(1, (100 * keptCount(kept[tier], channels)) / channels),
      })));
  }

  _turn(at) {
    const { rounds, scores, channels, layers } = this._group;
    this._at = at;
    write(this._facts, `${some(channels, "channel")} of ${layers.join(", ")}; score in round ${rounds[at] ?? "-"}: ${this._measure(at)}`);
    this._slider.value = at;
    write(this._round, String(rounds[at] ?? "-"));
    mark(this._slider, "aria-valuetext", `round ${rounds[at]}`);
    this._scores = scores[at] ?? [];
    this._ends = scores.map(extremes);
    this._places = channelOrder(this._scores, this._byScore);
    this._show();
  }

  _measure(at) {
    const { measure, measures } = this._group;
    const name = measures?.[at] ?? measure;
    return MEASURES[name] ?? name;
  }

  _sort(byScore) {
    this._byScore = byScore;
    this._turn(this._at);
  }

  _show() {
    const { channels, rounds, kept, group } = this._group;
    this._ink = { bar: colour("--accent"), cut: colour("--sunken"), here: colour("--ink"), tiers: new Map(this._tiers.map((tier) => [tier, colour(`--s${tier % 8}`)])) };
    const height = Math.max(4, Math.min(18, Math.floor(MAX_HEIGHT / Math.max(1, rounds.length))));
    const few = height >= 12;
    this._bars.show({ rows: 1, columns: channels, height: BAR }, [""], `Scores of the ${channels} channels of ${group} in round ${rounds[this._at]}; a table follows`);
    this._kept.show({ rows: this._tiers.length, columns: channels, height: 18 }, this._tiers.map((tier) => `tier ${tier}`),
      this._tiers.map((tier) => `tier ${tier} keeps ${keptCount(kept[tier], channels)} of ${channels}`).join(", "));
    this._moved.show({ rows: rounds.length, columns: channels, height }, rounds.map((round, at) => (few || at === 0 || at === rounds.length - 1 ? `${round}` : "")),
      `Scores of ${channels} channels in ${rounds.length} rounds; a table follows`);
    this._tabulate();
  }

  _bar(context, box, _, column) {
    const [low, high] = this._ends[this._at] ?? [0, 1];
    const share = 0.03 + 0.97 * shareOf(this._scores[this._places[column]], [Math.min(0, low), high]);
    const cut = this._tiers.some((tier) => !keeps(this._group.kept[tier], this._places[column]));
    context.fillStyle = this._ink.bar;
    context.globalAlpha = cut ? 0.45 : 1;
    context.fillRect(box.left, box.height * (1 - share), box.width, box.height * share);
    context.globalAlpha = 1;
  }

  _keep(context, box, row, column) {
    const tier = this._tiers[row];
    const kept = keeps(this._group.kept[tier], this._places[column]);
    context.fillStyle = kept ? this._ink.tiers.get(tier) : this._ink.cut;
    // Also without its colour: what is kept stands tall, what is cut is a low line.
    if (kept) context.fillRect(box.left, box.top + 1, box.width, box.height - 2);
    else context.fillRect(box.left, box.top + box.height / 2 - 1, box.width, 2);
  }

  _move(context, box, row, column) {
    const value = this._group.scores[row]?.[this._places[column]];
    fillCell(context, { ...box, height: box.height + 1 }, sequential(shareOf(value, this._ends[row])));
    if (row !== this._at || column !== 0 || box.height < 3) return;
    context.fillStyle = this._ink.here;
    context.fillRect(0, box.top, 3, box.height + 1);
  }

  _say(column, row = this._at) {
    const index = this._places[column];
    const { rounds, scores, group, kept } = this._group;
    const holders = this._tiers.filter((tier) => keeps(kept[tier], index));
    const who = holders.length === this._tiers.length ? "kept by all tiers" : `kept by tier ${holders.join(", ") || "none"}`;
    return `${group} channel ${index}: ${scoreText(scores[row]?.[index])} in round ${rounds[row]}, ${who}`;
  }

  _tabulate() {
    if (!this._table.open || !this._group) return;
    const { group, scores, kept } = this._group;
    const [now, first] = [ranks(this._scores), ranks(scores[0] ?? [])];
    const rows = this._places.map((index) => [
      el("a", { href: channelRoute(group, index), text: `${index}` }), scoreText(this._scores[index]), `${now[index]}`, `${first[index]}`,
      el("span", {}, this._tiers.filter((tier) => keeps(kept[tier], index)).map(tierBadge)),
    ]);
    this._body.replaceChildren(plainTable(`Channels of ${group}`, ["Channel", "Score", "Rank", `Rank in round ${this._group.rounds[0]}`, "Kept by tier"], rows));
  }
}

function scale() {
  const steps = [...Array(7).keys()].map((place) => {
    const box = el("span");
    box.style.background = `rgb(${sequential(place / 6).join(" ")})`;
    return box;
  });
  return el("p", { class: "scale", "aria-hidden": "true" }, "low", el("span", { class: "steps" }, steps), "high");
}
