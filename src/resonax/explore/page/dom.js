/** Elements, made of values: text stays text, so that no name from a file becomes mark-up. */

/**
 * Make an element.
 * @param {string} tag its name
 * @param {Object} given attributes; `class`, `data-*` and `aria-*` as in HTML, `on*` listeners
 * @param {...(Node|string|number|null|Array)} children nodes, or text
 */
export function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Replace what a node holds, unless it holds that text already. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Say of parts of the page whether what they show belongs to what is set now. What is in the elements of
 * the class "answer" is grey and cannot be used while it does not; the element "state" says why.
 * @param {Node[]} parts
 * @param {string} state nothing if it does, "finer" if more of it comes, else "computing", "none", "other"
 */
export function markState(parts, state = "", text = "") {
  for (const part of parts) {
    if (state) part.dataset.state = state;
    else delete part.dataset.state;
    part.setAttribute("aria-busy", String(state === "computing"));
    const isOld = state !== "" && state !== "finer";
    for (const node of part.querySelectorAll(".answer")) node.inert = isOld;
    for (const node of part.querySelectorAll(".state")) setText(node, text);
  }
}

let count = 0;

/** Return a name that no other element of the page has. */
export function unique(prefix) {
  count += 1;
  return `${prefix}-${count}`;
}

/** Tell readers of the screen something, once the page rests. */
export const announce = (() => {
  let timer;
  return (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => setText(document.getElementById("live"), text), 600);
  };
})();

/** Return a select box of options `{value, label}`. */
export function choice(label, options, given = {}) {
  const id = unique("choice");
  const select = el("select", { id, ...given });
  fill(select, options);
  return { root: el("div", { class: "choice" }, el("label", { for: id }, label), select), select };
}

/** Give a select box its options, if they are others than before. */
export function fill(select, options) {
  const key = JSON.stringify(options);
  if (select.dataset.key === key) return;
  select.dataset.key = key;
  const kept = select.value;
  select.replaceChildren(
    ...options.map(({ value, label }) => el("option", { value }, label ?? value)),
  );
  if (options.some(({ value }) => value === kept)) select.value = kept;
}
