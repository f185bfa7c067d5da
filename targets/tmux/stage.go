package tmux

import (
	"fmt"
	"strings"
)

// The key sequences that the staged rc file binds in the line editor. No keyboard sends
// them.
const (
	keyStatus = "\x1b[7973~" // report the status, as an "S" mark
	keyClear  = "\x1b[7974~" // clear the line
	// keyHistory reports what was typed since it was pressed last, as an "H" mark.
	keyHistory = "\x1b[7975~"
)

// conf is the configuration of the instance's tmux servers.
func conf(term string, history, width, height int) string {
	return fmt.Sprintf(`# Written by countersign at every start; changes are lost.
set -g default-terminal %s
set -g history-limit %d
set -g default-size %dx%d
set -g remain-on-exit on
set -s exit-empty on
set -g update-environment ""
set -g allow-rename off
set -g automatic-rename off
set -g bell-action none
set -s set-clipboard off
set -s escape-time 20
set -g status-right "#{=40:pane_title}"
`, term, history, width, height)
}

// noPrompts keeps programs from opening a pager or asking on a terminal.
const noPrompts = `export PAGER=cat GIT_PAGER=cat SYSTEMD_PAGER= NO_COLOR=1 GIT_TERMINAL_PROMPT=0 DEBIAN_FRONTEND=noninteractive
unset HISTFILE TMOUT MAIL MAILCHECK
`

// rcData is the data of a pane's staged shell files.
type rcData struct {
	nonce   string
	ttyFile string // holds the path of the companion's terminal
	endFile string // gets a line "shell seq code" at each end of a command, while it exists
	env     []string
}

// firstLine holds the nonce, so that it is found again after a restart.
func (d rcData) firstLine() string { return "# countersign " + d.nonce + "\n" }

func nonceOf(rc string) string {
	line, _, _ := strings.Cut(rc, "\n")
	nonce, _ := strings.CutPrefix(line, "# countersign ")
	return nonce
}

func (d rcData) exports() string {
	var b strings.Builder
	for _, kv := range d.env {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s=%s\n", name, shellQuote(value))
	}
	return b.String()
}

// bashRC is the rc file of a bash pane. Its marks:
//
//	C;seq            a command line has been read and starts (PS0)
//	E;seq            the same end as D, on the companion
//	D;seq;code;dir   the command line has ended
//	P;seq;shell      the prompt has been printed, by the shell of that process number
//	Q                a prompt for more lines of the same command
//	S;seq;len;code;shell  the answer to keyStatus: len bytes are on the line
//	H;text           the answer to keyHistory: what was typed since the last time
//
// The hook runs with its standard error closed, so that "set -x" shows nothing of it. It
// writes to the terminal itself, so that "exec >file" does not lose a mark. It sets the
// prompts again each time, so that a command may change them. It starts no process.
// __cs_b must not assign a prompt: bash keeps pointers to their values while it reads a line.
func bashRC(d rcData) string {
	rc := d.firstLine() + noPrompts + d.exports() + `set +H +o posix
shopt -s checkwinsize
shopt -u mailwarn
__cs_s=0
__cs_n=0
__cs_e() { local p; read -r p <@TTYFILE@ && [[ $p == /dev/* && -c $p ]] && exec @FD@>"$p"; }
__cs_q() {
  local LC_ALL=C i c o=
  for ((i = 0; i < ${#PWD}; i++)); do
    c=${PWD:i:1}
    case $c in [[:cntrl:]%]) builtin printf -v c '%%%02x' "'$c" ;; esac
    o+=$c
  done
  __cs_d=$o
}
__cs_w() {
  PROMPT_COMMAND='{ __cs_p; } 2>/dev/null'
  PS0='\033]7973;@NONCE@;C;${__cs_s}\007'
  PS1='\u@\h:\w\$ \[\033]7973;@NONCE@;P;${__cs_s};$$\007\]'
  PS2='> \[\033]7973;@NONCE@;Q\007\]'
}
__cs_p() {
  local __cs_r=$?
  set +e
  __cs_s=$((__cs_s + 1))
  __cs_d=$PWD
  case $PWD in *[[:cntrl:]%]*) __cs_q ;; esac
  builtin printf '\033]7973;@NONCE@;E;%s\007' "$__cs_s" >&@FD@ || {
    __cs_e && builtin printf '\033]7973;@NONCE@;E;%s\007' "$__cs_s" >&@FD@
  }
  [[ -t 1 ]] || exec 1>/dev/tty
  if [[ -w @ENDFILE@ ]]; then
    ((__cs_s % 1000)) || : >|@ENDFILE@
    builtin printf '%s %s %s\n' "$$" "$__cs_s" "$__cs_r" >>@ENDFILE@
  fi
  builtin printf '\033]7973;@NONCE@;D;%s;%s;%s\007' "$__cs_s" "$__cs_r" "$__cs_d" >/dev/tty
  __cs_w
}
__cs_b() {
  local r=$?
  {
    __cs_e
    PROMPT_COMMAND='{ __cs_p; } 2>/dev/null'
    builtin printf '\033]7973;@NONCE@;S;%s;%s;%s;%s\007' "$__cs_s" "${#READLINE_LINE}" "$r" "$$" >/dev/tty
  } 2>/dev/null
}
__cs_h() {
  local LC_ALL=C n i c t o=
  {
    t=$(HISTTIMEFORMAT= builtin history 1)
    t=${t#"${t%%[0-9]*}"}
    n=${t%%[!0-9]*}
    n=${n:-0} t=
    ((n > __cs_n)) && t=$(HISTTIMEFORMAT= builtin history "$((n - __cs_n))")
    __cs_n=$n
    for ((i = 0; i < ${#t} && ${#o} < 6000; i++)); do
      c=${t:i:1}
      case $c in [[:cntrl:]%]) builtin printf -v c '%%%02x' "'$c" ;; esac
      o+=$c
    done
    builtin printf '\033]7973;@NONCE@;H;%s\007' "$o" >/dev/tty
  } 2>/dev/null
}
for __cs_m in emacs vi-insert vi-command; do
  bind -m "$__cs_m" -x '"\e[7973~": __cs_b'
  bind -m "$__cs_m" '"\e[7974~": kill-whole-line'
  bind -m "$__cs_m" -x '"\e[7975~": __cs_h'
done
# How answers of the terminal to a program begin; by default a search of the history.
bind -m emacs '"\eP": redraw-current-line'
bind -m vi-command '"\e[7974~": "ddi"'
unset __cs_m
__cs_w
__cs_e
:
`
	return d.fill(rc)
}

