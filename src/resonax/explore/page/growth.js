/** How growth rates are coloured: by the steps in which an error doubles or halves. */

import { colours, diverging } from "./theme.js";

const FINEST = Math.LN2 / 1000; // slower than this is all but white
const STEPS = [1000, 100, 30, 10, 3];

/** Return the place of a rate on the scale of colours: even near 0, logarithmic beyond. */
export function shade(rate) {
  return rate === null ? null : Math.asinh(rate / FINEST);
}

/** Return the reach of the colours: that of all rates but the most extreme ones. */
export function reach(rates) {
  const sizes = rates.flat().filter((rate) => rate !== null).map(Math.abs).sort((a, b) => a - b);
  if (!sizes.length) return shade(0.1);
  return Math.max(shade(sizes[Math.floor(0.98 * (sizes.length - 1))]), shade(Math.LN2 / 100));
}

/** Return the look that the bars of all colour scales share. */
export function barLook() {
  const { soft } = colours();
  return {
    thickness: 12, len: 1, outlinewidth: 0, ticklen: 3, tickfont: { size: 11, color: soft }, xpad: 8,
  };
}

/**
 * Return the traces of a map of rates: colours, the boundary, and crosses where nothing is known.
 * @param {number[]} x coordinates of the columns
 * @param {number[]} y coordinates of the rows
 * @param {(number|null)[][]} rates rows of rates
 */
export function growthTraces(x, y, rates, { smooth = true, hover = null } = {}) {
  const { ink, soft } = colours();
  const z = rates.map((row) => row.map(shade));
  const most = reach(rates);
  const shown = STEPS.filter((number) => shade(Math.LN2 / number) <= most * 1.02);
  const places = shown.map((number) => shade(Math.LN2 / number));
  const even = smooth && isEven(x) && isEven(y) && !rates.some((row) => row.includes(null));
  const traces = [{
    type: "heatmap", x, y, z, zmin: -most, zmax: most, zsmooth: even ? "fast" : false,
    colorscale: diverging(), ...(hover ?? { hoverinfo: "skip" }),
    meta: "Red: the error doubles in the number of steps that the colour bar shows. Blue: it halves.",
    colorbar: {
      ...barLook(), tickvals: [...places.map((place) => -place), 0, ...places],
      ticktext: [...shown, "∞", ...shown].map(String),
    },
  }];
  if (z.flat().some((value) => value > 0) && z.flat().some((value) => value < 0)) {
    traces.push({
      type: "contour", x, y, z, autocontour: false, showscale: false, hoverinfo: "skip",
      contours: { start: 0, end: 0, size: 1, coloring: "none" }, line: { color: ink, width: 1.8 },
      meta: "On the line it does neither.",
    });
  }
  const unknown = rates.flatMap((row, j) => row.flatMap((rate, i) => (rate === null ? [[i, j]] : [])));
  if (unknown.length) {
    traces.push({
      type: "scatter", mode: "markers", hoverinfo: "skip",
      x: unknown.map(([i]) => x[i]), y: unknown.map(([, j]) => y[j]),
      marker: { symbol: "x-thin-open", size: 5, color: soft, line: { width: 1, color: soft } },
      meta: "Crosses: could not be computed.",
    });
  }
  return traces;
}

function isEven(values) {
  if (values.length < 3) return false;
  const step = (values.at(-1) - values[0]) / (values.length - 1);
  return values.every((value, index) => Math.abs(value - values[0] - index * step) < 0.02 * step);
}
