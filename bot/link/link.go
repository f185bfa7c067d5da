// Package link makes the address at which a person opens a thread.
package link

import (
	"strings"

	"countersign/adapters/chat"
)

// Of is the address of a thread, "" if there is none. origin is the console's; "" is not known.
func Of(origin string, thread chat.ThreadID) string {
	parts := strings.Split(string(thread), ":")
	switch {
	case parts[0] == "web" && origin != "":
		return origin + "/#t=" + string(thread)
	case parts[0] == "slack" && len(parts) == 4:
		return "https://slack.com/archives/" + parts[2] + "/p" + strings.ReplaceAll(parts[3], ".", "")
	case parts[0] == "discord" && len(parts) == 4:
		return "https://discord.com/channels/" + parts[1] + "/" + parts[3]
	}
	return ""
}
