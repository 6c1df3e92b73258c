/** The live map of the growth rate: coarse while something moves, fine when it rests. */

import { question } from "./api.js";
import { choice, el, fill, say, unique } from "./dom.js";
import { figure, look } from "./figure.js";
import { growthTraces } from "./growth.js";
import { scale, ticks, tidy, wayOfAxis } from "./scale.js";
import { axesOf, axisWord, compact, rangeOf } from "./setting.js";
import { colours, sequential } from "./theme.js";
import { pace, short } from "./words.js";
import { you } from "./you.js";

const COARSE = 28; // points along each axis
const FINE = 100;
const REST = 160; // milliseconds without a change, after which the fine map is asked for

/**
 * Make the map.
 * @param {Object} schema of the server
 * @param {{moved: Function, refuse: Function}} given `moved(words, source)` when "you" or an axis
 *   changes, `refuse(error)` when the server does
 */
export function rateMap(schema, { moved, refuse }) {
  const fig = figure("Growth rate", { name: "map", size: "large", empty: "The map is computed …" });
  const readout = el("p", { class: "readout" });
  let now = null; // what is shown: setting, axes, criterion
  let rest;
  let finer = null; // what to ask for when the coarse map is there
  let keepCode = () => {};
  let answer = null;
  const marker = you(fig, {
    label: () => place(now.setting[now.axes.x.name], now.setting[now.axes.y.name]),
    moved(across, up, source) {
      const words = {};
      for (const [name, share] of [["x", across], ["y", up]]) {
        const { axis, along, number } = parts(name);
        words[axis.name] = tidy(along.value(share), number, axis.last - axis.first);
      }
      moved(words, `you ${source}`);
    },
    looked: (shares) => say(readout, shares ? read(shares) : rests()),
  });
  const coarse = question("map", {
    show(found, asked) {
      show(found, asked);
      setTimeout(refine);
    },
    fail: refuse,
  });
  const fine = question("map", { show, fail: refuse });
  const bar = axisBar(schema, moved, () => now);
  fig.frame.after(readout);
  fig.root.querySelector(".head").after(bar.root);

  function parts(name) {
    const axis = now.axes[name];
    const number = schema.numbers[axis.name];
    return { axis, number, along: scale(axis.first, axis.last, wayOfAxis(axis)) };
  }

  function place(x, y) {
    const [a, b] = [parts("x"), parts("y")];
    return `you: ${a.number.label} ${short(x)}, ${b.number.label} ${short(y)}`;
  }

  function read([across, up]) {
    if (!answer) return "";
    const [i, j] = [nearest(answer.x, "x", across), nearest(answer.y, "y", up)];
    const words = place(answer.x[i], answer.y[j]).replace("you: ", "");
    const value = (answer.rate ?? answer.distance)[j][i];
    if (value === null) {
      const why = answer.missing?.find((each) => each.x === i && each.y === j)?.reason;
      return `${words}: ${why ?? "not known"}`;
    }
    return `${words}: ${answer.quantity === "distance" ? `settles ${short(value, 3)} away`
      : `an error ${pace(value)}`}`;
  }

  function nearest(values, name, share) {
    const { along } = parts(name);
    const gaps = values.map((value) => Math.abs(along.share(value) - share));
    return gaps.indexOf(Math.min(...gaps));
  }

  function rests() {
    return answer?.sentence ?? "";
  }

  function show(found, asked) {
    answer = { ...found, asked };
    if (asked.x.count === FINE) keepCode(found.code);
    fig.draw(() => drawing(schema, answer, now, fig.plot.clientWidth < 480));
    say(readout, rests());
    fig.caption("");
  }

  function refine() {
    if (!finer || coarse.isBusy()) return;
    fine.ask(finer);
    finer = null;
  }

  return {
    root: fig.root,
    onCode: (keep) => { keepCode = keep; },
    show(setting, axes, criterion, possible) {
      now = { setting, axes, criterion };
      bar.show(axes, criterion, possible);
      say(fig.heading, `Growth rate over ${schema.numbers[axes.x.name].label} and `
        + `${schema.numbers[axes.y.name].label}`);
      marker.show(...["x", "y"].map((name) => {
        const { axis, along } = parts(name);
        return along.share(setting[axis.name]);
      }));
      const others = compact(schema, {
        ...setting, [axes.x.name]: axes.x.first, [axes.y.name]: axes.y.first,
      });
      const body = (count) => ({
        setting: others, criterion, x: { ...axes.x, count }, y: { ...axes.y, count },
      });
      const key = JSON.stringify(body(FINE));
      if (key === fig.root.dataset.key) return;
      fig.root.dataset.key = key;
      fine.drop();
      finer = null;
      coarse.ask(body(COARSE));
      clearTimeout(rest);
      rest = setTimeout(() => {
        finer = body(FINE);
        refine();
      }, REST);
    },
    again() {
      delete fig.root.dataset.key;
      coarse.forget();
      fine.forget();
    },
    leave() {
      clearTimeout(rest);
      delete fig.root.dataset.key;
      coarse.drop();
      fine.drop();
    },
  };
}

