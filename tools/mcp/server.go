package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/store"
	"countersign/tools/foreign"
)

// server is one server of a host. run owns its connection; the fields from state on are guarded by
// the host's mutex.
type server struct {
	host    *Host
	name    string
	cfg     Server
	argv    []string // or
	url     *url.URL
	headers *headers
	dir     string
	log     *foreign.Journal // logs its stderr

	state   string // why there is no connection, as the end of a sentence about the server
	link    *connection
	pins    map[string]pin
	listed  map[string]bool      // what the server has now; nil before it was asked
	notes   []string             // about the last list
	refused []string             // about tools that cannot be offered
	built   map[string]builtTool // by the server's tool names
}

// builtTool is a tool made from a definition, or the error that prevented it.
type builtTool struct {
	hash string
	tool *tool
	err  error
}

func (s *server) allowed(tool string) bool {
	return s.cfg.AllowAll || slices.Contains(s.cfg.Allow, tool)
}

// run keeps the server connected until ctx ends. ready is called after the first attempt.
func (s *server) run(ctx context.Context, ready func()) {
	defer ready()
	var (
		tries foreign.Restarts
		old   bool
	)
	for {
		err := s.connectOnce(ctx, old, ready)
		if ctx.Err() != nil {
			s.setDown("is not connected, because the bot is going away")
			return
		}
		// A server that did not answer may not understand the newest protocol.
		old = !old && errors.Is(err, context.DeadlineExceeded)
		pause, slow := s.host.timing.restartPause(&tries, time.Now())
		why := foreign.Line(s.host.redact(err.Error()), 300)
		text := fmt.Sprintf("is not connected (%s); it is tried again in %s", why, pause)
		if slow {
			text = fmt.Sprintf("is not connected (%s); it ended more than %d times in %s, so from now on it is only tried again after %s", why,
				foreign.Tries, foreign.Window, pause)
		}
		s.setDown(text)
		s.host.cfg.Log.Warn("an MCP server is not connected", "server", s.name, "error", why, "again_in", pause, "often", slow)
		ready()
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// connectOnce connects and returns when the connection has ended.
func (s *server) connectOnce(ctx context.Context, old bool, ready func()) error {
	begin, cancel := context.WithTimeout(ctx, s.host.timing.connect)
	l, err := s.dial(begin, old)
	cancel()
	if err != nil {
		return err
	}
	defer l.close()
	defer s.setDown("is not connected any more")
	if err := s.relist(ctx, l); err != nil {
		return err
	}
	s.host.cfg.Log.Info("an MCP server is connected", "server", s.name)
	ready()
	last := time.Now()
	again := time.NewTicker(s.host.timing.relistEvery)
	defer again.Stop()
	soon := time.NewTimer(s.host.timing.minRelist)
	soon.Stop()
	defer soon.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.done:
			return fmt.Errorf("the connection ended: %w", l.err)
		case <-l.changed:
			// Delayed: a server that announces changes all the time is asked at a bounded rate.
			soon.Reset(time.Until(last.Add(s.host.timing.minRelist)))
			continue
		case <-soon.C:
		case <-again.C:
		}
		if err := s.relist(ctx, l); err != nil {
			return err
		}
		last = time.Now()
	}
}

func (s *server) setDown(state string) {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	s.link, s.state = nil, state
}

// relist requests the tools, compares them with the pins, and updates the offer.
func (s *server) relist(ctx context.Context, l *connection) error {
	limit, cancel := context.WithTimeout(ctx, s.host.timing.connect)
	defer cancel()
	all, err := l.list(limit)
	if err != nil {
		return err
	}
	list, listed, notes := s.filterTools(all)
	var (
		rows    map[string]pin
		refused map[string]string
	)
	err = s.host.cfg.DB.Update(ctx, func(tx store.Tx) error {
		rows, refused = updatePins(tx, s.name, list, s.host.cfg.Now())
		return nil
	})
	if err != nil {
		return fmt.Errorf("its tools could not be compared with the pinned ones: %w", err)
	}
	for _, n := range slices.Sorted(maps.Keys(refused)) {
		notes = append(notes, fmt.Sprintf("the tool %s of the MCP server %s is not offered: %s", foreign.Quote(n), s.name, refused[n]))
	}
	s.host.mu.Lock()
	for tool, p := range rows {
		if was := s.pins[tool]; p.Change != nil && (was.Change == nil || was.Change.Hash != p.Change.Hash) && s.allowed(tool) {
			s.host.cfg.Log.Warn("a tool of an MCP server changed and is switched off", "server", s.name, "tool", foreign.Line(tool, 100), "was",
				p.Def.Hash, "is", p.Change.Hash)
		}
	}
	s.pins, s.listed, s.notes, s.link, s.state = rows, listed, notes, l, ""
	s.host.mu.Unlock()
	s.host.refreshOffer()
	return nil
}

