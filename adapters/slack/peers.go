package slack

import (
	"encoding/json"
	"strings"
	"time"
)

// Peers are the other replicas of this bot. Its methods are safe for concurrent use.
type Peers interface {
	// Publish has what own returns carried to the others about once a second. own is quick.
	Publish(topic string, own func() json.RawMessage)
	// Published calls each with what the living others published last, and with when that
	// was read.
	Published(topic string, each func(words json.RawMessage, read time.Time))
}

const (
	// peersLag is how long a call may be unknown to the others: a beat, and until it is read.
	peersLag = 2 * time.Second
	// peersEvery is how often what they published is looked at.
	peersEvery = 500 * time.Millisecond
	// ageStep is how exactly the age of a call is told.
	ageStep = 5 * time.Second
)

// use is what a replica tells of a method, or of a method in a channel. It holds no time of
// day: no two clocks are compared.
type use struct {
	// Ages counts the calls of the last minute by their age, in steps.
	Ages [time.Minute / ageStep]int `json:"ages"`
	// Rest is how much longer Slack wants to be left alone, in milliseconds.
	Rest int64 `json:"rest,omitempty"`
}

// peers is what a pacer knows of other replicas. The pacer's mutex guards it.
type peers struct {
	from   Peers
	topic  string // of what replicas tell each other of their calls, since Slack counts those of the whole app
	looked time.Time
	n      int                  // how many there are
	rests  map[string]time.Time // by lane
}

// share has the pacer heed the calls that other replicas make.
func (p *pacer) share(from Peers, topic string) {
	p.mu.Lock()
	p.peers = &peers{from: from, topic: topic, rests: map[string]time.Time{}}
	p.mu.Unlock()
	from.Publish(topic, p.publish)
}

// publish tells of the calls of this process.
func (p *pacer) publish() json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	all := map[string]use{}
	for name, m := range p.methods {
		m.forget(now)
		u := use{Rest: left(m.refused, now)}
		for _, at := range m.used {
			u.Ages[min(int(now.Sub(at)/ageStep), len(u.Ages)-1)]++
		}
		all[name] = u
	}
	for key, l := range p.lanes {
		if rest := left(l.refused, now); rest > 0 {
			all[key] = use{Rest: rest}
		}
	}
	raw, _ := json.Marshal(all) // numbers by name
	return raw
}

func left(until, now time.Time) int64 { return max(0, until.Sub(now).Milliseconds()) }

// hear takes notice of what the others published; p.mu is held.
func (p *pacer) hear(now time.Time) {
	if p.peers == nil || now.Sub(p.peers.looked) < peersEvery {
		return
	}
	known := p.peers
	known.looked, known.n, known.rests = now, 0, map[string]time.Time{}
	for _, m := range p.methods {
		m.theirs = 0
	}
	known.from.Published(known.topic, func(words json.RawMessage, read time.Time) {
		var all map[string]use
		if json.Unmarshal(words, &all) != nil {
			return // of a version that says it in another way
		}
		known.n++
		for key, u := range all {
			until := read.Add(time.Duration(u.Rest) * time.Millisecond)
			if strings.Contains(key, "/") {
				known.rests[key] = until
				if l := p.lanes[key]; l != nil {
					l.hold(until)
				}
				continue
			}
			m := p.method(key)
			for i, n := range u.Ages {
				if time.Duration(i)*ageStep+now.Sub(read) < time.Minute {
					m.theirs += n
				}
			}
			if u.Rest > 0 {
				m.hold(until)
			}
		}
	})
	for _, m := range p.methods {
		m.replicas = known.n
	}
}
