// The whole of what a command printed, of any size: only the lines in sight are drawn.

import { $, el, exposed, announce } from './dom.js';
import api from './api.js';
import { download } from './card.js';

const longest = 2000; // characters of a line that are drawn
const tallest = 8e6; // pixels; browsers lay out no more than some 16 million
const spare = 8; // lines that are drawn above and below what is in sight
const context = 200; // lines before them in which a colour may have begun
const most = 10000; // matches that are counted

const nothing = { name: '', text: '', starts: [0], hits: [], hit: -1, row: 20 };
let now = { ...nothing };
let wired = false;

// showOutput opens an output at its end.
export async function showOutput(thread, id) {
  wire();
  now = { ...nothing, name: id };
  const mine = now;
  $('output-scroll').hidden = true;
  $('output-title').textContent = 'Output';
  $('output-count').textContent = '';
  $('output-word').value = '';
  $('output-note').textContent = 'Loading…';
  $('output').showModal();
  try {
    mine.text = await api.output(thread, id);
  } catch (e) {
    if (now === mine) $('output-note').textContent = e.message;
    return;
  }
  if (now !== mine) return;
  mine.starts = starts(mine.text);
  const n = mine.starts.length;
  $('output-title').textContent = 'Output · ' + (n === 1 ? '1 line' : n.toLocaleString('en') + ' lines');
  $('output-note').textContent = '';
  $('output-scroll').hidden = false;
  draw();
  mine.row = $('output-lines').firstChild.getBoundingClientRect().height || mine.row;
  to(n - 1);
  $('output-scroll').focus();
}

// hideOutput closes it, also when the person is signed out meanwhile.
export function hideOutput() { $('output').close(); }

// saveOutput keeps an output as a file; button says why not.
export async function saveOutput(thread, id, button) {
  try {
    download({ name: id + '.txt', text: await api.output(thread, id) });
  } catch (e) {
    button.textContent = e.message;
    announce(e.message);
  }
}

function wire() {
  if (wired) return;
  wired = true;
  const dialog = $('output');
  $('output-scroll').addEventListener('scroll', draw, { passive: true });
  new ResizeObserver(draw).observe($('output-scroll'));
  $('output-close').addEventListener('click', () => dialog.close());
  $('output-save').addEventListener('click', () => { if (now.text) download({ name: now.name + '.txt', text: now.text }); });
  $('output-word').addEventListener('input', find);
  $('output-find').addEventListener('submit', (e) => {
    e.preventDefault();
    step(1);
  });
  $('output-back').addEventListener('click', () => step(-1));
  dialog.addEventListener('keydown', (e) => {
    if (e.key === 'f' && (e.ctrlKey || e.metaKey)) { // the browser would find only what is drawn
      e.preventDefault();
      $('output-word').select();
    } else if ((e.key === 'Home' || e.key === 'End') && e.target === $('output-scroll')) {
      e.preventDefault(); // without an animation over all the lines between
      to(e.key === 'Home' ? 0 : now.starts.length - 1);
    } else if (e.key === 'Enter' && e.shiftKey && e.target === $('output-word')) {
      e.preventDefault();
      step(-1);
    }
  });
  dialog.addEventListener('close', () => {
    if (dialog.open) return; // the event comes late, and another is shown already
    now = { ...nothing };
    $('output-lines').replaceChildren();
  });
}

// starts are the places at which lines begin.
function starts(text) {
  const list = [0];
  for (let i = text.indexOf('\n'); i >= 0 && i < text.length - 1; i = text.indexOf('\n', i + 1)) list.push(i + 1);
  return list;
}

function line(i) {
  const end = i + 1 < now.starts.length ? now.starts[i + 1] - 1 : now.text.length;
  return now.text.slice(now.starts[i], end).replace(/\r?\n?$/, '');
}

// place is where what is in sight begins, in pixels of the whole, and how high that is. The
// box may be less high than the whole.
function place() {
  const box = $('output-scroll');
  const all = now.starts.length * now.row;
  const room = Math.min(all, tallest) - box.clientHeight;
  return { box, all, room, y: room > 0 ? box.scrollTop / room * (all - box.clientHeight) : 0 };
}

// to scrolls until a line is in the middle.
function to(i) {
  const { box, all, room } = place();
  $('output-space').style.height = Math.min(all, tallest) + 'px';
  const y = (i + 0.5) * now.row - box.clientHeight / 2;
  if (room > 0) box.scrollTop = y / (all - box.clientHeight) * room;
  draw();
}