/** Return traces and layout of an answer, in the coordinates of its own axes. */
function drawing(schema, answer, now, narrow) {
  const { x, y } = answer.asked;
  const [a, b] = [x, y].map((axis) => ({ axis, number: schema.numbers[axis.name] }));
  for (const each of [a, b]) each.along = scale(each.axis.first, each.axis.last, wayOfAxis(each.axis));
  const [columns, rows] = [answer.x.map(a.along.place), answer.y.map(b.along.place)];
  const traces = answer.quantity === "distance" ? levelTraces(columns, rows, answer.distance)
    : growthTraces(columns, rows, answer.rate, { narrow });
  const { ink, paper } = colours();
  if (answer.order_proof) {
    const { of, along: points, values } = answer.order_proof;
    const isUp = of === y.name;
    const [free, bound] = isUp ? [a.along, b.along] : [b.along, a.along];
    const line = values.map((value) => (value === null ? null : bound.place(value)));
    const places = points.map(free.place);
    traces.push({
      type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: ink, width: 1.4, dash: "dash" },
      ...(isUp ? { x: places, y: line } : { x: line, y: places }),
    });
  }
  const axisLayout = ({ axis, number, along }) => ({
    title: `${number.label} ${number.symbol ?? ""}${number.unit && number.unit !== "1"
      ? ` (${number.unit})` : ""}`,
    range: [along.low, along.high], showgrid: false, ...ticks(axis.first, axis.last, wayOfAxis(axis)),
  });
  return {
    traces,
    layout: look({
      xaxis: axisLayout(a), yaxis: axisLayout(b), margin: { l: 60, r: narrow ? 56 : 96, t: 8, b: 48 },
    }),
    marks: [{
      type: "scatter", mode: "markers+text", text: ["you"], textposition: "top right",
      x: [a.along.place(now.setting[x.name])], y: [b.along.place(now.setting[y.name])],
      marker: { size: 13, color: paper, line: { color: ink, width: 3 } },
    }],
  };
}

function levelTraces(x, y, z) {
  return [{
    type: "heatmap", x, y, z: z.map((row) => row.map((v) => (v > 0 ? Math.log10(v) : null))),
    colorscale: sequential(), hoverinfo: "skip",
    colorbar: { thickness: 12, outlinewidth: 0, tickprefix: "10^",
      title: { text: "distance at which it settles", side: "right" } },
  }];
}

/** The choice of axes, their ends, and of the criterion. */
function axisBar(schema, moved, current) {
  const [across, up] = [axisChoice("x", "Across"), axisChoice("y", "Up")];
  const by = choice("Criterion", []);
  by.select.addEventListener("change", () => moved({ criterion: by.select.value }, "criterion"));
  const root = el("div", { class: "axes" }, across.root, up.root, by.root);

  function axisChoice(place, label) {
    const picked = choice(label, [], { "data-axis": place });
    const ends = ["first", "last"].map((end) => el("input", {
      type: "text", inputmode: "decimal", id: unique("end"), autocomplete: "off",
      "aria-label": `${label}: ${end === "first" ? "from" : "to"}`, class: "typed",
      onchange: (event) => setEnd(place, end, event.target.value),
    }));
    picked.select.addEventListener("change", () => pick(place, picked.select.value));
    picked.root.append(ends[0], el("span", { "aria-hidden": "true" }, "to"), ends[1]);
    return { root: picked.root, select: picked.select, ends };
  }

  function pick(place, name) {
    const { axes } = current();
    const other = place === "x" ? "y" : "x";
    const words = { [place]: axisWord(rangeOf(schema, name)) };
    if (axes[other].name === name) words[other] = axisWord(axes[place]); // they change places
    moved(words, "axes");
  }

  function setEnd(place, end, text) {
    const axis = { ...current().axes[place], [end]: Number(text.replace(",", ".")) };
    if (text.trim() && axis.first < axis.last) moved({ [place]: axisWord(axis) }, `${end} ${place}`);
    else moved({}, `${end} ${place}`);
  }

  return {
    root,
    show(axes, criterion, possible) {
      const names = axesOf(schema, current().setting)
        .map((name) => ({ value: name, label: schema.numbers[name].label }));
      for (const [shown, axis] of [[across, axes.x], [up, axes.y]]) {
        fill(shown.select, names);
        shown.select.value = axis.name;
        shown.ends[0].value = String(axis.first);
        shown.ends[1].value = String(axis.last);
      }
      fill(by.select, possible.map((name) => ({
        value: name,
        label: `${name.replace("_", " ")}: ${schema.criteria.find((each) => each.name === name)?.about ?? ""}`,
      })));
      by.select.value = criterion;
    },
  };
}
