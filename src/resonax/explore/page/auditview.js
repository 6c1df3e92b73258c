/** The report of a kept audit: what was found in words, the runs on copies, and the batches. */

import { el } from "./dom.js";
import { figure, look } from "./figure.js";
import { colours, diverging } from "./theme.js";
import { figureText, sentence } from "./words.js";

const MOST = 2.5; // deviations of a number of a batch at the ends of the colours

/** Return the cards of a report, and the figures among them. */
export function auditReport(audit) {
  const figures = [audit.runs ? runsFigure(audit) : null, audit.batches.values.length ? batchesFigure(audit) : null]
    .filter(Boolean);
  const cures = audit.cures.length ? [el("p", {}, "Each was confirmed by a run on the same rows:"),
    el("ul", { class: "cures" }, ...audit.cures.map((cure) => el("li", {}, sentence(cure))))]
    : [el("p", {}, "No cure was found.")];
  return {
    figures,
    parts: [
      card("What was found", terms(audit.answers), audit.cause ? el("p", {}, sentence(audit.cause)) : null,
        terms(audit.details)),
      ...(audit.harmful ? [card("What ends it", ...cures)] : []),
      ...figures.map((fig) => fig.root),
      card("Settings", terms(audit.facts)),
    ],
  };
}

function card(title, ...parts) {
  return el("section", { class: "card audit" }, el("h2", {}, title), ...parts.filter(Boolean));
}

function terms(pairs) {
  return el("dl", { class: "facts" },
    ...pairs.map(([name, words]) => el("div", {}, el("dt", {}, name), el("dd", {}, words))));
}

/** The loss over the steps, in order and mixed; the arrow is as long as the lost steps. */
function runsFigure({ runs, harmful, batches }) {
  const fig = figure("Loss on all rows", { name: "audit-runs", size: "report", zoom: true, empty: "…" });
  fig.draw(() => {
    const { blue, red, ink } = colours();
    const line = (values, name, color, width, more = {}) => ({
      x: runs.steps, y: values, name, type: "scatter", mode: "lines", line: { color, width },
      hovertemplate: `${name}<br>step %{x}<br>loss %{y:.4g}<extra></extra>`, ...more,
    });
    const mixed = runs.mixed.map((values, index) => line(values, "mixed rows", blue, 1,
      { opacity: 0.6, legendgroup: "mixed", showlegend: index === 0 }));
    const { arrow } = runs;
    const annotations = arrow ? [
      { x: arrow.position, y: arrow.loss, ax: batches.steps, ay: arrow.loss, xref: "x", yref: "y",
        axref: "x", ayref: "y", text: "", showarrow: true, arrowhead: 2, arrowwidth: 1.4, arrowcolor: ink },
      { x: (arrow.position + batches.steps) / 2, y: arrow.loss, yanchor: "bottom", showarrow: false,
        text: figureText(arrow.text), bgcolor: colours().raised, font: { size: 13 } },
    ] : [];
    return {
      traces: [...mixed, line(runs.own, "in this order", harmful ? red : ink, 2.2)],
      layout: look({
        annotations, dragmode: "zoom", showlegend: true, legend: { x: 0, y: -0.2, orientation: "h" },
        margin: { l: 60, r: 16, t: 12, b: 80 },
        xaxis: { title: "step", range: [0, batches.steps], fixedrange: false, showgrid: false },
        yaxis: { title: "loss", range: [runs.low, runs.high], fixedrange: false },
      }),
    };
  });
  fig.caption(`Copies of the model on the batches in their order, and on the same rows mixed.${
    runs.arrow ? " The arrow goes back to where mixed rows were as good." : ""}`);
  return fig;
}

/** Numbers of each batch: in a random order no pattern is seen. */
function batchesFigure({ batches }) {
  const fig = figure("Numbers of each batch", { name: "audit-batches", size: "report", zoom: true, empty: "…" });
  const count = batches.values[0].length;
  const steps = batches.values[0].map((_, index) => (index + 0.5) * (batches.steps / count));
  fig.draw(() => ({
    traces: [{
      type: "heatmap", x: steps, y: batches.values.map((_, index) => index + 1), z: batches.values,
      zmin: -MOST, zmax: MOST, colorscale: diverging(), showscale: false,
      hovertemplate: "step %{x:.0f}<br>number %{y}<br>%{z:.3g}<extra></extra>",
    }],
    layout: look({
      dragmode: "zoom", margin: { l: 60, r: 16, t: 12, b: 48 },
      xaxis: { title: "step", fixedrange: false, showgrid: false },
      yaxis: { title: "numbers of a batch", showticklabels: false, ticks: "", showgrid: false },
    }),
  }));
  fig.caption("Labels, lengths, features and gradients, from blue (small) to red (large). In a random order no "
    + `pattern is seen.${batches.period ? ` These repeat about every ${batches.period.toPrecision(3)} steps.` : ""}`);
  return fig;
}
