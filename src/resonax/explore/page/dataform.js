/** The form of a check: a file that is dropped or chosen, its columns, and the learner. */

import { choice, el, fill, setText, unique } from "./dom.js";

const NUMBERS = {
  lr: { label: "Step size", value: 0.01 },
  momentum: { label: "Momentum", value: 0.95 },
  batch: { label: "Batch (rows)", value: "", placeholder: "1" },
  horizon: { label: "Predict rows ahead", value: "" },
  epochs: { label: "Passes", value: 1 },
};
const OPTIMIZERS = [
  { value: "heavy_ball", label: "SGD with momentum" }, { value: "nesterov", label: "Nesterov" },
  { value: "sgd", label: "plain SGD" }, { value: "torch", label: "torch.optim.SGD" },
  { value: "optax", label: "optax.sgd" }, { value: "river", label: "river" },
];

/** The options of a check as they stand when nothing was chosen. */
export const USUAL = Object.fromEntries(
  Object.entries(NUMBERS).map(([name, { value }]) => [name, String(value)]),
);

/** Return the columns that can be learnt from: all of numbers that have no other part. */
export function learnable(columns, options) {
  const taken = [options.order_by, options.group_by, options.horizon ? null : options.target];
  return columns.filter(({ name, numeric }) => numeric && !taken.includes(name))
    .map(({ name }) => name);
}

/**
 * Make the form.
 * @param {{chosen: Function, example: Function, changed: Function, check: Function}} given called
 *   with a file, with nothing, with parameters that change, and with nothing
 */
export function dataForm({ chosen, example, given, changed, check }) {
  const picker = el("input", {
    type: "file", id: unique("file"), accept: ".csv,.tsv,.txt,.parquet,.npy,.npz,.gz",
    onchange: () => picker.files[0] && chosen(picker.files[0]),
  });
  const file = el("p", { class: "file" }, "No file yet.");
  const errors = { file: errorLine(), check: errorLine() }; // beside what caused them
  picker.setAttribute("aria-describedby", errors.file.id);
  const zone = el("div", { class: "drop" },
    el("label", { for: picker.id, class: "pick" }, "Choose a file"), picker,
    el("p", {}, "or drop a CSV or Parquet file here. It is read by the server on this machine and "
      + "not kept."), file, errors.file);
  const own = given ? el("button", { type: "button", onclick: given.use }, `Use ${given.name}`) : null;
  const sample = el("button", { type: "button", onclick: example, id: "use-example" }, "Try the example");
  const selects = {
    target: choice("Target", []), order_by: choice("Order by", []), group_by: choice("Series by", []),
    optimizer: choice("Optimizer", OPTIMIZERS),
    loss: choice("Loss", [{ value: "squared" }, { value: "logistic", label: "logistic (two classes)" }]),
  };
  for (const [name, { root, select }] of Object.entries(selects)) {
    select.dataset.option = name;
    select.addEventListener("change", () => changed({ [name]: select.value }));
    errors[name] = errorLine();
    root.append(errors[name]);
  }
  const inputs = Object.fromEntries(Object.entries(NUMBERS).map(([name, { label, placeholder = "" }]) => {
    const id = unique(name);
    errors[name] = errorLine();
    const input = el("input", {
      id, type: "text", inputmode: "decimal", class: "typed", "data-option": name, autocomplete: "off",
      placeholder,
      "aria-describedby": errors[name].id,
      onchange: (event) => changed({ [name]: event.target.value.replace(",", ".") }),
    });
    const root = el("div", { class: "choice" }, el("label", { for: id }, label), input, errors[name]);
    return [name, { input, root }];
  }));
  errors.features = errorLine();
  const boxes = el("div", { class: "columns" });
  const columns = el("fieldset", { class: "columns-of", hidden: true },
    el("legend", {}, "Columns to learn from"), boxes, errors.features);
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
  columns,
  el("fieldset", {}, el("legend", {}, "Learner: a linear model"), selects.optimizer.root, inputs.lr.root,
    inputs.momentum.root, inputs.batch.root, inputs.epochs.root, selects.loss.root),
  button, errors.check);
  acceptDrops(zone, chosen);

  let ticked = []; // columns that are learnt from
  let able = []; // columns that could be
  const ticks = new Map(); // boxes by their columns
  let built = "";

  function showColumns(all, options) {
    able = learnable(all, options);
    ticked = options.features ? options.features.split(",") : able;
    columns.hidden = !all.length;
    if (JSON.stringify(all) !== built) {
      built = JSON.stringify(all);
      ticks.clear();
      boxes.replaceChildren(...all.map(({ name, kind }) => {
        const box = el("input", { type: "checkbox", id: unique("column"), "data-column": name });
        box.addEventListener("change", () => tick(name, box));
        ticks.set(name, box);
        return el("div", { class: "tick" }, box, el("label", { for: box.id }, `${name} (${kind})`));
      }));
    }
    for (const [name, box] of ticks) {
      box.checked = ticked.includes(name);
      box.disabled = !able.includes(name) || name.includes(","); // a comma parts names
    }
  }

  function tick(name, box) {
    const now = able.filter((each) => (each === name ? box.checked : ticked.includes(each)));
    if (now.length) changed({ features: now.length === able.length ? null : now.join(",") });
    else {
      box.checked = true;
      setText(errors.features, "One column at least is needed to learn from.");
    }
  }

  return {
    root,
    /** Show what is chosen: the parameters of the address, and the columns of the file. */
    show(params, table) {
      const named = (table?.columns ?? []).map(({ name, kind }) => ({
        value: name, label: kind ? `${name} (${kind})` : name,
      }));
      fill(selects.target.select, [{ value: "", label: "none" }, ...named]);
      fill(selects.order_by.select, [{ value: "", label: "as in the file" }, ...named]);
      fill(selects.group_by.select, [{ value: "", label: "one series" }, ...named]);
      for (const [name, { select }] of Object.entries(selects)) {
        const usual = name === "optimizer" ? "heavy_ball" : name === "loss" ? "squared" : "";
        select.value = params[name] ?? usual;
      }
      for (const [name, { input }] of Object.entries(inputs)) {
        if (document.activeElement !== input) input.value = params[name] ?? USUAL[name];
      }
      dropMissing.checked = params.drop_missing === "true";
      button.disabled = !table;
      showColumns(table?.columns ?? [], params);
    },
    file: (text) => setText(file, text),
    /** Say what is wrong beside its cause: an option, the "file", or else the button "check". */
    refuse(text, cause = "check") {
      const place = cause in errors ? cause : "check";
      setText(errors[place], text);
      if (place in inputs) inputs[place].input.toggleAttribute("aria-invalid", true);
    },
    accept() {
      for (const line of Object.values(errors)) setText(line, "");
      for (const { input } of Object.values(inputs)) input.removeAttribute("aria-invalid");
    },
  };
}

function errorLine() {
  return el("p", { class: "error", role: "alert", id: unique("error") });
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
