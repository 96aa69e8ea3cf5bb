// What the URL says: behind its # stand the run, the rollout, the tab, and the filter and order of the table.
//
//     #/RUN?filter=reward<1&sort=-duration        #/RUN/ROLLOUT/timeline?filter=…&step=m_3

export const TABS = ["conversation", "timeline", "tokens", "events", "diff"];

export function read() {
  const [path, given] = location.hash.replace(/^#\/?/, "").split("?");
  const [run, rollout, tab] = path.split("/").map(decodeURIComponent);
  const query = Object.fromEntries(new URLSearchParams(given ?? ""));
  return { run: run || null, rollout: rollout || null, tab: TABS.includes(tab) ? tab : TABS[0], query };
}

export function write({ run, rollout, tab, query }) {
  const path = [run, rollout, rollout && tab !== TABS[0] ? tab : null].filter(Boolean).map(encodeURIComponent).join("/");
  const given = Object.entries(query ?? {}).filter(([, value]) => value);
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Goes there; `instead` leaves no trace in the history. */
export function go(route, { instead = false } = {}) {
  const hash = write(route);
  if (hash === location.hash) return;
  if (instead) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = hash;
  }
}
