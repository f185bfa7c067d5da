package observe

// Schema is the version of the OpenTelemetry semantic conventions whose names for
// generative AI this package uses: the last one that the Go module
// go.opentelemetry.io/otel had them in (semconv/v1.41.0; v1.42.0 and v1.43.0 have no
// "gen_ai." key any more, because they moved to the repository
// open-telemetry/semantic-conventions-genai). All of them are of the status
// "development" and may be renamed there; that is why they are constants of ours, and
// why spans carry no schema address, which would promise a translation.
const Schema = "1.41.0"

// Attributes of the conventions.
const (
	attrOperation    = "gen_ai.operation.name"
	attrProvider     = "gen_ai.provider.name"
	attrConversation = "gen_ai.conversation.id"
	attrAgent        = "gen_ai.agent.name"
	attrAgentID      = "gen_ai.agent.id"
	attrWorkflow     = "gen_ai.workflow.name"
	attrRequestModel = "gen_ai.request.model"
	attrMaxTokens    = "gen_ai.request.max_tokens" //nolint:gosec // these tokens are pieces of text
	attrStream       = "gen_ai.request.stream"
	attrAnswerModel  = "gen_ai.response.model"
	attrFinish       = "gen_ai.response.finish_reasons"
	attrFirstChunk   = "gen_ai.response.time_to_first_chunk" // seconds
	attrIn           = "gen_ai.usage.input_tokens"
	attrOut          = "gen_ai.usage.output_tokens"
	attrCached       = "gen_ai.usage.cache_read.input_tokens"
	attrReasoning    = "gen_ai.usage.reasoning.output_tokens"
	attrTool         = "gen_ai.tool.name"
	attrToolType     = "gen_ai.tool.type"
	attrCall         = "gen_ai.tool.call.id"
	attrError        = "error.type"

	// Content, only when somebody asked for it.
	attrInput     = "gen_ai.input.messages"
	attrOutput    = "gen_ai.output.messages"
	attrArguments = "gen_ai.tool.call.arguments"
	attrResult    = "gen_ai.tool.call.result"
)

// Values of gen_ai.operation.name; each is also the first word of a span's name.
const (
	opChat     = "chat"
	opTool     = "execute_tool"
	opAgent    = "invoke_agent"
	opWorkflow = "invoke_workflow"
)

// Attributes of our own.
const (
	attrTurn      = "countersign.turn"         // number of the entry that began the turn
	attrOutcome   = "countersign.outcome"      // of a turn or a tool call
	attrReplies   = "countersign.replies"      // of the model
	attrToolCalls = "countersign.tool_calls"   // that have a result
	attrApprovals = "countersign.approvals"    // requests that people were asked
	attrWaited    = "countersign.wait_seconds" // for people
	attrCost      = "countersign.cost_usd"
	attrApproval  = "countersign.approval.id"
	attrDecision  = "countersign.approval.decision"
	attrLevel     = "countersign.approval.level"
	attrBasis     = "countersign.approval.basis"
	attrRetries   = "countersign.retries"

	spanApproval = "countersign.approval"
	eventRetry   = "countersign.retry"
)

// otherError is what the conventions call an error of no known type.
const otherError = "_OTHER"

// Environment variables that this package itself reads. The exporter, the sampler, the
// batches and the limits of a span read their own, as the OpenTelemetry specification
// names them.
const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envTracesExporter = "OTEL_TRACES_EXPORTER"
	envDisabled       = "OTEL_SDK_DISABLED"
	envContent        = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
)
