// Package discordfake is a local server that behaves like Discord as Discord documents it: the HTTP API in versions 9 and 10, the
// gateway with sessions that resume, interactions with their three seconds, threads that archive, permissions, rate limits, and the
// errors of each. Tests talk to it with real clients and then ask it what people would see. It exists because a fake that says yes
// to everything hides exactly the mistakes that matter: a second acknowledgement, an edit in an archived thread, a session that
// cannot be resumed, a token that is burnt by identifying too often.
//
// Where a rule comes from is said where the rule is: "docs" is Discord's own reference (docs.discord.com/developers), "spec" its
// OpenAPI description, a repository and number is a thread in which somebody measured it. What none of them says is refused rather
// than guessed, or the choice is written down as one. A Checker holds what clients send, and what this server answers and
// dispatches, against the spec.
//
// It does not render anything, keeps nothing on disk, and has one application whose bot is in all its guilds. It knows only what a
// bot with approvals in threads needs: text channels, threads and direct messages; no forums, voice, webhooks of other kinds,
// polls, stickers or moderation. Another route answers 404, and a component that it does not play answers 501, which Discord never
// does. The gateway speaks JSON, plain or with payload compression; a connection that asks for ETF or transport compression is
// refused. It listens on the loopback address only. It is independent of every Discord client library on purpose, so that a
// mistake in a library is not repeated here.
package discordfake
