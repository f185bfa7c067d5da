// Drives the fake with Slack's own Node SDKs. The Go test TestNodeSDK starts the server, plays the people, and starts this with
// SLACK_API_URL in the environment. Each step prints one line; the Go side waits for some of them before its next move.
// It ends with status 0 and "done" when everything worked.
import assert from 'node:assert/strict';
import { SocketModeClient } from '@slack/socket-mode';
import { WebClient, LogLevel } from '@slack/web-api';

const slackApiUrl = process.env.SLACK_API_URL;
assert.ok(slackApiUrl, 'SLACK_API_URL is not set: this script is started by TestNodeSDK');
const retryConfig = { retries: 5, minTimeout: 10, maxTimeout: 50 };
const web = new WebClient('xoxb-1', { slackApiUrl, retryConfig, logLevel: LogLevel.ERROR });
const socket = new SocketModeClient({
  appToken: 'xapp-1',
  clientPingTimeout: 100, // It waits this long before it connects again.
  logLevel: LogLevel.ERROR,
  clientOptions: { slackApiUrl, retryConfig },
});

const say = (line) => process.stdout.write(`${line}\n`);
const inbox = new Map(); // kind -> what came and was not taken
const waiting = new Map();
const put = (kind, value) => {
  const w = waiting.get(kind);
  if (w) {
    waiting.delete(kind);
    w(value);
  } else inbox.set(kind, [...(inbox.get(kind) ?? []), value]);
};
const take = (kind) => {
  const have = inbox.get(kind);
  if (have?.length) return Promise.resolve(have.shift());
  return new Promise((resolve) => waiting.set(kind, resolve));
};

socket.on('message', async ({ ack, event, body }) => {
  await ack();
  // The app's own messages and their edits come back as events too.
  if (!event.bot_id && event.subtype === undefined) put('message', { event, body });
});
socket.on('interactive', async ({ ack, body }) => {
  await ack(body.type === 'view_submission' ? { response_action: 'clear' } : undefined);
  put(body.type, body);
});
socket.on('slash_commands', async ({ ack, body }) => {
  await ack({ text: `got ${body.text}` });
  put('command', body);
});

const plain = (text) => ({ type: 'plain_text', text });

async function main() {
  const auth = await web.auth.test();
  assert.equal(auth.bot_id, 'BBOT');
  await socket.start();
  say('connected');

  const { event } = await take('message');
  assert.equal(event.text, 'hello from a person');
  assert.equal(event.channel, 'C1');

  /** @type {import('@slack/types').KnownBlock[]} */
  const blocks = [
    { type: 'header', text: plain('Approve?') },
    { type: 'rich_text', elements: [{ type: 'rich_text_preformatted', elements: [{ type: 'text', text: 'df -h' }] }] },
    { type: 'actions', elements: [{ type: 'button', action_id: 'ok', value: 'r1', text: plain('Approve') }] },
  ];
  const posted = await web.chat.postMessage({
    channel: 'C1', thread_ts: event.ts, text: 'Approve?', blocks,
    metadata: { event_type: 'ask', event_payload: { id: 'r1' } },
  });
  assert.equal(posted.message.thread_ts, event.ts);
  say(`posted ${posted.ts}`);

  const click = await take('block_actions');
  assert.equal(click.actions[0].value, 'r1');
  const opened = await web.views.open({
    trigger_id: click.trigger_id,
    view: {
      type: 'modal', callback_id: 'why', title: plain('Edit'), submit: plain('Save'),
      blocks: [{ type: 'input', block_id: 'b1', label: plain('Command'), element: { type: 'plain_text_input', action_id: 'cmd' } }],
    },
  });
  say(`opened ${opened.view.id}`);
  const submission = await take('view_submission');
  assert.equal(submission.view.state.values.b1.cmd.value, 'df -i');

  await web.chat.update({ channel: 'C1', ts: posted.ts, text: 'approved', blocks: blocks.slice(0, 2) });
  const up = await web.filesUploadV2({
    channel_id: 'C1', thread_ts: event.ts, initial_comment: 'output', filename: 'out.txt', content: 'all of it',
  });
  assert.equal(up.ok, true);

  const replies = await web.conversations.replies({ channel: 'C1', ts: event.ts, include_all_metadata: true });
  assert.equal(replies.messages[1].metadata.event_type, 'ask');
  assert.equal(replies.messages.length, 3);
  let n = 0;
  for await (const page of web.paginate('users.list', { limit: 1 })) n += page.members.length;
  assert.equal(n, 3);

  await assert.rejects(
    web.chat.postMessage({ channel: 'C1', blocks: [{ type: 'section', text: { type: 'mrkdwn', text: 'x'.repeat(3001) } }] }),
    (e) => e.data.error === 'invalid_blocks' && e.data.response_metadata.messages.length === 1,
  );

  const s = web.chatStream({ channel: 'C1', thread_ts: event.ts, recipient_team_id: 'T1', recipient_user_id: 'U1', buffer_size: 1 });
  await s.append({ markdown_text: 'one ' });
  await s.append({ markdown_text: 'two' });
  await s.stop();
  await web.assistant.threads.setStatus({ channel_id: 'C1', thread_ts: event.ts, status: 'thinks' });

  say('limit me');
  await take('command');
  await web.chat.postMessage({ channel: 'C1', text: 'after the limit' }); // Answered 429 first; the SDK waits and tries again.

  say('disconnect me');
  const { event: later } = await take('message');
  assert.equal(later.text, 'after the disconnect');
  await socket.disconnect();
  say('done');
}

main().then(
  () => process.exit(0),
  (e) => {
    console.error(e);
    process.exit(1);
  },
);
