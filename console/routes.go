package console

import (
	"maps"
	"net/http"
)

// endpoint is a request that somebody who is signed in may make.
type endpoint struct {
	pattern string
	exists  bool // there is what it is for
	needs   permission
	handle  handler
}

// openEndpoint is a request that anybody may make.
type openEndpoint struct {
	pattern string
	exists  bool
	handle  http.HandlerFunc
}

// routes makes what answers requests, and says who may make which. openapi.yaml describes them.
func (a *Adapter) routes(g ground, cfg Config, p *pages) http.Handler {
	d, in, notices := a.door, a.inbox, a.push
	threads := &conversations{ground: g, hub: a.hub, title: cfg.Title}
	stream := &events{ground: g, door: d, intake: a.intake, hub: a.hub, conversations: threads}
	downloads := &files{ground: g, door: d, intake: a.intake, recordings: cfg.Recordings, outputs: cfg.Outputs}
	panes := &terminals{ground: g, door: d, intake: a.intake, hub: a.hub, replicas: a.replicas, panes: cfg.Panes}
	links := &watchLinks{d.entry, d, panes, newBuckets(g.now, lookupsRate, lookupsBurst)}
	front := &firstPage{g, cfg.Desk}
	listing := &lists{g, cfg.Lists}
	programs := &calls{g, cfg.Calls}
	keys := &passkeys{ground: g, passkeys: cfg.Passkeys, sessions: d.sessions, title: cfg.Title}
	hasDesk, hasCalls, hasLists, hasPush, hasKeys := cfg.Desk != nil, cfg.Calls != nil, cfg.Lists != nil, cfg.Push != nil, cfg.Passkeys != nil
	has := map[string]any{
		"title": cfg.Title, "terminal": cfg.Panes != nil || cfg.Recordings != nil, "recordings": cfg.Recordings != nil, "links": cfg.WatchLinks,
		"home": hasDesk, "notifications": hasPush, "passkeys": hasKeys,
	}
	mux := http.NewServeMux()
	for _, r := range []endpoint{
		{"POST /api/logout", true, mayLeave, d.sessions.logout},
		{"POST /api/logout-everywhere", true, mayLeave, personally(d.sessions.logoutEverywhere)},
		{"GET /api/sessions", true, mayLeave, personally(d.sessions.list)},
		{"POST /api/sessions/{id}/end", true, mayLeave, personally(d.sessions.endOne)},
		{"GET /api/me", true, mayRead, me(d.guard, has, listing)},
		{"GET /api/tokens", true, mayWrite, d.tokens.list},
		{"POST /api/tokens", true, mayWrite, d.tokens.create},
		{"POST /api/tokens/{token}/end", true, mayWrite, d.tokens.endOne},
		{"GET /api/passkeys", hasKeys, mayKeys, keys.list},
		{"POST /api/passkeys", hasKeys, mayKeys, keys.add},
		{"POST /api/passkeys/begin", hasKeys, mayKeys, keys.begin},
		{"POST /api/passkeys/{id}/ask", hasKeys, mayKeys, keys.ask},
		{"POST /api/passkeys/{id}/confirm", hasKeys, mayKeys, keys.confirm},
		{"POST /api/passkeys/{id}/end", hasKeys, mayKeys, keys.end},

		{"GET /api/home", hasDesk, mayRead, front.read},
		{"GET /api/threads", true, mayRead, threads.readList},
		{"POST /api/threads", true, mayWrite, in.startThread},
		{"GET /api/threads/{id}", true, mayRead, threads.read},
		{"POST /api/threads/{id}/messages", true, mayWrite, in.say},
		{"POST /api/threads/{id}/mark", true, mayWrite, threads.mark},
		{"POST /api/threads/{id}/arrange", true, mayWrite, threads.arrange},
		{"POST /api/threads/{id}/clicks", true, mayDecide, in.press},
		{"GET /api/threads/{id}/events", true, mayRead, stream.serve},

		{"GET /api/threads/{id}/panes", true, mayRead, g.inThread(panes.list)},
		{"GET /api/panes/{id}/live", true, mayRead, panes.live},
		{"GET /api/threads/{id}/recordings", true, mayRead, g.inThread(downloads.listRecordings)},
		{"GET /api/threads/{id}/recordings/{rec}", true, mayRead, g.inThread(downloads.readRecording)},
		{"GET /api/threads/{id}/outputs/{out}", true, mayRead, g.inThread(downloads.readOutput)},
		{"GET /api/threads/{id}/links", cfg.WatchLinks, mayRead, g.inThread(links.list)},
		{"POST /api/threads/{id}/links", cfg.WatchLinks, mayShare, g.inThread(links.create)},
		{"POST /api/threads/{id}/links/{link}/end", cfg.WatchLinks, mayShare, g.inThread(links.end)},

		{"GET /api/threads/{id}/exec", hasCalls, mayRead, g.inThread(programs.last)},
		{"GET /api/tools", hasCalls, mayWrite, programs.tools},
		{"POST /api/calls", hasCalls, mayWrite, programs.ask},
		{"GET /api/calls", hasCalls, mayWrite, programs.list},
		{"GET /api/calls/{id}", hasCalls, mayWrite, programs.read},
		{"GET /api/calls/{id}/output", hasCalls, mayWrite, programs.follow},
		{"POST /api/calls/{id}/withdraw", hasCalls, mayWrite, programs.withdraw},
		{"GET /api/lists/{id}", hasLists, mayWrite, listing.read},
		{"POST /api/lists/{id}", hasLists, mayWrite, listing.ask},
		{"POST /api/lists/{id}/act", hasLists, mayWrite, listing.act},
		{"GET /api/notifications", hasPush, mayWrite, notices.list},
		{"POST /api/notifications/wishes", hasPush, mayWrite, notices.setWishes},
		{"POST /api/notifications/devices", hasPush, mayWrite, notices.addDevice},
		{"POST /api/notifications/devices/{id}/end", hasPush, mayWrite, notices.endDevice},
	} {
		if r.exists {
			mux.Handle(r.pattern, d.signed(r.needs, r.handle))
		}
	}
	for _, r := range []openEndpoint{
		{"POST /api/login", true, g.answered(d.codes.login)},
		{"POST /api/login/begin", d.sessions.keys != nil, g.answered(d.codes.beginLogin)},
		{"POST /api/identity", cfg.Identities != nil, g.answered(d.identities.exchange)},
		{"GET " + MetadataPath, cfg.Identities != nil && cfg.Identities.Issuer() != "", g.answered(d.identities.metadata)},
		{"POST /api/operator/tokens", true, g.answered(d.tokens.operate)},
		{"GET /oidc/start", cfg.OIDC != nil, d.provider.start},
		{"GET " + oidcCallback, cfg.OIDC != nil, d.provider.finish},
		{"POST /api/watch", cfg.WatchLinks, g.answered(links.info)},
		{"GET /api/watch/live", cfg.WatchLinks, g.answered(links.live)},
		{"/api/", true, g.answered(func(http.ResponseWriter, *http.Request) error { return refuse(http.StatusNotFound, sayReload) })},
		{"/", true, p.serve},
	} {
		if r.exists {
			mux.HandleFunc(r.pattern, r.handle)
		}
	}
	return d.guard.wrap(mux)
}

// me tells the page who reads it, and what there is.
func me(g *guard, has map[string]any, ls *lists) handler {
	return func(w http.ResponseWriter, _ *http.Request, s session) error {
		role, why := "member", ""
		if !s.may(mayWrite) {
			role, why = "viewer", sayViewer
		}
		out := map[string]any{
			"user": userID(s.user), "name": s.user, "csrf": g.csrf(s), "role": role, "why": why, "how": s.how, "since": s.begun,
			"lists": ls.names(), "invited": s.invited,
		}
		maps.Copy(out, has)
		return answer(w, http.StatusOK, out)
	}
}
