// Who has a terminal's keyboard, and typing into it for who has it.

import { $, announce, newID } from './dom.js';
import api from './api.js';
import { say } from './sentences.js';

const encoder = new TextEncoder();
const patience = 5000; // until it is said that nothing has changed

export class Hands {
  constructor(terminals) {
    this.terminals = terminals;
    this.asked = false;
    this.here = false; // they took it, asked for it or typed in this window
    this.clear();
    $('hands-take').addEventListener('click', () => this.press());
    $('hands-pass').addEventListener('click', () => this.word('give', ' to ' + this.now.asks[0]));
    // Keys that a phone's keyboard hasn't. A press must not take the focus, or that keyboard closes.
    $('touch-keys').addEventListener('pointerdown', (e) => e.preventDefault());
    $('touch-keys').addEventListener('click', (e) => { if (e.target.dataset.key) this.touch(e.target.dataset.key); });
    let settle = null;
    new ResizeObserver(() => {
      clearTimeout(settle);
      settle = setTimeout(() => this.size(), 300);
    }).observe($('screen'));
  }

  get mine() { return Boolean(this.now?.mine); }
  // writes means that they use it in this window, and not in a tmux of their own.
  get writes() { return this.mine && this.here; }

  // clear forgets who has it: another terminal is shown, or none.
  clear() {
    this.now = null;
    this.told = '';
    this.waits(false);
    $('hands').hidden = true;
    this.type(false);
  }

  // set takes what the bot says of this terminal.
  set(now) {
    const was = this.now;
    this.now = now;
    if (!was || was.holder !== now.holder) {
      this.asked = false;
      this.waits(false);
    }
    this.asked = this.asked && !now.mine;
    const others = now.here.filter((name) => name !== now.holder && name !== api.me);
    const who = now.mine ? (matchMedia('(hover: none)').matches ? say.youTypeTouch : say.youType) : now.holder ? say.otherTypes(now.holder) : say.botTypes;
    $('hands-text').textContent = [who, now.asks.length ? say.asksFor(now.asks) : say.watch(others)].filter(Boolean).join(' ');
    $('hands').hidden = false;
    $('hands-take').textContent = now.mine ? say.giveBack : !now.holder ? say.takeControl : this.asked ? say.askNoMore : say.askFor;
    $('hands-take').hidden = Boolean(api.readOnly);
    $('hands-pass').hidden = !now.mine || !now.asks.length;
    $('hands-pass').textContent = now.asks.length ? say.passTo(now.asks[0]) : '';
    if (was && (was.holder !== now.holder || was.asks.length < now.asks.length)) announce($('hands-text').textContent);
    this.type(now.mine);
    if (this.writes && !was?.mine) {
      this.terminals.term?.focus();
      this.size(true);
    }
    if (!this.writes && now.width) this.terminals.resize(now.width, now.height);
    else if (!now.mine && was?.width) this.terminals.again(); // it has the bot's size again
  }

  press() {
    this.here = !this.now.mine;
    if (this.now.mine) this.word('give');
    else if (!this.now.holder) this.word('take');
    else {
      this.asked = !this.asked;
      this.terminals.send(JSON.stringify({ ask: this.asked }));
      $('hands-take').textContent = this.asked ? say.askNoMore : say.askFor;
    }
  }

  // word presses what hands the keyboard over. The bot's answer tells everybody in the conversation.
  async word(verb, rest = '') {
    const pane = this.terminals.shown;
    if (!pane) return;
    this.waits(true);
    try {
      const answer = await api.click(this.terminals.thread, newID(), verb + ':' + pane.keyboard + rest);
      if (!answer.ok) throw new Error(answer.notice);
    } catch (e) {
      this.waits(false);
      this.terminals.note(e.message);
    }
  }

  waits(on) {
    clearTimeout(this.timer);
    for (const id of ['hands-take', 'hands-pass']) $(id).classList.toggle('busy', on);
    if (on) this.timer = setTimeout(() => { this.waits(false); this.terminals.note(say.notTaken); }, patience);
    else if ($('term-note').textContent === say.notTaken) this.terminals.note('');
  }

  // type lets keys through to the terminal, or nothing.
  type(on) {
    const { term } = this.terminals;
    $('touch-keys').hidden = !on;
    $('screen').classList.toggle('typed', on);
    this.terminals.label();
    if (!term) return;
    const was = !term.options.disableStdin;
    term.options.disableStdin = !on;
    term.options.cursorBlink = on;
    if (!term.textarea) return;
    term.textarea.tabIndex = on ? 0 : -1;
    $('screen').tabIndex = on ? -1 : 0;
    if (on) {
      term.textarea.removeAttribute('aria-hidden');
      term.textarea.setAttribute('aria-label', say.terminalInput);
    } else term.textarea.setAttribute('aria-hidden', 'true');
    if (was && !on && document.activeElement === term.textarea) $('screen').focus();
  }

  // keys are what the emulator may have: all but what leaves it.
  keys(e) {
    if (!this.mine) return false;
    if (e.type === 'keydown' && e.key === 'F6' && e.shiftKey) {
      e.preventDefault();
      $('hands-take').focus();
      return false;
    }
    if (e.type === 'keydown' && e.ctrlKey && e.shiftKey && e.key === 'C') {
      e.preventDefault();
      navigator.clipboard?.writeText(this.terminals.term.getSelection()).catch(() => {});
      return false;
    }
    return true;
  }

  // touch types a key of the row below the terminal. Ctrl is for the next character.
  touch(key) {
    const arrow = { up: 'A', down: 'B', right: 'C', left: 'D' }[key];
    this.control(key === 'ctrl' && !this.ctrl);
    if (key === 'ctrl') return;
    this.typed(arrow ? '\x1b' + (this.terminals.term.modes.applicationCursorKeysMode ? 'O' : '[') + arrow : { esc: '\x1b', tab: '\t', c: '\x03' }[key], false);
  }

  control(on) {
    this.ctrl = on;
    document.querySelector('#touch-keys [data-key=ctrl]').setAttribute('aria-pressed', String(on));
  }

  // typed sends what the emulator made of the keys.
  typed(text, binary) {
    if (!this.mine) return;
    if (this.ctrl && /^[@-~]$/.test(text)) text = String.fromCharCode(text.toUpperCase().charCodeAt(0) & 31);
    if (this.ctrl) this.control(false);
    if (!this.here) {
      this.here = true;
      this.size(true);
    }
    const bytes = binary ? Uint8Array.from(text, (c) => c.charCodeAt(0)) : encoder.encode(text);
    for (let i = 0; i < bytes.length; i += 65536) this.terminals.send(bytes.subarray(i, i + 65536));
  }

  // size gives the terminal the size of this screen, while this person types here.
  size(first = false) {
    if (!this.writes || !this.terminals.open) return;
    const size = this.terminals.fitting();
    const print = String(size);
    if (!size || !first && print === this.told) return;
    this.told = print;
    this.terminals.resize(...size);
    this.terminals.send(JSON.stringify({ size }));
  }
}
