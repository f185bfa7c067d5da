// The console's API. Errors carry one sentence for the person.

export class Failure extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

// readOnly is the reason why this person may only look; '' for who may act.
const api = { csrf: '', readOnly: '', onSignedOut: () => {} };
export default api;

async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch('/api' + path, {
      method,
      credentials: 'same-origin',
      cache: 'no-store',
      headers: method === 'GET' ? {} : { 'Content-Type': 'application/json', 'X-CSRF-Token': api.csrf },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Failure(0, 'The bot cannot be reached: check your connection, then try again.');
  }
  if (answer.ok && answer.headers.get('Content-Type') === 'application/x-asciicast') {
    return answer.text().catch(() => { throw new Failure(0, 'The recording broke off on its way: try again in a moment.'); });
  }
  const data = answer.headers.get('Content-Type')?.startsWith('application/json') ? await answer.json().catch(() => null) : null;
  if (answer.ok) return data;
  const failure = new Failure(answer.status, data?.error || `The bot answered with status ${answer.status}: try again in a moment.`);
  if (answer.status === 401 && path !== '/me') api.onSignedOut(failure);
  throw failure;
}

const thread = (id) => '/threads/' + encodeURIComponent(id);

api.login = (code) => call('POST', '/login', { code });
api.logout = () => call('POST', '/logout', {});
api.logoutEverywhere = () => call('POST', '/logout-everywhere', {});
api.me = () => call('GET', '/me');
api.threads = () => call('GET', '/threads');
api.start = (id, text) => call('POST', '/threads', { id, text });
api.read = (id, before) => call('GET', thread(id) + (before ? '?before=' + before : ''));
api.say = (t, id, text) => call('POST', thread(t) + '/messages', { id, text });
api.click = (t, id, button, reason, text) => call('POST', thread(t) + '/clicks', { id, button, reason, text });
api.panes = (t) => call('GET', thread(t) + '/panes');
api.recordings = (t) => call('GET', thread(t) + '/recordings');
api.recordingURL = (t, id) => '/api' + thread(t) + '/recordings/' + encodeURIComponent(id);
api.recording = (t, id) => call('GET', thread(t) + '/recordings/' + encodeURIComponent(id));
api.links = (t) => call('GET', thread(t) + '/links');
api.share = (t, pane, minutes) => call('POST', thread(t) + '/links', { pane, minutes });
api.unshare = (t, link) => call('POST', thread(t) + '/links/' + encodeURIComponent(link) + '/end', {});
api.events = (t, after) => new EventSource('/api' + thread(t) + '/events?after=' + after);
api.live = (t, pane) => {
  const at = new URL('/api/panes/' + encodeURIComponent(pane) + '/live', location.href);
  at.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  at.search = new URLSearchParams({ thread: t, size: '1' }).toString();
  at.hash = '';
  return new WebSocket(at);
};
