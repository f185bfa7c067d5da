// An identity provider for tests. Arguments: the client's secret and the address
// of its callback. It prints its own address and ends when its input does.
import http from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import { Provider } from 'oidc-provider';

const [secret, callback] = process.argv.slice(-2);
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const key = { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'ES256', kid: 'test' };
let handle;
const server = http.createServer((req, res) => handle(req, res));
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'console', client_secret: secret, redirect_uris: [callback], response_types: ['code'], grant_types: ['authorization_code'],
      application_type: 'native', id_token_signed_response_alg: 'ES256', token_endpoint_auth_method: 'client_secret_basic',
    }],
    jwks: { keys: [key] },
    cookies: { keys: ['only for tests'] },
    pkce: { required: () => true },
    scopes: ['openid', 'profile', 'email', 'groups'],
    claims: { openid: ['sub'], profile: ['preferred_username'], email: ['email', 'email_verified'], groups: ['groups'] },
    findAccount: async (_, id) => ({
      accountId: id,
      claims: async () => ({ sub: id, preferred_username: id, email: `${id}@example.com`, email_verified: id === 'ann', groups: ['sre', 'dev'] }),
    }),
    features: { devInteractions: { enabled: true } },
  });
  handle = provider.callback();
  process.stdout.write(issuer + '\n');
});
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
