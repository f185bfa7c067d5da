package openai

import (
	"errors"
	"net/url"
	"strings"
)

// brand is a service whose requests differ from everybody's.
type brand int

const (
	generic brand = iota
	openAI
	azure
	openRouter
	google // Gemini's layer for clients of OpenAI
)

const (
	chatPath      = "/chat/completions"
	responsesPath = "/responses"
	// deployments is in the classic addresses of Azure, before the deployment's
	// name: learn.microsoft.com/azure/ai-foundry/openai/reference.
	deployments = "/openai/deployments/"
)

// endpoint is where and how a server is asked.
type endpoint struct {
	brand brand
	host  string // for sentences
	base  string // without its query and without the path of a method
	query string // goes with every request
	// deployment is the one in a classic address of Azure. The model that was
	// configured is it, whatever its name; any other model is a deployment's name.
	deployment string
	configured string
}

// endpointOf reads OPENAI_BASE_URL. Its errors are sentences.
func endpointOf(base string) (*endpoint, error) {
	bad := errors.New("OPENAI_BASE_URL isn't a URL; write it like https://api.openai.com/v1")
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Fragment != "" {
		return nil, bad
	}
	if u.User != nil {
		return nil, errors.New("OPENAI_BASE_URL holds a user or password; leave them out, and set OPENAI_API_KEY")
	}
	e := &endpoint{host: u.Host, brand: brandOf(u)}
	if u.RawQuery != "" || u.ForceQuery {
		q, err := url.ParseQuery(u.RawQuery)
		if e.brand != azure || err != nil || len(q) != 1 || q.Get("api-version") == "" {
			return nil, bad
		}
		e.query = q.Encode()
	}
	u.RawQuery, u.ForceQuery = "", false
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	for _, method := range []string{chatPath, responsesPath} {
		u.Path = strings.TrimSuffix(u.Path, method)
	}
	if e.brand == azure {
		if _, rest, ok := strings.Cut(u.Path+"/", deployments); ok {
			e.deployment, _, _ = strings.Cut(rest, "/")
			if e.deployment == "" {
				return nil, errors.New("OPENAI_BASE_URL names no deployment; write https://NAME.openai.azure.com/openai/deployments/DEPLOYMENT?api-version=VERSION")
			}
			if e.query == "" {
				return nil, errors.New("OPENAI_BASE_URL lacks its version; add ?api-version=VERSION, or use https://NAME.openai.azure.com/openai/v1 which needs none")
			}
		} else if u.Path == "" {
			u.Path = "/openai/v1"
		}
	}
	e.base = u.String()
	return e, nil
}

func brandOf(u *url.URL) brand {
	host := strings.ToLower(u.Hostname())
	under := func(names ...string) bool {
		for _, n := range names {
			if host == n || strings.HasSuffix(host, "."+n) {
				return true
			}
		}
		return false
	}
	switch {
	case under("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"), strings.Contains(u.Path, deployments):
		return azure
	case host == "api.openai.com":
		return openAI
	case under("openrouter.ai"):
		return openRouter
	case under("generativelanguage.googleapis.com", "aiplatform.googleapis.com"), strings.HasSuffix(host, "-aiplatform.googleapis.com"):
		return google
	}
	return generic
}

// path is where a request for a model goes, given the path that the client
// library made of the base.
func (e *endpoint) path(path, model string) string {
	if e.deployment == "" {
		return path
	}
	prefix, rest, ok := strings.Cut(path, deployments)
	_, method, cut := strings.Cut(rest, "/")
	if !ok || !cut {
		return path
	}
	if "/"+method == responsesPath {
		return prefix + "/openai" + responsesPath // the model is in the body alone
	}
	name := e.deployment
	if model != "" && model != e.configured {
		name = model
	}
	return prefix + deployments + name + "/" + method
}

// requestModel is the name of a model in a request's body.
func (e *endpoint) requestModel(model string) string {
	if e.deployment != "" && (model == "" || model == e.configured) {
		return e.deployment
	}
	return model
}

// bare is a model's name without the vendor before it ("openai/gpt-5").
func bare(model string) string {
	return strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
}

// prefersResponses says whether a model is asked through the Responses API
// unless somebody configured otherwise: gpt-6 models take tools only there.
func (e *endpoint) prefersResponses(model string) bool {
	return e.brand == openAI && strings.HasPrefix(bare(model), "gpt-6")
}

// newMaxName says whether a chat request bounds its reply by the name
// max_completion_tokens: OpenAI's reasoning models refuse max_tokens, and many
// servers know only that.
func (e *endpoint) newMaxName(model string) bool {
	if e.brand == openAI || e.brand == azure {
		return true
	}
	for _, p := range []string{"o1", "o3", "o4", "gpt-5", "gpt-6"} {
		if strings.HasPrefix(bare(model), p) {
			return true
		}
	}
	return false
}
