package words

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// VersionHeader is in answers of a running bot that name its version.
const VersionHeader = "Countersign-Version"

// Program is what people write to call this program: the name by which it was started, or go run
// with the folder where Go has just built it. Sentences write its commands as "bot run"; see
// [Named].
func Program() string { return programOf(os.Args[0]) }

// Name is the name of this program's file.
func Name() string { return nameOf(os.Args[0]) }

// Passing reports whether Go has built this program for one run, so that its file goes away.
func Passing() bool { return passing(os.Args[0]) }

func passing(path string) bool {
	return strings.Contains(filepath.ToSlash(path), "/go-build") && !strings.HasSuffix(path, ".test")
}

func programOf(path string) string {
	if passing(path) {
		return "go run ./cmd/" + nameOf(path)
	}
	return nameOf(path)
}

func nameOf(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	if name == "" || name == "." || strings.HasSuffix(name, ".test") {
		return "bot"
	}
	return name
}

// Named is a text with the commands that it names ("bot run") as they are called here
// ("countersign run"). Of "the bot" nothing changes.
func Named(text string) string { return named(text, Program()) }

func named(text, program string) string {
	if program == "bot" {
		return text
	}
	return commands.ReplaceAllStringFunc(text, func(s string) string {
		if i := strings.LastIndex(s, "bot "); i == 0 {
			return program + s[3:]
		}
		return s
	})
}

// commands are the program's, and "the bot ..." before what may be a verb.
var commands = regexp.MustCompile(`\b(?:(?:the|a|this|that|your|running) )?bot (?:--(?:help|version)|(?:audit|backup|classify|completion|config|demo|discord|docs|doctor|export|healthz|help|init|login|logout|logs|exec|request|calls|mcp|hook|attach|replay|approvals|send|sessions|show|threads|tokens|upgrade|verify|policy|restore|run|signer|slack|store|target|tools?|version|web|witness)\b)`)
