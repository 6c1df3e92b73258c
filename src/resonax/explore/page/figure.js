/** A figure: a title, a drawing of a size that is kept free for it, a caption, and ways to save it. */

import { el, setText, unique } from "./dom.js";
import { colours, onTheme } from "./theme.js";

let loading = null;
const drawn = new Map(); // figures by what draws them again, in other colours

/** Return plotly, which is fetched after the page is painted. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = el("script", { src: "plotly.min.js", async: true });
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(new TypeError("plotly.min.js could not be fetched"));
    };
    document.head.append(script);
  });
  return loading;
}

onTheme(() => {
  for (const [node, again] of drawn) if (node.isConnected) again();
});

/** Return the parts of a layout that all figures share, in the colours of the page. */
export function look(more = {}) {
  const { ink, soft, line } = colours();
  const axis = {
    color: soft, gridcolor: line, linecolor: line, zeroline: false, ticks: "outside", ticklen: 4,
    tickcolor: line, tickfont: { size: 12 }, title: { font: { size: 13, color: ink }, standoff: 8 },
    fixedrange: true, automargin: true,
  };
  const { xaxis, yaxis, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, color: ink, size: 13 },
    margin: { l: 56, r: 12, t: 8, b: 44 }, hovermode: "closest", dragmode: false,
    hoverlabel: { font: { size: 13 } }, autosize: true,
    xaxis: merged(axis, xaxis), yaxis: merged(axis, yaxis), ...rest,
  };
}

function merged(axis, own = {}) {
  const title = typeof own.title === "string" ? { ...axis.title, text: own.title } : axis.title;
  return { ...axis, ...own, title };
}

/**
 * Make a figure.
 * @param {string} title above it
 * @param {{name: string, size?: string, zoom?: boolean, empty?: string}} given `name` of saved files,
 *   `size` its class, `zoom` whether it can be zoomed into and read point by point
 */
export function figure(title, { name, size = "", zoom = false, empty = "" }) {
  const heading = el("h2", { id: unique("figure") }, title);
  const plot = el("div", { class: "plot answer", role: "img", "aria-labelledby": heading.id });
  const note = el("p", { class: "empty answer" }, empty);
  const caption = el("figcaption", { class: "answer" });
  const frame = el("div", { class: "frame" }, plot, note, el("p", { class: "state" }));
  let build = null;
  let turn = 0;
  let text = null; // the caption, if it is not made of what is drawn

  async function draw(parts = build) {
    build = parts;
    if (!build) return;
    drawn.set(plot, draw);
    const mine = (turn += 1);
    const Plotly = await plotly().catch(() => null);
    if (!Plotly || mine !== turn || !build) return;
    const { traces, layout } = build();
    if (text === null) describe(traces.flatMap(({ meta }) => (typeof meta === "string" ? [meta] : [])).join(" "));
    await Plotly.react(plot, traces, layout, {
      displayModeBar: false, responsive: true, staticPlot: !zoom, doubleClick: "reset",
    });
    note.hidden = true;
    root.dispatchEvent(new CustomEvent("drawn"));
  }

  function describe(description) {
    setText(caption, description);
    plot.setAttribute("aria-label", `${heading.textContent}. ${description}`);
  }

  async function save(format) {
    const Plotly = await plotly().catch(() => null);
    if (!Plotly || !build) return;
    const { traces, layout, marks = [] } = build();
    const { width, height } = plot.getBoundingClientRect();
    const solid = { ...layout, paper_bgcolor: colours().paper, autosize: false, width, height };
    await Plotly.downloadImage({ data: [...traces, ...marks], layout: solid },
      { format, width, height, scale: format === "png" ? 2 : 1, filename: `resonax-${name}` });
  }

  const buttons = ["png", "svg"].map((format) => el("button", {
    type: "button", class: "save", onclick: () => save(format),
    "aria-label": `Save as ${format.toUpperCase()}: ${title}`,
  }, format.toUpperCase()));
  const root = el("figure", { class: `card figure ${size}`, "data-name": name },
    el("div", { class: "head" }, heading, el("div", { class: "saves" }, ...buttons)), frame, caption);
  return {
    root, plot, frame, heading,
    draw,
    /** Give a caption; without one it is made of the `meta` texts of the traces. */
    caption(given) {
      text = given;
      describe(given);
    },
    /** Say why there is nothing to see; the note covers what was drawn before. */
    clear(why) {
      build = null;
      turn += 1;
      setText(note, why);
      note.hidden = false;
      setText(caption, "");
    },
    close: () => drawn.delete(plot),
  };
}
