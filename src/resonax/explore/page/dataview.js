/** The view of a check: a file, a verdict that grows while it is computed, and what would help. */

import { change } from "./address.js";
import { address, isDropped, listen, request } from "./api.js";
import { codeBox } from "./code.js";
import { dataMap, ordersFigure, rhythmsFigure, trainingFigure } from "./datacharts.js";
import { USUAL, dataForm } from "./dataform.js";
import { announce, el, say } from "./dom.js";
import { headline } from "./verdict.js";
import { pace, sentence, short } from "./words.js";

const START = "Will training on your rows, in their order, diverge?";
const NEEDED = ["lr", "momentum"];
const SOURCES = { example: { example: "1" }, given: { given: "1" }, file: {} };

/** Make the view. */
export function dataView(schema) {
  const head = headline(START);
  const error = el("p", { class: "error", role: "alert" });
  const said = el("p", { class: "explanation" });
  const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress of the check" });
  const stage = el("span", { class: "stage" });
  const stop = el("button", { type: "button", onclick: cancel }, "Stop");
  const progress = el("div", { class: "progress" }, bar, stage, stop);
  progress.classList.add("idle");
  const map = dataMap((place) => change("data", { ...place, run: null }, "you data"));
  const [training, rhythms, orders] = [trainingFigure(), rhythmsFigure(), ordersFigure()];
  const here = el("p", { class: "here" });
  const checkHere = el("button", { type: "button", onclick: check, hidden: true }, "Check here");
  const remedies = el("ul", { class: "safe" });
  const notes = el("ul", { class: "notes" });
  const links = el("p", { class: "links" });
  const facts = el("dl", { class: "facts" });
  const code = codeBox();
  const form = dataForm({
    chosen: takeFile,
    example: () => change("data", { source: "example", run: 1 }, "example", { replaceAll: true }),
    given: schema.data && {
      name: schema.data.name, use: () => change("data", { source: "given" }, "given", { replaceAll: true }),
    },
    changed: (words) => change("data", { ...words, run: null }, `option ${Object.keys(words)[0]}`),
    check,
  });
  let file = null;
  let table = null; // columns of the source that is shown
  let tableOf = null;
  let words = {};
  let checked = null; // the options that were checked last
  let job = null;
  let rate = null; // in order, as it is known before the rest
  let silence = () => {};

  const cures = el("section", { class: "card cures" }, el("h2", {}, "What would help"), remedies, here,
    checkHere);
  const root = el("div", { class: "view data-view", id: "view-data" },
    el("div", { class: "lead verdict" }, head.root, said, error, progress),
    el("div", { class: "panel card" }, el("h2", {}, "Your data"), form.root),
    el("div", { class: "main-map" }, map.root),
    el("div", { class: "row" }, training.root, rhythms.root),
    el("div", { class: "beside" }, cures, orders.root,
      el("section", { class: "card" }, el("h2", {}, "What was done"), facts, notes, links)),
    code.root);

  async function takeFile(chosen) {
    file = chosen;
    tableOf = null;
    change("data", { source: "file", name: chosen.name }, "file", { replaceAll: true });
  }

  /** Ask for the columns of a source; the form is usable when they are there. */
  async function readColumns(source) {
    form.refuse("");
    form.file(source === "file" ? `Reading ${file.name} …` : "Reading …");
    table = null;
    try {
      const body = new FormData();
      if (source === "file") body.append("file", file);
      const found = await (source === "file" ? request("columns", { body })
        : request(source === "example" ? "columns?example=1" : "columns"));
      if (tableOf !== source) return;
      table = found;
      const rows = found.rows ? `${found.rows.toLocaleString("en")} rows` : "rows not counted";
      form.file(`${found.name ?? file?.name ?? ""}: ${rows}, ${found.columns.length} columns.`);
    } catch (problem) {
      tableOf = null;
      form.file("No file yet.");
      if (!isDropped(problem)) form.refuse(sentence(problem.message));
    }
    form.show(optionsIn(words), table);
    if (words.run && table) begin();
  }

  /** Return the options that the words of the address mean, with those of the example. */
  function optionsIn(given) {
    const { source, name, run, ...options } = given;
    const usual = Object.fromEntries(Object.entries(table?.options ?? {})
      .map(([key, value]) => [key.replaceAll("-", "_"), value]));
    const whole = { ...USUAL, ...usual, ...options };
    return Object.fromEntries(Object.entries(whole).map(([key, value]) => [key, String(value)])
      .filter(([, value]) => value !== ""));
  }

  function check() {
    checked = null; // the same again is checked again
    change("data", { ...words, run: 1 }, "check");
  }

  async function begin() {
    const options = optionsIn(words);
    const key = JSON.stringify([words.source, words.name, options]);
    if (key === checked) return;
    checked = key;
    const body = new FormData();
    if (words.source === "file") body.append("file", file);
    for (const [name, value] of Object.entries({ ...SOURCES[words.source], ...options })) {
      if (NEEDED.includes(name) || value !== USUAL[name]) body.append(name, value);
    }
    silence();
    reset();
    try {
      const { job: id } = await request("check", { body });
      if (key !== checked) return; // something else was asked for meanwhile
      job = id;
      silence = listen(id, {
        progress: showProgress, partial: showFound, result: (found) => finish(found, id),
        failed: ({ error: text }) => failed(text), cancelled: () => failed("The check was stopped."),
        lost: (text) => { cancel(); failed(text); },
      });
    } catch (problem) {
      if (!isDropped(problem)) failed(problem.message);
    }
  }

  function finish(found, id) {
    showFound(found);
    job = null;
    progress.classList.add("idle");
    const path = `jobs/${encodeURIComponent(id)}`;
    links.replaceChildren(
      el("a", { href: address(`${path}/report`), download: "report.html" }, "Download the report"), " · ",
      el("a", { href: address(`${path}/check.json`), download: "check.json" }, "the numbers as JSON"));
    code.show([{ title: "Check", code: found.code }]);
    announce(found.sentence);
  }

  function reset() {
    rate = null;
    say(error, "");
    head.show("", "Checking these rows …");
    say(said, "");
    progress.classList.remove("idle");
    bar.removeAttribute("value");
    say(stage, "reading");
    for (const node of [remedies, notes, links, facts]) node.replaceChildren();
    for (const fig of [map, training, rhythms, orders]) fig.clear("Being computed …");
  }

  function cancel() {
    if (job) {
      request(`jobs/${encodeURIComponent(job)}`, { method: "DELETE", keepalive: true }).catch(() => {});
    }
  }

  // Nobody else hears of a check: the same page loaded anew begins another one. Some browsers take
  // its events away before this, and others after.
  window.addEventListener("pagehide", ({ persisted }) => { if (!persisted) cancel(); });

  function failed(text) {
    job = null;
    checked = null;
    progress.classList.add("idle");
    head.show("", START);
    say(error, sentence(text));
    for (const fig of [map, training, rhythms, orders]) fig.clear("Nothing was computed.");
  }

  function showProgress({ stage: name, fraction, seconds_left: left }) {
    if (fraction === null) bar.removeAttribute("value");
    else bar.value = fraction;
    say(stage, left ? `${name}, about ${short(Math.ceil(left), 2)} s left` : name);
  }

  /** Show what is known by now of a check. */
  function showFound(found) {
    if (found.sentence) head.show(found.verdict, sentence(found.sentence));
    if (found.explanation) say(said, sentence(`cause: ${found.explanation}`));
    if (found.map) map.show(found.map);
    if (found.spectrum) rhythms.show(found.spectrum, found.rhythm?.period);
    if (found.trajectories !== undefined) training.show(found.trajectories);
    if (found.rate !== undefined) rate = found.rate;
    if (found.shuffled && rate !== null) orders.show(rate, found.shuffled);
    if (found.remedies) showRemedies(found.remedies);
    if (found.notes) notes.replaceChildren(...found.notes.map((note) => el("li", {}, sentence(note))));
    if (found.facts) {
      facts.replaceChildren(...Object.entries(found.facts)
        .map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
    }
    showHere(optionsIn(words));
  }

  function showRemedies(found) {
    remedies.replaceChildren(...found.map(({ name, value, sentence: text, changes }) => el("li", {},
      value === null || !Object.keys(changes ?? {}).length
        ? el("p", { class: "missing" }, sentence(text))
        : el("button", {
          type: "button", "data-remedy": name,
          onclick: () => change("data", { ...changes, run: null }, "remedy"),
        }, el("span", {}, sentence(text))))));
  }

  function showHere(options) {
    map.at({ lr: Number(options.lr), momentum: Number(options.momentum ?? 0) });
    const moved = checked !== null && JSON.stringify([words.source, words.name, options]) !== checked;
    checkHere.hidden = !moved;
    const there = moved ? map.rate() : null;
    say(here, there === null ? "" : `You moved to step size ${short(Number(options.lr))}, momentum `
      + `${short(Number(options.momentum))}: by the map an error ${pace(there)}.`);
  }

  return {
    root,
    title: "Your data",
    update(given) {
      words = given;
      const source = SOURCES[words.source] ? words.source : schema.data && !words.source ? "given" : null;
      if (source && source !== words.source) words = { ...words, source };
      if (source === "file" && (!file || file.name !== words.name)) {
        form.refuse("Choose the file again: a page cannot open it by itself.");
        form.show(optionsIn(words), null);
        return;
      }
      if (source && tableOf !== source) {
        tableOf = source;
        readColumns(source);
      } else if (words.run && table) begin();
      form.show(optionsIn(words), table);
      showHere(optionsIn(words));
    },
    again() {
      if (!table) tableOf = null;
    },
  };
}
