/** How a number is laid along a slider or an axis: evenly, by its logarithm, or by 1 - value. */

const SPACINGS = {
  linear: { to: (x) => x, back: (u) => u },
  log: { to: (x) => Math.log10(x), back: (u) => 10 ** u },
  depth: { to: (x) => -Math.log10(1 - x), back: (u) => 1 - 10 ** -u }, // spreads what is near 1
};

/** Return how the values of a number of the schema are spaced. */
export function spacingOf(number) {
  if (number?.depth) return "depth";
  return number?.log ? "log" : "linear";
}

/** Return how the server spaces the points of an axis of a map. */
export function spacingOfAxis(axis) {
  return axis.log ? "log" : "linear";
}

/**
 * Return a scale from `first` to `last`.
 * @returns {{share: Function, value: Function, place: Function}} share of the axis at a value, the
 *   value at a share, and the coordinate at which a figure draws a value
 */
export function scale(first, last, spacing = "linear") {
  const { to, back } = SPACINGS[spacing];
  const [low, high] = [to(first), to(last)];
  return {
    share: (x) => Math.min(Math.max((to(x) - low) / (high - low), 0), 1),
    value: (share) => back(low + share * (high - low)),
    place: to,
    low,
    high,
  };
}

/** Return a value with no more digits than its scale can tell, and whole where it must be. */
export function tidy(value, number, span) {
  if (number?.integer) return Math.max(Math.round(value), 1);
  if (spacingOf(number) === "log") return Number(value.toPrecision(3));
  if (spacingOf(number) === "depth") {
    const digits = Math.max(2, Math.ceil(-Math.log10(1 - Math.min(value, 0.999999))) + 2);
    return Number(value.toFixed(digits));
  }
  const digits = Math.max(0, Math.ceil(2.5 - Math.log10(span || 1)));
  return Number(value.toFixed(Math.min(digits, 8)));
}

/** Return places and words of the ticks of an axis that is drawn in the coordinates of its scale. */
export function ticks(first, last, spacing) {
  const { to } = SPACINGS[spacing];
  const round = spacing === "linear" ? even(first, last) : decades(first, last, spacing);
  // Where hardly a round number lies between the ends, plain ones stand for them.
  const values = round.length > 1 || spacing !== "log" ? round
    : [0, 0.5, 1].map((share) => Number((first * (last / first) ** share).toPrecision(3)));
  return { tickvals: values.map(to), ticktext: values.map((value) => label(value)) };
}

function even(first, last) {
  const raw = (last - first) / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(first / step - 1e-9); k * step <= last * (1 + 1e-9); k += 1) {
    found.push(Number((k * step).toPrecision(10)));
  }
  return found;
}

function decades(first, last, spacing) {
  if (spacing === "depth") {
    return [0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999]
      .filter((value) => value >= first - 1e-12 && value <= last + 1e-12);
  }
  const wide = Math.log10(last / first);
  const steps = wide > 3 ? [1] : wide > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8];
  const found = [];
  for (let power = Math.floor(Math.log10(first)); power <= Math.log10(last); power += 1) {
    for (const m of steps) {
      const value = Number((m * 10 ** power).toPrecision(6));
      if (value >= first * 0.999 && value <= last * 1.001) found.push(value);
    }
  }
  return found;
}

function label(value) {
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-4 || size >= 1e5)) return value.toExponential().replace("+", "");
  return String(value);
}
