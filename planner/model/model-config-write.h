/* Writes a model as a config.json that transformers reads. */
#pragma once
#include "planner/base/dtype.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* Architectures of transformers that can be written. X (ID, "model_type", "class") */
#define PLAN_ARCHITECTURE_LIST(X) \
  X (LLAMA, "llama", "LlamaForCausalLM") \
  X (MISTRAL, "mistral", "MistralForCausalLM") \
  X (QWEN2, "qwen2", "Qwen2ForCausalLM") \
  X (QWEN3, "qwen3", "Qwen3ForCausalLM") \
  X (MIXTRAL, "mixtral", "MixtralForCausalLM") \
  X (QWEN3_MOE, "qwen3_moe", "Qwen3MoeForCausalLM") \
  X (QWEN2_MOE, "qwen2_moe", "Qwen2MoeForCausalLM") \
  X (GLM4_MOE, "glm4_moe", "Glm4MoeForCausalLM") \
  X (GPT_OSS, "gpt_oss", "GptOssForCausalLM") \
  X (GPT2, "gpt2", "GPT2LMHeadModel") \
  X (GEMMA, "gemma", "GemmaForCausalLM") \
  X (GEMMA2, "gemma2", "Gemma2ForCausalLM") \
  X (GEMMA3, "gemma3_text", "Gemma3ForCausalLM") \
  X (PHI3, "phi3", "Phi3ForCausalLM") \
  X (GPT_NEOX, "gpt_neox", "GPTNeoXForCausalLM") \
  X (BLOOM, "bloom", "BloomForCausalLM") \
  X (FALCON, "falcon", "FalconForCausalLM") \
  X (MPT, "mpt", "MptForCausalLM") \
  X (SMOLLM3, "smollm3", "SmolLM3ForCausalLM") \
  X (LLAMA4, "llama4_text", "Llama4ForCausalLM") \
  X (OLMOE, "olmoe", "OlmoeForCausalLM") \
  X (MINIMAX_M2, "minimax_m2", "MiniMaxM2ForCausalLM") \
  X (QWEN3_NEXT, "qwen3_next", "Qwen3NextForCausalLM") \
  X (QWEN3_5, "qwen3_5_text", "Qwen3_5ForCausalLM") \
  X (QWEN3_5_MOE, "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM") \
  X (NEMOTRON_H, "nemotron_h", "NemotronHForCausalLM") \
  X (DEEPSEEK_V2, "deepseek_v2", "DeepseekV2ForCausalLM") \
  X (DEEPSEEK_V3, "deepseek_v3", "DeepseekV3ForCausalLM")

typedef enum
{
#define X(id, ...) PLAN_ARCHITECTURE_##id,
  PLAN_ARCHITECTURE_LIST (X)
#undef X
      PLAN_N_ARCHITECTURES
} PlanArchitecture;

const char *plan_architecture_class (PlanArchitecture architecture);

/* The text of config.json for weights in that format, and the architecture: that of the model's
 * family, or else the first one whose text reads back as this model. UNSUPPORTED where there is
 * none. */
char *plan_model_print_config (const PlanModel *self, PlanDtype dtype,
                               PlanArchitecture *out_architecture, GError **error);

G_END_DECLS
