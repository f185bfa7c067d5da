// The first page: what waits, what runs, and what changed lately, in all threads.

import { $, el, inZone, when, announce, steady } from './dom.js';
import api from './api.js';
import { judgeAll, keep, renderCard, showLast, tell } from './card.js';
import { say } from './sentences.js';

const groups = [
  ['yours', 'Needs you'],
  ['running', 'Running now'],
  ['others', 'Needs others'],
  ['changes', 'Recent changes'],
];

export class Home {
  // titleOf names a conversation of the console by its id; '' where it is not known.
  constructor(titleOf, onChange) {
    this.titleOf = titleOf;
    this.onChange = onChange;
    this.has = false; // the bot tells of it
    this.waiting = 0; // cards that this person may decide
    this.known = null; // ids of those that were told
    this.cards = new Map(); // id -> { print, node }
  }

  get empty() { return !this.data || (groups.every(([key]) => !this.data[key].length) && !this.data.busy.length && !this.data.alerts.length); }

  async refresh() {
    if (!this.has) return;
    this.data = await api.home();
    this.waiting = this.data.yours.length;
    api.verdicts = new Map([...this.data.yours, ...this.data.others].map((c) => [c.id, c]));
    judgeAll();
    this.tell();
  }

  // needsOthers reports whether what waits in a thread waits for others than this person.
  needsOthers(thread) { return Boolean(this.data) && this.data.others.some((c) => c.thread === thread) && !this.data.yours.some((c) => c.thread === thread); }

  // tell has a screen reader say what has come.
  tell() {
    const now = new Set(this.data.yours.map((c) => c.id));
    if (this.known) for (const c of this.data.yours) if (!this.known.has(c.id)) announce('Needs you: ' + c.card.title + '.');
    this.known = now;
  }

  show(visible) {
    const box = $('home');
    const came = box.hidden;
    box.hidden = !visible || (this.empty && !this.data?.oncall.length);
    if (box.hidden) return;
    steady($('scroll'), 'data-card', () => this.draw(box));
    if (came) $('scroll').scrollTop = 0;
  }

  draw(box) {
    const old = this.cards;
    this.cards = new Map();
    const sections = groups.map(([key, name]) => {
      const rows = this.data[key].map((c) => this.row(c, key, old));
      if (key === 'running') rows.push(...this.data.busy.map((b) => this.line(b)));
      return rows.length ? this.section(key, name, rows) : null;
    }).filter(Boolean);
    const alerts = this.data.alerts.map((a) => this.alert(a));
    // What fires comes first, after what waits for this person.
    if (alerts.length) sections.splice(this.data.yours.length ? 1 : 0, 0, this.section('alerts', 'Firing now', alerts));
    if (this.data.oncall.length) sections.push(this.onCall());
    settle(box, sections);
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
    const print = JSON.stringify([key, face, c.thread]);
    const from = this.from(c.thread, c.network, c.at);
    const was = old.get(c.id);
    let node = was?.node;
    if (was?.print !== print) {
      node = el('div', { class: 'home-row', 'data-card': c.id }, renderCard(c.thread, { ...face, last: undefined }, c.at), from);
      if (was) keep(was.node, node);
    } else if (node.lastChild.textContent !== from.textContent) node.lastChild.replaceWith(from);
    showLast(node, last);
    this.cards.set(c.id, { print, node });
    return node;
  }

  // point goes to a card, with its headline and its buttons in view; false: it isn't there.
  point(id) {
    const row = document.querySelector(`#home:not([hidden]) [data-card="${CSS.escape(id)}"]`);
    if (!row) return false;
    const card = row.querySelector('.card') || row;
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: 'start', behavior: 'instant' });
    return true;
  }

  // showAlert has the problem that a conversation is about stand above it, as long as it goes on.
  showAlert(thread) {
    const box = $('alert');
    const all = thread && this.data ? this.data.alerts.filter((a) => a.thread === thread) : [];
    box.hidden = !all.length;
    settle(box, all.map((a) => this.alert(a, box)));
  }

  // alert is a problem that an alert told of: how bad, what, since when, its runbook and its silence.
  alert(a, box = $('home')) {
    const print = JSON.stringify([a, this.titleOf(a.thread)]);
    const was = box.querySelector(`[data-alert="${CSS.escape(a.id)}"]`);
    if (was?.dataset.print === print) return was;
    const title = a.thread && box.id === 'home' ? el('a', { href: '#t=' + encodeURIComponent(a.thread), text: a.title }) : el('span', { text: a.title });
    const act = async (what) => {
      try { await api.actInList('alerts', a.id, what); } catch (e) { tell(e.message, false); }
      await this.refresh().catch(() => {});
      this.onChange();
    };
    const [label, what] = a.silenced ? ['End silence', 'speak'] : ['Silence 1 h', 'silence'];
    return el('div', { class: 'home-row home-alert tone-' + tone(a), 'data-alert': a.id, 'data-print': print },
      el('p', { class: 'alert-title' }, a.severity && el('span', { class: 'chip risk', text: a.severity }), ' ', title),
      el('p', { class: 'home-from' }, a.silenced ? say.silenced : '', say.since, when(a.since), a.source ? ' · ' + a.source : '',
        a.runbook && ' · ', a.runbook && el('a', { href: a.runbook, target: '_blank', rel: 'noreferrer', text: say.runbook })),
      !api.readOnly && el('button', { type: 'button', class: 'button quiet', 'aria-label': `${label}: ${a.title}`, text: label, on: { click: () => act(what) } }));
  }

  onCall() {
    const text = inZone(this.data.oncall.join('; '), new Date());
    const was = document.querySelector('#home > [data-group=oncall]');
    if (was?.dataset.print === text) return was;
    return el('section', { 'data-group': 'oncall', 'data-print': text, 'aria-labelledby': 'home-oncall' }, el('h2', { id: 'home-oncall', text: 'On call' }), el('p', { text }));
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

// tone is the colour of an alert, which also says in words how bad it is.
function tone(a) {
  if (a.silenced || /^(info|low|none|p[45])$/i.test(a.severity)) return 'low';
  return /^(warn|warning|medium|p3)$/i.test(a.severity) ? 'medium' : 'high';
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
