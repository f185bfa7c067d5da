package tools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// kinds are all that the chart may render, each with the type that its documents are decoded
// into.
var kinds = map[string]func() metav1.Object{
	"apps/v1 StatefulSet":                      func() metav1.Object { return &appsv1.StatefulSet{} },
	"apps/v1 Deployment":                       func() metav1.Object { return &appsv1.Deployment{} },
	"v1 Pod":                                   func() metav1.Object { return &corev1.Pod{} },
	"v1 Service":                               func() metav1.Object { return &corev1.Service{} },
	"v1 ServiceAccount":                        func() metav1.Object { return &corev1.ServiceAccount{} },
	"v1 ConfigMap":                             func() metav1.Object { return &corev1.ConfigMap{} },
	"v1 Secret":                                func() metav1.Object { return &corev1.Secret{} },
	"v1 PersistentVolumeClaim":                 func() metav1.Object { return &corev1.PersistentVolumeClaim{} },
	"networking.k8s.io/v1 NetworkPolicy":       func() metav1.Object { return &networkingv1.NetworkPolicy{} },
	"networking.k8s.io/v1 Ingress":             func() metav1.Object { return &networkingv1.Ingress{} },
	"policy/v1 PodDisruptionBudget":            func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
	"rbac.authorization.k8s.io/v1 Role":        func() metav1.Object { return &rbacv1.Role{} },
	"rbac.authorization.k8s.io/v1 RoleBinding": func() metav1.Object { return &rbacv1.RoleBinding{} },
	"monitoring.coreos.com/v1 ServiceMonitor":  func() metav1.Object { return &monitoringv1.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule":  func() metav1.Object { return &monitoringv1.PrometheusRule{} },
}

// release is what one file of ci renders to.
type release struct {
	name    string
	objects map[string]metav1.Object // by "Kind name"
}

// all returns the objects of one type.
func all[T metav1.Object](r release) []T {
	var out []T
	for _, o := range r.objects {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// workload is what runs the bot: a StatefulSet, or a Deployment where the store is a database.
type workload struct {
	kind, name string
	labels     map[string]string // of the workload itself
	replicas   int32
	selector   *metav1.LabelSelector
	pod        corev1.PodTemplateSpec
	set        *appsv1.StatefulSet // nil for a Deployment
	deployment *appsv1.Deployment  // nil for a StatefulSet
}

// bot returns the only workload of a release.
func bot(t *testing.T, r release) workload {
	t.Helper()
	var out []workload
	for _, s := range all[*appsv1.StatefulSet](r) {
		out = append(out, workload{kind: "StatefulSet", name: s.Name, labels: s.Labels, replicas: *s.Spec.Replicas, selector: s.Spec.Selector, pod: s.Spec.Template, set: s})
	}
	for _, d := range all[*appsv1.Deployment](r) {
		out = append(out, workload{kind: "Deployment", name: d.Name, labels: d.Labels, replicas: *d.Spec.Replicas, selector: d.Spec.Selector, pod: d.Spec.Template, deployment: d})
	}
	if len(out) != 1 {
		t.Fatalf("%s has %d workloads, and should have one", r.name, len(out))
	}
	return out[0]
}

// releases reads what charts/check has rendered.
func releases(t *testing.T) []release {
	t.Helper()
	dir := os.Getenv("CHART_RENDERED")
	if dir == "" {
		t.Skip("CHART_RENDERED is not set; run charts/check, which renders the chart and sets it")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing is rendered in %s (%v)", dir, err)
	}
	out := make([]release, 0, len(files))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := release{name: strings.TrimSuffix(filepath.Base(file), ".yaml"), objects: map[string]metav1.Object{}}
		for _, doc := range documents(t, b) {
			key, o, err := decode(doc)
			if err != nil {
				t.Errorf("%s: %v in\n%s", r.name, err, doc)
				continue
			}
			if r.objects[key] != nil {
				t.Errorf("%s renders %s twice", r.name, key)
			}
			r.objects[key] = o
		}
		out = append(out, r)
	}
	if t.Failed() {
		t.FailNow()
	}
	return out
}

// documents splits a stream of YAML; documents of comments alone are left out.
func documents(t *testing.T, b []byte) [][]byte {
	t.Helper()
	var out [][]byte
	r := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(b)))
	buf := make([]byte, len(b)+1)
	for {
		n, err := r.Read(buf)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		doc := bytes.Clone(buf[:n])
		var content map[string]any
		if err := yaml.Unmarshal(doc, &content); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(content) > 0 {
			out = append(out, doc)
		}
	}
}

// decode reads one document: an unknown or a repeated field is an error.
func decode(doc []byte) (string, metav1.Object, error) {
	var tm metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &tm); err != nil {
		return "", nil, err
	}
	empty, ok := kinds[tm.APIVersion+" "+tm.Kind]
	if !ok {
		return "", nil, fmt.Errorf("the chart should render no %s of %s", tm.Kind, tm.APIVersion)
	}
	o := empty()
	if err := yaml.UnmarshalStrict(doc, o); err != nil {
		return "", nil, err
	}
	return tm.Kind + " " + o.GetName(), o, nil
}
