// Keyboard. No single key approves: "a" only moves to the button.

import { $, lost } from './dom.js';
import { bring, tell } from './card.js';
import { say } from './sentences.js';

const fields = 'input:not([type=checkbox], [type=range]), textarea, select, [contenteditable], .xterm';

export function listen(page) {
  const box = $('keys-on');
  box.checked = on();
  box.addEventListener('change', () => {
    try {
      if (box.checked) localStorage.removeItem('keys');
      else localStorage.setItem('keys', 'off');
    } catch { /* no storage: for this page only, by the box itself */ }
  });
  document.addEventListener('keydown', (e) => {
    if (e.defaultPrevented || e.isComposing || e.ctrlKey || e.metaKey || e.altKey) return;
    if (document.querySelector('dialog[open]')) return;
    const at = document.activeElement;
    if (e.key === 'Escape') {
      if (page.escape()) return;
      // Out of the field, and to what can be read: the keyboard has a place always.
      if (at?.closest(fields) || lost()) $('scroll').focus();
      return;
    }
    if (!box.checked || at?.closest(fields) || e.repeat && e.key !== 'j' && e.key !== 'k') return;
    const act = actions[e.key];
    if (!act) return;
    e.preventDefault();
    act(page);
  });
}

function on() {
  try { return localStorage.getItem('keys') !== 'off'; } catch { return true; }
}

const actions = {
  '/': () => $('text').focus(),
  s: (page) => page.search(),
  '?': () => $('keys').showModal(),
  t: (page) => page.toggleTerminal(),
  j: () => step(1),
  k: () => step(-1),
  a: () => withCard((card) => {
    const yes = card.querySelector('button[data-style=approve]');
    if (!yes) tell(say.nothingToApprove, false);
    else {
      yes.focus({ preventScroll: true });
      bring(card);
    }
  }),
  d: () => withCard((card) => {
    const no = card.querySelector('button[data-style=deny]');
    if (!no) tell(say.nothingToDeny, false);
    else no.click();
  }),
};

function cards() { return [...document.querySelectorAll('#log .card.open, #home:not([hidden]) .card.open')]; }

function step(by) {
  const all = cards();
  if (!all.length) {
    tell(say.noCard);
    return;
  }
  const now = all.indexOf(document.activeElement?.closest?.('.card.open') ?? null);
  const next = now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, now + by));
  all[next].focus({ preventScroll: true });
  bring(all[next]);
}

function withCard(act) {
  const card = document.activeElement?.closest?.('.card.open');
  if (card) act(card);
  else tell(say.pickCard, false);
}
