/** The small figures beside a map: runs, multipliers, spectrum. */

import { figure, look } from "./figure.js";
import { ticks } from "./scale.js";
import { colours } from "./theme.js";


/** Return an axis of logarithms, with powers of ten as its labels. */
export function powers(values) {
  const known = values.flat().filter((value) => value !== null);
  const low = Math.floor(Math.min(...known));
  const high = Math.max(Math.ceil(Math.max(...known)), low + 1);
  const step = Math.max(1, Math.ceil((high - low) / 5));
  const tickvals = [];
  for (let power = Math.ceil(low / step) * step; power <= high; power += step) tickvals.push(power);
  return {
    tickvals, ticktext: tickvals.map((power) => (power === 0 ? "1" : `10<sup>${power}</sup>`)),
    range: [low, high],
  };
}

/** Distance from the best weights over time: a few runs in order, against the same inputs shuffled. */
export function runsFigure() {
  const fig = figure("Distance from the best weights", { name: "runs" });
  return {
    ...fig,
    show({ steps, in_order: inOrder, shuffled, sentence }) {
      fig.draw(() => {
        const { blue, red } = colours();
        const lines = (rows, color, name) => rows.map((y, index) => ({
          x: steps, y, name, type: "scatter", mode: "lines", line: { color, width: 1.4 },
          opacity: 0.85, showlegend: index === 0, hoverinfo: "skip",
        }));
        return {
          traces: [...lines(shuffled, blue, "shuffled"), ...lines(inOrder, red, "in order")],
          layout: look({
            showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
            margin: { l: 52, r: 12, t: 30, b: 44 },
            xaxis: { title: "step", range: [0, steps.at(-1)], nticks: 5, tickformat: "~s" },
            yaxis: { title: "distance", ...powers([...inOrder, ...shuffled]) },
          }),
        };
      });
      fig.caption(sentence);
    },
  };
}

/** The multipliers of a period in the complex plane; outside of the unit circle they grow. */
export function multipliersFigure() {
  const fig = figure("Multipliers of a period", { name: "multipliers" });
  return {
    ...fig,
    show(found, missing) {
      if (!found) {
        fig.clear(missing);
        return;
      }
      fig.draw(() => {
        const { blue, red, ink, line } = colours();
        const { values } = found;
        const size = ({ real, imag }) => Math.hypot(real, imag);
        const most = 1.15 * Math.max(1.05, ...values.map(size));
        const round = Array.from({ length: 121 }, (_, k) => (2 * Math.PI * k) / 120);
        return {
          traces: [
            { x: round.map(Math.cos), y: round.map(Math.sin), type: "scatter", mode: "lines",
              line: { color: ink, width: 1.4 }, hoverinfo: "skip" },
            { x: values.map((v) => v.real), y: values.map((v) => v.imag), type: "scatter",
              mode: "markers", hoverinfo: "skip",
              marker: { size: 11, color: values.map((v) => (size(v) > 1 ? red : blue)),
                symbol: values.map((v) => (size(v) > 1 ? "triangle-up" : "circle")),
                line: { color: ink, width: 1 } } },
          ],
          layout: look({
            margin: { l: 52, r: 12, t: 8, b: 44 },
            xaxis: { title: "real part", range: [-most, most], zeroline: true, zerolinecolor: line },
            yaxis: { title: "imaginary part", range: [-most, most], scaleanchor: "x",
              zeroline: true, zerolinecolor: line },
          }),
        };
      });
      fig.caption(found.sentence);
    },
  };
}

/** The input's spectrum over the bands in which a rhythm would grow, over periods. */
export function spectrumFigure() {
  const fig = figure("Rhythms of the input", { name: "spectrum" });
  return {
    ...fig,
    show({ frequencies, power, lines = [], bands, sentence }) {
      fig.draw(() => {
        const { ink, band, red } = colours();
        const ends = around([...(bands ?? []).flatMap(({ first, last }) => [1 / first, 1 / last]),
          ...lines.filter((each) => each.frequency > 0).slice(0, 1).map((each) => 1 / each.frequency)]);
        const inside = frequencies.map((each) => each > 0 && 1 / each <= 1.05 * ends[1]);
        const kept = (values) => values.filter((_, index) => inside[index]);
        const most = Math.max(...kept(power).filter(Number.isFinite), 1e-300);
        const strongest = Math.max(...lines.map((each) => each.power), 1e-300);
        const sticks = lines.filter((each) => each.frequency > 0 && each.power > 1e-3 * strongest);
        const height = (each) => Math.sqrt(each.power / strongest);
        return {
          traces: [
            { x: kept(frequencies).map((each) => 1 / each), y: kept(power).map((each) => each / most),
              type: "scatter", mode: "lines", line: { color: ink, width: 1.5 }, hoverinfo: "skip" },
            { x: sticks.map((each) => 1 / each.frequency), y: sticks.map(height), type: "scatter",
              mode: "markers", marker: { color: red, size: 8, symbol: "diamond" }, hoverinfo: "skip" },
          ],
          layout: look({
            margin: { l: 40, r: 12, t: 8, b: 44 },
            shapes: [
              ...(bands ?? []).map(({ first, last }) => bandShape(1 / last, 1 / first, band)),
              ...sticks.map((each) => ({
                type: "line", x0: 1 / each.frequency, x1: 1 / each.frequency, y0: 0, y1: height(each),
                line: { color: red, width: 2 },
              })),
            ],
            xaxis: { title: "period (steps)", ...periodAxis(...ends) },
            yaxis: { title: "power", range: [0, 1.08], showticklabels: false, ticks: "", showgrid: false },
          }),
        };
      });
      const stick = lines.some((each) => each.frequency > 0)
        ? "Red: the rhythm of the mean. Black: the noise around it. Each is drawn to its own scale." : "";
      const shaded = bands?.length ? "Shaded: the periods at which the error grows." : "";
      fig.caption([sentence, stick, shaded].filter(Boolean).join(" "));
    },
  };
}

/** Return the ends of an axis of periods around those that matter. */
function around(periods) {
  const known = periods.filter(Number.isFinite);
  if (!known.length) return [4, 100];
  return [Math.max(2, Math.min(...known) / 2.5), Math.min(1000, Math.max(...known) * 2.5)];
}

/** Return the shading of the periods in which a rhythm grows. */
export function bandShape(low, high, color) {
  return {
    type: "rect", xref: "x", yref: "paper", x0: low, x1: high, y0: 0, y1: 1, fillcolor: color,
    line: { width: 0 }, layer: "below",
  };
}

/** Return a logarithmic axis of periods. */
export function periodAxis(first, last) {
  const found = ticks(first, last, "log");
  // The figures are narrow: of many labels every second one stands.
  const isKept = (_, index) => found.tickvals.length <= 7 || index % 2 === 0;
  const [tickvals, ticktext] = [found.tickvals.filter(isKept), found.ticktext.filter(isKept)];
  return {
    type: "log", range: [Math.log10(first), Math.log10(last)], showgrid: false, ticktext, tickangle: 0,
    tickvals: tickvals.map((place) => 10 ** place),
  };
}
