package config

import (
	"slices"

	"countersign/approvals/passkey"
	"countersign/approvals/policy"
)

// Site is the console's address for people's passkeys; the zero Site where browsers have none.
func (f File) Site() passkey.Site {
	s, err := passkey.SiteOf(f.Web.Origin)
	if err != nil {
		return passkey.Site{}
	}
	return s
}

// checkPasskeys refuses a configuration in which approvals must be signed and nobody can sign.
func (f File) checkPasskeys(path string) error {
	asked := f.Policy.Approve.Proof != "" || slices.ContainsFunc(f.Policy.Rules, func(r policy.Rule) bool { return r.Approve.Proof != "" })
	for _, t := range f.Targets {
		asked = asked || t.Approve.Proof != ""
	}
	if !asked {
		return nil
	}
	if _, err := passkey.SiteOf(f.Web.Origin); err != nil {
		return Errorf("%s: approvals have proof: passkey, so somebody must be able to sign them: %v", path, err)
	}
	return nil
}
