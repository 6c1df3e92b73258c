/** A setting: what is trained on what, by the options of the command line, from the parameters of the address. */

import { spacingOf } from "./scale.js";

/** The axes of a map are written as first:last in the address. */
const AXIS = /^([a-z0-9_]+):([^:]+):([^:]+)$/;

/** Return the numbers that a process, an optimizer and a basis take, in groups. */
export function numbersOf(schema, { process, optimizer, basis }) {
  const of = (list, name) => schema[list].find((kind) => kind.name === name)?.numbers ?? [];
  const known = (names) => names.filter((name) => name in schema.numbers);
  const owned = new Set(["processes", "optimizers", "bases"]
    .flatMap((list) => schema[list].flatMap((kind) => kind.numbers ?? [])));
  const free = Object.keys(schema.numbers).filter((name) => !owned.has(name));
  return {
    process: known(of("processes", process)),
    optimizer: [...known(of("optimizers", optimizer)), ...free],
    basis: known(of("bases", basis)),
  };
}

/** Return the whole setting that the parameters of the address describe. */
export function settingOf(schema, params) {
  const named = (list, name, usual) => (schema[list].some((kind) => kind.name === name) ? name : usual);
  const process = named("processes", params.process, schema.default.process);
  const optimizer = named("optimizers", params.optimizer, schema.default.optimizer);
  const features = params.basis ?? schema.default.basis ?? "linear";
  const basis = named("bases", features.split(":")[0], "linear");
  const setting = { process, optimizer, basis: basis === features.split(":")[0] ? features : basis };
  const { process: own, optimizer: rates, basis: shape } =
    numbersOf(schema, { process, optimizer, basis });
  for (const name of [...own, ...rates, ...shape]) {
    const given = schema.numbers[name].flag ? { true: true, false: false }[params[name]]
      : Number(params[name] ?? NaN);
    setting[name] = given === undefined || Number.isNaN(given) ? usual(schema, name) : given;
    if (setting[name] === null || setting[name] === undefined) delete setting[name];
  }
  return setting;
}

function usual(schema, name) {
  return schema.default[name] ?? schema.numbers[name].default;
}

/** Return the criteria by which a map of a setting can be drawn, the quickest first. */
export function criteriaOf(schema, { process, optimizer }) {
  const of = (list, name) => schema[list].find((kind) => kind.name === name)?.criteria;
  const [all, own] = [of("optimizers", optimizer) ?? ["map"], of("processes", process)];
  const both = own ? all.filter((name) => own.includes(name)) : all;
  return both.length ? both : all;
}

/** Return the names that can be axes of a map of a setting. */
export function axesOf(schema, setting) {
  return Object.keys(schema.numbers).filter((name) => name in setting && schema.numbers[name].axis);
}

/** Return the two axes of a map, each `{name, first, last, log}`. */
export function axesIn(schema, setting, params) {
  const names = axesOf(schema, setting);
  const taken = [];
  for (const place of ["x", "y"]) {
    const usualAxis = schema.default_axes[place];
    const given = AXIS.exec(params[place] ?? "");
    let axis = given && { name: given[1], first: Number(given[2]), last: Number(given[3]) };
    if (!isUsable(axis, names, taken)) {
      const free = names.filter((name) => !taken.some((other) => other.name === name));
      axis = isUsable(usualAxis, names, taken) ? { ...usualAxis } : rangeOf(schema, free.find((name) => schema.numbers[name].depth) ?? free[0]);
    }
    taken.push({ ...axis, log: spacingOf(schema.numbers[axis.name]) === "log" });
  }
  return { x: taken[0], y: taken[1] };
}

function isUsable(axis, names, taken) {
  return axis && names.includes(axis.name) && !taken.some((other) => other.name === axis.name)
    && Number.isFinite(axis.first) && Number.isFinite(axis.last) && axis.first < axis.last;
}

/** Return an axis over all that the slider of a number reaches. */
export function rangeOf(schema, name) {
  const usual = [schema.default_axes.x, schema.default_axes.y].find((axis) => axis.name === name);
  if (usual) return { ...usual };
  const { minimum, maximum } = schema.numbers[name];
  return { name, first: minimum, last: maximum };
}

/** Return an axis as a parameter of the address. */
export function axisParam({ name, first, last }) {
  return `${name}:${first}:${last}`;
}

/** Return a setting without the numbers that are as usual: what is asked, and shown as code.
 *
 * Adaptive optimizers have defaults of their own for some numbers, which are all given.
 */
export function compact(schema, setting) {
  const { criteria, numbers } = schema.optimizers.find(({ name }) => name === setting.optimizer);
  const needed = new Set([...Object.keys(schema.default), ...(criteria[0] === "level" ? numbers : [])]);
  return Object.fromEntries(Object.entries(setting)
    .filter(([name, value]) => needed.has(name) || value !== schema.numbers[name]?.default));
}
