// Numbers, durations and times as a reader takes them in at a glance.

export const count = (value) => (value ?? 0).toLocaleString("en");

export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export function short(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(size >= 1e5 ? 0 : 1)} k`;
  return count(Math.round(value));
}

export function number(value) {
  if (value === null || value === undefined) return "";
  if (Number.isInteger(value)) return count(value);
  return Number(value.toPrecision(4)).toString();
}

/** A number with so many digits that a column of rewards is even. */
export const reward = (value) => (value === null || value === undefined ? "" : value.toFixed(Math.abs(value) >= 100 ? 1 : 3));

export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 9.95) return `${value.toFixed(2)} s`;
  if (value < 120) return `${value.toFixed(1)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

/** Seconds since a rollout was requested. */
export const offset = (value) => `${value < 100 ? value.toFixed(3) : value.toFixed(1)} s`;

export function bytes(value) {
  if (value < 1000) return `${value} B`;
  if (value < 1e6) return `${(value / 1e3).toFixed(1)} kB`;
  if (value < 1e9) return `${(value / 1e6).toFixed(1)} MB`;
  return `${(value / 1e9).toFixed(2)} GB`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** In UTC, as IDs of runs, the filter and the terminal say it. */
export function time(text) {
  const at = new Date(text);
  const today = at.toISOString().slice(0, 10) === new Date().toISOString().slice(0, 10);
  return today ? clock.format(at) : `${day.format(at)} ${clock.format(at)}`;
}

/** A rollout's ID without its run's. */
export const inRun = (rollout, run) => (run && rollout.startsWith(`${run}-`) ? rollout.slice(run.length + 1) : rollout);
