package console

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"countersign/console"
	"countersign/console/oidc"
)

// Files of the data directory with what doctor shows: it reads them while a bot has the store.
const (
	sampleName   = "sign-in.json"
	problemsName = "notifications.json"
)

// keep replaces a file of the data directory.
func keep(dataDir, name string, v any, log *slog.Logger) {
	path := filepath.Join(dataDir, name)
	raw, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path+".part", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		log.Warn("a note for doctor can't be kept", "file", path, "error", err)
	}
}

func kept(dataDir, name string, v any) bool {
	raw, err := os.ReadFile(filepath.Join(dataDir, name))
	return err == nil && json.Unmarshal(raw, v) == nil
}

// keepSample keeps each sample in place of the one before; nil without a directory.
func keepSample(dataDir string, log *slog.Logger) func(oidc.Sample) {
	if dataDir == "" {
		return nil
	}
	var mu sync.Mutex
	return func(s oidc.Sample) {
		mu.Lock()
		defer mu.Unlock()
		keep(dataDir, sampleName, s, log)
	}
}

// Why is the reason of an error of the identity provider's client for who sets the console up; its text is for the
// person who signs in.
func Why(err error) string { return oidc.Why(err) }

// LastSignIn is what the last sign-in through the identity provider brought; false if there was none.
func LastSignIn(dataDir string) (s oidc.Sample, ok bool) {
	ok = kept(dataDir, sampleName, &s)
	return s, ok
}

// keepProblems keeps which browsers get no notifications; nil without a directory.
func keepProblems(dataDir string, log *slog.Logger) func(console.PushProblem) {
	if dataDir == "" {
		return nil
	}
	var mu sync.Mutex
	return func(p console.PushProblem) {
		mu.Lock()
		defer mu.Unlock()
		all := map[string]console.PushProblem{}
		kept(dataDir, problemsName, &all)
		if p.Problem == "" {
			delete(all, p.Device)
		} else {
			all[p.Device] = p
		}
		keep(dataDir, problemsName, all, log)
	}
}

// PushProblems are the browsers that get no notifications.
func PushProblems(dataDir string) []console.PushProblem {
	all := map[string]console.PushProblem{}
	kept(dataDir, problemsName, &all)
	return slices.SortedFunc(maps.Values(all), func(a, b console.PushProblem) int { return strings.Compare(a.Device, b.Device) })
}

// isPublic reports whether an origin looks like one of the internet: Apple's push service refuses others.
func isPublic(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "https" {
		return false
	}
	host := strings.ToLower(u.Hostname())
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	private := []string{"localhost", "local", "internal", "invalid", "test", "lan", "home", "corp", "intranet", "arpa"}
	return strings.Contains(host, ".") && !slices.Contains(private, host[strings.LastIndexByte(host, '.')+1:])
}
