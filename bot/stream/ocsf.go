package stream

import (
	"cmp"
	"strings"
	"time"

	"countersign/approvals/audit"
)

// schemaVersion is the version of the Open Cybersecurity Schema Framework that events follow
// (https://schema.ocsf.io/1.8.0).
const schemaVersion = "1.8.0"

// Event is an event of OCSF: API Activity (class 6003) for what happens to a request, and Process Activity
// (class 1007) for the begin and the end of a command. docs/stream.md explains the fields.
type Event struct {
	Activity     int       `json:"activity_id"`
	ActivityName string    `json:"activity_name,omitempty"` // of an activity that the schema has no number for
	Category     int       `json:"category_uid"`
	Class        int       `json:"class_uid"`
	Type         int       `json:"type_uid"`
	Time         int64     `json:"time"` // milliseconds
	Severity     int       `json:"severity_id"`
	Status       int       `json:"status_id,omitempty"`
	StatusDetail string    `json:"status_detail,omitempty"`
	Message      string    `json:"message"`
	Metadata     metadata  `json:"metadata"`
	Actor        actor     `json:"actor"`
	API          *api      `json:"api,omitempty"`
	Source       *endpoint `json:"src_endpoint,omitempty"`
	Resources    []named   `json:"resources,omitempty"`
	Device       *device   `json:"device,omitempty"`
	Process      *process  `json:"process,omitempty"`
	// Unmapped is what the schema has no place for.
	Unmapped unmapped `json:"unmapped"`
}

type metadata struct {
	Version     string  `json:"version"`
	UID         string  `json:"uid"` // new for each event: what comes twice has the same
	Product     product `json:"product"`
	Correlation string  `json:"correlation_uid,omitempty"` // the request
}

type product struct {
	Name    string `json:"name"`
	Vendor  string `json:"vendor_name"`
	Version string `json:"version,omitempty"`
}

type actor struct {
	User *user  `json:"user,omitempty"`
	App  string `json:"app_name"`
}

type user struct {
	UID    string  `json:"uid"`
	Groups []named `json:"groups,omitempty"`
}

type api struct {
	Operation string `json:"operation"`
	Request   *uid   `json:"request,omitempty"`
	Service   named  `json:"service"`
}

type uid struct {
	UID string `json:"uid"`
}

type endpoint struct {
	Service string `json:"svc_name"`
}

type named struct {
	Name string `json:"name"`
	Type string `json:"type,omitempty"`
}

type device struct {
	Name string `json:"name"`
	Type int    `json:"type_id"`
}

type process struct {
	UID     string `json:"uid"`
	Command string `json:"cmd_line,omitempty"`
}

type unmapped struct {
	Thread        string   `json:"thread"`
	Request       string   `json:"request,omitempty"`
	Call          string   `json:"call,omitempty"`
	Digest        string   `json:"digest,omitempty"`
	Tool          string   `json:"tool,omitempty"`
	Kind          string   `json:"kind,omitempty"`
	Risk          string   `json:"risk,omitempty"`
	Effects       []string `json:"effects,omitempty"`
	Rule          string   `json:"rule,omitempty"`
	Policy        string   `json:"policy,omitempty"`
	Via           string   `json:"via,omitempty"`
	Command       string   `json:"command,omitempty"`
	CommandSHA256 string   `json:"command_sha256,omitempty"`
	Note          string   `json:"note,omitempty"`
}

// Numbers of the schema.
const (
	application, apiActivity = 6, 6003
	system, processActivity  = 1, 1007

	launch, terminate = 1, 2
	create, update    = 1, 3
	other             = 99

	informational, low, medium, high, critical = 1, 2, 3, 4, 5

	success, failure = 1, 2

	unknownDevice = 0
)

// severity is that of a risk.
func severity(level string) int {
	switch level {
	case "low":
		return low
	case "medium":
		return medium
	case "high":
		return high
	case "critical":
		return critical
	}
	return informational
}

// Of makes the event of a line of the audit record. id is new for each event.
func Of(thread string, e audit.Event, at time.Time, id, version string) Event {
	ev := Event{
		Time: at.UnixMilli(), Severity: severity(e.Level), Status: success, StatusDetail: e.Outcome, Message: sentence(e),
		Metadata: metadata{Version: schemaVersion, UID: id, Product: product{"Countersign", "Countersign", version}, Correlation: e.Approval},
		Actor:    actor{App: "Countersign"},
		Unmapped: unmapped{
			Thread: thread, Request: e.Approval, Call: e.Call, Digest: e.Digest, Tool: e.Tool, Kind: e.Kind, Risk: e.Level, Effects: e.Effects, Rule: e.Rule,
			Policy: e.Policy, Via: e.Via, CommandSHA256: e.CommandSHA256, Note: e.Note,
		},
	}
	if e.User != "" {
		ev.Actor.User = &user{UID: e.User}
		for _, g := range e.Groups {
			ev.Actor.User.Groups = append(ev.Actor.User.Groups, named{Name: g})
		}
	}
	switch e.What {
	case audit.Denied, audit.Refused, audit.Forbidden, audit.Expired, audit.Cancelled, audit.Invalid, audit.UndoFailed, audit.NotRun:
		ev.Status = failure
	case audit.Unknown:
		ev.Status = 0
	}
	if runs := e.What == audit.Running || e.What == audit.Done; runs && e.Kind == "shell" && e.Target != "" {
		ev.Category, ev.Class, ev.Activity = system, processActivity, launch
		if e.What == audit.Done {
			ev.Activity = terminate
		}
		ev.Device = &device{e.Target, unknownDevice}
		ev.Process = &process{UID: cmp.Or(e.Approval, e.Call, id), Command: e.Command}
	} else {
		ev.Category, ev.Class, ev.Activity = application, apiActivity, update
		switch e.What {
		case audit.Asked:
			ev.Activity = create
		case audit.Allowed, audit.Policy, audit.Revoked:
			ev.Activity, ev.ActivityName = other, e.What
		}
		ev.Unmapped.Command = e.Command
		ev.API = &api{Operation: strings.ReplaceAll(e.What, " ", "_"), Service: named{Name: "countersign"}}
		if e.Approval != "" {
			ev.API.Operation, ev.API.Request = "request."+ev.API.Operation, &uid{e.Approval}
		}
		ev.Source = &endpoint{cmp.Or(network(e.User), network(thread), "countersign")}
		if e.Target != "" {
			ev.Resources = []named{{Name: e.Target, Type: "target"}}
		}
	}
	ev.Type = 100*ev.Class + ev.Activity
	return ev
}

// network is where an id comes from: slack of "slack:T1:U2".
func network(id string) string {
	n, _, ok := strings.Cut(id, ":")
	if !ok {
		return ""
	}
	return n
}

// sentence says what happened, for people who look at a list.
func sentence(e audit.Event) string {
	s := e.What
	if e.Approval != "" {
		s = "request " + e.Approval + " " + e.What
	}
	if e.User != "" {
		s += " by " + e.User
	}
	if e.Target != "" {
		s += " on " + e.Target
	}
	if e.Note != "" {
		s += ": " + e.Note
	}
	return s
}
