// Before anything is drawn, and so no module: a page that was set to dark shall not flash in white.
try {
  const kept = localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // A browser that keeps nothing for this page follows the system.
}
