// Package console is the bot's own chat network: a page in the browser that shows
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
// # Parts
//
// An [Adapter] is small types, each with the state that it alone changes. A file's name begins with its part.
//
//	door       who a request comes from, and whether they may make it: visitors, guard, sessions, codes, provider,
//	           tokens, identities, names, passkeys
//	talk       the network, which alone is a [chat.Adapter]: rows, hub, inbox with what is pending, replicas, events
//	page       the files of the page
//	threads    the list of conversations, search, and what people mark in them
//	terminals  panes, the keyboard, and links to watch
//	files, calls, home, lists, push   what their names say
//
// routes.go says which request needs which permission, and answers.go how one is refused.
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
//	("web", "pending", id, seq)       a person's message that the bot has not accepted yet, and which replica has it
//	("web", "session", hash)          a signed-in browser: who, which groups, since when, from where; hash is SHA-256 of the cookie
//	("web", "code", hash)             a used sign-in code, kept until the code expires
//	("web", "oidc", hash)             a used sign-in through the identity provider, kept until it would have expired
//	("web", "name", hash)             the account that a name belongs to; hash is SHA-256 of how the name looks
//	("web", "account", hash)          what an account of the identity provider is called; hash is SHA-256 of issuer and subject
//	("web", "watch", id, link)        a watch link: its session, its maker, its end
//	("web", "watchkey", hash)         the link that a token belongs to; hash is SHA-256 of the token
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
// leaves pending is handed over again by the next [Adapter.Run], or by another
// replica after some seconds, under the same event id.
//
// # Who gets in
//
// [LoginCode] makes a code for one name that works once and for ten minutes.
// It travels in the fragment of a link, which no server or proxy logs, and is
// traded for a session cookie that scripts cannot read. Cookies go to all ports of a
// host, so a page also makes a key when it signs in, keeps it where only its own
// origin reads it, and sends it with each request: without it the session is closed.
// A program may sign in without a key. With [DoorConfig.OIDC] people
// can also come through an identity provider: /oidc/start sends them there with an
// encrypted cookie that binds the way back, /oidc/callback, to this browser, for
// ten minutes and once. Their names and those of links are the same people. A person
// is the account that the provider vouches for: it has one name at a time, a name
// belongs to one account, and one that looks like somebody else's is refused.
//
// [DoorConfig.Users] gives each a [Role] and is asked again at every request: a
// [Viewer] sees everything and changes nothing, a [Member] writes, decides and
// shares. Who came through the provider brings their groups, as they were then, to
// each message and click, so that policies can name them.
//
// With [DoorConfig.Passkeys], and no provider, a person's confirmed passkey signs them in, too: the page gets a code as of
// a link, for nobody's name, and the device signs it. Such a session lasts thirty days, and only as long
// as the passkey is registered. Others end at the latest after [DoorConfig.Absolute], and earlier when nothing
// comes from the browser for [DoorConfig.Idle]. Each ends at once by signing out (here, from another browser,
// or everywhere), and when its name is struck off. Its cookie's name has the prefix __Host- when
// the page is served over TLS. Sessions from before there were idle ends are over.
//
// Every POST carries the page's own Origin and a token bound to the session; the
// Host header is checked against DNS rebinding; the page runs no script and no
// style but its own files. Text of people, models and machines reaches the page as
// text: only the bot's Markdown becomes HTML, rendered here without raw HTML,
// images, or links other than http and https.
//
// # How much
//
// Sign-in attempts without a right code are limited by address, others by name, what
// people send by session, streams by session and in all; too much is a 429 that says when to come
// again. The address is the peer's, or what one of [DoorConfig.Proxies] saw.
// [DoorConfig.Audit] is told of sessions, watch links and refused sign-ins in the
// transaction that makes them.
//
// # Watch links
//
// With [PartsConfig.WatchLinks] a member can let somebody without an account watch the
// terminals of one session, for eight hours at most: nothing can be typed, and
// nothing else of the conversation is shown. Who has the link is in; its token
// travels in the fragment, then in a request's body or a WebSocket's protocol,
// never in an address that is logged, and only its hash is stored. The link ends at
// its time, when a member ends it, and when its maker is a member no more; open
// streams end with it.
//
// # Several replicas
//
// With [ReplicaConfig.Tell] and [ReplicaConfig.Share] any number of replicas serve one console over
// one store and with one [DoorConfig.Key], and each request may go to another of them.
// Messages, sessions, used codes and links are rows, and a sign-in under way is in
// the browser's own cookie, so it does not matter who answers.
//
// A stream learns of what another replica wrote by a hint ([Adapter.Notify]) at once,
// and without one when this replica looks at the store, every two seconds. A sign-out
// or a link's end at another replica cuts streams by a hint, and otherwise within
// fifteen seconds. Progress goes to other replicas by hints alone
// ([Adapter.ReceiveProgress]), with the end of a long text, and is repeated every ten
// seconds; what nobody repeats is gone after thirty. A thread is worked on by one
// replica, so whoever said something new last is believed, and what stands for ten
// minutes without a word from the bot is taken away, even if it was true.
//
// A pending message belongs to the replica that accepts it, for as long as that one
// raises the counter in its row. Later messages of the thread wait for it, also at
// other replicas. When the counter stands still for three seconds, another replica
// hands the message over; one that the bot refuses for half a minute does not hold up
// the others any more.
//
// What is counted is counted by each replica for itself: sign-in attempts, what a
// session sends, open streams. With n of them a limit is up to n times as high.
// Terminals and recordings are those that the answering replica can show. While
// replicas of two versions run, a page may get its files from both: it needs to be
// loaded again then.
package console
