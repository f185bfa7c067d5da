// Cards. Everything in them is text.

import { el, exposed, icon, copy, inZone, newID, announce, lost, prose, until, elapsed, $ } from './dom.js';
import api from './api.js';
import { deciding, onTop, unsettle } from './press.js';
import { signature, signThere } from './passkeys.js';
import { say } from './sentences.js';

const warning = 'M10 3.2l7.4 13.1H2.6zM10 8v4M10 14.2h.01';

// renderCard draws a card that was posted at a time. Risk and environment stand in words,
// because a colour says nothing to some people. It is silent in the log: [news] is what is
// said of it.
export function renderCard(thread, card, at) {
  const open = !card.final && card.choose?.length > 0;
  const notice = el('p', { class: 'notice' });
  const id = 'card-' + newID();
  const risk = !card.final && (open || card.footer) ? level(card) : '';
  const root = el('article', {
    class: 'card tone-' + (card.tone || 'neutral') + (open ? ' open' : '') + (isLine(card) ? ' line' : ''),
    tabindex: open ? '0' : null,
    'aria-live': 'off',
    'aria-labelledby': (open ? id + '-state ' : '') + id + '-title' + (card.env ? ` ${id}-env` : '') + (risk ? ` ${id}-risk` : ''),
  });
  const chips = [
    card.env && el('span', { class: 'chip env' + (card.production ? ' production' : ''), id: id + '-env', text: card.env }),
    risk && el('span', { class: 'chip risk', id: id + '-risk', text: risk }),
  ].filter(Boolean);
  root.append(el('div', { class: 'card-head' },
    open && el('span', { class: 'offscreen', id: id + '-state', text: say.waiting }),
    el('h3', { id: id + '-title', text: (marks[card.tone] || '') + card.title }),
    chips.length > 0 && el('p', { class: 'chips' }, ...chips.flatMap((c) => [c, ' '])),
    open && card.code && el('code', { class: 'first-line', 'aria-hidden': 'true', text: firstLine(card.code) })));
  const details = detailsOf(card, id);
  if (isLine(card)) {
    root.append(el('p', { class: 'result' }, card.code && el('code', { text: firstLine(card.code) }), card.code && card.body && ' · ', ...prose(inZone(card.body, at)),
      card.since && el('span', {}, ' for ', elapsed(new Date(card.since)))), ...warnings(card, at), el('p', { class: 'last', hidden: !card.last, text: card.last }));
  } else {
    const code = card.code ? codeOf(card, open) : null;
    // The buttons stay on the screen while a long card scrolls, within this part: they never
    // come before the headline and the first line of the command.
    const rest = el('div', { class: 'card-rest' + (code ? ' coded' : '') });
    root.append(rest);
    if (code) rest.append(code.node);
    if (card.context) rest.append(el('p', { class: 'context', text: card.context }));
    if (card.preview?.length) rest.append(el('ul', { class: 'preview' }, ...card.preview.map((l) => el('li', {}, ...prose(l)))));
    rest.append(...warnings(card, at));
    if (card.body) rest.append(el('p', { class: 'body' }, ...prose(inZone(card.body, at))));
    if (card.why) rest.append(el('p', { class: 'why' }, 'Why: ', el('q', { text: card.why })));
    if (card.fields?.length) rest.append(list(card.fields, (f) => el('dd', { text: inZone(f.value, at) })));
    for (const f of card.attach || []) rest.append(file(f));
    if (card.footer) rest.append(footer(card, at));
    if (open) rest.append(buttons(thread, card, card.choose, notice, details, code));
  }
  if (isLine(card)) for (const f of card.attach || []) root.append(file(f));
  const after = api.readOnly ? [] : card.after || [];
  if (card.final && (after.length || details)) root.append(buttons(thread, card, after, notice, details));
  if (details) root.append(details.node);
  root.append(notice);
  if (open && !api.readOnly) {
    root.dataset.request = card.choose.map((b) => /^approve:([^.]+)/.exec(b.id)?.[1]).find(Boolean) || '';
    judge(root);
  }
  return root;
}

// judge shows on an open card what its viewer may do with it, as the bot has told [api.verdicts]: a
// button that can only refuse isn't there, and the card says why.
function judge(card) {
  const verdict = api.verdicts.get(card.dataset.request);
  if (!verdict) return;
  for (const b of card.querySelectorAll('button[data-style=approve]')) b.hidden = b.dataset.verb === 'glass' ? !verdict.glass : Boolean(verdict.not);
  const line = card.querySelector('.may-not');
  line.replaceChildren(...prose(inZone(verdict.not, new Date())));
}

