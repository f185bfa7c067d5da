package cagetest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// snapshot is what files are, by their name in the program's root.
type snapshot map[string]string

// Baseline notes what everything is now; Changes compares with it.
func (c *Cage) Baseline() {
	c.t.Helper()
	c.before, c.state = c.snapshot(), c.kernelState()
	c.seen.reset()
	for _, w := range c.witnesses {
		w.reset()
	}
}

func (c *Cage) snapshot() snapshot {
	c.t.Helper()
	all := snapshot{}
	for _, top := range c.tops {
		var dev uint64
		err := filepath.WalkDir(top.dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil {
				if os.IsNotExist(err) {
					return nil
				}
				return err
			}
			info, err := os.Lstat(name)
			if os.IsNotExist(err) {
				return nil
			}
			if err != nil {
				return err
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return fmt.Errorf("%s: no details from the kernel", name)
			}
			if dev == 0 {
				dev = st.Dev
			}
			if st.Dev != dev {
				if info.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			at := path.Join(top.at, strings.TrimPrefix(name, top.dir))
			says := fmt.Sprintf("mode %o, owner %d:%d, links %d, modified %d.%09d, changed %d.%09d", st.Mode, st.Uid, st.Gid, st.Nlink,
				st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
			switch {
			case info.Mode().IsRegular():
				sum, err := digest(name)
				if err != nil && !os.IsNotExist(err) {
					return err
				}
				says += fmt.Sprintf(", %d bytes, sha256 %s", st.Size, sum)
			case info.Mode()&os.ModeSymlink != 0:
				to, _ := os.Readlink(name)
				says += ", leads to " + to
			}
			says += attributes(name)
			all[at] = says
			return nil
		})
		if err != nil {
			c.t.Fatalf("the cage's files: %v", err)
		}
	}
	return all
}

func digest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

func attributes(name string) (all string) {
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(name, buf)
	if err != nil || n <= 0 {
		return ""
	}
	for a := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		value := make([]byte, 4096)
		n, err := unix.Lgetxattr(name, a, value)
		if err == nil {
			all += fmt.Sprintf(", %s=%x", a, value[:max(n, 0)])
		}
	}
	return all
}

// Changes lists what differs from the baseline, one line for each file or part of the
// kernel's state, but for files that allowed names.
func (c *Cage) Changes(allowed func(name string) bool) (all []string) {
	c.t.Helper()
	now := c.snapshot()
	for name, was := range c.before {
		switch is, ok := now[name]; {
		case allowed(name) || is == was:
		case !ok:
			all = append(all, name+" is gone")
		default:
			all = append(all, name+" was "+was+" and is "+is)
		}
	}
	for name, is := range now {
		if _, ok := c.before[name]; !ok && !allowed(name) {
			all = append(all, name+" is new: "+is)
		}
	}
	for what, is := range c.kernelState() {
		if was := c.state[what]; was != is {
			all = append(all, fmt.Sprintf("%s was %q and is %q", what, was, is))
		}
	}
	slices.Sort(all)
	return all
}

// kernelState is what programs can change beside files.
func (c *Cage) kernelState() map[string]string {
	all := map[string]string{}
	for _, name := range []string{"/proc/net/route", "/proc/net/ipv6_route", "/proc/net/if_inet6", "/proc/net/arp",
		"/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname",
		"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if name == "/proc/net/ipv6_route" { // with counters of its use
			raw = []byte(fmt.Sprint(strings.Count(string(raw), "\n"), " routes"))
		}
		all[name] = string(raw)
	}
	links, err := os.ReadDir("/sys/class/net")
	if err == nil {
		for _, l := range links {
			all["the network's interfaces"] += l.Name() + " "
		}
	}
	return all
}
