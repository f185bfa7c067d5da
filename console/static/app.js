// The page: signing in, the list, the composer, and what is on screen.

import { $, copy, newID, lost } from './dom.js';
import api from './api.js';
import { Talk, banner } from './talk.js';
import { Terminals } from './terminal.js';
import { Recordings } from './recording.js';
import { Shares } from './share.js';
import { Home } from './home.js';
import { List } from './list.js';
import { Lists } from './lists.js';
import { Notify } from './notify.js';
import { Passkeys, hasPasskeys, signInWithPasskey, takeTicket, showTicket, takeSigned, sendSigned } from './passkeys.js';
import { Sessions, Settings } from './settings.js';
import { listen } from './keys.js';
import { say } from './sentences.js';

const name = document.title;
const states = { waiting: say.needsAnswer, others: say.needsOthers, working: 'Working', idle: '' };
let talk;
let terminals;
let recordings;
let shares;
let home;
let list;
let notify;
let passkeys;
let settings;
let lists;
let opened = null; // what the conversation on screen is called and how it stands
let current = null; // thread id, null for a new conversation
let draft = { id: newID(), text: '' }; // what is being sent, by the id under which it is tried again

// A code, or the key of a session that has just begun, must not stay in the address:
// they are taken out before anything else.
function takeCode() {
  const part = new URLSearchParams(location.hash.slice(1));
  const [code, key, t, c] = ['code', 'page', 't', 'c'].map((k) => part.get(k));
  if (code !== null || key !== null) history.replaceState(null, '', location.pathname + (t ? '#t=' + encodeURIComponent(t) : c ? '#c=' + encodeURIComponent(c) : ''));
  return { code, key };
}

async function begin() {
  takeTicket();
  takeSigned();
  const { code, key } = takeCode();
  let refused = null;
  if (key) await api.adopt(key);
  if (code) {
    try { await api.login(code); } catch (e) { refused = e; }
  }
  try {
    await enter();
  } catch (e) {
    if (e.status === 401) askLogin(refused?.message || '');
    else askLogin(refused?.message || e.message);
  }
}

async function enter() {
  const me = await api.me();
  api.csrf = me.csrf;
  api.readOnly = me.role === 'viewer' ? me.why : '';
  $('app').classList.toggle('viewer', Boolean(api.readOnly));
  $('viewer-note').textContent = api.readOnly;
  $('viewer-note').hidden = !api.readOnly;
  $('login').hidden = true;
  $('app').hidden = false;
  $('me-name').textContent = me.name;
  $('me-face').textContent = (Array.from(me.name)[0] || '?').toUpperCase();
  $('term-toggle').hidden = !me.terminal;
  if (!talk) {
    talk = new Talk(changed);
    talk.onLatest = () => go(current);
    home = new Home((id) => list.find(id)?.title || '', changed);
    list = new List(changed, (id) => home.needsOthers(id));
    // What the person may do with a card that has just come, the bot's home says a moment later.
    talk.onAsk = () => { for (const ms of [0, 700]) setTimeout(() => home.refresh().then(changed).catch(() => {}), ms); };
    terminals = new Terminals();
    recordings = new Recordings();
    shares = new Shares(() => terminals.list.find((p) => p.id === terminals.pane));
    lists = new Lists(startLine, (id) => list.find(id)?.title || '');
    notify = new Notify();
    passkeys = new Passkeys();
    settings = new Settings([notify, passkeys, new Sessions()]);
    listen({ escape, search, toggleTerminal: () => { if (!$('term-toggle').hidden) toggleTerminal(); } });
    wire();
  }
  talk.me = me.user;
  api.me = me.name;
  recordings.has = me.recordings;
  home.has = me.home;
  shares.has = Boolean(me.links);
  shares.may = shares.has && !api.readOnly;
  lists.name(api.readOnly ? [] : me.lists);
  notify.begin(me.notifications);
  passkeys.begin(me.passkeys);
  takePlace();
  await Promise.all([route(), refresh()]);
  await showTicket();
  await sendSigned();
  if (me.invited && me.passkeys && !api.readOnly) await settings.show();
  showCard(); // the page can be used from here on: what is opened later must not be opened over
}

function askLogin(error) {
  talk?.close();
  terminals?.hide();
  recordings?.hide();
  shares?.hide();
  $('app').hidden = true;
  $('login').hidden = false;
  keepPlace();
  const here = new URLSearchParams(location.hash.slice(1)).get('t');
  if ($('oidc')) $('oidc').href = '/oidc/start?page' + (here ? '&t=' + encodeURIComponent(here) : ''); // and back to the conversation
  $('login-error').textContent = error;
  const passkey = $('passkey-login');
  if (passkey) passkey.hidden = !hasPasskeys;
  (passkey?.hidden === false ? passkey : $('code')).focus();
}

