// Somebody's own settings: notifications, passkeys, and where they are signed in.

import { $, el, when } from './dom.js';
import api from './api.js';
import { deviceName } from './notify.js';
import { say } from './sentences.js';

export class Settings {
  // parts are its sections: each refreshes what it shows, and says in it what went wrong.
  constructor(parts) {
    this.parts = parts;
    $('settings').addEventListener('click', () => this.show());
  }

  async show() {
    await Promise.all(this.parts.map((p) => p.refresh()));
    if (!$('settings-box').open) $('settings-box').showModal();
  }

  hide() { $('settings-box').close(); }
}

// Sessions are the browsers in which somebody is signed in.
export class Sessions {
  async refresh() {
    $('sessions-error').textContent = '';
    try {
      const { sessions } = await api.sessions();
      $('sessions').replaceChildren(...sessions.map((s) => {
        const name = deviceName(s.agent);
        return el('li', {}, el('span', {}, el('strong', { text: name + (s.here ? say.thisOne : '') }), ' ', el('span', { class: 'session-meta' }, say.sessionFrom(s.from), when(s.seen), say.sessionUntil, when(s.expires))),
          !s.here && el('button', { type: 'button', class: 'link', 'aria-label': 'Sign out ' + name, text: 'Sign out', on: { click: () => this.end(s.id) } }));
      }));
    } catch (e) { $('sessions-error').textContent = e.message; }
  }

  async end(id) {
    try {
      await api.endSession(id);
      await this.refresh();
    } catch (e) { $('sessions-error').textContent = e.message; }
    $('logout-all').focus();
  }
}
