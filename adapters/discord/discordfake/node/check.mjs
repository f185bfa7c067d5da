// Drives the fake with discord.js, a client that knows nothing of this module. The Go test TestDiscordJS starts the server, plays
// the people, and starts this with DISCORD_API_URL in the environment. Each step prints one line; the Go side waits for some of
// them before its next move. It ends with status 0 and "done" when everything worked.
import assert from 'node:assert/strict';
import {
  ActionRowBuilder, AttachmentBuilder, ButtonBuilder, ButtonStyle, ChannelType, Client, EmbedBuilder, Events, GatewayIntentBits,
  LabelBuilder, MessageFlags, ModalBuilder, Partials, TextInputBuilder, TextInputStyle,
} from 'discord.js';

const api = process.env.DISCORD_API_URL;
assert.ok(api, 'DISCORD_API_URL is not set: this script is started by TestDiscordJS');

const client = new Client({
  intents: [GatewayIntentBits.Guilds, GatewayIntentBits.GuildMessages, GatewayIntentBits.DirectMessages, GatewayIntentBits.MessageContent],
  partials: [Partials.Channel],
  allowedMentions: { parse: [] },
  rest: { api, retries: 2 },
});
const say = (line) => process.stdout.write(`${line}\n`);
// One listener until the wanted event is there: replayed events come without a pause between them.
const next = (event, wanted = () => true) => new Promise((resolve) => {
  const listen = (v) => {
    if (!wanted(v)) return;
    client.off(event, listen);
    resolve(v);
  };
  client.on(event, listen);
});
client.on('debug', (line) => console.error(line)); // the test shows it if it fails
client.on('error', (e) => { console.error(e); process.exit(1); });

const button = (id, label, style) => new ButtonBuilder().setCustomId(id).setLabel(label).setStyle(style);

async function main() {
  const ready = next(Events.ClientReady);
  await client.login('token');
  await ready;
  assert.equal(client.user.bot, true);
  const guild = client.guilds.cache.first();
  assert.equal(guild.name, 'home');
  const channel = guild.channels.cache.find((c) => c.name === 'ops');
  assert.equal(channel.type, ChannelType.GuildText);
  assert.equal(channel.permissionsFor(client.user).has('SendMessagesInThreads'), true);

  await guild.commands.set([{ name: 'ops', description: 'Operations', options: [{ type: 3, name: 'ask', description: 'What', required: true }] }]);

  // A person asks; a thread is made of the message.
  const asked = next(Events.MessageCreate, (m) => !m.author.bot);
  say('connected');
  const message = await asked;
  assert.equal(message.content, 'restart web?');
  assert.equal(message.member.displayName, 'ann');
  const thread = await message.startThread({ name: 'restart', autoArchiveDuration: 1440 });
  assert.equal(thread.id, message.id);
  await assert.rejects(
    client.rest.post(`/channels/${channel.id}/messages/${message.id}/threads`, { body: { name: 'again' } }),
    (e) => e.code === 160004,
  ); // By hand, because message.startThread knows that there is one.

  // A card with buttons; a click is answered by an update of it.
  const clicked = next(Events.InteractionCreate);
  const card = await thread.send({
    content: 'Approve?', embeds: [new EmbedBuilder().setTitle('systemctl restart web').setColor(0xff0000)],
    components: [new ActionRowBuilder().addComponents(
      button('yes', 'Approve', ButtonStyle.Success), button('no', 'Deny', ButtonStyle.Danger),
    )],
  });
  say(`card ${thread.id} ${card.id} yes`);
  const click = await clicked;
  assert.equal(click.isButton(), true);
  assert.equal(click.customId, 'yes');
  assert.equal(click.message.id, card.id);
  assert.equal(click.member.user.username, 'ann');
  assert.equal(click.memberPermissions.has('ViewChannel'), true);
  assert.equal(click.inCachedGuild(), true);
  const updated = await click.update({ content: 'Approved by ann', components: [], withResponse: true });
  assert.equal(updated.resource.message.content, 'Approved by ann');
  await assert.rejects(click.update({ content: 'twice' }), (e) => e.code === 'InteractionAlreadyReplied' || e.code === 40060);
  const secret = await click.followUp({ content: 'only you', flags: MessageFlags.Ephemeral });
  assert.equal(secret.flags.has('Ephemeral'), true);

  // A modal, with a label, and its submission.
  const second = await thread.send({ content: 'Why?', components: [new ActionRowBuilder().addComponents(button('why', 'Say why', ButtonStyle.Primary))] });
  const asking = next(Events.InteractionCreate);
  say(`card ${thread.id} ${second.id} why`);
  const submitted = next(Events.InteractionCreate, (i) => i.isModalSubmit());
  await (await asking).showModal(new ModalBuilder().setCustomId('form').setTitle('Reason').addLabelComponents(
    new LabelBuilder().setLabel('Reason').setTextInputComponent(new TextInputBuilder().setCustomId('reason').setStyle(TextInputStyle.Short)),
  ));
  const form = await submitted;
  assert.equal(form.fields.getTextInputValue('reason'), 'because');
  await form.deferUpdate();
  await form.editReply({ content: 'Because: because', components: [] });

  // A file, an edit, the history, a wrong form.
  const file = await thread.send({ files: [new AttachmentBuilder(Buffer.from('all of it'), { name: 'out.txt' })], nonce: 'n1', enforceNonce: true });
  assert.equal(file.attachments.first().size, 9);
  await card.edit({ content: 'Approved and done' });
  const history = await thread.messages.fetch({ limit: 10 });
  assert.equal(history.get(card.id).content, 'Approved and done');
  await assert.rejects(thread.send('x'.repeat(2001)), (e) => e.code === 50035 && e.rawError.errors.content._errors[0].code === 'BASE_TYPE_MAX_LENGTH');
  const dm = await message.author.send('psst');
  assert.equal(dm.channel.isDMBased(), true);

  // A slash command, deferred.
  const commanded = next(Events.InteractionCreate, (i) => i.isChatInputCommand());
  say('command me');
  const command = await commanded;
  assert.equal(command.options.getString('ask'), 'uptime');
  await command.deferReply();
  await command.editReply('up 3 days');

  // Limited once; discord.js waits and tries again.
  say('limit me');
  await next(Events.InteractionCreate, (i) => i.isChatInputCommand()).then((i) => i.reply('go'));
  await thread.send('after the limit');

  // Op 7 and a cut: discord.js resumes and gets what it missed.
  const back = next(Events.MessageCreate, (m) => m.content === 'while you were away');
  say('drop me');
  await back;
  await thread.setArchived(true);
  await assert.rejects(card.edit('too late'), (e) => e.code === 50083);
  await client.destroy();
  say('done');
}

main().then(
  () => process.exit(0),
  (e) => {
    console.error(e);
    process.exit(1);
  },
);
