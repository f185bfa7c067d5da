// Sharing a terminal: links with which somebody without an account watches one
// session, for a while.

import { $, el, when, copy } from './dom.js';
import api from './api.js';

export class Shares {
  // shown gives the terminal that is on screen, or nothing.
  constructor(shown) {
    this.shown = shown;
    this.may = false; // this person may make links, and the bot allows them
    this.has = false; // the bot allows them
    this.thread = null;
    this.list = [];
    $('share').addEventListener('click', () => this.begin());
    $('share-form').addEventListener('submit', (e) => { e.preventDefault(); this.make(); });
    $('share-copy').addEventListener('click', () => copy($('share-link').value, $('share-copy')));
    $('share-box').addEventListener('close', () => { $('share-link').value = ''; });
    new MutationObserver(() => this.draw()).observe($('panes'), { childList: true, attributes: true });
    setInterval(() => { if (this.has && !$('term').hidden && document.visibilityState === 'visible') this.refresh(); }, 15000);
  }

  async show(thread) {
    if (thread !== this.thread) {
      this.thread = thread;
      this.list = [];
    }
    this.draw();
    await this.refresh();
  }

  hide() {
    this.thread = null;
    this.list = [];
    if ($('share-box').open) $('share-box').close();
  }

  async refresh() {
    const { thread } = this;
    if (!this.has || !thread) return;
    let links;
    try {
      ({ links } = await api.links(thread));
    } catch {
      return; // the list stays as it is
    }
    if (thread !== this.thread) return;
    this.list = links;
    this.draw();
  }

  draw() {
    const pane = this.shown();
    $('share').hidden = !this.has || !this.thread || !(pane && this.may) && !this.list.length;
    $('share').textContent = this.list.length ? `Share (${this.list.length})` : 'Share';
    $('share-form').hidden = !(pane && this.may);
    $('share-none').hidden = this.list.length > 0;
    const print = JSON.stringify([this.list, this.may]);
    if ($('share-list').dataset.print === print) return;
    $('share-list').dataset.print = print;
    $('share-list').replaceChildren(...this.list.map((l) => el('li', {},
      el('span', { class: 'share-what' }, el('strong', { text: l.session }), ` by ${l.by}, until `, when(l.until),
        l.used ? `, opened from ${l.used} ${l.used === 1 ? 'address' : 'addresses'}` : ', not opened yet'),
      this.may ? el('button', { type: 'button', class: 'link', text: 'End', 'aria-label': `End the link to ${l.session} by ${l.by}`, on: { click: (e) => this.end(l, e.currentTarget) } }) : null)));
  }

  begin() {
    $('share-error').textContent = '';
    $('share-made').hidden = true;
    $('share-what').textContent = this.shown()?.session || 'this session';
    this.draw();
    this.refresh();
    $('share-box').showModal();
  }

  async make() {
    const pane = this.shown();
    $('share-error').textContent = '';
    if (!pane) return;
    $('share-go').disabled = true;
    try {
      const made = await api.share(this.thread, pane.id, Number($('share-life').value));
      $('share-link').value = made.url;
      $('share-made').hidden = false;
      $('share-link').focus();
      $('share-link').select();
    } catch (e) {
      $('share-error').textContent = e.message;
    } finally {
      $('share-go').disabled = false;
    }
    await this.refresh();
  }

  async end(link, button) {
    button.disabled = true;
    $('share-error').textContent = '';
    try {
      await api.unshare(this.thread, link.id);
    } catch (e) {
      $('share-error').textContent = e.message;
      button.disabled = false;
    }
    await this.refresh();
    ($('share-list').querySelector('button') || $('share-close')).focus();
  }
}
