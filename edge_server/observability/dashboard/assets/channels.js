/** What is computed of channels: who keeps which, their order, their extremes. Pure functions. */

/** Whether a tier that keeps `kept` (indices, or how many of the first ones; null: all) keeps channel `index`. */
export function keeps(kept, index) {
  if (kept === null || kept === undefined) return true;
  return typeof kept === "number" ? index < kept : kept.includes(index);
}

/** How many of `channels` that is. */
export function keptCount(kept, channels) {
  if (kept === null || kept === undefined) return channels;
  return typeof kept === "number" ? Math.min(kept, channels) : kept.length;
}

/** Channel numbers [C], as they are or the highest score first; what has no score comes last. */
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

/** Where a value lies between them, 0 to 1. */
export const shareOf = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);
