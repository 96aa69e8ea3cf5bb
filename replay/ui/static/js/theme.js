// Dark or light: as the system says, until somebody says otherwise here.

const KEY = "replay-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => { try { return localStorage.getItem(KEY); } catch { return null; } };

export function apply() {
  document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
}

export function toggle() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    if (next === (system.matches ? "dark" : "light")) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch { /* a browser that stores nothing keeps it as long as the page is open */ }
  document.documentElement.dataset.theme = next;
  dispatchEvent(new Event("theme"));
}

system.addEventListener("change", () => { apply(); dispatchEvent(new Event("theme")); });
