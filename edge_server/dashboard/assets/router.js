/** Addresses within the page: `#fleet?state=offline`, `#why/device/pi-4`, `#model/conv2?round=3`. */

export const VIEWS = ["run", "fleet", "model", "why"];

/** A hash as view, path and words; an unknown view is `run`. */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const [view, ...rest] = path.split("/").map(decoded);
  return { view: VIEWS.includes(view) ? view : "run", path: rest, words: new URLSearchParams(query) };
}

/** The hash of a view, its path and its words; empty words are left out. */
export function routeTo(view, path = [], words = {}) {
  const given = Object.entries(words).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#${[view, ...path].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** Where a device's rounds are explained. */
export const deviceRoute = (name) => routeTo("why", ["device", name]);

/** Where a channel's place is explained. */
export const channelRoute = (group, index) => routeTo("why", ["channel", group, String(index)]);

/** Change the address without a step in the browser's history. */
export function replaceRoute(hash) {
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
