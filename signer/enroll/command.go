package enroll

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"countersign/signer"
)

// Command is the command enroll of the signer. Who runs it trusts this machine, and not the bot's.
func Command() *cobra.Command {
	var program string
	var keep bool
	c := &cobra.Command{
		Use: "enroll TARGET", Short: "Print the script that lets a host take certificates of the signer", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := cmd.Flags().GetString("config")
			if err != nil {
				return err
			}
			h, err := host(file, args[0], program)
			if err != nil {
				return err
			}
			h.KeepKeys = keep
			text, err := Script(h)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&program, "program", "", "the file of countersign-runner for the host's processor; without it, the one beside this program")
	c.Flags().BoolVar(&keep, "keep-keys", false, "leave the keys that open the accounts for approved commands; whoever has one needs no approval")
	return c
}

// host is what the script is for.
func host(config, target, program string) (Host, error) {
	c, err := signer.Load(config)
	if err != nil {
		return Host{}, err
	}
	t, ok := c.Targets[target]
	if !ok {
		return Host{}, fmt.Errorf("%s has no target %q; add it first", config, target)
	}
	keys, err := c.Authorities()
	if err != nil {
		return Host{}, err
	}
	if program == "" {
		exe, err := os.Executable()
		if err != nil {
			return Host{}, err
		}
		if exe, err = filepath.EvalSymlinks(exe); err != nil {
			return Host{}, err
		}
		program = filepath.Join(filepath.Dir(exe), "countersign-runner")
	}
	raw, err := os.ReadFile(program)
	if errors.Is(err, fs.ErrNotExist) {
		return Host{}, fmt.Errorf("there is no %s; take countersign-runner from the release, and name it with --program", program)
	}
	return Host{Target: target, HostKey: t.HostKey, Watch: t.Watch, RunAs: t.Users, Authorities: keys, Program: raw}, err
}
