// Package tools checks what the chart countersign renders. Its tests read the documents that
// charts/check has rendered with each file of ci, decode them strictly into the types of
// Kubernetes, and look at what a schema cannot say: the Pod Security Standard "restricted",
// selectors that meet, addresses that stay closed, replicas that share nothing but a database.
// They parse every PromQL expression of the alerts and the dashboard, and look whether it holds
// for a bot of several replicas.
//
// It is a module of its own so that the bot's module does not need Kubernetes; its go.mod also
// pins the programs that charts/check runs. kubectl-validate needs older libraries than Helm
// and has a module of its own in validate. Nothing here installs anything into a cluster.
package tools
