package tmux

import (
	"context"
	"errors"
)

// Destroy ends the tmux servers of this instance with every session in them, and removes
// the staged files. It is for instances that are made for one use (a demo, a one-shot
// command): no other process may be using the instance's name. The Server cannot be used
// afterwards.
func (s *Server) Destroy(ctx context.Context) error {
	err := s.Close()
	for _, socket := range []string{s.socket(), s.relaySocket()} {
		if _, kerr := s.run(ctx, append(s.cli(socket), "kill-server")...); kerr != nil && !isNoServer(kerr) {
			err = errors.Join(err, kerr)
		}
	}
	_, rerr := s.run(ctx, "rm", "-rf", "--", s.o.Dir)
	// tmux leaves its sockets behind.
	_, serr := s.run(ctx, "/bin/sh", "-c", s.script(`d=${TMUX_TMPDIR:-/tmp}/tmux-$(id -u); rm -f -- "$d/$1" "$d/$2"`), "sh", s.socket(), s.relaySocket())
	return errors.Join(err, rerr, serr)
}
