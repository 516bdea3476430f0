/** One channel: its score and rank, which tiers keep it, and why the others cut it. */

import { AnswerView } from "./answer_view.js";
import { ChannelWhy } from "./channel_why.js";

/** The page of the channel in the address. */
export class ChannelView extends AnswerView {
  constructor() {
    super({ id: "channel-title", back: "All channels", to: "#model", panel: new ChannelWhy() });
  }

  title([group, index]) {
    return `${group}, channel ${index}`;
  }

  unknown() {
    return "This channel is unknown";
  }

  paths([group, index]) {
    return [`api/channel/${encodeURIComponent(group)}/${encodeURIComponent(index)}`, "api/model"];
  }

  answered([channel, { groups = [] }]) {
    this._panel.show(channel, groups.find(({ group }) => group === channel.group));
  }
}
