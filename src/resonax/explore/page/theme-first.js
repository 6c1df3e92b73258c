// The chosen colours, before anything is painted: a module would come too late for the first paint.
try {
  const chosen = localStorage.getItem("resonax-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage can be forbidden; the colours are those of the system then.
}
