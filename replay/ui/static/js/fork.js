// The sheet of the Fork button: where to fork, what is to be another, the command, and what has become of it.

import { api } from "./api.js";
import { copy, h, put } from "./dom.js";
import { close, sheet } from "./keys.js";
import { write } from "./route.js";
import { walk } from "./step.js";
import { inRun, reward } from "./words.js";

const TYPING_MS = 250;
const LOOK_MS = 700;
const CHANGES = { none: "nothing", text: "what it says", reply: "the whole reply", drop: "drop it" };

/** Opens the sheet; `at` is the key of the call to fork at. */
export function forkSheet(view, { run, at }) {
  const calls = [...walk(view.steps)].filter((step) => step.replied && step.what !== "timer" && !step.key.includes("."));
  const form = { at: calls.find((step) => step.key === at)?.key ?? calls.find((step) => step.what === "model")?.key ?? "0", change: "none", count: 1 };
  let [timer, gone, texts] = [0, false, {}];
  const command = h("code", {}, "");
  const wrong = h("div", { class: "problem hidden" });
  const news = h("div", { class: "fork-news" });
  const boxes = h("div", { class: "fork-box" });
  const start = h("button", { class: "main", onclick: run_it }, "Fork");
  const option = (value, told, now) => h("option", { value, ...(value === now ? { selected: true } : {}) }, told);
  let turn = 0;
  const place = h("select", { "data-focus": "", onchange: (event) => { form.at = event.target.value; pick(); } },
    option("0", "from its task on", form.at),
    calls.map((step) => option(step.key, `${step.what === "model" ? `turn ${(turn += 1)}: ` : "    "}${step.what} ${step.target ?? ""} (${step.key})`, form.at)),
    option("end", "after its end: the same again", form.at));
  const kinds = h("div", { class: "segments", role: "group", "aria-label": "What is to be another" });
  const field = (name, type, hint) => h("input", { type, placeholder: hint, min: type === "number" ? 1 : null, value: form[name] ?? "", oninput: (event) => { form[name] = event.target.value; say(); } });

  const step = () => calls.find((each) => each.key === form.at);

  function pick() {
    const found = step();
    const offers = found ? (found.what === "model" || found.what === "tool" ? ["none", "text", "reply", "drop"] : ["none", "reply", "drop"]) : ["none"];
    if (!offers.includes(form.change)) form.change = "none";
    put(kinds, offers.map((name) => h("button", { class: name === form.change ? "on" : "", "aria-pressed": String(name === form.change), onclick: () => { form.change = name; pick(); } }, CHANGES[name])));
    drawBox();
    say();
  }

  async function drawBox() {
    const found = step();
    const key = `${form.at}/${form.change}`;
    put(boxes);
    if (form.change !== "text" && form.change !== "reply") return;
    texts[key] ??= form.change === "text" ? await saidIn(found) : await replyOf(found);
    if (key !== `${form.at}/${form.change}`) return;
    put(boxes, h("textarea", { class: "mono", rows: "9", spellcheck: "false", "aria-label": CHANGES[form.change], value: texts[key], oninput: (event) => { texts[key] = event.target.value; say(); } }));
    say();
  }

  const whole = (found) => api.step(run, view.rollout_id, found.key);
  async function saidIn(found) {
    const { answered = [] } = await whole(found);
    const part = found.what === "tool" ? answered[0] : answered.find((each) => each.label === "says");
    return part?.text ?? "";
  }
  async function replyOf(found) {
    const { event, data } = await api.event(run, view.rollout_id, found.replied);
    return JSON.stringify(data ?? event.data, null, 2);
  }

  function asked() {
    const text = texts[`${form.at}/${form.change}`];
    const given = { at: form.at, count: Math.max(1, Number(form.count) || 1) };
    if (form.change === "text" && text !== undefined) given.fields = { [step().what === "tool" ? "output" : "text"]: text };
    if (form.change === "reply" && text !== undefined) given.reply = text;
    if (form.change === "drop") given.drop = true;
    for (const name of ["seed", "model", "agent"]) if (form[name]) given[name] = form[name];
    if (form.config) given.config = form.config.split(/\s+/).filter(Boolean);
    return given;
  }

  function say() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      try {
        command.textContent = (await api.forkCommand(run, view.rollout_id, asked())).command;
        wrong.classList.add("hidden");
      } catch (error) {
        complain(error);
      }
    }, command.textContent ? TYPING_MS : 0);
  }

  function complain(error) {
    wrong.textContent = error.message;
    wrong.classList.remove("hidden");
  }

  async function run_it() {
    start.disabled = true;
    try {
      follow(await api.fork(run, view.rollout_id, asked()));
    } catch (error) {
      complain(error);
      start.disabled = false;
    }
  }

  async function follow(job) {
    put(news, h("p", { class: job.state === "failed" ? "bad" : "soft" }, h("i", { class: `dot ${job.state === "running" ? "running" : job.state}` }),
      job.state === "running" ? " it runs; this sheet may be closed" : job.state === "failed" ? " it could not be done" : " done"),
    job.said.length ? h("pre", { class: "said" }, job.said.slice(-12).join("\n")) : null,
    job.results.map((each) => h("p", { class: "fork-result" }, h("i", { class: `dot ${each.outcome}` }),
      h("a", { class: "mono", href: write({ run: each.run_id, rollout: each.rollout_id, query: {} }), onclick: () => close() }, inRun(each.rollout_id, each.run_id)),
      h("span", { class: "num" }, each.reward === null ? each.error || each.outcome : `reward ${reward(each.reward)}`),
      h("a", { class: "soft", href: write({ run: each.run_id, rollout: each.rollout_id, tab: "diff", query: { with: view.rollout_id } }), onclick: () => close() }, "compare with this one"))));
    start.disabled = job.state === "running";
    if (job.state !== "running" || gone) return;
    await new Promise((done) => { setTimeout(done, LOOK_MS); });
    try {
      follow(await api.job(job.job));
    } catch (error) {
      complain(error);
      start.disabled = false;
    }
  }

  sheet([
    h("h2", {}, `Fork task ${view.task_index}, rollout ${view.rollout_index}`),
    h("p", { class: "soft" }, "New rollouts that share what happened before the call that you choose, and go on live from there. This one stays as it is."),
    h("div", { class: "form" },
      h("label", {}, "at"), place, h("label", {}, "change"), kinds, boxes,
      h("label", {}, "how many"), h("div", { class: "fields" }, field("count", "number"), field("seed", "text", "seed"), field("model", "text", "another model"), field("agent", "text", "another agent")),
      h("label", {}, "config"), field("config", "text", "a config, or changes of the run's: ++policy.models.local_llm.temperature=0")),
    wrong, h("div", { class: "command" }, command, h("button", { class: "plain", onclick: (event) => copy(event.target, command.textContent) }, "Copy")),
    h("div", { class: "buttons" }, start, h("button", { onclick: () => close() }, "Close")), news,
  ], { onclose: () => { gone = true; clearTimeout(timer); } });
  pick();
}
