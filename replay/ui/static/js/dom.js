// How elements are made. Text becomes text nodes, never markup: what models and tools wrote cannot become a tag.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** An HTML element. */
export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);

/** An SVG element. */
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

/** Puts other children into an element. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

const tip = h("div", { class: "tip hidden" });

/** Shows a text beside the pointer; hides it where there is none. */
export function hint(event, text) {
  if (!text) {
    tip.classList.add("hidden");
    return;
  }
  if (!tip.isConnected) document.body.append(tip);
  tip.textContent = text;
  tip.classList.remove("hidden");
  const { width, height } = tip.getBoundingClientRect();
  const x = event.clientX + 14 + width > innerWidth ? event.clientX - width - 10 : event.clientX + 14;
  const y = event.clientY + 16 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 16;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}

/** Lets an element show a text while the pointer is over it. */
export function withHint(element, text) {
  element.addEventListener("pointermove", (event) => hint(event, typeof text === "function" ? text(event) : text));
  element.addEventListener("pointerleave", () => hint(null, ""));
  return element;
}

/** Copies a text, and says so on the button that was pressed. */
export async function copy(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copy it by hand";
  }
  setTimeout(() => { button.textContent = before; }, 1400);
}
