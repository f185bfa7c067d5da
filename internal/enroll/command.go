// Package enroll is the command that lets a host take certificates of the signer.
package enroll

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"countersign/bot/machines"
	"countersign/internal/config"
	"countersign/signer/enroll"
)

// Command is the command target.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "target", Short: "Prepare a target", Args: cobra.NoArgs}
	var program, install string
	var yes bool
	e := &cobra.Command{
		Use: "enroll TARGET", Short: "Print the script that lets a host take certificates of the signer, or install it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := host(cmd, args[0], program)
			if err != nil {
				return err
			}
			script, err := enroll.Script(h)
			if err != nil {
				return config.Errorf("%v", err)
			}
			if install == "" {
				if f, ok := cmd.OutOrStdout().(*os.File); ok {
					if st, err := f.Stat(); err == nil && st.Mode()&fs.ModeCharDevice != 0 {
						return config.Errorf("the script has the runner in it, %d MB of text; run: bot target enroll %s | ssh root@HOST sh", len(script)>>20+1, args[0])
					}
				}
				_, err := io.WriteString(cmd.OutOrStdout(), script)
				return err
			}
			return run(cmd, h, script, install, yes)
		},
	}
	e.Flags().StringVar(&program, "program", "", "the file of countersign-runner for the host's processor; without it, the one beside this program")
	e.Flags().StringVar(&install, "install", "", "USER@HOST: run the script there as root, by your own ssh")
	e.Flags().BoolVar(&yes, "yes", false, "with --install: don't ask")
	c.AddCommand(e)
	return c
}

// host is what the script is for.
func host(cmd *cobra.Command, target, program string) (enroll.Host, error) {
	e, f, err := config.Read()
	if err != nil {
		return enroll.Host{}, err
	}
	t, ok := f.Targets[target]
	if !ok || t.Credential != config.PerApproval {
		return enroll.Host{}, config.Errorf("no target %q has credential: %s; add it to the configuration first", target, config.PerApproval)
	}
	c, err := machines.Signer(&machines.Options{Env: e, File: f, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return enroll.Host{}, config.Errorf("%v", err)
	}
	keys, err := c.Authorities(cmd.Context())
	if err != nil {
		return enroll.Host{}, err
	}
	if program == "" {
		exe, err := os.Executable()
		if err != nil {
			return enroll.Host{}, err
		}
		if exe, err = filepath.EvalSymlinks(exe); err != nil {
			return enroll.Host{}, err
		}
		program = filepath.Join(filepath.Dir(exe), "countersign-runner")
	}
	raw, err := os.ReadFile(program)
	if errors.Is(err, fs.ErrNotExist) {
		return enroll.Host{}, config.Errorf("there is no %s; take countersign-runner from the release, and name it with --program", program)
	}
	return enroll.Host{Target: target, Watch: t.User, RunAs: t.RunAs, Authorities: keys, Program: raw}, err
}

// run runs the script on a host, once the person agrees.
func run(cmd *cobra.Command, h enroll.Host, script, login string, yes bool) error {
	if strings.HasPrefix(login, "-") {
		return config.Errorf("--install is %q; write USER@HOST", login)
	}
	out := cmd.ErrOrStderr()
	_, _ = fmt.Fprintf(out, "On %s, as root, this creates the accounts %s (read-only) and %s (approved commands) if they are missing,\ninstalls %s, and lets these authorities sign certificates for both accounts on %s:\n",
		login, h.Watch, h.RunAs, enroll.Runner, h.Target)
	for _, k := range h.Authorities {
		_, _ = fmt.Fprintln(out, "  "+k)
	}
	if !yes {
		_, _ = fmt.Fprint(out, "Go on? [y/N] ")
		answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if word := strings.ToLower(strings.TrimSpace(answer)); err != nil || word != "y" && word != "yes" {
			return errors.New("nothing was changed")
		}
	}
	c := exec.CommandContext(cmd.Context(), "ssh", "--", login, `if [ "$(id -u)" = 0 ]; then sh; else sudo -n sh; fi`)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(script), cmd.OutOrStdout(), out
	if err := c.Run(); err != nil {
		return fmt.Errorf("the host wasn't enrolled: %w", err)
	}
	return nil
}
