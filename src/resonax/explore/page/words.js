/** Numbers in words. */

const ROUND = new Map();

/** Return a number with so many significant digits, without trailing zeros. */
export function short(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return value.toExponential(digits - 1).replace(/\.?0+e/, "e");
  if (!ROUND.has(digits)) {
    ROUND.set(digits, new Intl.NumberFormat("en", {
      maximumSignificantDigits: digits, useGrouping: size >= 1e4,
    }));
  }
  return ROUND.get(digits).format(value).replace(/^-/, "−");
}

/** Return a number with its sign. */
export function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return (value > 0 ? "+" : "") + short(value, digits);
}

/** Return the steps in which an error doubles or halves at a rate. */
export function steps(rate) {
  const number = Math.LN2 / Math.abs(rate);
  return number >= 100 ? Math.round(number).toLocaleString("en") : short(number, 3);
}

/** Return what a rate does to an error, in words. */
export function pace(rate) {
  if (rate === null || rate === undefined) return "not known";
  if (Math.abs(rate) < 1e-7) return "stays as large as it is";
  return `${rate > 0 ? "doubles" : "halves"} every ${steps(rate)} steps`;
}

/** Return a sentence: a capital first, a full stop last. */
export function sentence(text) {
  const trimmed = String(text ?? "").trim();
  if (!trimmed) return "";
  const first = trimmed[0].toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

/** Return text as words of a figure: plotly reads tags and entities, and those are taken apart. */
export function figureText(text) {
  return String(text ?? "").replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** The mark of a verdict, so that colour never speaks alone. */
export const MARKS = { converges: "▼", diverges: "▲", marginal: "◆", undecided: "◆" };
