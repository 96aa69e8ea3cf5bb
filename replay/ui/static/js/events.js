// The raw events of a rollout: the list of them, and the one that is chosen as it is stored.

import { api } from "./api.js";
import { coloured } from "./code.js";
import { copy, h, put } from "./dom.js";
import { bytes, offset } from "./words.js";
import { virtualList } from "./virtual.js";

const HEIGHT = 28;
const CAPTURED = /"(prompt|generated|logprobs)": "([^"]{120})[^"]*"/g;

export function eventsTab(view, { run, query, ask }) {
  let lines = [];
  let at = -1;
  const detail = h("div", { class: "event-data scroll" });
  const list = virtualList({ height: HEIGHT, row, label: "Events" });
  const element = h("div", { class: "tab events" }, h("div", { class: "event-list" },
    h("div", { class: "event head" }, ["#", "time", "type", "call", "size"].map((name, place) => h("span", { class: place === 4 ? "right" : "" }, name))), list.element), detail);

  function row(place) {
    const line = lines[place];
    const kind = line.type.split(".")[0];
    return h("div", { class: `event ${place === at ? "at" : ""}`, role: "option", "aria-selected": String(place === at), onclick: () => stand(place) },
      h("span", { class: "faint num" }, line.seq), h("span", { class: "soft num" }, offset(line.at)),
      h("span", { class: "clip" }, h("b", { class: `is-${kind}` }, kind), h("span", { class: line.type.endsWith(".failed") ? "bad" : "soft" }, line.type.slice(kind.length)),
        line.captured ? h("span", { class: "tag", title: "with tokens" }, "tokens") : null),
      h("span", { class: "mono faint clip" }, line.key), h("span", { class: "right faint num" }, bytes(line.bytes)));
  }

  async function stand(place) {
    at = Math.max(0, Math.min(lines.length - 1, place));
    list.reveal(at);
    list.redraw();
    const line = lines[at];
    if (!line) return;
    ask({ event: line.seq });
    try {
      const found = await api.event(run, view.rollout_id, line.seq);
      if (lines[at] !== line) return;
      const whole = JSON.stringify(found.data === null ? found.event : { ...found.event, data: found.data }, null, 2);
      const cause = lines.findIndex((each) => each.type && line.cause && each.seq < line.seq && causes.get(line.cause) === each.seq);
      put(detail, h("div", { class: "event-head" }, h("b", {}, line.type), h("span", { class: "faint" }, line.source), h("span", { class: "spring" }),
        cause >= 0 ? h("button", { class: "plain", onclick: () => stand(cause) }, "Cause") : null,
        h("button", { class: "plain", onclick: (event) => copy(event.target, whole) }, "Copy")),
      h("div", { class: "faint mono subject" }, line.subject),
      found.left ? h("p", { class: "problem" }, `Its ${bytes(found.left)} are too much for a page: replay show ${view.rollout_id} --raw has them.`) : null,
      h("pre", {}, coloured(whole.replace(CAPTURED, '"$1": "$2…"'))));
    } catch (error) {
      put(detail, h("div", { class: "problem" }, error.message));
    }
  }

  const causes = new Map();
  async function load() {
    try {
      lines = await api.events(run, view.rollout_id);
      lines.forEach((line) => causes.set(line.id, line.seq));
      list.resize(lines.length);
      stand(Math.max(0, lines.findIndex((line) => String(line.seq) === query.event)));
    } catch (error) {
      put(detail, h("div", { class: "problem" }, error.message));
    }
  }

  load();
  return {
    element,
    keys: [
      { keys: ["j", "ArrowDown"], what: "next event", run: () => stand(at + 1) },
      { keys: ["k", "ArrowUp"], what: "event before", run: () => stand(at - 1) },
    ],
    leave: () => list.leave(),
  };
}
