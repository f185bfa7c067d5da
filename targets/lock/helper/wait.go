package helper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// jobMax bounds a job, in bytes.
const jobMax = 1 << 20

// job is what comes on standard input for "wait" (remote.job has its form).
type job struct {
	dir, id string
	limit   time.Duration // 0 is none
	grace   time.Duration
	merged  bool
	env     []string
	needs   string
	argv    []string
}

// errNoJob means that the input ended before a job began.
var errNoJob = errors.New("there is no job")

// readJob reads a job: its length and a newline, and parts that each end with a zero byte.
func readJob(r io.Reader) (j job, err error) {
	in := bufio.NewReader(io.LimitReader(r, jobMax))
	head, err := in.ReadString('\n')
	if head == "" {
		return j, errNoJob
	}
	size, nerr := strconv.Atoi(strings.TrimSuffix(head, "\n"))
	if err != nil || nerr != nil || size < 1 || size > jobMax {
		return j, fmt.Errorf("a job begins with %.20q", head)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(in, text); err != nil {
		return j, fmt.Errorf("a job was cut short: %w", err)
	}
	body, whole := strings.CutSuffix(string(text), "\x00")
	parts := strings.Split(body, "\x00")
	if !whole || len(parts) < 8 {
		return j, errors.New("a job has too few parts")
	}
	var n [4]int
	for i := range n {
		if n[i], err = strconv.Atoi(parts[2+i]); err != nil || n[i] < 0 {
			return j, fmt.Errorf("a job has %.20q for a number", parts[2+i])
		}
	}
	j = job{dir: parts[0], id: parts[1], limit: time.Duration(n[0]) * time.Second, grace: time.Duration(n[1]) * time.Second, merged: n[2] == 1}
	rest := parts[6:]
	if len(rest) <= n[3] {
		return j, errors.New("a job has too few parts")
	}
	j.env, rest = rest[:n[3]], rest[n[3]:]
	switch { // the number of arguments of its own, and these
	case rest[0] == "0":
		j.argv = rest[1:]
	case rest[0] == "1" && len(rest) > 1:
		j.needs, j.argv = rest[1], rest[2:]
	default:
		return j, fmt.Errorf("a job has %.20q for its arguments", rest[0])
	}
	if len(j.argv) == 0 || j.argv[0] == "" {
		return j, errors.New("a job has no program")
	}
	return j, nil
}

// enter makes a job's directory that of the process. It returns why it cannot be: changed, missing,
// notdir or denied.
func (j job) enter() string {
	err := os.Chdir(j.dir)
	var st syscall.Stat_t
	if err == nil {
		err = syscall.Stat(".", &st)
	}
	switch {
	case err == nil && j.id != "" && j.id != fmt.Sprintf("%d:%d", st.Dev, st.Ino):
		return "changed"
	case err == nil:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "missing"
	case errors.Is(err, syscall.ENOTDIR):
		return "notdir"
	}
	return "denied"
}

// wait runs the program of a job that comes on stdin, under a lock.
func wait(token string, stdin io.Reader) int {
	r := runner{token: token, stderr: os.Stderr}
	j, err := readJob(stdin)
	if errors.Is(err, errNoJob) {
		return 0
	}
	if err != nil {
		return r.refuse("%v", err)
	}
	if why := j.enter(); why != "" {
		r.control("x", why)
		return unlocked
	}
	os.Clearenv()
	for _, kv := range j.env {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			return r.refuse("the variable %.40q: %v", name, err)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return r.refuse("%v", err)
	}
	os.Stdin = null
	if j.merged {
		os.Stderr = os.Stdout
	}
	if j.limit > 0 { // nobody else has ended the group
		time.AfterFunc(j.limit, func() {
			_ = syscall.Kill(0, syscall.SIGTERM)
			time.AfterFunc(j.grace, func() { _ = syscall.Kill(0, syscall.SIGKILL) })
		})
	}
	return r.run(j.needs, j.argv)
}
