/** The state of the page: a view and its words, kept in the address after "#".
 *
 * Each view has its own words; only those of the view that is shown stand in the address. Changes
 * from one control in quick succession are one step of the back button.
 */

const TOGETHER = 1200; // milliseconds within which changes of one source are one step
const VIEWS = ["map", "data", "results"];
const listeners = new Set();
const state = { view: "map", tour: 0, map: {}, data: {}, results: {} };
let last = { source: null, time: -Infinity };

/** Return the state: `view`, `tour`, and the words of each view. */
export function current() {
  return state;
}

/** Call a function after each change, and tell it what the source of the change was. */
export function subscribe(listener) {
  listeners.add(listener);
}

/** Change words of a view, and go there; a word that becomes null is left out. */
export function change(view, words, source, { replaceAll = false, tour = state.tour } = {}) {
  const merged = { ...(replaceAll ? {} : state[view]), ...words };
  state[view] = Object.fromEntries(
    Object.entries(merged)
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => [name, String(value)]),
  );
  state.view = view;
  state.tour = tour;
  write(source);
  tell(source);
}

/** Return the address of a state, to be written or linked to. */
export function addressOf(view, words, tour = 0) {
  return `#${new URLSearchParams({ view, ...words, ...(tour ? { tour } : {}) })}`;
}

function write(source) {
  const text = addressOf(state.view, state[state.view], state.tour);
  if (text === location.hash) return;
  const now = performance.now();
  const same = source === last.source && now - last.time < TOGETHER;
  history[same || source === "start" ? "replaceState" : "pushState"](null, "", text);
  last = { source, time: now };
}

function read() {
  const { view, tour, ...words } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  state.view = VIEWS.includes(view) ? view : "map";
  state.tour = Number(tour) || 0;
  state[state.view] = words;
}

function tell(source) {
  for (const listener of listeners) listener(state, source);
}

/** Take the state from the address whenever that changes, and tell it now; begin where it names none. */
export function start(view) {
  if (!location.hash) state.view = view;
  window.addEventListener("popstate", () => {
    read();
    last = { source: null, time: -Infinity };
    tell("address");
  });
  tell("start");
}

read();
