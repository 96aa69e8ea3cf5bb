// The token view: what a trainer gets, coloured by how likely each token was, by the mask, or by policy version.

import { api } from "./api.js";
import { h, hint, put } from "./dom.js";
import { count, counted } from "./words.js";

const MODES = { logprob: "log-probability", mask: "mask", version: "policy version" };
const HUES = 8;

/** From likely (pale) to a surprise (deep): which of 9 shades. */
const shade = (logprob) => Math.min(8, Math.floor(Math.sqrt(Math.max(0, -logprob)) * 3));

export function tokensTab(view, { run, query, ask }) {
  const body = h("div", { class: "wide-inner" }, h("div", { class: "empty" }, "reading the captures…"));
  const element = h("div", { class: "tab scroll" }, body);
  let mode = MODES[query.colour] ? query.colour : "logprob";
  let branch = Number(query.branch) || 0;
  let found = null;

  async function load(offset = 0) {
    try {
      const next = await api.tokens(run, view.rollout_id, { branch, offset });
      if (offset) {
        const [have, more] = [found.samples[branch], next.samples[branch]];
        for (const name of ["tokens", "mask", "logprobs", "token_versions", "texts"]) have[name].push(...more[name]);
      } else {
        found = next;
      }
      draw();
    } catch (error) {
      put(body, h("div", { class: "problem" }, error.message));
    }
  }

  function draw() {
    const missing = [
      found.breaks.map((each) => h("li", {}, h("span", { class: "tag warn" }, each.kind), ` call ${each.call} does not go on from ${each.before}: they agree up to token ${count(each.place)}`)),
      found.tokenless.map((each) => h("li", {}, h("span", { class: "tag" }, "no tokens"), ` call ${each.call}: ${each.why}`)),
    ];
    if (!found.samples.length) {
      put(body, h("div", { class: "empty" }, h("p", {}, "No call of this rollout has tokens in the log."),
        h("p", { class: "faint" }, "They are captured from models whose engine gives token IDs and log-probabilities.")), h("ul", { class: "notes" }, missing));
      return;
    }
    branch = Math.min(branch, found.samples.length - 1);
    const sample = found.samples[branch];
    const versions = sample.versions.map(([version]) => version);
    const hue = (version) => Math.max(0, versions.indexOf(version)) % HUES;
    put(body,
      h("div", { class: "token-bar" },
        found.samples.length > 1 ? h("select", { "aria-label": "Sample", onchange: (event) => { branch = Number(event.target.value); ask({ branch: branch || "" }); load(); } },
          found.samples.map((each) => h("option", { value: each.branch, ...(each.branch === branch ? { selected: true } : {}) }, `sample ${each.branch}`))) : null,
        h("div", { class: "segments", role: "group", "aria-label": "Colour" }, Object.entries(MODES).map(([name, told]) =>
          h("button", { class: name === mode ? "on" : "", "aria-pressed": String(name === mode), onclick: () => colour(name) }, told))),
        h("span", { class: "soft num" }, `${counted(sample.length, "token")}, ${count(sample.trained)} trained on`),
        sample.truncated ? h("span", { class: "pill warn" }, "truncated") : null,
        h("span", { class: "spring" }), legend(sample, hue)),
      h("div", { class: "card turns" }, sample.turns.map((turn, place) => h("button", { class: "turn plain", onclick: () => cells.querySelector(`[data-turn="${place}"]`)?.scrollIntoView({ block: "center" }) },
        h("span", { class: "mono" }, turn.call), h("span", { class: "soft num" }, `${count(turn.end - turn.start)} tokens`),
        h("span", { class: "faint num" }, turn.trained ? `mean ${turn.mean_logprob.toFixed(2)}, least ${turn.least_logprob.toFixed(2)}` : "trained on in an earlier sample")))),
      h("ul", { class: "notes" }, missing));
    const cells = h("div", { class: `tokens by-${mode} card` });
    const starts = new Map(sample.turns.map((turn, place) => [turn.start, place]));
    const ends = new Set(sample.turns.map((turn) => turn.end));
    const made = document.createDocumentFragment();
    sample.tokens.forEach((token, place) => {
      const at = sample.offset + place;
      if (starts.has(at)) made.append(h("span", { class: "turn-mark", "data-turn": starts.get(at) }, sample.turns[starts.get(at)].call));
      else if (ends.has(at)) made.append(h("span", { class: "turn-mark prompt" }, "prompt"));
      const on = sample.mask[place];
      const version = sample.token_versions[place];
      const kind = !on ? "off" : mode === "logprob" ? `l${shade(sample.logprobs[place])}` : mode === "version" ? (version === null ? "v-none" : `v${hue(version)}`) : "on";
      const text = sample.texts[place];
      made.append(h("span", { class: `token ${kind} ${text === null ? "id" : ""}`, "data-at": place }, text === null ? String(token) : visible(text)));
    });
    cells.append(made);
    cells.addEventListener("pointermove", (event) => {
      const place = event.target.dataset?.at;
      if (place === undefined) return hint(null, "");
      hint(event, [`token ${count(sample.offset + Number(place))}: ID ${sample.tokens[place]}`, sample.texts[place] === null ? null : JSON.stringify(sample.texts[place]),
        sample.mask[place] ? `log-probability ${sample.logprobs[place]}, ${(100 * Math.exp(sample.logprobs[place])).toPrecision(3)} %` : "not trained on: prompt, tool output, or an earlier sample's",
        sample.token_versions[place] === null ? null : `policy version ${sample.token_versions[place]}`].filter(Boolean).join("\n"));
    });
    cells.addEventListener("pointerleave", () => hint(null, ""));
    body.append(cells);
    const left = sample.length - sample.tokens.length;
    if (left > 0) body.append(h("p", { class: "right" }, h("button", { onclick: () => load(sample.tokens.length) }, `Show more of ${count(left)} tokens`)));
    if (sample.tokenizer) body.append(h("p", { class: "faint mono" }, `tokenizer ${sample.tokenizer}${sample.template ? `, template ${sample.template}` : ""}`));
  }

  function legend(sample, hue) {
    if (mode === "logprob") return h("span", { class: "scale faint" }, "likely", [0, 1, 2, 3, 4, 5, 6, 7, 8].map((each) => h("i", { class: `token l${each}` })), "surprising");
    if (mode === "mask") return h("span", { class: "scale faint" }, h("i", { class: "token on" }), "trained on", h("i", { class: "token off" }), "context");
    return h("span", { class: "scale faint" }, sample.versions.map(([version, tokens]) => [h("i", { class: `token ${version < 0 ? "v-none" : `v${hue(version)}`}` }),
      version < 0 ? `unknown (${count(tokens)})` : `${version} (${count(tokens)})`]));
  }

  function colour(next) {
    mode = next;
    ask({ colour: mode === "logprob" ? "" : mode });
    draw();
  }

  const names = Object.keys(MODES);
  load();
  return { element, keys: [{ keys: ["m"], what: "colour by something else", run: () => found?.samples.length && colour(names[(names.indexOf(mode) + 1) % names.length]) }], leave() {} };
}

const visible = (text) => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥");
