// The diff tab: this rollout beside another one, call by call, word by word.

import { api } from "./api.js";
import { coloured } from "./code.js";
import { h, put } from "./dom.js";
import { count, counted, inRun, reward } from "./words.js";

const AROUND = 90;
const WORDS = { differs: "differs", removed: "only in the first", added: "only in the second" };

export function diffTab(view, { run, query, ask }) {
  const others = view.group_of.filter((each) => each.rollout_id !== view.rollout_id);
  const first = query.with || view.fork?.rollout || others.find((each) => each.reward !== view.reward)?.rollout_id || others[0]?.rollout_id || "";
  let by = query.by || "key";
  const known = h("datalist", { id: "siblings" }, others.map((each) => h("option", { value: each.rollout_id }, each.reward === null ? each.outcome : `reward ${reward(each.reward)}`)));
  const name = h("input", { class: "mono other", list: "siblings", value: first, spellcheck: "false", placeholder: "ID of another rollout", "aria-label": "The other rollout", onchange: load });
  const align = h("select", { "aria-label": "Align calls", onchange: (event) => { by = event.target.value; load(); } },
    [["key", "by call key"], ["turn", "by place in the turn"]].map(([value, told]) => h("option", { value, ...(value === by ? { selected: true } : {}) }, told)));
  const body = h("div", { class: "differences" });
  const element = h("div", { class: "tab scroll" }, h("div", { class: "wide-inner" },
    h("div", { class: "token-bar" }, h("span", { class: "soft" }, "this one against"), name, known, align,
      others.length ? h("span", { class: "faint" }, counted(others.length, "other"), " in its group") : null), body));
  let asked = 0;

  async function load() {
    const other = name.value.trim();
    if (!other) return void put(body, h("div", { class: "empty" }, "Name another rollout: its ID, or one of the group."));
    ask({ with: other, by: by === "key" ? "" : by });
    const mine = (asked += 1);
    try {
      const found = await api.diff(run, view.rollout_id, { with: other, by });
      if (mine === asked) draw(found);
    } catch (error) {
      if (mine === asked) put(body, h("div", { class: "problem" }, error.message));
    }
  }

  function draw(found) {
    const [mine, theirs] = found.rewards;
    const parted = found.calls.findIndex((call) => call.status !== "same");
    put(body,
      h("div", { class: "card verdict-card" },
        side(found.one, found.outcomes[0], mine, "removed"), side(found.other, found.outcomes[1], theirs, "added"),
        h("div", {}, h("span", { class: "faint" }, "verdict"), h("b", { class: found.verdict === "same" ? "good" : "" }, found.verdict === "same" ? `the same in ${counted(found.calls.length, "call")}`
          : parted < 0 ? "only the results differ" : `the same in ${counted(parted, "call")}, then they part`)),
        mine !== null && theirs !== null ? h("div", {}, h("span", { class: "faint" }, "reward"), h("b", { class: `num ${theirs > mine ? "good" : theirs < mine ? "bad" : ""}` }, `${theirs >= mine ? "+" : ""}${reward(theirs - mine)}`)) : null),
      found.task.length ? h("section", { class: "difference" }, h("h3", {}, "Task"), found.task.map(change)) : null,
      stretches(found.calls).map((each) => (Array.isArray(each) ? h("p", { class: "same faint" }, `${counted(each.length, "call")} the same`) : call(each, found.calls[parted] === each))),
      found.result.length ? h("section", { class: "difference" }, h("h3", {}, "Result"), found.result.map(change)) : null);
  }

  const side = (id, outcome, value, kind) => h("div", {}, h("span", { class: "faint" }, id === view.rollout_id ? "this one" : id === view.fork?.rollout ? "its parent" : "the other"),
    h("b", { class: `mono ${kind}` }, inRun(id, run)), h("span", { class: "num soft" }, value === null ? outcome : `reward ${reward(value)}`));

  load();
  return { element, keys: [], leave() { asked = -1; } };
}

/** The calls, with those that are the same put together. */
function stretches(calls) {
  const found = [];
  for (const each of calls) {
    if (each.status !== "same") found.push(each);
    else if (Array.isArray(found.at(-1))) found.at(-1).push(each);
    else found.push([each]);
  }
  return found;
}

function call(each, first) {
  const tokens = each.tokens;
  return h("section", { class: `difference ${each.status}` },
    h("h3", {}, h("span", { class: `is-${each.what}` }, each.what), h("span", { class: "soft" }, ` turn ${each.turn}`), h("span", { class: "tag" }, WORDS[each.status]),
      first ? h("span", { class: "pill warn" }, "here they part") : null, h("span", { class: "spring" }), h("span", { class: "faint mono" }, [...new Set(each.keys.filter(Boolean))].join(" → "))),
    each.target.some(Boolean) ? h("p", { class: "soft" }, `calls ${each.target.join(" → ")}`) : null,
    each.request.length ? [h("p", { class: "faint" }, "asks"), each.request.map(change)] : null,
    each.reply.length ? [h("p", { class: "faint" }, "answers"), each.reply.map(change)] : null,
    tokens ? h("p", { class: "faint num" }, `${tokens.lengths.map(count).join(" and ")} tokens, the same up to ${count(tokens.same)}`,
      tokens.same < Math.max(...tokens.lengths) ? `; then ${tokens.tokens.map((token, place) => (token === null ? "its end" : `${token} (${tokens.logprobs[place]?.toFixed(2) ?? "?"})`)).join(" against ")}` : "") : null);
}

function change(each) {
  return h("div", { class: `change ${each.kind}` }, h("span", { class: "mono faint path" }, each.path || "all of it"), h("div", { class: "text" },
    each.words?.length ? each.words.map(([op, text]) => (op === "same" ? h("span", {}, shortened(text)) : h(op === "removed" ? "del" : "ins", {}, text)))
      : [each.kind !== "added" ? h("del", {}, coloured(said(each.was))) : null, each.kind === "changed" ? " " : null, each.kind !== "removed" ? h("ins", {}, coloured(said(each.now))) : null]));
}

const said = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1));
const shortened = (text) => (text.length > 3 * AROUND ? `${text.slice(0, AROUND)} … ${text.slice(-AROUND)}` : text);
