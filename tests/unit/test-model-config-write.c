/* SPDX-License-Identifier: Apache-2.0 */
/* Which config.json of Hugging Face is written for a model. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/model/model-config-write.h"
#include "planner/model/model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The config.json is chosen by what a model computes, not by the name of its family. */
static const struct
{
  const char *spec;
  PlanArchitecture architecture;
  const char *message;
} written[] = {
#define OTHERS "layers=4,hidden=8,ffn=32,heads=2,vocab=9,max_seq=64"
#define SPEC "layers=4,hidden=8,ffn=8,heads=2,kv_heads=1,vocab=9,max_seq=64"
#define LATENT OTHERS ",kv_lora=3,nope_dim=4,rope_dim=2,v_dim=5"
  { "family=phi3," SPEC, PLAN_ARCHITECTURE_PHI3, NULL },
  { "family=phi3,window=8,rope_fraction=0.5," SPEC, PLAN_ARCHITECTURE_PHI3, NULL },
  { "family=mixtral,window=8,experts=0,topk=0," SPEC, PLAN_ARCHITECTURE_MISTRAL, NULL },
  { "family=gemma2,window=8,attn_softcap=0,attn_scalar=7.5," SPEC, PLAN_ARCHITECTURE_GEMMA2, NULL },
  { "family=llama,tied=on,activation=gelu_tanh,norm_1p=on,embed_scale=on," SPEC,
    PLAN_ARCHITECTURE_GEMMA, NULL },
  { "family=gemma,activation=gelu," SPEC, PLAN_N_ARCHITECTURES,
    "GemmaForCausalLM in transformers has no activation=gelu" },
  { "family=qwen3_next,attn_every=2,rope_fraction=0.5,delta_conv=3,experts=8,topk=2," SPEC,
    PLAN_ARCHITECTURE_QWEN3_NEXT, NULL },
  { "family=qwen3_5_text,delta_key_heads=4,tied=on," SPEC, PLAN_ARCHITECTURE_QWEN3_5, NULL },
  { "family=qwen3_5_moe_text,expert_ffn=8,mtp=1,attn_gate=off," SPEC, PLAN_ARCHITECTURE_QWEN3_5_MOE,
    NULL },
  { "family=nemotron_h,pattern=M*-M,ssm_heads=8,ssm_conv=3,tied=on," SPEC,
    PLAN_ARCHITECTURE_NEMOTRON_H, NULL },
  { "family=qwen3,attn_gate=on," SPEC, PLAN_N_ARCHITECTURES,
    "Qwen3ForCausalLM in transformers has no attn_gate=on" },
  { "family=gemma3_text,window=8,full_every=2,logit_softcap=7,rope_local=99," SPEC,
    PLAN_ARCHITECTURE_GEMMA3, NULL },
  { "family=qwen3,window=8,full_every=4," SPEC, PLAN_ARCHITECTURE_QWEN3, NULL },
  { "family=gpt_neox,kv_heads=2,rope_fraction=0.5,parallel=off," OTHERS, PLAN_ARCHITECTURE_GPT_NEOX,
    NULL },
  { "family=gpt_neox,kv_heads=1,rope_fraction=0.5," OTHERS, PLAN_N_ARCHITECTURES,
    "GPTNeoXForCausalLM in transformers has no kv_heads=1" },
  { "family=mpt,kv_heads=2," OTHERS, PLAN_ARCHITECTURE_MPT, NULL },
  { "family=deepseek_v2,dense_layers=1,experts=8,topk=2,expert_ffn=10,shared_ffn=20," LATENT,
    PLAN_ARCHITECTURE_DEEPSEEK_V2, NULL },
  { "family=deepseek_v2,q_lora=0,router_groups=4,router_group_topk=2," LATENT,
    PLAN_ARCHITECTURE_DEEPSEEK_V2, NULL },
  { "family=deepseek_v3,rope_scaling=yarn,rope_factor=4,rope_mscale=0.7,rope_mscale_all=0."
    "8," LATENT,
    PLAN_ARCHITECTURE_DEEPSEEK_V3, NULL },
  { "family=deepseek_v2,norm_eps=1e-05," LATENT, PLAN_N_ARCHITECTURES,
    "DeepseekV2ForCausalLM in transformers has no norm_eps=1e-05" },
  { "family=deepseek_v3,router_bias=off," LATENT, PLAN_N_ARCHITECTURES,
    "DeepseekV3ForCausalLM in transformers has no router_bias=off" },
  { "family=mpt,kv_heads=2,norm_bias=on," OTHERS, PLAN_N_ARCHITECTURES,
    "MptForCausalLM in transformers has no" },
  { "family=llama,qkv_bias=on," SPEC, PLAN_ARCHITECTURE_QWEN2, NULL },
  { "family=llama,qk_norm=on," SPEC, PLAN_ARCHITECTURE_QWEN3, NULL },
  { "family=qwen2,window=8,window_from=1,window_every=2," SPEC, PLAN_ARCHITECTURE_QWEN2, NULL },
  { "family=llama,norm=layernorm,mlp_bias=on," SPEC, PLAN_N_ARCHITECTURES,
    "model: custom cannot be written for transformers: LlamaForCausalLM in transformers has no "
    "norm=layernorm" },
  { "family=gpt2,gated=on," SPEC, PLAN_N_ARCHITECTURES,
    "GPT2LMHeadModel in transformers has no kv_heads=1, gated=on" },
  { "family=mistral,rope_scaling=dynamic,rope_factor=2,rope_original=8," SPEC, PLAN_N_ARCHITECTURES,
    "MistralForCausalLM in transformers has no rope_original=8" },
  { "family=mixtral," SPEC, PLAN_ARCHITECTURE_MIXTRAL, NULL },
  { "family=llama,experts=4,topk=2," SPEC, PLAN_ARCHITECTURE_MIXTRAL, NULL },
  { "family=qwen3_moe,dense_layers=1,moe_every=2," SPEC, PLAN_ARCHITECTURE_QWEN3_MOE, NULL },
  { "family=qwen2_moe,dense_layers=1," SPEC, PLAN_ARCHITECTURE_QWEN2_MOE, NULL },
  { "family=qwen3_moe,shared_ffn=1408,shared_gate=on,qkv_bias=on,qk_norm=off," SPEC,
    PLAN_ARCHITECTURE_QWEN2_MOE, NULL },
  { "family=glm4_moe,router_groups=8,router_group_topk=2,router_scale=2.5," SPEC,
    PLAN_ARCHITECTURE_GLM4_MOE, NULL },
  { "family=glm4_moe,shared_ffn=1," SPEC, PLAN_N_ARCHITECTURES,
    "Glm4MoeForCausalLM in transformers has no shared_ffn=1" },
  { "family=glm4_moe,router_bias=off," SPEC, PLAN_N_ARCHITECTURES,
    "Glm4MoeForCausalLM in transformers has no router_bias=off" },
  { "family=smollm3," SPEC, PLAN_ARCHITECTURE_SMOLLM3, NULL },
  { "family=llama,tied=off,nope_every=3," SPEC, PLAN_ARCHITECTURE_SMOLLM3, NULL },
  { "family=llama4_text,window=8,moe_every=2," SPEC, PLAN_ARCHITECTURE_LLAMA4, NULL },
  { "family=llama4_text,window=0,window_chunks=off,full_every=0,qk_l2_norm=off," SPEC,
    PLAN_ARCHITECTURE_LLAMA4, NULL },
  { "family=llama4_text,full_every=2," SPEC, PLAN_N_ARCHITECTURES,
    "Llama4ForCausalLM in transformers has no full_every=2" },
  { "family=llama4_text,shared_ffn=4," SPEC, PLAN_N_ARCHITECTURES,
    "Llama4ForCausalLM in transformers has no shared_ffn=4" },
  { "family=mixtral,expert_ffn=9," SPEC, PLAN_N_ARCHITECTURES,
    "MixtralForCausalLM in transformers has no expert_ffn=9" },
  { "family=mixtral,router_score=sigmoid," SPEC, PLAN_N_ARCHITECTURES,
    "MixtralForCausalLM in transformers has no router_score=sigmoid" },
};

START_TEST (model_is_written_as_what_it_is)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (written[_i].spec, &error);
  PlanArchitecture architecture = PLAN_N_ARCHITECTURES;
  ck_assert_msg (model != NULL, "%s", error ? error->message : "");
  g_autofree char *text = plan_model_print_config (model, PLAN_DTYPE_BF16, &architecture, &error);
  ck_assert_int_eq (architecture, written[_i].architecture);
  ck_assert_int_eq (text != NULL, written[_i].message == NULL);
  ck_assert_msg (text || strstr (error->message, written[_i].message), "%s",
                 error ? error->message : "");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model-config-write");
  TCase *tcase = tcase_create ("model-config-write");
  tcase_add_loop_test (tcase, model_is_written_as_what_it_is, 0, G_N_ELEMENTS (written));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
