/** Addresses within the page: `#fleet?state=offline`, `#fleet/pi-4`, `#model/conv2/17`, `#events?kind=loss`. */

export const TABS = ["run", "fleet", "model", "events"];

/** A hash as the tab and view that it names, with its path and words; an unknown one is the run. */
export function parseRoute(hash) {
  const [text, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const [first, ...path] = moved(text.split("/").map(decoded));
  const tab = TABS.includes(first) ? first : "run";
  return { tab, view: viewOf(tab, path), path, words: new URLSearchParams(query) };
}

/** A device has a page of its own, and so has a channel of a group. */
function viewOf(tab, path) {
  if (tab === "fleet" && path[0]) return "device";
  return tab === "model" && path.length > 1 ? "channel" : tab;
}

/** Addresses of before devices and channels had their own pages. */
function moved([first, kind, ...path]) {
  if (first !== "why") return [first, ...(kind === undefined ? [] : [kind, ...path])];
  return [kind === "channel" ? "model" : "fleet", ...path];
}

/** The hash of a tab, its path and its words; empty words are left out. */
export function routeTo(tab, path = [], words = {}) {
  const given = Object.entries(words).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#${[tab, ...path].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** The page of a device. */
export const deviceRoute = (name) => routeTo("fleet", [name]);

/** The page of a channel. */
export const channelRoute = (group, index) => routeTo("model", [group, String(index)]);

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
