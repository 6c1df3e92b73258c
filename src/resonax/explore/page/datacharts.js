/** The figures of a check: map with "you", rhythms, training in order and shuffled, orders. */

import { bandShape, periodAxis, powers } from "./charts.js";
import { figure, look } from "./figure.js";
import { growthTraces } from "./growth.js";
import { scale, ticks, tidy } from "./scale.js";
import { colours } from "./theme.js";
import { pace, short, signed } from "./words.js";
import { placeMarker } from "./marker.js";

const DECADES = 4; // of power that are shown
const BINS = 60; // in each decade of periods

/** The map of a recording over step size and momentum; `moved({lr, momentum})` when "you" moves. */
export function dataMap(moved) {
  const fig = figure("Growth of the error over step size and momentum", {
    name: "data-map", size: "large", empty: "The map comes when a file is checked.",
  });
  let map = null;
  let here = { lr: 0.01, momentum: 0.95 };
  const axes = () => ({
    lr: scale(map.x.values[0], map.x.values.at(-1), "log"),
    momentum: scale(map.y.values[0], map.y.values.at(-1), "depth"),
  });
  const marker = placeMarker(fig, {
    label: () => `you: step size ${short(here.lr)}, momentum ${short(here.momentum)}`,
    moved(across, up) {
      if (!map) return;
      const { lr, momentum } = axes();
      moved({
        lr: tidy(lr.value(across), { log: true }), momentum: tidy(momentum.value(up), { depth: true }),
      });
    },
  });

  function place() {
    const { lr, momentum } = axes();
    marker.show(lr.share(here.lr), momentum.share(here.momentum));
  }

  return {
    ...fig,
    show(found) {
      map = found;
      fig.draw(() => drawing(map, here));
      place();
    },
    at(point) {
      here = point;
      if (map) place();
    },
    clear(why) {
      map = null;
      marker.hide();
      fig.clear(why);
    },
    /** Return the rate of the cell that is nearest to "you", null where it is not known. */
    rate() {
      if (!map) return null;
      const { lr, momentum } = axes();
      const near = (values, along, value) => {
        const gaps = values.map((each) => Math.abs(along.place(each) - along.place(value)));
        return gaps.indexOf(Math.min(...gaps));
      };
      return map.rate[near(map.y.values, momentum, here.momentum)][near(map.x.values, lr, here.lr)];
    },
  };
}

function drawing(map, here) {
  const { ink, paper } = colours();
  const [across, up] = [map.x.values, map.y.values];
  const [a, b] = [scale(across[0], across.at(-1), "log"), scale(up[0], up.at(-1), "depth")];
  const [x, y] = [across.map(a.place), up.map(b.place)];
  const traces = growthTraces(x, y, map.rate);
  const proof = map.order_proof;
  if (proof?.some((value) => value !== null)) {
    traces.push({
      type: "scatter", mode: "lines", x, y: proof.map((value) => (value === null ? null : b.place(value))),
      line: { color: ink, width: 1.4, dash: "dash" }, hoverinfo: "skip",
      meta: "Dashed: a smaller momentum is safe in every order of these rows.",
    });
  }
  return {
    traces,
    layout: look({
      margin: { l: 60, r: 56, t: 8, b: 48 },
      xaxis: { title: "step size η", range: [a.low, a.high], showgrid: false,
        ...ticks(across[0], across.at(-1), "log") },
      yaxis: { title: "momentum μ", range: [b.low, b.high], showgrid: false,
        ...ticks(up[0], up.at(-1), "depth") },
    }),
    marks: [{
      type: "scatter", mode: "markers+text", x: [a.place(here.lr)], y: [b.place(here.momentum)],
      text: ["you"], textposition: "top right",
      marker: { size: 13, color: paper, line: { color: ink, width: 3 } },
    }],
  };
}

