// One conversation: its messages, its stream, and what the bot is doing.

import { $, el, when, copy, announce, elapsed, steady, tick } from './dom.js';
import api from './api.js';
import { file, keep, news, renderCard, showLast } from './card.js';
import { showOutput, saveOutput, hideOutput } from './output.js';
import { say } from './sentences.js';

const tail = 14; // lines of a running command's output

export class Talk {
  constructor(onChange) {
    this.onChange = onChange;
    this.onAsk = () => {}; // a card waits that did not before
    this.id = null;
    this.shown = new Map(); // seq -> {message, node}
    this.lives = new Map(); // progress key -> node
    this.source = null;
    this.tries = 0;
    this.round = 0; // of opening: what answers late is for an older one
    this.scroll = $('scroll');
    this.scroll.addEventListener('scroll', () => { if (this.atEnd() && !this.gap) $('jump').hidden = true; }, { passive: true });
    $('jump').addEventListener('click', () => {
      if (this.gap) this.onLatest();
      else this.toEnd(true);
    });
    $('earlier').addEventListener('click', () => this.earlier());
    $('later').addEventListener('click', () => this.later());
    this.near = new Set(); // of the two buttons, those in view
    const near = new IntersectionObserver((all) => {
      for (const e of all) this.near[e.isIntersecting ? 'add' : 'delete'](e.target.id);
      this.pull();
    }, { root: this.scroll });
    near.observe($('earlier'));
    near.observe($('later'));
    // What grows under the last line must not push it out of sight.
    new ResizeObserver(() => { if (this.sticky && this.id) this.toEnd(); }).observe($('log'));
    this.sticky = true;
    this.scroll.addEventListener('scroll', () => { this.sticky = this.atEnd() || Math.abs(this.scroll.scrollTop - this.target()) < 8; }, { passive: true });
    new ResizeObserver(() => { if (this.sticky && this.id) this.toEnd(); }).observe(this.scroll);
    setInterval(tick, 1000);
  }

  close() {
    this.round++;
    this.ready = false; // to fetch what is scrolled to
    this.gap = false; // later messages are not here yet, and the stream waits for them
    hideOutput();
    clearTimeout(this.retry);
    clearTimeout(this.quiet);
    clearTimeout(this.saying);
    this.source?.close();
    this.source = null;
    this.id = null;
    this.shown.clear();
    this.lives.clear();
    $('log').replaceChildren();
    $('live').replaceChildren();
    $('earlier').hidden = true;
    $('later').hidden = true;
    $('jump').hidden = true;
    banner('');
  }

  // open shows a conversation: its end, or the message at.
  async open(id, at = 0) {
    this.close();
    this.id = id;
    const round = this.round;
    const log = $('log');
    // History is not news. Screen readers look at the page a little later than it
    // changes, so the log stays busy for a while.
    log.setAttribute('aria-busy', 'true');
    const page = await api.read(id, at ? { around: at } : {});
    if (round !== this.round) return null;
    for (const m of page.messages) this.put(m);
    $('earlier').hidden = !page.more;
    if (at) this.point(at);
    else this.toEnd();
    this.quiet = setTimeout(() => log.removeAttribute('aria-busy'), 1000);
    this.reach(page);
    setTimeout(() => { if (round === this.round) { this.ready = true; this.pull(); } }, 300); // the page is laid out
    return page.thread;
  }

  // reach begins the stream once there is nothing between what is shown and what comes.
  reach(page) {
    this.gap = page.later;
    $('later').hidden = !this.gap;
    $('jump').hidden = !this.gap;
    $('jump-text').textContent = this.gap ? say.toLatest : say.newMessages;
    if (!this.gap) this.stream(page.rev);
  }

  // pull fetches what somebody has scrolled to.
  pull() {
    for (const side of this.near) if (this.ready && !$(side).hidden) this[side]();
  }

  // point goes to a message and sets it apart. It reports whether it is there.
  point(seq) {
    const node = this.shown.get(seq)?.node;
    for (const n of document.querySelectorAll('#log .pointed')) n.classList.remove('pointed');
    if (!node) return false;
    this.sticky = false;
    node.classList.add('pointed');
    node.setAttribute('tabindex', '-1');
    node.focus({ preventScroll: true });
    node.scrollIntoView({ block: node.offsetHeight > this.scroll.clientHeight ? 'start' : 'center', behavior: 'instant' });
    return true;
  }

  // newest is the seq of the last message that is shown; 0 where later ones are missing.
  get newest() { return this.gap || !this.shown.size ? 0 : Math.max(...this.shown.keys()); }

  earlier() { return this.fetch('before', () => Math.min(...this.shown.keys()), (page) => { $('earlier').hidden = !page.more; }); }

  later() { return this.fetch('after', () => Math.max(...this.shown.keys()), (page) => this.reach(page)); }

