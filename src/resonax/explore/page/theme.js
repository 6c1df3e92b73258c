/** Light and dark: the choice, and the colours that figures take from the style sheet. */

const listeners = new Set();
const system = matchMedia("(prefers-color-scheme: dark)");

/** Call a function when the colours change. */
export function onTheme(listener) {
  listeners.add(listener);
}

/** Whether the page is dark now. */
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

/** Return the colours of the style sheet by their names. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "raised", "ink", "soft", "line", "blue", "red", "grey", "band"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// Blue converges and red diverges, through the colour of the paper at 0: told apart with any common
// colour blindness, as the two ends differ in hue and the middle in lightness.
const LIGHT = ["#1d5a97", "#3d8abf", "#7fb7d8", "#c3dcec", "#fbfaf7", "#fbd3bd", "#f0a183", "#d4604e",
  "#a8182a"];
const DARK = ["#6fa9d6", "#4583b5", "#2d608b", "#20405c", "#1b1f24", "#5a2c25", "#98483a", "#d2705a",
  "#ffb59c"];

/** Return the diverging scale of colours, for plotly. */
export function diverging() {
  const shades = isDark() ? DARK : LIGHT;
  return shades.map((shade, index) => [index / (shades.length - 1), shade]);
}

/** Return a scale of colours from little to much. */
export function sequential() {
  const shades = isDark()
    ? ["#1b1e23", "#2b3a55", "#3f6d8e", "#6fa8a8", "#b9d7a8", "#fbf3c0"]
    : ["#fbfaf7", "#d8e6d5", "#9dc6bd", "#5b9bab", "#35688f", "#22335f"];
  return shades.map((shade, index) => [index / (shades.length - 1), shade]);
}

/** Let the switch of the page choose the colours, and remember the choice. */
export function start(select) {
  select.value = document.documentElement.dataset.theme ?? "auto";
  const notify = () => listeners.forEach((listener) => listener());
  select.addEventListener("change", () => {
    if (select.value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = select.value;
    try {
      localStorage.setItem("resonax-theme", select.value);
    } catch {
      // Storage can be forbidden: the choice holds until the page is left.
    }
    notify();
  });
  system.addEventListener("change", notify);
}