export function judgeAll() { document.querySelectorAll('.card.open[data-request]').forEach(judge); }

// follow has the headline of a card that scrolls bring the first line of the command along.
function follow(card) {
  const line = card.querySelector('.first-line');
  const code = line && codeShown(card);
  if (code) card.classList.toggle('scrolled', code.getBoundingClientRect().top + 10 < card.querySelector('.card-head').getBoundingClientRect().bottom);
}

function codeShown(card) { return [...card.querySelectorAll('.card-rest .code-box > pre')].find((p) => p.checkVisibility()); }

$('scroll').addEventListener('scroll', () => document.querySelectorAll('.card.open').forEach(follow), { passive: true });

// readable reports whether somebody can read what a card asks for: its headline and the first line
// of its command are on the screen.
function readable(card) {
  if (!card) return false;
  follow(card);
  const code = codeShown(card);
  const line = card.classList.contains('scrolled') ? card.querySelector('.first-line') : code;
  const title = card.querySelector('h3');
  const [a, b] = [title.getBoundingClientRect(), line?.getBoundingClientRect()];
  return onTop(title, a.x + 2, a.y + 9) && onTop(title, a.x + 2, a.bottom - 9) && (!line || onTop(line, b.x + 10, b.y + (line === code ? 20 : 10)));
}

// bring shows a card from its headline on.
export function bring(card) {
  const tall = card.offsetHeight > $('scroll').clientHeight;
  card.scrollIntoView({ block: tall ? 'start' : 'nearest', behavior: 'instant' });
}

function warnings(card, at) {
  return (card.warn || []).map((sentence) => el('p', { class: 'warn' }, icon(warning), el('span', {}, ...prose(inZone(sentence, at)))));
}

// showLast shows the last line that what runs has printed, on its card.
export function showLast(node, text) {
  const line = node.querySelector('.last');
  if (!line) return false;
  line.hidden = !text;
  line.textContent = text;
  return true;
}

const marks = { good: '✓ ', bad: '✗ ' };

// isLine tells whether a card is drawn in one line: it was decided, and its details have
// the rest.
function isLine(card) { return Boolean(card.final && card.details?.length); }

function firstLine(code) {
  const lines = code.trim().split('\n');
  return lines[0] + (lines.length > 1 ? ' …' : '');
}

// footer says who asked and who may decide, and how long there is.
function footer(card, at) {
  const line = el('p', { class: 'footer', text: inZone(card.footer, at) });
  if (card.expires && !card.final) line.append(el('span', {}, ' · expires ', until(new Date(card.expires))));
  return line;
}

function list(fields, shownValue) {
  return el('dl', { class: 'fields' }, ...fields.map((f) => el('div', {}, el('dt', { text: f.name }), shownValue(f))));
}

// detailsOf is what is bound or was judged, behind a button; null where a card has none.
function detailsOf(card, id) {
  if (!card.details?.length) return null;
  const node = el('div', { class: 'details', id: id + '-details', hidden: true });
  if (isLine(card) && card.code) node.append(codeBlock(card.code));
  node.append(list(card.details, (f) => el('dd', { text: f.value })));
  return { node, toggle: toggle('Details', node) };
}

// toggle is a button that shows and hides a part of the card.
function toggle(label, node) {
  const button = el('button', { type: 'button', class: 'link', 'aria-expanded': String(!node.hidden), 'aria-controls': node.id, text: label, on: { click: () => {
    node.hidden = !node.hidden;
    button.setAttribute('aria-expanded', String(!node.hidden));
  } } });
  return button;
}

const maxLines = 12; // of a command that an open card shows whole
const maxText = 1200; // characters
const partText = 300; // of the head and of the tail of a longer one

