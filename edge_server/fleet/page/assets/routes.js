/** Addresses within the page: `#devices?where=site%3Dbarn`, `#devices/home/pi-1`, `#jobs/nightly`, `#audit?who=ada`. */

/** A hash as the tab and view that it names, with its path and words; an unknown one is the first view. */
export function parseRoute(hash, known) {
  const [text, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const [first, ...path] = text.split("/").map(decoded);
  const tab = known.includes(first) && first !== "device" ? first : known[0];
  const view = tab === "devices" && path.length === 2 ? "device" : tab === "jobs" && path.length === 1 ? "job" : tab;
  return { tab, view, path, words: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
