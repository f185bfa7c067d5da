// Notifications of cards that need this person, in this browser and others.

import { $, el, when } from './dom.js';
import api from './api.js';
import { say } from './sentences.js';

const can = 'serviceWorker' in navigator && 'PushManager' in globalThis && 'Notification' in globalThis && isSecureContext;

export class Notify {
  constructor() {
    this.worker = can ? navigator.serviceWorker.register('/sw.js').catch(() => null) : null;
    $('notify-here').addEventListener('click', () => this.turn());
    $('notify-form').addEventListener('change', () => this.keep());
  }

  // begin tells the bot that a browser which is to be notified is still there.
  async begin(has) {
    $('notify').hidden = !has || Boolean(api.readOnly);
    if (!has || api.readOnly) return;
    try {
      const sub = await this.subscription();
      if (sub) this.id = (await api.addDevice(sub, deviceName())).id;
    } catch { /* the next visit tells it */ }
  }

  async subscription() {
    const reg = await this.worker;
    return reg ? reg.pushManager.getSubscription() : null;
  }

  async refresh() {
    if ($('notify').hidden) return;
    $('notify-error').textContent = '';
    try {
      this.data = await api.notifications();
      await this.draw();
    } catch (e) { $('notify-error').textContent = e.message; }
  }

  async draw() {
    const { wishes, devices } = this.data;
    const on = Boolean(await this.subscription()) && devices.some((d) => d.id === this.id);
    $('notify-state').textContent = !isSecureContext ? say.notifySecure : !can ? say.notifyCannot : Notification.permission === 'denied' ? say.notifyDenied : on ? say.notifyOn : say.notifyOff;
    $('notify-here').textContent = on ? say.notifyStop : say.notifyStart;
    $('notify-here').disabled = !can || !on && Notification.permission === 'denied';
    for (const name of ['least', 'from', 'to', 'quiet']) $('notify-' + name).value = wishes[name] || (name === 'quiet' ? 'critical' : '');
    $('notify-sound').checked = Boolean(wishes.sound);
    $('notify-devices').replaceChildren(...devices.map((d) => el('li', {}, el('span', { text: d.name + (on && d.id === this.id ? say.notifyThis : '') }, d.problem && el('span', { class: 'error', text: say.notifyRefused(d.problem) })), ' ', when(d.seen), ' ',
      el('button', { type: 'button', class: 'link', 'aria-label': 'Stop on ' + d.name, text: 'Stop', on: { click: () => this.end(d.id) } }))));
    $('notify-none').hidden = devices.length > 0;
  }

  // turn notifies this browser, or not any more.
  async turn() {
    $('notify-error').textContent = '';
    $('notify-here').classList.add('busy');
    try {
      const reg = await this.worker;
      if (!reg) throw new Error(say.notifyCannot);
      const sub = await reg.pushManager.getSubscription();
      if (sub && this.data.devices.some((d) => d.id === this.id)) {
        await sub.unsubscribe();
        await api.endDevice(this.id);
      } else {
        if (await Notification.requestPermission() !== 'granted') throw new Error(say.notifyDenied);
        await sub?.unsubscribe(); // it may be one of another key
        const now = await within(reg.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: this.data.key })).catch((e) => { throw new Error(say.notifyFailed + e.message); });
        this.id = (await api.addDevice(now, deviceName())).id;
      }
    } catch (e) {
      await this.refresh();
      $('notify-error').textContent = e.message;
      return;
    } finally {
      $('notify-here').classList.remove('busy');
    }
    await this.refresh();
  }

  async end(id) {
    try {
      if (id === this.id) await (await this.subscription())?.unsubscribe();
      await api.endDevice(id);
      await this.refresh();
      $('notify-here').focus();
    } catch (e) { $('notify-error').textContent = e.message; }
  }

  // keep stores the wishes once they are whole.
  async keep() {
    const value = (name) => $('notify-' + name).value;
    if (Boolean(value('from')) !== Boolean(value('to'))) return;
    $('notify-error').textContent = '';
    try {
      await api.wishes({ least: value('least'), from: value('from'), to: value('to'), quiet: value('quiet'), zone: Intl.DateTimeFormat().resolvedOptions().timeZone, sound: $('notify-sound').checked });
      $('notify-kept').textContent = say.notifyKept;
    } catch (e) { $('notify-error').textContent = e.message; }
  }

  // leave has this browser told nothing any more: somebody signs out.
  async leave() {
    const sub = await this.subscription().catch(() => null);
    if (!sub) return;
    await sub.unsubscribe().catch(() => {});
    if (this.id) await api.endDevice(this.id).catch(() => {});
  }
}

// within is a promise that fails when nobody has answered for a while: some browsers wait forever
// for a push service that they can't reach.
function within(promise) {
  return Promise.race([promise, new Promise((_, failed) => { setTimeout(() => failed(new Error(say.notifySilent)), 15000); })]);
}

// deviceName is what people call a browser by what it calls itself.
export function deviceName(ua = navigator.userAgent) {
  const first = (list) => list.find(([, sign]) => ua.includes(sign))?.[0];
  const browser = first([['Edge', 'Edg'], ['Opera', 'OPR'], ['Firefox', 'Firefox'], ['Firefox', 'FxiOS'], ['Chrome', 'Chrome'], ['Chrome', 'CriOS'], ['Safari', 'Safari']]) || 'A browser';
  const system = first([['Android', 'Android'], ['iPhone', 'iPhone'], ['iPad', 'iPad'], ['Windows', 'Windows'], ['macOS', 'Mac OS'], ['ChromeOS', 'CrOS'], ['Linux', 'Linux']]);
  return browser + (system ? ' on ' + system : '');
}
