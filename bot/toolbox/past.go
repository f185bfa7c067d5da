package toolbox

import (
	"context"
	"errors"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/store"
	"countersign/tools/past"
)

// transcripts shows the history of threads to the tool that searches it.
type transcripts struct{ db store.DB }

func (t transcripts) load(ctx context.Context, thread string) (entries []history.Entry, err error) {
	err = t.db.View(ctx, func(tx store.Tx) error {
		entries = history.Load(tx, chat.ThreadID(thread))
		return nil
	})
	return entries, err
}

// Search implements past.Transcript.
func (t transcripts) Search(ctx context.Context, thread string, q past.Query) (past.Found, error) {
	entries, err := t.load(ctx, thread)
	if err != nil {
		return past.Found{}, err
	}
	found, err := history.Search(entries, q.Text, history.SearchOptions{Kind: history.SearchKind(q.Kind), From: q.From, To: q.To, Limit: q.Limit, Offset: q.Offset})
	if err != nil {
		return past.Found{}, err
	}
	out := past.Found{Total: found.Total}
	for _, h := range found.Hits {
		out.Hits = append(out.Hits, past.Hit{Entry: h.Seq, At: h.At, Kind: h.Kind, Who: h.Who, Text: h.Text})
	}
	return out, nil
}

// Read implements past.Transcript.
func (t transcripts) Read(ctx context.Context, thread string, entry uint64, offset, limit int) (past.Page, error) {
	entries, err := t.load(ctx, thread)
	if err != nil {
		return past.Page{}, err
	}
	p, err := history.Read(entries, entry, offset, limit)
	if errors.Is(err, history.ErrNoEntry) {
		return past.Page{}, past.ErrNone
	}
	if err != nil {
		return past.Page{}, err
	}
	return past.Page{Entry: p.Seq, At: p.At, Kind: p.Kind, Who: p.Who, Text: p.Text, Offset: p.Offset, Next: p.Next, Total: p.Total}, nil
}
