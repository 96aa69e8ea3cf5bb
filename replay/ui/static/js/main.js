// The frame around every page: the bar on top, the page that the URL asks for, and the keys that work everywhere.

import { api } from "./api.js";
import { h, hint, put } from "./dom.js";
import { always, close, help, onPage } from "./keys.js";
import { go, read, write } from "./route.js";
import { rolloutPage } from "./rollout.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";
import { apply, toggle } from "./theme.js";
import { inRun } from "./words.js";

apply();

const crumbs = h("nav", { class: "crumbs", "aria-label": "Where you are" });
const status = h("span", { class: "pill hidden" });
const page = h("main", { class: "page" });
let shown = null;

function up() {
  const route = read();
  if (route.rollout) go({ run: route.run, query: { filter: route.query.filter, sort: route.query.sort, at: route.rollout } });
  else if (route.run) go({});
}

document.body.append(
  h("header", { class: "top" },
    h("a", { class: "logo", href: "#/", title: "All runs" }, h("img", { src: "/static/icon.svg", alt: "" }), "replay"),
    crumbs, h("span", { class: "spring" }), status,
    h("button", { class: "plain", title: "Dark or light (t)", "aria-label": "Dark or light", onclick: toggle }, "◐"),
    h("button", { class: "plain", title: "Keyboard (?)", "aria-label": "Keyboard", onclick: help }, "?")),
  page);

always(
  { keys: ["?"], what: "this list", run: help },
  { keys: ["t"], what: "dark or light", run: toggle },
  { keys: ["Escape", "u"], what: "back: to the table, to the runs", run: up },
);

/** What pages may do to the frame. */
const frame = {
  about: null,
  /** Says in the bar how the source is: `live`, `loading`, `lost`. */
  tell(state, why) {
    const quiet = state === null || state === "at rest";
    status.className = quiet ? "pill hidden" : `pill ${state === "lost" ? "bad" : "accent"}`;
    put(status, h("i", { class: `dot ${state}` }), state);
    status.title = why ?? "";
  },
};

function show() {
  const route = read();
  close();
  hint(null, "");
  const kind = route.rollout ? rolloutPage : route.run ? runPage : runsPage;
  const same = shown !== null && shown.kind === kind && shown.run === route.run && shown.rollout === route.rollout;
  put(crumbs,
    route.run && [h("span", { class: "slash" }, "/"), route.rollout
      ? h("a", { class: "clip", href: write({ run: route.run, query: { filter: route.query.filter, sort: route.query.sort } }) }, route.run)
      : h("span", { class: "here clip" }, route.run)],
    route.rollout && [h("span", { class: "slash" }, "/"),
      h("span", { class: "here clip" }, inRun(route.rollout, route.run))]);
  document.title = [route.rollout ? inRun(route.rollout, route.run) : null, route.run, "replay"].filter(Boolean).join(" · ");
  if (same) return void shown.page.update?.(route);
  shown?.page.leave?.();
  frame.tell(null);
  onPage();
  put(page);
  shown = { kind, run: route.run, rollout: route.rollout, page: kind(page, route, frame) };
}

frame.about = await api.about();
if (!location.hash && frame.about.first) history.replaceState(null, "", write({ run: frame.about.first, query: {} }));
addEventListener("hashchange", show);
show();
