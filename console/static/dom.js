// Building blocks: text always goes in as text, never as markup.

import { say } from './sentences.js';

// hidden are characters that readers cannot see for what they are, line ends and tabs
// aside.
const hidden = /[\0-\x08\x0b-\x1f\x7f\p{Cf}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}\u2800\uFFFC]/gu;

// exposed shows what hides in text as escapes.
export function exposed(text) {
  return text.replace(/\r\n?/g, '\n').replace(hidden, (c) => '\\u{' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '}');
}

export const $ = (id) => document.getElementById(id);

// el makes an element. Props are attributes, but class, text, on (listeners),
// and properties given with a dot in front; null and false are left out.
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') node.className = value;
    else if (name === 'text') node.textContent = value;
    else if (name === 'on') for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (name.startsWith('.')) node[name.slice(1)] = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false && c !== ''));
  return node;
}

// prose is a sentence of the bot, whose `commands` stand in a type of their own.
export function prose(text) {
  return String(text ?? '').split(/`([^`\n]+)`/).map((part, i) => (i % 2 ? el('code', { text: part }) : part)).filter((part) => part !== '');
}

// announce has a screen reader say one sentence, once. While a dialog is open
// nothing outside of it is heard, so the sentence waits for its end.
export function announce(text) {
  if (!text) return;
  const dialog = document.querySelector('dialog[open]');
  if (dialog) {
    dialog.addEventListener('close', () => announce(text), { once: true });
    return;
  }
  const line = el('p', { text });
  $('announce').append(line);
  setTimeout(() => line.remove(), 10000);
}

// lost reports whether the keyboard has no place on the page: what had it is gone.
export function lost() {
  const at = document.activeElement;
  return !at || at === document.body || !at.isConnected || !at.checkVisibility();
}

// steady makes a change in a box that scrolls, and leaves what a person has focused or looks at
// where it is: at the very top what they focused only, or with top everything. name is the
// attribute by which a node is known again.
export function steady(box, name, change, top = false) {
  const view = box.getBoundingClientRect();
  const nodes = () => [...box.querySelectorAll(`[${name}]`)].filter((n) => n.checkVisibility());
  const seen = nodes().filter((n) => n.getBoundingClientRect().bottom > view.top && n.getBoundingClientRect().top < view.bottom);
  const at = seen.find((n) => n.contains(document.activeElement)) || (top || box.scrollTop > 8 ? seen[0] : null);
  const [id, before] = [at?.getAttribute(name), at?.getBoundingClientRect().top];
  change();
  const now = at && nodes().find((n) => n.getAttribute(name) === id);
  if (now) box.scrollTop += now.getBoundingClientRect().top - before;
}

export function icon(path, cls = '') {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('viewBox', '0 0 20 20');
  svg.setAttribute('aria-hidden', 'true');
  if (cls) svg.setAttribute('class', cls);
  const p = document.createElementNS(ns, 'path');
  p.setAttribute('d', path);
  svg.append(p);
  return svg;
}

export function when(iso) {
  const at = new Date(iso);
  const clock = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  const day = at.toDateString() === new Date().toDateString() ? '' : dayOf(at) + ', ';
  return el('time', { datetime: iso, title: at.toLocaleString(), text: day + clock });
}

function dayOf(at) { return at.toLocaleDateString([], { day: 'numeric', month: 'short' }); }

// inZone writes the clock times of a text that are in UTC in the reader's own zone. at is about when it was written.
export function inZone(text, at) {
  if (!text || !new Date().getTimezoneOffset()) return text;
  return text.replace(/(?:(\d{4}-\d\d-\d\d) )?\b([01]\d|2[0-3]):([0-5]\d)(?::[0-5]\d)? UTC\b/g, (all, date, hours, minutes) => {
    const then = new Date(date || at);
    then.setUTCHours(Number(hours), Number(minutes), 0, 0);
    const day = 24 * 3600e3;
    if (!date) then.setTime(then.getTime() - Math.round((then - new Date(at)) / day) * day);
    return (date ? dayOf(then) + ', ' : '') + then.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  });
}

// until is a moment to come, in words that [tick] keeps true.
export function until(at) {
  const node = el('time', { datetime: at.toISOString(), 'data-until': String(at.getTime()) });
  node.textContent = left(at.getTime());
  return node;
}

// elapsed is how long ago a moment was, which [tick] keeps true.
export function elapsed(at) {
  const node = el('time', { datetime: at.toISOString(), 'data-since': String(at.getTime()) });
  node.textContent = lasted(at.getTime());
  return node;
}

// tick brings every such time on the page up to date. What is over says nothing:
// the card says it when the bot has decided so, by a clock that is not this one.
export function tick() {
  for (const node of document.querySelectorAll('time[data-until]')) {
    const text = left(Number(node.dataset.until));
    if (node.textContent !== text) node.textContent = text;
    if (node.parentElement) node.parentElement.hidden = !text;
  }
  for (const node of document.querySelectorAll('time[data-since]')) {
    const text = lasted(Number(node.dataset.since));
    if (node.textContent !== text) node.textContent = text;
  }
}

function lasted(since) {
  const s = Math.max(0, Math.floor((Date.now() - since) / 1000));
  if (s < 60) return `${s} s`;
  const minutes = Math.floor(s / 60);
  return minutes < 60 ? `${minutes} min ${s % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function left(at) {
  const s = (at - Date.now()) / 1000;
  if (s <= 0) return '';
  if (s < 60) return 'in less than a minute';
  const minutes = Math.round(s / 60);
  if (minutes < 120) return minutes === 1 ? 'in 1 minute' : `in ${minutes} minutes`;
  return `in ${Math.round(minutes / 60)} hours`;
}

// newID names one message or click, so that sending it again is harmless.
export function newID() {
  const b = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(b, (x) => x.toString(16).padStart(2, '0')).join('');
}

export async function copy(text, button) {
  const before = button.textContent;
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch { // no clipboard without TLS: the old way
    const area = el('textarea', { class: 'offscreen', '.value': text, readonly: true });
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
    button.focus();
  }
  button.textContent = done ? 'Copied' : 'Copying failed';
  announce(done ? say.copied : say.copyFailed);
  setTimeout(() => { button.textContent = before; }, 1600);
}
