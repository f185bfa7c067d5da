// Somebody's own settings: notifications, passkeys, and where they are signed in.

import { $ } from './dom.js';

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
