// Charts over time, drawn as SVG: lines, bands and areas on one time axis, with one pointer through all of a group.

import { h, hint, put, s } from "./dom.js";
import { number, seconds } from "./words.js";

const LEFT = 38;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 18;

/** Round numbers from `low` to `high`, some `wanted` of them. */
export function ticks(low, high, wanted) {
  const raw = (high - low || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

const STEPS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];

/** Round moments of a time of so many seconds. */
function moments(span, wanted) {
  const step = STEPS.find((each) => each >= span / wanted);
  if (span < 4 || step === undefined) return ticks(0, span, wanted);
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, place) => place * step);
}

const moment = (at) => (at === 0 ? "0" : at < 120 ? `${Number(at.toPrecision(3))} s` : at < 7200 ? `${Number((at / 60).toFixed(1))} min` : `${Number((at / 3600).toFixed(1))} h`);

/** Charts that share a time axis and a pointer. */
export function chartGroup() {
  const charts = [];
  const point = (event, place) => charts.forEach((chart) => chart.point(event, place));
  return {
    /**
     * A chart. `lines` are `{ name, kind, values, low, high, format }` with kind `line`, `area` or `band`;
     * `draw` is given them anew each time.
     */
    chart({ title, note, height = 128 }) {
      const head = h("span", { class: "figure num" });
      const plot = s("svg", { class: "plot", role: "img", "aria-label": title });
      const element = h("figure", { class: "card chart" },
        h("figcaption", {}, h("span", { class: "soft" }, title), h("span", { class: "spring" }), head), plot,
        note ? h("p", { class: "note faint" }, note) : null);
      let times = [];
      let lines = [];
      let cursor = null;
      let range = [0, 1];

      const x = (time) => LEFT + ((plot.clientWidth - LEFT - RIGHT) * time) / (times.at(-1) || 1);
      const y = (value) => height - BOTTOM - ((height - TOP - BOTTOM) * (value - range[0])) / (range[1] - range[0] || 1);

      function runs(values) {
        const found = [];
        values.forEach((value, place) => {
          if (value === null) return;
          const before = found.at(-1);
          if (before && before.at(-1) >= place - 6) before.push(place);
          else found.push([place]);
        });
        return found;
      }

      function shape(line) {
        if (line.kind === "band") {
          return runs(line.low).map((places) => s("path", { class: `band ${line.name}`, d: path(places, line.high)
            + path([...places].reverse(), line.low).replace("M", "L") + "Z" }));
        }
        return runs(line.values).flatMap((places) => {
          const way = path(places, line.values);
          const foot = `L${x(times[places.at(-1)])},${y(range[0])}L${x(times[places[0]])},${y(range[0])}Z`;
          return [line.kind === "area" ? s("path", { class: `area ${line.name}`, d: way + foot }) : null,
            places.length === 1 && s("circle", { class: `spot ${line.name}`, cx: x(times[places[0]]), cy: y(line.values[places[0]]), r: 1.6 }),
            s("path", { class: `line ${line.name}`, d: way })];
        });
      }

      const path = (places, values) => places.map((place, first) =>
        `${first ? "L" : "M"}${x(times[place]).toFixed(1)},${y(values[place]).toFixed(1)}`).join("");

      function draw() {
        if (!times.length || !plot.clientWidth) return;
        const all = lines.flatMap((line) => (line.kind === "band" ? [...line.low, ...line.high] : line.values)).filter((each) => each !== null);
        const floor = lines.some((line) => line.kind === "area") ? 0 : Math.min(...all, 0);
        range = [all.length ? Math.min(floor, ...all) : 0, Math.max(...all, 0) || 1];
        const marks = ticks(...range, 3);
        range = [Math.min(range[0], marks[0] ?? 0), Math.max(range[1], marks.at(-1) ?? 1)];
        plot.setAttribute("height", height);
        cursor = s("line", { class: "cursor", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
        put(plot,
          marks.map((mark) => [s("line", { class: "grid", x1: LEFT, x2: plot.clientWidth - RIGHT, y1: y(mark), y2: y(mark) }),
            s("text", { class: "tick end", x: LEFT - 6, y: y(mark) + 3.5 }, number(mark))]),
          moments(times.at(-1), Math.max(2, plot.clientWidth / 62)).map((mark) =>
            s("text", { class: "tick mid", x: Math.min(x(mark), plot.clientWidth - 14), y: height - 4 }, moment(mark))),
          lines.map(shape), cursor);
      }

      plot.addEventListener("pointermove", (event) => {
        const at = ((event.offsetX - LEFT) / (plot.clientWidth - LEFT - RIGHT)) * (times.at(-1) || 1);
        const place = Math.max(0, Math.min(times.length - 1, times.findIndex((time) => time >= at)));
        point(event, place);
        const told = lines.filter((line) => line.format).map((line) => line.format(place)).filter(Boolean);
        hint(event, [`at ${seconds(times[place] ?? 0)}`, ...told].join("\n"));
      });
      plot.addEventListener("pointerleave", () => { point(null, null); hint(null, ""); });
      const watch = new ResizeObserver(draw);
      watch.observe(plot);

      const chart = {
        element,
        draw(now, over, figure) {
          [times, lines] = [now, over];
          head.textContent = figure ?? "";
          draw();
        },
        point(event, place) {
          if (!cursor) return;
          cursor.setAttribute("visibility", event ? "visible" : "hidden");
          if (event) ["x1", "x2"].forEach((name) => cursor.setAttribute(name, x(times[place])));
        },
        leave: () => watch.disconnect(),
      };
      charts.push(chart);
      return chart;
    },
    leave: () => charts.forEach((chart) => chart.leave()),
  };
}

/** Bars that can be clicked: `pick(from, to)` is told which one was. */
export function histogram({ title, pick, format }) {
  const head = h("span", { class: "figure num" });
  const bars = h("div", { class: "bars" });
  const axis = h("div", { class: "axis faint num" });
  const element = h("figure", { class: "card chart" },
    h("figcaption", {}, h("span", { class: "soft" }, title), h("span", { class: "spring" }), head), bars, axis);
  return {
    element,
    draw(found, figure) {
      head.textContent = figure ?? "";
      if (!found) return void put(bars, h("span", { class: "faint" }, "nothing yet"));
      const most = Math.max(...found.counts);
      put(bars, found.counts.map((each, place) => {
        const [from, to] = [found.edges[place], found.edges[place + 1]];
        const bar = h("button", { class: "bar", "aria-label": `${format(from)} to ${format(to)}: ${each}`, tabindex: "-1",
          onclick: () => pick(from, to, place === found.counts.length - 1) },
        h("i", { style: { height: each ? `${Math.max(2, (100 * each) / most)}%` : "0" } }));
        bar.addEventListener("pointermove", (event) => hint(event, `${format(from)} to ${format(to)}\n${each.toLocaleString("en")} rollouts`));
        bar.addEventListener("pointerleave", () => hint(null, ""));
        return bar;
      }));
      put(axis, [found.edges[0], found.edges[found.edges.length >> 1], found.edges.at(-1)].map((edge) => h("span", {}, format(edge))));
    },
  };
}
