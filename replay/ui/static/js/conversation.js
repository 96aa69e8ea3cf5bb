// The conversation of a rollout: its steps below each other, under a strip that shows when they happened.

import { h } from "./dom.js";
import { lanes } from "./lanes.js";
import { stepElement, walk } from "./step.js";
import { offset, reward } from "./words.js";

export function conversationTab(view, { run, step, chosen }) {
  const steps = [...walk(view.steps)].filter((each) => each.key);
  const names = new Map(steps.map((each) => [each.key, `${each.what} ${each.target ?? ""}`]));
  const strip = lanes({ small: true, names, pick: (key) => stand(key) });
  const story = h("div", { class: "story" },
    view.steps.map((each) => stepElement(each, { run, rollout: view.rollout_id, at: (found) => found.key && stand(found.key, false) })), ending(view), view.revisions.map(revision));
  const scroll = h("div", { class: "scroll" }, story);
  const element = h("div", { class: "tab conversation" }, h("div", { class: "strip" }, strip.element), scroll);
  strip.draw(view.timeline);
  let at = -1;

  function stand(key, move = true) {
    at = steps.findIndex((each) => each.key === key);
    scroll.querySelectorAll(".step.at").forEach((each) => each.classList.remove("at"));
    const found = [...scroll.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key);
    if (!found) return;
    found.classList.add("at");
    strip.choose(key);
    chosen(key);
    if (move) found.scrollIntoView({ block: "start" });
  }

  if (step) requestAnimationFrame(() => stand(step));
  return {
    element,
    keys: [
      { keys: ["j", "ArrowDown"], what: "next step", run: () => steps.length && stand(steps[Math.min(steps.length - 1, at + 1)].key) },
      { keys: ["k", "ArrowUp"], what: "step before", run: () => steps.length && stand(steps[Math.max(0, at - 1)].key) },
      { keys: ["g", "Home"], what: "beginning", run: () => { scroll.scrollTop = 0; } },
      { keys: ["G", "End"], what: "end", run: () => { scroll.scrollTop = scroll.scrollHeight; } },
      { keys: ["x"], what: "unfold this step", run: () => scroll.querySelectorAll(".step.at > .step-body > .part .more").forEach((each) => each.click()) },
    ],
    leave: () => strip.leave(),
  };
}

function ending(view) {
  if (view.outcome === "in flight") {
    return h("div", { class: "step between" }, h("span", { class: "clock" }), h("div", { class: "rule" }, h("span", {}, h("i", { class: "dot in-flight" }), " in flight: this page follows it")));
  }
  const good = view.outcome === "completed";
  return h("div", { class: `step end ${good ? "" : "failed"}` }, h("span", { class: "clock num" }, offset(view.duration_s ?? 0)),
    h("div", { class: "step-body" }, h("div", { class: "step-head" }, h("b", { class: good ? "good" : "bad" }, view.outcome),
      good ? h("span", { class: "num" }, `reward ${reward(view.first_reward)}`) : h("span", {}, view.error && view.error.kind !== view.outcome ? view.error.kind : ""),
      h("span", { class: "spring" }), h("span", { class: "faint mono who" }, view.ended_by.split("/").at(-1))),
    view.error ? [h("div", { class: "part error" }, h("span", { class: "label" }), h("div", { class: "text" }, view.error.message)),
      Object.entries(view.error.details ?? {}).filter(([, value]) => !view.error.message.includes(value)).map(([name, value]) =>
        h("div", { class: "part aside" }, h("span", { class: "label" }, name), h("pre", { class: "text" }, value)))] : null));
}

/** A later score: it stands behind the end, and changes what it came to. */
function revision(revised) {
  return h("div", { class: "step" }, h("span", { class: "clock num" }, offset(revised.at)),
    h("div", { class: "step-body" }, h("div", { class: "step-head" }, h("b", {}, "Revised"), h("span", { class: "num" }, `reward ${revised.text}`),
      h("span", { class: "spring" }), h("span", { class: "faint mono who" }, revised.by))));
}
