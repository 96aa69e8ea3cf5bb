// The timeline: a lane for the agent, each model, the tools, the verifier; what waited is pale, what worked is full.

import { put, s, withHint } from "./dom.js";
import { offset, seconds } from "./words.js";

const LABEL = 132;
const END = 14;

/** Draws a timeline; `small` is the strip above a conversation. `pick(key)` is told which call was clicked. */
export function lanes({ small = false, pick, names }) {
  const element = s("svg", { class: `lanes ${small ? "small" : ""}`, role: "img", "aria-label": "Timeline" });
  const ROW = small ? 9 : 20;
  const PAD = small ? 5 : 11;
  const AXIS = small ? 16 : 26;
  let given = null;
  let chosen = null;
  const left = () => (element.clientWidth < 560 ? (small ? 0 : 74) : small ? 92 : LABEL);

  function x(time) {
    const stretch = given.scale.find((each) => time <= each.end) ?? given.scale.at(-1);
    if (!stretch) return left();
    const share = (time - stretch.start) / (stretch.end - stretch.start || 1);
    return left() + (element.clientWidth - left() - END) * (stretch.left + share * (stretch.right - stretch.left));
  }

  function bar(item, top, kind) {
    const [start, works, end] = [x(item.start), x(item.works), x(item.end)];
    const shape = (name, from, to) => s("rect", { class: name, x: from, y: top + 1, width: Math.max(to - from, 1.5), height: ROW - 2, rx: small ? 2 : 3 });
    const own = kind === "agents";
    const name = item.state === "shared" ? "shared with its parent" : own && item.state !== "lost" ? item.worker || "not taken yet" : item.state === "lost" ? "no sign of its worker" : names?.get(item.key) ?? item.name;
    const parts = [item.works - item.start > 0 && item.state !== "lost" ? shape(`queued is-${kind}`, start, works) : null,
      item.state === "lost" ? shape("lost", start, end) : item.end > item.works || item.start === item.end ? shape(`busy is-${kind} ${item.state}`, works, end) : null];
    const room = end - works;
    if (!small && room > 46 && item.state !== "lost") {
      parts.push(s("text", { class: `in-bar ${own ? "own" : ""}`, x: works + 6, y: top + ROW / 2 + 4 }, clipped(name, room - 10)));
    }
    const told = [name, `${item.state === "open" ? "not answered; since" : "from"} ${offset(item.start)}${item.state === "open" ? "" : ` to ${offset(item.end)}`}`,
      item.works > item.start && item.state !== "lost" ? `${seconds(item.works - item.start)} queued and on the way` : null,
      item.state === "lost" ? `${seconds(item.end - item.start)} until another worker took over` : item.end > item.works ? `${seconds(item.end - item.works)} ${own ? "in progress" : "worked"}` : null,
      item.worker && !own ? `by ${item.worker}` : null, item.key ? `call ${item.key}` : null];
    const found = s("g", { class: `bar ${item.state} ${item.key && item.key === chosen ? "chosen" : ""} ${item.key ? "link" : ""}`, "data-key": item.key,
      onclick: () => item.key && pick?.(item.key) }, parts);
    return withHint(found, told.filter(Boolean).join("\n"));
  }

  function draw() {
    if (!given || !element.clientWidth) return;
    let top = AXIS;
    const tops = [];
    const rows = given.lanes.map((lane) => {
      const from = top;
      tops.push(from);
      top += Math.max(1, lane.rows) * ROW + PAD;
      return [left() ? s("text", { class: `lane is-${lane.kind}`, x: 0, y: from + ROW / 2 + 4 }, clipped(lane.kind === "agents" || lane.kind === "models" ? lane.name : `${lane.kind}`, left() - 8)) : null,
        s("line", { class: "base", x1: left(), x2: element.clientWidth - END, y1: top - PAD / 2, y2: top - PAD / 2 }),
        lane.bars.map((item) => bar(item, from + item.row * ROW, lane.kind))];
    });
    element.setAttribute("height", top + 4);
    put(element,
      s("defs", {}, s("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        s("rect", { class: "hatch", width: 2, height: 5 }))),
      given.scale.filter((each) => each.compressed).map((each) => gap(each, top)), axis(top), rows,
      given.marks.map((mark) => moment(mark, top, tops)));
  }

  function axis(bottom) {
    const room = small ? 90 : 76;
    const shown = [];
    let [last, before] = [-Infinity, ""];
    for (const edge of [0, ...given.scale.filter((each) => each.compressed).flatMap((each) => [each.start, each.end]), ...spread(), given.total].sort((a, b) => a - b)) {
      const at = x(edge);
      if (at === last || (at - last < room && edge !== 0)) continue;
      const plain = edge === 0 ? "0" : seconds(edge);
      const told = plain === before ? offset(edge) : plain; // two moments near each other
      [last, before] = [at, plain];
      shown.push(s("line", { class: "grid", x1: at, x2: at, y1: AXIS - 5, y2: bottom }),
        s("text", { class: `tick ${at > element.clientWidth - 60 ? "end" : edge === 0 ? "" : "mid"}`, x: edge === 0 ? at : Math.min(at, element.clientWidth - END), y: AXIS - 9 }, told));
    }
    return shown;
  }

  const spread = () => given.scale.filter((each) => !each.compressed).flatMap((each) =>
    [0.25, 0.5, 0.75, 1].map((share) => each.start + share * (each.end - each.start)));

  function gap(stretch, bottom) {
    const [from, to] = [x(stretch.start), x(stretch.end)];
    return withHint(s("g", { class: "gap" }, s("rect", { x: from, y: AXIS - 4, width: Math.max(2, to - from), height: bottom - AXIS + 4 }),
      s("text", { class: "tick mid", x: (from + to) / 2, y: bottom + 2 }, small ? "" : "⋯")), `${seconds(stretch.end - stretch.start)} without an event, made short`);
  }

  function moment(mark, bottom, tops) {
    const at = x(mark.at);
    const from = mark.lane === null ? AXIS - 4 : tops[mark.lane] - 2;
    const to = mark.lane === null ? bottom : from + ROW + 4;
    return withHint(s("g", { class: `mark ${mark.what}` }, s("line", { x1: at, x2: at, y1: from, y2: to }),
      s("circle", { cx: at, cy: from, r: small ? 2.5 : 3.5 })),
    `${mark.text}\nafter ${offset(mark.at)}${mark.what === "worker" ? "\nwhat its pool held before came again" : ""}`);
  }

  const clipped = (text, room) => {
    const most = Math.max(1, Math.floor(room / 6.4));
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  };

  const watch = new ResizeObserver(draw);
  watch.observe(element);
  return {
    element,
    draw(timeline) {
      given = timeline;
      draw();
    },
    choose(key) {
      chosen = key;
      element.querySelectorAll(".bar").forEach((each) => each.classList.toggle("chosen", Boolean(key) && each.dataset.key === key));
    },
    leave: () => watch.disconnect(),
  };
}
