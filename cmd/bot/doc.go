// Command bot is Countersign: a chat-ops bot that runs nothing mutating before
// a person countersigned it in the thread.
//
// The tour, from the bottom:
//
//	store              ordered keys in transactions; bolt keeps them on disk, queue, outbox
//	                   and lease are written once over them
//	targets/backend      a machine: processes and files; local is this one
//	targets/tmux         a terminal that people can watch, over a machine
//	tools              what a model can do: a tool plans without effect, a plan runs with a permit
//	approvals          binds what people approve to what runs; risk proves, policy decides who,
//	                   card shows, audit remembers, gate joins them
//	agent              the conversation: the transcript, next(), one worker per thread
//	adapters/chat      the vocabulary between networks and the bot; web is the console
//	bot                a bot of all that: bot/machines, bot/toolbox, bot/desk and others are its
//	                   parts, each with what it needs
//	cmd/bot            this program: environment, subcommands, exit codes
package main
