// Code and JSON with quiet colours, as spans of text.

import { h } from "./dom.js";

const PARTS = /("(?:[^"\\\n]|\\.)*")(\s*:)?|\b(true|false|null|None)\b|(-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)|\b([A-Za-z_]\w*)(?=\()/g;
const MOST = 40_000;

/** The parts of a text, coloured; a very long one stays plain. */
export function coloured(text) {
  if (text.length > MOST) return [text];
  const found = [];
  let last = 0;
  for (const match of text.matchAll(PARTS)) {
    if (match.index > last) found.push(text.slice(last, match.index));
    const [all, string, colon, word, number] = match;
    if (string !== undefined) {
      found.push(h("span", { class: colon === undefined ? "c-text" : "c-name" }, string));
      if (colon) found.push(colon);
    } else {
      found.push(h("span", { class: word !== undefined ? "c-word" : number !== undefined ? "c-number" : "c-call" }, all));
    }
    last = match.index + all.length;
  }
  if (last < text.length) found.push(text.slice(last));
  return found;
}
