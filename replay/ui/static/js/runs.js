// All runs: one line each, the newest first, and how far each has come.

import { api } from "./api.js";
import { h, put } from "./dom.js";
import { onPage } from "./keys.js";
import { go, write } from "./route.js";
import { count, number, seconds, time } from "./words.js";

const EVERY_MS = 2000;

export function runsPage(root, _route, frame) {
  const list = h("div", { class: "runs" });
  const note = h("p", { class: "faint" });
  root.append(h("div", { class: "scroll" }, h("div", { class: "inner" },
    h("div", { class: "title" }, h("h1", {}, "Runs"), note), list)));
  let runs = [];
  let at = 0;
  let last = "";
  let timer = 0;
  let gone = false;

  function draw() {
    at = Math.min(at, Math.max(0, runs.length - 1));
    if (!runs.length) {
      const { local, reads } = frame.about;
      put(list, h("div", { class: "empty" }, local
        ? [h("p", {}, `There is no run in ${reads} yet.`),
          h("p", {}, "Start one with ", h("code", {}, "jetgym run"), "; it shows up here by itself.")]
        : h("p", {}, `No rollout has been found in ${reads} so far.`)));
      return;
    }
    put(list, h("div", { class: "run head" }, ["", "run", "started, UTC", "progress", "", "reward", "failed", "time"].map(
      (name, place) => h("span", { class: place > 4 ? "right" : "" }, name))), runs.map(line));
  }

  function line(run, place) {
    const known = run.completed !== null; // of a trainer's run, and of open forks, the log tells
    const without = run.failed + run.cancelled;
    const ended = run.completed + without;
    const share = (value) => `${(100 * value) / Math.max(1, run.asked)}%`;
    const progress = ended < run.asked ? `${count(ended)} of ${count(run.asked)}` : count(run.asked);
    return h("a", { class: `run${place === at ? " at" : ""}`, href: write({ run: run.run_id, query: {} }) },
      h("i", { class: `dot ${run.state}`, title: run.state }),
      h("span", { class: "clip" }, h("span", { class: "mono name" }, run.run_id),
        run.where && !run.where.endsWith(`/${run.run_id}`) ? h("span", { class: "faint" }, ` ${run.where}`) : null),
      h("span", { class: "soft num" }, time(run.started)),
      h("span", { class: "meter" }, h("i", { style: { width: share(run.completed) } }),
        h("i", { class: "failed", style: { width: share(without) } })),
      h("span", { class: "soft num" }, known ? progress : "–"),
      h("span", { class: "right num strong" }, run.mean_reward === null ? "–" : number(Number(run.mean_reward.toFixed(3)))),
      h("span", { class: `right num ${run.failed ? "bad" : "faint"}` }, known ? count(run.failed) : "–"),
      h("span", { class: "right num soft" }, run.wall_s ? seconds(run.wall_s) : ""));
  }

  async function look() {
    try {
      const found = await api.runs();
      const text = JSON.stringify(found);
      if (gone) return;
      note.textContent = `read from ${frame.about.reads}`;
      if (text !== last) {
        last = text;
        runs = found;
        draw();
      }
    } catch (error) {
      if (!gone) put(list, h("div", { class: "problem" }, error.message));
      last = "";
    }
    if (!gone) timer = setTimeout(look, document.hidden ? 5 * EVERY_MS : EVERY_MS);
  }

  const move = (by) => {
    at = Math.max(0, Math.min(runs.length - 1, at + by));
    draw();
    list.querySelector(".at")?.scrollIntoView({ block: "nearest" });
  };
  onPage(
    { keys: ["j", "ArrowDown"], what: "next run", run: () => move(1) },
    { keys: ["k", "ArrowUp"], what: "run before", run: () => move(-1) },
    { keys: ["Enter", "o"], what: "open it", run: () => runs[at] && go({ run: runs[at].run_id, query: {} }) },
  );
  look();
  return { leave: () => { gone = true; clearTimeout(timer); } };
}
