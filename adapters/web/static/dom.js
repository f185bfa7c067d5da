// Building blocks: text always goes in as text, never as markup.

export const $ = (id) => document.getElementById(id);

// el makes an element. Props are attributes, but class, text, on (listeners),
// and properties given with a dot in front; null and false are left out.
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') node.className = value;
    else if (name === 'text') node.textContent = value;
    else if (name === 'on') for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (name.startsWith('.')) node[name.slice(1)] = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false && c !== ''));
  return node;
}

// motion remembers when the page last moved by itself: a press that comes right
// after was aimed at something else.
export const motion = { at: -1e9, recent: () => performance.now() - motion.at < 350 };

export function icon(path, cls = '') {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('viewBox', '0 0 20 20');
  svg.setAttribute('aria-hidden', 'true');
  if (cls) svg.setAttribute('class', cls);
  const p = document.createElementNS(ns, 'path');
  p.setAttribute('d', path);
  svg.append(p);
  return svg;
}

export function when(iso) {
  const at = new Date(iso);
  const clock = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  const day = at.toDateString() === new Date().toDateString() ? '' :
    at.toLocaleDateString([], { day: 'numeric', month: 'short' }) + ', ';
  return el('time', { datetime: iso, title: at.toLocaleString(), text: day + clock });
}

// newID names one message or click, so that sending it again is harmless.
export function newID() {
  const b = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(b, (x) => x.toString(16).padStart(2, '0')).join('');
}

export async function copy(text, button) {
  const before = button.textContent;
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch { // no clipboard without TLS: the old way
    const area = el('textarea', { class: 'offscreen', '.value': text, readonly: true });
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
    button.focus();
  }
  button.textContent = done ? 'Copied' : 'Copying failed';
  setTimeout(() => { button.textContent = before; }, 1600);
}
