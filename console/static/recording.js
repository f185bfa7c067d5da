// Recordings of terminals: a list below the terminal, and a player for one of
// them. What a recording holds goes into the emulator and into text, and
// nowhere else.

import { $, el, when } from './dom.js';
import api from './api.js';
import { download } from './card.js';
import { display, resize, fit } from './terminal.js';
import { say } from './sentences.js';

const longest = 2; // seconds without anything to see that are played
const batch = 64 << 10; // characters that are given to the emulator at once

export class Recordings {
  constructor() {
    this.has = false;
    this.thread = null;
    this.list = [];
    this.open = null; // the id of the one that is played
    this.cast = null;
    this.term = null;
    this.at = 0; // where playing is, in seconds without long gaps
    this.next = 0; // the first event that isn't on the screen
    this.speed = 1;
    this.running = false;
    $('player-close').addEventListener('click', () => this.close());
    $('panes').addEventListener('click', () => this.close());
    $('player-play').addEventListener('click', () => this.toggle());
    $('player-seek').addEventListener('input', () => this.seek(Number($('player-seek').value)));
    $('player-speed').addEventListener('click', (e) => { if (e.target.dataset.speed) this.pace(Number(e.target.dataset.speed)); });
    $('recordings').addEventListener('toggle', () => this.refresh());
    new ResizeObserver(() => fit(this.term, $('player-screen'))).observe($('player-screen'));
    setInterval(() => { if (this.shown && document.visibilityState === 'visible') this.refresh(); }, 10000);
  }

  get shown() { return this.has && !$('term').hidden; }

  get playing() { return this.open !== null; }

  // show lists a thread's recordings, and plays one of them from a moment on if it is named.
  async show(thread, id = null, at = 0) {
    if (thread !== this.thread) {
      this.close();
      this.thread = thread;
      this.list = [];
      this.draw();
    }
    await this.refresh();
    const named = id && this.thread === thread && this.list.find((r) => r.id === id);
    if (!named) return;
    $('recordings').open = true;
    await this.pick(named, at);
  }

  hide() { this.close(); }

  async refresh() {
    const { thread } = this;
    if (!this.has || !thread) return;
    let recordings;
    try {
      ({ recordings } = await api.recordings(thread));
    } catch {
      return; // the list stays as it is
    }
    if (thread !== this.thread) return;
    this.list = recordings;
    this.draw();
  }

  draw() {
    const box = $('recordings');
    box.hidden = !this.list.length;
    const print = JSON.stringify([this.list, this.open]);
    if (box.dataset.print === print) return;
    box.dataset.print = print;
    const list = $('recordings-list');
    const focused = [...list.querySelectorAll('button')].indexOf(document.activeElement);
    $('recordings-count').textContent = String(this.list.length);
    list.replaceChildren(...this.list.map((r) => el('li', {}, el('button', {
      type: 'button', class: 'recording', title: r.session, 'aria-current': r.id === this.open ? 'true' : null, on: { click: () => this.pick(r) },
    },
    el('span', { class: 'recording-name', text: r.pane }),
    el('span', { class: 'recording-meta' }, when(r.started), ` · ${clock(r.duration)} · ${size(r.bytes)}`)))));
    if (focused >= 0) list.querySelectorAll('button')[focused]?.focus();
  }

  // pick fetches a recording and plays it, from so many seconds after its beginning on.
  async pick(r, from = 0) {
    this.stop();
    this.open = r.id;
    this.cast = null;
    $('player').hidden = false;
    $('live-view').hidden = true;
    $('player-name').textContent = r.session + ' · ' + r.pane;
    $('player-save').onclick = () => this.save(this.thread, r.id);
    $('player-marks').replaceChildren();
    $('player-marks').hidden = true;
    $('player-ticks').replaceChildren();
    this.enable(false);
    this.draw();
    this.note('Loading…');
    try {
      const cast = await parse(await api.recording(this.thread, r.id));
      if (this.open !== r.id) return;
      this.term ||= await display($('player-screen'));
      if (this.open !== r.id) return;
      this.cast = cast;
    } catch (e) {
      if (this.open === r.id) this.note(e.message);
      return;
    }
    this.note('');
    this.enable(true);
    this.drawMarks();
    if ($('recordings-list').contains(document.activeElement)) $('player-play').focus();
    this.at = this.cast.played(from);
    this.next = Infinity; // the screen shows something else
    this.begin();
  }

