// The table of rollouts: rows that the server filters and sorts, fetched as they come into sight.

import { api } from "./api.js";
import { h, put } from "./dom.js";
import { number, reward, seconds, short, time } from "./words.js";
import { virtualList } from "./virtual.js";

const HEIGHT = 32;
const PAGE = 100;
const KEPT = 24;
const SOON_MS = 1000;

// Names are those of `replay list`. `wide` columns are left out where there is little room, `more` ones where there is least; `if` says whether a column has anything to show.
const COLUMNS = [
  { name: "task", width: "76px", cell: (row) => h("span", { class: "mono" },
    String(row.task_index), h("span", { class: "faint" }, ` · ${row.rollout_index}`), row.attempt ? h("span", { class: "warn" }, ` a${row.attempt}`) : null) },
  { name: "text", width: "minmax(60px, 1fr)", cell: (row) => h("span", { class: "clip" }, row.task) },
  { name: "agent", width: "minmax(80px, 150px)", wide: true, cell: (row) => h("span", { class: "clip soft" }, row.agent),
    if: (charts) => Object.keys(charts?.agents ?? {}).length > 1 },
  { name: "reward", width: "132px", right: true, cell: outcome },
  { name: "turns", width: "58px", right: true, more: true, cell: (row) => number(row.turns) },
  { name: "tools", width: "58px", right: true, wide: true, cell: (row) => number(row.tool_calls) },
  { name: "tokens", width: "112px", right: true, wide: true, cell: (row) => row.output_tokens === null ? ""
    : [h("span", { class: "faint" }, `${short(row.input_tokens)} + `), short(row.output_tokens)] },
  { name: "version", width: "74px", right: true, wide: true, cell: (row) => row.policy === null ? "" : [...new Set(row.policy)].join("–"),
    if: (charts) => charts?.versions?.some((each) => each !== null) },
  { name: "queued", width: "78px", right: true, wide: true, cell: (row) => h("span", { class: "soft" }, seconds(row.queue_s)) },
  { name: "duration", width: "84px", right: true, more: true, cell: (row) => seconds(row.duration_s) },
  { name: "started", width: "112px", right: true, wide: true, cell: (row) => h("span", { class: "soft" }, time(row.started)) },
];

function outcome(row) {
  const adopted = row.adoptions ? h("span", { class: "tag warn", title: "another worker carried it on" }, "↻") : null;
  const revised = row.revisions ? h("span", { class: "tag", title: `scored again; it was ${reward(row.first_reward)}` }, "revised") : null;
  if (row.reward !== null) return [adopted, revised, meter(row.reward), h("span", { class: "strong" }, reward(row.reward))];
  if (row.outcome === "in flight") return [adopted, h("span", { class: "faint" }, "in flight")];
  return [adopted, h("span", { class: row.outcome === "failed" ? "bad" : "warn" }, row.error || row.outcome)];
}

/** A reward between -1 and 1 as a bar. */
const meter = (value) => h("span", { class: "meter reward" }, h("i", { class: value < 0 ? "failed" : "", style: { width: `${Math.min(100, 100 * Math.abs(value))}%` } }));