function draw() {
  if (!$('output').open) return;
  const { box, all, y } = place();
  $('output-space').style.height = Math.min(all, tallest) + 'px';
  const first = Math.max(0, Math.floor(y / now.row) - spare);
  const last = Math.min(now.starts.length, Math.ceil((y + box.clientHeight) / now.row) + spare);
  const state = {};
  for (let i = Math.max(0, first - context); i < first; i++) pieces(line(i), state);
  const found = now.hits.length ? lineAt(now.hits[now.hit]) : -1;
  const rows = [];
  for (let i = first; i < last; i++) rows.push(el('div', { class: i === found ? 'hit' : null }, ...pieces(line(i), state)));
  const lines = $('output-lines');
  lines.replaceChildren(...rows);
  lines.style.top = box.scrollTop - (y - first * now.row) + 'px';
}

const sequences = /\x1b(?:\[([0-9;:]*)[0-?]*[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])/g;

// pieces makes of a line what a terminal would show of it. state is how text looks, and
// changes with the line.
function pieces(text, state) {
  const again = text.lastIndexOf('\r');
  if (again >= 0) text = text.slice(again + 1); // a progress bar wrote it over
  const out = [];
  const put = (s) => { if (s) out.push(look(exposed(s), state)); };
  let cut = '';
  if (text.length > longest) {
    cut = ` … ${(text.length - longest).toLocaleString('en')} more characters`;
    text = text.slice(0, longest);
  }
  let from = 0;
  for (const m of text.matchAll(sequences)) {
    put(text.slice(from, m.index));
    from = m.index + m[0].length;
    if (m[2] === 'm') select(m[1], state);
  }
  put(text.slice(from));
  if (cut) out.push(el('span', { class: 'faint', text: cut }));
  return out;
}

function look(text, s) {
  const names = [s.colour >= 0 && s.colour < 7 && 'c' + s.colour, s.bold && 'bold', s.faint && 'faint', s.under && 'under', s.inverse && 'inverse'].filter(Boolean);
  return names.length ? el('span', { class: names.join(' '), text }) : text;
}

// select is "select graphic rendition". A colour of many becomes the nearest of eight, which
// can be read on light and on dark; backgrounds are left out.
function select(params, s) {
  const list = (params || '0').split(/[;:]/).map(Number);
  for (let i = 0; i < list.length; i++) {
    const p = list[i];
    if (p === 0) for (const name of Object.keys(s)) delete s[name];
    else if (p === 1) s.bold = true;
    else if (p === 2) s.faint = true;
    else if (p === 4) s.under = true;
    else if (p === 7) s.inverse = true;
    else if (p === 22) s.bold = s.faint = false;
    else if (p === 24) s.under = false;
    else if (p === 27) s.inverse = false;
    else if (p === 39) s.colour = -1;
    else if (p >= 30 && p <= 37) s.colour = p - 30;
    else if (p >= 90 && p <= 97) s.colour = p - 90;
    else if (p === 38 || p === 48) {
      const rgb = list[i + 1] === 5 ? cube(list[i + 2]) : list.slice(i + 2, i + 5);
      i += list[i + 1] === 5 ? 2 : 4;
      if (p === 38) s.colour = nearest(rgb);
    }
  }
}

// cube gives the colour of a number among 256.
function cube(n) {
  if (n < 16) return [n & 1, n >> 1 & 1, n >> 2 & 1].map((b) => b * 255);
  if (n >= 232) return [n, n, n].map((g) => (g - 232) * 10 + 8);
  return [36, 6, 1].map((d) => Math.floor((n - 16) / d) % 6 * 51);
}

function nearest(rgb) {
  const [low, high] = [Math.min(...rgb), Math.max(...rgb)];
  if (high - low < 40) return high < 96 ? 0 : 7;
  return rgb.reduce((sum, v, i) => sum | (v * 2 > high + low ? 1 << i : 0), 0);
}

function lineAt(at) {
  let low = 0;
  let high = now.starts.length;
  while (high - low > 1) {
    const mid = low + high >> 1;
    if (now.starts[mid] <= at) low = mid;
    else high = mid;
  }
  return low;
}

function find() {
  const word = $('output-word').value;
  now.hits = [];
  now.hit = -1;
  if (word) {
    const all = new RegExp(word.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'), 'gi');
    for (let m = all.exec(now.text); m && now.hits.length < most; m = all.exec(now.text)) now.hits.push(m.index);
  }
  if (now.hits.length) {
    const top = now.starts[Math.min(now.starts.length - 1, Math.floor(place().y / now.row))];
    now.hit = now.hits.findIndex((at) => at >= top);
    if (now.hit < 0) now.hit = now.hits.length - 1;
  }
  step(0);
}

function step(by) {
  const n = now.hits.length;
  if (n) {
    now.hit = (now.hit + by + n) % n;
    to(lineAt(now.hits[now.hit]));
  } else {
    draw();
  }
  const total = n === most ? most.toLocaleString('en') + ' or more' : n.toLocaleString('en');
  $('output-count').textContent = n ? `${(now.hit + 1).toLocaleString('en')} of ${total}` : $('output-word').value ? 'No match' : '';
}
