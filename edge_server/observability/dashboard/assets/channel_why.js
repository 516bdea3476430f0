/** A channel: its score and rank, which tiers keep it, and why the others cut it. */

import { ranks } from "./channels.js";
import { RoundChart } from "./charts.js";
import { el, mark, plainTable, write } from "./dom.js";
import { stateMark } from "./fleet_columns.js";
import { routeTo } from "./router.js";
import { tierBadge } from "./tiers_table.js";
import { countText, scoreText } from "./units.js";

/** The panel of a channel. */
export class ChannelWhy {
  constructor() {
    this._facts = el("p");
    this._because = el("ul", { class: "because" });
    this._table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Tiers and this channel" });
    this._chart = new RoundChart({
      title: "Rank", note: "Among the channels of its group; 1 is the highest score", format: countText, down: true,
      bounds: (low, high) => [Math.max(1, low - 1), high + 1],
    });
    this._back = el("a", { text: "All channels of the group" });
    this.element = el("article", { hidden: true }, this._facts, this._because, this._table, this._chart.element, el("p", {}, this._back));
  }

  /** Draw the channel; `group` holds the model's values of its group, or is undefined. */
  show(channel, group) {
    const { index, layers, measure, score, rank, of, tiers, because } = channel;
    write(this._facts, `Rank ${countText(rank)} of ${countText(of)} by ${measure} (${scoreText(score)}). An output channel of ${layers.join(", ")}.`);
    this._because.replaceChildren(...[because ?? []].flat().map((text) => el("li", { text })));
    const rows = tiers.map(({ tier, keeps, kept, lowest_kept_score: lowest }) => [
      tierBadge(tier), stateMark(keeps ? "good" : "warn", keeps ? "kept" : "pruned"), `${countText(kept)} of ${countText(of)}`, scoreText(lowest),
    ]);
    this._table.replaceChildren(plainTable("Tiers and this channel", ["Tier", "This channel", "Channels kept", "Lowest score kept"], rows));
    mark(this._back, "href", routeTo("model", [channel.group]));
    mark(this._chart.element, "hidden", !group);
    if (group) this._chart.show(group.rounds, [{ key: "rank", label: "rank", style: 1 }], { rank: group.scores.map((scores) => ranks(scores)[index]) });
  }
}
