/** The controls of a setting: process, optimizer, features, and a slider for each number. */

import { choice, el, setText, unique } from "./dom.js";
import { scale, tidy, spacingOf } from "./scale.js";
import { numbersOf } from "./setting.js";
import { short } from "./words.js";

const FINE = 1000; // places of a slider

/**
 * Make the controls.
 * @param {Object} schema of the server
 * @param {{changed: Function, refused: Function}} given called with the parameters that change and the name of
 *   the control, and when something is typed that is no number
 */
export function controls(schema, { changed, refused }) {
  const kinds = {
    process: choice("Inputs", optionsOf(schema.processes)),
    optimizer: choice("Optimizer", optionsOf(schema.optimizers)),
    basis: choice("Features", schema.bases.map((kind) => ({
      value: kind.default ?? kind.name, label: kind.label ?? kind.name,
    }))),
  };
  const abouts = {};
  const errors = {};
  const groups = {};
  const sliders = new Map();
  for (const [name, { root, select }] of Object.entries(kinds)) {
    select.dataset.control = name;
    select.addEventListener("change", () => changed({ [name]: select.value }, name));
    abouts[name] = el("p", { class: "about" });
    groups[name] = el("div", { class: "numbers" });
    errors[name] = el("p", { class: "error", role: "alert" });
    root.append(errors[name], abouts[name]);
  }
  const root = el("form", { class: "controls", "aria-label": "Setting", onsubmit: stop },
    ...Object.keys(kinds).map((name) => el("fieldset", {},
      el("legend", { class: "unseen" }, kinds[name].root.firstChild.textContent),
      kinds[name].root, groups[name])));

  function sliderOf(name) {
    if (!sliders.has(name)) {
      const make = schema.numbers[name].flag ? flag : slider;
      sliders.set(name, make(name, schema.numbers[name],
        (value) => changed({ [name]: value }, name), refused));
    }
    return sliders.get(name);
  }

  function show(setting, axes) {
    const features = setting.basis.split(":")[0];
    kinds.process.select.value = setting.process;
    kinds.optimizer.select.value = setting.optimizer;
    const basis = schema.bases.find((kind) => kind.name === features);
    kinds.basis.select.value = basis?.default ?? features;
    const find = (list, name) => schema[list].find((kind) => kind.name === name)?.about ?? "";
    setText(abouts.process, find("processes", setting.process));
    setText(abouts.optimizer, find("optimizers", setting.optimizer));
    setText(abouts.basis, basis?.about ?? "");
    const shown = numbersOf(schema, { ...setting, basis: features });
    for (const [group, names] of Object.entries(shown)) {
      const here = names.filter((name) => name in setting).map(sliderOf);
      const nodes = here.map((each) => each.root);
      if (nodes.some((node, k) => groups[group].children[k] !== node)
        || groups[group].children.length !== nodes.length) groups[group].replaceChildren(...nodes);
    }
    for (const [name, each] of sliders) {
      if (!(name in setting)) continue;
      each.show(setting[name]);
      const place = axes.x.name === name ? "across" : axes.y.name === name ? "up" : null;
      each.badge(place);
    }
  }

  return {
    root,
    show,
    /** Show an error near the control that it is of; return whether there is one. */
    refuse(name, text) {
      if (name in errors) setText(errors[name], text);
      sliders.get(name)?.refuse(text);
      return name in errors || Boolean(sliders.get(name)?.root.isConnected);
    },
    accept() {
      for (const each of sliders.values()) each.refuse("");
      for (const each of Object.values(errors)) setText(each, "");
    },
  };
}

function stop(event) {
  event.preventDefault();
}

function optionsOf(list) {
  return list.map(({ name, label }) => ({ value: name, label: label ?? name }));
}

/** Return a slider with its number, which can be typed too. */
function slider(name, number, changed, refused) {
  const id = unique(name);
  const span = number.maximum - number.minimum;
  const along = scale(number.minimum, number.maximum, spacingOf(number));
  const error = el("p", { class: "error", id: `${id}-error`, role: "alert" });
  const badge = el("span", { class: "badge", hidden: true });
  const range = el("input", {
    type: "range", id, min: 0, max: FINE, step: 1, "data-number": name,
    "aria-describedby": `${id}-error`, title: number.about,
  });
  const typed = el("input", {
    type: "text", inputmode: "decimal", class: "typed", "aria-label": `${number.label}, as a number`,
    "data-typed": name, autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-error`,
  });
  range.addEventListener("input", () => {
    // By half the span, so that no step of the slider is rounded away.
    changed(tidy(along.value(range.value / FINE), number, span / 2));
  });
  typed.addEventListener("change", () => {
    const value = Number(typed.value.replace(",", ".").replace("−", "-"));
    if (typed.value.trim() !== "" && Number.isFinite(value)) changed(value);
    else {
      refuse(`${number.label} must be a number.`);
      refused();
    }
  });

  function refuse(text) {
    setText(error, text);
    typed.toggleAttribute("aria-invalid", Boolean(text));
  }

  const unit = number.unit && number.unit !== "1" ? ` (${number.unit})` : "";
  const root = el("div", { class: "number" },
    el("label", { for: id }, `${number.label}${unit} `,
      number.symbol ? el("i", { class: "symbol" }, number.symbol) : null, badge),
    range, typed, error);
  return {
    root,
    show(value) {
      const place = String(Math.round(FINE * along.share(value)));
      if (range.value !== place) range.value = place;
      range.style.setProperty("--share", `${(100 * place) / FINE}%`);
      range.setAttribute("aria-valuetext", `${short(value, 6)}${unit}`);
      if (document.activeElement !== typed || Number(typed.value) !== value) {
        typed.value = String(Number(value.toPrecision(6)));
      }
    },
    badge(place) {
      badge.hidden = !place;
      setText(badge, place === "across" ? "↔ axis" : place ? "↕ axis" : "");
    },
    refuse,
  };
}

/** Return a box to tick. */
function flag(name, { label, about }, changed) {
  const id = unique(name);
  const box = el("input", { type: "checkbox", id, "data-flag": name, title: about });
  box.addEventListener("change", () => changed(box.checked));
  return {
    root: el("div", { class: "tick" }, box, el("label", { for: id }, label)),
    show(value) { box.checked = value; },
    badge() {},
    refuse() {},
  };
}
