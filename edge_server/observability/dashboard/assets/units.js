/** Readable numbers in the formats of edge_server/config/units.py; a test compares the two. */

export const UNKNOWN = "-";
const PREFIXES = ["", "k", "M", "G", "T", "P"];
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/** A number to some decimals, a tie such as 53.125 to the even digit, as Python has it. */
function fixed(value, decimals) {
  const text = value.toFixed(decimals);
  const tie = Math.abs(value * 2 ** (decimals + 1)) % 2 === 1;
  return tie && text.at(-1) % 2 ? (value - (Math.sign(value) * 10 ** -decimals) / 2).toFixed(decimals) : text;
}

const rounded = (value, decimals = 0) => Number(fixed(value, decimals));

/** A number to that many significant digits. */
const significant = (value, digits) => rounded(value, Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value) || 1))));

/** Three digits, a space and the prefix, which is empty below a thousand. */
function scaled(count) {
  let value = Number(count);
  for (const prefix of PREFIXES.slice(0, -1)) {
    if (Math.abs(value) < 999.5) return `${significant(value, 3)} ${prefix}`;
    value /= 1000;
  }
  return `${rounded(value).toLocaleString("en")} ${PREFIXES.at(-1)}`;
}

/** Bytes in decimal units: `1.66 MB`. */
export const bytesText = (count) => (known(count) ? `${scaled(count)}B` : UNKNOWN);

/** A large count: `43.2 M`. */
export const siText = (count) => (known(count) ? scaled(count).trimEnd() : UNKNOWN);

/** An exact count: `1,663,370`. */
export const countText = (count) => (known(count) ? count.toLocaleString("en") : UNKNOWN);

/** A share of one as a percentage: `97.12%`. */
export const percentText = (share) => (known(share) ? `${fixed(share * 100, 2)}%` : UNKNOWN);

/** A share of one in whole percent: `70%`. */
export const ratioText = (ratio) => (known(ratio) ? `${fixed(ratio * 100, 0)}%` : UNKNOWN);

/** A loss to three decimals, in powers of ten once it has run away. */
export function lossText(loss) {
  if (!known(loss)) return UNKNOWN;
  if (Math.abs(loss) < 1000) return fixed(loss, 3);
  return loss.toExponential(2).replace(/e([+-])(\d)$/, "e$10$2");
}

/** Milliseconds, three digits, with the unit. */
export const msText = (ms) => (known(ms) ? `${scoreText(ms)} ms` : UNKNOWN);

/** A duration: `4.2 s`, `1 min 05 s`, `2 h 03 min`. */
export function durationText(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (rounded(seconds, 1) < 60) return `${fixed(seconds, 1)} s`;
  const whole = rounded(seconds);
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

/** A running clock in whole seconds: `0:05`, `1:02:03`. */
export function clockText(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const minutes = Math.floor(whole / 60) % 60;
  const hours = Math.floor(whole / 3600);
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** How long ago, coarsely, so that it does not flicker: `now`, `12 s ago`, `3 min ago`, `2 h ago`, `4 d ago`. */
export function agoText(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/** A moment (seconds since 1970) in this place's time, whole, with its zone: `22 Nov 2026, 14:02:09 GMT+1`. */
export function momentText(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const when = new Date(seconds * 1000);
  const day = when.toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
  return `${day}, ${when.toLocaleTimeString(undefined, { hour12: false, timeZoneName: "short" })}`;
}

/** The clock of a moment in this place's time: `14:02`. */
export const minuteText = (seconds) => new Date(seconds * 1000).toLocaleTimeString(undefined, { hour12: false, hour: "2-digit", minute: "2-digit" });

/** A score of any size, three digits: `0.0123`, `12,345`, `1.2e-7`. */
export function scoreText(score, digits = 3) {
  if (!known(score)) return UNKNOWN;
  const size = Math.abs(score);
  if (size >= 10 ** digits - 0.5 && size < 1e7) return rounded(score).toLocaleString("en");
  return size !== 0 && size < 1e-4 ? score.toExponential(1) : String(significant(score, digits));
}

/** Degrees: `48.5 °C`. */
export const celsiusText = (celsius) => (known(celsius) ? `${fixed(celsius, 1)} °C` : UNKNOWN);

/** ` of 10`; nothing for a run without end, which has 0 rounds. */
export const ofRounds = ({ rounds }) => (rounds ? ` of ${rounds}` : "");

/** A number and its noun: `1 device`, `3 devices`. */
export const some = (count, noun) => `${countText(count)} ${noun}${count === 1 ? "" : "s"}`;
