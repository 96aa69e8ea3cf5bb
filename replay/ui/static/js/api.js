// What the server is asked. An answer that is an error is thrown with the server's own words.

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer: is `replay ui` still running?");
  }
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? response.statusText);
  return body;
}

const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

const run = (id) => `/api/runs/${encodeURIComponent(id)}`;
const rollout = (of, id) => `${run(of)}/rollouts/${encodeURIComponent(id)}`;

export const api = {
  about: () => ask("/api/about"),
  runs: () => ask("/api/runs"),
  charts: (id) => ask(`${run(id)}/charts`),
  pools: (id) => ask(`${run(id)}/pools`),
  rollouts: (id, asked, signal) => ask(`${run(id)}/rollouts${query(asked)}`, { signal }),
  rollout: (of, id) => ask(rollout(of, id)),
  around: (of, id, asked) => ask(`${rollout(of, id)}/around${query(asked)}`),
  step: (of, id, key) => ask(`${rollout(of, id)}/steps/${encodeURIComponent(key)}`),
  tokens: (of, id, asked) => ask(`${rollout(of, id)}/tokens${query(asked)}`),
  events: (of, id) => ask(`${rollout(of, id)}/events`),
  diff: (of, id, asked) => ask(`${rollout(of, id)}/diff${query(asked)}`),
  fork: (of, id, asked) => post(`${rollout(of, id)}/fork`, asked),
  forkCommand: (of, id, asked) => post(`${rollout(of, id)}/fork/command`, asked),
  job: (number) => ask(`/api/jobs/${number}`),
  event: (of, id, seq) => ask(`${rollout(of, id)}/events/${seq}`),
};

let token = null;

async function post(path, body) {
  token ??= (await api.about()).token;
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Replay-Token": token }, body: JSON.stringify(body) });
}

/** Calls back with each message about news of a run, until the function that it returns is called. */
export function follow(id, onNews) {
  const stream = new EventSource(`${run(id)}/changes`);
  stream.addEventListener("message", (event) => onNews(JSON.parse(event.data)));
  return () => stream.close();
}
