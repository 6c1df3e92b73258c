/** The tour: five steps that tell the story of the paper, each a state of the page. */

import { change, current } from "./address.js";
import { el } from "./dom.js";

const TONGUE = {
  process: "sinusoid", period: 22, amplitude: 0.5, variance: 1, optimizer: "heavy_ball",
  lr: 0.01, momentum: 0.97, batch: 20, basis: "linear", x: "period:12:60", y: "momentum:0.95:0.999",
};

export const STEPS = [
  {
    name: "Swing", view: "map", point: "runs",
    params: { ...TONGUE, process: "iid", period: null, x: "lr:0.001:0.1", y: "momentum:0.9:0.999" },
    text: "Momentum turns gradient descent into a pendulum: the weights swing around the best ones, "
      + "a little less far each time. Here the inputs are independent of each other: their order says nothing, "
      + "so that the runs in order cover those that are shuffled. All settle near the best weights.",
  },
  {
    name: "Tongue", view: "map", point: "map", params: { ...TONGUE },
    text: "Now the mean of the inputs goes up and down every 22 steps, which is half the natural "
      + "period of the swing: a push at each turn, as on a playground. The marker \"you\" stands in a red "
      + "tongue of the map: there the error grows exponentially, as do the red runs under the map. The blue "
      + "ones have the same inputs shuffled, and stay near the best weights. Drag the marker out of the tongue.",
  },
  {
    name: "Noise", view: "map", point: "verdict",
    params: { ...TONGUE, momentum: 0.96, batch: 1, criterion: "mean_square" },
    text: "Just below the tongue the expected weights converge. But a batch of one sample is noisy, and "
      + "noise that grows with the weights shakes the pendulum too: almost every run converges, while rare ones "
      + "grow so large that the mean square diverges. So of the four criteria only mean square has the mark ▲, "
      + "and the map, which is now drawn by it, is red around you. Move the slider of the batch to 20, and "
      + "it turns to ▼.",
  },
  {
    name: "Real data", view: "data", point: "verdict",
    params: { source: "example", run: 1 },
    text: "Recorded data have rhythms too. These are hourly temperatures of San Francisco, with a rhythm of "
      + "24 rows, the day. While they are checked the answers appear one by one: a linear model that is "
      + "trained on them in order diverges, and on the same rows shuffled it does not.",
  },
  {
    name: "Remedy", view: "map", point: "remedies", params: { ...TONGUE, momentum: 0.95 },
    text: "Back at the period of 22, with a momentum of 0.95 in place of 0.97: it converges, and the card of "
      + "safe values says so. Raise the momentum to 0.97, and it offers the nearest safe ones as buttons. In a "
      + "run whose data you do not know beforehand, the guards in resonax.torch and resonax.jax look for them "
      + "while you train.",
  },
];

const wide = matchMedia("(min-width: 48rem) and (min-height: 40rem)"); // where the story stays in sight

/** Make the tour in its place; the button starts and ends it. */
export function tour(place, button) {
  const heading = el("h2", { tabindex: -1 });
  const text = el("p", { class: "story" });
  const dots = el("ol", { class: "dots" }, ...STEPS.map((step, index) => el("li", {},
    el("button", { type: "button", onclick: () => go(index + 1) }, step.name))));
  const back = el("button", { type: "button", onclick: () => go(current().tour - 1) }, "Back");
  const next = el("button", { type: "button", class: "primary", onclick: forward }, "Next");
  const end = el("button", { type: "button", onclick: () => leave() }, "End the tour");
  place.append(dots, heading, text, el("div", { class: "buttons" }, back, next, end));
  button.addEventListener("click", () => go(1));
  let shown = 0;

  function go(index) {
    const { view, params } = STEPS[index - 1];
    window.scrollTo({ top: 0, behavior: "instant" }); // before what is told of comes into sight
    change(view, params, `tour ${index}`, { replaceAll: true, tour: index });
    heading.focus({ preventScroll: true });
  }

  function forward() {
    if (current().tour < STEPS.length) go(current().tour + 1);
    else leave();
  }

  function leave() {
    const { view } = current();
    change(view, {}, "tour end", { tour: 0 });
    button.focus();
  }

  return {
    show(state) {
      const index = Math.min(Math.max(state.tour, 0), STEPS.length);
      place.hidden = index === 0;
      for (const node of document.querySelectorAll(".pointed")) node.classList.remove("pointed");
      if (!index) {
        shown = 0;
        return;
      }
      const { name, point } = STEPS[index - 1];
      const view = document.getElementById(`view-${state.view}`);
      const target = view?.querySelector(`.${point}, [data-name="${point}"]`);
      target?.classList.add("pointed");
      if (shown === index) return;
      shown = index;
      if (target && wide.matches) target.scrollIntoView({ block: "nearest" });
      heading.textContent = `${index} of ${STEPS.length}: ${name}`;
      text.textContent = STEPS[index - 1].text;
      [...dots.querySelectorAll("button")].forEach((dot, k) => {
        if (k === index - 1) dot.setAttribute("aria-current", "step");
        else dot.removeAttribute("aria-current");
      });
      back.disabled = index === 1;
      next.textContent = index === STEPS.length ? "Finish" : "Next";
    },
  };
}
