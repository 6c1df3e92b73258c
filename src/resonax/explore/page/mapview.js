/** The view of the map: controls, the map with "you", and what holds at that place. */

import { change } from "./address.js";
import { question } from "./api.js";
import { multipliersFigure, runsFigure, spectrumFigure } from "./charts.js";
import { codeBox } from "./code.js";
import { controls } from "./controls.js";
import { announce, el, say } from "./dom.js";
import { rateMap } from "./ratemap.js";
import { axesIn, compact, criteriaOf, settingOf } from "./setting.js";
import { criteriaTable, headline, safeButtons } from "./verdict.js";
import { sentence } from "./words.js";

const RUNS = { steps: 2000, runs: 4, seed: 0 };
const REST = 200; // milliseconds without a change, after which the slower questions are asked

/** Make the view. */
export function mapView(schema) {
  const head = headline("Judging this setting …");
  const error = el("p", { class: "error", role: "alert" });
  const panel = controls(schema, (words, name) => change("map", words, `control ${name}`));
  const map = rateMap(schema, {
    moved: (words, source) => change("map", words, source), refuse,
  });
  const criteria = criteriaTable(schema);
  const safe = safeButtons(({ name, setting, value }) => {
    change("map", { [name]: setting?.[name] ?? value }, `safe ${name}`);
    announce(`You moved to ${name} ${value}.`);
  });
  const [runs, multipliers, spectrum] = [runsFigure(), multipliersFigure(), spectrumFigure()];
  const code = codeBox();
  const codes = {};
  const asked = {
    verdict: question("verdict", {
      show(found) {
        accept();
        head.show(found.verdict, sentence(found.sentence));
        announce(found.sentence);
        criteria.show(found);
        multipliers.show(found.multipliers);
        keep("Verdict", found.code);
      },
      fail: refuse,
    }),
    safe: question("safe", {
      pause: REST, fail: (problem) => safe.show({ changes: [], sentence: problem.message }),
      show: safe.show,
    }),
    runs: question("runs", {
      pause: REST, fail: (problem) => runs.clear(problem.message),
      show: (found) => { runs.show(found); keep("Runs", found.code); },
    }),
    spectrum: question("spectrum", {
      pause: REST, fail: (problem) => spectrum.clear(problem.message), show: spectrum.show,
    }),
  };
  const root = el("div", { class: "view map-view", id: "view-map" },
    el("div", { class: "lead" }, head.root, error),
    el("div", { class: "main-map" }, map.root),
    el("div", { class: "panel card" }, el("h2", {}, "Setting"), panel.root),
    el("div", { class: "row" }, runs.root, spectrum.root),
    el("div", { class: "beside" }, criteria.root, safe.root, multipliers.root),
    code.root);

  function keep(title, found) {
    if (found) codes[title] = found;
    code.show(["Verdict", "Map", "Runs"].filter((name) => codes[name])
      .map((name) => ({ title: name, code: codes[name] })));
  }

  function refuse(problem) {
    const near = problem.control && panel.refuse(problem.control, sentence(problem.message));
    say(error, near ? "" : sentence(problem.message));
  }

  function accept() {
    say(error, "");
    panel.accept();
  }

  map.onCode((found) => keep("Map", found));

  return {
    root,
    title: "Map",
    update(words) {
      const setting = settingOf(schema, words);
      const axes = axesIn(schema, setting, words);
      const possible = criteriaOf(schema, setting);
      const criterion = possible.includes(words.criterion) ? words.criterion : possible[0];
      panel.show(setting, axes);
      map.show(setting, axes, criterion, possible);
      const short = compact(schema, setting);
      asked.verdict.ask({ setting: short });
      if (asked.safe.ask({ setting: short })) safe.wait();
      asked.spectrum.ask({ setting: short });
      asked.runs.ask({ setting: short, ...RUNS });
    },
    again() {
      for (const each of Object.values(asked)) each.forget();
      map.again();
    },
    /** Give up what was asked: another view is shown. */
    leave() {
      for (const each of Object.values(asked)) each.drop();
      map.leave();
    },
  };
}
