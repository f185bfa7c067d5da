package risk

import (
	"fmt"
	"path"
	"strings"
)

// maxPlaces is how many places of secrets an extension may name.
const maxPlaces = 100

// checkPlaces returns the places in the form in which paths are compared.
func checkPlaces(places []string) ([]string, error) {
	if len(places) > maxPlaces {
		return nil, fmt.Errorf("risk.secrets names %d paths; name at most %d, directories rather than the files in them", len(places), maxPlaces)
	}
	var out []string
	for _, p := range places {
		if !path.IsAbs(p) || strings.ContainsAny(p, "*?[\\") || path.Clean(p) == "/" {
			return nil, fmt.Errorf("risk.secrets has %q; write whole paths of files or directories, without patterns", p)
		}
		out = append(out, path.Clean(p))
	}
	return out, nil
}

// secret tells why a path is a secret: one by its name or its usual place, or one
// of the places that the extension names; empty if it isn't known as one. A path
// that is not whole is known by its name only, since nobody knows where it leads.
func (j *judge) secret(w word) string {
	if why := secretPath(w); why != "" || len(j.places) == 0 {
		return why
	}
	p := cleanPath(w.text)
	for _, place := range j.places {
		if p == place || strings.HasPrefix(p, place+"/") {
			return "the configuration says that secrets lie there"
		}
		if w.kind == wordGlob && couldName(p, place) {
			return "the pattern also stands for files with secrets"
		}
	}
	return ""
}

// couldName reports whether a pattern could stand for a place or what is in it.
func couldName(pattern, place string) bool {
	want := strings.Split(strings.Trim(place, "/"), "/")
	for n, part := range strings.Split(strings.Trim(pattern, "/"), "/") {
		if n >= len(want) {
			return true
		}
		if ok, err := path.Match(part, want[n]); !ok && err == nil {
			return false
		}
		if n == len(want)-1 {
			return true
		}
	}
	return false // it stands for a directory above, which is listed and not read
}

// wide reports whether reading everything below a path reaches secrets.
func (j *judge) wide(p string) bool {
	if wideRoot(p) {
		return true
	}
	clean := cleanPath(p)
	for _, place := range j.places {
		if clean == place || strings.HasPrefix(place, strings.TrimSuffix(clean, "/")+"/") {
			return true
		}
		if strings.ContainsAny(clean, "*?[") && aboveOrIn(clean, place) {
			return true
		}
	}
	return false
}

// aboveOrIn reports whether a pattern could stand for a directory that the place is
// in, or for the place.
func aboveOrIn(pattern, place string) bool {
	want := strings.Split(strings.Trim(place, "/"), "/")
	for n, part := range strings.Split(strings.Trim(pattern, "/"), "/") {
		if n >= len(want) {
			return true
		}
		if ok, err := path.Match(part, want[n]); !ok && err == nil {
			return false
		}
	}
	return true
}
