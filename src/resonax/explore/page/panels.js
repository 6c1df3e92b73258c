/** A stored panel as a figure that can be zoomed and read point by point, and the runs of a cell. */

import { isDropped, request } from "./api.js";
import { choice, el, setText } from "./dom.js";
import { figure, look } from "./figure.js";
import { growthTraces } from "./growth.js";
import { colours, sequential } from "./theme.js";
import { figureText, sentence, short } from "./words.js";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];

/** Return the figure of a panel of an experiment. */
export function panelFigure(panel, experiment, index) {
  const name = panel.name ?? String(index);
  const fig = figure(panel.title || name, {
    name: `${experiment}-${name}`, size: "stored", zoom: true, empty: "…",
  });
  const isMap = panel.kind === "heatmap";
  fig.draw(() => (isMap ? heatmap(panel) : lines(panel)));
  const [across, up] = isMap ? [picker(panel.x.label, panel.x.values), picker(panel.y.label, panel.y.values)]
    : [picker(panel.x.label, panel.x.values), picker("Line", panel.series.map((each) => each.name))];
  const text = el("p", { class: "cell-text", role: "status" },
    "Choose a point, here or by a click, to see the runs behind it.");
  const table = el("dl", { class: "facts" });
  for (const each of [across, up]) {
    each.select.addEventListener("change", () => {
      showCell(Number(across.select.value), Number(up.select.value));
    });
  }
  fig.root.append(el("div", { class: "cell" }, across.root, up.root, text, table));
  fig.root.addEventListener("drawn", () => {
    fig.plot.on("plotly_click", ({ points: [point] }) => {
      const [i, j] = Array.isArray(point.pointIndex) ? [point.pointIndex[1], point.pointIndex[0]]
        : [point.pointIndex, point.data.meta];
      if (j === undefined) return;
      [across.select.value, up.select.value] = [String(i), String(j)];
      showCell(i, j);
    });
  }, { once: true });

  async function showCell(i, j) {
    try {
      const query = new URLSearchParams({ panel: name, x: i, y: j });
      const found = await request(`results/${encodeURIComponent(experiment)}/cell?${query}`);
      setText(text, sentence(found.sentence));
      const runs = found.runs?.length
        ? [[found.label ?? "runs", found.runs.map((each) => short(each, 3)).join(", ")]] : [];
      const rows = found.rows ?? Object.entries(found.coordinates ?? {});
      table.replaceChildren(...[...rows, ...runs].map(([word, value]) => el("div", {},
        el("dt", {}, word), el("dd", {}, shown(value)))));
    } catch (problem) {
      if (!isDropped(problem)) setText(text, sentence(problem.message));
    }
  }

  return fig;
}

function picker(label, values) {
  return choice(label ?? "", values.map((value, index) => ({ value: String(index), label: shown(value) })));
}

function shown(value) {
  return typeof value === "number" ? short(value, 5) : String(value);
}

function axisLook(axis, values) {
  const isNumeric = !values || values.every((value) => typeof value === "number");
  return {
    title: figureText(axis.label ?? axis.name), fixedrange: false, showgrid: false,
    type: isNumeric ? (values && isLog(values) ? "log" : "linear") : "category", exponentformat: "power",
  };
}

/** Whether points are spaced by factors: the last step is then many times the first. */
function isLog(values) {
  if (values.length < 4 || !(values[0] > 0)) return false;
  return (values.at(-1) - values.at(-2)) / (values[1] - values[0]) > 4;
}

function heatmap({ x, y, z, label = "" }) {
  const hover = {
    customdata: z,
    hovertemplate: `${figureText(x.label)} %{x}<br>${figureText(y.label)} %{y}`
      + `<br>${figureText(label)} %{customdata:.4g}<extra></extra>`,
  };
  const isGrowth = /\brate\b/.test(label);
  const traces = isGrowth ? growthTraces(x.values, y.values, z, { smooth: false, hover }) : [{
    type: "heatmap", x: x.values, y: y.values, z, colorscale: sequential(), ...hover,
    colorbar: { thickness: 12, outlinewidth: 0, title: { text: figureText(label), side: "right" } },
  }];
  return {
    traces,
    layout: look({
      dragmode: "zoom", xaxis: axisLook(x, x.values), yaxis: axisLook(y, y.values),
      margin: { l: 68, r: 96, t: 8, b: 48 },
    }),
  };
}

function lines({ series, x, label = "", log }) {
  const { blue, red, ink, soft, grey } = colours();
  const palette = [blue, red, ink, soft, grey];
  return {
    traces: series.map((each, index) => ({
      x: x.values, y: each.values, name: figureText(each.name), meta: index, type: "scatter",
      mode: x.values.length > 60 ? "lines" : "lines+markers", marker: { size: 5 },
      line: { color: palette[index % palette.length], width: 1.6,
        dash: DASHES[Math.floor(index / palette.length) % DASHES.length] },
    })),
    layout: look({
      dragmode: "zoom", showlegend: series.length > 1, legend: { x: 0, y: -0.22, orientation: "h" },
      margin: { l: 68, r: 16, t: 12, b: series.length > 1 ? 96 : 48 },
      xaxis: axisLook(x, x.values),
      yaxis: { ...axisLook({ label }), showgrid: true, type: log ? "log" : "linear" },
    }),
  };
}
