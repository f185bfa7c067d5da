package verify

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"countersign/adapters/chat/visible"
	"countersign/internal/config"
	"countersign/internal/words"
)

// Command is the command verify.
func Command() *cobra.Command {
	var named []string
	c := &cobra.Command{
		Use: "verify ARCHIVE", Short: "Check the archive of an incident without a store or a network: chain, digests, votes and signatures", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var keys map[string][]string
			for _, k := range named {
				owner, digest, ok := strings.Cut(k, "=")
				digest = strings.ToLower(digest)
				if !ok || owner == "" || len(digest) < 12 || strings.Trim(digest, "0123456789abcdef") != "" {
					return config.Errorf("--key is %q; write it like web:alice=DIGEST, with 12 digits or more of the digest that the console shows", k)
				}
				if keys == nil {
					keys = map[string][]string{}
				}
				keys[owner] = append(keys[owner], digest)
			}
			f, err := os.Open(args[0])
			if err != nil {
				return config.Errorf("%v", err)
			}
			defer func() { _ = f.Close() }() // it was only read
			info, err := f.Stat()
			if err != nil {
				return err
			}
			found, err := Archive(cmd.Context(), f, info.Size(), keys)
			if err != nil {
				return config.Errorf("%s: %v", args[0], err)
			}
			faults := 0
			for _, x := range found {
				label := "ok  "
				if x.Bad {
					faults++
					label = "FAIL"
				}
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), label, visible.Text(x.Say))
			}
			if faults > 0 {
				return fmt.Errorf("the record has %s; keep it as it is, and compare it with another copy", words.Plural(faults, "fault"))
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&named, "key", nil, "PERSON=DIGEST of a passkey that counts, as often as needed; without it, those that the archive has")
	return c
}
