// Asks the device for a signature, or for a new passkey. Nothing is sent from here: the person takes the
// signature to the console in the address, and hands the passkey's line over themselves.

const $ = (id) => document.getElementById(id);
const bytes = (s) => Uint8Array.from(atob(s.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
const text = (b) => btoa(Array.from(new Uint8Array(b), (c) => String.fromCharCode(c)).join('')).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
const on = document.body.dataset;

async function said(does) {
  $('said').textContent = 'Waiting for your device…';
  try { $('said').textContent = await does(); } catch (e) {
    $('said').textContent = e.name === 'NotAllowedError' ? 'Nothing was made or signed: it was cancelled, or this device has no such passkey.' : e.message;
  }
}

async function sign() {
  const c = await navigator.credentials.get({ publicKey: {
    challenge: bytes(on.challenge), rpId: on.site, userVerification: 'required', timeout: 240000, allowCredentials: on.keys.trim().split(' ').map((id) => ({ type: 'public-key', id: bytes(id) })),
  } });
  const r = c.response;
  const signed = { nonce: on.nonce, response: { id: c.id, rawId: text(c.rawId), type: c.type, clientExtensionResults: {}, response: {
    clientDataJSON: text(r.clientDataJSON), authenticatorData: text(r.authenticatorData), signature: text(r.signature),
  } } };
  location.replace(on.console + '/#signed=' + encodeURIComponent(JSON.stringify(signed)));
  return 'Signed. Going back to the console…';
}

// end is where the CBOR item at i ends: behind a device's key there may be more.
function end(b, i) {
  const kind = b[i] >> 5;
  let n = b[i++] & 31;
  if (n > 23) for (let size = 1 << (n - 24), left = (n = 0, size); left > 0; left--) n = n * 256 + b[i++];
  if (kind === 2 || kind === 3) return i + n;
  if (kind === 4 || kind === 5) for (let left = n * (kind - 3); left > 0; left--) i = end(b, i);
  return i;
}

async function register() {
  const name = $('name').value.trim();
  const c = await navigator.credentials.create({ publicKey: {
    challenge: crypto.getRandomValues(new Uint8Array(32)), rp: { id: on.site, name: 'Countersign signer' }, user: { id: new TextEncoder().encode('web:' + name), name, displayName: name },
    pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: 'public-key', alg })), authenticatorSelection: { userVerification: 'required', residentKey: 'preferred' }, attestation: 'none', timeout: 240000,
  } });
  const data = new Uint8Array(c.response.getAuthenticatorData());
  const from = 55 + data[53] * 256 + data[54]; // behind the key's id
  const key = data.slice(from, end(data, from));
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array([...new TextEncoder().encode(`${c.id}\0web:${name}\0`), ...key])));
  $('line').textContent = `- {id: "${c.id}", public: "${text(key)}"}`;
  $('digits').textContent = Array.from(digest.slice(0, 10), (x) => x.toString(16).padStart(2, '0')).join('');
  $('made').hidden = false;
  return 'Made. It counts once the line is in the signer’s configuration, below ' + name + '.';
}

$('register')?.addEventListener('submit', (e) => { e.preventDefault(); said(register); });
if ($('sign')) {
  // Who hasn't seen the end of it hasn't read it, and a press that was on its way to something else doesn't count.
  let read = false;
  const settle = () => {
    $('sign').disabled = true;
    setTimeout(() => { if (read && !document.hidden) [$('sign').disabled, $('said').textContent] = [false, '']; }, 1000);
  };
  new IntersectionObserver(([e]) => { if (!read && e.isIntersecting) { read = true; settle(); } }, { rootMargin: '0px 0px -100px 0px' }).observe($('end')); // not below the button
  document.addEventListener('visibilitychange', settle);
  $('sign').addEventListener('click', () => said(sign));
}