// posixRC is the file that ENV names in a shell that is not bash. There is no hook before a
// command, so staged scripts write mark C themselves, and standard error is merged with
// standard output.
func posixRC(d rcData) string {
	rc := d.firstLine() + noPrompts + d.exports() + `unset ENV
__cs_s=1
__cs_z=
__cs_p() {
  set -- "$1" "${PWD:-$(pwd)}"
  case $2 in *[[:cntrl:]%]*) set -- "$1" "$(printf %s "$2" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g')" ;; esac
  printf '\033]7973;@NONCE@;D;%s;%s;%s\007' "$__cs_s" "$1" "$2"
}
set +e
PS1='$(__cs_p $?)${__cs_z#$((__cs_s=__cs_s+1))}$ @P@'
PS2='> @Q@'
`
	rc = strings.ReplaceAll(rc, "@P@", "\x1b]7973;@NONCE@;P;0\x07")
	rc = strings.ReplaceAll(rc, "@Q@", "\x1b]7973;@NONCE@;Q\x07")
	return d.fill(rc)
}

func (d rcData) fill(rc string) string {
	return strings.NewReplacer("@NONCE@", d.nonce, "@TTYFILE@", shellQuote(d.ttyFile), "@ENDFILE@", shellQuote(d.endFile), "@FD@", errFD).Replace(rc)
}

// posixStart is the beginning of a staged script for a POSIX shell. The hook there runs in
// a subshell, so "set -e" of an earlier command is undone here.
func posixStart(nonce string) string {
	return `printf '\033]7973;` + nonce + `;C;0\007'` + "\nset +e\n"
}

const (
	// frameSize is the unit in which the relay copies to the visible terminal. It writes
	// whole units only, so that other output never tears one.
	frameSize = 512
	// relayReady is what the relay prints when its terminal is raw.
	relayReady = "countersign-relay-ready"
)

// relayScript runs in a companion pane. What commands write to the companion's terminal is
// their standard error. What the bot types into it is copied, in frames, to the visible
// terminal that the last "T" frame named.
//
// Its terminal may not be opened for reading, so that a pager that wants to read keys from
// standard error's terminal falls back to the visible one.
const relayScript = `stty raw -echo || exit 1
chmod 200 "$(tty)"
printf '` + relayReady + `'
while :; do
  f=$(dd ibs=1 count=512 2>/dev/null)
  [ -n "$f" ] || exit 0
  case $f in
  *';T;/dev/'*)
    p=${f#*;T;}
    p=${p%%;*}
    [ -c "$p" ] && dd ibs=4096 obs=512 conv=notrunc of="$p" 2>/dev/null
    ;;
  esac
done
`

// superviseScript is the program of a pane. It starts the shell, reports with an "X" mark
// how the shell exited, and starts the next one: the pane, its terminal and its output
// outlive the shell. (tmux's own respawn-pane loses the last output for a control client,
// and can end the tmux server while some is pending.) With "set -m" the shell gets the
// terminal, and the supervisor gets it back even from a shell that was killed. The
// supervisor's own messages go nowhere.
func superviseScript(d rcData, shell string) string {
	return d.fill(`trap : INT QUIT TSTP
set -m
modes=$(stty -g)
exec 3>&1 >/dev/null 2>&1
while :; do
  (exec >&3 2>&3 3>&-; ` + shell + `)
  s=$?
  stty "$modes"
  read -r e <@TTYFILE@ && [ -c "$e" ] && printf '\033]7973;@NONCE@;E;x\007' >"$e"
  printf '\033]7973;@NONCE@;X;%s\007\r\n' "$s" >&3
  case $s in 126 | 127) sleep 1 ;; esac
done
`)
}

// keepScript runs in the first window of the companions' server. It ends that server once
// the one with the visible panes has ended.
func keepScript(main, relay string) string {
	return "while sleep 20; tmux -L " + main + " list-sessions >/dev/null 2>&1; do :; done\n" +
		"exec tmux -L " + relay + " kill-server\n"
}

// stageScript prepares the staging directory, and fails unless it is the user's own,
// private, and no symbolic link. It prints the terminal type to use.
const stageScript = `umask 077
d=$1
mkdir -p -- "$d" 2>/dev/null
if [ -L "$d" ] || [ ! -d "$d" ] || [ ! -O "$d" ]; then echo "$d is not a directory of ours" >&2; exit 1; fi
chmod 700 "$d" || exit 1
find "$d" -type f -name 'c-*' -mmin +60 -exec rm -f -- {} + 2>/dev/null
for t in tmux-256color screen-256color screen; do
  for r in /etc/terminfo /lib/terminfo /usr/share/terminfo /usr/lib/terminfo; do
    if [ -e "$r/${t%"${t#?}"}/$t" ]; then echo "$t"; exit 0; fi
  done
done
if infocmp tmux-256color >/dev/null 2>&1; then echo tmux-256color; else echo screen; fi
`
