// A run: its charts, and the table of its rollouts under them.

import { api, follow } from "./api.js";
import { chartGroup, histogram } from "./chart.js";
import { h, put } from "./dom.js";
import { onPage } from "./keys.js";
import { go } from "./route.js";
import { rolloutTable } from "./table.js";
import { count, counted, number, reward, seconds, short } from "./words.js";

const TYPING_MS = 180;
const SOON_MS = 800;

export function runPage(root, route, frame) {
  const run = route.run;
  let { query } = route;
  let gone = false;
  let typing = 0;
  let version = -1;
  let busy = false;

  const tiles = h("div", { class: "tiles" });
  const group = chartGroup();
  const rewards = group.chart({ title: "Reward" });
  const rate = group.chart({ title: "Throughput" });
  const queue = group.chart({ title: "In flight" });
  const stale = group.chart({ title: "Staleness" });
  const spread = histogram({ title: "Rewards", format: number, pick: (from, to, last) => among("reward", from, to, last) });
  const times = histogram({ title: "Durations", format: seconds, pick: (from, to, last) => among("duration", from, to, last) });
  const pools = h("div", { class: "pools" });
  const charts = h("div", { class: "charts" }, rewards.element, rate.element, queue.element, stale.element, spread.element, times.element);
  const fold = h("button", { class: "plain", title: "Charts (c)", onclick: foldCharts }, "Charts");
  const words = h("input", { class: "filter mono", type: "search", spellcheck: "false", autocomplete: "off", "aria-label": "Filter",
    placeholder: "Filter:  reward<0.5  outcome:failed  turns>=3  -error:deadline  any text", value: query.filter ?? "", oninput: () => {
      clearTimeout(typing);
      typing = setTimeout(() => ask({ filter: words.value.trim() }), TYPING_MS);
    } });
  const found = h("span", { class: "soft num" });
  const wrong = h("div", { class: "problem hidden" });
  const quick = h("div", { class: "quick" });
  const table = rolloutTable({ run, open: (rollout) => go({ run, rollout, query: pick(query) }), order: (sort) => ask({ sort }),
    told({ total, matched, error }) {
      found.textContent = matched === total ? counted(total, "rollout") : `${count(matched)} of ${counted(total, "rollout")}`;
      wrong.textContent = error;
      wrong.classList.toggle("hidden", !error);
    } });
  const over = h("section", { class: "over" }, tiles, charts, pools);
  root.append(over, h("div", { class: "bar-of-table" }, words, quick, h("span", { class: "spring" }), found, fold), wrong, table.element);
  setFolded(localStorage.getItem("replay-charts") === "no");

  const pick = ({ filter, sort }) => ({ filter, sort });

  function setFolded(folded) {
    charts.classList.toggle("hidden", folded);
    fold.setAttribute("aria-pressed", String(!folded));
    try { localStorage.setItem("replay-charts", folded ? "no" : "yes"); } catch { /* not kept then */ }
  }

  function foldCharts() { setFolded(!charts.classList.contains("hidden")); }

  function ask(change) { go({ run, query: { ...pick(query), ...change } }, { instead: true }); }

  function among(name, from, to, last) {
    const others = (query.filter ?? "").split(/\s+/).filter((word) => word && !word.startsWith(`${name}<`) && !word.startsWith(`${name}>`));
    ask({ filter: [...others, `${name}>=${number(from)}`, `${name}${last ? "<=" : "<"}${number(to)}`].join(" ") });
  }

  function update(next) {
    query = next.query;
    if (document.activeElement !== words) words.value = query.filter ?? "";
    table.ask({ filter: query.filter ?? "", sort: query.sort ?? "" }, query.at);
    drawQuick();
  }

  let last = null;
  function drawQuick() {
    if (!last) return;
    const now = (query.filter ?? "").trim();
    const offers = [["all", ""], ...(last.outcomes.failed ? [["failed", "outcome:failed"]] : []),
      ...(last.outcomes["in flight"] ? [["in flight", '"in flight"']] : []), ...(last.adopted ? [["adopted", "adoptions>0"]] : []),
      ...Object.keys(last.errors).slice(0, 3).map((kind) => [kind, `error=${kind}`])];
    put(quick, offers.map(([name, filter]) => h("button", { class: `plain ${now === filter ? "on" : ""}`,
      onclick: () => { words.value = filter; ask({ filter }); } }, name)));
  }

  function draw({ state, error, charts: told }) {
    frame.tell(state, error);
    last = told;
    const ended = (told.outcomes.completed ?? 0) + (told.outcomes.failed ?? 0) + (told.outcomes.cancelled ?? 0);
    const tile = (name, value, kind) => h("div", { class: "tile" }, h("span", { class: `value num ${kind ?? ""}` }, value), h("span", { class: "faint" }, name));
    put(tiles, tile("rollouts", ended < told.asked ? `${count(ended)} / ${count(told.asked)}` : count(told.asked)),
      tile("mean reward", told.mean_reward === null ? "–" : reward(told.mean_reward)),
      tile("failed", count(told.outcomes.failed), told.outcomes.failed ? "bad" : ""),
      tile("rollouts/s", number(Number((ended / told.span_s).toPrecision(3)))),
      tile("median time", told.duration_s ? seconds(told.duration_s[0]) : "–"),
      tile("90 % within", told.duration_s ? seconds(told.duration_s[1]) : "–"),
      tile("tokens read", short(told.tokens_in)), tile("tokens written", short(told.tokens_out)),
      tile("wall time", seconds(told.span_s)),
      told.adopted ? tile("adopted", count(told.adopted)) : null);
    const { times: at } = told;
    const say = (values, name, format = number) => (place) => (values[place] === null ? "" : `${name} ${format(values[place])}`);
    rewards.draw(at, [{ kind: "band", name: "reward", low: told.low, high: told.high,
      format: (place) => told.low[place] === null ? "" : `80 % between ${reward(told.low[place])} and ${reward(told.high[place])}` },
    { kind: "line", name: "reward", values: told.reward, format: say(told.reward, "mean", reward) }], told.mean_reward === null ? "" : `mean ${reward(told.mean_reward)}`);
    rate.draw(at, [{ kind: "area", name: "rate", values: told.ended_per_s, format: say(told.ended_per_s, "ended", (value) => `${number(value)}/s`) },
      { kind: "area", name: "failed", values: told.failed_per_s, format: say(told.failed_per_s, "failed", (value) => `${number(value)}/s`) }],
    `${number(Number((ended / told.span_s).toPrecision(3)))}/s`);
    queue.draw(at, [{ kind: "area", name: "flight", values: told.in_flight, format: say(told.in_flight, "in flight", count) },
      { kind: "area", name: "waiting", values: told.waiting, format: say(told.waiting, "waiting for an agent", count) }],
    `${count(told.outcomes["in flight"])} now, most ${count(Math.max(0, ...told.in_flight))}`);
    const known = told.staleness.some((each) => each !== null);
    stale.element.classList.toggle("hidden", !known);
    times.element.classList.toggle("hidden", known && told.rewards !== null);
    spread.element.classList.toggle("hidden", told.rewards === null);
    if (known) {
      stale.draw(at, [{ kind: "line", name: "stalest", values: told.stalest, format: say(told.stalest, "at most") },
        { kind: "line", name: "stale", values: told.staleness, format: say(told.staleness, "mean", (value) => value.toFixed(2)) },
        { kind: "line", name: "none", values: [], format: say(told.versions, "policy version") }],
      `policy version ${told.versions.findLast((each) => each !== null) ?? "–"}`);
    }
    spread.draw(told.rewards, told.rewards ? `${number(told.rewards.edges[0])} to ${number(told.rewards.edges.at(-1))}` : "");
    times.draw(told.durations, told.duration_s ? `99 % within ${seconds(told.duration_s[2])}` : "");
    table.know(told);
    drawQuick();
  }

  function drawPools(states) {
    put(pools, states.map((pool) => h("span", { class: "pool" }, h("b", { class: `is-${pool.kind}` }, pool.instance),
      h("span", { class: "num" }, `${count(pool.waiting)} waiting`), h("span", { class: "num soft" }, `${count(pool.held)} held`),
      pool.redelivered ? h("span", { class: "num warn" }, `${count(pool.redelivered)} redelivered`) : null)));
  }

  async function refresh() {
    if (busy || gone) return;
    busy = true;
    let drawn = -1;
    try {
      const answer = await api.charts(run);
      if (gone) return;
      draw(answer);
      drawn = answer.charts.version;
      drawPools(answer.state === "live" ? await api.pools(run) : []);
    } catch (error) {
      if (!gone) frame.tell("lost", error.message);
    } finally {
      busy = false;
      if (!gone && drawn >= 0 && drawn < version) setTimeout(refresh, SOON_MS);
    }
  }

  const unfollow = follow(run, (news) => {
    version = news.version;
    frame.tell(news.state, news.error);
    table.news(version);
    if (!document.hidden) refresh();
  });
  const onSight = () => !document.hidden && refresh();
  document.addEventListener("visibilitychange", onSight);

  onPage(
    { keys: ["j", "ArrowDown"], what: "next rollout", run: () => table.move(1) },
    { keys: ["k", "ArrowUp"], what: "rollout before", run: () => table.move(-1) },
    { keys: ["PageDown"], run: () => table.move(20) },
    { keys: ["PageUp"], run: () => table.move(-20) },
    { keys: ["g", "Home"], what: "first", run: () => table.to(0) },
    { keys: ["G", "End"], what: "last", run: () => table.to(-1) },
    { keys: ["Enter", "o", "ArrowRight"], what: "open it", run: () => table.openThis() },
    { keys: ["/"], what: "filter", run: () => words.select() },
    { keys: ["x"], what: "mark it, to compare it with another", run: () => table.mark() },
    { keys: ["d"], what: "compare the marked one with this one, or the two that are marked", run: () => {
      const [one, other] = table.pair;
      if (one && other && one !== other) go({ run, rollout: one, tab: "diff", query: { ...pick(query), with: other } });
    } },
    { keys: ["c"], what: "charts", run: foldCharts },
  );
  update(route);
  refresh();
  return {
    update,
    leave() {
      gone = true;
      unfollow();
      document.removeEventListener("visibilitychange", onSight);
      table.leave();
      group.leave();
    },
  };
}
