// Cards. Everything in them is text.

import { el, exposed, icon, copy, newID, announce, lost, until, $ } from './dom.js';
import api from './api.js';
import { deciding, unsettle } from './press.js';

const warning = 'M10 3.2l7.4 13.1H2.6zM10 8v4M10 14.2h.01';

// renderCard draws a card that was posted at a time. Its level and what it waits
// for stand in words, because a colour says nothing to some people. It is silent
// in the log: [news] is what is said of it.
export function renderCard(thread, card, at) {
  const open = !card.final && card.choose?.length > 0;
  const notice = el('p', { class: 'notice' });
  const id = 'card-' + newID();
  const risk = open ? level(card) : '';
  const root = el('article', {
    class: 'card tone-' + (card.tone || 'neutral') + (open ? ' open' : ''),
    tabindex: open ? '0' : null,
    'aria-live': 'off',
    'aria-labelledby': (open ? id + '-state ' : '') + id + '-title' + (risk ? ` ${id}-risk` : ''),
  });
  root.append(el('div', { class: 'card-head' }, el('h3', { id: id + '-title', text: card.title }),
    open && el('p', { class: 'chips' }, risk && el('span', { class: 'chip risk', id: id + '-risk', text: risk }), ' ', el('span', { class: 'chip', id: id + '-state', text: waiting }))));
  for (const sentence of card.warn || []) {
    root.append(el('p', { class: 'warn' }, icon(warning), el('span', { text: sentence })));
  }
  if (card.body) root.append(el('p', { class: 'body', text: card.body }));
  if (card.code) root.append(codeBlock(card.code));
  if (card.fields?.length) {
    const list = el('dl', { class: 'fields' });
    for (const f of card.fields) list.append(el('div', {}, el('dt', { text: f.name }), value(f, open, at)));
    root.append(list);
  }
  for (const f of card.attach || []) root.append(file(f));
  if (open) root.append(buttons(thread, card, card.choose, notice));
  if (card.final && card.after?.length) root.append(buttons(thread, card, card.after, notice));
  root.append(notice);
  return root;
}

const waiting = 'Waiting for an answer';

// level is a card's risk in words. The title has the exact word; the tone is
// coarser and stands in where it has none.
function level(card) {
  const exact = /\b(LOW|MEDIUM|HIGH|CRITICAL|UNKNOWN)$/.exec(card.title)?.[1].toLowerCase();
  const word = exact || (['low', 'medium', 'high'].includes(card.tone) ? card.tone : '');
  return word ? word + ' risk' : '';
}

// value is a field's text. A time of the clock, by which an answer is wanted, is
// also said in words: the next such time after the card came.
function value(f, open, at) {
  const clock = open && f.name === 'Expires' && /^([01]\d|2[0-3]):([0-5]\d):([0-5]\d) UTC$/.exec(f.value);
  if (!clock) return el('dd', { text: f.value });
  const end = new Date(at);
  end.setUTCHours(Number(clock[1]), Number(clock[2]), Number(clock[3]), 0);
  if (end < new Date(at)) end.setUTCDate(end.getUTCDate() + 1);
  return el('dd', {}, f.value, el('span', {}, ', ', until(end)));
}

// news is what is said when a card has come, or has a new face; '' for nothing.
export function news(card, old) {
  const open = !card.final && card.choose?.length > 0;
  const votes = (c) => (c.fields || []).filter((f) => /^votes/i.test(f.name)).map((f) => f.name + ': ' + f.value).join(', ');
  if (!old || old.title !== card.title || Boolean(old.final) !== Boolean(card.final)) {
    return (open ? waiting + ': ' : '') + sentence(card.title) + (card.body && card.final ? ' ' + sentence(card.body.split('\n')[0]) : '');
  }
  return votes(card) === votes(old) ? '' : sentence(card.title) + ' ' + sentence(votes(card));
}

function sentence(s) { return /[.?!]$/.test(s) ? s : s + '.'; }

// subject is what a card asks about, for the names of its buttons: several cards
// may wait, and a button is also met without its card around it.
function subject(card) {
  const what = /^Approve (.+)\? [A-Z]+$/.exec(card.title)?.[1];
  const target = card.fields?.find((f) => f.name === 'Target')?.value;
  return what ? what + (target ? ' on ' + target : '') : '';
}

