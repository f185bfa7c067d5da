package impact

import (
	"context"
	"slices"
	"strings"
)

// managerColumns are what the programs that keep a cluster as a repository has it write on their objects:
// argo-cd.readthedocs.io, "Resource Tracking"; fluxcd.io, "Kustomization" and "HelmReleases"; and helm.sh,
// "Labels and Annotations".
const managerColumns = `custom-columns=KIND:.kind,ARGO:.metadata.annotations.argocd\.argoproj\.io/tracking-id,APP:.metadata.labels.argocd\.argoproj\.io/instance,` +
	`FLUX:.metadata.labels.kustomize\.toolkit\.fluxcd\.io/name,RELEASE:.metadata.labels.helm\.toolkit\.fluxcd\.io/name,BY:.metadata.labels.app\.kubernetes\.io/managed-by,` +
	`HELM:.metadata.annotations.meta\.helm\.sh/release-name`

// manager says who manages an object, by a row of managerColumns; "" is nobody that is known. helm is true where the
// change is helm's own.
func manager(row string, helm bool) string {
	f := strings.Fields(row)
	if len(f) != 7 {
		return ""
	}
	argo, app, flux, release, by, own := f[1], f[2], f[3], f[4], f[5], f[6]
	if id, _, ok := strings.Cut(argo, ":"); ok { // app:group/kind:namespace/name
		app = id
	}
	switch {
	case app != none:
		return "managed by Argo CD, app " + show(app) + ": its next sync takes this back"
	case flux != none:
		return "managed by Flux, kustomization " + show(flux) + ": its next reconciliation takes this back"
	case release != none:
		return "managed by Flux, Helm release " + show(release) + ": its next reconciliation takes this back"
	case by == "Helm" && own != none && !helm:
		return "managed by Helm, release " + show(own) + ": its next upgrade takes this back"
	}
	return ""
}

// sayManager says first who will take a change of these objects back.
func (p *probe) sayManager(ctx context.Context, scope string, things []string, helm bool) {
	list, ok := p.rows(ctx, "kubectl get"+scope+" --ignore-not-found --no-headers -o "+quoted(managerColumns)+" "+join(things))
	if !ok {
		return
	}
	var said []string
	for _, row := range list {
		if s := manager(row, helm); s != "" && !slices.Contains(said, s) && len(said) < 2 {
			said = append(said, visible(s, maxLine))
		}
	}
	p.lines = append(said, p.lines...)
}

// changedObjects are the objects that a verb of kubectl's changes, without what is to be set.
func changedObjects(c call) []string {
	from := 1
	switch c.Operand(0) {
	case "delete", "scale", "patch", "edit", "label", "annotate", "autoscale", "replace":
	case "set", "rollout":
		from = 2
	default:
		return nil
	}
	var things []string
	for _, s := range c.Texts(from) {
		if !strings.Contains(s, "=") && !strings.HasSuffix(s, "-") {
			things = append(things, s)
		}
	}
	if len(things) == 1 && !strings.Contains(things[0], "/") && !c.Has("-l", "--selector", "--field-selector", "--all") {
		return nil // it fails
	}
	return things
}