  // fetch shows more messages, and what a person looks at stays where it is.
  async fetch(side, from, then) {
    if (this.fetching === this.round || !this.shown.size) return;
    const round = this.round;
    this.fetching = round;
    try {
      const page = await api.read(this.id, { [side]: from() });
      if (round !== this.round) return;
      this.sticky = false;
      steady(this.scroll, 'data-seq', () => {
        for (const m of page.messages) this.put(m);
        then(page);
      }, true);
      setTimeout(() => { if (round === this.round) this.pull(); }, 100); // where it is still in view
    } catch { /* the button stays */ } finally {
      if (this.fetching === round) this.fetching = 0;
    }
  }

  stream(after) {
    const round = this.round;
    const source = api.events(this.id, after);
    this.source = source;
    let rev = after;
    source.addEventListener('open', () => {
      this.tries = 0;
      if (!$('banner').hidden) announce(say.back);
      banner('');
      for (const n of document.querySelectorAll('#log .notice')) if (n.textContent === say.unreachable) n.textContent = '';
      this.onChange();
    });
    source.addEventListener('message', (e) => {
      if (round !== this.round) return;
      const m = JSON.parse(e.data);
      rev = Math.max(rev, m.rev);
      this.arrive(m);
    });
    source.addEventListener('progress', (e) => { if (round === this.round) this.progress(JSON.parse(e.data)); });
    source.addEventListener('error', () => {
      if (round !== this.round) return;
      // What the bot was doing may have ended meanwhile; it says so again.
      this.lives.clear();
      $('live').replaceChildren();
      banner(say.lost);
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
      source.close();
      this.retry = setTimeout(async () => {
        if (round !== this.round) return;
        try { await api.threads(); } catch (err) { if (err.status === 401 || err.status === 421) return; }
        if (round === this.round) this.stream(rev);
      }, Math.min(15000, 1000 * 2 ** this.tries++));
    });
  }

  arrive(m) {
    const fresh = !this.shown.has(m.seq);
    const stick = this.sticky || (fresh && m.kind === 'human' && m.from.id === this.me);
    const old = this.shown.get(m.seq)?.message;
    // Where the keyboard is, the new face gets it and is read for that.
    const here = this.shown.get(m.seq)?.node.contains(document.activeElement);
    if (m.card && !here && !(old?.rev >= m.rev)) announce(news(m.card, old?.card));
    if (stick) this.put(m);
    else steady(this.scroll, 'data-seq', () => this.put(m));
    if (m.key) this.endLive(m.key);
    if (m.card?.choose?.length) this.onAsk();
    if (stick) this.toEnd();
    else if (fresh) $('jump').hidden = false;
    this.onChange();
  }

  // put shows a message at its place, or its new version there.
  put(m) {
    const old = this.shown.get(m.seq);
    if (old && old.message.rev >= m.rev) return;
    const node = this.render(m);
    if (old) {
      node.setAttribute('aria-live', 'off'); // it was read when it came
      keep(old.node, node);
    } else {
      const later = [...this.shown.keys()].filter((s) => s > m.seq);
      const next = later.length ? this.shown.get(Math.min(...later)).node : null;
      $('log').insertBefore(node, next);
    }
    this.shown.set(m.seq, { message: m, node });
    this.group();
  }

  // group drops the repeated name above messages that follow each other.
  group() {
    let last = null;
    for (const { message: m, node } of [...this.shown.entries()].sort((a, b) => a[0] - b[0]).map((e) => e[1])) {
      const same = last && last.kind === m.kind && last.from.id === m.from.id && new Date(m.at) - new Date(last.at) < 5 * 60e3;
      node.classList.toggle('follows', Boolean(same));
      last = m;
    }
  }

  render(m) {
    const bot = m.kind === 'bot';
    const content = el('div', { class: 'content' },
      el('p', { class: 'by' }, el('bdi', { class: 'name', text: m.from.name }),
        el('a', { class: 'at', href: '#t=' + encodeURIComponent(this.id) + '&m=' + m.seq, title: say.linkTo }, when(m.at))));
    if (m.text) {
      if (bot) content.append(outputs(markdown(m.html), this.id));
      else content.append(el('p', { class: 'said', text: m.text.replace(keyboard, '$1') }));
    }
    if (m.card) content.append(renderCard(this.id, m.card, m.at));
    for (const f of m.files || []) {
      const node = file(f);
      if (f.html) node.querySelector('pre')?.replaceWith(markdown(f.html));
      content.append(node);
    }
    return el('div', { class: 'message ' + m.kind, 'data-seq': String(m.seq) }, face(m), content);
  }

  progress(p) {
    if (p.done) {
      this.endLive(p.key);
      return;
    }
    const stick = this.sticky;
    let node = this.lives.get(p.key);
    if (!node) {
      node = el('div', { class: 'doing' }, el('p', { class: 'doing-line' }, el('span', { class: 'spinner', 'aria-hidden': 'true' }), el('span', { class: 'doing-text' }), el('span', { class: 'doing-for', hidden: true }, elapsed(new Date()))),
        el('pre', { class: 'doing-tail', hidden: true }));
      this.lives.set(p.key, node);
      $('live').append(node);
    }
    const status = p.status || 'working';
    const line = status.charAt(0).toUpperCase() + status.slice(1).replace(/\.+$/, '') + '…';
    node.querySelector('.doing-for').hidden = status !== 'thinking'; // others say for how long
    const said = node.querySelector('.doing-text');
    if (said.textContent !== line) this.say(line, p.key);
    set(said, line);
    const pre = node.querySelector('.doing-tail');
    const text = (p.text || '').replace(/\s+$/, '');
    const lines = text.split('\n');
    const card = p.card && [...this.shown.values()].find((s) => s.message.key === p.card);
    const there = card && showLast(card.node, lines[lines.length - 1]);
    pre.hidden = !text || (there && lines.length === 1);
    pre.classList.toggle('prose', p.kind !== 'output');
    set(pre, lines.slice(-tail).join('\n'));
    if (stick) this.toEnd();
    this.onChange();
  }

