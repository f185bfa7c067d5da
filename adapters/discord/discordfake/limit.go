package discordfake

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limit is a bucket: N requests in each window of Per.
type Limit struct {
	N   int
	Per time.Duration
}

// globalLimit is the number of requests in a second (docs: "Rate Limits").
const globalLimit = 50

// DefaultLimits returns the buckets of a server that enforces limits. Discord publishes none of them and says not to rely on any;
// these are what bots see in the headers, about: five messages in five seconds in a channel, and so on.
func DefaultLimits(name string) Limit {
	switch name {
	case "POST /channels/{channel_id}/messages", "PATCH /channels/{channel_id}/messages/{message_id}",
		"GET /channels/{channel_id}/messages", "POST /channels/{channel_id}/typing":
		return Limit{5, 5 * time.Second}
	case "DELETE /channels/{channel_id}/messages/{message_id}":
		return Limit{5, time.Second}
	case "PATCH /channels/{channel_id}":
		// Renaming and archiving are said to be held much harder; the headers show this.
		return Limit{5, 15 * time.Second}
	case "POST /webhooks/{webhook_id}/{webhook_token}":
		return Limit{5, 2 * time.Second}
	default:
		return Limit{10, 10 * time.Second}
	}
}

type bucket struct {
	left  int
	reset time.Time
}

// take uses one request up. It returns what is left, and whether there was one.
func (b *bucket) take(l Limit, now time.Time) bool {
	if !now.Before(b.reset) {
		b.left, b.reset = l.N, now.Add(l.Per)
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

// limit counts a request and returns the headers of its bucket, and a 429 when there is nothing left. A bucket is of a route and of
// its channel, guild or webhook (docs: "Rate Limits"). The caller holds mu.
func (s *Server) limit(rt route, r *request) (http.Header, *reply) {
	if !s.cfg.RateLimits {
		return nil, nil
	}
	now, name := s.now(), r.route
	if !rt.interaction {
		if s.global == nil {
			s.global = &bucket{}
		}
		if !s.global.take(Limit{globalLimit, time.Second}, now) {
			rep := tooMany(s.global.reset.Sub(now), "global", 0)
			return nil, &rep
		}
	}
	l, has := s.cfg.Limits[name]
	if !has {
		l = DefaultLimits(name)
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:8])
	key := strings.Join([]string{id, r.params["channel_id"], r.params["guild_id"], r.params["webhook_id"], r.params["webhook_token"], r.params["interaction_token"]}, "/")
	b := s.buckets[key]
	if b == nil {
		b = &bucket{}
		s.buckets[key] = b
	}
	free := b.take(l, now)
	wait := b.reset.Sub(now)
	h := http.Header{}
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.N))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(b.left))
	h.Set("X-RateLimit-Reset", strconv.FormatFloat(float64(b.reset.UnixMilli())/1000, 'f', 3, 64))
	h.Set("X-RateLimit-Reset-After", strconv.FormatFloat(until(wait), 'f', 3, 64))
	h.Set("X-RateLimit-Bucket", id)
	if free {
		return h, nil
	}
	rep := tooMany(wait, "user", 0)
	maps.Copy(rep.header, h)
	return h, &rep
}
