/** The state of the page: a view and its parameters, kept in the address after "#".
 *
 * Each view has its own parameters; only those of the view that is shown stand in the address. Changes
 * from one control in quick succession are one step of the back button.
 */

const TOGETHER = 1200; // milliseconds within which changes of one source are one step
const VIEWS = ["map", "data", "results"];
const listeners = new Set();
const state = { view: "map", tour: 0, map: {}, data: {}, results: {} };
let last = { source: null, time: -Infinity };

/** Return the state: `view`, `tour`, and the parameters of each view. */
export function current() {
  return state;
}

/** Call a function after each change, with the state and the source of the change. */
export function subscribe(listener) {
  listeners.add(listener);
}

/** Change parameters of a view, and go there; one that becomes null is left out. */
export function change(view, params, source, { replaceAll = false, tour = state.tour } = {}) {
  const merged = { ...(replaceAll ? {} : state[view]), ...params };
  state[view] = Object.fromEntries(
    Object.entries(merged)
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => [name, String(value)]),
  );
  state.view = view;
  state.tour = tour;
  write(source);
  notify(source);
}

/** Return the address of a state, to be written or linked to. */
export function addressOf(view, params, tour = 0) {
  return `#${new URLSearchParams({ view, ...params, ...(tour ? { tour } : {}) })}`;
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
  const { view, tour, ...params } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  state.view = VIEWS.includes(view) ? view : "map";
  state.tour = Number(tour) || 0;
  state[state.view] = params;
}

function notify(source) {
  for (const listener of listeners) listener(state, source);
}

/** Take the state from the address now and whenever that changes; begin with a view if it names none. */
export function start(view) {
  if (!location.hash) state.view = view;
  window.addEventListener("popstate", () => {
    read();
    last = { source: null, time: -Infinity };
    notify("address");
  });
  notify("start");
}

read();
