/** The view of a check: a file, a verdict that grows while it is computed, and what would help. */

import { change } from "./address.js";
import { address, isDropped, listen, question, request } from "./api.js";
import { codeBox } from "./code.js";
import { dataMap, ordersFigure, rhythmsFigure, trainingFigure } from "./datacharts.js";
import { USUAL, dataForm, learnable } from "./dataform.js";
import { announce, el, markState, setText } from "./dom.js";
import { headline } from "./verdict.js";
import { pace, sentence, short } from "./words.js";

const START = "Does a linear model that is trained on your rows, in their order, diverge?";
const SCOPE = "A model that is linear in the columns is trained step by step, with as many rows for each step as "
  + "the batch says. What happens to a network on these rows is not said.";
const PLACE = ["lr", "momentum"]; // the axes of the map
const SOURCES = { example: { example: "1" }, given: { given: "1" }, file: {} };

/** Make the view. */
export function dataView(schema) {
  const head = headline(START);
  const said = el("p", { class: "explanation answer" });
  const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress of the check" });
  const stage = el("span", { class: "stage" });
  const stop = el("button", { type: "button", onclick: cancel }, "Stop");
  const progress = el("div", { class: "progress" }, bar, stage, stop);
  progress.classList.add("idle");
  const map = dataMap((place) => change("data", { ...place, run: null }, "you data"));
  const [training, rhythms, orders] = [trainingFigure(), rhythmsFigure(), ordersFigure()];
  const here = el("p", { class: "here" });
  const checkHere = el("button", { type: "button", onclick: check, hidden: true }, "Check here");
  const remedies = el("ul", { class: "safe answer" });
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
    changed: (params) => change("data", { ...params, run: null }, `option ${Object.keys(params)[0]}`),
    check,
  });
  let file = null;
  let table = null; // columns of the source that is shown
  let tableOf = null;
  let params = {};
  let checked = null; // what was checked last: its source and options
  let isRefused = false; // whether what is set cannot be checked
  const known = new Set(); // parts that show the answers to it
  let job = null;
  let rate = null; // in order, as it is known before the rest
  let silence = () => {};

  const remedyCard = el("section", { class: "card remedies" }, el("h2", {}, "What would help"),
    el("p", { class: "state" }), remedies, here, checkHere);
  const done = el("section", { class: "card" }, el("h2", {}, "What was done"), el("p", { class: "state" }),
    el("div", { class: "answer" }, facts, notes, links));
  const cause = el("div", {}, said);
  const parts = [head, map, training, rhythms, orders].map(({ root: part }) => part).concat(remedyCard, done, cause);
  const ofCode = question("check/code", { // without a file: it also says at once what cannot be
    parts: [code.root],
    show(found) {
      isRefused = false;
      form.accept();
      code.show([{ title: "Check", code: found.code }]);
      showState();
    },
    refuse(problem) {
      isRefused = true;
      form.accept();
      form.refuse(sentence(problem.message), problem.control ?? "check");
      showState();
    },
  });
  const root = el("div", { class: "view data-view", id: "view-data" },
    el("div", { class: "lead verdict" }, head.root, cause, el("p", { class: "scope" }, SCOPE), progress),
    el("div", { class: "panel card" }, el("h2", {}, "Your data"), form.root),
    el("div", { class: "main-map" }, map.root),
    el("div", { class: "row" }, training.root, rhythms.root),
    el("div", { class: "beside" }, remedyCard, orders.root, done),
    code.root);

  async function takeFile(chosen) {
    file = chosen;
    tableOf = null;
    change("data", { source: "file", name: chosen.name }, "file", { replaceAll: true });
  }

  /** Ask for the columns of a source; the form is usable when they are there. */
  async function readColumns(source) {
    form.accept();
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
      if (!isDropped(problem)) form.refuse(sentence(problem.message), "file");
    }
    if (tableOf === source) update(params);
  }

  /** Return the options that the parameters of the address mean, with those of the example. */
  function optionsIn(given) {
    const { source, name, run, ...options } = given;
    const usual = Object.fromEntries(Object.entries(table?.options ?? {})
      .map(([key, value]) => [key.replaceAll("-", "_"), value]));
    const whole = { ...USUAL, ...usual, ...options };
    const able = learnable(table?.columns ?? [], whole);
    const keys = [whole.order_by, whole.group_by, whole.target];
    const others = (table?.columns ?? []).filter((each) => !able.includes(each.name) && !keys.includes(each.name));
    if (whole.features) {
      whole.features = whole.features.split(",").filter((each) => able.includes(each)).join(",");
    }
    if (!whole.features && others.length) whole.features = able.join(","); // text is left out
    return Object.fromEntries(Object.entries(whole).map(([key, value]) => [key, String(value)])
      .filter(([, value]) => value !== ""));
  }

  function check() {
    checked = null; // the same again is checked again
    change("data", { ...params, run: 1 }, "check");
  }

  /** Return the options that a check is asked by. */
  function askedBy(options) {
    return Object.fromEntries(Object.entries(options)
      .filter(([name, value]) => PLACE.includes(name) || value !== USUAL[name]));
  }

  function keyOf(options) {
    return JSON.stringify([params.source, params.name, options]);
  }

  async function begin() {
    const options = optionsIn(params);
    const key = keyOf(options);
    if (key === checked) return;
    checked = key;
    const body = new FormData();
    if (params.source === "file") body.append("file", file);
    for (const [name, value] of Object.entries({ ...SOURCES[params.source], ...askedBy(options) })) {
      body.append(name, value);
    }
    silence();
    reset();
    try {
      const { job: id } = await request("check", { body });
      if (key !== checked) return; // something else was asked for meanwhile
      job = id;
      silence = listen(id, {
        progress: showProgress, partial: showFound, result: (found) => finish(found, id),
        failed: ({ error: text, name }) => failed(text, name), cancelled: () => failed("The check was stopped."),
        lost: (text) => { cancel(); failed(text); },
      });
    } catch (problem) {
      if (key === checked) failed(problem.message, problem.control);
    }
  }

  function finish(found, id) {
    job = null;
    for (const part of parts) known.add(part);
    showFound(found);
    progress.classList.add("idle");
    const path = `jobs/${encodeURIComponent(id)}`;
    links.replaceChildren(
      el("a", { href: address(`${path}/report`), download: "report.html" }, "Download the report"), " · ",
      el("a", { href: address(`${path}/check.json`), download: "check.json" }, "the numbers as JSON"));
    announce(found.sentence);
  }

  function reset() {
    rate = null;
    known.clear();
    form.accept();
    progress.classList.remove("idle");
    bar.removeAttribute("value");
    setText(stage, "reading");
    showState();
  }

  function cancel() {
    if (job) {
      request(`jobs/${encodeURIComponent(job)}`, { method: "DELETE", keepalive: true }).catch(() => {});
    }
  }

  // No other page follows this check: the same page loaded anew begins another one. Some browsers take
  // its events away before this, and others after.
  window.addEventListener("pagehide", ({ persisted }) => { if (!persisted) cancel(); });

  function failed(text, cause) {
    job = null;
    checked = null;
    progress.classList.add("idle");
    head.show("", START);
    setText(said, "");
    form.refuse(sentence(text), cause);
    for (const node of [remedies, notes, links, facts]) node.replaceChildren();
    for (const fig of [map, training, rhythms, orders]) fig.clear("Nothing was computed.");
    showState();
  }

  function showProgress({ stage: name, fraction, seconds_left: left }) {
    if (fraction === null) bar.removeAttribute("value");
    else bar.value = fraction;
    setText(stage, left ? `${name}, about ${short(Math.ceil(left), 2)} s left` : name);
  }

  /** Show what is known by now of a check. */
  function showFound(found) {
    if (found.rate !== undefined) rate = found.rate;
    const shows = [
      [head.root, found.sentence, (text) => head.show(found.verdict, sentence(text))],
      [cause, found.explanation, (text) => setText(said, sentence(`cause: ${text}`))],
      [map.root, found.map, map.show],
      [rhythms.root, found.spectrum, (spectrum) => rhythms.show(spectrum, found.rhythm?.period)],
      [training.root, found.trajectories, training.show],
      [orders.root, rate === null ? undefined : found.shuffled, (shuffled) => orders.show(rate, shuffled)],
      [remedyCard, found.remedies, showRemedies],
      [done, found.facts, (given) => showFacts(given, found.notes ?? [])],
    ];
    for (const [part, given, show] of shows) {
      if (given === undefined || given === "") continue;
      show(given);
      known.add(part);
    }
    showState();
  }

  function showFacts(given, said) {
    facts.replaceChildren(...Object.entries(given)
      .map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
    notes.replaceChildren(...said.map((note) => el("li", {}, sentence(note))));
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

  /** Say of every part whether it belongs to what is set now, and what the map says of this place. */
  function showState() {
    const options = optionsIn(params);
    const now = keyOf(options);
    const place = { lr: Number(options.lr), momentum: Number(options.momentum ?? 0) };
    const isOther = checked !== null && now !== checked;
    const isMoved = isOther && without(now) === without(checked);
    map.at(place);
    for (const part of parts) {
      const fits = !isOther || (isMoved && part === map.root); // a map has all places
      if (isRefused) markState([part], "none", "No answer for these options.");
      else if (!fits) markState([part], "other", "Of the options that were checked.");
      else if (checked !== null && !known.has(part)) markState([part], "computing", "Computing …");
      else markState([part]);
    }
    checkHere.hidden = !isOther || isRefused;
    setText(checkHere, isMoved ? "Check here" : "Check these options");
    const there = isMoved && !isRefused ? map.rate() : null;
    setText(here, there === null ? "" : `You moved to step size ${short(place.lr)}, momentum `
      + `${short(place.momentum)}: by the map an error ${pace(there)}.`);
  }

  /** Return what was checked but for the place on the map. */
  function without(key) {
    const [source, name, options] = JSON.parse(key);
    return JSON.stringify([source, name,
      Object.entries(options).filter(([option]) => !PLACE.includes(option))]);
  }

  function update(given) {
    params = given;
    const source = SOURCES[params.source] ? params.source : schema.data && !params.source ? "given" : null;
    if (source && source !== params.source) params = { ...params, source };
    if (source === "file" && (!file || file.name !== params.name)) {
      form.refuse("Choose the file again: a page cannot open it by itself.", "file");
      form.show(optionsIn(params), null);
      return;
    }
    if (source && tableOf !== source) {
      tableOf = source;
      readColumns(source);
    } else if (params.run && table) begin();
    const options = optionsIn(params);
    form.show(options, table);
    if (table) {
      ofCode.ask({ options: askedBy(options), name: table.name, example: source === "example" });
    } else ofCode.drop();
    showState();
  }

  return {
    root,
    title: "Your data",
    update,
    leave() {
      ofCode.drop();
      if (!table) tableOf = null;
    },
  };
}
