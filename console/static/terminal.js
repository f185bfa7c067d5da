// The terminal panel: panes of the conversation, watched over a WebSocket. Keys are
// sent only for the person who has the keyboard (hands.js).

import { $, el, copy } from './dom.js';
import api from './api.js';
import { Find } from './find.js';
import { Hands } from './hands.js';
import { say } from './sentences.js';

const theme = {
  background: '#0b0e12', foreground: '#d7dce3', cursor: '#d7dce3', cursorAccent: '#0b0e12', selectionBackground: '#33507a',
  black: '#1b2027', red: '#f0716c', green: '#62c073', yellow: '#e0b354', blue: '#6aa5f8', magenta: '#c58af0', cyan: '#4fc1cf', white: '#d7dce3',
  brightBlack: '#6c7683', brightRed: '#ff938e', brightGreen: '#83d992', brightYellow: '#f3cd77', brightBlue: '#90bdff', brightMagenta: '#dbacff', brightCyan: '#79dbe6', brightWhite: '#ffffff',
};

let loading = null;

// load fetches the emulator when it is first wanted.
function load() {
  loading ||= new Promise((done, failed) => {
    allowStyles();
    const s = el('script', { src: '/vendor/xterm/xterm.js' });
    s.addEventListener('load', () => done(globalThis.Terminal));
    s.addEventListener('error', () => { loading = null; s.remove(); failed(new Error(say.noTerminalCode)); });
    document.head.append(s);
  });
  return loading;
}

// allowStyles lets the emulator style itself under "style-src 'self'". It
// writes <style> elements and style attributes, which that policy drops; the
// same rules are allowed when a script sets them as objects. So its <style>
// elements feed constructed sheets, and style attributes go through .style.
function allowStyles() {
  const make = document.createElement.bind(document);
  document.createElement = (tag, options) => {
    if (String(tag).toLowerCase() !== 'style') return make(tag, options);
    const node = make('template'); // a stand-in: even an empty <style> is refused
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    Object.defineProperty(node, 'textContent', { get: () => '', set: (css) => sheet.replaceSync(css) });
    node.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
      Element.prototype.remove.call(node);
    };
    return node;
  };
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function setAttribute(name, value) {
    if (String(name).toLowerCase() === 'style') this.style.cssText = value;
    else set.call(this, name, value);
  };
}

// make puts a terminal into a box. It only shows, but for what keys lets through.
function make(Terminal, box, scrollback = 5000, keys = () => false) {
  const term = new Terminal({
    cols: 80, rows: 24, disableStdin: true, cursorBlink: false, cursorInactiveStyle: 'outline', scrollback, theme, fontSize: 13, lineHeight: 1.15,
    fontFamily: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace',
    linkHandler: { activate: () => {} }, // links in output are not trusted
  });
  term.open(box);
  if (term.textarea) {
    term.textarea.tabIndex = -1;
    term.textarea.setAttribute('aria-hidden', 'true'); // nothing is typed here
  }
  // Where nobody types the emulator gets no keys, or it would keep Tab and Esc for itself.
  term.attachCustomKeyEventHandler(keys);
  box.addEventListener('keydown', (e) => {
    if (!term.options.disableStdin) {
      if (document.activeElement === term.textarea) e.stopPropagation(); // the page's own keys are the terminal's
      return;
    }
    const scroll = { PageUp: () => term.scrollPages(-1), PageDown: () => term.scrollPages(1), ArrowUp: () => term.scrollLines(-1), ArrowDown: () => term.scrollLines(1), Home: () => term.scrollToTop(), End: () => term.scrollToBottom() }[e.key];
    if (!scroll || e.ctrlKey || e.metaKey || e.altKey) return;
    // The box may be smaller than the terminal: what is left of it comes first.
    const { active } = term.buffer;
    if (/Up|Home/.test(e.key) ? box.scrollTop > 0 : active.viewportY >= active.baseY) return;
    e.preventDefault();
    scroll();
  });
  silence(term);
  mirror(term, box);
  sizes.changed.addEventListener('size', () => { if (term.options.disableStdin) fit(term, box); });
  return term;
}

// silence has the emulator answer no question of a program: tmux has answered it, and a second
// answer would be typed.
function silence({ parser }) {
  for (const id of [{ final: 'c' }, { prefix: '>', final: 'c' }, { prefix: '=', final: 'c' }, { final: 'n' }, { prefix: '?', final: 'n' }, { final: 't' }, { prefix: '>', final: 'q' },
    { intermediates: '$', final: 'p' }, { prefix: '?', intermediates: '$', final: 'p' }, { prefix: '?', final: 'u' }]) parser.registerCsiHandler(id, () => true);
  parser.registerCsiHandler({ prefix: '?', final: 'h' }, (p) => p.length === 1 && p[0] === 1004); // that it has the focus
  parser.registerDcsHandler({ intermediates: '$', final: 'q' }, () => true);
  for (const n of [4, 10, 11, 12, 52]) parser.registerOscHandler(n, (data) => data.includes('?'));
}

