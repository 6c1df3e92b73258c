/** The Python and the command line that make what is shown, to be copied. */

import { announce, el, setText } from "./dom.js";

/** Return a box with the code of a view; `show` takes `[{title, code: {python, command}}]`. */
export function codeBox() {
  const body = el("div", { class: "codes answer" });
  const root = el("section", { class: "code", hidden: true },
    el("h2", {}, "The same without this page"), el("p", { class: "state" }), body);
  let key = "";
  return {
    root,
    show(parts) {
      const now = JSON.stringify(parts);
      if (now === key) return;
      key = now;
      root.hidden = !parts.length;
      body.replaceChildren(...parts.flatMap(({ title, code }) => [
        code?.command ? block(`${title}: command line`, code.command) : null,
        code?.python ? block(`${title}: Python`, code.python) : null,
      ]).filter(Boolean));
    },
  };
}

function block(title, text) {
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy ${title}` }, "Copy");
  button.addEventListener("click", async () => {
    await copy(text);
    setText(button, "Copied");
    announce(`${title} was copied.`);
    setTimeout(() => setText(button, "Copy"), 1500);
  });
  return el("div", { class: "block" },
    el("div", { class: "head" }, el("h3", {}, title), button),
    el("pre", { tabindex: 0, "aria-label": title }, el("code", {}, text)));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no permission, or no such interface: an old way
    const area = el("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
