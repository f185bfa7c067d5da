package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"countersign/adapters/chat"
	"countersign/adapters/discord/embed"
	"countersign/adapters/slack/blockkit"
	"countersign/approvals/card/cardtest"
)

// TestEveryFaceOfACardCanBeDrawn: a plain renderer of what Slack and Discord document draws
// each face, and knows each block that a card uses. -pictures writes docs/cards-*.png.
func TestEveryFaceOfACardCanBeDrawn(t *testing.T) {
	t.Parallel()
	var slackSheet, discordSheet strings.Builder
	for _, face := range cardtest.All(t) {
		c := face.Card
		for _, f := range []struct {
			sheet *strings.Builder
			draw  func(chat.Card) (string, error)
		}{{&slackSheet, drawnBySlack}, {&discordSheet, drawnByDiscord}} {
			drawn, err := f.draw(c)
			if err != nil {
				t.Fatalf("%s: %v", face.Name, err)
			}
			if !strings.Contains(drawn, html.EscapeString(c.Title)) || (c.DetailsID != "" || len(c.Choose) > 0) != strings.Contains(drawn, "<button") {
				t.Errorf("%s lacks its title or its buttons: %s", face.Name, drawn)
			}
			fmt.Fprintf(f.sheet, "<section>%s</section>\n", dots.Replace(drawn))
		}
	}
	if *pictures {
		for name, body := range map[string]string{"slack": slackSheet.String(), "discord": discordSheet.String()} {
			photograph(t, filepath.Join("..", "..", "docs", "cards-"+name+".png"), fmt.Sprintf("<body class=%s>%s</body>", name, body))
		}
	}
}

// TestAnEverydayCardIsShortOnEachNetwork: what people read of it beside the command, buttons
// included, is at most 7 lines and 500 characters.
func TestAnEverydayCardIsShortOnEachNetwork(t *testing.T) {
	t.Parallel()
	c := cardtest.Named(t, "everyday")
	for network, draw := range map[string]func(chat.Card) (string, error){"Slack": drawnBySlack, "Discord": drawnByDiscord} {
		drawn, err := draw(c)
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile(`(?s)<pre>.*?</pre>`).ReplaceAllString(drawn, "")
		shown = regexp.MustCompile(`</(p|div|h3)>`).ReplaceAllString(shown, "\n")
		shown = html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(shown, ""))
		lines := strings.FieldsFunc(shown, func(r rune) bool { return r == '\n' })
		if n := len([]rune(shown)); len(lines) > 7 || n > 500 {
			t.Errorf("on %s it has %d lines and %d characters:\n%s", network, len(lines), n, shown)
		}
	}
}

// dots are the marks of the risk, for machines without a font that has them.
var dots = strings.NewReplacer("🔴", "<span style=color:#d72b3f>●</span>", "🟡", "<span style=color:#ecb22e>●</span>", "🔵", "<span style=color:#1d9bd1>●</span>")

// photograph writes a picture of a page.
func photograph(t *testing.T, file, body string) {
	t.Helper()
	page := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(page, []byte("<!doctype html><meta charset=utf-8><style>"+sheetStyle+"</style>"+body), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := append(append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...),
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(760, 900), chromedp.UserDataDir(t.TempDir()))
	actx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	defer cancel()
	ctx, cancel := chromedp.NewContext(actx)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Navigate("file://"+page)); err != nil {
		t.Fatal(err)
	}
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o600); err != nil {
		t.Fatal(err)
	}
}

