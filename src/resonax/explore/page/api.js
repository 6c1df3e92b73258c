/** Requests to the server: with the token, without answers that nobody waits for any more. */

const token = new URLSearchParams(location.search).get("token") ?? "";
const client = [...crypto.getRandomValues(new Uint8Array(8))]
  .map((byte) => byte.toString(16).padStart(2, "0")).join("");
const HEARTBEAT = 5000; // milliseconds
const watchers = new Set();
let connected = true;

/** An answer of the server that says what is wrong, in a sentence. */
export class Refusal extends Error {
  constructor(text, status, name) {
    super(text);
    this.status = status;
    this.control = name ?? null; // the control whose value is wrong, if it is one
  }
}

/** A request that did not reach the server: the banner tells of it, and views ask again later. */
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
    found.name);
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
 * A question whose subject moves: one request is under way at most, and while it is, only the
 * newest subject waits.
 * @param {string} path of the request
 * @param {{show: Function, fail: Function, pause?: number}} given what to do with answers; `pause`
 *   is how long the subject has to rest before it is asked about, in milliseconds, and a question
 *   with a pause gives up the answer to an older subject
 */
export function question(path, { show, fail, pause = 0 }) {
  let key = null;
  let waiting = null;
  let running = null;
  let timer;

  async function run() {
    const subject = waiting;
    const mine = key;
    waiting = null;
    running = new AbortController();
    try {
      show(await request(path, { body: subject, signal: running.signal }), subject);
    } catch (error) {
      if (error.status === 503) { // too many wait: a little later, if it still matters
        await new Promise((resolve) => { setTimeout(resolve, 1000); });
        if (key === mine) waiting ??= subject;
      } else if (!isDropped(error)) fail(error, subject);
      else if (key === mine) key = null; // so that it can be asked again
    }
    running = null;
    if (waiting) run();
  }

  return {
    /** Ask about a subject; return whether it is another than before. */
    ask(subject) {
      const now = JSON.stringify(subject);
      if (now === key) return false;
      key = now;
      clearTimeout(timer);
      if (pause) running?.abort(); // a slow answer to what nobody asks any more
      timer = setTimeout(() => {
        waiting = subject;
        if (!running) run();
      }, pause);
      return true;
    },
    drop() {
      clearTimeout(timer);
      waiting = null;
      key = null;
      running?.abort();
    },
    forget() {
      key = null;
    },
    isBusy: () => Boolean(running || waiting),
  };
}
