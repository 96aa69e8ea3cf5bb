// A list of any length of which only the rows in sight are elements.

import { h, put } from "./dom.js";

const BEYOND = 8;

/** `row(place)` makes the element of a row; `seen(first, last)` is told which are in sight. */
export function virtualList({ height, row, seen, label }) {
  const canvas = h("div", { class: "canvas" });
  const box = h("div", { class: "scroll list", tabindex: "0", role: "listbox", "aria-label": label }, canvas);
  let total = 0;
  let frame = 0;

  function range() {
    const first = Math.max(0, Math.floor(box.scrollTop / height) - BEYOND);
    const last = Math.min(total, Math.ceil((box.scrollTop + box.clientHeight) / height) + BEYOND);
    return [first, last];
  }

  function draw() {
    frame = 0;
    const [first, last] = range();
    const rows = [];
    for (let place = first; place < last; place += 1) {
      const element = row(place);
      element.style.transform = `translateY(${place * height}px)`;
      rows.push(element);
    }
    put(canvas, rows);
    seen?.(first, last);
  }

  const redraw = () => { frame ||= requestAnimationFrame(draw); };
  box.addEventListener("scroll", redraw, { passive: true });
  const watch = new ResizeObserver(redraw);
  watch.observe(box);

  return {
    element: box,
    redraw,
    range,
    resize(length) {
      total = length;
      canvas.style.height = `${length * height}px`;
      redraw();
    },
    /** Scrolls no more than it must for a row to be in sight; `middle` puts it there if it was not. */
    reveal(place, { middle = false } = {}) {
      const top = place * height;
      const room = box.clientHeight;
      if (top >= box.scrollTop && top + height <= box.scrollTop + room) return;
      if (middle) box.scrollTop = top - room / 2;
      else box.scrollTop = top < box.scrollTop ? top : top + height - room;
    },
    leave() {
      watch.disconnect();
      cancelAnimationFrame(frame);
    },
  };
}