const kept = 200; // lines of a terminal that are there as text

// mirror keeps what a terminal shows as text, for screen readers and whoever
// cannot use the picture of it. It is read when somebody goes there and never
// announced; it follows once a second, and a line that stays is left alone so
// that nobody loses their place.
function mirror(term, box) {
  const text = el('div', { class: 'sr term-text', role: 'group', 'aria-label': say.terminalText });
  box.append(text);
  let timer = null;
  const write = () => {
    timer = null;
    const { active } = term.buffer;
    const lines = [];
    for (let i = Math.max(0, active.length - kept); i < active.length; i++) {
      const row = active.getLine(i);
      const said = row?.translateToString(true) ?? '';
      if (row?.isWrapped && lines.length) lines[lines.length - 1] += said;
      else lines.push(said);
    }
    while (lines.length && !lines[lines.length - 1]) lines.pop();
    lines.forEach((line, i) => {
      const at = text.children[i] || text.appendChild(el('div'));
      if (at.textContent !== line) at.textContent = line;
    });
    while (text.children.length > lines.length) text.lastChild.remove();
  };
  term.onWriteParsed(() => { timer ??= setTimeout(write, 1000); });
  term.onResize(() => { timer ??= setTimeout(write, 1000); });
  // What is not shown any more is not there as text either, at once: another
  // conversation's terminal, or one whose link has ended.
  const { reset } = term;
  term.reset = () => {
    reset.call(term);
    clearTimeout(timer);
    timer = null;
    text.replaceChildren();
  };
}

// display loads the emulator and puts a terminal without a past into a box: one
// that is reset while there is a past to scroll in doesn't follow its end.
export async function display(box, scrollback = 0) { return make(await load(), box, scrollback); }

export class Terminals {
  constructor() {
    this.thread = null;
    this.pane = null;
    this.list = [];
    this.term = null;
    this.socket = null;
    this.tries = 0;
    this.hands = new Hands(this);
    new Find(() => this.term);
    $('term-link').addEventListener('click', () => copy(location.origin + location.pathname + '#' + new URLSearchParams({ t: this.thread, p: this.pane }), $('term-link')));
    $('attach-copy').addEventListener('click', () => copy($('attach-line').textContent, $('attach-copy')));
    new ResizeObserver(() => this.fit()).observe($('screen'));
    sizes.changed.addEventListener('size', () => this.hands.size());
    $('type-less').addEventListener('click', () => larger(-1));
    $('type-more').addEventListener('click', () => larger(1));
    larger(0);
    setInterval(() => { if (this.open && document.visibilityState === 'visible') this.refresh(); }, 4000);
  }

  get open() { return !$('term').hidden; }
  get shown() { return this.list.find((p) => p.id === this.pane); }

  // show switches to a thread, and there to a pane if one is named; null empties the panel.
  async show(thread, pane = null) {
    if (thread !== this.thread || pane && pane !== this.pane) {
      this.drop();
      this.thread = thread;
      this.pane = null;
      this.list = [];
    }
    this.wanted = pane;
    await this.refresh();
  }

  hide() { this.drop(); this.pane = this.thread = null; }

  async refresh() {
    if (!this.thread) {
      this.list = [];
      this.draw();
      this.note(say.noTerminal);
      return;
    }
    const thread = this.thread;
    let panes;
    try {
      ({ panes } = await api.panes(thread));
    } catch (e) {
      this.note(e.message);
      return;
    }
    if (thread !== this.thread || !this.open) return;
    this.list = panes;
    this.draw();
    if (!panes.length) {
      this.drop();
      this.pane = null;
      this.note(say.noTerminalYet);
    } else if (!panes.some((p) => p.id === this.pane)) {
      this.pick((panes.find((p) => p.id === this.wanted) || panes[0]).id);
    }
  }

  draw() {
    const tabs = $('panes');
    const print = JSON.stringify([this.list, this.pane]);
    if (tabs.dataset.print === print) return;
    tabs.dataset.print = print;
    const focused = tabs.contains(document.activeElement);
    tabs.hidden = !this.list.length;
    tabs.replaceChildren(...this.list.map((p) => el('button', {
      type: 'button', role: 'tab', class: 'pane', id: 'pane-' + p.id, 'aria-controls': 'screen', 'aria-selected': String(p.id === this.pane),
      tabindex: p.id === this.pane || !this.pane ? '0' : '-1', title: p.session,
      on: { click: () => this.pick(p.id), keydown: (e) => this.step(e) },
    }, el('span', { text: p.name }), p.state ? el('span', { class: 'pane-state', 'data-state': p.state, text: p.state }) : null)));
    if (focused) (tabs.querySelector('[aria-selected=true]') || $('screen')).focus();
    const now = this.shown;
    this.label();
    $('attach').hidden = !now?.attach;
  }

  label() {
    $('screen').setAttribute('aria-label', 'Terminal output' + (this.shown ? ' of ' + this.shown.name : '') + (this.hands?.mine ? '' : ', read only'));
    const line = this.shown?.attach || '';
    $('attach-line').textContent = this.hands?.mine ? line.replace(' attach -r ', ' attach ') : line;
  }

