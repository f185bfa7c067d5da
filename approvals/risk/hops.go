package risk

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxAllowed is the largest number of places an extension may list.
const maxAllowed = 500

// hopKinds maps the kinds of places beside the target to how a sentence names one.
var hopKinds = map[string]string{
	"ssh":     "it reaches %s over ssh, which is not a target that you may use here",
	"docker":  "it reaches the container %s over docker, which is not a place that you may use here",
	"podman":  "it reaches the container %s over podman, which is not a place that you may use here",
	"nerdctl": "it reaches the container %s over nerdctl, which is not a place that you may use here",
	"kubectl": "it reaches the pod %s over kubectl, which is not a place that you may use here",
	"context": "it reaches %s, a context or cluster that you may not use here",
	"profile": "it reaches %s, a profile or account that you may not use here",
	"engine":  "it reaches the engine at %s, which is not a place that you may use here",
	"service": "it reaches a service on %s, which is not a host that you may use here",
}

// addHop records a place beside the target, and adds an issue if the requester may not use it.
func (j *judge) addHop(kind, name string) {
	h := Hop{Kind: kind, Name: name}
	if slices.Contains(j.hops, h) {
		return
	}
	j.hops = append(j.hops, h)
	if j.remote {
		j.addPlaceIssue(Medium, EffectEgress, "it goes on from the other end to %s, and names may mean something else there", name)
		return
	}
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, " \t\n") {
		j.add(Medium, EffectEgress, "it reaches a place whose name can't be read")
		return
	}
	if j.isListed(h.String()) || kind == "service" && j.isListed(name) || j.reach != nil && j.reach(h) {
		return
	}
	j.addPlaceIssue(Medium, EffectEgress, hopKinds[kind], name)
}

// addServices records the hosts that an option names: HOST, HOST:PORT or their URLs, joined by commas.
// What those services reveal is outside the rights of this machine's accounts.
func (j *judge) addServices(text string) {
	for a := range strings.SplitSeq(text, ",") {
		a = strings.TrimSuffix(a[strings.LastIndexByte(a, '/')+1:], ".")
		host, _ := hostPort(strings.ToLower(a))
		ip, err := netip.ParseAddr(host)
		if host != "localhost" && (err != nil || !ip.IsLoopback()) {
			j.addHop("service", a)
		}
	}
}

// isListed reports whether the configuration lists a place: the text of a Hop, "s3://BUCKET"
// or "gs://BUCKET" with or without what is in it, a host, or a host and its port. A host
// that is listed without a port is listed for each of them.
func (j *judge) isListed(place string) bool {
	host, port := hostPort(strings.ToLower(place))
	for _, p := range j.allowed {
		if p == place || strings.Contains(p, "://") && strings.HasPrefix(place, p+"/") {
			return true
		}
		if kind, _, ok := strings.Cut(p, ":"); ok && hopKinds[kind] != "" || strings.Contains(p, "://") || strings.Contains(place, "/") {
			continue
		}
		h, only := hostPort(p)
		if only != "" && only != port {
			continue
		}
		if h == host || strings.HasPrefix(h, "*.") && strings.HasSuffix(host, h[1:]) && len(host) > len(h)-1 {
			return true
		}
	}
	return false
}

// hostPort splits "host:port"; port is "" if there is none.
func hostPort(s string) (host, port string) {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return a.Addr().String(), strconv.Itoa(int(a.Port()))
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return a.String(), ""
	}
	if h, p, ok := strings.Cut(s, ":"); ok && isDigits(p) {
		return h, p
	}
	return s, ""
}

// checkAllowed returns an extension's places in the form used for comparison.
func checkAllowed(places []string) ([]string, error) {
	if len(places) > maxAllowed {
		return nil, fmt.Errorf("risk.places lists %d places; list at most %d", len(places), maxAllowed)
	}
	var out []string
	for _, p := range places {
		clean, ok := cleanPlace(p)
		if !ok {
			return nil, fmt.Errorf("risk.places has %q; write ssh:NAME, docker:NAME, podman:NAME, nerdctl:NAME, kubectl:NAME, context:NAME, profile:NAME, engine:ADDRESS, s3://BUCKET, gs://BUCKET, HOST, *.DOMAIN or HOST:PORT", p)
		}
		out = append(out, clean)
	}
	return out, nil
}

