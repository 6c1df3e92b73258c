/** A stored panel as a figure that can be zoomed and read point by point, and the runs of a cell. */

import { isDropped, request } from "./api.js";
import { choice, el, say } from "./dom.js";
import { figure, look } from "./figure.js";
import { growthTraces } from "./growth.js";
import { colours, sequential } from "./theme.js";
import { figureText, sentence, short } from "./words.js";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];

/** Return the figure of a panel of an experiment. */
export function panelFigure(panel, experiment) {
  const fig = figure(panel.title || panel.name, {
    name: `${experiment}-${panel.name}`, size: "stored", zoom: true, empty: "…",
  });
  fig.draw(() => (panel.kind === "heatmap" ? heatmap(panel) : lines(panel)));
  const isMap = panel.kind === "heatmap";
  const [across, up] = [picker(panel.x), isMap ? picker(panel.y) : null];
  const text = el("p", { class: "cell-text" }, "Choose a point, here or by a click, to see its runs.");
  const runs = el("p", { class: "cell-runs" });
  const read = () => showCell(Number(across.select.value), up ? Number(up.select.value) : 0);
  for (const each of [across, up]) each?.select.addEventListener("change", read);
  fig.root.append(el("div", { class: "cell" }, across.root, up?.root ?? null, text, runs));
  fig.root.addEventListener("drawn", () => {
    fig.plot.on("plotly_click", ({ points: [point] }) => {
      const [i, j] = Array.isArray(point.pointIndex) ? [point.pointIndex[1], point.pointIndex[0]]
        : [point.pointIndex, point.curveNumber];
      across.select.value = String(i);
      if (up) up.select.value = String(j);
      showCell(i, j);
    });
  }, { once: true });

  async function showCell(i, j) {
    try {
      const query = new URLSearchParams({ panel: panel.name, x: i, y: j });
      const found = await request(`results/${encodeURIComponent(experiment)}/cell?${query}`);
      say(text, sentence(found.sentence));
      say(runs, found.runs?.length ? `${found.label ?? "runs"}: ${found.runs.map((each) => short(each, 3)).join(", ")}` : "");
    } catch (problem) {
      if (!isDropped(problem)) say(text, sentence(problem.message));
    }
  }

  return fig;
}

function picker(axis) {
  return choice(axis.label ?? axis.name,
    axis.values.map((value, index) => ({ value: String(index), label: String(shown(value)) })));
}

function shown(value) {
  return typeof value === "number" ? short(value, 5) : value;
}

function isLog(values) {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length < 4 || numbers[0] <= 0) return false;
  const [first, last] = [numbers[1] - numbers[0], numbers.at(-1) - numbers.at(-2)];
  return last / first > 4;
}

function axisLook(axis) {
  const numeric = axis.values?.every((value) => typeof value === "number");
  return {
    title: figureText(axis.label ?? axis.name), fixedrange: false, showgrid: false,
    type: numeric ? (isLog(axis.values) ? "log" : "linear") : "category",
  };
}

function heatmap(panel) {
  const known = panel.z.flat().filter((value) => value !== null);
  const isGrowth = /rate/.test(panel.label ?? "") && known.some((value) => value < 0);
  const template = `${figureText(panel.x.label)} %{x}<br>${figureText(panel.y.label)} %{y}`
    + `<br>${figureText(panel.label)} %{customdata:.4g}<extra></extra>`;
  const [x, y] = [panel.x.values, panel.y.values];
  const hover = { customdata: panel.z, hovertemplate: template };
  const z = panel.log
    ? panel.z.map((row) => row.map((value) => (value > 0 ? Math.log10(value) : null))) : panel.z;
  const traces = isGrowth ? growthTraces(x, y, panel.z, { smooth: false, hover }) : [{
    type: "heatmap", x, y, z, colorscale: sequential(), ...hover,
    colorbar: { thickness: 12, outlinewidth: 0, tickprefix: panel.log ? "10^" : "",
      title: { text: figureText(panel.label), side: "right" } },
  }];
  return {
    traces,
    layout: look({
      dragmode: "zoom", xaxis: axisLook(panel.x), yaxis: axisLook(panel.y),
      margin: { l: 68, r: 96, t: 8, b: 48 },
    }),
  };
}

function lines(panel) {
  const { blue, red, ink, soft, grey } = colours();
  const palette = [blue, red, ink, soft, grey];
  const { series, x } = panel;
  return {
    traces: series.map((each, index) => ({
      x: x.values, y: each.values, name: figureText(each.name), type: "scatter",
      mode: x.values.length > 60 ? "lines" : "lines+markers",
      line: { color: palette[index % palette.length], width: 1.6,
        dash: DASHES[Math.floor(index / palette.length) % DASHES.length] },
      marker: { size: 5 },
    })),
    layout: look({
      dragmode: "zoom", showlegend: series.length > 1,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      margin: { l: 68, r: 16, t: series.length > 1 ? 48 : 12, b: 48 },
      xaxis: axisLook(x),
      yaxis: { title: figureText(panel.label), type: panel.log ? "log" : "linear", fixedrange: false,
        exponentformat: "power" },
    }),
  };
}
