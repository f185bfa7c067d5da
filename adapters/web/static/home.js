// The first page: what waits, what runs, and what changed lately, in all threads.

import { $, el, when, announce } from './dom.js';
import api from './api.js';
import { renderCard, showLast } from './card.js';
import { say } from './sentences.js';

const groups = [
  ['yours', 'Needs you'],
  ['running', 'Running now'],
  ['others', 'Needs others'],
  ['changes', 'Recent changes'],
];

export class Home {
  // titleOf names a conversation of the console by its id; '' where it is not known.
  constructor(titleOf) {
    this.titleOf = titleOf;
    this.has = false; // the bot tells of it
    this.waiting = 0; // cards that this person may decide
    this.known = null; // ids of those that were told
    this.cards = new Map(); // id -> { print, node }
  }

  get empty() { return !this.data || (groups.every(([key]) => !this.data[key].length) && !this.data.busy.length); }

  async refresh() {
    if (!this.has) return;
    this.data = await api.home();
    this.waiting = this.data.yours.length;
    this.tell();
  }

  // tell has a screen reader say what has come.
  tell() {
    const now = new Set(this.data.yours.map((c) => c.id));
    if (this.known) for (const c of this.data.yours) if (!this.known.has(c.id)) announce('Needs you: ' + c.card.title + '.');
    this.known = now;
  }

  show(visible) {
    const box = $('home');
    const came = box.hidden;
    box.hidden = !visible || this.empty;
    if (box.hidden) return;
    const old = this.cards;
    this.cards = new Map();
    const sections = groups.map(([key, name]) => {
      const rows = this.data[key].map((c) => this.row(c, key, old));
      if (key === 'running') rows.push(...this.data.busy.map((b) => this.line(b)));
      return rows.length ? this.section(key, name, rows) : null;
    }).filter(Boolean);
    settle(box, sections);
    if (came) $('scroll').scrollTop = 0;
  }

  section(key, name, rows) {
    let node = document.querySelector(`#home > [data-group=${key}]`);
    if (!node) {
      const id = 'home-' + key;
      node = el('section', { 'data-group': key, 'aria-labelledby': id }, el('h2', { id }, name, ' ', el('span', { class: 'count' })), el('div', { class: 'home-rows' }));
    }
    node.querySelector('.count').textContent = String(rows.length);
    settle(node.querySelector('.home-rows'), rows);
    return node;
  }

  // row is a card with a way to its conversation. It stays the same node while nothing
  // changes: somebody may be about to press its button.
  row(c, key, old) {
    const { last = '', ...face } = c.card;
    const print = JSON.stringify([key, face, c.thread, this.titleOf(c.thread)]);
    const was = old.get(c.id);
    const node = was?.print === print ? was.node : el('div', { class: 'home-row', 'data-card': c.id }, renderCard(c.thread, { ...face, last: undefined }, c.at), this.from(c.thread, c.network, c.at));
    showLast(node, last);
    this.cards.set(c.id, { print, node });
    return node;
  }

  // point goes to a card, with its buttons in view; false: it isn't there.
  point(id) {
    const row = document.querySelector(`#home:not([hidden]) [data-card="${CSS.escape(id)}"]`);
    if (!row) return false;
    const card = row.querySelector('.card') || row;
    card.focus({ preventScroll: true });
    (row.querySelector('.card button') || row).scrollIntoView({ block: 'center' });
    row.scrollIntoView({ block: 'nearest' });
    return true;
  }

  line(b) {
    const doing = b.doing.charAt(0).toUpperCase() + b.doing.slice(1) + '…';
    const print = JSON.stringify([b, this.titleOf(b.thread)]);
    const was = document.querySelector(`#home [data-busy="${CSS.escape(b.thread)}"]`);
    if (was?.dataset.print === print) return was;
    return el('div', { class: 'home-row home-busy', 'data-busy': b.thread, 'data-print': print },
      el('p', {}, el('span', { class: 'spinner', 'aria-hidden': 'true' }), ' ', el('span', { text: doing })), this.from(b.thread, b.network));
  }

  from(thread, network, at) {
    const place = network ? el('span', { text: 'in ' + network }) : el('a', { href: '#t=' + encodeURIComponent(thread), text: this.titleOf(thread) || say.openConversation });
    return el('p', { class: 'home-from' }, place, at && ' · ', at && when(at));
  }
}

// settle gives a box these children, and touches nothing where it has them already.
function settle(box, nodes) {
  const there = [...box.children];
  if (there.length === nodes.length && there.every((n, i) => n === nodes[i])) return;
  const at = box.contains(document.activeElement) ? document.activeElement : null;
  for (const n of there) if (!nodes.includes(n)) n.remove();
  nodes.forEach((n, i) => { if (box.children[i] !== n) box.insertBefore(n, box.children[i] || null); });
  if (at?.isConnected && document.activeElement !== at) at.focus({ preventScroll: true });
}
