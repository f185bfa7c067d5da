// The console's API. Errors carry one sentence for the person.

import { newID } from './dom.js';
import { say } from './sentences.js';

export class Failure extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

// A session belongs to this page: it opens only to requests that bring the page's key.
// Cookies go to every port of a host, what is stored here does not.
const slot = 'page-key';
let kept = ''; // for browsers without storage

function pageKey() {
  try { return localStorage.getItem(slot) || kept; } catch { return kept; }
}

function keepKey(key) {
  kept = key;
  try {
    if (key) localStorage.setItem(slot, key);
    else localStorage.removeItem(slot);
  } catch { /* no storage: until the page is left */ }
}

// readOnly is the reason why this person may only look; '' for who may act.
// verdicts is what the person may do with requests that wait, by their ids: { not, glass }.
const api = { csrf: '', readOnly: '', verdicts: new Map(), onSignedOut: () => {}, onMoved: () => {} };
export default api;

let reads = new AbortController(); // of what is on its way

// leave gives up what is still being read: after a sign-out it would only be refused.
function leave() {
  reads.abort();
  reads = new AbortController();
}

const files = ['application/x-asciicast', 'text/plain; charset=utf-8']; // as which files come

async function call(method, path, body, tried) {
  const key = tried ?? pageKey();
  let answer;
  try {
    answer = await fetch('/api' + path, {
      method,
      credentials: 'same-origin',
      cache: 'no-store',
      signal: method === 'GET' ? reads.signal : null,
      headers: { 'X-Console-Page': key, ...(method === 'GET' ? {} : { 'Content-Type': 'application/json', 'X-CSRF-Token': api.csrf }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Failure(0, say.unreachable);
  }
  if (answer.ok && files.includes(answer.headers.get('Content-Type'))) {
    return answer.text().catch(() => { throw new Failure(0, say.fileCut); });
  }
  if (answer.status === 401 && method === 'GET' && tried === undefined && key !== pageKey()) return call(method, path); // another tab has signed in
  const data = answer.headers.get('Content-Type')?.startsWith('application/json') ? await answer.json().catch(() => null) : null;
  if (answer.ok) return data;
  const failure = new Failure(answer.status, data?.error || say.status(answer.status));
  if (answer.status === 401 && path !== '/me' && !path.startsWith('/login')) api.onSignedOut(failure);
  if (answer.status === 421) api.onMoved(failure);
  throw failure;
}

const thread = (id) => '/threads/' + encodeURIComponent(id);

// response is what a passkey has answered to a code of [api.beginLogin].
api.login = async (code, response) => {
  const page = newID();
  await call('POST', '/login', { code, page, response });
  keepKey(page);
};
api.beginLogin = () => call('POST', '/login/begin', {});
// adopt takes the key that the identity provider's sign-in left in the address. One
// that opens nothing came with a link from elsewhere, and changes nothing: so it is
// tried before it is kept, since the page may be left at any moment.
api.adopt = async (key) => {
  try {
    await call('GET', '/me', undefined, key);
  } catch (e) {
    if (e.status === 401 || pageKey()) return;
  }
  keepKey(key);
};
api.logout = async () => {
  leave();
  await call('POST', '/logout', {});
  keepKey('');
};
api.logoutEverywhere = async () => {
  leave();
  await call('POST', '/logout-everywhere', {});
  keepKey('');
};
api.sessions = () => call('GET', '/sessions');
api.endSession = (id) => call('POST', '/sessions/' + encodeURIComponent(id) + '/end', {});
api.me = () => call('GET', '/me');
api.home = () => call('GET', '/home');
api.threads = (q = '', filter = '', after = '') => {
  const ask = new URLSearchParams(Object.entries({ q, filter, after }).filter(([, v]) => v)).toString();
  return call('GET', '/threads' + (ask ? '?' + ask : ''));
};
api.start = (id, text) => call('POST', '/threads', { id, text });
// read reads the last messages, or those at a place: { before: seq }, { after: seq }, { around: seq }.
api.read = (id, place = {}) => call('GET', thread(id) + Object.entries(place).map(([k, v]) => '?' + k + '=' + v).join(''));
api.mark = (id, mark) => call('POST', thread(id) + '/mark', mark);
api.arrange = (id, change) => call('POST', thread(id) + '/arrange', change);
api.say = (t, id, text) => call('POST', thread(t) + '/messages', { id, text });
// signs is { signed, ticket }, of a press that is signed.
api.click = (t, id, button, reason, text, signs = {}) => call('POST', thread(t) + '/clicks', { id, button, reason, text, ...signs });
api.panes = (t) => call('GET', thread(t) + '/panes');
api.recordings = (t) => call('GET', thread(t) + '/recordings');
api.recording = (t, id) => call('GET', thread(t) + '/recordings/' + encodeURIComponent(id));
api.output = (t, id) => call('GET', thread(t) + '/outputs/' + encodeURIComponent(id));
api.list = (id, q, fields, all) => fields
  ? call('POST', '/lists/' + encodeURIComponent(id), { q, fields, all })
  : call('GET', '/lists/' + encodeURIComponent(id) + '?' + new URLSearchParams({ ...(q && { q }), ...(all && { all: 1 }) }));
api.actInList = (id, row, act) => call('POST', '/lists/' + encodeURIComponent(id) + '/act', { row, act });
api.notifications = () => call('GET', '/notifications');
api.wishes = (wishes) => call('POST', '/notifications/wishes', wishes);
api.addDevice = (subscription, name) => call('POST', '/notifications/devices', { subscription, name });
api.endDevice = (id) => call('POST', '/notifications/devices/' + encodeURIComponent(id) + '/end', {});
api.passkeys = () => call('GET', '/passkeys');
api.beginPasskey = () => call('POST', '/passkeys/begin', {});
api.addPasskey = (name, response) => call('POST', '/passkeys', { name, response });
api.askPasskey = (id) => call('POST', '/passkeys/' + encodeURIComponent(id) + '/ask', {});
api.confirmPasskey = (id, signed) => call('POST', '/passkeys/' + encodeURIComponent(id) + '/confirm', signed);
api.endPasskey = (id) => call('POST', '/passkeys/' + encodeURIComponent(id) + '/end', {});
api.links = (t) => call('GET', thread(t) + '/links');
api.share = (t, pane, minutes) => call('POST', thread(t) + '/links', { pane, minutes });
api.unshare = (t, link) => call('POST', thread(t) + '/links/' + encodeURIComponent(link) + '/end', {});
api.events = (t, after) => new Events('/api' + thread(t) + '/events?after=' + after);
api.live = (t, pane) => {
  const at = new URL('/api/panes/' + encodeURIComponent(pane) + '/live', location.href);
  at.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  at.search = new URLSearchParams({ thread: t, size: '1', hands: '1' }).toString();
  at.hash = '';
  const key = pageKey();
  return new WebSocket(at, ['countersign-console', ...(key ? ['page.' + key] : [])]);
};

// Events reads server-sent events as EventSource does, which can send no header. It
// does not connect again by itself.
class Events extends EventTarget {
  constructor(path) {
    super();
    this.readyState = EventSource.CONNECTING;
    this.ending = new AbortController();
    this.run(path);
  }

  close() {
    this.readyState = EventSource.CLOSED;
    this.ending.abort();
  }

  async run(path) {
    try {
      const answer = await fetch(path, {
        credentials: 'same-origin', cache: 'no-store', signal: this.ending.signal, headers: { 'X-Console-Page': pageKey(), Accept: 'text/event-stream' },
      });
      if (answer.ok) {
        this.readyState = EventSource.OPEN;
        this.dispatchEvent(new Event('open'));
        await this.read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
      }
    } catch { /* told below */ }
    if (this.readyState === EventSource.CLOSED) return; // closed here
    this.readyState = EventSource.CLOSED;
    this.dispatchEvent(new Event('error'));
  }

  async read(reader) {
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done || this.readyState === EventSource.CLOSED) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      blocks.forEach((b) => this.say(b));
    }
  }

  say(block) {
    const field = {};
    for (const line of block.split('\n')) {
      const at = line.indexOf(': ');
      if (at > 0) field[line.slice(0, at)] = line.slice(at + 2);
    }
    if (field.data !== undefined && this.readyState === EventSource.OPEN) this.dispatchEvent(new MessageEvent(field.event || 'message', { data: field.data }));
  }
}