// codeOf shows what would run. Only the middle of a long one is behind a button,
// because the harm is often at the end. unread
// says that nobody pressed it yet.
function codeOf(card, open) {
  const lines = card.code.split('\n');
  if (!open || (lines.length <= maxLines && card.code.length <= maxText)) return { node: codeBlock(card.code), unread: () => false, reveal: () => {} };
  const whole = codeBlock(card.code);
  whole.hidden = true;
  const numbers = numbersOf(lines);
  const [head, tail] = lines.length > maxLines ? [lines.slice(0, 6).join('\n'), lines.slice(-4).join('\n')] : [card.code, card.code];
  const end = cutStart(tail, partText);
  const short = el('div', {}, codeBlock(cut(head, partText), 1, numbers), codeBlock(end, lines.length - end.split('\n').length + 1, numbers));
  const button = el('button', { type: 'button', class: 'link show-all', text: `Show all ${lines.length > 1 ? lines.length + ' lines' : card.code.length + ' characters'}`, on: { click: () => reveal() } });
  const node = el('div', { class: 'long' }, short, whole, button);
  function reveal() {
    short.hidden = button.hidden = true;
    whole.hidden = false;
  }
  return { node, unread: () => whole.hidden, reveal };
}

function cut(s, n) { return s.length > n ? s.slice(0, n) + '…' : s; }
function cutStart(s, n) { return s.length > n ? '…' + s.slice(-n) : s; }

// level is a card's risk in words.
function level(card) {
  if (card.risk) return card.risk;
  return ['low', 'medium', 'high'].includes(card.tone) ? card.tone + ' risk' : '';
}

// news is what is said when a card has come, or has a new face; '' for nothing.
export function news(card, old) {
  const open = !card.final && card.choose?.length > 0;
  const votes = (c) => (c.details || []).filter((f) => /^votes/i.test(f.name)).map((f) => f.name + ': ' + f.value).join(', ');
  if (!old || old.title !== card.title || (card.final && old.body !== card.body) || Boolean(old.final) !== Boolean(card.final)) {
    const said = [card.title, card.env, open && level(card)].filter(Boolean).join(', ');
    return (open ? say.waiting + ': ' : '') + sentence(said) + (card.body && card.final ? ' ' + [card.body.split('\n')[0], ...(card.warn || [])].map(sentence).join(' ') : '');
  }
  return votes(card) === votes(old) ? '' : sentence(card.title) + ' ' + sentence(votes(card));
}

function sentence(s) { return /[.?!]$/.test(s) ? s : s + '.'; }

// named is a button's name with what it is about: several cards may wait, and a button is
// also met without its card around it.
function named(button, card) {
  if (button.style === 'stop') return button.label + ' everything in this conversation';
  return button.label + ': ' + card.title;
}

// buttons are the choices of a card: approve and deny, the details, and the rest behind
// "More".
function buttons(thread, card, offered, notice, details, code) {
  const form = el('div', { class: 'decide' });
  const main = card.final ? offered : offered.filter((b) => !b.more);
  const rest = offered.filter((b) => !main.includes(b));
  const asked = offered.filter((b) => b.ask_reason);
  let reason = null;
  const more = el('div', { class: 'more', id: 'more-' + newID() });
  if (asked.length) {
    const id = 'reason-' + newID();
    reason = el('input', { id, class: 'reason', type: 'text', maxlength: '500', autocomplete: 'off', placeholder: offered.some((b) => b.write) ? null : asked.every((b) => b.style === 'deny') ? say.reasonOptional : say.reasonRead });
    const write = offered.find((b) => b.write)?.write;
    const name = write ? say.write(write) : asked.length === offered.length ? 'Reason' : 'Reason to ' + asked.map((b) => lower(b.label)).join(' or ');
    more.append(el('label', { class: 'reason-label', for: id, text: name }), reason);
  }
  const all = new Map(offered.map((b) => {
    const press = el('button', { type: 'button', class: look(b, card), 'data-style': b.style || '', 'data-verb': b.id.split(':')[0], 'aria-label': named(b, card), disabled: true }, el('span', { text: b.label }));
    // Who may only look is told below why nothing can be pressed.
    if (!api.readOnly) {
      deciding(press, {
        act: () => {
          if (press.getAttribute('aria-disabled') === 'true') return;
          if (b.style === 'approve' && code?.unread()) {
            code.reveal();
            tell(say.readFirst, false);
            return;
          }
          decide(thread, card, b, b.ask_reason ? reason?.value.trim() : '', [...all.values()], press, notice);
        },
        refused: () => tell(say.tooQuick, null),
        ready: () => { press.disabled = false; },
        ...(b.style === 'approve' && {
          readable: () => readable(press.closest('.card')),
          unread: () => {
            bring(press.closest('.card'));
            tell(say.readFirst, false);
          },
        }),
      });
    }
    return [b, press];
  }));
  const row = el('div', { class: 'choices', role: 'group', 'aria-label': 'Decide' }, ...main.map((b) => all.get(b)));
  const grant = rest.find((b) => b.id.startsWith('grant:'));
  if (grant) more.append(el('p', { class: 'context', text: say.grantMeans(grant.label) }));
  if (rest.length) more.append(el('div', { class: 'choices', role: 'group', 'aria-label': 'More choices' }, ...rest.map((b) => all.get(b))));
  const behind = more.childElementCount > 0 && card.footer && !card.final;
  if (behind) more.hidden = !main.some((b) => b.style === 'approve' && b.ask_reason);
  const links = [details?.toggle, behind && toggle('More', more)].filter(Boolean);
  if (links.length) row.append(el('span', { class: 'links' }, ...links));
  if (!behind) form.append(more);
  form.append(row);
  if (behind) form.append(more);
  if (api.readOnly && reason) reason.disabled = true;
  if (!card.final) form.prepend(el('p', { class: 'may-not', text: api.readOnly }));
  return form;
}

