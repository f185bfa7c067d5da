package slack

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	slackapi "github.com/slack-go/slack"
)

// maxAge bounds how old a person's standing and groups may be when they vote.
const maxAge = 60 * time.Second

// lookTimeout bounds one look-up: a click has to be answered within 3 s.
const lookTimeout = 1500 * time.Millisecond

// people knows who somebody is: their standing, and the user groups that count
// for approvals. Failure means not eligible; nothing older than [maxAge] counts.
type people struct {
	api    *slackapi.Client
	team   func() string
	groups func() []string // the user groups that the configuration names now
	now    func() time.Time

	flight singleflight.Group
	late   sync.WaitGroup // look-ups that nobody waits for any more
	mu     sync.Mutex
	users  map[string]cached[standing]
	sets   map[string]cached[map[string]bool]
}

type cached[T any] struct {
	value T
	at    time.Time
}

// standing is what Slack says of a user.
type standing struct {
	name    string
	outside bool // guest, other organisation, deleted, or not known
	foreign bool // other organisation, for sure
	bot     bool
}

func newPeople(api *slackapi.Client, team func() string, groups func() []string, now func() time.Time) *people {
	return &people{
		api: api, team: team, groups: groups, now: now,
		users: map[string]cached[standing]{}, sets: map[string]cached[map[string]bool]{},
	}
}

// who looks a user up. A user who cannot be looked up is an outsider.
func (p *people) who(ctx context.Context, user string) standing {
	p.mu.Lock()
	c, ok := p.users[user]
	p.mu.Unlock()
	if ok && p.now().Sub(c.at) < maxAge {
		return c.value
	}
	v, err, _ := p.flight.Do("u/"+user, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		at := p.now()
		u, err := p.api.GetUserInfoContext(ctx, user)
		if err != nil {
			return standing{}, err
		}
		s := standing{name: u.Profile.DisplayName, bot: u.IsBot}
		if s.name == "" {
			s.name = u.RealName
		}
		if s.name == "" {
			s.name = u.Name
		}
		team := p.team()
		s.foreign = u.IsStranger || (u.TeamID != "" && team != "" && u.TeamID != team)
		s.outside = u.Deleted || u.IsRestricted || u.IsUltraRestricted || s.foreign
		p.mu.Lock()
		p.users[user] = cached[standing]{s, at}
		p.mu.Unlock()
		return s, nil
	})
	if err != nil {
		return standing{outside: true}
	}
	s, _ := v.(standing)
	return s
}

// nameTimeout bounds how long a message waits for its writer's name.
const (
	nameTimeout = 300 * time.Millisecond
	nameAge     = time.Hour
)

// name is how a person is called, for display only; the id where Slack does not
// say in time.
func (p *people) name(ctx context.Context, user string) string {
	p.mu.Lock()
	c, ok := p.users[user]
	p.mu.Unlock()
	if ok && p.now().Sub(c.at) < nameAge {
		return c.value.name
	}
	found := make(chan string, 1)
	p.late.Go(func() { found <- p.who(context.WithoutCancel(ctx), user).name }) // ends within lookTimeout
	t := time.NewTimer(nameTimeout)
	defer t.Stop()
	select {
	case n := <-found:
		if n != "" {
			return n
		}
	case <-t.C:
	case <-ctx.Done():
	}
	return user
}

// wait returns when no look-up runs any more.
func (p *people) wait() { p.late.Wait() }

// groupsOf lists the configured user groups that the user is in now. A group
// that cannot be looked up does not count.
func (p *people) groupsOf(ctx context.Context, user string) []string {
	var out []string
	groups := p.groups()
	in := make([]bool, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() { in[i] = p.members(ctx, g)[user] })
	}
	wg.Wait()
	for i, g := range groups {
		if in[i] {
			out = append(out, g)
		}
	}
	return out
}

func (p *people) members(ctx context.Context, group string) map[string]bool {
	p.mu.Lock()
	c, ok := p.sets[group]
	p.mu.Unlock()
	if ok && p.now().Sub(c.at) < maxAge {
		return c.value
	}
	v, err, _ := p.flight.Do("g/"+group, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		at := p.now()
		list, err := p.api.GetUserGroupMembersContext(ctx, group)
		if err != nil {
			return map[string]bool(nil), err
		}
		set := make(map[string]bool, len(list))
		for _, u := range list {
			set[u] = true
		}
		p.mu.Lock()
		p.sets[group] = cached[map[string]bool]{set, at}
		p.mu.Unlock()
		return set, nil
	})
	if err != nil {
		return nil
	}
	set, _ := v.(map[string]bool)
	return set
}
