/** The view of stored results: experiments, their figures point by point, and their claims. */

import { change } from "./address.js";
import { address, isDropped, request } from "./api.js";
import { codeBox } from "./code.js";
import { el, setText } from "./dom.js";
import { panelFigure } from "./panels.js";
import { sentence, short } from "./words.js";

const NONE = "There is no folder of results: start the page with one, as in resonax explore out, where "
  + "out was made by resonax reproduce or resonax sweep.";
const OUTCOMES = { holds: "▼ holds", "does not hold": "▲ does not hold", "not decided": "◆ not decided",
  "depends on the reading": "◐ depends on the reading" };

/** Make the view. */
export function resultsView(schema) {
  const title = el("h1", { class: "headline" }, "Results");
  const caption = el("p", { class: "explanation" });
  const stored = el("p", { class: "links" });
  const error = el("p", { class: "error", role: "alert" });
  const list = el("ul", { class: "experiments" });
  const panels = el("div", { class: "panels" });
  const claims = el("div", { class: "claims" });
  const code = codeBox();
  const root = el("div", { class: "view results-view", id: "view-results" },
    el("div", { class: "lead" }, title, caption, stored),
    el("nav", { class: "panel card", "aria-label": "Experiments" }, el("h2", {}, "Experiments"), list, error),
    el("div", { class: "main-map" }, panels, claims), code.root);
  let folder = null;
  let shown = null;
  let figures = [];

  async function open() {
    if (!schema.results) {
      setText(caption, NONE);
      return;
    }
    setText(caption, "Loading …");
    try {
      folder = await request("results");
    } catch (problem) {
      setText(caption, "");
      if (!isDropped(problem)) setText(error, sentence(problem.message));
      return;
    }
    list.replaceChildren(...folder.experiments.map((each) => el("li", {}, el("button", {
      type: "button", "data-experiment": each.name,
      onclick: () => change("results", { experiment: each.name }, "experiment", { replaceAll: true }),
    }, el("span", {}, each.title ?? each.name), each.done ? null : el("small", {}, " not finished")))));
  }

  async function load(name) {
    shown = name;
    setText(error, "");
    for (const button of list.querySelectorAll("button")) {
      if (button.dataset.experiment === name) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    stored.replaceChildren();
    showPanels([]);
    showClaims([]);
    code.show([]);
    if (!name) {
      setText(title, `Results in ${folder.name}`);
      setText(caption, "Choose an experiment to see its figures point by point.");
      showClaims(folder.claims ?? []);
      setText(error, folder.claims_damaged ? sentence(folder.claims_damaged) : "");
      return;
    }
    setText(title, folder.experiments.find((each) => each.name === name)?.title ?? name);
    setText(caption, "Loading …");
    try {
      const found = await request(`results/${encodeURIComponent(name)}`);
      if (shown !== name) return;
      setText(title, found.title ?? name);
      setText(caption, found.caption ?? "");
      const path = `results/${encodeURIComponent(name)}/figure`;
      stored.replaceChildren(...(found.figure ? ["The stored figure: ",
        el("a", { href: address(`${path}.png`), target: "_blank", rel: "noopener" }, "PNG"), ", ",
        el("a", { href: address(`${path}.svg`), target: "_blank", rel: "noopener" }, "SVG"), "."] : []));
      showPanels(found.panels);
      showClaims(found.claims ?? []);
      code.show([{ title: "Experiment", code: found.code }]);
    } catch (problem) {
      if (shown !== name) return;
      setText(caption, "");
      if (!isDropped(problem)) setText(error, sentence(problem.message));
      shown = null;
    }
  }

  function showPanels(found) {
    for (const fig of figures) fig.close();
    figures = found.map((panel, index) => panelFigure(panel, shown, index));
    panels.replaceChildren(...figures.map((fig) => fig.root));
  }

  function showClaims(found) {
    claims.replaceChildren();
    if (!found.length) return;
    claims.append(el("h2", {}, "Claims"), el("ul", {}, ...found.map(claim)));
  }

  return {
    root,
    title: "Results",
    async update({ experiment }) {
      if (!folder) await open();
      if (folder && (shown !== (experiment ?? "") || !figures.length)) await load(experiment ?? "");
    },
    leave() {},
  };
}

function claim({ id, statement, outcome, quantity, worst, reason, note }) {
  const said = [worst?.case, quantity].filter(Boolean).join(", ");
  const limit = worst?.threshold ? ` (${[worst.comparison, shown(worst.threshold)].filter(Boolean).join(" ")})` : "";
  const interval = worst?.interval ? `, interval ${worst.interval.map(shown).join(" to ")}` : "";
  const number = worst ? `${said}: ${shown(worst.measured)}${limit}${interval}` : quantity;
  return el("li", { "data-outcome": outcome },
    el("p", {}, el("strong", {}, OUTCOMES[outcome] ?? outcome), " ", el("code", {}, id)),
    el("p", {}, statement),
    ...[number, note].filter(Boolean).map((each) => el("p", { class: "measured" }, sentence(each))),
    reason ? el("details", {}, el("summary", {}, "How it is judged"), el("p", {}, reason)) : null);
}

function shown(value) {
  return typeof value === "number" ? short(value) : String(value ?? "–");
}
