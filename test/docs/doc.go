// Package docs holds the tests that the documents are true: commands run,
// configurations load, links lead somewhere.
//
// It has no code of its own. It does not judge prose.
//
// A fenced block is checked by the language of its info string, and the words
// after it, which no page shows, say what is special about it:
//
//	sh                 is run; all sh blocks of a document are one script, in one directory
//	sh needs=WHAT      is not run, since it needs an account, root, ...; its syntax is checked, and
//	                   that each subcommand and flag of the bot, and each test, is there
//	text, no language  right after a sh block in the same section: what that block prints, with ...
//	                   for any text within a line and, alone, for any lines
//	text kind=example  is compared with nothing
//	yaml               is loaded as the bot's configuration
//	yaml kind=WHAT     is checked as that: workflow, signer, policy-test, ...
//	json, jsonl, go, python   are parsed; Go that is a whole file is compiled
//	file=NAME          with any language: the reader makes this file, and later blocks find it
package docs
