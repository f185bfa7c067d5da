// Lists of what the bot knows: requests, terminals, targets and more.

import { $, el, when } from './dom.js';
import api from './api.js';
import { say } from './sentences.js';

export class Lists {
  // start puts a line into the message field of a new conversation, or of a thread.
  constructor(start) {
    this.start = start;
    this.id = null;
    this.timer = null;
    $('listed-find').addEventListener('submit', (e) => e.preventDefault());
    $('listed-query').addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.refresh(), 250);
    });
    setInterval(() => { if (this.id && document.visibilityState === 'visible') this.refresh(); }, 10000);
  }

  // name shows the links to the lists that there are.
  name(all) {
    this.all = all || [];
    $('lists').hidden = !this.all.length;
    $('lists-links').replaceChildren(...this.all.map((l) => el('li', {}, el('a', { href: '#l=' + l.id, 'data-list': l.id, text: l.title }))));
  }

  title(id) { return this.all.find((l) => l.id === id)?.title || ''; }

  // show shows a list, or none.
  async show(id) {
    for (const a of $('lists-links').querySelectorAll('a')) {
      if (a.dataset.list === id) a.setAttribute('aria-current', 'page');
      else a.removeAttribute('aria-current');
    }
    if (id === this.id) return;
    this.id = id;
    this.print = '';
    $('listed').hidden = !id;
    if (id) $('lists').open = true;
    $('listed-query').value = '';
    $('listed-rows').replaceChildren();
    $('listed-bars').replaceChildren();
    $('listed-about').textContent = '';
    $('listed-told').textContent = '';
    if (id) await this.refresh();
  }

  async refresh() {
    const { id } = this;
    if (!id) return;
    let list;
    try {
      list = await api.list(id, $('listed-query').value.trim());
    } catch (e) {
      if (id === this.id) $('listed-told').textContent = e.message;
      return;
    }
    if (id !== this.id) return;
    const print = JSON.stringify(list);
    if (print === this.print) return;
    this.print = print;
    $('listed-about').textContent = list.about || '';
    $('listed-told').textContent = list.rows.length ? list.more ? say.listMore(list.rows.length) : '' : say.listEmpty;
    this.bars(list.bars || []);
    this.table(list);
  }

  table(list) {
    if (!list.rows.length) {
      $('listed-rows').replaceChildren();
      return;
    }
    const acts = list.rows.some((r) => r.say);
    const head = el('tr', {}, ...list.columns.map((c) => el('th', { scope: 'col', text: c })), acts && el('th', { scope: 'col' }, el('span', { class: 'sr', text: 'What you can do' })));
    const body = list.rows.map((r) => el('tr', {}, ...r.cells.map((c, i) => el(i ? 'td' : 'th', { scope: i ? null : 'row', 'data-label': list.columns[i], 'data-tone': c.tone || null }, this.cell(c, r, list, i))),
      acts && el('td', {}, r.say && el('button', { type: 'button', class: 'button quiet', 'aria-label': r.do + ' ' + (r.cells[0].text || ''), text: r.do, on: { click: () => this.start(r.say, r.thread) } }))));
    const table = el('table', { class: 'listed-table' }, el('caption', { class: 'sr', text: list.title }), el('thead', {}, head), el('tbody', {}, ...body));
    const at = document.activeElement?.closest('#listed-rows') ? [...$('listed-rows').querySelectorAll('a, button')].indexOf(document.activeElement) : -1;
    $('listed-rows').replaceChildren(table);
    if (at >= 0) $('listed-rows').querySelectorAll('a, button')[at]?.focus({ preventScroll: true });
  }

  cell(c, row, list, i) {
    if (c.at) return when(c.at);
    const text = c.code ? el('code', { text: c.text }) : c.text || '–';
    // The first text of a row leads to its conversation.
    const first = list.rows.length && row.cells.findIndex((x) => !x.at) === i;
    return row.thread && first ? el('a', { href: '#t=' + encodeURIComponent(row.thread) }, text) : text;
  }

  // bars draws amounts; the table says them, too.
  bars(all) {
    const most = Math.max(...all.map((b) => b.value), 0);
    $('listed-bars').hidden = !most;
    if (!most) return;
    $('listed-bars').replaceChildren(...all.map((b) => {
      const bar = el('span', { class: 'listed-bar', title: b.name + ': ' + b.text });
      bar.style.height = Math.max(2, Math.round((b.value / most) * 100)) + '%';
      return bar;
    }));
  }
}
