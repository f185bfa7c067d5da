// The list of conversations: what a person looks for, and what is new to them.

import { $, el, when } from './dom.js';
import api from './api.js';
import { say } from './sentences.js';

const states = { waiting: say.needsAnswer, others: say.needsOthers, working: 'Working', idle: '' };

export class List {
  // needsOthers reports whether what waits in a thread waits for somebody else.
  constructor(onChange, needsOthers) {
    this.onChange = onChange;
    this.needsOthers = needsOthers;
    this.first = []; // the newest, or what was found
    this.older = []; // what was asked for below them
    this.next = ''; // where those go on; '' at the end
    this.round = 0; // of questions: what answers late is for an older one
    this.query = '';
    this.filter = '';
    $('query').addEventListener('input', () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.ask(), 200); });
    $('find').addEventListener('submit', (e) => { e.preventDefault(); this.ask(); });
    $('filter').addEventListener('change', () => this.ask());
    $('older').addEventListener('click', () => this.more());
    new IntersectionObserver((all) => { if (all.some((e) => e.isIntersecting)) this.more(); }, { root: $('side-list') }).observe($('older'));
  }

  get threads() { return [...this.first, ...this.older]; }

  get asks() { return Boolean(this.query || this.filter); }

  find(id) { return this.threads.find((t) => t.id === id); }

  // ask starts over with what the fields say.
  ask() {
    clearTimeout(this.typing);
    const query = $('query').value.trim();
    const filter = $('filter').value;
    if (query === this.query && filter === this.filter) return Promise.resolve();
    this.query = query;
    this.filter = filter;
    this.older = [];
    return this.refresh(true);
  }

  // refresh brings the newest up to date. What was searched for stays as it was found.
  async refresh(asked = false) {
    if (this.query && !asked) return;
    const round = asked ? ++this.round : this.round;
    const page = await api.threads(this.query, this.filter);
    if (round !== this.round) return;
    this.first = page.threads;
    const ids = new Set(this.first.map((t) => t.id));
    this.older = this.older.filter((t) => !ids.has(t.id));
    if (!this.older.length) this.next = page.next || '';
    if (asked) $('list-told').textContent = this.query ? say.foundCount(this.first.length, Boolean(page.next)) : '';
    this.onChange();
  }

  async more() {
    if (!this.next || this.fetching) return;
    const round = this.round;
    this.fetching = true;
    try {
      const page = await api.threads(this.query, this.filter, this.next);
      if (round !== this.round) return;
      const ids = new Set(this.threads.map((t) => t.id));
      this.older.push(...page.threads.filter((t) => !ids.has(t.id)));
      this.next = page.next || '';
      this.onChange();
    } catch { /* the button stays */ } finally {
      this.fetching = false;
    }
  }

  // merge puts a conversation that was just opened or begun where it can be seen.
  merge(thread) {
    for (const part of [this.first, this.older]) {
      const i = part.findIndex((t) => t.id === thread.id);
      if (i >= 0) {
        part[i] = { ...part[i], ...thread };
        return;
      }
    }
    if (!this.asks) this.first.unshift(thread);
  }

  draw(current) {
    const list = $('threads');
    $('older').hidden = !this.next;
    const print = JSON.stringify([this.threads, this.threads.map((t) => this.stateOf(t)), current, this.asks]);
    if (list.dataset.print === print) return;
    list.dataset.print = print;
    const focused = document.activeElement?.closest?.('#threads a')?.getAttribute('href');
    const top = $('side-list').scrollTop;
    list.replaceChildren(...this.threads.map((t) => this.row(t, current)));
    $('side-list').scrollTop = top;
    if (!this.threads.length) list.append(el('li', { class: 'none', text: this.asks ? say.noneFound : say.noConversation }));
    if (focused) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  stateOf(t) { return t.state === 'waiting' && this.needsOthers(t.id) ? 'others' : t.state; }

  row(t, current) {
    const unread = t.unread && t.id !== current;
    const now = this.stateOf(t);
    const state = states[now] ? el('span', { class: 'state', 'data-state': now, text: states[now] }) : null;
    const marks = [t.pinned && 'Pinned', t.archived && 'Archived'].filter(Boolean).join(', ');
    return el('li', {}, el('a', {
      href: '#t=' + encodeURIComponent(t.id) + (t.found ? '&m=' + t.found.seq : ''), class: 'thread' + (unread ? ' unread' : ''), 'aria-current': t.id === current ? 'page' : null,
    },
    el('span', { class: 'thread-title' }, unread ? el('span', { class: 'sr', text: 'Unread: ' }) : null, t.title?.replaceAll('`', '') || 'Untitled'),
    t.found ? el('span', { class: 'thread-found', text: t.found.text }) : null,
    el('span', { class: 'thread-meta' }, el('span', {}, when(t.at), marks ? ' · ' + marks : ''), state)));
  }
}
