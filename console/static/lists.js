// Lists of what the bot knows: requests, terminals, targets and more.

import { $, el, inZone, when } from './dom.js';
import api from './api.js';
import { download } from './card.js';
import { say } from './sentences.js';

export class Lists {
  // start puts a line into the message field of a new conversation, or of a thread. titleOf names
  // a conversation by its id; '' where it is not known.
  constructor(start, titleOf) {
    this.start = start;
    this.titleOf = titleOf;
    this.id = null;
    this.fields = null; // what was filled in and asked
    $('listed-form').addEventListener('submit', (e) => { e.preventDefault(); this.ask(); });
    $('listed-form').addEventListener('change', () => { if (!this.button) this.ask(); });
    $('listed-save').addEventListener('click', () => this.save());
    this.timer = null;
    $('listed-find').addEventListener('submit', (e) => e.preventDefault());
    $('listed-query').addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.refresh(), 250);
    });
    // What was asked for with a button, or searched at length, is not asked again.
    setInterval(() => { if (this.id && document.visibilityState === 'visible' && !this.button && !(this.slow && $('listed-query').value)) this.refresh(); }, 10000);
  }

  // name shows the links to the lists that there are.
  name(all) {
    this.all = all || [];
    $('lists').hidden = !this.all.length;
    $('lists').open ||= matchMedia('(min-height: 700px) and (min-width: 761px)').matches;
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
    this.fields = null;
    this.button = '';
    $('listed-form').replaceChildren();
    $('listed-form').hidden = true;
    $('listed-find').hidden = true;
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
      list = await api.list(id, $('listed-query').value.trim(), this.fields);
    } catch (e) {
      if (id === this.id) $('listed-told').textContent = e.message;
      return;
    }
    if (id !== this.id) return;
    const print = JSON.stringify(list);
    if (print === this.print) return;
    this.print = print;
    $('listed-about').textContent = list.about || '';
    this.form(list);
    const asked = !list.ask || this.fields;
    $('listed-told').textContent = list.note || (list.rows.length ? list.more ? say.listMore(list.rows.length) : '' : asked ? say.listEmpty : '');
    $('listed-find').hidden = list.ask ? !list.rows.length : false;
    this.bars(list.bars || []);
    this.table(list);
  }

  // form shows what can be asked of a list; what somebody has begun to fill in stays.
  form(list) {
    const box = $('listed-form');
    const fields = list.fields || [];
    this.button = list.ask || '';
    this.slow = Boolean(list.slow);
    box.hidden = !fields.length && !list.ask;
    if (box.children.length || box.hidden) return;
    box.replaceChildren(...fields.map((f) => {
      const input = f.choices
        ? el('select', { name: f.name }, ...f.choices.map((c) => el('option', { value: c, text: c })))
        : el(f.long ? 'textarea' : 'input', { name: f.name, placeholder: f.hint || null, rows: f.long ? '5' : null, autocomplete: 'off', spellcheck: 'false', autocapitalize: 'none' });
      if (f.value) input.value = f.value;
      return el('label', { class: f.long ? 'wide' : null }, el('span', { text: f.label }), input);
    }), ...(list.ask ? [el('button', { type: 'submit', class: 'button', text: list.ask })] : []));
  }

  async ask() {
    this.fields = Object.fromEntries(new FormData($('listed-form')));
    this.print = '';
    await this.refresh();
  }

  // save keeps the rows as a file: more of them than the page shows.
  async save() {
    const { id } = this;
    try {
      const list = await api.list(id, $('listed-query').value.trim(), this.fields, true);
      const lines = [list.columns, ...list.rows.map((r) => r.cells.map((c) => c.at || c.text || ''))];
      download({ name: id + '.csv', text: lines.map((l) => l.map(csv).join(',')).join('\r\n') + '\r\n' });
    } catch (e) {
      $('listed-told').textContent = e.message;
    }
  }

  async act(row, act) {
    const { id } = this;
    try {
      await api.actInList(id, row, act);
    } catch (e) {
      if (id === this.id) $('listed-told').textContent = e.message;
      return;
    }
    await this.refresh();
  }

  table(list) {
    if (!list.rows.length) {
      $('listed-rows').replaceChildren();
      return;
    }
    const acts = list.rows.some((r) => r.say || r.acts);
    const head = el('tr', {}, ...list.columns.map((c) => el('th', { scope: 'col', text: c })), acts && el('th', { scope: 'col' }, el('span', { class: 'sr', text: 'What you can do' })));
    const body = list.rows.map((r) => el('tr', {}, ...r.cells.map((c, i) => el(i ? 'td' : 'th', { scope: i ? null : 'row', 'data-label': list.columns[i], 'data-tone': c.tone || null }, this.cell(c, r, list, i))),
      acts && el('td', {}, r.say && this.pressed(r.do, r, () => this.start(r.say, r.thread)), ...(r.acts || []).map((a) => this.pressed(a.text, r, () => this.act(r.id, a.id))))));
    const table = el('table', { class: 'listed-table' }, el('caption', { class: 'sr', text: list.title }), el('thead', {}, head), el('tbody', {}, ...body));
    const at = document.activeElement?.closest('#listed-rows') ? [...$('listed-rows').querySelectorAll('a, button')].indexOf(document.activeElement) : -1;
    $('listed-rows').replaceChildren(table);
    if (at >= 0) $('listed-rows').querySelectorAll('a, button')[at]?.focus({ preventScroll: true });
  }

  pressed(text, row, click) {
    const what = row.cells.find((c) => c.text)?.text || '';
    return el('button', { type: 'button', class: 'button quiet', 'aria-label': text + ' ' + what, text, on: { click } });
  }

  cell(c, row, list, i) {
    if (c.at) return when(c.at);
    const text = c.code && c.text ? el('code', { text: c.text }) : (c.text && c.text === row.thread && (this.titleOf(c.text) || say.openConversation)) || inZone(c.text, new Date()) || '';
    // The first text of a row leads to its conversation, or to its place in a recording.
    const first = list.rows.length && row.cells.findIndex((x) => !x.at) === i;
    if (!row.thread || !first) return text;
    const to = new URLSearchParams({ t: row.thread, ...(row.recording && { r: row.recording, at: String(row.moment || 0) }) });
    return el('a', { href: '#' + to }, text);
  }

  // bars draws amounts; the table says them, too.
  bars(all) {
    const most = Math.max(...all.map((b) => b.value), 0);
    $('listed-bars').hidden = $('listed-range').hidden = !most;
    if (!most) return;
    $('listed-bars').replaceChildren(...all.map((b) => {
      const bar = el('span', { class: 'listed-bar', title: b.name + ': ' + b.text });
      bar.style.height = Math.max(2, Math.round((b.value / most) * 100)) + '%';
      return bar;
    }));
    $('listed-range').textContent = all.length > 1 ? `${all[0].name} to ${all.at(-1).name}, at most ${all.find((b) => b.value === most).text}` : '';
  }
}

// csv writes a value (RFC 4180). What a spreadsheet would calculate stays a text.
function csv(value) {
  const text = /^[=+\-@\t\r]/.test(value) ? "'" + value : value;
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}