  // save keeps a recording as a file.
  async save(thread, id) {
    try {
      download({ name: id + '.cast', text: await api.recording(thread, id) });
    } catch (e) {
      this.note(e.message);
    }
  }

  close() {
    if (this.open === null) return;
    const focused = $('player').contains(document.activeElement);
    this.stop();
    this.open = null;
    this.cast = null;
    $('player').hidden = true;
    $('live-view').hidden = false;
    this.draw();
    if (focused) $('recordings').querySelector('summary').focus();
  }

  enable(on) {
    $('player-play').disabled = !on;
    $('player-seek').disabled = !on;
    $('player-seek').max = String(on ? this.cast.length : 0);
    this.drawTime();
  }

  drawMarks() {
    const { marks, length } = this.cast;
    $('player-ticks').replaceChildren(...marks.map((m) => {
      const tick = el('span');
      tick.style.left = (length ? 100 * m.at / length : 0) + '%';
      return tick;
    }));
    $('player-marks').replaceChildren(...marks.map((m) => el('li', {}, el('button', { type: 'button', on: { click: () => this.seek(m.at) } },
      el('span', { class: 'mark-time', text: clock(m.at) }), el('span', { class: 'mark-text', text: m.text })))));
    $('player-marks').hidden = !marks.length;
  }

  drawTime() {
    const length = this.cast ? this.cast.length : 0;
    const at = this.cast ? this.at : 0;
    const text = clock(at) + ' / ' + clock(length);
    $('player-seek').value = String(at);
    if ($('player-seek').getAttribute('aria-valuetext') !== text) $('player-seek').setAttribute('aria-valuetext', text);
    if ($('player-time').textContent === text && !this.cast) return;
    $('player-time').textContent = text;
    if (!this.cast) return;
    let last = -1;
    this.cast.marks.forEach((m, i) => { if (m.at <= at) last = i; });
    [...$('player-marks').querySelectorAll('button')].forEach((b, i) => {
      if (i === last) b.setAttribute('aria-current', 'true');
      else b.removeAttribute('aria-current');
    });
  }

  note(text) {
    $('player-note').textContent = text;
    $('player-note').hidden = !text;
  }

  pace(speed) {
    this.speed = speed;
    for (const b of $('player-speed').children) b.setAttribute('aria-pressed', String(Number(b.dataset.speed) === speed));
  }

  toggle() {
    if (this.running) this.stop();
    else {
      if (this.at >= this.cast.length) this.at = 0;
      this.begin();
    }
  }

  begin() {
    this.running = true;
    $('player').classList.add('playing');
    $('player-play').setAttribute('aria-label', 'Pause');
    let before = performance.now();
    const step = (now) => {
      if (!this.running || !this.cast) return;
      // A tab that nobody saw for a while goes on where it was.
      this.at = Math.min(this.cast.length, this.at + Math.min(0.5, Math.max(0, now - before) / 1000) * this.speed);
      before = now;
      this.feed();
      this.drawTime();
      if (this.at >= this.cast.length) this.stop();
      else this.frame = requestAnimationFrame(step);
    };
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(step);
  }

  stop() {
    this.running = false;
    cancelAnimationFrame(this.frame);
    $('player').classList.remove('playing');
    $('player-play').setAttribute('aria-label', 'Play');
  }

  seek(at) {
    if (!this.cast) return;
    this.at = Math.max(0, Math.min(this.cast.length, at));
    this.feed();
    this.drawTime();
  }

