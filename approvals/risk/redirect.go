package risk

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (j *judge) redirect(r *syntax.Redirect) {
	fd := ""
	if r.N != nil {
		fd = r.N.Value
	}
	if r.Hdoc != nil {
		j.nested(r.Hdoc)
		j.add(Low, EffectUnknown, "a here-document is not looked into")
		return
	}
	var w word
	why := ""
	if r.Word != nil {
		w, why = j.resolveWord(r.Word)
	}
	known := why == "" && w.kind == wordLit
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
		if known && cleanOut(w.text) && (fd == "" || fd == "1" || fd == "2") && (r.Op != syntax.RdrAll && r.Op != syntax.AppAll || j.shell == Bash) && r.Op != syntax.RdrClob {
			if r.Op != syntax.RdrOut {
				j.onlyLocked("a redirection that is more than `>/dev/null`")
			}
			return
		}
		j.writes(w, known)
		return
	case syntax.DplOut:
		if known && (w.text == "1" && fd == "2" || w.text == "2" && (fd == "" || fd == "1")) {
			if fd != "2" {
				j.onlyLocked("a redirection that is more than `2>&1`")
			}
			return
		}
		if known && !isDigits(w.text) && w.text != "-" {
			j.writes(w, known)
			return
		}
		j.add(Medium, EffectUnknown, "a redirection of streams that is not known to be harmless")
		return
	case syntax.RdrIn:
		if known && fd == "" {
			if reason := j.secret(w); reason != "" {
				j.add(High, EffectSecrets, "`< %s` reads a secret: %s", w.text, reason)
				return
			}
			if j.device(w.text) {
				if strings.HasPrefix(w.text, "/dev/tcp") || strings.HasPrefix(w.text, "/dev/udp") {
					j.add(High, EffectEgress, "`< %s` opens a connection", w.text)
					return
				}
				j.add(Medium, EffectUnknown, "opening the device %s can change its state or show raw data", w.text)
				return
			}
			if j.endlessFile(w) {
				j.onlyLocked("a file that never ends")
			}
			return
		}
		j.add(Medium, EffectUnknown, "what is read from is only known when it runs")
		return
	case syntax.WordHdoc:
		j.bashOnly("`<<<`")
		j.onlyLocked("`<<<`")
		if why == "" && fd == "" {
			return
		}
		j.add(Medium, EffectUnknown, "the text after `<<<` is only known when it runs")
		return
	default:
	}
	j.add(Medium, EffectUnknown, "a redirection that is not known to be harmless")
}

func cleanOut(p string) bool { return p == "/dev/null" }

// writes tells of a redirection into a file.
func (j *judge) writes(w word, known bool) {
	p := cleanPath(w.text)
	switch {
	case !known:
		j.add(Medium, EffectWrite, "it writes to a file whose name is only known when it runs")
	case strings.HasPrefix(p, "/dev/tcp/"), strings.HasPrefix(p, "/dev/udp/"):
		j.add(High, EffectEgress, "`> %s` sends data over the network", w.text)
	case strings.HasPrefix(p, "/dev/"):
		j.add(Critical, EffectWrite, "it writes straight to the device %s", w.text)
	case strings.HasPrefix(p, "/proc/") || strings.HasPrefix(p, "/sys/"):
		j.add(High, EffectWrite, "it writes to the kernel's file %s", w.text)
	case Lasting(p) || strings.HasPrefix(p, "/root/"):
		j.add(High, EffectWrite, "it writes to the system file %s", w.text)
	default:
		j.add(Medium, EffectWrite, "it writes to the file %s", w.text)
	}
}
