// The page of a watch link: the terminals of one session, read only, for
// somebody who is not signed in. The token stays in the address, so that a
// reload works; it goes to the server in the body or as a protocol's name, which
// nobody logs.

import { $, el } from './dom.js';
import { display, resize, fit, carriage } from './terminal.js';
import { say } from './sentences.js';

const token = new URLSearchParams(location.hash.slice(1)).get('token') || '';
const again = 20e3; // milliseconds between two looks at the list
let pane = null;
let term = null;
let socket = null;
let tries = 0;
let over = false;

class Failure extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
}

async function look() {
  let answer;
  try {
    answer = await fetch('/api/watch', {
      method: 'POST', credentials: 'omit', cache: 'no-store', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token }),
    });
  } catch {
    throw new Failure(0, say.unreachableRetry);
  }
  const data = await answer.json().catch(() => null);
  if (!answer.ok) throw new Failure(answer.status, data?.error || say.status(answer.status));
  return data;
}

async function refresh() {
  if (over) return;
  let data;
  try {
    data = await look();
  } catch (e) {
    if (e.status === 404) end(e.message);
    else note(e.message);
    return;
  }
  const until = new Date(data.until);
  const day = until.toDateString() === new Date().toDateString() ? '' : until.toLocaleDateString([], { day: 'numeric', month: 'short' }) + ', ';
  set($('watch-session'), data.session);
  set($('watch-who'), `${data.by} lets you watch until ${day}${until.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })}.`);
  if (!data.panes.length) {
    drop();
    pane = null;
    note(say.noSharedTerminal);
  } else if (!data.panes.some((p) => p.id === pane)) pick(data.panes[0].id);
  draw(data.panes);
}

function draw(panes) {
  const bar = $('watch-panes');
  bar.hidden = panes.length < 2;
  const print = JSON.stringify([panes, pane]);
  if (bar.dataset.print === print) return;
  bar.dataset.print = print;
  const focused = bar.contains(document.activeElement);
  bar.replaceChildren(...panes.map((p) => el('button', {
    type: 'button', class: 'pane', 'aria-pressed': String(p.id === pane), on: { click: () => { pick(p.id); draw(panes); } },
  }, el('span', { text: p.name }), p.state ? el('span', { class: 'pane-state', 'data-state': p.state, text: p.state }) : null)));
  if (focused) bar.querySelector('[aria-pressed=true]')?.focus();
}

async function pick(id) {
  drop();
  pane = id;
  tries = 0;
  note('Connecting…');
  try {
    term ||= await display($('watch-screen'), 5000);
  } catch (e) {
    note(e.message);
    return;
  }
  if (pane === id && !over) connect();
}

function connect() {
  const at = new URL('/api/watch/live', location.href);
  at.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  at.search = new URLSearchParams({ pane, size: '1' }).toString();
  at.hash = '';
  const mine = new WebSocket(at, ['countersign-watch', 'token.' + token]);
  mine.binaryType = 'arraybuffer';
  socket = mine;
  let first = true;
  mine.addEventListener('message', (e) => {
    if (mine !== socket) return;
    if (typeof e.data === 'string') {
      const size = JSON.parse(e.data);
      resize(term, size.width || 80, size.height || 24);
      fit(term, $('watch-screen'));
      return;
    }
    let bytes = new Uint8Array(e.data);
    if (first) {
      first = false;
      tries = 0;
      term.reset();
      note('');
      bytes = carriage(bytes);
    }
    term.write(bytes);
  });
  mine.addEventListener('close', (e) => {
    if (mine !== socket) return;
    socket = null;
    if (e.code === 1000) {
      note(say.terminalOver);
      return;
    }
    if (e.code === 1008) {
      end(say.linkOver);
      return;
    }
    note(say.terminalLost);
    const id = pane;
    setTimeout(async () => {
      await refresh(); // whether the link still lives
      if (!over && pane === id && !socket) connect();
    }, Math.min(15000, 1000 * 2 ** tries++));
  });
}

function drop() {
  const old = socket;
  socket = null;
  old?.close();
  term?.reset();
}

// end clears the screen: what the link does not show any more is not left there.
function end(sentence) {
  over = true;
  drop();
  $('watch-panes').hidden = true;
  $('watch-screen').hidden = true;
  set($('watch-who'), '');
  set($('watch-session'), say.sharedTerminal);
  note(sentence);
}

function note(text) {
  set($('watch-note'), text);
  $('watch-note').hidden = !text;
}

function set(node, text) { if (node.textContent !== text) node.textContent = text; }

window.addEventListener('hashchange', () => location.reload()); // another link
new ResizeObserver(() => fit(term, $('watch-screen'))).observe($('watch-screen'));
setInterval(() => { if (document.visibilityState === 'visible') refresh(); }, again);
refresh();
