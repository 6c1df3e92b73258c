/** A stored panel as a figure that can be zoomed and read point by point, and the runs of a cell. */

import { isDropped, request } from "./api.js";
import { choice, el, say } from "./dom.js";
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
    : [picker(panel.x.label, panel.series[0]?.x ?? []),
      picker("Line", panel.series.map((each) => each.name))];
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
      say(text, sentence(found.sentence));
      const runs = found.runs?.length
        ? [[found.label ?? "runs", found.runs.map((each) => short(each, 3)).join(", ")]] : [];
      const rows = found.rows ?? Object.entries(found.coordinates ?? {});
      table.replaceChildren(...[...rows, ...runs].map(([word, value]) => el("div", {},
        el("dt", {}, word), el("dd", {}, shown(value)))));
    } catch (problem) {
      if (!isDropped(problem)) say(text, sentence(problem.message));
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
    type: isNumeric ? (axis.log ? "log" : "linear") : "category", exponentformat: "power",
  };
}

function heatmap(panel) {
  const { x, y, z, zlabel = "" } = panel;
  const hover = {
    customdata: z,
    hovertemplate: `${figureText(x.label)} %{x}<br>${figureText(y.label)} %{y}`
      + `<br>${figureText(zlabel)} %{customdata:.4g}<extra></extra>`,
  };
  const traces = panel.diverging ? growthTraces(x.values, y.values, z, { smooth: false, hover }) : [{
    type: "heatmap", x: x.values, y: y.values, colorscale: sequential(), ...hover,
    z: panel.log ? z.map((row) => row.map((value) => (value > 0 ? Math.log10(value) : null))) : z,
    colorbar: { thickness: 12, outlinewidth: 0, tickprefix: panel.log ? "10^" : "",
      title: { text: figureText(zlabel), side: "right" } },
  }];
  if (panel.contour) {
    const { ink } = colours();
    traces.push({
      type: "contour", x: x.values, y: y.values, z: panel.contour, autocontour: false, showscale: false,
      hoverinfo: "skip", contours: { start: 0, end: 0, size: 1, coloring: "none" },
      line: { color: ink, width: 1.8, dash: "dot" },
    });
  }
  return {
    traces,
    layout: look({
      dragmode: "zoom", xaxis: axisLook(x, x.values), yaxis: axisLook(y, y.values),
      margin: { l: 68, r: 96, t: 8, b: 48 },
    }),
  };
}

function lines(panel) {
  const { blue, red, ink, soft, grey } = colours();
  const palette = [blue, red, ink, soft, grey];
  const { series, x, y } = panel;
  const drawn = series.flatMap((each, index) => {
    const color = palette[index % palette.length];
    const line = { color, width: 1.6, dash: DASHES[Math.floor(index / palette.length) % DASHES.length] };
    const edge = { x: each.x, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip",
      showlegend: false };
    const band = each.low && each.high ? [
      { ...edge, y: each.low }, { ...edge, y: each.high, fill: "tonexty", fillcolor: `${color}33` },
    ] : [];
    return [...band, {
      x: each.x, y: each.y, name: figureText(each.name), meta: index, type: "scatter", line,
      mode: each.x.length > 60 ? "lines" : "lines+markers", marker: { size: 5 },
    }];
  });
  return {
    traces: drawn,
    layout: look({
      dragmode: "zoom", showlegend: series.length > 1,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      margin: { l: 68, r: 16, t: series.length > 1 ? 56 : 12, b: 48 },
      xaxis: axisLook(x), yaxis: { ...axisLook(y), showgrid: true },
    }),
  };
}
