package verifier

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"countersign/proof/witness/cosign"
)

// StatusError is an error with the exit status that it is: 2 where nothing could be checked, 1 where something
// is wrong, 3 where nothing is, and something can't be checked.
type StatusError struct {
	error
	Code int
}

// Command is the command verify. Its error is a [StatusError].
func Command() *cobra.Command {
	var keys, witnesses, logs, kept []string
	c := &cobra.Command{
		Use: "verify ARCHIVE", Short: "Check the archive of an incident without a store or a network: chain, digests, votes, signatures and witnesses", Args: cobra.ExactArgs(1),
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			trust, err := trusted(keys, witnesses, logs)
			if err != nil {
				return StatusError{err, 2}
			}
			trust.Checkpoints = map[string][]byte{}
			for _, name := range kept {
				raw, err := os.ReadFile(name)
				if err != nil {
					return StatusError{err, 2}
				}
				trust.Checkpoints[name] = raw
			}
			f, err := os.Open(args[0])
			if err != nil {
				return StatusError{err, 2}
			}
			defer func() { _ = f.Close() }() // it was only read
			info, err := f.Stat()
			if err != nil {
				return StatusError{err, 2}
			}
			found, err := Archive(f, info.Size(), trust)
			if err != nil {
				return StatusError{fmt.Errorf("%s: %w", args[0], err), 2}
			}
			count := map[Kind]int{}
			for _, x := range found {
				count[x.Kind]++
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), [...]string{"ok  ", "FAIL", "open", "note"}[x.Kind], x.Say)
			}
			if faults := count[Bad]; faults > 0 {
				return StatusError{fmt.Errorf("the record has %s; keep it as it is, and compare it with another copy", plural(faults, "fault")), 1}
			}
			if open := count[Open]; open > 0 {
				return StatusError{fmt.Errorf("nothing is wrong with what can be checked, and %s can't be checked here", plural(open, "thing")), 3}
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&keys, "key", nil, "PERSON=DIGEST of a passkey that counts, as often as needed; without it, those that the archive has")
	c.Flags().StringArrayVar(&witnesses, "witness", nil, "the key of a witness that must have signed the record, as often as needed")
	c.Flags().StringArrayVar(&logs, "log", nil, "the key of the record, as the bot's /log/key has it")
	c.Flags().StringArrayVar(&kept, "checkpoint", nil, "the file of a checkpoint that you have kept: the record must have grown from it")
	return c
}

func trusted(keys, witnesses, logs []string) (t Trust, err error) {
	for _, k := range keys {
		owner, digest, ok := strings.Cut(k, "=")
		digest = strings.ToLower(digest)
		if !ok || owner == "" || len(digest) < 20 || strings.Trim(digest, "0123456789abcdef") != "" {
			return t, fmt.Errorf("--key is %q; write it like web:alice=DIGEST, with 20 digits or more of the digest that the console shows", k)
		}
		if t.Keys == nil {
			t.Keys = map[string][]string{}
		}
		t.Keys[owner] = append(t.Keys[owner], digest)
	}
	for _, w := range witnesses {
		v, isWitness, err := cosign.Verifier(w)
		if err != nil {
			return t, fmt.Errorf("--witness: %w", err)
		}
		if !isWitness {
			return t, errors.New("--witness has the key of a log; take the one that the witness prints")
		}
		t.Witnesses = append(t.Witnesses, v)
	}
	for _, l := range logs {
		key, err := cosign.ParseLog(l)
		if err != nil {
			return t, fmt.Errorf("--log: %w", err)
		}
		t.Log = append(t.Log, key)
	}
	return t, nil
}
