// One step of a story: what was asked, what was answered, how long it took and where.

import { api } from "./api.js";
import { coloured } from "./code.js";
import { h, put } from "./dom.js";
import { counted, number, offset, reward, seconds } from "./words.js";

const LINES = 16;
const CHARACTERS = 1400;

/** How long a call took: worked and queued. */
export function took(step) {
  if (step.took === null || step.took === undefined) return step.what === "timer" ? "not fired" : "no reply";
  if (step.what === "timer") return `fired after ${seconds(step.took)}`;
  if (step.steps?.length || !step.worked) return seconds(step.took);
  return `${seconds(step.worked)} + ${seconds(step.waited)} queued`;
}

/** A text that is folded where it is long; `fetchWhole` is asked for what the server has cut off. */
function text(part, fetchWhole) {
  const code = part.style === "code" || part.style === "json";
  const body = h(code ? "pre" : "div", { class: `text ${part.style ?? ""}` });
  const fill = (value) => put(body, code || /^\s*[[{]/.test(value) ? coloured(value) : value);
  const lines = part.text.split("\n");
  const long = lines.length > LINES || part.text.length > CHARACTERS || part.left;
  if (!long) {
    fill(part.text);
    return body;
  }
  const short = lines.slice(0, LINES).join("\n").slice(0, CHARACTERS);
  const all = part.text.length + (part.left ?? 0);
  let folded = true;
  const more = h("button", { class: "link more", async onclick() {
    folded = !folded;
    if (!folded && part.left) {
      more.textContent = "…";
      try {
        Object.assign(part, await fetchWhole(), { left: 0 });
      } catch (error) {
        more.textContent = error.message;
        return;
      }
    }
    draw();
  } });
  const draw = () => {
    fill(folded ? `${short}…` : part.text);
    more.textContent = folded ? `Show all ${all.toLocaleString("en")} characters` : "Show less";
  };
  draw();
  return h("div", {}, body, more);
}

function part(given, fetchWhole) {
  return h("div", { class: `part ${given.style ?? ""} ${given.label === "user" ? "user" : ""} ${given.label === "says" ? "says" : ""}` },
    h("span", { class: "label" }, given.label), text(given, fetchWhole));
}

function verdict(step) {
  const parts = Object.entries(step.components ?? {});
  return h("div", { class: "part verdict" }, h("span", { class: "label" }, "reward"), h("div", { class: "text" },
    h("b", { class: "num" }, reward(step.reward)),
    parts.length ? h("span", { class: "soft num" }, " = ", parts.map(([name, value]) => `${name} ${number(value)}`).join(" + ")) : null));
}

/** The element of a step, and those under it. `at` is called with a step that is clicked. */
export function stepElement(step, { run, rollout, at }) {
  if (step.what === "forked") {
    return h("div", { class: "step between forked", "data-seq": step.requested }, h("span", { class: "clock num" }, offset(step.at)),
      h("div", { class: "rule" }, h("span", {}, "what is above it shares with its parent; here ", h("b", {}, step.worker), " went on")));
  }
  if (step.what === "adopted") {
    return h("div", { class: "step between adopted", "data-seq": step.requested }, h("span", { class: "clock num" }, offset(step.at)),
      h("div", { class: "rule" }, h("span", {}, "↻ adopted by ", h("b", {}, step.worker), `, epoch ${step.epoch}: it ran the agent's code again on what was recorded, and went on`)));
  }
  const whole = (side, place) => async () => {
    const found = await api.step(run, rollout, step.key);
    return found[side][place];
  };
  const parts = (side) => (step[side] ?? []).map((each, place) => part(each, whole(side, place)));
  const isCall = Boolean(step.key);
  const state = step.state ?? "answered";
  const facts = [step.usage ? `${counted(step.usage[0], "token")} in, ${step.usage[1]} out` : null,
    step.policy ? (step.policy[0] === step.policy[1] ? `policy version ${step.policy[0]}` : `policy versions ${step.policy.join(" to ")}`) : null];
  const head = h("div", { class: "step-head" },
    h("b", { class: `kind is-${step.what}` }, step.what), h("span", { class: "target" }, step.target ?? ""),
    h("span", { class: `soft num ${state === "open" ? "warn" : ""}` }, isCall ? took(step) : ""),
    step.together > 1 ? h("span", { class: "tag" }, `${(step.place ?? 0) + 1} of ${step.together} in parallel`) : null,
    state === "failed" ? h("span", { class: "pill bad" }, "failed") : null,
    h("span", { class: "spring" }), h("span", { class: "faint who mono" }, [step.key, step.worker].filter(Boolean).join(" @ ")));
  return h("article", { class: `step of-${step.what} ${state}`, "data-key": step.key ?? "", tabindex: "-1", onclick: () => at?.(step) },
    h("span", { class: "clock num", title: "since the rollout was requested" }, offset(step.at)),
    h("div", { class: "step-body" }, head, parts("asked"),
      step.steps?.length ? h("div", { class: "under" }, step.steps.map((each) => stepElement(each, { run, rollout, at }))) : null,
      parts("answered"), step.reward !== undefined && step.reward !== null ? verdict(step) : null,
      facts.some(Boolean) ? h("div", { class: "facts faint num" }, facts.filter(Boolean).join(" · ")) : null));
}

/** All steps, each before those under it. */
export function* walk(steps) {
  for (const step of steps) {
    yield step;
    yield* walk(step.steps ?? []);
  }
}