  step(e) {
    const i = this.list.findIndex((p) => p.id === this.pane);
    const to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: -1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.pick(this.list.at(to % this.list.length).id);
  }

  async pick(id) {
    this.drop();
    this.pane = id;
    this.tries = 0;
    this.draw();
    this.note('Connecting…');
    let Terminal;
    try {
      Terminal = await load();
    } catch (e) {
      this.note(e.message);
      return;
    }
    if (this.pane !== id || !this.open) return;
    if (!this.term) {
      this.term = make(Terminal, $('screen'), 5000, (e) => this.hands.keys(e));
      this.term.onData((text) => this.hands.typed(text, false));
      this.term.onBinary((text) => this.hands.typed(text, true));
    }
    this.connect();
  }

  connect() {
    const socket = api.live(this.thread, this.pane);
    const { term } = this;
    socket.binaryType = 'arraybuffer';
    this.socket = socket;
    let first = true;
    socket.addEventListener('message', (e) => {
      if (socket !== this.socket) return;
      if (typeof e.data === 'string') {
        const told = JSON.parse(e.data);
        if (told.hands) this.hands.set(told.hands);
        else if (told.refused) this.note(told.refused);
        else this.resize(told.width || 80, told.height || 24);
        return;
      }
      let bytes = new Uint8Array(e.data);
      if (first) {
        first = false;
        this.tries = 0;
        term.reset();
        this.note('');
        bytes = carriage(bytes);
      }
      term.write(bytes);
    });
    socket.addEventListener('close', (e) => {
      if (socket !== this.socket) return;
      if (e.code === 1000) {
        this.note(say.terminalOver);
        return;
      }
      this.note(say.terminalLost);
      this.timer = setTimeout(() => { if (socket === this.socket) this.connect(); }, Math.min(10000, 800 * 2 ** this.tries++));
    });
  }

  send(what) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(what);
  }

  // again connects anew, for the size and all that is shown.
  again() {
    this.drop();
    this.connect();
  }

  resize(cols, rows) {
    resize(this.term, cols, rows);
    this.fit();
  }

  // fitting is the size that fills the screen at the type that this person chose.
  fitting() {
    const box = $('screen');
    const cells = box.querySelector('.xterm-screen');
    if (!this.term || !cells || !box.clientWidth) return null;
    this.term.options.fontSize = 13 * factors[sizes.step];
    return [Math.floor((box.clientWidth - 26) / (cells.clientWidth / this.term.cols)), Math.floor((box.clientHeight - 20) / (cells.clientHeight / this.term.rows))]
      .map((n, i) => clamp(n, i ? 5 : 20, i ? 200 : 500));
  }

  drop() {
    clearTimeout(this.timer);
    this.hands.clear();
    const old = this.socket;
    this.socket = null;
    old?.close();
    this.term?.reset();
  }

  note(text) {
    if ($('term-note').textContent !== text) $('term-note').textContent = text;
    $('term-note').hidden = !text;
  }

  fit() {
    if (!this.hands.writes) fit(this.term, $('screen'));
    else this.hands.size();
  }
}

// resize gives a terminal a size that somebody else chose, within reason.
export function resize(term, cols, rows) { term.resize(clamp(cols, 2, 500), clamp(rows, 2, 300)); }

// sizes remembers how much larger than what fits people want the type; then the
// box scrolls sideways.
const factors = [1, 1.25, 1.5, 2, 3, 4];
const sizes = { step: 0, changed: new EventTarget() };

function larger(by) {
  sizes.step = clamp(sizes.step + by, 0, factors.length - 1);
  $('type-less').setAttribute('aria-disabled', String(sizes.step === 0));
  $('type-more').setAttribute('aria-disabled', String(sizes.step === factors.length - 1));
  sizes.changed.dispatchEvent(new Event('size'));
}

// fit picks the largest type at which the terminal's width fits its box, as long as it can be
// read, or what people want above that. Otherwise the box scrolls sideways.
export function fit(term, box) {
  const screen = box.querySelector('.xterm-screen');
  if (!term || !screen || !box.clientWidth) return;
  const per = screen.clientWidth / term.cols / term.options.fontSize; // a cell's width by the size of the type
  const room = box.clientWidth - 26;
  const size = Math.round(clamp(Math.floor((room / term.cols / per) * 2) / 2, 11, 13.5) * factors[sizes.step] * 2) / 2;
  if (Number.isFinite(size) && size !== term.options.fontSize) term.options.fontSize = size;
}

function clamp(n, lo, hi) { return Math.max(lo, Math.min(hi, n)); }

// carriage gives a snapshot's lines the carriage return that a terminal needs.
export function carriage(bytes) {
  const out = [];
  bytes.forEach((b, i) => {
    if (b === 10 && bytes[i - 1] !== 13) out.push(13);
    out.push(b);
  });
  return new Uint8Array(out);
}
