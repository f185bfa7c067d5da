// Package calls lets programs ask: coding agents, jobs in CI, scripts and people at a keyboard. What
// one asks for becomes a call in a conversation, by the same proof, card, policy and record as what
// the bot's own agent asks for.
//
// What is asked for one task is one conversation. What waits while something else of the same task
// waits has another one, since a conversation does one thing at a time.
//
// Rows, under the key "calls" (see store.Key):
//
//	call <id>                   -> call     what somebody has asked for
//	task <user> <task> <n u64>  -> task     the conversations of a task
//	open <user> <id>            -> nothing  calls that had not ended when somebody looked
//	age  <hour i64> <id>        -> nothing  calls by the hour in which they began
package calls
