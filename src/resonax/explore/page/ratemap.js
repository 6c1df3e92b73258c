/** The map of the growth rate, or of Adam's level: a coarse one first, then finer ones. */

import { question } from "./api.js";
import { choice, el, fill, setText, unique } from "./dom.js";
import { figure, look } from "./figure.js";
import { barLook, growthTraces } from "./growth.js";
import { scale, ticks, tidy, spacingOfAxis } from "./scale.js";
import { axesOf, axisParam, compact, rangeOf } from "./setting.js";
import { colours, sequential } from "./theme.js";
import { pace, short } from "./words.js";
import { placeMarker } from "./marker.js";

const COUNTS = { rate: [28, 100], distance: [12, 28, 49] }; // points along each axis, one after the other

/**
 * Make the map.
 * @param {Object} schema of the server
 * @param {Function} moved called with parameters and a source when "you" or an axis changes
 * @param {Function} refuse called with a refusal of the server
 * @param {Function} refused called when something invalid is typed
 */
export function rateMap(schema, moved, refuse, refused) {
  const fig = figure("Growth rate", { name: "map", size: "large" });
  const readout = el("p", { class: "readout answer" });
  let now = null; // what is set: setting, axes, criterion
  let answer = null;
  const marker = placeMarker(fig, {
    label: () => place(now.setting[now.axes.x.name], now.setting[now.axes.y.name]),
    moved(across, up, source) {
      const params = {};
      for (const [name, share] of [["x", across], ["y", up]]) {
        const { axis, along, number } = parts(name);
        params[axis.name] = tidy(along.value(share), number, axis.last - axis.first);
      }
      moved(params, `you ${source}`);
    },
    hovered: (shares) => setText(readout, shares ? read(shares) : rests()),
  });
  const asked = question("map", {
    parts: [fig.root], refuse,
    show(found) {
      answer = found;
      bar.refuse("");
      fig.draw(() => drawing(schema, found, now));
      setText(readout, rests());
    },
  });
  const bar = axisBar(schema, moved, () => now, refused);
  fig.frame.after(readout);
  fig.root.querySelector(".head").after(bar.root);

  function parts(name) {
    const axis = now.axes[name];
    const number = schema.numbers[axis.name];
    return { axis, number, along: scale(axis.first, axis.last, spacingOfAxis(axis)) };
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
      return `${words}: ${why ?? (answer.quantity === "distance" ? "no level is predicted" : "not known")}`;
    }
    return `${words}: ${answer.quantity === "distance" ? `predicted to settle ${short(value, 3)} away`
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

  return {
    root: fig.root,
    question: asked,
    /** Show where "you" are and ask for the map; return what the finest map is asked by. */
    show(setting, axes, criterion, possible) {
      now = { setting, axes, criterion };
      bar.show(axes, criterion, possible);
      const isLevel = criterion === "level";
      setText(fig.heading, `${isLevel ? "Predicted distance from the best weights" : "Growth rate"} over `
        + `${schema.numbers[axes.x.name].label} and ${schema.numbers[axes.y.name].label}`);
      marker.show(...["x", "y"].map((name) => {
        const { axis, along } = parts(name);
        return along.share(setting[axis.name]);
      }));
      const mapSetting = compact(schema, { // the map is the same wherever "you" are on it
        ...setting, [axes.x.name]: axes.x.first, [axes.y.name]: axes.y.first,
      });
      const rounds = COUNTS[isLevel ? "distance" : "rate"].map((count) => ({
        criterion, x: { ...axes.x, count }, y: { ...axes.y, count },
      }));
      if (asked.ask(...rounds.map((round) => ({ setting: mapSetting, ...round })))) answer = null;
      return { finest: rounds.at(-1) };
    },
  };
}

/** Return traces and layout of an answer, in the coordinates of its own axes. */
function drawing(schema, answer, now) {
  const { x, y } = answer.asked;
  const [a, b] = [x, y].map((axis) => ({ axis, number: schema.numbers[axis.name] }));
  for (const each of [a, b]) each.along = scale(each.axis.first, each.axis.last, spacingOfAxis(each.axis));
  const [columns, rows] = [answer.x.map(a.along.place), answer.y.map(b.along.place)];
  const traces = answer.quantity === "distance" ? levelTraces(columns, rows, answer.distance)
    : growthTraces(columns, rows, answer.rate);
  const { ink, paper } = colours();
  if (answer.order_proof) {
    const { of, along: points, values } = answer.order_proof;
    const isUp = of === y.name;
    const [free, bound] = isUp ? [a.along, b.along] : [b.along, a.along];
    const line = values.map((value) => (value === null ? null : bound.place(value)));
    const places = points.map(free.place);
    const below = of === "lr" ? "a smaller step size is" : "a smaller momentum is";
    if (line.some((value) => value !== null)) traces.push({
      type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: ink, width: 1.4, dash: "dash" },
      meta: `Dashed: ${below} safe in every order of the inputs.`,
      ...(isUp ? { x: places, y: line } : { x: line, y: places }),
    });
  }
  const axisLayout = ({ axis, number, along }) => ({
    title: `${number.label} ${number.symbol ?? ""}${number.unit && number.unit !== "1"
      ? ` (${number.unit})` : ""}`,
    range: [along.low, along.high], showgrid: false, ...ticks(axis.first, axis.last, spacingOfAxis(axis)),
  });
  return {
    traces,
    layout: look({
      xaxis: axisLayout(a), yaxis: axisLayout(b), margin: { l: 60, r: 56, t: 8, b: 48 },
    }),
    marks: [{
      type: "scatter", mode: "markers+text", text: ["you"], textposition: "top right",
      x: [a.along.place(now.setting[x.name])], y: [b.along.place(now.setting[y.name])],
      marker: { size: 13, color: paper, line: { color: ink, width: 3 } },
    }],
  };
}

function levelTraces(x, y, z) {
  const logs = z.map((row) => row.map((v) => (v > 0 ? Math.log10(v) : null)));
  const known = logs.flat().filter((value) => value !== null);
  const ends = known.length ? [10 ** Math.min(...known), 10 ** Math.max(...known)] : [0.1, 1];
  return [{
    type: "heatmap", x, y, z: logs, colorscale: sequential(), hoverinfo: "skip",
    meta: `Colours: the predicted distance from the best weights${
      known.length < logs.flat().length ? "; none where it diverges or is undecided" : ""}.`,
    colorbar: { ...barLook(), ...ticks(...ends, "log") },
  }];
}

/** The choice of axes, their ends, and of the criterion. */
function axisBar(schema, moved, current, refused) {
  const [across, up] = [axisChoice("x", "Across"), axisChoice("y", "Up")];
  const by = choice("Criterion", []);
  by.select.addEventListener("change", () => moved({ criterion: by.select.value }, "criterion"));
  const error = el("p", { class: "error", role: "alert" });
  const root = el("div", { class: "axes" }, across.root, up.root, by.root, error);

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
    const params = { [place]: axisParam(rangeOf(schema, name)) };
    if (axes[other].name === name) params[other] = axisParam(axes[place]); // they change places
    moved(params, "axes");
  }

  function setEnd(place, end, text) {
    const axis = { ...current().axes[place], [end]: Number(text.replace(",", ".")) };
    if (text.trim() && axis.first < axis.last) {
      moved({ [place]: axisParam(axis) }, `${end} ${place}`);
      return;
    }
    refused();
    setText(error, `${schema.numbers[axis.name].label} must run from a smaller to a larger number.`);
  }

  return {
    root,
    refuse: (text) => setText(error, text),
    show(axes, criterion, possible) {
      setText(error, "");
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
