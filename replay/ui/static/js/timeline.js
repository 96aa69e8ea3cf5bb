// The timeline tab: the lanes at full size, what they mean, and the call that is chosen under them.

import { h, put } from "./dom.js";
import { lanes } from "./lanes.js";
import { stepElement, walk } from "./step.js";
import { offset } from "./words.js";

export function timelineTab(view, { run, step, chosen }) {
  const steps = [...walk(view.steps)].filter((each) => each.key);
  const names = new Map(steps.map((each) => [each.key, each.what === "model" ? each.key : each.target || each.what]));
  const chart = lanes({ names, pick: (key) => stand(key) });
  const detail = h("div", { class: "story detail" });
  const element = h("div", { class: "tab scroll" }, h("div", { class: "wide-inner" },
    h("div", { class: "card lane-card" }, chart.element), h("div", { class: "legend faint" },
      swatch("queued", "queued and on the way"), swatch("busy", "worked on"), swatch("failed", "failed"), swatch("open", "not answered"),
      swatch("lost", "no sign of the worker"), h("span", {}, h("i", { class: "swatch-dot adopted" }), "adopted"),
      h("span", {}, h("i", { class: "swatch-dot worker" }), "a worker started"), swatch("gap", "a stretch without an event, made short")),
    marks(view), detail));
  chart.draw(view.timeline);
  let at = -1;

  function stand(key) {
    at = steps.findIndex((each) => each.key === key);
    if (at < 0) return;
    chart.choose(key);
    chosen(key);
    put(detail, stepElement({ ...steps[at], steps: [] }, { run, rollout: view.rollout_id }));
  }

  if (step) stand(step);
  return {
    element,
    keys: [
      { keys: ["j", "ArrowDown", "ArrowRight"], what: "next call", run: () => steps.length && stand(steps[Math.min(steps.length - 1, at + 1)].key) },
      { keys: ["k", "ArrowUp", "ArrowLeft"], what: "call before", run: () => steps.length && stand(steps[Math.max(0, at - 1)].key) },
    ],
    leave: () => chart.leave(),
  };
}

const swatch = (name, text) => h("span", {}, h("i", { class: `swatch ${name}` }), text);

function marks(view) {
  if (!view.timeline.marks.length) return null;
  return h("ul", { class: "marks" }, view.timeline.marks.map((mark) => h("li", {}, h("i", { class: `swatch-dot ${mark.what}` }),
    h("span", { class: "num faint" }, offset(mark.at)), h("span", {}, mark.text))));
}
