// The keyboard: what a page listens to, and the sheet that says so.

import { h } from "./dom.js";

const everywhere = [];
let page = [];
let open = null;

/** Keys that work on every page: `{ keys, what, run }`. */
export const always = (...bindings) => everywhere.push(...bindings);

/** Keys of the page that is shown now. */
export function onPage(...bindings) {
  page = bindings;
}

/** Lays an element over the page, until Esc is pressed or what is beside it is clicked. */
export function sheet(content, { onclose } = {}) {
  close();
  const before = document.activeElement;
  const veil = h("div", { class: "veil", onclick: (event) => event.target === veil && close() },
    h("div", { class: "sheet", role: "dialog", "aria-modal": "true", tabindex: "-1" }, content));
  open = () => {
    veil.remove();
    open = null;
    before?.focus?.();
    onclose?.();
  };
  document.body.append(veil);
  (veil.querySelector("[data-focus]") ?? veil.firstChild).focus();
}

export function close() {
  if (open === null) return false;
  open();
  return true;
}

export function help() {
  const lines = (bindings) => bindings.filter((each) => each.what).flatMap(({ keys, what }) => [
    h("span", {}, keys.map((key, place) => [place ? " " : "", h("kbd", {}, SHOWN[key] ?? key)])),
    h("span", { class: "soft" }, what),
  ]);
  sheet([
    h("h2", {}, "Keyboard"),
    h("div", { class: "keys" }, page.length ? [h("h3", {}, "On this page"), lines(page)] : null,
      h("h3", {}, "Everywhere"), lines(everywhere)),
  ]);
}

const SHOWN = { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc", " ": "Space" };

function typing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (close()) return void event.preventDefault();
    if (typing(event.target)) return event.target.blur();
  } else if (typing(event.target) || open !== null) {
    return;
  }
  if (event.key === "Enter" && event.target instanceof HTMLElement && event.target.closest("button, a, summary")) return;
  const found = [...page, ...everywhere].find((each) => each.keys.includes(event.key));
  if (found) {
    event.preventDefault();
    found.run();
  }
});
