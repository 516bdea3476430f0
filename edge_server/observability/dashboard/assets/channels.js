/** Pure functions of channels: which tiers keep them, their order, their extremes. */

/** Whether a tier that keeps `kept` (indices, or how many of the first ones; null: all) keeps channel `index`. */
export function keeps(kept, index) {
  if (kept === null || kept === undefined) return true;
  return typeof kept === "number" ? index < kept : kept.includes(index);
}

/** The number of kept channels among `channels`. */
export function keptCount(kept, channels) {
  if (kept === null || kept === undefined) return channels;
  return typeof kept === "number" ? Math.min(kept, channels) : kept.length;
}

/** Channel indices [C] in order, or by descending score with unscored channels last. */
export function channelOrder(scores, byScore) {
  const numbers = [...scores.keys()];
  return byScore ? numbers.sort((one, other) => (scores[other] ?? -Infinity) - (scores[one] ?? -Infinity) || one - other) : numbers;
}

/** The lowest and highest of scores [C]. */
export function extremes(scores) {
  const known = scores.filter(Number.isFinite);
  return known.length ? [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))] : [0, 1];
}

/** Each channel's rank [C], 1 for the highest score. */
export function ranks(scores) {
  const places = [];
  channelOrder(scores, true).forEach((index, place) => (places[index] = place + 1));
  return places;
}

/** The position of a value between low and high, 0 to 1. */
export const shareOf = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);
