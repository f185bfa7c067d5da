package console

// What the console tells people, side by side. What only its page says is in the page.

const (

	// Requests that the page or another program sent wrong.
	sayReload     = "This page is out of date. Reload it and try again."
	sayNotJSON    = "The request isn't JSON. Send it as application/json."
	sayBadJSON    = "The bot can't read this request as JSON. Reload the page and try again."
	sayBadPlace   = "The parameters `before`, `after` and `around` are numbers. Send a message's seq."
	sayBadList    = "The list has no such filter or place. Reload the page."
	sayBadAfter   = "The parameter `after` isn't a number. Reload the page."
	sayNoID       = "The message has no valid id. Give it one of at most 128 bytes, and keep it when you retry."
	sayBadClick   = "The page didn't say which button you pressed. Reload it and press the button again."
	sayTooFast    = "Too many requests. Wait a few seconds and try again."
	sayNoAnswer   = "The bot couldn't write its answer. Reload the page."
	headNoPage    = "Page not found"
	headOtherName = "Wrong address"
	sayNoPage     = "Nothing is at this address."

	// Messages and decisions.
	sayEmpty       = "The message is empty. Write something first."
	sayTooLong     = "This is over 256 KiB. Shorten it, or save it on the machine and name the file."
	sayLongReason  = "The reason is too long. Keep it under 2,000 bytes."
	sayLongEdit    = "The edited text is too long. Keep it under 16 KiB."
	sayThreadOnly  = "You can't do this here. Open the thread where it was started."
	sayNotRecorded = "The bot couldn't record your decision, so nothing was decided. Try again in a moment."
	sayLongSearch  = "The search is too long. Keep it under 400 bytes."
	sayTooManyPins = "You have pinned 50 conversations. Unpin one first."
	sayBadTitle    = "The name is empty or too long. Give it one line of at most 80 characters."
	sayStillOpen   = "A card here waits for a decision. Decide it first, then archive the conversation."
	sayNoList      = "There is no such list. Reload the page."
	sayLooksOnly   = "This token is read-only. Sign in again with --scope full."
	sayJobsAsk     = "This token can only ask, and look at what it has asked for. For conversations, sign in again with --scope full."
	sayNoIdentity  = "There is no identity token in this request."
	sayNoProgram   = "A token can't do this. Sign in to the console."
	sayNamesUse    = "Say what the token is for, in at most 100 letters."
	sayScopes      = "A token's scope is read, ask or full."
	sayLifetime    = "A token lasts from 1 to 366 days."
	sayEndSomeOf   = "You have %d tokens of this kind. Revoke one: countersign tokens revoke ID"
	sayNoChild     = "With a token you can make one for a program: scope ask, with the program's name. A program's own token makes none."
	sayNoKeys      = "The identity provider doesn't answer, so this token can't be checked. Try again in a moment."
	sayUnknownID   = "No token has this id."
	sayNoToken     = "You have no such token. Reload the list."
	sayListUndone  = "That didn't work. Try again in a moment."
	sayRowGone     = "That isn't there any more. Reload the list."
	sayListUnread  = "The bot can't read this list right now. Try again in a moment."
	sayBadDevice   = "This browser's subscription can't be used. Turn notifications off and on again."
	sayManyDevices = "You are notified on ten devices already. Turn one off first."
	sayBadWishes   = "These hours or risks can't be kept. Reload the page and choose again."
	sayNoThread    = "There is no such conversation. Pick one from the list."
	sayNotOpen     = "The bot is starting or stopping. Try again in a moment."
	sayNotTaken    = "The bot couldn't take your message. Send it again in a moment."
	sayNoStore     = "The bot can't reach its store. Try again in a moment. If it keeps failing, check the bot's log."
	sayDiskFull    = "The bot's disk is full. Free some space, then try again."

	// Signing in.
	sayNotSignedIn   = "You aren't signed in"
	sayToSignIn      = "Back to the sign-in page"
	sayToConsole     = "Go to the console"
	saySignInHow     = "To get a sign-in link, run <code>countersign login NAME</code> on the bot’s machine, or ask somebody who can. It works once, within ten minutes."
	saySignIn        = "You aren't signed in. Open a new sign-in link."
	saySignInAgain   = "You aren't signed in. Sign in again, or open a new sign-in link."
	saySessionOver   = "Your session has ended. Sign in again."
	sayBadCode       = "This sign-in code isn't valid. Ask for a new link."
	sayCodeExpired   = "This sign-in link has expired. Ask for a new one."
	sayCodeUsed      = "This sign-in link was already used. Ask for a new one."
	sayNotInvited    = "This name can't sign in. Ask whoever runs the bot to add it to a group."
	sayTooManyTries  = "Too many sign-in attempts. Wait a minute and try again."
	saySignInBroken  = "The bot couldn't start the sign-in. Use a sign-in link, and ask whoever runs the bot to check its log."
	sayNoSignInHere  = "No sign-in was started in this browser in the last ten minutes. Start it on the console's page."
	sayHiddenName    = "Your name at the identity provider has invisible characters. Have them removed there, then sign in again."
	sayNameLooksLike = "Your name at the identity provider, %q, looks like another person's here. Have it changed, or ask whoever runs the bot for a sign-in link."
	sayNameChanged   = "You signed in here as %q before, and the identity provider now calls you %q. Try again a day after your old session ends, or ask whoever runs the bot for a sign-in link."
	saySignInUsed    = "This sign-in was already used. Start again on the console's page."
	saySignInExpired = "The identity provider's answer has expired. Start again on the console's page."
	sayNoGroup       = "You can't sign in here yet. Ask whoever runs the bot to add you or one of your groups."
	sayViewer        = "You have read-only access. To write, decide or share, ask whoever runs the bot to add you to a group that can."
	sayOIDCLabel     = "Sign in with your account"

	// Terminals, outputs and recordings.
	sayNoOutput         = "There is no such output. Open one from its message."
	sayTerminalsUnread  = "The bot can't list the terminals. Check that the target is up, then try again."
	sayStopping         = "The bot is stopping. Try again in a moment."
	sayNoTerminals      = "Terminals aren't shown here."
	sayTerminalUnread   = "The bot can't show this terminal. Check that the target is up, then try again."
	sayNotTyped         = "That wasn't typed: the keyboard isn't yours any more."
	sayTerminalGone     = "This terminal has ended. Pick another one."
	sayRecordingsUnread = "The bot can't list the recordings. Try again in a moment. If it keeps failing, check the bot's log."
	sayNoRecording      = "There is no such recording. Pick one from the list."
	sayTooManyOpen      = "Too many conversations and terminals are open. Close some tabs, then try again."

	// Links that let others watch a terminal.
	sayLinkLife     = "A link lasts between one minute and eight hours. Choose one of the times on the page."
	sayTooManyLinks = "This conversation already has 20 watch links. End one that nobody needs, then try again."
	sayNoLink       = "This link is gone. Reload the list."
	sayLinkOver     = "This link has ended or belongs to another console. Ask whoever gave it to you for a new one."
)

// sayNotOwnPage refuses what another page sent.
func sayNotOwnPage(origin string) string {
	return "This request didn't come from the console's own page. Open it at " + origin + "."
}

// sayNotByToken tells a program where its person decides.
func sayNotByToken(origin string) string {
	return "A token can't press buttons, so it can't approve or deny. Sign in at " + origin + " and press the button on the card."
}

// sayOtherName refuses an address whose name is not the console's.
func sayOtherName(origin string) string {
	return "This console isn't served under this address. Open " + origin + " instead."
}
