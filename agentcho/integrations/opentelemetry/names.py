"""Names from OpenTelemetry's semantic conventions for generative AI, and agentcho's own names.

None of the conventions' names is stable, and some were renamed before, so each is defined once, here. Source:
https://github.com/open-telemetry/semantic-conventions-genai.
"""

from __future__ import annotations

SCOPE = "agentcho"
"""The instrumentation scope."""

# -- spans and events ------------------------------------------------------------------------------------------
INVOKE_WORKFLOW = "invoke_workflow"
INVOKE_AGENT = "invoke_agent"
EXECUTE_TOOL = "execute_tool"
EVALUATION = "gen_ai.evaluation.result"
FIRST_TOKEN = "agentcho.first_token"
STEP = "agentcho.step"

# -- attributes of the conventions -----------------------------------------------------------------------------
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
WORKFLOW = "gen_ai.workflow.name"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.name"
MODEL = "gen_ai.request.model"
TEMPERATURE = "gen_ai.request.temperature"
MAX_TOKENS = "gen_ai.request.max_tokens"
SEED = "gen_ai.request.seed"
FINISH = "gen_ai.response.finish_reasons"
RESPONSE = "gen_ai.response.id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT = "gen_ai.output.messages"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
SCORE_NAME = "gen_ai.evaluation.name"
SCORE = "gen_ai.evaluation.score.value"
TOKEN_TYPE = "gen_ai.token.type"
ERROR = "error.type"

# -- agentcho's own attributes ---------------------------------------------------------------------------------
GAME = "agentcho.game"
MESSAGE = "agentcho.message"
AUDIENCE = "agentcho.audience"
ENDED = "agentcho.ended"
RACED = "agentcho.raced"
MODE = "agentcho.mode"
LEAKAGE = "agentcho.leakage"
CONCLUSION = "agentcho.audit.conclusion"
STEP_NUMBER = "agentcho.step.number"
STEP_FED = "agentcho.step.tokens_fed"
STEP_SAMPLED = "agentcho.step.tokens_sampled"
RULE = "agentcho.rule"

# -- metrics ---------------------------------------------------------------------------------------------------
TIME_TO_FIRST_TOKEN = "gen_ai.client.operation.time_to_first_chunk"
DURATION = "gen_ai.client.operation.duration"
TOKENS = "gen_ai.client.token.usage"
REUSE = "agentcho.reuse.share"
STORE = "agentcho.store.held"
LEAKS = "agentcho.leaks"