function named(button, card) {
  if (button.style === 'stop') return button.label + ' everything in this conversation';
  const what = subject(card);
  if (!what) return button.label + ': ' + card.title;
  return button.label + (/ /.test(button.label) ? ': ' : ' ') + what;
}

function buttons(thread, card, offered, notice) {
  const form = el('div', { class: 'decide' });
  const asked = offered.filter((b) => b.ask_reason);
  let reason = null;
  if (asked.length) {
    const id = 'reason-' + newID();
    reason = el('input', { id, class: 'reason', type: 'text', maxlength: '500', autocomplete: 'off', placeholder: asked.every((b) => b.style === 'deny') ? 'Optional, the bot reads it' : 'The bot reads it' });
    const name = asked.length === offered.length ? 'Reason' : 'Reason to ' + asked.map((b) => lower(b.label)).join(' or ');
    form.append(el('label', { class: 'reason-label', for: id, text: name }), reason);
  }
  const row = el('div', { class: 'choices', role: 'group', 'aria-label': 'Decide' });
  const all = offered.map((b) => {
    const press = el('button', { type: 'button', class: 'button ' + (b.style || ''), 'data-style': b.style || '', 'aria-label': named(b, card), disabled: true }, el('span', { text: b.label }));
    // Who may only look is told below why nothing can be pressed.
    if (!api.readOnly) {
      deciding(press, {
        act: () => {
          if (press.getAttribute('aria-disabled') !== 'true') decide(thread, card, b, b.ask_reason ? reason?.value.trim() : '', all, press, notice);
        },
        refused: () => tell('This button had only just appeared there. Press again if you meant it.', false),
        ready: () => { press.disabled = false; },
      });
    }
    return press;
  });
  row.append(...all);
  form.append(row);
  if (api.readOnly) {
    if (reason) reason.disabled = true;
    form.append(el('p', { class: 'may-not', text: api.readOnly }));
  }
  return form;
}

function lower(label) { return label.charAt(0).toLowerCase() + label.slice(1); }

async function decide(thread, card, button, reason, all, press, notice) {
  if (document.querySelector('dialog[open]')) return; // an answer is being given already
  if (button.confirm && !(await confirmed(button, card))) return;
  const text = button.edit ? await edited(button) : undefined;
  if (text === null) return;
  // Not disabled, which would take the keyboard away from the button.
  const shut = (yes) => all.forEach((b) => (yes ? b.setAttribute('aria-disabled', 'true') : b.removeAttribute('aria-disabled')));
  shut(true);
  press.classList.add('busy');
  notice.className = 'notice';
  notice.textContent = '';
  // The same id for this press however often it is tried; another text is
  // another press.
  if (text !== undefined) delete press.dataset.click;
  press.dataset.click ||= newID();
  try {
    const answer = await api.click(thread, press.dataset.click, button.id, reason, text);
    notice.classList.add(answer.ok ? 'ok' : 'not-ok');
    notice.textContent = answer.notice || '';
    tell(answer.notice, answer.ok);
    delete press.dataset.click;
    if (!answer.card?.final) shut(false);
  } catch (e) {
    notice.classList.add('not-ok');
    notice.textContent = e.message;
    announce(e.message);
    shut(false);
  } finally {
    press.classList.remove('busy');
  }
}

// tell says one sentence by the composer, where it covers nothing and survives
// the card's new face.
let clearing;
export function tell(text, ok = true) {
  if (!text) return;
  const line = $('told');
  line.className = 'told ' + (ok ? 'ok' : 'not-ok');
  line.textContent = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => { line.textContent = ''; }, 8000);
}

function confirmed(button, card) {
  const dialog = $('confirm');
  $('confirm-title').textContent = button.label + '?';
  $('confirm-text').textContent = button.confirm;
  $('confirm-code').hidden = !card.code;
  $('confirm-code').textContent = card.code || '';
  const yes = $('confirm-yes');
  yes.textContent = button.label;
  yes.className = 'button ' + (button.style || '');
  armed(yes, () => { yes.disabled = false; });
  yes.disabled = true;
  const answer = shown(dialog);
  $('confirm-no').focus(); // a second Enter cancels
  return answer;
}

