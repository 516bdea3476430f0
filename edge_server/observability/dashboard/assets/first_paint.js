// Not a module, so that it runs before the first paint: a dark page must not flash white.
try {
  const kept = localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // Without local storage the page follows the system.
}
