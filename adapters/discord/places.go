package discord

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/discord/gateway"
)

// place is what a channel is. Events name only its id.
type place struct {
	guild  string // "" for direct messages
	parent string // of a thread; "" for other channels
	name   string
	direct bool
	// private is a thread that only those see who are in it.
	private bool
}

// thread is the conversation that goes on in a place.
func (p place) thread(channel string) thread {
	switch {
	case p.direct:
		return thread{direct, channel, channel}
	case p.parent != "":
		return thread{p.guild, p.parent, channel}
	}
	return thread{p.guild, channel, channel}
}

// maxPlaces bounds how many channels are remembered; others are asked for.
const maxPlaces = 8192

// placeTimeout bounds the question what a channel is: a press of a button waits
// for it.
const placeTimeout = 1200 * time.Millisecond

// places knows the channels that Discord told of.
type places struct {
	mu  sync.Mutex
	all map[string]place
}

func (p *places) get(id string) (place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.all[id]
	return at, ok
}

func (p *places) put(id string, at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= maxPlaces {
		p.all = map[string]place{}
	}
	p.all[id] = at
}

// direct are the direct channels among them, the newest first.
func (p *places) direct() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for id, at := range p.all {
		if at.direct {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return created(b).Compare(created(a)) })
	return ids
}

func (p *places) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, id)
}

// learn remembers a channel of Discord's; guild is used where it names none.
func (p *places) learn(c *discordgo.Channel, guild string) place {
	at := place{guild: orElse(c.GuildID, guild), name: c.Name}
	switch {
	case c.Type == discordgo.ChannelTypeDM, c.Type == discordgo.ChannelTypeGroupDM:
		at = place{direct: true}
	case c.IsThread():
		at.parent, at.private = c.ParentID, c.Type == discordgo.ChannelTypeGuildPrivateThread
	}
	p.put(c.ID, at)
	return at
}

// place says what a channel is, and asks Discord where that is not known.
func (a *Adapter) place(ctx context.Context, channel string) (place, error) {
	if at, ok := a.places.get(channel); ok {
		return at, nil
	}
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	c, err := a.rest.Channel(ctx, channel)
	if err != nil {
		return place{}, err
	}
	return a.places.learn(c, ""), nil
}

// people knows who somebody is in a guild, where an event does not say.
type people struct {
	rest *gateway.REST
	now  func() time.Time

	mu  sync.Mutex
	all map[string]looked
}

type looked struct {
	member *discordgo.Member
	at     time.Time
}

const (
	// maxAge bounds how old somebody's membership may be when it counts.
	maxAge = time.Minute
	// memberTimeout bounds one look-up: a press of a button waits for it.
	memberTimeout = 1200 * time.Millisecond
	maxPeople     = 4096
)

// member looks somebody up in a guild. nil means that they are not in it, or that
// nobody can tell.
func (p *people) member(ctx context.Context, guild, user string) *discordgo.Member {
	key := guild + "/" + user
	p.mu.Lock()
	l, ok := p.all[key]
	p.mu.Unlock()
	if ok && p.now().Sub(l.at) < maxAge {
		return l.member
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	at := p.now()
	m, err := p.rest.Member(ctx, guild, user)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= maxPeople {
		p.all = map[string]looked{}
	}
	p.all[key] = looked{m, at}
	return m
}