const sheetStyle = `
body { font: 15px/1.46 Lato, "Helvetica Neue", Arial, sans-serif; margin: 18px; width: 690px; color: #1d1c1d; }
section { border-bottom: 1px solid #ddd; padding: 12px 0; }
h3 { margin: 2px 0 4px; font-size: 18px; }
pre, code { font: 12px/1.5 Menlo, Consolas, "DejaVu Sans Mono", monospace; background: #f4f4f4; border: 1px solid #ddd; border-radius: 4px; }
pre { padding: 8px; margin: 6px 0; white-space: pre-wrap; overflow-wrap: anywhere; }
code { padding: 1px 3px; color: #c0143c; }
p { margin: 4px 0; white-space: pre-wrap; }
.small { color: #616061; font-size: 13px; display: flex; gap: 10px; flex-wrap: wrap; }
button { font: bold 14px/30px Lato, Arial, sans-serif; padding: 0 12px; margin: 6px 8px 0 0; border-radius: 4px; border: 1px solid #bbb; background: #fff; color: #1d1c1d; }
button.primary { background: #007a5a; color: #fff; border-color: #007a5a; }
button.danger { background: #e01e5a; color: #fff; border-color: #e01e5a; }
.plan { border: 1px solid #ddd; border-radius: 8px; padding: 6px 12px; margin: 6px 0; }
.field { border: 1px solid #bbb; border-radius: 4px; height: 32px; margin: 4px 0; }
body.discord { background: #313338; color: #dbdee1; }
.discord section { border-color: #444; }
.discord .embed { border-left: 4px solid #888; background: #2b2d31; border-radius: 4px; padding: 8px 14px; margin: 6px 0; max-width: 520px; }
.discord pre, .discord code { background: #1e1f22; border-color: #1e1f22; color: #dbdee1; }
.discord .small, .discord sub { color: #949ba4; font-size: 12px; }
.discord sub { vertical-align: baseline; }
.discord button { color: #fff; background: #4e5058; border: 0; border-radius: 3px; }
.discord .menu { background: #1e1f22; border-radius: 3px; color: #949ba4; display: flex; justify-content: space-between; line-height: 36px; margin-top: 6px; max-width: 400px; padding: 0 12px; }
.discord button.s3 { background: #248046; }
.discord button.s4 { background: #da373c; }
`

// block is a Slack block or an element of one, with what the renderer reads of it.
type block struct {
	Type      string          `json:"type"`
	Text      json.RawMessage `json:"text"`
	Elements  []block         `json:"elements"`
	Title     string          `json:"title"` // of a plan and its tasks
	Tasks     []block         `json:"tasks"`
	Status    string          `json:"status"`
	Label     *block          `json:"label"`
	Style     json.RawMessage `json:"style"`
	Format    string          `json:"format"`
	Timestamp int64           `json:"timestamp"`
}

// words are the text of a block, which is a text object in some and a string in others.
func (b block) words() string {
	var s string
	if json.Unmarshal(b.Text, &s) == nil {
		return s
	}
	var o block
	_ = json.Unmarshal(b.Text, &o)
	return o.words()
}

// drawnNow is the moment at which the pictures are taken.
var drawnNow = time.Date(2026, 1, 2, 3, 5, 45, 0, time.UTC)

// faraway says how far away a moment is, as both networks do.
func faraway(unix int64) string {
	now := drawnNow
	if time.Unix(unix, 0).Sub(now) > 24*time.Hour {
		now = time.Now() // a thread that was played
	}
	switch d := time.Unix(unix, 0).Sub(now); {
	case d > time.Minute:
		return fmt.Sprintf("in %d minutes", int(d.Minutes()))
	case d < -time.Minute:
		return fmt.Sprintf("%d minutes ago", int(-d.Minutes()))
	default:
		return fmt.Sprintf("%d seconds ago", int(-d.Seconds()))
	}
}

var slackDate = regexp.MustCompile(`&lt;!date\^(\d+)\^\{time\}\|[^&]*&gt;`)

