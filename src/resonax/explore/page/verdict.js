/** The verdict of the four criteria on a setting, and which setting nearby is safe. */

import { el, setText } from "./dom.js";
import { MARKS, sentence, short, signed } from "./words.js";

const NAMES = { momentum: "momentum", lr: "step size", batch: "batch" };

/** The verdict in one sentence: the head of a view. */
export function headline(text) {
  const mark = el("span", { class: "mark answer", "aria-hidden": "true" });
  const words = el("span", { class: "answer" }, text);
  const root = el("h1", { class: "headline" }, mark, words, el("span", { class: "state" }));
  return {
    root,
    show(verdict, said) {
      root.dataset.verdict = verdict ?? "";
      setText(mark, MARKS[verdict] ?? "");
      setText(words, said);
    },
  };
}

/** The four criteria, each with its number in plain words. */
export function criteriaTable(schema) {
  const rows = new Map(schema.criteria.filter(({ quantity }) => quantity !== "distance")
    .map((criterion) => [criterion.name, row(criterion)]));
  const proof = el("p", { class: "proof" });
  const list = el("ul", { class: "criteria" }, ...[...rows.values()].map(({ root }) => root));
  const distances = el("dl", { class: "facts" });
  const heading = el("h2", {}, "Four criteria");
  const root = el("section", { class: "card verdict" }, heading, el("p", { class: "state" }),
    el("div", { class: "answer" }, list, distances, proof));
  return {
    root,
    show({ criteria, order_proof: order, level, notes = [] }) {
      list.hidden = !criteria.length;
      for (const found of criteria) rows.get(found.name)?.show(found);
      setText(heading, criteria.length ? "Four criteria" : "Predicted distance from the best weights");
      distances.replaceChildren(...Object.entries(level ?? {}).map(([name, value]) => el("div", {},
        el("dt", {}, name), el("dd", {}, short(value, 3)))));
      setText(proof, [order ?? "", ...notes].filter(Boolean).map(sentence).join(" "));
    },
  };
}

function row({ label, about }) {
  const mark = el("span", { class: "mark", "aria-hidden": "true" });
  const words = el("p", { class: "words" });
  const rate = el("p", { class: "rate" });
  const root = el("li", {},
    mark, el("div", {}, el("div", { class: "name" }, label, about ? el("small", {}, about) : null), words,
      rate));
  return {
    root,
    show(found) {
      root.dataset.verdict = found.verdict ?? "";
      setText(mark, MARKS[found.verdict] ?? "–");
      setText(words, sentence(found.sentence));
      const radius = found.radius === null || found.radius === undefined ? ""
        : ` · ρ ${short(found.radius)}${found.name === "mean_square" ? " of the square" : ""}`;
      setText(rate, found.rate === null ? "" : `${signed(found.rate)} per step${radius}`);
    },
  };
}

/** The nearest safe values, as buttons that move "you" there. */
export function safeButtons(take) {
  const list = el("ul", { class: "safe" }, ...Object.keys(NAMES).map(() => el("li", {})));
  const said = el("p", { class: "said" });
  const root = el("section", { class: "card remedies" }, el("h2", {}, "Nearest safe values"),
    el("p", { class: "state" }), el("div", { class: "answer" }, said, list));
  return {
    root,
    show({ changes, sentence: text }) {
      setText(said, sentence(text ?? ""));
      list.replaceChildren(...changes.map((change) => el("li", {},
        change.missing ? el("p", { class: "missing" }, sentence(change.missing)) : offer(change))));
    },
  };

  function offer(change) {
    return el("button", {
      type: "button", "data-safe": change.name, onclick: () => take(change),
    }, el("strong", {}, `${NAMES[change.name] ?? change.name} ${short(change.value)}`),
    el("span", {}, sentence(change.sentence)));
  }
}
