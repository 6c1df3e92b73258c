/** The form of a check: a file that is dropped or chosen, its columns, and the learner. */

import { choice, el, fill, say, unique } from "./dom.js";

const NUMBERS = {
  lr: { label: "Step size", value: 0.01 },
  momentum: { label: "Momentum", value: 0.95 },
  batch: { label: "Batch", value: 1 },
  horizon: { label: "Predict rows ahead", value: "" },
  epochs: { label: "Passes", value: 1 },
};
const OPTIMIZERS = ["heavy_ball", "nesterov", "sgd", "torch", "optax", "river"];

/** The options of a check as they stand when nothing was chosen. */
export const USUAL = Object.fromEntries(
  Object.entries(NUMBERS).map(([name, { value }]) => [name, String(value)]),
);

/**
 * Make the form.
 * @param {{chosen: Function, example: Function, changed: Function, check: Function}} given called
 *   with a file, with nothing, with words that change, and with nothing
 */
export function dataForm({ chosen, example, given, changed, check }) {
  const picker = el("input", {
    type: "file", id: unique("file"), accept: ".csv,.tsv,.txt,.parquet,.npy,.npz,.gz",
    onchange: () => picker.files[0] && chosen(picker.files[0]),
  });
  const file = el("p", { class: "file" }, "No file yet.");
  const error = el("p", { class: "error", role: "alert", id: unique("error") });
  picker.setAttribute("aria-describedby", error.id);
  const zone = el("div", { class: "drop" },
    el("label", { for: picker.id, class: "pick" }, "Choose a file"), picker,
    el("p", {}, "or drop a CSV or Parquet file here. It is read by the server on this machine and "
      + "not kept."), file, error);
  const own = given ? el("button", { type: "button", onclick: given.use }, `Use ${given.name}`) : null;
  const sample = el("button", { type: "button", onclick: example, id: "use-example" }, "Try the example");
  const selects = {
    target: choice("Target", []), order_by: choice("Order by", []), group_by: choice("Series by", []),
    optimizer: choice("Optimizer", OPTIMIZERS.map((value) => ({ value }))),
    loss: choice("Loss", [{ value: "squared" }, { value: "logistic", label: "logistic (two classes)" }]),
  };
  for (const [name, { select }] of Object.entries(selects)) {
    select.dataset.option = name;
    select.addEventListener("change", () => changed({ [name]: select.value }));
  }
  const inputs = Object.fromEntries(Object.entries(NUMBERS).map(([name, { label }]) => {
    const id = unique(name);
    const input = el("input", {
      id, type: "text", inputmode: "decimal", class: "typed", "data-option": name, autocomplete: "off",
      onchange: (event) => changed({ [name]: event.target.value.replace(",", ".") }),
    });
    return [name, { input, root: el("div", { class: "choice" }, el("label", { for: id }, label), input) }];
  }));
  const dropMissing = el("input", {
    type: "checkbox", id: unique("drop"),
    onchange: () => changed({ drop_missing: dropMissing.checked ? "true" : null }),
  });
  const button = el("button", { type: "submit", class: "primary", id: "check" }, "Check");
  const root = el("form", {
    class: "data-form", "aria-label": "What to check",
    onsubmit: (event) => { event.preventDefault(); check(); },
  }, zone, el("div", { class: "buttons" }, sample, own),
  el("fieldset", {}, el("legend", {}, "Rows"), selects.target.root, selects.order_by.root,
    selects.group_by.root, inputs.horizon.root,
    el("div", { class: "tick" }, dropMissing,
      el("label", { for: dropMissing.id }, "leave out rows with missing values"))),
  el("fieldset", {}, el("legend", {}, "Learner"), selects.optimizer.root, inputs.lr.root,
    inputs.momentum.root, inputs.batch.root, inputs.epochs.root, selects.loss.root),
  button);
  acceptDrops(zone, chosen);

  return {
    root,
    /** Show what is chosen: the words of the address, and the columns of the file. */
    show(words, table) {
      const columns = (table?.columns ?? []).map(({ name, kind }) => ({
        value: name, label: kind ? `${name} (${kind})` : name,
      }));
      fill(selects.target.select, [{ value: "", label: "none" }, ...columns]);
      fill(selects.order_by.select, [{ value: "", label: "as in the file" }, ...columns]);
      fill(selects.group_by.select, [{ value: "", label: "one series" }, ...columns]);
      for (const [name, { select }] of Object.entries(selects)) {
        const usual = name === "optimizer" ? "heavy_ball" : name === "loss" ? "squared" : "";
        select.value = words[name] ?? usual;
      }
      for (const [name, { input }] of Object.entries(inputs)) {
        if (document.activeElement !== input) input.value = words[name] ?? USUAL[name];
      }
      dropMissing.checked = words.drop_missing === "true";
      button.disabled = !table;
    },
    file: (text) => say(file, text),
    refuse: (text) => say(error, text),
  };
}

function acceptDrops(zone, chosen) {
  let depth = 0;
  const isFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  window.addEventListener("dragenter", (event) => {
    if (!isFile(event)) return;
    depth += 1;
    zone.classList.add("over");
  });
  window.addEventListener("dragleave", () => {
    depth = Math.max(0, depth - 1);
    if (!depth) zone.classList.remove("over");
  });
  window.addEventListener("dragover", (event) => isFile(event) && event.preventDefault());
  window.addEventListener("drop", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    depth = 0;
    zone.classList.remove("over");
    if (event.dataTransfer.files[0] && zone.offsetParent) chosen(event.dataTransfer.files[0]);
  });
}
