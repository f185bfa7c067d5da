// Package slackfake is a local server that behaves like Slack as Slack documents it: the Web API, Socket Mode, the HTTP way of
// events with signatures, files, views, and the limits and errors of each. Tests talk to it with real clients and then ask it what
// people would see. It exists because a fake that says yes to everything hides exactly the mistakes that matter: a block that is
// too long, a retry that was dropped, a thread that is gone.
//
// Where a rule comes from is said where the rule is: "docs" is Slack's own reference (docs.slack.dev), a repository and number is
// a thread in which somebody measured it. What neither says is refused rather than guessed, or the choice is written down.
//
// It does not render anything, keeps nothing on disk, has one workspace and one app, and knows only the methods that a bot with
// approvals in threads needs: another method answers unknown_method. It listens on the loopback address only. It is independent
// of every Slack client library on purpose, so that a mistake in a library is not repeated here.
package slackfake