// armed has the yes of a dialog that is about to open count as the buttons of cards do.
const ready = new Map(); // yes -> what to do when it may be pressed
function armed(yes, then) {
  if (!ready.has(yes)) deciding(yes, { ready: () => ready.get(yes)() });
  ready.set(yes, then);
  unsettle(yes);
}

// shown opens a dialog and gives whether it was left by its yes.
function shown(dialog) {
  const seq = document.activeElement?.closest('.message')?.dataset.seq;
  return new Promise((done) => {
    dialog.returnValue = 'no';
    // The event of an earlier closing may come only now, when it is open again;
    // whoever waited for that one has their answer: they left it.
    dialog.onclose = () => {
      if (dialog.open) return;
      if (lost() && seq) toCard(document.querySelector(`.message[data-seq="${seq}"]`));
      done(dialog.returnValue === 'yes');
    };
    dialog.showModal();
  });
}

// toCard gives the keyboard to a message's card, or to the message: never to a
// button, which may be another than the one that was there.
export function toCard(message) {
  const card = message?.querySelector('.card') || message;
  if (!card) return;
  if (!card.hasAttribute('tabindex')) card.tabIndex = -1;
  card.focus({ preventScroll: true });
}

// edited lets the person change a button's text; null means that they left it.
async function edited(button) {
  const dialog = $('edit');
  const field = $('edit-value');
  const yes = $('edit-yes');
  field.value = button.edit;
  // What the field made of the text is what is compared: it normalises lines.
  const before = field.value;
  let may = false;
  const check = () => { yes.disabled = !may || !field.value.trim() || field.value === before; };
  field.oninput = check;
  armed(yes, () => {
    may = true;
    check();
  });
  check();
  const answer = shown(dialog);
  field.focus();
  return (await answer) ? field.value : null;
}

// codeBlock shows text exactly. Lines are numbered when there are several, so
// that a wrapped line cannot pass for two.
export function codeBlock(text) {
  const pre = el('pre', { class: 'code' });
  const lines = text.split('\n');
  if (lines.length === 1) {
    pre.append(...words(text));
  } else {
    pre.classList.add('numbered');
    lines.forEach((line, i) => pre.append(el('span', { class: 'line' }, ...words(i < lines.length - 1 ? line + '\n' : line))));
  }
  const button = el('button', { type: 'button', class: 'link copy', text: 'Copy', 'aria-label': 'Copy this block', on: { click: () => copy(text, button) } });
  return el('div', { class: 'code-box' }, pre, button);
}

// words keeps each word in one piece, so that a line breaks between words and
// not after the hyphen of an option. Together they are the text, exactly.
function words(text) {
  if (text.length > 20000) return [text];
  return text.split(/(\s+)/).filter(Boolean).map((w) => (/^\s/.test(w) ? w : el('span', { class: 'word', text: w })));
}

export function file(f) {
  const save = el('button', { type: 'button', class: 'link', text: 'Download', 'aria-label': 'Download ' + (f.name || 'the file'), on: { click: () => download(f) } });
  const size = new Blob([content(f)]).size;
  return el('details', { class: 'file' },
    el('summary', {}, el('span', { class: 'file-name', text: f.name || 'file' }),
      el('span', { class: 'file-size', text: human(size) + (f.cut ? ', cut' : '') })),
    f.data ? null : el('pre', { class: 'code', tabindex: '0', role: 'group', 'aria-label': 'Content of ' + (f.name || 'the file'), text: exposed(f.text || '') }),
    el('p', { class: 'file-foot' }, f.cut ? 'This is not the whole file. ' : '', save));
}

// content is what a file holds: its text, or the bytes of one that is none.
function content(f) {
  return f.data ? Uint8Array.from(atob(f.data), (c) => c.charCodeAt(0)) : f.text;
}

export function download(f) {
  const at = URL.createObjectURL(new Blob([content(f)], { type: f.data ? 'application/octet-stream' : 'text/plain' }));
  const a = el('a', { href: at, download: f.name || 'file.txt' });
  a.click();
  setTimeout(() => URL.revokeObjectURL(at), 10000);
}

function human(n) {
  return n < 1024 ? n + ' B' : n < 1 << 20 ? (n / 1024).toFixed(1) + ' KiB' : (n / (1 << 20)).toFixed(1) + ' MiB';
}
