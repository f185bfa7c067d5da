package runner

import (
	"errors"
	"fmt"
	"regexp"

	"countersign/targets/certificate"
)

var (
	runName = regexp.MustCompile(`^[a-z0-9]{10}(\.[1-9][0-9]{0,3})?$`)
	hexSum  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ParseJob reads the words of a [certificate.Job.Command] behind the program.
func ParseJob(args []string) (certificate.Job, error) {
	var j certificate.Job
	if len(args) > 0 {
		j.Kind = certificate.Kind(args[0])
	}
	want := map[certificate.Kind]int{certificate.Watch: 1, certificate.Follow: 3, certificate.Change: 4}[j.Kind]
	if want == 0 || len(args) != want {
		return certificate.Job{}, errors.New("the arguments are watch, change NAME KEY DIGEST, or follow NAME KEY; the signer and the runner are of different versions, so enroll the host again")
	}
	if want > 1 {
		if j.Name = args[1]; !runName.MatchString(j.Name) {
			return certificate.Job{}, fmt.Errorf("%q is no name of a run", j.Name)
		}
		if j.Key = args[2]; !hexSum.MatchString(j.Key) {
			return certificate.Job{}, fmt.Errorf("%q names no key", j.Key)
		}
	}
	if want > 3 {
		if j.Digest = args[3]; !hexSum.MatchString(j.Digest) {
			return certificate.Job{}, fmt.Errorf("%q is no digest", j.Digest)
		}
	}
	return j, nil
}