// look is the class of a button. To approve what is of high risk is as red here as on other networks.
function look(b, card) { return 'button ' + (b.style || '') + (b.id.startsWith('approve:') && card.tone === 'high' ? ' high' : ''); }

function lower(label) { return label.charAt(0).toLowerCase() + label.slice(1); }

async function decide(thread, card, button, reason, all, press, notice) {
  if (document.querySelector('dialog[open]')) return; // an answer is being given already
  if (button.style === 'approve' && !card.final && !reasoned(button, reason, press)) return;
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
    const signs = { ticket: button.ticket };
    let answer = button.sign ? await api.click(thread, newID(), 'sign:' + button.id, reason, undefined, signs) : null;
    if (answer?.sign?.link) {
      shut(false);
      return signThere(answer.sign, { thread, button: button.id, reason, ticket: button.ticket });
    }
    if (answer?.sign) signs.signed = await signature(answer.sign);
    if (!answer || answer.sign) answer = await api.click(thread, press.dataset.click, button.id, reason, text, signs);
    // What was decided is said by the composer, since the card gets another face. A refusal stays on it.
    if (!answer.ok && notice.isConnected) {
      notice.classList.add('not-ok');
      notice.replaceChildren(...prose(inZone(answer.notice, new Date())));
      announce(answer.notice);
    } else tell(answer.notice, answer.ok, button.id.startsWith('undo:') && el('button', { type: 'button', class: 'link', text: say.goToCard, on: { click: () => toAsked(thread) } }));
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

// reasoned reports whether what has to be written is there. If not, the field is shown.
function reasoned(button, reason, press) {
  if (button.write ? reason === button.write : reason || !button.ask_reason) return true;
  const card = press.closest('.card');
  card.querySelector('[aria-controls^=more-][aria-expanded=false]')?.click();
  card.querySelector('.reason')?.focus();
  tell(button.write ? say.write(button.write) : say.reasonFirst, false);
  return false;
}

// tell says one sentence by the composer, where it covers nothing and survives
// the card's new face. ok is null for what neither went well nor failed.
let clearing;
export function tell(text, ok = true, way = '') {
  if (!text) return;
  const line = $('told');
  line.className = 'told ' + (ok === null ? '' : ok ? 'ok' : 'not-ok');
  line.replaceChildren(...prose(inZone(text, new Date())));
  if (way) line.append(' ', way);
  clearTimeout(clearing);
  clearing = setTimeout(() => { line.textContent = ''; }, 8000);
}

// toAsked goes to the card that waits in a conversation, or to those on the first page.
function toAsked(thread) {
  if (thread.startsWith('web:')) location.hash = '#t=' + encodeURIComponent(thread);
  const card = [...document.querySelectorAll('#log .card.open, #home .card.open')].filter((c) => c.checkVisibility()).at(-1);
  if (!card) return; // the conversation begins at it
  bring(card);
  card.focus({ preventScroll: true });
}

function confirmed(button, card) {
  const dialog = $('confirm');
  $('confirm-title').textContent = button.label + ': ' + card.title;
  $('confirm-text').replaceChildren(...prose(button.confirm));
  $('confirm-code').hidden = !card.code;
  $('confirm-code').textContent = card.code || '';
  const yes = $('confirm-yes');
  yes.textContent = button.label;
  yes.className = look(button, card);
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

// keep puts the new face of what has a card in place of the old one without losing what a
// person is doing in it.
export function keep(old, node) {
  const at = old.contains(document.activeElement) ? document.activeElement : null;
  const typed = old.querySelector('.reason')?.value;
  const from = [old.querySelector('.reason')?.selectionStart, old.querySelector('.reason')?.selectionEnd];
  const opened = [...old.querySelectorAll('details')].map((d) => d.open);
  const expanded = [...old.querySelectorAll('[aria-controls][aria-expanded=true]')].map((b) => b.textContent);
  old.replaceWith(node);
  for (const b of node.querySelectorAll('[aria-controls][aria-expanded=false]')) if (expanded.includes(b.textContent)) b.click();
  const reason = node.querySelector('.reason');
  if (reason && typed) reason.value = typed;
  node.querySelectorAll('details').forEach((d, i) => { d.open = Boolean(opened[i]); });
  if (!at) return;
  if (reason && at.classList.contains('reason')) {
    reason.focus({ preventScroll: true });
    reason.setSelectionRange(from[0], from[1]);
  } else toCard(node);
}

// stepsOf are the steps in the text of a plan: each begins with its number, and its other lines are indented.
function stepsOf(text) {
  const steps = [];
  for (const line of text.trimEnd().split('\n')) {
    if (line.startsWith(steps.length + 1 + '. ')) steps.push(line);
    else steps[steps.length - 1] += '\n' + line;
  }
  return steps;
}

// edited lets the person change a button's text, or drop steps of a plan: then it is the numbers of those that stay.
// null means that they left it.
async function edited(button) {
  const whole = button.label === 'Edit';
  $('edit-title').textContent = whole ? say.editTitle : button.label;
  $('edit-text').textContent = whole ? say.editing : say.dropping;
  const dialog = $('edit');
  const field = $('edit-value');
  const yes = $('edit-yes');
  yes.textContent = whole ? say.useEdit : button.label;
  const boxes = whole ? [] : stepsOf(button.edit).map((_, i) => el('input', { type: 'checkbox', checked: true, value: i + 1, on: { change: () => check() } }));
  $('edit-steps').replaceChildren(...boxes.map((box, i) => el('label', {}, box, el('span', { text: stepsOf(button.edit)[i] }))));
  field.hidden = !whole;
  field.value = button.edit;
  const value = () => (whole ? field.value : boxes.filter((b) => b.checked).map((b) => b.value).join(' '));
  // What the field made of the text is what is compared: it normalises lines.
  const before = value();
  let may = false;
  const check = () => { yes.disabled = !may || !value().trim() || value() === before; };
  field.oninput = check;
  armed(yes, () => {
    may = true;
    check();
  });
  check();
  const answer = shown(dialog);
  (boxes[0] || field).focus();
  return (await answer) ? value() : null;
}

// codeBlock shows text exactly. Lines are numbered when there are several, so
// that a wrapped line cannot pass for two; first is the number of the first, and numbers are those of
// a diff's lines in its file.
export function codeBlock(text, first = 1, numbers = numbersOf(text.split('\n'))) {
  const pre = el('pre', { class: 'code' });
  const lines = text.split('\n');
  if (lines.length === 1) {
    pre.append(...words(text));
  } else {
    pre.classList.add('numbered');
    lines.forEach((line, i) => pre.append(el('span', { class: 'line' + (numbers ? sign(line) : ''), 'data-number': numbers ? numbers[first - 1 + i] : first + i }, ...words(i < lines.length - 1 ? line + '\n' : line))));
  }
  const button = el('button', { type: 'button', class: 'link copy', text: 'Copy', 'aria-label': say.copyBlock, on: { click: () => copy(text, button) } });
  return el('div', { class: 'code-box' }, pre, button);
}

// numbersOf are the numbers in the new file of a diff's lines, '' for a line that isn't there; null for another text.
function numbersOf(lines) {
  if (!lines.some((line) => /^ {0,4}@@ /.test(line))) return null;
  let next = 0;
  return lines.map((line) => {
    const begins = /^ {0,4}@@ -\S+ \+(\d+)/.exec(line);
    if (begins) next = Number(begins[1]);
    return begins || !next || sign(line) === ' removed' ? '' : next++;
  });
}

// sign is the class of a diff's line: what is added, and what goes.
function sign(line) {
  if (/^ {0,4}\+/.test(line)) return ' added';
  return /^ {0,4}-/.test(line) ? ' removed' : '';
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
    el('p', { class: 'file-foot' }, f.cut ? say.filePart : '', save));
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
