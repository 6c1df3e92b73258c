/** Requests to the server: with the token, without answers that nobody waits for any more. */

import { markState } from "./dom.js";

const token = new URLSearchParams(location.search).get("token") ?? "";
const client = [...crypto.getRandomValues(new Uint8Array(8))]
  .map((byte) => byte.toString(16).padStart(2, "0")).join("");
const HEARTBEAT = 5000; // milliseconds
const REST = 160; // milliseconds between a coarse answer and the question for a finer one
const watchers = new Set();
let connected = true;

/** An answer of the server that says what is wrong, in a sentence. */
class Refusal extends Error {
  constructor(text, status, name, path) {
    super(text);
    this.status = status;
    this.path = path;
    this.control = name ?? null; // the control whose value is wrong, if it is one
  }
}

/** A request that did not reach the server: the banner shows it, and views ask again later. */
export class Unreachable extends Error {}

/** Call a function with true or false when the server answers again or no more. */
export function onConnection(watcher) {
  watchers.add(watcher);
}

function reached(now, why = "") {
  if (connected === now) return;
  connected = now;
  for (const watcher of watchers) watcher(now, why);
  if (!now) setTimeout(retry, 700);
}

/** Ask now and then whether the server is there, so that the page tells before somebody waits. */
export function watchServer() {
  setInterval(() => {
    if (connected && document.visibilityState === "visible") request("schema").catch(() => {});
  }, HEARTBEAT);
}

async function retry() {
  try {
    const answer = await fetch("api/schema", { headers: headers(), cache: "no-store" });
    if (answer.ok) return reached(true);
    if (answer.status === 403) {
      for (const watcher of watchers) watcher(false, "token");
    }
  } catch {
    // Still down.
  }
  setTimeout(retry, 1200);
  return undefined;
}

function headers(more = {}) {
  return { "X-Resonax-Token": token, "X-Resonax-Client": client, ...more };
}

/** Return the answer to a request; raise `Refusal`, or `AbortError` if it was given up.
 *
 * With `keepalive` the browser sends it even if the page is closed meanwhile.
 */
export async function request(path, { body, method, signal, keepalive } = {}) {
  const isForm = body instanceof FormData;
  let answer;
  try {
    answer = await fetch(`api/${path}`, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers: headers(body === undefined || isForm ? {} : { "Content-Type": "application/json" }),
      body: body === undefined || isForm ? body : JSON.stringify(body),
      signal, keepalive,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reached(false);
    throw new Unreachable("The server does not answer.");
  }
  if (answer.status === 403) reached(false, "token");
  else reached(true);
  if (answer.status === 204) return null;
  const found = await answer.json().catch((error) => {
    if (error.name === "AbortError") throw error; // given up after the answer had begun
    if (answer.ok) throw new Unreachable("The answer of the server broke off.");
    return {};
  });
  if (answer.ok) return found;
  throw new Refusal(found.error ?? `The server answered ${answer.status}.`, answer.status,
    found.name, path);
}

/** Whether an error only says that nobody waits for the answer any more. */
export function isDropped(error) {
  return error.name === "AbortError" || error.status === 409 || error instanceof Unreachable;
}

/** Return the address of something that is fetched by the browser itself. */
export function address(path) {
  return `api/${path}${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}`;
}

/** Listen to the events of a job, and to their loss; return what ends the listening. */
export function listen(job, { lost, ...handlers }) {
  const source = new EventSource(address(`jobs/${encodeURIComponent(job)}/events`));
  for (const [name, handler] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => {
      if (["result", "failed", "cancelled"].includes(name)) source.close();
      handler(JSON.parse(event.data));
    });
  }
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) return;
    lost("The connection to the check was lost: start it again.");
  };
  return () => source.close();
}

/**
 * A request that is repeated whenever its subject changes. The parts of the page that show the answer are
 * grey from the moment on in which another subject is asked about, and an answer is shown only if the
 * server returns the current subject with it.
 * @param {string} path of the request
 * @param {{parts: Node[], show: Function, refuse?: Function, pause?: number}} given the parts of the
 *   page that show the answer, what shows it, what is called with the refusal of an invalid subject, and
 *   how long the subject has to rest before it is asked about, in milliseconds
 */
export function question(path, { parts, show, refuse = () => {}, pause = 0 }) {
  let key = null; // the current subject
  let running = null;
  let timer;
  let clock;

  function showState(state, text) {
    clearInterval(clock);
    markState(parts, state, text);
  }

  function wait() {
    const began = performance.now();
    showState("computing", "Computing …");
    clock = setInterval(() => {
      markState(parts, "computing", `Computing … ${Math.round((performance.now() - began) / 1000)} s`);
    }, 1000);
  }

  /** Ask one round after the other: each is the same subject, more finely. */
  async function run(mine, rounds) {
    running = new AbortController();
    const { signal } = running;
    for (const [index, body] of rounds.entries()) {
      if (index) await new Promise((resolve) => { setTimeout(resolve, REST); });
      if (key !== mine) return;
      try {
        const found = await request(path, { body, signal });
        if (key !== mine || JSON.stringify(found.asked) !== JSON.stringify(body)) return;
        const isLast = index === rounds.length - 1;
        showState(isLast ? "" : "finer", isLast ? "" : "A finer one is computed …");
        show(found, body);
      } catch (problem) {
        if (key !== mine) return;
        if (problem.status === 503 || problem.status === 409) { // too many wait, or it came too late
          timer = setTimeout(run, 1000, mine, rounds.slice(index));
          return;
        }
        key = null; // so that it can be asked again
        const why = problem.control ? "" : problem.message; // else it stands beside its control
        showState("none", isDropped(problem) ? "No answer yet." : `No answer for this setting. ${why}`.trim());
        if (problem.status === 400) refuse(problem);
        return;
      }
    }
  }

  function drop() {
    clearTimeout(timer);
    running?.abort();
    key = null;
  }

  return {
    /** Ask about a subject, first coarsely and then more finely; return whether it is another. */
    ask(...rounds) {
      const now = JSON.stringify(rounds);
      if (now === key) return false;
      drop();
      key = now;
      wait();
      if (pause) timer = setTimeout(run, pause, now, rounds);
      else run(now, rounds);
      return true;
    },
    /** Show that there is no answer: the setting is invalid. */
    none() {
      drop();
      showState("none", "No answer for this setting.");
    },
    /** Give up what was asked; it may be asked again. */
    drop,
  };
}
