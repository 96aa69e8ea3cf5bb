// A rollout: what is known of it, and tabs for its conversation, timeline, tokens and events.

import { api, follow } from "./api.js";
import { conversationTab } from "./conversation.js";
import { diffTab } from "./diff.js";
import { copy, h, put, withHint } from "./dom.js";
import { eventsTab } from "./events.js";
import { forkSheet } from "./fork.js";
import { onPage } from "./keys.js";
import { go, TABS, write } from "./route.js";
import { timelineTab } from "./timeline.js";
import { tokensTab } from "./tokens.js";
import { bytes, count, counted, inRun, number, reward, seconds, time } from "./words.js";

const MAKE = { conversation: conversationTab, timeline: timelineTab, tokens: tokensTab, events: eventsTab, diff: diffTab };

export function rolloutPage(root, route, frame) {
  const { run, rollout } = route;
  let { tab, query } = route;
  let [view, shown, gone, unfollow] = [null, null, false, null];
  let near = { before: null, after: null };
  const head = h("div", { class: "rollout-head" });
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const body = h("div", { class: "tab-body" });
  const facts = h("aside", { class: "facts-panel" });
  root.append(head, h("div", { class: "columns" }, h("section", { class: "main-column" }, tabs, body), facts));

  const table = () => ({ filter: query.filter, sort: query.sort });
  const to = (id) => id && go({ run, rollout: id, tab, query: table() });
  const open = (next) => go({ run, rollout, tab: next, query: table() }, { instead: true });
  const ask = (change) => go({ run, rollout, tab, query: { ...query, ...change } }, { instead: true });

  function drawHead() {
    const step = (id, key, name) => h("button", { class: "plain", disabled: !id, title: `${name} (${key})`, "aria-label": name, onclick: () => to(id) }, key === "[" ? "‹" : "›");
    put(head, step(near.before, "[", "rollout before"), step(near.after, "]", "next rollout"),
      h("span", { class: "faint num" }, near.position === null || near.position === undefined ? "" : `${count(near.position + 1)} of ${count(near.matched)}`),
      h("h1", {}, `Task ${view.task_index}`, h("span", { class: "soft" }, ` · rollout ${view.rollout_index}`), view.attempt ? h("span", { class: "warn" }, ` · attempt ${view.attempt + 1}`) : null),
      h("span", { class: `pill ${view.outcome === "completed" ? "good" : view.outcome === "in flight" ? "accent" : "bad"}` },
        view.reward !== null ? `reward ${reward(view.reward)}` : view.outcome === "in flight" ? "in flight" : `${view.outcome}: ${view.error?.kind ?? ""}`),
      view.timeline.marks.some((mark) => mark.what === "adopted") ? h("span", { class: "pill warn" }, "↻ adopted") : null,
      view.fork ? h("a", { class: "pill", href: `#/`, onclick: (event) => { event.preventDefault(); open("diff"); } }, `fork of ${view.fork.rollout}`) : null,
      view.revisions.length ? h("span", { class: "pill", title: `it ended with ${reward(view.first_reward)}` }, "revised") : null,
      h("span", { class: "spring" }), siblings(), h("button", { onclick: fork, title: "Fork (f)" }, "Fork…"));
  }

  const fork = () => forkSheet(view, { run, at: query.step });

  function siblings() {
    if (view.group_of.length < 2) return null;
    const top = Math.max(1e-9, ...view.group_of.map((each) => Math.abs(each.reward ?? 0)));
    return h("div", { class: "siblings", "aria-label": "Its group" }, h("span", { class: "faint" }, "group"), view.group_of.map((each, place) =>
      withHint(h("a", { class: `sibling ${each.rollout_id === rollout ? "at" : ""} ${each.reward === null ? each.outcome.replace(" ", "-") : ""}`, "aria-label": `rollout ${place}`,
        href: write({ run, rollout: each.rollout_id, tab, query: table() }) }, h("i", { style: { height: `${each.reward === null ? 100 : Math.max(6, (100 * Math.abs(each.reward)) / top)}%` } })),
      `${inRun(each.rollout_id, run)}\n${each.reward === null ? each.outcome : `reward ${reward(each.reward)}`}`)));
  }

  function drawFacts() {
    const stats = view.stats;
    const fact = (name, ...value) => (value.some((each) => each !== null && each !== "" && each !== undefined) ? [h("dt", {}, name), h("dd", {}, value)] : null);
    const timings = stats?.timings;
    const parts = timings ? [["queued", timings.queue_s, "queue"], ["model", timings.model_s, "model"], ["tools", timings.tools_s, "tool"], ["verify", timings.verify_s, "verifier"]].filter(([, value]) => value) : [];
    const whole = Math.max(view.duration_s ?? 0, parts.reduce((sum, [, value]) => sum + value, 0)) || 1;
    const components = Object.entries(view.components);
    const code = view.agent_workers[0];
    put(facts,
      view.error ? h("div", { class: "problem" }, `${view.error.kind}: ${view.error.message}`) : null,
      components.length ? h("section", {}, h("h2", {}, "Reward"), components.map(([name, value]) => h("div", { class: "component" },
        h("span", { class: "clip" }, name), h("span", { class: "meter" }, h("i", { class: value < 0 ? "failed" : "", style: { width: `${Math.min(100, 100 * Math.abs(value))}%` } })), h("span", { class: "num right" }, number(value)))),
      h("div", { class: "component sum" }, h("span", {}, "together"), h("span"), h("b", { class: "num right" }, reward(view.reward)))) : null,
      Object.keys(view.extra).length ? h("section", {}, h("h2", {}, "The verifier adds"), h("dl", {}, Object.entries(view.extra).map(([name, value]) =>
        fact(name, typeof value === "string" ? value : JSON.stringify(value))))) : null,
      h("section", {}, h("h2", {}, "Time"), parts.length ? h("div", { class: "shares" }, parts.map(([name, value, kind]) =>
        withHint(h("i", { class: `is-${kind}`, style: { width: `${(100 * value) / whole}%` } }), `${name} ${seconds(value)}`))) : null,
      h("dl", {}, fact("all", view.duration_s === null ? "in flight" : seconds(view.duration_s)), parts.map(([name, value, kind]) =>
        [h("dt", {}, h("i", { class: `swatch is-${kind}` }), name), h("dd", { class: "num" }, seconds(value))]), fact("started", `${time(view.started)} UTC`))),
      h("section", {}, h("h2", {}, "Rollout"), h("dl", {}, fact("agent", view.agent), fact("resources", view.environment), fact("model", stats?.models?.join(", ")),
        fact("turns", stats ? `${stats.turns}, ${counted(stats.tool_calls, "tool call")}` : null),
        fact("tokens", stats ? `${count(stats.usage.input_tokens)} in, ${count(stats.usage.output_tokens)} out` : null),
        fact("policy", stats?.policy ? (stats.policy[0] === stats.policy[1] ? `version ${stats.policy[0]}` : `versions ${stats.policy[0]} to ${stats.policy[1]}`) : null, view.asked_version === null ? null : `, asked at ${view.asked_version}`),
        fact("group", view.group ? h("span", { class: "mono" }, view.group) : null),
        fact("parent", view.parent ? h("a", { class: "mono", href: write({ run: view.fork ? view.parent.replace(/-\d+-\d+$/, "") : run, rollout: view.parent, query: {} }) }, inRun(view.parent, run)) : null),
        fact("events", `${count(view.events)}, ${bytes(view.bytes)}`))),
      h("section", {}, h("h2", {}, "Code"), h("dl", {}, code ? [fact("agent", `${code.implementation} ${code.version}`), fact("source", h("span", { class: "mono" }, code.digest.slice(0, 8))),
        fact("Python", code.python), fact("JetGym", code.jetgym)] : null, fact("workers", h("span", { class: "mono small" }, view.workers.join(" "))))),
      h("section", {}, h("h2", {}, "In the terminal"), ["show", "verify"].map((verb) => command(`replay ${verb} ${view.rollout_id}`))),
      h("details", {}, h("summary", { class: "soft" }, "Task as it was asked"), h("pre", { class: "small" }, JSON.stringify(view.task, null, 2))));
  }

  const command = (line) => h("div", { class: "command" }, h("code", { class: "clip", title: line }, line), h("button", { class: "plain", onclick: (event) => copy(event.target, line) }, "Copy"));

  function drawTab() {
    shown?.leave();
    put(tabs, TABS.map((name, place) => h("button", { role: "tab", class: name === tab ? "on" : "", "aria-selected": String(name === tab), title: `${name} (${place + 1})`, onclick: () => open(name) }, name)));
    shown = { ...MAKE[tab](view, { run, query, step: query.step, ask, chosen: (key) => key !== query.step && ask({ step: key }) }), tab };
    put(body, shown.element);
    onPage(...shown.keys,
      ...TABS.map((name, place) => ({ keys: [String(place + 1)], what: name, run: () => open(name) })),
      { keys: ["]", "n"], what: "next rollout of the table", run: () => to(near.after) },
      { keys: ["[", "p"], what: "rollout before", run: () => to(near.before) },
      { keys: ["f"], what: "fork", run: fork },
      { keys: ["i"], what: "facts", run: () => root.classList.toggle("no-facts") });
  }

  async function load() {
    try {
      view = await api.rollout(run, rollout);
      near = await api.around(run, rollout, table()).catch(() => near);
    } catch (error) {
      if (!gone) put(root, h("div", { class: "inner" }, h("div", { class: "problem" }, error.message), h("p", {}, h("a", { href: write({ run, query: table() }) }, "To the table"))));
      return;
    }
    if (gone) return;
    drawHead();
    drawFacts();
    drawTab();
    if (view.outcome === "in flight" && unfollow === null) watch();
  }

  /** A rollout in flight is read again while it runs, as long as somebody looks at it. */
  function watch() {
    let timer = 0;
    const close = follow(run, (news) => frame.tell(news.state, news.error));
    const again = async () => {
      if (gone) return;
      if (!document.hidden) {
        const next = await api.rollout(run, rollout).catch(() => null);
        if (next && !gone && (next.events !== view.events || next.outcome !== view.outcome)) {
          view = next;
          const scroll = body.querySelector(".scroll")?.scrollTop;
          drawHead();
          drawFacts();
          drawTab();
          const now = body.querySelector(".scroll");
          if (now && scroll !== undefined) now.scrollTop = scroll;
        }
      }
      if (view.outcome === "in flight") timer = setTimeout(again, 1500);
    };
    timer = setTimeout(again, 1500);
    unfollow = () => { close(); clearTimeout(timer); };
  }

  load();
  return {
    update(next) {
      const other = next.tab !== tab;
      [tab, query] = [next.tab, next.query];
      if (other && view) drawTab();
    },
    leave() {
      gone = true;
      unfollow?.();
      shown?.leave();
    },
  };
}
