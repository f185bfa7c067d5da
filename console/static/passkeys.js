// Passkeys: registering them, confirming those of others, and signing what a button decides.

import { $, copy, el, newID, when } from './dom.js';
import api from './api.js';
import { renderCard, tell } from './card.js';
import { say } from './sentences.js';

const bytes = (s) => Uint8Array.from(atob(s.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
const text = (b) => btoa(Array.from(new Uint8Array(b), (c) => String.fromCharCode(c)).join('')).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');

// asked has the browser ask the person, and says in one sentence why nothing came of it.
async function asked(does) {
  if (!hasPasskeys) throw new Error(say.keyCannot);
  try {
    return await does();
  } catch (e) {
    if (e.name === 'InvalidStateError') throw new Error(say.keyKnown);
    throw new Error(e.name === 'NotAllowedError' || e.name === 'AbortError' ? say.keyCancelled : say.keyFailed + e.message);
  }
}

// signInWithPasskey has this device prove who uses it.
export async function signInWithPasskey() {
  const { code, site, challenge } = await api.beginLogin();
  const { response } = await signature({ challenge, site, keys: [] });
  await api.login(code, response);
}

export const hasPasskeys = Boolean(globalThis.PublicKeyCredential && navigator.credentials);

// signature is the device's answer to what the bot asks to be signed.
export async function signature(s) {
  const c = await asked(() => navigator.credentials.get({ publicKey: {
    challenge: bytes(s.challenge), rpId: s.site, userVerification: 'required', timeout: 240000,
    allowCredentials: s.keys.map((k) => ({ type: 'public-key', id: bytes(k.id), ...(k.transports && { transports: k.transports }) })),
  } }));
  const r = c.response;
  return { nonce: s.nonce, response: { id: c.id, rawId: text(c.rawId), type: c.type, clientExtensionResults: {}, response: {
    clientDataJSON: text(r.clientDataJSON), authenticatorData: text(r.authenticatorData), signature: text(r.signature),
    ...(r.userHandle && { userHandle: text(r.userHandle) }),
  } } };
}

async function made(n) {
  const c = await asked(() => navigator.credentials.create({ publicKey: {
    challenge: bytes(n.challenge), rp: { id: n.site, name: n.title }, user: { id: bytes(n.handle), name: n.user, displayName: n.user },
    pubKeyCredParams: n.algorithms.map((alg) => ({ type: 'public-key', alg })), excludeCredentials: n.known.map((id) => ({ type: 'public-key', id: bytes(id) })),
    authenticatorSelection: { userVerification: 'required', residentKey: 'preferred' }, attestation: 'none', timeout: 240000,
  } }));
  const r = c.response;
  return { id: c.id, rawId: text(c.rawId), type: c.type, clientExtensionResults: {}, response: {
    clientDataJSON: text(r.clientDataJSON), attestationObject: text(r.attestationObject), transports: r.getTransports?.() || [],
  } };
}

export class Passkeys {
  constructor() {
    $('passkeys-form').addEventListener('submit', (e) => { e.preventDefault(); this.add(); });
  }

  begin(has) { $('passkeys').hidden = !has || Boolean(api.readOnly); }

  async refresh() {
    if ($('passkeys').hidden) return;
    try { await this.draw(); } catch (e) { this.fail(e); }
  }

  fail(e) { $('passkeys-error').textContent = e.message; }

  async draw() {
    const { mine, waiting, invited } = await api.passkeys();
    $('passkeys-error').textContent = '';
    $('passkeys-state').textContent = invited ? say.keyInvited : mine.some((k) => k.by) ? say.keyHave : mine.length ? say.keyWaits : say.keyNone;
    $('passkeys-yours').hidden = !mine.length;
    $('passkeys-mine').replaceChildren(...mine.map((k) => el('li', {}, el('span', {}, el('strong', { text: k.name }), ' ', k.by ? say.keyBy(k.by) : say.keyUnconfirmed, ' ', el('code', { text: k.print })), ' ', when(k.added), ' ',
      k.signer && el('button', { type: 'button', class: 'link', 'aria-label': 'Copy the signer’s line of ' + k.name, title: say.keySigner, text: 'Copy for the signer', on: { click: (e) => copy(k.signer, e.target) } }), ' ',
      el('button', { type: 'button', class: 'link', 'aria-label': 'Remove ' + k.name, text: 'Remove', on: { click: () => this.act(() => api.endPasskey(k.id)) } }))));
    $('passkeys-others').hidden = waiting.length === 0;
    $('passkeys-waiting').replaceChildren(...waiting.map((k) => el('li', {}, el('span', {}, el('strong', { text: k.owner }), ' ', k.name, ' ', el('code', { text: k.print })), ' ', when(k.added), ' ',
      el('button', { type: 'button', class: 'button', 'aria-label': `Confirm ${k.name} of ${k.owner}`, text: 'Confirm', on: { click: () => this.act(async () => api.confirmPasskey(k.id, await signature(await api.askPasskey(k.id)))) } }))));
  }

  async act(does) {
    $('passkeys').classList.add('busy');
    try {
      await does();
      await this.draw();
    } catch (e) { this.fail(e); } finally { $('passkeys').classList.remove('busy'); }
  }

  add() {
    const name = $('passkeys-name').value.trim();
    return this.act(async () => {
      if (!name) throw new Error(say.keyName);
      await api.addPasskey(name, await made(await api.beginPasskey()));
      $('passkeys-name').value = '';
    });
  }
}

// A press on another network is signed here: its link has a ticket, which is kept until it is used
// or another comes, so that signing in on the way doesn't lose it.
const slot = 'ticket';

export function takeTicket() {
  const part = new URLSearchParams(location.hash.slice(1));
  const [ticket, thread] = [part.get('sign'), part.get('t')];
  if (!ticket || !thread) return false;
  try { sessionStorage.setItem(slot, JSON.stringify({ ticket, thread })); } catch { /* no storage: not after signing in */ }
  history.replaceState(null, '', location.pathname);
  return true;
}

// showTicket shows what a ticket is for, with its button.
export async function showTicket() {
  let kept;
  try {
    kept = JSON.parse(sessionStorage.getItem(slot));
    sessionStorage.removeItem(slot);
  } catch { /* none */ }
  const box = $('signing');
  if (!kept) {
    box.hidden = true;
    return;
  }
  let answer;
  try { answer = await api.click(kept.thread, newID(), 'ticket:' + kept.ticket, ''); } catch (e) { answer = { notice: e.message }; }
  $('signing-note').textContent = answer.notice || '';
  const button = answer.ask && { ...answer.ask, ticket: kept.ticket, ask_reason: false, write: '' };
  $('signing-card').replaceChildren(...(answer.show ? [renderCard(kept.thread, { ...answer.show, choose: button ? [button] : [] }, new Date())] : []));
  box.hidden = false;
  box.scrollIntoView();
}

// Where the signer has its own page, a press is signed there: this tab goes to it, and it sends the
// tab back with the signature in the address. What was pressed stays here meanwhile.
const left = 'press';

export function signThere(sign, press) {
  sessionStorage.setItem(left, JSON.stringify({ ...press, id: newID(), nonce: sign.nonce }));
  location.assign(sign.link);
}

// takeSigned takes the signature out of the address, if it is for what was pressed in this tab.
export function takeSigned() {
  const came = new URLSearchParams(location.hash.slice(1)).get('signed');
  if (came === null) return;
  let to = '';
  try {
    const press = JSON.parse(sessionStorage.getItem(left));
    const { nonce, response } = JSON.parse(came);
    if (press?.nonce && press.nonce === nonce) {
      sessionStorage.setItem(left, JSON.stringify({ ...press, signed: { nonce, response } }));
      if (!press.ticket) to = '#t=' + encodeURIComponent(press.thread);
    } else tell(say.keyElsewhere, false);
  } catch { tell(say.keyElsewhere, false); }
  history.replaceState(null, '', location.pathname + to);
}

// sendSigned presses the button with the signature.
export async function sendSigned() {
  let press;
  try { press = JSON.parse(sessionStorage.getItem(left)); } catch { /* none */ }
  if (!press?.signed) return;
  try {
    const answer = await api.click(press.thread, press.id, press.button, press.reason, undefined, { ticket: press.ticket, signed: press.signed });
    tell(answer.notice, answer.ok);
    sessionStorage.removeItem(left);
  } catch (e) { tell(e.message, false); }
}