  // feed brings the screen to where playing is. Only one runs, and it waits for
  // the emulator, so that nothing that is out of date stays in a queue.
  async feed() {
    if (this.feeding) return;
    this.feeding = true;
    try {
      while (this.cast && await this.some());
    } finally {
      this.feeding = false;
    }
  }

  async some() {
    const { cast, term } = this;
    if (this.next > cast.events.length || this.next > 0 && cast.events[this.next - 1].at > this.at) {
      this.next = 0;
      await write(term, '\x1bc'); // from the beginning, in order with what is written
      if (cast !== this.cast) return this.again();
      resize(term, cast.cols, cast.rows);
      fit(term, $('player-screen'));
    }
    let text = '';
    let i = this.next;
    for (; i < cast.events.length && cast.events[i].at <= this.at && text.length < batch; i++) {
      const e = cast.events[i];
      if (e.cols) {
        if (text) break;
        resize(term, e.cols, e.rows);
        fit(term, $('player-screen'));
      } else text += e.text;
    }
    if (i === this.next) return false;
    this.next = i;
    if (text) await write(term, text);
    return cast === this.cast || this.again();
  }

  // again: another recording was picked meanwhile.
  again() {
    this.next = Infinity;
    return true;
  }
}

function write(term, text) { return new Promise((done) => { term.write(text, done); }); }

// parse reads an asciicast v3. A last line that was cut is not there.
async function parse(text) {
  const bad = new Error(say.badRecording);
  const lines = text.split('\n');
  const cast = { cols: 80, rows: 24, events: [], marks: [], length: 0 };
  try {
    const head = JSON.parse(lines[0]);
    if (head.version !== 3) throw bad;
    cast.cols = Number(head.term.cols) || 80;
    cast.rows = Number(head.term.rows) || 24;
  } catch {
    throw bad;
  }
  let at = 0;
  let real = 0;
  const moments = [[0, 0]]; // seconds with and without long gaps
  cast.played = (seconds) => moments.findLast(([all]) => all <= seconds + 0.001)[1];
  let breath = performance.now();
  for (let i = 1; i < lines.length; i++) {
    if (!lines[i].trim() || lines[i][0] === '#') continue;
    let wait;
    let code;
    let data;
    try {
      [wait, code, data] = JSON.parse(lines[i]);
      if (!(wait >= 0) || typeof data !== 'string') throw bad;
    } catch {
      if (lines.slice(i + 1).every((l) => !l.trim())) break;
      throw bad;
    }
    at += Math.min(wait, longest);
    real += wait;
    moments.push([real, at]);
    if (code === 'o') cast.events.push({ at, text: data });
    else if (code === 'm') cast.marks.push({ at, text: data });
    else if (code === 'r') {
      const [, cols, rows] = /^(\d{1,5})x(\d{1,5})$/.exec(data) || [];
      if (cols) cast.events.push({ at, cols: Number(cols), rows: Number(rows) });
    }
    if (i % 1000 === 0 && performance.now() - breath > 30) {
      await new Promise((go) => { setTimeout(go); }); // the page stays alive
      breath = performance.now();
    }
  }
  cast.length = at;
  return cast;
}

// clock writes seconds as 1:02:03 or 2:03.
function clock(seconds) {
  const s = Math.floor(seconds);
  const two = (n) => String(n).padStart(2, '0');
  const h = Math.floor(s / 3600);
  return (h ? h + ':' + two(Math.floor(s / 60) % 60) : Math.floor(s / 60)) + ':' + two(s % 60);
}

function size(bytes) {
  if (bytes < 1024) return bytes + ' B';
  if (bytes < 1024 * 1024) return (bytes / 1024).toFixed(bytes < 10240 ? 1 : 0) + ' KiB';
  return (bytes / 1024 / 1024).toFixed(1) + ' MiB';
}
