// What keyboards and screen readers need, and the theme leaves out.
for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
for (const [place, name] of [["sidebar", "Site"], ["toc", "This page"]])
  document.querySelector(`aside.${place}-drawer`)?.setAttribute("aria-label", name);
for (const head of document.querySelectorAll("th"))
  if (!head.textContent.trim()) head.replaceWith(document.createElement("td"));

// What is wider than the window can be moved by the arrow keys once it has the focus.
function reachByKeys() {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .math, math, .highlight"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
}
reachByKeys();
addEventListener("resize", reachByKeys);
