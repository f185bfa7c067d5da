// Package web is the bot's own chat network: a page in the browser that shows
// threads, cards with their buttons, and the terminals that the bot works in.
// It is the way in when Slack or Discord is down, and the page of the demo.
//
// It is a chat adapter like the others and knows nothing about agents, tools
// or approvals: it hands messages and clicks to a [chat.Handler] and shows
// what is posted. It does not decide who may approve, it does not send input
// to a terminal (panes are only watched, recordings only played), it records
// nothing itself, and it does not open a port: the caller serves
// [Adapter.Handler].
//
// # Why it has a store
//
// Other adapters lean on a network that keeps the messages. Nobody else keeps
// these, so this adapter alone imports store and owns the rows below "web".
// Every person who can sign in sees every thread: the console is a room of the
// team, not a mailbox.
//
//	("web", "thread", id)             a thread: title, times, its counter, cards that wait
//	("web", "recent", time, id)       index of the threads that people may see, by last activity
//	("web", "message", id, seq)       a message as it is now, at its place in the thread
//	("web", "change", id, rev)        seq of the message whose latest version is rev
//	("web", "key", id, hash)          seq of the message made by a post's key or a person's client id
//	("web", "pending", id, seq)       a person's message that the bot has not accepted yet
//	("web", "session", hash)          a signed-in browser; hash is SHA-256 of the cookie
//	("web", "code", hash)             a used sign-in code, kept until the code expires
//
// seq and rev come from one counter of the thread: seq is a message's place
// and never changes, rev grows with each new version, and a new message of the
// bot has both equal. A stream resumes after a rev and so sees edits as well.
//
// # What a 202 means
//
// A person's message is stored as pending, then handed to [chat.Handler], and
// only when that returns nil does it become visible and get its 202. When the
// handler fails the row is removed again and the person is told. What a crash
// leaves pending is handed over again by the next [Adapter.Run], under the same
// event id.
//
// # Who gets in
//
// [LoginCode] makes a code for one name that works once and for ten minutes.
// It travels in the fragment of a link, which no server or proxy logs, and is
// traded for a session cookie that scripts cannot read. Every POST carries the
// page's own Origin and a token bound to the session; the Host header is
// checked against DNS rebinding; the page runs no script and no style but its
// own files. Text of people, models and machines reaches the page as text: only
// the bot's Markdown becomes HTML, rendered here without raw HTML, images, or
// links other than http and https.
package web