func cleanPlace(p string) (string, bool) {
	for i := range len(p) {
		if p[i] <= ' ' || p[i] >= 0x7f {
			return "", false
		}
	}
	if len(p) > 256 {
		return "", false
	}
	if scheme, bucket, ok := strings.Cut(p, "://"); ok && (scheme == "s3" || scheme == "gs") {
		return p, len(bucket) > 2 && len(bucket) < 64 && strings.Trim(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == "" && isWord(bucket) && bucket[0] != '.'
	}
	if kind, name, ok := strings.Cut(p, ":"); ok && hopKinds[kind] != "" {
		return p, name != "" && name[0] != '-' && !strings.ContainsAny(name, "*?[]\\'\"")
	}
	host, port := hostPort(strings.ToLower(p))
	if port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "", false
		}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return strings.ToLower(p), true
	}
	name, wild := strings.CutPrefix(host, "*.")
	labels := strings.Split(name, ".")
	if wild && len(labels) < 2 {
		return "", false
	}
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", false
		}
	}
	return strings.ToLower(p), strings.Trim(host, "0123456789.") != ""
}

// hopOptions returns the options with which a program reaches another cluster or account, and the kind
// of place that each names. They may stand anywhere.
func hopOptions(name string) map[string]string {
	switch name {
	case "kubectl", "oc":
		return map[string]string{"--context": "context", "--cluster": "context"}
	case "helm":
		return map[string]string{"--kube-context": "context"}
	case "argocd":
		return map[string]string{"--kube-context": "context", "--argocd-context": "context"}
	case "velero":
		return map[string]string{"--kubecontext": "context"}
	case "flux", "stern", "istioctl", "linkerd", "cilium", "hubble", "cmctl", "kustomize", "calicoctl", "hcloud", "doctl", "k9s":
		return map[string]string{"--context": "context"}
	case "aws", "eksctl":
		return map[string]string{"--profile": "profile"}
	case "minikube":
		return map[string]string{"--profile": "profile", "-p": "profile"}
	case "gcloud", "gsutil", "bq":
		return map[string]string{"--configuration": "profile", "--account": "profile", "--project": "profile"}
	case "az":
		return map[string]string{"--subscription": "profile"}
	case "docker-compose":
		return map[string]string{"-H": "engine", "--host": "engine", "-c": "context", "--context": "context"}
	}
	return nil
}

// addOptionHops records the places that a command's options name.
func (j *judge) addOptionHops(name string, argv []word) {
	options := hopOptions(name)
	if options == nil {
		return
	}
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		if w.kind == wordLit && w.text == "--" && name != "aws" {
			return
		}
		option, value, joined := strings.Cut(w.text, "=")
		kind := options[option]
		if kind == "" {
			for o, k := range options { // -pNAME
				if len(o) == 2 && len(w.text) > 2 && strings.HasPrefix(w.text, o) {
					kind, value, joined = k, w.text[2:], true
				}
			}
		}
		switch {
		case kind == "":
		case joined && w.kind == wordLit:
			j.addHop(kind, value)
		case !joined && i+1 < len(argv) && argv[i+1].kind == wordLit:
			j.addHop(kind, argv[i+1].text)
		default:
			j.add(Medium, EffectEgress, "the place that `%s` of `%s` names is only known when it runs", option, name)
		}
	}
}

// judgeRemote judges what runs at the other end of a hop, where no lock applies.
func (j *judge) judgeRemote(shell Shell, dir string, f func()) {
	was := *j
	j.locked, j.remote, j.shell, j.dirs, j.okDirs, j.moved = false, true, shell, []string{dir}, []string{dir}, false
	j.feed, j.xargsNames, j.counted = nil, anyNames, false
	f()
	j.locked, j.remote, j.shell, j.dirs, j.okDirs, j.moved = was.locked, was.remote, was.shell, was.dirs, was.okDirs, was.moved
	j.feed, j.xargsNames, j.counted = was.feed, was.xargsNames, was.counted
}

// engineOptions removes the options before the subcommand that select another engine from the words of
// docker, podman or nerdctl.
func (j *judge) engineOptions(name string, argv []word) []word {
	options := map[string]string{"-H": "engine", "--host": "engine", "-c": "context", "--context": "context"}
	switch name {
	case "podman":
		options = map[string]string{"-c": "engine", "--connection": "engine", "--url": "engine"}
	case "nerdctl":
		options = map[string]string{"-a": "engine", "--address": "engine", "-H": "engine", "--host": "engine"}
	}
	for len(argv) > 1 && argv[1].kind == wordLit {
		option, value, joined := strings.Cut(argv[1].text, "=")
		kind, n := options[option], 1
		if kind == "" {
			break
		}
		if !joined {
			if len(argv) < 3 || argv[2].kind != wordLit {
				break
			}
			value, n = argv[2].text, 2
		}
		j.addHop(kind, value)
		argv = append([]word{argv[0]}, argv[n+1:]...)
	}
	return argv
}

func parseNumber(s string) (float64, bool) {
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil && n >= 0
}
