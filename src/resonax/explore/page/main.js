/** The page: its views, and what connects them with the address, the colours and the server. */

import { addressOf, change, current, start as startAddress, subscribe } from "./address.js";
import { Unreachable, onConnection, request, watchServer } from "./api.js";
import { dataView } from "./dataview.js";
import { setText } from "./dom.js";
import { plotly } from "./figure.js";
import { mapView } from "./mapview.js";
import { resultsView } from "./resultsview.js";
import { start as startTheme } from "./theme.js";
import { tour } from "./tour.js";

const MAKE = { map: mapView, data: dataView, results: resultsView };
const main = document.getElementById("main");
const banner = document.getElementById("banner");
const GONE = "The server does not answer. Start it again with resonax explore on the same port: "
  + "this page goes on by itself when it is back.";
const OTHER = "The server on this port was started anew, with another token: open the address that "
  + "it printed.";

const guide = tour(document.getElementById("tour"), document.getElementById("tour-start"));
guide.show(current()); // before the server is asked, so that nothing moves down later
startTheme(document.getElementById("theme"));
onConnection((isThere, why) => {
  banner.hidden = isThere;
  setText(banner, isThere ? "" : why === "token" ? OTHER : GONE);
  if (isThere && views) {
    for (const view of Object.values(views)) view.leave();
    show(current());
  }
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address after "#" is the state of the page
  main.focus();
});

let views = null;
let schema = null;

async function begin() {
  try {
    schema = await request("schema");
  } catch (error) {
    if (error instanceof Unreachable) return setTimeout(begin, 1200);
    return setText(document.getElementById("starting"), error.message);
  }
  plotly().catch(() => {}); // fetched now, while the first questions are answered
  views = {};
  watchServer();
  subscribe(show);
  subscribe(guide.show);
  startAddress(schema.results ? "results" : schema.data ? "data" : "map");
  return undefined;
}

function show(state) {
  if (!views[state.view]) {
    views[state.view] = MAKE[state.view](schema);
    main.append(views[state.view].root);
  }
  document.getElementById("starting")?.remove();
  for (const [name, view] of Object.entries(views)) {
    if (name !== state.view && !view.root.hidden) view.leave();
    view.root.hidden = name !== state.view;
  }
  for (const link of document.querySelectorAll("#views a")) {
    const isHere = link.dataset.view === state.view;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = addressOf(link.dataset.view, state[link.dataset.view]);
  }
  document.title = `${views[state.view].title} · resonax explore`;
  views[state.view].update(state[state.view]);
}

for (const link of document.querySelectorAll("#views a")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab
    event.preventDefault();
    change(link.dataset.view, {}, `view ${link.dataset.view}`, { tour: 0 });
    window.scrollTo(0, 0);
  });
}

begin();
