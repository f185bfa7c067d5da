package setup

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"countersign/adapters/chat/network"
	"countersign/cli/words"
)

// connection is what the questions know of a network.
type connection struct {
	scheme, how, question string
	tokens                []token // in the order in which they are asked for
	member                *regexp.Regexp
	odd, missing          string // says that a word is none of them, and that a token is missing
	sample, ids           string // of people, in YAML
}

type token struct {
	variable string
	form     *regexp.Regexp
}

// connections are the networks that the questions offer.
func connections() []connection {
	return []connection{
		{
			scheme: network.Slack, how: "Make the app from what " + words.Named("bot slack manifest") + " prints, install it, and take its two tokens.",
			question: "Bot token (xoxb-), app token (xapp-) and your member ID (U...), with spaces between",
			tokens:   []token{{"SLACK_BOT_TOKEN", regexp.MustCompile(`^xoxb-`)}, {"SLACK_APP_TOKEN", regexp.MustCompile(`^xapp-`)}},
			member:   regexp.MustCompile(`^[UW][A-Z0-9]{5,}$`),
			odd:      "One of them is none of the three: a bot token begins with xoxb-, an app token with xapp-, a member ID with U or W.",
			missing:  "Both tokens are needed, xoxb-... and xapp-....",
			sample:   "U024BE7LH", ids: `their profile, "Copy member ID"`,
		},
		{
			scheme: network.Discord, how: "Make an app at https://discord.com/developers/applications, and take its bot token.",
			question: "Bot token and your user ID, with a space between",
			tokens:   []token{{"DISCORD_BOT_TOKEN", regexp.MustCompile(`.`)}},
			member:   regexp.MustCompile(`^[0-9]{15,21}$`),
			missing:  "The bot token is needed.",
			sample:   "123456789012345678", ids: `"Copy User ID", in developer mode`,
		},
	}
}

// used reports whether there is a token of the network.
func (a Answers) used(c connection) bool { return a.Tokens[c.tokens[0].variable] != "" }

// take takes what a network gave; it returns what is wrong, "" for nothing.
func (a *Answers) take(c connection, said []string) string {
	tokens, member := map[string]string{}, ""
	for _, s := range said {
		i := slices.IndexFunc(c.tokens, func(t token) bool { return t.form.MatchString(s) })
		switch {
		case c.member.MatchString(s):
			member = s
		case i < 0:
			return c.odd
		default:
			tokens[c.tokens[i].variable] = s
		}
	}
	if len(tokens) < len(c.tokens) {
		return c.missing
	}
	a.Tokens, a.Member = tokens, member
	return ""
}

// approvers is the line of those who approve on the network.
func (a Answers) approvers(c connection, member string) string {
	if member != "" {
		member = quoted(member)
	}
	return fmt.Sprintf("%s: [%s] # ids of people: %s\n", c.scheme, member, c.ids)
}

func (w *wizard) network(_ context.Context, a *Answers) error {
	if slices.ContainsFunc(connections(), a.used) {
		return nil
	}
	var titles, schemes []string
	for _, c := range connections() {
		titles, schemes = append(titles, network.Of(c.scheme).Title), append(schemes, c.scheme)
	}
	offered := strings.Join(schemes, ", ")
	for {
		said, err := w.ask(fmt.Sprintf("7. %s now? The web console is always there (%s, later)", strings.Join(titles, " or "), offered), "later")
		if err != nil || said == "later" {
			return err
		}
		i := slices.Index(schemes, said)
		if i < 0 {
			w.say("   Write %s or later.", offered)
			continue
		}
		c := connections()[i]
		w.say("   %s", c.how)
		tokens, err := w.secret("8. " + c.question)
		if err != nil {
			return err
		}
		wrong := a.take(c, strings.Fields(tokens))
		if wrong == "" {
			return nil
		}
		w.say("   %s", wrong)
	}
}
