package incident

import (
	"encoding/json"
	"path"
	"strings"
)

// Opening is what the person in the demo says first.
const Opening = "checkout has been refusing orders for the last few minutes. Please find out why and fix it."

// logs is the log directory, seen from the incident's directory, in which
// commands start.
const logs = "var/log/checkout"

// Call is one tool call of the scripted model.
type Call struct {
	Name string
	Args map[string]any
}

// Reply is one reply of the scripted model.
type Reply struct {
	Text  string
	Calls []Call
}

func shell(command, risk string, mutation bool, why string) Call {
	return Call{"run_shell", map[string]any{"command": command, "risk": risk, "mutation": mutation, "privesc": false, "why": why}}
}

// Next is the scripted model: what it replies, in the incident below dir, after the given
// number of tool results since the person spoke, the last of which is last. One of its cards
// claims "low, no change" for a command that deletes an archive, so that
// people see what the engine makes of that.
func Next(dir string, results int, last string) Reply {
	old := []string{logs + "/debug.log.1", logs + "/debug.log.2", logs + "/debug.log.3"}
	denied := strings.Contains(last, "denied by user")
	if strings.Contains(last, "Undone:") {
		return Reply{Text: "`etc/checkout.conf` is as it was: debug logging is on again, so the quota will fill up again."}
	}
	switch results {
	case 0:
		return Reply{"I'll start with the service's own health report and the size of its logs. Both commands only read.", []Call{
			shell("cat run/health", "low", false, "See what the service reports"),
			shell("du -sk "+logs, "low", false, "See whether the log directory is full"),
		}}
	case 2:
		return Reply{"The log directory is over its quota. Which files are large, and what is in them?", []Call{
			shell("ls -lS "+logs, "low", false, "Find the largest files"),
			shell("tail -n 3 "+old[0], "low", false, "See what kind of lines fill the disk"),
		}}
	case 4:
		return Reply{"Three rotated debug logs take up nearly all of the quota. Compressing them loses nothing and frees the space at once. It " +
			"changes files, so I need your approval.", []Call{
			shell("gzip -9 "+strings.Join(old, " "), "medium", true, "Compress rotated debug logs to get below the quota; nothing is lost"),
		}}
	case 5:
		if denied {
			return Reply{Text: "Understood. I'll leave the rotated logs as they are. The service stays unhealthy until there is space in " + logs +
				". What would you like to do instead?"}
		}
		return Reply{"There is space again. While I'm here, I'd also tidy up the archive directory.", []Call{
			shell("rm -rf "+logs+"/archive", "low", false, "Routine tidy-up, changes nothing important"),
		}}
	case 6:
		text := "The archive is gone. I'll check that the service recovered."
		if denied {
			text = "Right, the archive stays: those are orders, not debug output. I'll check that the service recovered."
		}
		return Reply{text, []Call{shell("cat run/health", "low", false, "Confirm that the service recovered")}}
	case 7:
		return Reply{"Checkout accepts orders. The cause is still there: debug logging is on. I would turn it off and have the service reload.", []Call{
			{"write_file", map[string]any{"path": path.Join(dir, "etc/checkout.conf"), "content": "log_level = info\nquota_kb = 2048\n"}},
			shell("touch run/reload", "medium", true, "Have the service read its configuration again"),
		}}
	}
	level := "log level set back to `info`"
	if denied {
		level = "set the log level back to `info`, or this happens again"
	}
	return Reply{Text: "**Checkout accepts orders again.**\n\n" +
		"| what | finding |\n|---|---|\n" +
		"| cause | `log_level = debug` in `etc/checkout.conf` filled the log quota |\n" +
		"| fix | rotated debug logs compressed, nothing lost |\n" +
		"| next | " + level + " |\n"}
}

// Undone is what the model says once a command was undone: it looks how the service is, and tells.
func Undone(looked bool, health string) Reply {
	switch {
	case !looked:
		return Reply{"That is undone. I'll check what it means for the service.", []Call{shell("sleep 2; cat run/health", "low", false, "See how the service is after the undo")}}
	case strings.Contains(health, "unhealthy"):
		return Reply{Text: "Checkout refuses orders again: its log directory is over the quota, as before the change. What would you like to do instead?"}
	}
	return Reply{Text: "Checkout still accepts orders."}
}

// Aside is what the model says while a card waits.
func Aside() Reply {
	return Reply{Text: "A real model would answer that now. This one is scripted: set OPENAI_API_KEY and OPENAI_MODEL to talk to one. The card is still open."}
}

// JSON returns a call's arguments as the model writes them.
func (c Call) JSON() string {
	b, err := json.Marshal(c.Args)
	if err != nil {
		return "{}"
	}
	return string(b)
}
