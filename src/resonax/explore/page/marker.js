/** The marker "you" on a map: it follows clicks, drags and the arrow keys. */

import { el } from "./dom.js";

const SMALL = 0.01; // shares of an axis that an arrow key moves
const LARGE = 0.05;
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * Lay the marker over the drawing of a figure.
 * @param {Object} fig of `figure`
 * @param {{moved: Function, hovered?: Function, label: Function}} given `moved(shareX, shareY)` is called
 *   when the marker is put somewhere, `hovered(shares|null)` when the pointer is over the map, and `label()`
 *   returns the text for screen readers
 */
export function placeMarker(fig, { moved, hovered = () => {}, label }) {
  const marker = el("button", {
    type: "button", class: "you", "aria-roledescription": "marker on a map", hidden: true,
    "aria-label": "you",
  }, el("span", { class: "tag", "aria-hidden": "true" }, "you"));
  const surface = el("div", { class: "surface" }, marker);
  fig.frame.append(surface);
  let shares = [0.5, 0.5];
  let held = false;

  function fit() {
    const area = fig.plot._fullLayout?._size;
    if (!area) return;
    Object.assign(surface.style, {
      left: `${area.l}px`, top: `${area.t}px`, width: `${area.w}px`, height: `${area.h}px`,
    });
  }

  function put([x, y]) {
    shares = [x, y];
    marker.style.left = `${100 * x}%`;
    marker.style.top = `${100 * (1 - y)}%`;
    marker.classList.toggle("turned", x > 0.88);
    marker.setAttribute("aria-label", label());
  }

  function at(event) {
    const box = surface.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height]
      .map((share) => Math.min(Math.max(share, 0), 1));
  }

  function grab(event) {
    if (event.button !== 0) return;
    held = event.pointerType !== "touch" || event.target.closest(".you") !== null;
    if (!held) return; // a finger on the map may want to scroll: a tap comes as a click
    surface.setPointerCapture(event.pointerId);
    marker.focus({ preventScroll: true });
    event.preventDefault();
    moved(...at(event), "drag");
  }

  surface.addEventListener("pointerdown", grab);
  surface.addEventListener("pointermove", (event) => {
    if (held) moved(...at(event), "drag");
    else if (event.pointerType === "mouse") hovered(at(event));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    surface.addEventListener(name, () => { held = false; });
  }
  surface.addEventListener("pointerleave", () => hovered(null));
  surface.addEventListener("click", (event) => {
    if (event.detail && event.target === surface) moved(...at(event), "drag");
  });
  marker.addEventListener("keydown", (event) => {
    const way = KEYS[event.key];
    if (!way) return;
    event.preventDefault();
    const size = event.shiftKey ? LARGE : SMALL;
    moved(...shares.map((share, k) => Math.min(Math.max(share + size * way[k], 0), 1)), "keys");
  });
  fig.root.addEventListener("drawn", fit);
  new ResizeObserver(() => requestAnimationFrame(fit)).observe(fig.plot);
  return {
    show(x, y) {
      marker.hidden = false;
      put([x, y]);
    },
    hide() { marker.hidden = true; },
  };
}