/** The rhythms of the recording, the periods that resonate, and the period that is the cause. */
export function rhythmsFigure() {
  const fig = figure("Rhythms of these rows", {
    name: "rhythms", empty: "The spectrum comes with the check.",
  });
  return {
    ...fig,
    show({ periods, power, power_products: products, tongues }, causePeriod) {
      fig.draw(() => {
        const { ink, soft, band, red } = colours();
        const line = (values, color, name) => {
          const [x, y] = octaves(periods, values);
          return { x, y, type: "scatter", mode: "lines", line: { color, width: 1.4 }, name,
            hoverinfo: "skip" };
        };
        const shapes = (tongues ?? []).map(([first, last]) => bandShape(first, last, band));
        const marks = causePeriod ? [{
          x: Math.log10(causePeriod), y: 1, xref: "x", yref: "paper", yanchor: "bottom", showarrow: false,
          text: `${short(causePeriod, 3)} steps`, font: { color: red, size: 13 },
        }] : [];
        if (marks.length) {
          shapes.push({ type: "line", xref: "x", yref: "paper", x0: causePeriod, x1: causePeriod,
            y0: 0, y1: 1, line: { color: red, width: 2 } });
        }
        const ends = [Math.min(...periods), Math.max(...periods)];
        return {
          traces: [...(products ? [line(products, soft, "size")] : []), line(power, ink, "values")],
          layout: look({
            shapes, annotations: marks, margin: { l: 40, r: 12, t: 28, b: 44 },
            xaxis: { title: "period (steps)", ...periodAxis(...ends) },
            yaxis: { title: "power per octave", showticklabels: false, ticks: "", showgrid: false,
              range: [-DECADES, 0.2] },
          }),
        };
      });
      fig.caption(["Strong line: of the values.", products ? "Faint line: of their squares and products." : "",
        causePeriod ? `Red: the rhythm that was found, ${short(causePeriod, 3)} steps.` : "",
        tongues?.length ? "Shaded: periods that resonate with this learner." : ""].filter(Boolean).join(" "));
    },
  };
}

/** Return the logarithm of the power per octave, so that areas count, in even bins of periods. */
function octaves(periods, power) {
  const bins = new Map();
  periods.forEach((period, index) => {
    if (power[index] === null || !(period > 0)) return;
    const place = Math.floor(Math.log10(period) * BINS);
    const bin = bins.get(place) ?? { sum: 0, count: 0 };
    bin.sum += power[index] / period;
    bin.count += 1;
    bins.set(place, bin);
  });
  const places = [...bins.keys()].sort((p, q) => p - q);
  const means = places.map((place) => bins.get(place).sum / bins.get(place).count);
  const most = Math.max(...means, 1e-300);
  return [places.map((place) => 10 ** ((place + 0.5) / BINS)),
    means.map((mean) => (mean > 0 ? Math.log10(mean / most) : null))];
}

/** Training on the rows in order, and on the same rows shuffled. */
export function trainingFigure() {
  const fig = figure("Squared error in training", {
    name: "training", empty: "Training in both orders comes with the check.",
  });
  return {
    ...fig,
    show(found) {
      if (!found) {
        fig.clear("Without a target nothing is trained; the growth does not depend on it.");
        return;
      }
      const { steps, in_order: inOrder, shuffled } = found;
      fig.draw(() => {
        const { blue, red } = colours();
        const line = (y, color, name) => ({
          x: steps, y, name, type: "scatter", mode: "lines", line: { color, width: 1.5 },
          hoverinfo: "skip",
        });
        return {
          traces: [line(shuffled, blue, "the same rows shuffled"), line(inOrder, red, "rows in order")],
          layout: look({
            showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
            margin: { l: 56, r: 12, t: 30, b: 44 },
            xaxis: { title: "step", nticks: 5, tickformat: "~s" },
            yaxis: powers([...inOrder, ...shuffled]),
          }),
        };
      });
      fig.caption("Of a linear model, step by step.");
    },
  };
}

/** The growth in order beside that of random orders of the same rows. */
export function ordersFigure() {
  const fig = figure("In order against shuffled", {
    name: "orders", empty: "Random orders of the rows are judged with the check.",
  });
  return {
    ...fig,
    show(rate, shuffled) {
      fig.draw(() => {
        const { blue, red, ink, line } = colours();
        const dots = (x, y, color, symbol, size) => ({
          x, y, type: "scatter", mode: "markers", hoverinfo: "skip",
          marker: { color, symbol, size, line: { color: ink, width: 0.6 } },
        });
        const spread = shuffled.map((_, k) => ((k * 7) % shuffled.length) / shuffled.length * 0.5 - 0.25);
        return {
          traces: [dots(shuffled, spread, blue, "circle", 9), dots([rate], [1], red, "diamond", 13)],
          layout: look({
            margin: { l: 76, r: 16, t: 8, b: 44 },
            xaxis: { title: "growth per step", zeroline: true, zerolinecolor: ink, nticks: 6 },
            yaxis: { tickvals: [0, 1], ticktext: ["shuffled", "in order"], range: [-0.6, 1.5],
              showgrid: false, gridcolor: line },
          }),
        };
      });
      const mean = shuffled.reduce((sum, each) => sum + each, 0) / shuffled.length;
      fig.caption(`In order ${signed(rate)} per step: an error ${pace(rate)}. In ${shuffled.length} random `
        + `orders ${signed(Math.min(...shuffled))} to ${signed(Math.max(...shuffled))}, on average `
        + `${signed(mean)}.`);
    },
  };
}
