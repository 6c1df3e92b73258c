/** The view of the map: controls, the map with "you", and what holds at that place. */

import { change } from "./address.js";
import { question } from "./api.js";
import { multipliersFigure, runsFigure, spectrumFigure } from "./charts.js";
import { codeBox } from "./code.js";
import { controls } from "./controls.js";
import { announce, el, setText } from "./dom.js";
import { rateMap } from "./ratemap.js";
import { axesIn, compact, criteriaOf, settingOf } from "./setting.js";
import { criteriaTable, headline, safeButtons } from "./verdict.js";
import { sentence } from "./words.js";

const RUNS = { steps: 2000, runs: 4, seed: 0 };
const REST = 200; // milliseconds without a change, after which the slower questions are asked
const SCOPE = "A model that is linear in its features learns from inputs drawn as set here: no network, and no rows "
  + "of yours. Runs and the criterion lyapunov are simulated; all else is computed from the equations.";

/** Make the view. */
export function mapView(schema) {
  const head = headline("");
  const error = el("p", { class: "error", role: "alert" });
  const panel = controls(schema, {
    changed: (params, name) => change("map", params, `control ${name}`), refused: none,
  });
  const map = rateMap(schema, (params, source) => change("map", params, source), refuse, none);
  const criteria = criteriaTable(schema);
  const safe = safeButtons(({ name, setting, value }) => {
    change("map", { [name]: setting?.[name] ?? value }, `safe ${name}`);
    announce(`You moved to ${name} ${value}.`);
  });
  const [runs, multipliers, spectrum] = [runsFigure(), multipliersFigure(), spectrumFigure()];
  const code = codeBox();
  const asked = {
    code: question("code", { // without any computation: it also says at once what cannot be
      parts: [code.root], refuse,
      show(found) {
        accept();
        code.show([["Verdict", found.verdict], ["Map", found.map], ["Runs", found.runs]]
          .map(([title, made]) => ({ title, code: made })));
      },
    }),
    verdict: question("verdict", {
      parts: [head.root, criteria.root, multipliers.root], refuse,
      show(found) {
        head.show(found.verdict, sentence(found.sentence));
        announce(found.sentence);
        criteria.show(found);
        multipliers.show(found.multipliers, found.multipliers_missing);
      },
    }),
    safe: question("safe", { parts: [safe.root], show: safe.show, refuse, pause: REST }),
    runs: question("runs", { parts: [runs.root], show: runs.show, refuse, pause: REST }),
    spectrum: question("spectrum", {
      parts: [spectrum.root], show: spectrum.show, refuse, pause: REST,
    }),
    map: map.question,
  };
  const root = el("div", { class: "view map-view", id: "view-map" },
    el("div", { class: "lead" }, head.root, error, el("p", { class: "scope" }, SCOPE)),
    el("div", { class: "main-map" }, map.root),
    el("div", { class: "panel card" }, el("h2", {}, "Setting"), panel.root),
    el("div", { class: "row" }, runs.root, spectrum.root),
    el("div", { class: "beside" }, criteria.root, safe.root, multipliers.root),
    code.root);

  /** Say that the setting cannot be: beside the control that is wrong, and wherever answers stand. */
  function refuse(problem) {
    if (!problem.control && problem.path !== "code") return; // it stands in place of that answer
    none();
    const label = schema.numbers[problem.control]?.label ?? problem.control;
    const text = sentence(problem.message.replace(problem.control, label));
    setText(error, problem.control && panel.refuse(problem.control, text) ? "" : text);
  }

  function none() {
    for (const each of Object.values(asked)) each.none();
  }

  function accept() {
    setText(error, "");
    panel.accept();
  }

  return {
    root,
    title: "Map",
    update(params) {
      const setting = settingOf(schema, params);
      const axes = axesIn(schema, setting, params);
      const possible = criteriaOf(schema, setting);
      const criterion = possible.includes(params.criterion) ? params.criterion : possible[0];
      panel.show(setting, axes);
      const { finest } = map.show(setting, axes, criterion, possible);
      const short = { setting: compact(schema, setting) };
      asked.code.ask({ ...short, ...finest, ...RUNS });
      for (const name of ["verdict", "safe", "spectrum"]) asked[name].ask(short);
      asked.runs.ask({ ...short, ...RUNS });
    },
    /** Give up what was asked: another view is shown, or the server was away. */
    leave() {
      for (const each of Object.values(asked)) each.drop();
    },
  };
}
