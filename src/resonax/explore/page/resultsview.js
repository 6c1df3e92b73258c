/** The view of stored results: experiments, their figures point by point, their claims, and audits. */

import { change } from "./address.js";
import { address, isDropped, request } from "./api.js";
import { auditReport } from "./auditview.js";
import { codeBox } from "./code.js";
import { el, setText } from "./dom.js";
import { panelFigure } from "./panels.js";
import { sentence, short } from "./words.js";

const NONE = "There is no folder of results: start the page with one, as in resonax explore out, where "
  + "out was made by resonax reproduce or resonax sweep, or with an audit, as in resonax explore audit.json.";
const OUTCOMES = { holds: "▼ holds", "does not hold": "▲ does not hold", "not decided": "◆ not decided",
  "depends on the reading": "◐ depends on the reading" };

/** Make the view. */
export function resultsView(schema) {
  const title = el("h1", { class: "headline" }, "Results");
  const caption = el("p", { class: "explanation" });
  const stored = el("p", { class: "links" });
  const error = el("p", { class: "error", role: "alert" });
  const list = el("ul", { class: "experiments" });
  const audits = el("ul", { class: "experiments" });
  const ofExperiments = el("div", {}, el("h2", {}, "Experiments"), list);
  const ofAudits = el("div", { hidden: true }, el("h2", {}, "Audits"), audits);
  const panels = el("div", { class: "panels" });
  const claims = el("div", { class: "claims" });
  const code = codeBox();
  const root = el("div", { class: "view results-view", id: "view-results" },
    el("div", { class: "lead" }, title, caption, stored),
    el("nav", { class: "panel card", "aria-label": "Results" }, ofExperiments, ofAudits, error),
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
    list.replaceChildren(...folder.experiments.map((each) => entry("experiment", each.name,
      el("span", {}, each.title ?? each.name), each.done ? null : el("small", {}, " not finished"))));
    audits.replaceChildren(...folder.audits.map(({ name }) => entry("audit", name, name)));
    ofExperiments.hidden = !folder.experiments.length;
    ofAudits.hidden = !folder.audits.length;
  }

  function entry(kind, name, ...words) {
    return el("li", {}, el("button", {
      type: "button", [`data-${kind}`]: name,
      onclick: () => change("results", { [kind]: name }, kind, { replaceAll: true }),
    }, ...words));
  }

  /** Show one thing of the folder in place of what was shown; nothing is named by null. */
  async function load(kind, name) {
    shown = name;
    setText(error, "");
    for (const button of root.querySelectorAll(".experiments button")) {
      if (button.dataset[kind] === name) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    stored.replaceChildren();
    title.removeAttribute("data-verdict");
    showFigures([]);
    showClaims([]);
    code.show([]);
    if (!name) {
      setText(title, `Results in ${folder.name}`);
      setText(caption, folder.experiments.length ? "Choose an experiment to see its figures point by point."
        : "Choose an audit to see its report.");
      showClaims(folder.claims ?? []);
      setText(error, folder.claims_damaged ? sentence(folder.claims_damaged) : "");
    } else if (kind === "audit") await loadAudit(name);
    else await loadExperiment(name);
  }

  async function loadAudit(name) {
    setText(title, name);
    setText(caption, "Loading …");
    try {
      const audit = await request(`audits/${encodeURIComponent(name)}`);
      if (shown !== name) return;
      setText(title, audit.heading);
      title.dataset.verdict = audit.harmful ? "diverges" : "converges";
      setText(caption, sentence(audit.sentence));
      const report = auditReport(audit);
      figures = report.figures;
      panels.replaceChildren(...report.parts);
      code.show([{ title: "Audit", code: audit.code }]);
    } catch (problem) {
      refuse(name, problem);
    }
  }

  function refuse(name, problem) {
    if (shown !== name) return;
    setText(caption, "");
    if (!isDropped(problem)) setText(error, sentence(problem.message));
    shown = null;
  }

  async function loadExperiment(name) {
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
      showFigures(found.panels.map((panel, index) => panelFigure(panel, shown, index)));
      showClaims(found.claims ?? []);
      code.show([{ title: "Experiment", code: found.code }]);
    } catch (problem) {
      refuse(name, problem);
    }
  }

  function showFigures(made) {
    for (const fig of figures) fig.close();
    figures = made;
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
    async update({ experiment, audit }) {
      if (!folder) await open();
      if (!folder) return;
      const { experiments, audits: [first, ...others] } = folder;
      const only = first && !others.length && !experiments.length ? first.name : null;
      const chosen = experiment ?? audit ?? only ?? "";
      const kind = experiment ? "experiment" : chosen ? "audit" : "";
      if (shown !== chosen || !figures.length) await load(kind, chosen);
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
