// The service worker: it shows that a card needs somebody, and opens it. Nothing is decided
// here, and nothing of the console is kept.

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (e) => e.waitUntil(self.clients.claim()));

self.addEventListener('push', (e) => {
  let told = {};
  try { told = e.data.json(); } catch { /* shown without words, since something must be shown */ }
  e.waitUntil(self.registration.showNotification(told.title || 'A card needs you', {
    body: told.body || '', tag: told.id || '', renotify: Boolean(told.id), silent: !told.sound, requireInteraction: true, icon: '/icon-192.png', badge: '/icon-192.png', data: { card: told.id || '' },
  }));
});

self.addEventListener('notificationclick', (e) => {
  e.notification.close();
  const { card } = e.notification.data || {};
  e.waitUntil((async () => {
    const [open] = await self.clients.matchAll({ type: 'window', includeUncontrolled: true });
    if (!open) return self.clients.openWindow('/#c=' + encodeURIComponent(card || ''));
    open.postMessage({ card });
    return open.focus();
  })());
});
