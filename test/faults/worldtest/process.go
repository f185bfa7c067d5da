package worldtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"countersign/internal/failpoint"
	"countersign/test/buildtest"
)

// Build builds the bot with its failpoints into a directory, and returns the path of
// the program.
func Build(ctx context.Context, dir string) (string, error) {
	return buildtest.Program(ctx, dir, "cmd/bot", nil, "-tags", "failpoint")
}

// startTime bounds the start of a bot on a busy machine.
const startTime = 90 * time.Second

var errDied = errors.New("the bot died before it was ready")

// Bot is one bot, whose process may come and go. Its methods may be called from any
// goroutine.
type Bot struct {
	Name   string
	Dir    string // its data is below it
	binary string
	env    []string

	turn   sync.Mutex // of what starts and ends the process
	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{}
	url    string
	wanted bool // it should be there
	armed  bool // with a failpoint, so it may die at any moment
	deaths int
	log    bytes.Buffer
}

// Log is all that the bot's processes wrote.
func (b *Bot) Log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// URL is the address of the console, "" before the first start.
func (b *Bot) URL() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.url
}

// Deaths is how many times the process ended without being told to, which is what a
// failpoint does.
func (b *Bot) Deaths() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deaths
}

func (b *Bot) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log.WriteString(line + "\n")
}

// Note puts a line of the test between those of the bot.
func (b *Bot) Note(format string, args ...any) {
	b.add(time.Now().Format("15:04:05.000") + " ==== " + fmt.Sprintf(format, args...))
}

// Alive says whether there is a process.
func (b *Bot) Alive() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return alive(b.done)
}

func alive(done chan struct{}) bool {
	if done == nil {
		return false
	}
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// At is the variable that makes a bot die at a point, when it is reached as often.
func At(p failpoint.Point, times int) string {
	return fmt.Sprintf("%s%s:%d", failpointEnv, p, times)
}

const failpointEnv = "COUNTERSIGN_FAILPOINT="

// Start starts the process and returns when its console listens. env is added to the
// environment of this run alone.
func (b *Bot) Start(ctx context.Context, env ...string) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	return b.start(ctx, env...)
}

func (b *Bot) start(ctx context.Context, env ...string) error {
	if b.Alive() {
		return nil
	}
	cmd := exec.Command(b.binary, "run")
	cmd.Env = append(append([]string{}, b.env...), env...)
	cmd.Dir = b.Dir
	// A group of its own, so that a signal to the test does not reach it first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	errs, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	b.Note("start %v", env)
	if err := cmd.Start(); err != nil {
		return err
	}
	ready, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		b.follow(bufio.NewScanner(errs), ready)
		_ = cmd.Wait()
	}()
	b.mu.Lock()
	b.cmd, b.done, b.wanted, b.armed = cmd, done, true, slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, failpointEnv) })
	b.mu.Unlock()
	limit := time.NewTimer(startTime)
	defer limit.Stop()
	select {
	case url := <-ready:
		b.mu.Lock()
		b.url = url
		b.mu.Unlock()
		return nil
	case <-done:
		return errDied
	case <-limit.C:
		return errors.New("the bot does not come up")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Bot) follow(lines *bufio.Scanner, ready chan<- string) {
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		b.add(lines.Text())
		if _, url, ok := strings.Cut(lines.Text(), "url="); ok && strings.Contains(lines.Text(), "console listens") {
			select {
			case ready <- strings.TrimSpace(url):
			default:
			}
		}
	}
}

// want says whether the process should be there, and returns it with the channel
// that is closed when it ends.
func (b *Bot) want(on bool) (*os.Process, chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = on
	if !alive(b.done) {
		return nil, b.done
	}
	return b.cmd.Process, b.done
}

// Kill ends the process with SIGKILL and waits for its end. It stays away until
// somebody starts it.
func (b *Bot) Kill() {
	b.turn.Lock()
	defer b.turn.Unlock()
	if p, done := b.want(false); p != nil {
		b.Note("SIGKILL")
		_ = p.Kill()
		<-done
	}
}

// Pause stops the process with SIGSTOP, Resume lets it go on.
func (b *Bot) Pause() { b.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (b *Bot) Resume() { b.signal(syscall.SIGCONT) }

func (b *Bot) signal(s syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if alive(b.done) {
		_ = b.cmd.Process.Signal(s)
	}
}

// End asks the process to end with SIGTERM and waits. It returns an error when it
// takes longer or ends with another code than 0. It stays away.
func (b *Bot) End(within time.Duration) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	p, done := b.want(false)
	if p == nil {
		return nil
	}
	b.Note("SIGTERM")
	_ = p.Signal(syscall.SIGTERM)
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-done:
		if st, ok := b.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signal() == syscall.SIGKILL && b.armed {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.deaths++ // at its failpoint, before it heard of the signal
			return nil
		}
		if code := b.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("the bot ended with code %d", code)
		}
		return nil
	case <-t.C:
		_ = p.Kill()
		<-done
		return fmt.Errorf("the bot did not end within %v of SIGTERM", within)
	}
}

// keep starts the process again when it died by itself.
func (b *Bot) keep(ctx context.Context) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		b.mu.Lock()
		died := b.wanted && b.done != nil && !alive(b.done)
		if died {
			b.deaths++
		}
		b.mu.Unlock()
		if !died {
			continue
		}
		b.Note("it died")
		b.turn.Lock()
		b.mu.Lock()
		wanted := b.wanted
		b.mu.Unlock()
		if wanted {
			if err := b.start(ctx); err != nil && ctx.Err() == nil {
				b.Note("not started: %v", err)
				rest(ctx, 200*time.Millisecond)
			}
		}
		b.turn.Unlock()
	}
}

// Run runs a subcommand with the bot's environment to its end.
func (b *Bot) Run(ctx context.Context, args ...string) (out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Env, cmd.Dir = b.env, b.Dir
	raw, err := cmd.CombinedOutput()
	if err != nil {
		return string(raw), fmt.Errorf("bot %s: %w: %s", strings.Join(args, " "), err, raw)
	}
	return string(raw), nil
}