/** `open(rollout)` is called for the one that is chosen, `order(sort)` when a column is clicked. */
export function rolloutTable({ run, open, order, told }) {
  const pages = new Map();
  let asked = { filter: "", sort: "" };
  let columns = COLUMNS;
  let charts = null;
  let [total, matched, version, at, wanted] = [0, 0, -1, -1, null];
  let loading = new Map();
  let again = 0;
  let refused = false;
  let marked = []; // IDs, two at most
  const head = h("div", { class: "row head" });
  const list = virtualList({ height: HEIGHT, row, seen: fetchSeen, label: "Rollouts" });
  const element = h("div", { class: "table" }, head, list.element);

  function rowAt(place) {
    return pages.get(Math.floor(place / PAGE))?.rows[place % PAGE];
  }

  function row(place) {
    const found = rowAt(place);
    const attributes = { class: `row${place === at ? " at" : ""}`, role: "option", "aria-selected": String(place === at) };
    if (!found) return h("div", { ...attributes, class: "row waiting" });
    return h("div", { ...attributes, title: found.rollout_id, "data-rollout": found.rollout_id, onclick: () => { at = place; open(found.rollout_id); } },
      h("i", { class: `dot ${found.outcome.replace(" ", "-")} ${marked.includes(found.rollout_id) ? "marked" : ""}` }),
      columns.map((column) => h("span", { class: `cell ${column.right ? "right num" : ""} ${column.wide ? "wide" : column.more ? "more-room" : ""}` }, column.cell(found))));
  }

  function drawHead() {
    columns = COLUMNS.filter((column) => !column.if || column.if(charts));
    const layout = (name, without) => element.style.setProperty(name, ["16px", ...columns.filter((column) => !without(column)).map((column) => column.width)].join(" "));
    layout("--columns", () => false);
    layout("--columns-narrow", (column) => column.wide);
    layout("--columns-least", (column) => column.wide || column.more);
    put(head, h("span"), columns.map((column) => {
      const down = asked.sort === `-${column.name}`;
      const up = asked.sort === column.name;
      return h("button", { class: `cell plain ${column.right ? "right" : ""} ${column.wide ? "wide" : column.more ? "more-room" : ""} ${up || down ? "on" : ""}`,
        "aria-sort": up ? "ascending" : down ? "descending" : "none", tabindex: "-1",
        onclick: () => order(down ? column.name : up ? "" : `-${column.name}`) },
      column.name, up ? " ↑" : down ? " ↓" : "");
    }));
  }

  async function fetchPage(number) {
    if (loading.has(number)) return;
    const stop = new AbortController();
    loading.set(number, stop);
    const mine = loading;
    const asking = version;
    try {
      const found = await api.rollouts(run, { ...asked, offset: number * PAGE, limit: PAGE }, stop.signal);
      if (mine !== loading) return;
      pages.delete(number);
      pages.set(number, { ...found, seen: Math.max(asking, found.version) });
      while (pages.size > KEPT) pages.delete(pages.keys().next().value);
      version = Math.max(version, found.version);
      if (found.version < asking) again ||= setTimeout(askAgain, SOON_MS);
      if (found.matched !== matched || found.total !== total) {
        [matched, total] = [found.matched, found.total];
        list.resize(matched);
      }
      told({ total, matched, error: "" });
      if (wanted !== null) await seek(wanted);
      list.redraw();
    } catch (error) {
      if (error.name === "AbortError" || mine !== loading) return;
      told({ total, matched: 0, error: error.message });
      refused = true; // asked again only when the question is another one, or something is new
      pages.clear();
      matched = 0;
      list.resize(0);
    } finally {
      if (mine === loading) loading.delete(number);
    }
  }

  function fetchSeen(first, last) {
    if (refused) return;
    for (let number = Math.floor(first / PAGE); number <= Math.floor(Math.max(first, last - 1) / PAGE); number += 1) {
      const known = pages.get(number);
      if (!known || known.seen < version) fetchPage(number);
    }
  }

  function forget() {
    loading.forEach((stop) => stop.abort());
    loading = new Map();
    pages.clear();
  }

  /** The server has given what it had worked out before, to spare itself: what is in sight is asked for anew. */
  function askAgain() {
    again = 0;
    pages.forEach((page) => { page.seen = -1; });
    list.redraw();
  }

  async function seek(rollout) {
    wanted = null;
    const { position } = await api.around(run, rollout, asked);
    if (position === null) return;
    at = position;
    list.reveal(at, { middle: true });
  }

  return {
    element,
    /** What to show; `rollout` is the one to stand at. */
    ask(next, rollout) {
      if (next.filter !== asked.filter || next.sort !== asked.sort || version < 0) {
        asked = next;
        forget();
        at = -1;
        version = 0;
        refused = false;
        list.element.scrollTop = 0;
        fetchPage(0);
      }
      wanted = rollout ?? null;
      drawHead();
    },
    /** Something is new on the server. */
    news(latest) {
      if (latest <= version) return;
      version = latest;
      refused = false;
      list.redraw();
    },
    know(found) {
      const before = columns.length;
      charts = found;
      drawHead();
      if (columns.length !== before) list.redraw();
    },
    move(by) {
      if (!matched) return;
      at = Math.max(0, Math.min(matched - 1, at < 0 ? 0 : at + by));
      list.reveal(at);
      list.redraw();
    },
    to(place) {
      at = place < 0 ? matched - 1 : place;
      list.reveal(at);
      list.redraw();
    },
    openThis() {
      const found = rowAt(at);
      if (found) open(found.rollout_id);
    },
    mark() {
      const found = rowAt(at)?.rollout_id;
      if (!found) return;
      marked = marked.includes(found) ? marked.filter((each) => each !== found) : [...marked, found].slice(-2);
      list.redraw();
    },
    /** The two that are marked, or the one and where the cursor is. */
    get pair() { return marked.length === 2 ? marked : [marked[0], rowAt(at)?.rollout_id]; },
    leave() {
      clearTimeout(again);
      forget();
      list.leave();
    },
  };
}
