// Deciding buttons. A press counts only from somebody who has had that very button
// before their eyes, at that place, for a while: not from a finger that was on its way
// to something else when the button appeared under it, nor from a click that only
// brought the window to the front.

const settle = 450; // milliseconds
const gap = 40; // between two looks
const slack = 4; // pixels that a button may shift and still be at its place

const watched = new Map(); // button -> sight
let looking = false;
let front = null; // since when the page has had the focus; null: it has not

// A sight is since when a button has been on the page, and since when it has been on
// top at one place; null: it is not. Both count from the look after the first, since
// what the first one finds has not been painted yet.
const unseen = () => ({ shown: null, still: null, here: false, box: null, met: false, told: false });

// deciding has act called for presses of button that count, and refused for those that
// do not. ready is told once that the button has been there for long enough, or on the
// page at all when it is not on the screen. readable reports whether what the button
// decides is on the screen with it: otherwise no press counts, and unread is called.
export function deciding(button, { act = () => {}, refused = () => {}, ready = () => {}, readable = () => true, unread = refused }) {
  let down = null; // whether the press under way counts, by where the button was when it began
  button.addEventListener('pointerdown', () => { down = counts(button, true); });
  button.addEventListener('pointercancel', () => { down = null; });
  button.addEventListener('keydown', (e) => {
    // A key held down must not run from one button into the next.
    if (e.repeat && (e.key === 'Enter' || e.key === ' ')) e.preventDefault();
  });
  button.addEventListener('click', (e) => {
    const ok = e.detail > 0 ? down === true : counts(button, false);
    down = null;
    if (ok) {
      act(e);
      return;
    }
    e.preventDefault();
    if (readable()) refused();
    else unread();
  });
  watched.set(button, { ...unseen(), ready, readable });
  look();
}

// unsettle begins anew with a button that is about to appear.
export function unsettle(button) {
  Object.assign(watched.get(button), unseen());
}

// counts tells whether a press counts now. A pointer aims at a place; a keyboard aims
// at a button, wherever that is.
function counts(button, pointer) {
  const sight = watched.get(button);
  if (!sight) return false;
  const since = pointer ? sight.still : sight.shown;
  return [since, front].every((at) => at !== null && performance.now() - at >= settle) && document.hasFocus() && sight.readable() && !(pointer && moved(sight.box, button.getBoundingClientRect()));
}

function look() {
  if (looking || !watched.size) return;
  looking = true;
  setTimeout(() => requestAnimationFrame(() => {
    looking = false;
    const now = performance.now();
    front = document.hasFocus() ? front ?? now : null;
    for (const [button, sight] of watched) see(button, sight, now);
    look();
  }), gap);
}

function see(button, sight, now) {
  if (!button.isConnected) {
    if (sight.met) watched.delete(button); // another one has taken its place
    return;
  }
  sight.met = true;
  const box = button.getBoundingClientRect();
  if (!box.width || !button.checkVisibility({ visibilityProperty: true })) {
    Object.assign(sight, unseen(), { met: true });
    return;
  }
  if (sight.here) sight.shown ??= now;
  sight.here = true;
  if (!onTop(button, box.x + box.width / 2, box.y + box.height / 2) || !sight.readable()) sight.box = sight.still = null;
  else if (moved(sight.box, box)) [sight.box, sight.still] = [box, null];
  else sight.still ??= now;
  const long = (since) => since !== null && now - since >= settle;
  if (!sight.told && long(sight.shown) && (sight.box === null || long(sight.still))) {
    sight.told = true;
    sight.ready();
  }
}

function moved(a, b) {
  return !a || ['x', 'y', 'width', 'height'].some((k) => Math.abs(a[k] - b[k]) > slack);
}

// onTop tells whether a point of a node is on the screen and nothing covers it.
export function onTop(node, x, y) {
  const hit = document.elementFromPoint(x, y);
  return hit !== null && node.contains(hit);
}

// Nothing is painted while the page is hidden.
document.addEventListener('visibilitychange', () => {
  for (const sight of watched.values()) Object.assign(sight, unseen(), { met: sight.met });
});
window.addEventListener('blur', () => { front = null; });