// filterTools returns the allowed tools of a list, and notes about the others.
func (s *server) filterTools(all []*sdk.Tool) (list []listedTool, listed map[string]bool, notes []string) {
	listed = map[string]bool{}
	count, twice := map[string]int{}, map[string]bool{}
	for _, t := range all {
		count[t.Name]++
	}
	var others []string
	slices.SortStableFunc(all, func(a, b *sdk.Tool) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range all {
		note := func(why string) {
			notes = append(notes, fmt.Sprintf("the tool %s of the MCP server %s is not offered: %s", foreign.Quote(t.Name), s.name, why))
		}
		switch {
		case count[t.Name] > 1:
			if !twice[t.Name] && s.allowed(t.Name) {
				note("the server lists it more than once")
			}
			twice[t.Name] = true
			continue
		case !s.allowed(t.Name):
			others = append(others, t.Name)
			continue
		case t.Name == "" || len(t.Name) > 128 || !foreign.IsVisible(t.Name):
			note("its name is empty, too long, or holds invisible characters")
			continue
		}
		def, err := definition(t)
		if err != nil {
			note(err.Error())
			continue
		}
		listed[t.Name] = true
		list = append(list, listedTool{t.Name, def})
	}
	if len(list) == 0 && len(others) > 0 {
		notes = append(notes, fmt.Sprintf("no tool of the MCP server %s is allowed; it has %s", s.name, foreign.Line(strings.Join(others, ", "), 500)))
	}
	for _, n := range s.cfg.Allow {
		if !listed[n] && count[n] == 0 {
			notes = append(notes, fmt.Sprintf("the MCP server %s has no tool %s, which is allowed; check how it is written", s.name, foreign.Quote(n)))
		}
	}
	return list, listed, notes
}

// offer returns the tools that may be offered, sorted by name, and notes about the others. The
// caller must hold the host's mutex.
func (s *server) offer() (out []*tool, notes []string) {
	for _, name := range slices.Sorted(maps.Keys(s.pins)) {
		p := s.pins[name]
		if s.blockReason(p) != "" {
			continue
		}
		m, known := s.built[name]
		if !known || m.hash != p.Def.Hash {
			m = builtTool{hash: p.Def.Hash}
			m.tool, m.err = newTool(s, p)
			s.built[name] = m
		}
		if m.err != nil {
			notes = append(notes, fmt.Sprintf("the tool %s of the MCP server %s is not offered: %s", foreign.Quote(name), s.name, foreign.Line(m.err.Error(), 300)))
			continue
		}
		out = append(out, m.tool)
	}
	slices.SortFunc(out, func(a, b *tool) int { return strings.Compare(a.spec.Name, b.spec.Name) })
	return out, notes
}

// blockReason returns why a pinned tool may not be used now, or "". The caller must hold the host's
// mutex.
func (s *server) blockReason(p pin) string {
	now, ok := s.pins[p.Tool]
	switch {
	case !ok || !s.allowed(p.Tool):
		return fmt.Sprintf("the tool %s of the MCP server %s is not allowed by the configuration", foreign.Quote(p.Tool), s.name)
	case now.Change != nil:
		return changed(s.name, p.Tool, p.Name)
	case now.Def.Hash != p.Def.Hash:
		return fmt.Sprintf("the tool %s of the MCP server %s is another one by now; look at what it says of itself and call it again", foreign.Quote(p.Tool), s.name)
	case s.listed != nil && !s.listed[p.Tool]:
		return fmt.Sprintf("the MCP server %s does not have the tool %s any more", s.name, foreign.Quote(p.Tool))
	}
	return ""
}

// notices returns the sentences of [Host.Notices]. The caller must hold the host's mutex.
func (s *server) notices() []string {
	var out []string
	if s.state != "" {
		out = append(out, fmt.Sprintf("the MCP server %s %s", s.name, s.state))
	}
	for _, name := range slices.Sorted(maps.Keys(s.pins)) {
		if s.pins[name].Change != nil && s.allowed(name) {
			out = append(out, changed(s.name, name, s.pins[name].Name))
		}
	}
	return slices.Concat(out, s.notes, s.refused)
}
