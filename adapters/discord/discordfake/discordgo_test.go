package discordfake

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"
)

// toFake sends what is meant for Discord to the fake: discordgo has no setting for another address.
type toFake struct{ s *Server }

func (f toFake) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = f.s.Host().Scheme, f.s.Host().Host, ""
	return http.DefaultTransport.RoundTrip(r)
}

// TestDiscordGo lets the library that the adapter's gateway uses log in, speak version 9, ask for payload compression, answer a
// press and resume.
func TestDiscordGo(t *testing.T) {
	p := play(t, Config{Privileged: IntentMessageContent, RateLimits: true})
	d, err := discordgo.New("Bot token")
	mustDo(t, err)
	d.Client = &http.Client{Transport: toFake{p.Server}}
	d.Identify.Intents = discordgo.IntentsGuilds | discordgo.IntentsGuildMessages | discordgo.IntentsMessageContent
	messages, resumed := make(chan *discordgo.MessageCreate, 100), make(chan bool, 1)
	d.AddHandler(func(_ *discordgo.Session, m *discordgo.MessageCreate) {
		// The first message of a thread points to the one in the parent. It is of the person, and empty.
		if m.Author != nil && !m.Author.Bot && m.Type != MessageThreadStarter {
			messages <- m
		}
	})
	d.AddHandler(func(*discordgo.Session, *discordgo.Resumed) { resumed <- true })
	d.AddHandler(func(s *discordgo.Session, i *discordgo.InteractionCreate) {
		_ = s.InteractionRespond(i.Interaction, &discordgo.InteractionResponse{
			Type: discordgo.InteractionResponseUpdateMessage,
			Data: &discordgo.InteractionResponseData{Content: "Approved by " + i.Member.User.Username, Components: []discordgo.MessageComponent{}},
		})
	})
	mustDo(t, d.Open())
	defer func() { _ = d.Close() }()
	mustDo(t, p.WaitOnline(p.ctx, 1))
	next := func() *discordgo.MessageCreate {
		select {
		case m := <-messages:
			return m
		case <-p.ctx.Done():
			t.Fatal("no message came")
			return nil
		}
	}
	must2(t)(p.Say(p.ann, p.ch, "restart web?"))
	m := next()
	if m.Content != "restart web?" || m.Member == nil || m.GuildID != p.guild {
		t.Errorf("the message is %+v", m.Message)
	}
	th, err := d.MessageThreadStart(p.ch, m.ID, "restart", 1440)
	mustDo(t, err)
	posted, err := d.ChannelMessageSendComplex(th.ID, &discordgo.MessageSend{
		Content:         "Approve?",
		AllowedMentions: &discordgo.MessageAllowedMentions{Parse: []discordgo.AllowedMentionType{}},
		Components: []discordgo.MessageComponent{discordgo.ActionsRow{Components: []discordgo.MessageComponent{
			discordgo.Button{CustomID: "yes", Label: "Approve", Style: discordgo.SuccessButton},
		}}},
		Files: []*discordgo.File{{Name: "plan.txt", Reader: strings.NewReader("the plan")}},
	})
	mustDo(t, err)
	r, err := p.Press(p.ctx, p.ann, th.ID, posted.ID, "yes")
	if err != nil || r.Message.Content != "Approved by ann" || r.Message.Buttons() != nil {
		t.Errorf("the person sees %+v, %v", r.Message, err)
	}
	_, err = d.ChannelMessageEdit(th.ID, posted.ID, "Done")
	mustDo(t, err)
	_, err = d.ApplicationCommandBulkOverwrite(p.AppID(), p.guild, []*discordgo.ApplicationCommand{{Name: "ops", Description: "Operations"}})
	mustDo(t, err)
	p.DropConnections(0)
	select {
	case <-resumed:
	case <-time.After(15 * time.Second):
		t.Fatal("no resume")
	}
	must2(t)(p.Say(p.ann, p.ch, "after"))
	if m := next(); m.Content != "after" {
		t.Errorf("the message is %+v", m.Message)
	}
	if p.Identifies() != 1 || p.Resumes() != 1 {
		t.Errorf("%d identifies, %d resumes", p.Identifies(), p.Resumes())
	}
}