func drawnBySlack(c chat.Card) (string, error) {
	raw, err := json.Marshal(blockkit.Card(c, blockkit.CardOptions{Thread: "1.1"}).Blocks)
	if err != nil {
		return "", err
	}
	var blocks []block
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, x := range blocks {
		if err := drawSlack(&b, x); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// drawSlack follows docs.slack.dev/reference/block-kit.
func drawSlack(b *strings.Builder, x block) error {
	inner := func(before, after string) error {
		b.WriteString(before)
		for _, e := range x.Elements {
			if err := drawSlack(b, e); err != nil {
				return err
			}
		}
		b.WriteString(after)
		return nil
	}
	switch x.Type {
	case "header":
		fmt.Fprintf(b, "<h3>%s</h3>", html.EscapeString(x.words()))
	case "context":
		return inner("<div class=small>", "</div>")
	case "plain_text":
		fmt.Fprintf(b, "<span>%s</span>", html.EscapeString(x.words()))
	case "mrkdwn":
		text := html.EscapeString(x.words())
		fmt.Fprintf(b, "<span>%s</span>", slackDate.ReplaceAllStringFunc(text, func(s string) string {
			unix, _ := strconv.ParseInt(slackDate.FindStringSubmatch(s)[1], 10, 64)
			return time.Unix(unix, 0).UTC().Format("3:04 PM")
		}))
	case "rich_text":
		return inner("", "")
	case "rich_text_section":
		return inner("<p>", "</p>")
	case "rich_text_preformatted":
		return inner("<pre>", "</pre>")
	case "plan":
		fmt.Fprintf(b, "<div class=plan><b>%s</b>", html.EscapeString(x.Title))
		for _, e := range x.Tasks {
			if err := drawSlack(b, e); err != nil {
				return err
			}
		}
		b.WriteString("</div>")
	case "task_card":
		mark := map[string]string{"pending": "○", "in_progress": "◔", "complete": "✓", "error": "✗"}[x.Status]
		fmt.Fprintf(b, "<p>%s %s</p>", mark, html.EscapeString(x.Title))
	case "user":
		b.WriteString("<b>@countersign</b>")
	case "date":
		b.WriteString(faraway(x.Timestamp))
	case "text":
		var style struct{ Bold, Code bool }
		_ = json.Unmarshal(x.Style, &style)
		s := html.EscapeString(x.words())
		if style.Code {
			s = "<code>" + s + "</code>"
		}
		if style.Bold {
			s = "<b>" + s + "</b>"
		}
		b.WriteString(s)
	case "actions":
		return inner("<div>", "</div>")
	case "input":
		fmt.Fprintf(b, "<div class=small>%s</div><div class=field></div>", html.EscapeString(x.Label.words()))
	case "button":
		style := ""
		_ = json.Unmarshal(x.Style, &style)
		fmt.Fprintf(b, "<button class=%q>%s</button>", style, html.EscapeString(x.words()))
	case "overflow":
		b.WriteString("<button>⋯</button>")
	default:
		return fmt.Errorf("a card has a block %q that the renderer does not know", x.Type)
	}
	return nil
}

func drawnByDiscord(c chat.Card) (string, error) {
	return drawDiscord(embed.Card(c, embed.Options{})), nil
}

func drawDiscord(m embed.Message) string {
	var b strings.Builder
	b.WriteString(discordText(m.Content))
	for _, e := range m.Embeds {
		fmt.Fprintf(&b, `<div class=embed style="border-color:#%06x">`, e.Color)
		if e.Title != "" {
			fmt.Fprintf(&b, "<b>%s</b>", discordText(e.Title))
		}
		b.WriteString(discordText(e.Description))
		for _, f := range e.Fields {
			fmt.Fprintf(&b, "<p><b>%s</b>\n%s</p>", discordText(f.Name), discordText(f.Value))
		}
		if e.Footer != nil {
			fmt.Fprintf(&b, "<p class=small>%s</p>", html.EscapeString(e.Footer.Text))
		}
		b.WriteString("</div>")
	}
	for _, row := range m.Components {
		b.WriteString("<div>")
		for _, x := range row.Components {
			if len(x.Options) > 0 {
				fmt.Fprintf(&b, "<div class=menu>%s<span>⌄</span></div>", html.EscapeString(x.Placeholder))
				continue
			}
			fmt.Fprintf(&b, "<button class=s%d>%s</button>", x.Style, html.EscapeString(x.Label))
		}
		b.WriteString("</div>")
	}
	return b.String()
}

var (
	discordFence = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	discordSpan  = regexp.MustCompile("`+([^`]+)`+")
	discordBold  = regexp.MustCompile(`\*\*(.+?)\*\*`)
	discordTime  = regexp.MustCompile(`&lt;t:(\d+):R&gt;`)
	discordSmall = regexp.MustCompile(`(?m)^-# (.*)$`)
	discordSlash = regexp.MustCompile(`\\([^\pL\pN\s])`)
)

// discordText draws what a card uses of Discord's markup
// (discord.com/developers/docs/reference#message-formatting).
func discordText(s string) string {
	var b strings.Builder
	for s != "" {
		at := discordFence.FindStringSubmatchIndex(s)
		if at == nil {
			at = []int{len(s), len(s), len(s), len(s)}
		}
		if text := strings.Trim(s[:at[0]], "\n"); text != "" {
			text = html.EscapeString(text)
			text = discordSpan.ReplaceAllString(text, "<code>$1</code>")
			text = discordBold.ReplaceAllString(text, "<b>$1</b>")
			text = discordTime.ReplaceAllStringFunc(text, func(m string) string {
				unix, _ := strconv.ParseInt(discordTime.FindStringSubmatch(m)[1], 10, 64)
				return faraway(unix)
			})
			text = discordSmall.ReplaceAllString(text, "<sub>$1</sub>")
			fmt.Fprintf(&b, "<p>%s</p>", discordSlash.ReplaceAllString(text, "$1"))
		}
		if at[2] < at[3] {
			fmt.Fprintf(&b, "<pre>%s</pre>", html.EscapeString(strings.Trim(s[at[2]:at[3]], "\n")))
		}
		s = s[at[1]:]
	}
	return b.String()
}
