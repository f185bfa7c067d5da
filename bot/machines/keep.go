package machines

import (
	"context"
	"fmt"
	"time"

	"countersign/adapters/chat"
)

const (
	// reportEvery is how often a machine is asked about commands whose outcomes are
	// unknown, if there are any; sweepEvery how often its terminals are swept, and how
	// often one that cannot be reached is tried.
	reportEvery = 5 * time.Second
	sweepEvery  = time.Minute
	// silentFor is how long somebody who typed through the console may keep the keyboard without
	// typing.
	silentFor = 10 * time.Minute
)

// Tend has the machine tended by one replica at a time.
func (m *Machine) Tend(ctx context.Context) error {
	return m.opts.Replicas.RunJob(ctx, "machine/"+m.place(), func(ctx context.Context) error {
		m.isCaretaker.Store(true)
		defer m.isCaretaker.Store(false)
		select {
		case m.becameCaretaker <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil
	})
}

// Keep reaches the machine, adopts its terminals from before the start, ends those
// that nobody knows any more, and tells threads what became of commands that nobody
// waited for.
func (m *Machine) Keep(ctx context.Context, to Conversation) error {
	t := time.NewTicker(reportEvery)
	defer t.Stop()
	var swept time.Time
	told := ""
	for {
		if due := time.Since(swept) >= sweepEvery; due || m.State() != nil {
			o, err := m.Connect(ctx)
			switch {
			case err != nil && ctx.Err() == nil && err.Error() != told: // once for each reason
				told = err.Error()
				m.opts.Log.Warn("a target cannot be reached", "target", m.Name, "error", err)
			case err == nil && due && m.isCaretaker.Load():
				m.sweep(ctx, o, to)
				m.prune(ctx)
			}
			if due && (err != nil || m.isCaretaker.Load()) {
				swept = time.Now()
			}
			if err == nil && m.isCaretaker.Load() {
				m.report(ctx, o, to)
			}
		}
		select {
		case <-t.C:
		case <-m.becameCaretaker:
		case <-ctx.Done():
			return nil
		}
	}
}

// prune deletes what the machine kept of commands without a terminal, once their outcomes are
// stored.
func (m *Machine) prune(ctx context.Context) {
	if !m.mayHaveOutputs.Swap(false) {
		return
	}
	if err := (plainJournal{m}).prune(ctx); err != nil {
		m.mayHaveOutputs.Store(true)
		if ctx.Err() == nil {
			m.opts.Log.Warn("records of commands that have ended could not be deleted", "target", m.Name, "error", err)
		}
	}
}

// sweep adopts the terminals that the machine has and ends those that nobody knows.
func (m *Machine) sweep(ctx context.Context, o *Opened, to Conversation) {
	if o.Book == nil {
		return
	}
	rep, err := o.Book.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		m.opts.Log.Warn("terminals could not be swept", "target", m.Name, "error", err)
	}
	silent, err := o.Book.Silent(ctx, time.Now().Add(-silentFor))
	if err != nil && ctx.Err() == nil {
		m.opts.Log.Warn("keyboards could not be taken back", "target", m.Name, "error", err)
	}
	for _, s := range silent {
		if err := to.Release(ctx, chat.ThreadID(s.Thread), m.Name+":"+s.Session, chat.User{ID: chat.UserID(s.Holder), Name: s.Name}, silentFor); err != nil {
			m.opts.Log.ErrorContext(ctx, "a keyboard could not be taken back", "thread", s.Thread, "error", err)
		}
	}
	for _, s := range rep.Idle {
		text := sayIdleEnded(s.Name, m.Name, m.opts.File.Tmux.Idle)
		if err := to.Note(ctx, chat.ThreadID(s.Thread), fmt.Sprintf("idle/%s/%d", s.Name, time.Now().Unix()), text); err != nil {
			m.opts.Log.ErrorContext(ctx, "a thread could not be told that its terminal was ended", "thread", s.Thread, "error", err)
		}
	}
}