// Where somebody was going is kept while they sign in: a link that signs them in, or the identity
// provider, leads elsewhere.
const place = 'place';

function keepPlace() {
  if (!/^#[tcl]=/.test(location.hash)) return;
  try { sessionStorage.setItem(place, location.hash); } catch { /* no storage: it stays in the address */ }
}

function takePlace() {
  let kept = null;
  try {
    kept = sessionStorage.getItem(place);
    sessionStorage.removeItem(place);
  } catch { /* none kept */ }
  if (kept && !location.hash) history.replaceState(null, '', location.pathname + kept);
}

// What a notification is about is opened here, signed in or not yet.
navigator.serviceWorker?.addEventListener('message', (e) => { if (e.data?.card !== undefined) toCard(e.data.card); });

$('passkey-login')?.addEventListener('click', () => signIn(() => signInWithPasskey()));

// The console has another address by now: nothing here goes on.
api.onMoved = (failure) => {
  banner(failure.message);
  for (const t of document.querySelectorAll('time[data-since]')) t.removeAttribute('data-since');
};

api.onSignedOut = (failure) => askLogin(failure.message);

$('login-form').addEventListener('submit', (e) => {
  e.preventDefault();
  const pasted = $('code').value.trim();
  $('code').value = '';
  const at = pasted.indexOf('code=');
  signIn(() => api.login(at < 0 ? pasted : pasted.slice(at + 5)), $('code'));
});

async function signIn(does, field = $('passkey-login')) {
  $('login-error').textContent = '';
  try {
    await does();
    await enter();
    if (lost()) $(matchMedia('(hover: hover)').matches ? 'text' : 'scroll').focus();
  } catch (err) {
    $('login-error').textContent = err.message;
    field.focus();
  }
}

function wire() {
  window.addEventListener('hashchange', route);
  $('new').addEventListener('click', () => { go(null); if (current === null) $('text').focus(); });
  $('to-home').addEventListener('click', (e) => { e.preventDefault(); go(null); });
  $('menu').addEventListener('click', () => drawer(true));
  $('veil').addEventListener('click', () => drawer(false));
  $('side-close').addEventListener('click', () => drawer(false));
  $('logout').addEventListener('click', async () => {
    terminals?.hide(); // it asks again and again
    await notify?.leave();
    try { await api.logout(); askLogin(''); } catch (e) { complain(e); }
  });
  $('logout-all').addEventListener('click', async () => {
    terminals?.hide();
    settings?.hide();
    try { await api.logoutEverywhere(); askLogin(''); } catch (e) { complain(e); }
  });
  for (const id of ['help', 'help-too']) $(id).addEventListener('click', () => $('keys').showModal());
  $('skip').addEventListener('click', (e) => { e.preventDefault(); $('text').focus(); });
  $('term-toggle').addEventListener('click', toggleTerminal);
  $('term-close').addEventListener('click', toggleTerminal);
  $('stop').addEventListener('click', stop);
  wireAbout();
  $('composer').addEventListener('submit', (e) => { e.preventDefault(); send(); });
  let sends = false; // the key that was pressed last
  $('text').addEventListener('keydown', (e) => {
    sends = e.key === 'Enter' && !e.shiftKey && !e.isComposing;
    if (!sends) return;
    e.preventDefault();
    if (!e.repeat) send();
  });
  // Where the answer is faster than the key, the browser writes the line break all the same.
  $('text').addEventListener('beforeinput', (e) => { if (sends && e.inputType === 'insertLineBreak') e.preventDefault(); });
  $('text').addEventListener('input', () => { grow(); remember(); });
  $('examples').addEventListener('click', (e) => {
    const b = e.target.closest('button');
    if (!b) return;
    $('text').value = b.textContent;
    grow();
    remember();
    $('text').focus();
  });
  setInterval(() => { if (!$('app').hidden && current === null && document.visibilityState === 'visible') home.refresh().then(changed).catch(() => {}); }, 2000);
  setInterval(() => { if (!$('app').hidden) refresh().catch(() => {}); }, 5000);
  document.addEventListener('visibilitychange', () => { if (document.visibilityState === 'visible' && !$('app').hidden) refresh().catch(() => {}); });
}

function go(id) {
  const hash = id ? '#t=' + encodeURIComponent(id) : '';
  if (location.hash === hash) return;
  if (id) location.hash = hash;
  else {
    history.pushState(null, '', location.pathname);
    route();
  }
}

async function route() {
  if (takeTicket()) showTicket(); // a link opened in this tab
  const { code } = takeCode(); // a fresh link opened in this tab
  if (code) {
    try { await api.login(code); await enter(); } catch (e) { complain(e); }
    return;
  }
  const part = new URLSearchParams(location.hash.slice(1));
  const id = part.get('t');
  const at = Number(part.get('m')) || 0;
  const pane = part.get('p');
  drawer(false);
  complain(null);
  if (id && id === talk.id && at && talk.point(at)) return;
  current = id;
  opened = list.find(id) || null;
  recall();
  if ((pane || part.get('r')) && !terminals.open && !$('term-toggle').hidden) toggleTerminal();
  if (terminals.open) {
    terminals.show(id, pane);
    recordings.show(id, part.get('r'), Number(part.get('at')) || 0);
    shares.show(id);
  }
  const listed = !id && lists.title(part.get('l')) ? part.get('l') : null;
  lists.show(listed);
  wanted = part.get('c') || '';
  if (!id) {
    talk.close();
    changed();
    showCard();
    return;
  }
  changed();
  try {
    const thread = await talk.open(id, at);
    if (thread && current === id) {
      opened = thread;
      list.merge(thread);
      changed();
      if (at && !talk.point(at)) complain({ message: say.noMessage });
    }
  } catch (e) {
    if (e.status === 404) go(null);
    complain(e);
  }
}

// startLine puts a line into the message field, for its author to finish and send.
function startLine(line, thread) {
  if (thread) go(thread);
  else if (current !== null) go(null);
  $('text').value = line;
  grow();
  remember();
  $('text').focus();
}

// A card that somebody comes to from a notification: the first page has it, with its buttons.
let wanted = '';

function toCard(id) {
  if (location.hash === '#c=' + encodeURIComponent(id)) history.replaceState(null, '', location.pathname);
  location.hash = '#c=' + encodeURIComponent(id);
}

async function showCard() {
  if (!wanted || current !== null) return;
  const id = wanted;
  try {
    await home.refresh();
    if (wanted !== id) return;
    wanted = '';
    history.replaceState(null, '', location.pathname);
    changed();
    if (!home.point(id)) complain({ message: say.cardGone });
  } catch (e) { complain(e); }
}

let fetching = null;
function refresh() {
  fetching ||= (async () => {
    try {
      await Promise.all([list.refresh(), home.refresh().catch(() => {})]);
      changed();
    } finally {
      fetching = null;
    }
  })();
  return fetching;
}

// changed brings everything but the messages up to date.
function changed() {
  const here = list.find(current) || (opened?.id === current ? opened : undefined);
  if (here) opened = here;
  if (here && talk.id === current) here.state = talk.waiting ? 'waiting' : talk.working ? 'working' : 'idle';
  const waiting = list.threads.filter((t) => t.state === 'waiting');
  const count = home.has && home.data ? home.waiting : waiting.length;
  const icon = count ? '/icon-waiting.svg' : '/icon.svg';
  if ($('favicon').getAttribute('href') !== icon) $('favicon').href = icon;
  document.title = (count ? `(${count}) ` : '') + (here?.title ? here.title + ' · ' : '') + name;
  $('menu-dot').hidden = !waiting.some((t) => t.id !== current);
  home.show(current === null && !lists.id);
  home.showAlert(current);
  $('title').textContent = here?.title?.replaceAll('`', '') || (current ? 'Conversation' : lists.id ? lists.title(lists.id) : home.empty ? 'New conversation' : 'Home');
  const state = here ? list.stateOf(here) : '';
  $('state').textContent = states[state] || '';
  $('state').dataset.state = state;
  $('stop').hidden = !current;
  $('stop').classList.toggle('idle', !here || here.state === 'idle');
  $('about').hidden = !here;
  $('empty').hidden = current !== null || !home.empty || Boolean(lists.id);
  list.draw(current);
  noteRead(here);
}

// noteRead tells the bot how far this person has read.
let noted = {};
function noteRead(here) {
  const seq = talk.newest;
  if (!here || api.readOnly || talk.id !== current || !talk.sticky || document.visibilityState !== 'visible' || seq <= (here.read || 0)) return;
  if (noted.id === current && (noted.seq >= seq || Date.now() - noted.at < 3000)) return; // the next change tells it
  noted = { id: current, seq, at: Date.now() };
  here.read = seq;
  here.unread = false;
  api.mark(current, { read: seq }).catch(() => { noted = {}; });
}

// What can be done with a conversation as a whole.

function wireAbout() {
  const id = () => opened?.id;
  const act = async (does, then) => {
    $('about-error').textContent = '';
    try {
      await does();
      then();
      await refresh();
    } catch (e) { $('about-error').textContent = e.message; }
  };
  const show = () => {
    $('about-name').value = opened.title;
    $('about-pin').textContent = opened.pinned ? 'Unpin from my list' : 'Pin to the top of my list';
    $('about-archive').textContent = opened.archived ? 'Take out of the archive' : 'Archive for everybody';
    for (const b of ['about-name', 'about-save', 'about-pin', 'about-archive']) $(b).disabled = Boolean(api.readOnly);
  };
  $('about').addEventListener('click', () => {
    if (!opened) return;
    $('about-error').textContent = '';
    show();
    $('about-box').showModal();
  });
  $('about-form').addEventListener('submit', (e) => {
    e.preventDefault();
    const title = $('about-name').value.trim();
    act(() => api.arrange(id(), { title }), () => { opened.title = title; changed(); $('about-box').close(); });
  });
  $('about-pin').addEventListener('click', () => {
    const pinned = !opened.pinned;
    act(() => api.mark(id(), { pinned }), () => { opened.pinned = pinned; show(); });
  });
  $('about-archive').addEventListener('click', () => {
    const archived = !opened.archived;
    act(() => api.arrange(id(), { archived }), () => { opened.archived = archived; show(); });
  });
  $('about-link').addEventListener('click', () => copy(location.origin + location.pathname + '#t=' + encodeURIComponent(id()), $('about-link')));
}

function search() {
  if (matchMedia('(max-width: 760px)').matches) drawer(true);
  $('query').focus();
}

// The composer.

const slot = () => 'draft ' + (current || 'new');

function remember() {
  try {
    if ($('text').value) sessionStorage.setItem(slot(), $('text').value);
    else sessionStorage.removeItem(slot());
  } catch { /* no storage: the text stays in the field */ }
}

function recall() {
  let text = '';
  try { text = sessionStorage.getItem(slot()) || ''; } catch { /* none kept */ }
  $('text').value = text;
  grow();
}

function grow() {
  const t = $('text');
  t.style.height = 'auto';
  t.style.height = Math.min(t.scrollHeight, 220) + 'px';
}

let sending = false;
async function send() {
  const text = $('text').value;
  if (!text.trim() || sending) return;
  if (draft.text !== text || draft.thread !== current) draft = { id: newID(), text, thread: current };
  sending = true;
  $('composer').classList.add('busy');
  $('send').disabled = true;
  $('text').readOnly = true;
  complain(null);
  const at = current;
  try {
    const { thread } = at ? await api.say(at, draft.id, text) : await api.start(draft.id, text);
    draft = { id: newID(), text: '' };
    if (current === at) {
      $('text').value = '';
      remember();
      grow();
      if (!at) {
        list.merge({ id: thread, title: text.trim().split('\n')[0].slice(0, 80), at: new Date().toISOString(), state: 'idle' });
        go(thread);
      }
    }
  } catch (e) {
    complain(e);
  } finally {
    sending = false;
    $('composer').classList.remove('busy');
    $('send').disabled = false;
    $('text').readOnly = false;
    if (matchMedia('(hover: hover)').matches) $('text').focus();
    else if (lost()) $('send').focus();
  }
}

async function stop() {
  if (!current) return;
  const b = $('stop');
  b.disabled = true;
  b.classList.add('busy');
  complain(null);
  try { await api.say(current, newID(), 'stop'); } catch (e) { complain(e); }
  b.disabled = false;
  b.classList.remove('busy');
}

function complain(e) { $('send-error').textContent = e ? e.message : ''; }

// Panels.

function drawer(open) {
  const was = $('app').classList.contains('drawer');
  $('app').classList.toggle('drawer', open);
  $('main').inert = open;
  $('veil').hidden = !open;
  $('menu').setAttribute('aria-expanded', String(open));
  if (open) $('side-close').focus();
  else if (was) $('menu').focus();
}

function toggleTerminal() {
  const show = $('term').hidden;
  $('term').hidden = !show;
  $('app').classList.toggle('with-term', show);
  $('term-toggle').setAttribute('aria-expanded', String(show));
  if (show) {
    terminals.show(current);
    recordings.show(current);
    shares.show(current);
    if (lost()) $('term-toggle').focus(); // the conversation has made room
  } else {
    terminals.hide();
    recordings.hide();
    $('term-toggle').focus({ preventScroll: true });
  }
}

function escape() {
  if ($('app').classList.contains('drawer')) {
    drawer(false);
    return true;
  }
  if (recordings.playing && document.activeElement?.closest('#term')) {
    recordings.close();
    return true;
  }
  if (terminals.open && document.activeElement?.closest('#term, #term-toggle')) {
    toggleTerminal();
    return true;
  }
  return false;
}

window.addEventListener('offline', () => banner(say.offline));
window.addEventListener('online', () => { if (talk?.source?.readyState === EventSource.OPEN) banner(''); });

begin();
