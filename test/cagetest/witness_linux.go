package cagetest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Witness is a process of the cage that nobody has a reason to disturb. It listens, takes
// whatever is sent to it, and says which signals it got.
type Witness struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	said []string
}

// Witness starts a process under a name that listens at addresses such as
// "tcp::80", "udp::53" and "unix:/run/x.sock". What comes over UDP is answered as if it
// asked for the address of a host. A file is served as HTTP, and whoever sends anything
// there but a question (GET, HEAD) disturbs.
func (c *Cage) Witness(name string, listen ...string) *Witness {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	// The kernel calls a process by the name of its file.
	inside := path.Join("/opt/witness", name)
	if _, err := os.Lstat(c.Path("/opt/witness/test")); err != nil {
		if err := os.MkdirAll(c.Path("/opt/witness"), 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := copyFile(self, c.Path("/opt/witness/test")); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.Symlink("test", c.Path(inside)); err != nil {
		c.t.Fatal(err)
	}
	// The step into the cage takes the variables of a cage away, so env sets it again.
	cmd := c.Command("/", nil, append([]string{"/usr/bin/env", envPart + "=witness", inside}, listen...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	w := &Witness{name: name, cmd: cmd, done: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(w.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if lines.Text() == "ready" {
				close(ready)
				continue
			}
			w.say(lines.Text())
		}
		w.say(fmt.Sprintf("ended: %v", cmd.Wait()))
	}()
	select {
	case <-ready:
	case <-time.After(20 * time.Second):
		c.t.Fatalf("the witness %s does not start", name)
	}
	c.witnesses = append(c.witnesses, w)
	return w
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func (w *Witness) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *Witness) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = nil
}

// Pid is the witness's process, in the cage.
func (w *Witness) Pid() int { return w.cmd.Process.Pid }

// Disturbed lists what happened to the witnesses since the baseline: signals, their end,
// being stopped, another priority.
func (c *Cage) Disturbed() (all []string) {
	for _, w := range c.witnesses {
		w.mu.Lock()
		for _, x := range w.said {
			all = append(all, w.name+": "+x)
		}
		w.mu.Unlock()
		if s := processState(w.Pid()); s == "T" || s == "t" {
			all = append(all, w.name+": is stopped")
		}
		if nice, err := syscall.Getpriority(syscall.PRIO_PROCESS, w.Pid()); err == nil && nice != 20-ownNice() {
			all = append(all, fmt.Sprintf("%s: has priority %d", w.name, 20-nice))
		}
	}
	slices.Sort(all)
	return all
}

// ownNice is the priority that the test has, and its witnesses with it.
func ownNice() int {
	n, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return 0
	}
	return 20 - n // the system call answers 20 minus it
}

// witness is the process itself.
func witness(listen []string) error {
	signals := make(chan os.Signal, 100)
	signal.Notify(signals)
	for _, at := range listen {
		network, address, _ := strings.Cut(at, ":")
		switch network {
		case "tcp":
			l, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
				}
			}()
		case "udp":
			c, err := net.ListenPacket("udp", address)
			if err != nil {
				return err
			}
			go func() {
				buf := make([]byte, 1<<16)
				for {
					n, from, err := c.ReadFrom(buf)
					if err != nil {
						return
					}
					_, _ = c.WriteTo(answer(buf[:n]), from)
				}
			}()
		case "unix":
			l, err := net.Listen("unix", address)
			if err != nil {
				return err
			}
			go func() { _ = http.Serve(l, http.HandlerFunc(engine)) }()
		default:
			return fmt.Errorf("%q is no address to listen at", at)
		}
	}
	fmt.Println("ready")
	for s := range signals {
		if s != syscall.SIGURG { // Go's own
			fmt.Println("got signal", s)
		}
	}
	return nil
}

// engine answers every question with nothing, as a daemon that has nothing to show.
func engine(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		fmt.Println("was sent", r.Method, r.URL.Path)
	}
	w.Header().Set("Api-Version", "1.47")
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/json") {
		_, _ = io.WriteString(w, "[]")
		return
	}
	_, _ = io.WriteString(w, "{}")
}

// answer says that a host of the name has the address 203.0.113.7.
func answer(question []byte) []byte {
	if len(question) < 12 {
		return nil
	}
	a := slices.Clone(question)
	end := 12
	for end < len(a) && a[end] != 0 {
		end += int(a[end]) + 1
	}
	if end += 5; end > len(a) {
		return nil
	}
	a = a[:end]
	a[2], a[3] = 0x81, 0x80
	binary.BigEndian.PutUint16(a[6:], 1)
	binary.BigEndian.PutUint32(a[8:], 0)
	return append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 7)
}