  // say has a screen reader say what the bot does: the latest only, when it lasts,
  // and never the draft or the output that grows below it.
  say(line, key) {
    clearTimeout(this.saying);
    this.saying = setTimeout(() => { if (this.lives.has(key)) announce(line); }, 1200);
  }

  endLive(key) {
    this.lives.get(key)?.remove();
    if (this.lives.delete(key)) this.onChange();
  }

  get working() { return this.lives.size > 0; }

  get waiting() { return document.querySelector('#log .card.open') !== null; }

  atEnd() { return this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight < 60; }

  // target is how far the page scrolls by itself: to the end, but not past the
  // top of a card that waits. Nobody should meet its buttons before its text.
  target() {
    const end = this.scroll.scrollHeight - this.scroll.clientHeight;
    const open = document.querySelectorAll('#log .card.open');
    if (!open.length) return end;
    const top = open[open.length - 1].getBoundingClientRect().top - this.scroll.getBoundingClientRect().top + this.scroll.scrollTop;
    return Math.max(0, Math.min(end, top - 14));
  }

  toEnd(all = false) {
    const top = all ? this.scroll.scrollHeight : this.target();
    this.scroll.scrollTo({ top, behavior: all && !matchMedia('(prefers-reduced-motion: reduce)').matches ? 'smooth' : 'instant' });
    this.sticky = true;
    $('jump').hidden = true;
  }
}

export function banner(text) {
  const b = $('banner');
  b.hidden = !text;
  set(b, text);
}

function set(node, text) { if (node.textContent !== text) node.textContent = text; }

function face(m) {
  if (m.kind === 'bot') return el('span', { class: 'face bot', 'aria-hidden': 'true' }, el('img', { src: '/icon.svg', alt: '', width: '32', height: '32' }));
  return initial(m.from.name);
}

export function initial(name) {
  return el('span', { class: 'face human', 'aria-hidden': 'true', text: (Array.from(name)[0] || '?').toUpperCase() });
}

// keyboard is a message of attach --take, of which the terminal's own name tells nobody anything.
const keyboard = /^((?:take|give) [^:\s]+):countersign-\S+/;

const elsewhere = ' posts all of it.'; // said to chats, which have no such page

// outputs has the names of whole outputs open and save them.
function outputs(box, thread) {
  for (const code of box.querySelectorAll(':not(pre) > code')) {
    const id = /^output (out-[0-9a-z]{8})$/.exec(code.textContent)?.[1];
    if (!id) continue;
    const rest = code.nextSibling;
    if (rest?.nodeType === Node.TEXT_NODE && rest.data.startsWith(elsewhere)) rest.data = rest.data.slice(elsewhere.length);
    const save = el('button', { type: 'button', class: 'link', text: 'Download', on: { click: () => saveOutput(thread, id, save) } });
    code.replaceWith(el('button', { type: 'button', class: 'link', text: 'Show all', on: { click: () => showOutput(thread, id) } }), save);
  }
  return box;
}

// markdown takes the one kind of markup that the server makes: rendered there
// from a model's text without raw HTML.
function markdown(html) {
  const box = el('div', { class: 'md' });
  const t = document.createElement('template');
  t.innerHTML = html;
  box.append(t.content);
  for (const pre of box.querySelectorAll('pre')) {
    const text = pre.textContent;
    const button = el('button', { type: 'button', class: 'link copy', text: 'Copy', 'aria-label': say.copyBlock, on: { click: () => copy(text, button) } });
    const outer = el('div', { class: 'code-box' });
    for (const [name, value] of [['tabindex', '0'], ['role', 'group'], ['aria-label', 'Code']]) pre.setAttribute(name, value); // it may scroll
    pre.replaceWith(outer);
    outer.append(pre, button);
  }
  // Whatever a model begins with, its headings stand below "Messages" without a gap,
  // and nothing that can be reached is without a name.
  let above = 2;
  for (const h of box.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    if (!h.textContent.trim()) {
      h.remove();
      continue;
    }
    above = Math.min(Number(h.tagName[1]) + 2, above + 1, 6);
    h.setAttribute('aria-level', String(above));
  }
  for (const a of box.querySelectorAll('a')) if (!a.textContent.trim()) a.textContent = a.href;
  for (const th of box.querySelectorAll('th')) if (!th.textContent.trim()) th.replaceWith(el('td'));
  for (const table of box.querySelectorAll('table')) {
    const outer = el('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' });
    table.replaceWith(outer);
    outer.append(table);
  }
  return box;
}
