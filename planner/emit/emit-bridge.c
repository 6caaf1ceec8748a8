/* SPDX-License-Identifier: Apache-2.0 */
/* Writes Megatron-Bridge's ConfigContainer (src/megatron/bridge/training/config.py). Its parts are
 * the settings of the Megatron-LM that it ships with; what Megatron-LM has no flag for has no
 * setting here either. */
#include "config.h"

#include "planner/emit/emit-private.h"
#include "planner/plan/pp-layout.h"
#include "planner/plan/stages.h"

#define INT "%" G_GINT64_FORMAT
#define IS(field, id) (value[PLAN_##field] == PLAN_##field##_##id)
#define BRIDGE_VERSION "Megatron-Bridge main at 067f987d (2026-08-22; its Megatron-LM 2a75ac12)"

/* Fields that have a setting with the same values: numbers as they are, switches as True and
 * False. */
static const struct
{
  PlanField field;
  const char *setting;
  gboolean is_fsdp; /* acts on Megatron-FSDP only */
} settings[] = {
  { PLAN_GBS, "train.global_batch_size", FALSE },
  { PLAN_MBS, "train.micro_batch_size", FALSE },
  { PLAN_SEQ, "dataset.seq_length", FALSE },
  { PLAN_TP, "model.tensor_model_parallel_size", FALSE },
  { PLAN_CP, "model.context_parallel_size", FALSE },
  { PLAN_PP, "model.pipeline_model_parallel_size", FALSE },
  { PLAN_DP_OUTER, "ddp.num_distributed_optimizer_instances", FALSE },
  { PLAN_PER_TOKEN_LOSS, "model.calculate_per_token_loss", FALSE },
  { PLAN_EOD_MASK_LOSS, "dataset.eod_mask_loss", FALSE },
  { PLAN_GRAD_ACCUM_FUSION, "model.gradient_accumulation_fusion", FALSE },
  { PLAN_CE_FUSION, "model.cross_entropy_loss_fusion", FALSE },
  { PLAN_OVERLAP_GRAD_REDUCE, "ddp.overlap_grad_reduce", FALSE },
  { PLAN_PRECISION_AWARE, "optimizer.use_precision_aware_optimizer", FALSE },
  { PLAN_EP, "model.expert_model_parallel_size", FALSE },
  { PLAN_ETP, "model.expert_tensor_parallel_size", FALSE },
  { PLAN_MOE_GROUPED_GEMM, "model.moe_grouped_gemm", FALSE },
  { PLAN_MOE_PERMUTE_FUSION, "model.moe_permute_fusion", FALSE },
  { PLAN_MOE_ROUTER_FUSION, "model.moe_router_fusion", FALSE },
  { PLAN_MOE_PAD_TO_CAPACITY, "model.moe_pad_expert_input_to_capacity", FALSE },
  { PLAN_MOE_SHARED_OVERLAP, "model.moe_shared_expert_overlap", FALSE },
  { PLAN_NCCL_UB, "ddp.nccl_ub", TRUE },
  { PLAN_NCCL_UB, "ddp.fsdp_manual_registration", TRUE },
  { PLAN_DOUBLE_BUFFER, "ddp.fsdp_double_buffer", TRUE },
  { PLAN_FINE_GRAINED, "ddp.megatron_fsdp_enable_fine_grained_param_gather", TRUE },
  { PLAN_KEEP_TRANSPOSE, "ddp.keep_fp8_transpose_cache", TRUE },
  { PLAN_CUDA_GRAPH, "ddp.megatron_fsdp_cuda_graph_mode", TRUE },
};

static gboolean
is_ddp (const gint64 *value)
{
  return value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON;
}

static void
refuse (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const PlanModel *const m = subject->of->model;
  const gint64 *const value = subject->of->plan.value;
  g_auto (PlanEmitCommand) command = { 0 };
  plan_emit_megatron (subject, &command, reasons);
  plan_emit_refuse (reasons, IS (AG_GROUP, ON),
                    "ag_group=on: Megatron-Bridge makes no communicator for it: use off, or --as "
                    "megatron");
  plan_emit_refuse (reasons, m->qk_l2_norm != PLAN_QK_L2_OFF && m->experts == 0,
                    "model qk_l2_norm: Megatron-Bridge's layers without experts have none: use "
                    "off, or --as megatron");
  plan_emit_refuse (reasons, IS (EP_OVERLAP, ON),
                    "ep_overlap=on: a recipe's own settings of overlap would undo it: use off, or "
                    "--as megatron");
  plan_emit_refuse (reasons,
                    m->positions == PLAN_POSITIONS_LEARNED && value[PLAN_SEQ] != m->max_seq,
                    "seq: Megatron-Bridge's table of learned positions has seq rows, the model " INT
                    ": use that, or --as megatron",
                    m->max_seq);
}

static void add (GString *text, const char *setting, const char *format, ...) G_GNUC_PRINTF (3, 4);

static void
add (GString *text, const char *setting, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_string_append_printf (text, "    cfg.%s = ", setting);
  g_string_append_vprintf (text, format, args);
  g_string_append_c (text, '\n');
  va_end (args);
}

static void
add_switch (GString *text, const char *setting, gboolean is_on)
{
  add (text, setting, "%s", plan_emit_python (is_on));
}

static void
append_head (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, " \\\n#     ");
  plan_emit_head (text, subject, PLAN_EMIT_BRIDGE);
  plan_emit_for (text, subject, BRIDGE_VERSION);
  g_string_append_printf (text,
                          ".\n"
                          "# As bridge_plan.py in its folder:\n#   %s%s bridge_plan.py\n#\n"
                          "# Yours to choose: data and tokenizer (here mock data, and a tokenizer "
                          "that knows the size of\n"
                          "# the vocabulary alone), steps and learning rate, checkpoints.\n",
                          is_ddp (value) ? "" : "env -u CUDA_DEVICE_MAX_CONNECTIONS ", launch);
}

/* The class of models, and its module. */
static const char *
provider_of (const PlanModel *model, const char **out_module)
{
  *out_module = *model->pattern.of   ? "hybrid.hybrid_provider"
                : model->kv_lora > 0 ? "mla_provider"
                                     : "gpt_provider";
  if (*model->pattern.of)
    return "HybridModelProvider";
  return model->kv_lora > 0 ? "MLAModelProvider" : "GPTModelProvider";
}

static void
append_imports (GString *text, const PlanEmitSubject *subject)
{
  const PlanActivation a = subject->of->model->activation;
  const char *module, *const provider = provider_of (subject->of->model, &module);
  g_string_append_printf (text,
                          "import torch\nimport torch.nn.functional as F\n"
                          "from megatron.bridge.models.%s import %s\n",
                          module, provider);
  g_string_append (text, "from megatron.bridge.recipes.common import _pretrain_common\n"
                         "from megatron.bridge.training.config import ConfigContainer, "
                         "TokenizerConfig\n"
                         "from megatron.bridge.training.gpt_step import forward_step\n"
                         "from megatron.bridge.training.mixed_precision import "
                         "MixedPrecisionConfig\n"
                         "from megatron.bridge.training.pretrain import pretrain\n");
  if (subject->of->model->delta.attn_every > 0)
    g_string_append (text,
                     "from megatron.core.models.gpt.experimental_attention_variant_module_specs "
                     "import (\n"
                     "    get_transformer_block_with_experimental_attention_variant_spec,\n)\n");
  else if (subject->of->model->experts > 0 && !*subject->of->model->pattern.of)
    g_string_append (text, "from functools import partial\n"
                           "from megatron.core.models.gpt.gpt_layer_specs import "
                           "get_gpt_decoder_block_spec\n");
  if (a == PLAN_ACTIVATION_RELU2)
    g_string_append (text, "from megatron.core.activations import squared_relu\n");
  if (a == PLAN_ACTIVATION_QUICK_GELU)
    g_string_append (text, "from megatron.core.fusions.fused_bias_geglu import quick_gelu\n");
  if (*subject->of->model->pattern.of)
    g_string_append (text, "from megatron.core.transformer.enums import AttnBackend\n");
}

/* Adds the activation. The fused gelu is the tanh form. */
static void
append_activation (GString *text, const PlanModel *m)
{
  const PlanActivation a = m->activation;
  const gboolean is_exact = a == PLAN_ACTIVATION_GELU && m->mlp_bias;
  const gboolean is_fused = !is_exact && a != PLAN_ACTIVATION_RELU2; /* which no kernel fuses */
  g_string_append_printf (text,
                          "        activation_func=%s,\n        gated_linear_unit=%s,\n"
                          "        bias_activation_fusion=%s,\n",
                          a == PLAN_ACTIVATION_SILU         ? "F.silu"
                          : a == PLAN_ACTIVATION_RELU2      ? "squared_relu"
                          : a == PLAN_ACTIVATION_QUICK_GELU ? "quick_gelu"
                                                            : "F.gelu",
                          plan_emit_python (m->gated), plan_emit_python (is_fused));
}

/* Adds latent attention, with what its class of models has otherwise than that without. Without a
 * scale its positions are YaRN's by a factor of 1, as by Megatron-LM's flags. */
static void
append_latent (GString *text, const PlanModel *m)
{
  const PlanRope *const rope = &m->rope;
  const gboolean is_yarn = rope->scaling == PLAN_ROPE_SCALING_YARN;
  g_autofree char *factor = plan_emit_real (is_yarn ? rope->factor : 1);
  g_autofree char *slow = plan_emit_real (rope->slow), *fast = plan_emit_real (rope->fast);
  g_autofree char *mscale = plan_emit_real (rope->mscale), *all = plan_emit_real (rope->mscale_all);
  g_string_append (text, "        multi_latent_attention=True,\n        q_lora_rank=");
  if (m->q_lora > 0)
    g_string_append_printf (text, INT ",\n", m->q_lora);
  else
    g_string_append (text, "None,\n");
  g_string_append_printf (text,
                          "        kv_lora_rank=" INT ",\n        qk_head_dim=" INT
                          ",\n        qk_pos_emb_head_dim=" INT ",\n        v_head_dim=" INT
                          ",\n        attention_softmax_in_fp32=False,\n"
                          "        masked_softmax_fusion=True,\n"
                          "        deallocate_pipeline_outputs=True,\n"
                          "        rope_type=\"yarn\",\n        rotary_scaling_factor=%s,\n",
                          m->kv_lora, m->nope_dim, m->rope_dim, m->v_dim, factor);
  if (is_yarn)
    g_string_append_printf (text,
                            "        original_max_position_embeddings=" INT ",\n"
                            "        beta_fast=%s,\n        beta_slow=%s,\n"
                            "        mscale=%s,\n        mscale_all_dim=%s,\n",
                            rope->original, fast, slow, mscale, all);
}

static void
append_rope_scaling (GString *text, const PlanRope *rope)
{
  g_autofree char *factor = plan_emit_real (rope->factor), *slow = plan_emit_real (rope->slow);
  g_autofree char *fast = plan_emit_real (rope->fast), *mscale = plan_emit_real (rope->mscale);
  g_autofree char *all = plan_emit_real (rope->mscale_all);
  if (rope->scaling == PLAN_ROPE_SCALING_LLAMA3)
    g_string_append_printf (text, "        rope_scaling=True,\n        rope_scaling_factor=%s,\n",
                            factor);
  if (rope->scaling == PLAN_ROPE_SCALING_YARN)
    g_string_append_printf (text,
                            "        yarn_rotary_scaling_factor=%s,\n"
                            "        yarn_original_max_position_embeddings=" INT ",\n"
                            "        yarn_beta_fast=%s,\n        yarn_beta_slow=%s,\n"
                            "        yarn_mscale=%s,\n        yarn_mscale_all_dim=%s,\n"
                            "        yarn_correction_range_round_to_int=%s,\n",
                            factor, rope->original, fast, slow, mscale, all,
                            plan_emit_python (!rope->is_fractional));
}

static void
append_positions (GString *text, const PlanModel *m)
{
  const gboolean is_yarn = m->rope.scaling == PLAN_ROPE_SCALING_YARN && m->kv_lora == 0;
  g_autofree char *percent = plan_emit_real (m->rope_fraction);
  g_autofree char *limit = plan_emit_real (m->glu_limit), *offset = plan_emit_real (m->glu_offset);
  g_string_append_printf (text, "        position_embedding_type=\"%s\",\n",
                          is_yarn                                  ? "yarn"
                          : m->positions == PLAN_POSITIONS_ROPE    ? "rope"
                          : m->positions == PLAN_POSITIONS_LEARNED ? "learned_absolute"
                                                                   : "none");
  if (m->positions == PLAN_POSITIONS_ROPE)
    g_string_append_printf (text,
                            "        rotary_base=" INT ",\n        rotary_percent=%s,\n"
                            "        apply_rope_fusion=%s,\n",
                            (gint64)m->rope.theta, percent, plan_emit_python (!is_yarn));
  if (m->kv_lora > 0)
    append_latent (text, m);
  else
    append_rope_scaling (text, &m->rope);
  if (m->window > 0)
    g_string_append_printf (text,
                            "        window_size=(" INT ", 0),\n"
                            "        window_attn_skip_freq=[\n"
                            "            1 if i >= " INT " and (i - " INT ") %% " INT
                            " == 0 else 0 for i in range(" INT ")\n        ],\n",
                            m->window - 1, m->window_from, m->window_from, m->window_every,
                            m->layers);
  if (m->nope_every > 0 && m->nope_every <= m->layers)
    g_string_append_printf (text,
                            "        no_rope_freq=[\n            1 if (i + 1) %% " INT
                            " == 0 else 0 for i in range(" INT ")\n        ],\n",
                            m->nope_every, m->layers);
  if (m->qk_l2_norm == PLAN_QK_L2_ALL)
    g_string_append (text, "        qk_l2_norm=True,\n");
  if (m->sinks)
    g_string_append (text, "        softmax_type=\"learnable\",\n");
  if (m->glu_limit > 0)
    g_string_append_printf (text, "        activation_func_clamp_value=%s,\n", limit);
  if (m->glu_offset > 0)
    g_string_append_printf (text, "        glu_linear_offset=%s,\n", offset);
}

/* Adds linear attention, and the gate of attention's output (models/qwen/qwen3_next_bridge.py). */
static void
append_delta (GString *text, const PlanModel *m)
{
  const PlanDelta *d = &m->delta;
  if (m->attn_gate)
    g_string_append (text, "        attention_output_gate=True,\n");
  if (d->attn_every == 0)
    return;
  g_string_append_printf (
      text,
      "        transformer_layer_spec="
      "get_transformer_block_with_experimental_attention_variant_spec,\n"
      "        experimental_attention_variant=\"gated_delta_net\",\n"
      "        linear_attention_freq=" INT ",\n        linear_conv_kernel_dim=" INT
      ",\n        linear_key_head_dim=" INT ",\n        linear_value_head_dim=" INT
      ",\n        linear_num_key_heads=" INT ",\n        linear_num_value_heads=" INT
      ",\n        hetereogenous_dist_checkpoint=True,\n",
      d->attn_every, d->conv, d->key_dim, d->value_dim, d->key_heads, d->value_heads);
}

/* Adds layers by a pattern, and their state spaces (recipes/nemotronh). */
static void
append_pattern (GString *text, const PlanModel *m)
{
  if (*m->pattern.of)
    g_string_append_printf (
        text,
        "        hybrid_layer_pattern=\"%s\",\n        is_hybrid_model=True,\n"
        "        mtp_num_layers=None,\n        attention_backend=AttnBackend.auto,\n"
        "        mamba_num_heads=" INT ",\n        mamba_head_dim=" INT
        ",\n        mamba_num_groups=" INT ",\n        mamba_state_dim=" INT ",\n",
        m->pattern.of, m->ssm.heads, m->ssm.head_dim, m->ssm.groups, m->ssm.state);
}

/* Adds which layers have experts. Layers with and without them take a specification of the decoder
 * block. */
static void
append_expert_layers (GString *text, const PlanModel *m)
{
  if (*m->pattern.of)
    return;
  if (m->delta.attn_every == 0)
    g_string_append_printf (
        text,
        "        transformer_layer_spec=partial(\n"
        "            get_gpt_decoder_block_spec, use_transformer_engine=True%s\n        ),\n",
        m->qk_l2_norm == PLAN_QK_L2_ALL ? ", qk_l2_norm=True" : "");
  g_string_append_printf (text,
                          "        moe_layer_freq=[\n            1 if i >= " INT
                          " and (i + 1) %% " INT " == 0 else 0 for i in range(" INT
                          ")\n        ],\n",
                          m->dense_layers, m->moe_every, m->layers);
}

static void
append_experts (GString *text, const PlanModel *m)
{
  static const char *const scores[] = { [PLAN_ROUTER_SOFTMAX] = "softmax",
                                        [PLAN_ROUTER_SIGMOID] = "sigmoid",
                                        [PLAN_ROUTER_SQRTSOFTPLUS] = "sqrtsoftplus" };
  g_autofree char *scale = plan_emit_real (m->router_scale);
  if (m->experts == 0)
    return;
  append_expert_layers (text, m);
  g_string_append_printf (
      text,
      "        num_moe_experts=" INT ",\n        moe_ffn_hidden_size=" INT ",\n"
      "        moe_router_topk=" INT ",\n        moe_router_score_function=\"%s\",\n"
      "        moe_router_pre_softmax=%s,\n        moe_router_enable_expert_bias=%s,\n"
      "        moe_router_topk_scaling_factor=%s,\n",
      m->experts, m->expert_ffn, m->topk, scores[m->router_score],
      plan_emit_python (m->pre_softmax), plan_emit_python (m->router_bias),
      m->router_scale != 1 ? scale : "None");
  if (m->router_groups > 0)
    g_string_append_printf (text,
                            "        moe_router_num_groups=" INT ",\n"
                            "        moe_router_group_topk=" INT ",\n",
                            m->router_groups, m->router_group_topk);
  if (m->scores_on_input)
    g_string_append (text, "        moe_apply_probs_on_input=True,\n");
  if (m->expert_hidden > 0)
    g_string_append_printf (text, "        moe_latent_size=" INT ",\n", m->expert_hidden);
  if (m->shared_ffn > 0)
    g_string_append_printf (text,
                            "        moe_shared_expert_intermediate_size=" INT ",\n"
                            "        moe_shared_expert_gate=%s,\n",
                            m->shared_ffn, plan_emit_python (m->shared_gate));
}

static void
append_model (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const PlanModel seen = plan_model_within (subject->of->model, value[PLAN_SEQ]), *const m = &seen;
  const gboolean has_biases = m->qkv_bias && m->proj_bias && m->mlp_bias;
  g_autofree char *eps = plan_emit_real (m->norm_eps);
  g_autofree char *hidden = plan_field_print (PLAN_HIDDEN_DROPOUT, value[PLAN_HIDDEN_DROPOUT]);
  g_autofree char *attention
      = plan_field_print (PLAN_ATTENTION_DROPOUT, value[PLAN_ATTENTION_DROPOUT]);
  const char *module, *const provider = provider_of (m, &module);
  g_autofree char *channels
      = m->kv_lora > 0 ? g_strdup ("None") : g_strdup_printf (INT, m->head_dim);
  g_string_append_printf (
      text,
      "\n\ndef model() -> %s:\n    return %s(\n"
      "        num_layers=" INT ",\n        hidden_size=" INT ",\n        ffn_hidden_size=" INT
      ",\n        num_attention_heads=" INT ",\n        num_query_groups=" INT
      ",\n        kv_channels=%s,\n        vocab_size=" INT ",\n"
      "        should_pad_vocab=True,\n        make_vocab_size_divisible_by=128,\n"
      "        share_embeddings_and_output_weights=%s,\n        seq_length=" INT ",\n"
      "        normalization=\"%s\",\n        layernorm_epsilon=%s,\n"
      "        layernorm_zero_centered_gamma=%s,\n        qk_layernorm=%s,\n"
      "        add_bias_linear=%s,\n        add_qkv_bias=%s,\n"
      "        hidden_dropout=%s,\n        attention_dropout=%s,\n"
      "        bias_dropout_fusion=True,\n",
      provider, provider, m->layers, m->hidden, m->ffn, m->heads, m->kv_heads, channels, m->vocab,
      plan_emit_python (m->tied_embeddings), value[PLAN_SEQ],
      m->norm == PLAN_NORM_RMSNORM ? "RMSNorm" : "LayerNorm", eps, plan_emit_python (m->norm_1p),
      plan_emit_python (m->qk_norm || m->kv_lora > 0), plan_emit_python (has_biases),
      plan_emit_python (m->qkv_bias && !has_biases), hidden, attention);
  append_activation (text, m);
  append_positions (text, m);
  append_delta (text, m);
  append_pattern (text, m);
  append_experts (text, m);
  if (m->mtp > 0)
    g_string_append_printf (text, "        mtp_num_layers=" INT ",\n", m->mtp);
  g_string_append (text, "    )\n");
}

static void
append_precision (GString *text, const PlanEmitSubject *subject)
{
  static const char *const recipes[PLAN_COMPUTE_N_VALUES]
      = { [PLAN_COMPUTE_FP8_DELAYED] = "delayed",
          [PLAN_COMPUTE_FP8_TENSORWISE] = "tensorwise",
          [PLAN_COMPUTE_FP8_BLOCKWISE] = "blockwise",
          [PLAN_COMPUTE_MXFP8] = "mxfp8" };
  const gint64 *const value = subject->of->plan.value;
  const char *const recipe = recipes[value[PLAN_COMPUTE]];
  const char *const weights = plan_emit_torch_dtype (plan_weights_dtype (&subject->of->plan));
  const char *const gathers = plan_emit_python (!IS (PARAM_GATHER, COMPUTE));
  g_string_append_printf (text,
                          "    cfg.mixed_precision = MixedPrecisionConfig(\n        fp32=%s,\n"
                          "        fp16=%s,\n        bf16=%s,\n        params_dtype=%s,\n"
                          "        pipeline_dtype=%s,\n        grad_reduce_in_fp32=%s,\n",
                          plan_emit_python (IS (COMPUTE, FP32)),
                          plan_emit_python (IS (COMPUTE, FP16)),
                          plan_emit_python (!IS (COMPUTE, FP32) && !IS (COMPUTE, FP16)), weights,
                          weights, plan_emit_python (IS (MAIN_GRADS, FP32)));
  if (recipe)
    g_string_append_printf (
        text, "        fp8=\"%s\",\n        fp8_recipe=\"%s\",\n        fp8_param_gather=%s,\n",
        plan_grad_dtype (&subject->of->plan) == PLAN_DTYPE_E5M2 ? "hybrid" : "e4m3", recipe,
        gathers);
  if (plan_layout_lends_grads (PLAN_BUCKET_LAYER, subject->of->stack, &subject->of->plan))
    g_string_append (text, "        reuse_grad_buf_for_mxfp8_param_ag=True,\n");
  if (IS (COMPUTE, FP8_DELAYED))
    g_string_append (text, "        fp8_amax_history_len=1024,\n"
                           "        fp8_amax_compute_algo=\"max\",\n");
  if (IS (COMPUTE, NVFP4))
    g_string_append_printf (
        text,
        "        fp4=\"e2m1\",\n        fp4_recipe=\"nvfp4\",\n        fp4_param_gather=%s,\n",
        gathers);
  g_string_append (text, "    )\n");
}

/* Adds how layers are dealt out to pipeline stages, and how virtual stages exchange. */
static void
add_stages (GString *text, const PlanCase *of)
{
  const gint64 *value = of->plan.value;
  if (value[PLAN_PP_LAST_SHORT] > 0 || value[PLAN_PP_LAYOUT] != PLAN_UNSET)
    {
      g_autofree char *layout
          = plan_pp_layout_print (plan_stages_layout (of->model, of->stack, &of->plan));
      add (text, "model.pipeline_model_parallel_layout", "\"%s\"", layout);
    }
  if (value[PLAN_VPP] > 1)
    {
      add (text, "model.virtual_pipeline_model_parallel_size", INT, value[PLAN_VPP]);
      add_switch (text, "model.overlap_p2p_comm", !IS (PP_OVERLAP, OFF));
      if (IS (PP_OVERLAP, WARMUP_FLUSH))
        add_switch (text, "model.overlap_p2p_comm_warmup_flush", TRUE);
      add_switch (text, "model.batch_p2p_comm", IS (PP_OVERLAP, OFF));
      add_switch (text, "ddp.align_param_gather", TRUE);
    }
  if (value[PLAN_PP_GROUP] != PLAN_UNSET)
    add (text, "model.microbatch_group_size_per_vp_stage", INT, value[PLAN_PP_GROUP]);
  if (value[PLAN_PP_FIRST_LAYERS] != PLAN_UNSET)
    add (text, "model.num_layers_in_first_pipeline_stage", INT, value[PLAN_PP_FIRST_LAYERS]);
  if (value[PLAN_PP_LAST_LAYERS] != PLAN_UNSET)
    add (text, "model.num_layers_in_last_pipeline_stage", INT, value[PLAN_PP_LAST_LAYERS]);
  if (IS (PP_COUNT_EMBEDDING, ON) && value[PLAN_PP_LAST_SHORT] == 0)
    add_switch (text, "model.account_for_embedding_in_pipeline_split", TRUE);
  if (IS (PP_COUNT_LOSS, ON))
    add_switch (text, "model.account_for_loss_in_pipeline_split", TRUE);
}

static void
append_settings (GString *text, const PlanCase *of)
{
  const PlanModel *model = of->model;
  const gint64 *value = of->plan.value;
  static const char *const dispatchers[] = { [PLAN_MOE_DISPATCHER_ALLTOALL] = "alltoall",
                                             [PLAN_MOE_DISPATCHER_ALLGATHER] = "allgather",
                                             [PLAN_MOE_DISPATCHER_DEEPEP] = "flex",
                                             [PLAN_MOE_DISPATCHER_HYBRIDEP] = "flex" };
  const gint64 dispatcher = value[PLAN_MOE_DISPATCHER];
  const gboolean gathers
      = IS (OVERLAP_PARAM_GATHER, ON) && !(is_ddp (value) && IS (STRATEGY, NO_SHARD));
  for (guint i = 0; i < G_N_ELEMENTS (settings); i++)
    {
      const PlanField field = settings[i].field;
      const char *const *const names = plan_field_names (field);
      const gboolean is_of_experts = field == PLAN_EP || !plan_field_is_of (field, model);
      if ((settings[i].is_fsdp && is_ddp (value)) || (is_of_experts && model->experts == 0))
        continue;
      if (names)
        add_switch (text, settings[i].setting, value[field] != 0);
      else
        add (text, settings[i].setting, INT, value[field]);
    }
  add_stages (text, of);
  add_switch (text, "model.sequence_parallel", IS (SP, ON) && value[PLAN_TP] > 1);
  add_switch (text, "model.tp_comm_overlap", IS (TP_OVERLAP, UB));
  add_switch (text, "ddp.overlap_param_gather", gathers);
  add_switch (text, "optimizer.overlap_param_gather", gathers);
  add_switch (text, "ddp.average_in_collective", FALSE);
  if (model->experts == 0)
    return;
  add (text, "model.moe_token_dispatcher_type", "\"%s\"", dispatchers[dispatcher]);
  if (g_str_equal (dispatchers[dispatcher], "flex"))
    add (text, "model.moe_flex_dispatcher_backend", "\"%s\"",
         plan_field_names (PLAN_MOE_DISPATCHER)[dispatcher]);
  add (text, "model.moe_router_dtype", "%s", IS (ROUTER_DTYPE, FP32) ? "\"fp32\"" : "None");
  g_autofree char *capacity = plan_field_print (PLAN_MOE_CAPACITY, value[PLAN_MOE_CAPACITY]);
  add (text, "model.moe_expert_capacity_factor", "%s",
       value[PLAN_MOE_CAPACITY] > 0 ? capacity : "None");
  add (text, "model.moe_token_drop_policy", "\"%s\"",
       plan_field_names (PLAN_MOE_DROP)[value[PLAN_MOE_DROP]]);
}

static void
append_sharding (GString *text, const PlanEmitSubject *subject)
{
  const Plan *const plan = &subject->of->plan;
  const gint64 *const value = plan->value;
  const gboolean is_sharded = !is_ddp (value) || IS (STRATEGY, OPTIM);
  static const PlanField states[] = { PLAN_MAIN_PARAMS, PLAN_MAIN_GRADS, PLAN_GRAD_COMM };
  static const char *const names[]
      = { "ddp.megatron_fsdp_main_params_dtype", "ddp.megatron_fsdp_main_grads_dtype",
          "ddp.megatron_fsdp_grad_comm_dtype" };
  add_switch (text, "dist.use_megatron_fsdp", !is_ddp (value));
  add_switch (text, "ddp.use_megatron_fsdp", !is_ddp (value));
  add_switch (text, "ddp.use_distributed_optimizer", is_sharded);
  add_switch (text, "optimizer.use_distributed_optimizer", is_sharded);
  add_switch (text, "ddp.grad_reduce_in_fp32", IS (MAIN_GRADS, FP32));
  if (is_ddp (value))
    {
      add (text, "ddp.data_parallel_sharding_strategy", "\"no_shard\"");
      add (text, "optimizer.main_params_dtype", "%s",
           plan_emit_torch_dtype (plan_field_dtype (plan, PLAN_MAIN_PARAMS)));
      add_switch (text, "ddp.reduce_scatter_with_fp32_accumulation", IS (REDUCE_ALGO, A2A));
      return;
    }
  add_switch (text, "model.init_model_with_meta_device", !IS (STRATEGY, NO_SHARD));
  add (text, "ddp.data_parallel_sharding_strategy", "\"%s\"",
       plan_field_names (PLAN_STRATEGY)[value[PLAN_STRATEGY]]);
  add (text, "ddp.outer_dp_sharding_strategy", "\"%s\"",
       plan_field_names (PLAN_OUTER_STRATEGY)[value[PLAN_OUTER_STRATEGY]]);
  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    add (text, names[i], "%s",
         value[states[i]] == PLAN_MAIN_PARAMS_AUTO
             ? "None"
             : plan_emit_torch_dtype (plan_field_dtype (plan, states[i])));
  add_switch (text, "ddp.megatron_fsdp_max_pool_double_buffer", IS (DOUBLE_BUFFER, MAX_POOL));
  if (value[PLAN_COMM_UNIT] != PLAN_UNSET)
    add (text, "ddp.suggested_communication_unit_size", INT, value[PLAN_COMM_UNIT]);
  if (IS (CUDA_GRAPH, ON)) /* a gather that begins outside of the graph cannot be awaited in it */
    add_switch (text, "ddp.fsdp_all_gather_in_start_param_sync", FALSE);
  add (text, "checkpoint.ckpt_format", "\"fsdp_dtensor\"");
}

/* A list of words, "[\"mlp\", \"core_attn\"]"; the caller frees. */
static char *
list_of (PlanField field, gint64 value)
{
  g_autofree char *text = plan_field_print (field, value);
  g_auto (GStrv) words = g_strsplit (text, "+", -1);
  g_autofree char *joined = g_strjoinv ("\", \"", words);
  return g_strdup_printf ("[\"%s\"]", joined);
}

static void
append_recompute (GString *text, const gint64 *value)
{
  g_autofree char *modules = list_of (PLAN_RECOMPUTE_MODULES, value[PLAN_RECOMPUTE_MODULES]);
  if (IS (RECOMPUTE, FULL))
    {
      add (text, "model.recompute_granularity", "\"full\"");
      add (text, "model.recompute_method", "\"%s\"",
           plan_field_names (PLAN_RECOMPUTE_METHOD)[value[PLAN_RECOMPUTE_METHOD]]);
      add (text, "model.recompute_num_layers", INT, value[PLAN_RECOMPUTE_LAYERS]);
    }
  if (IS (RECOMPUTE, SELECTIVE))
    {
      add (text, "model.recompute_granularity", "\"selective\"");
      add (text, "model.recompute_modules", "%s", modules);
    }
}

static void
append_offload (GString *text, const gint64 *value)
{
  g_autofree char *modules = list_of (PLAN_OFFLOAD_MODULES, value[PLAN_OFFLOAD_MODULES]);
  g_autofree char *share = plan_field_print (PLAN_OFFLOAD_OPTIMIZER, value[PLAN_OFFLOAD_OPTIMIZER]);
  if (value[PLAN_OFFLOAD_OPTIMIZER] > 0)
    {
      add_switch (text, "optimizer.optimizer_cpu_offload", TRUE);
      add (text, "optimizer.optimizer_offload_fraction", "%s", share);
    }
  if (value[PLAN_OFFLOAD_LAYERS] > 0)
    {
      add_switch (text, "model.cpu_offloading", TRUE);
      add (text, "model.cpu_offloading_num_layers", INT, value[PLAN_OFFLOAD_LAYERS]);
    }
  if (value[PLAN_OFFLOAD_MODULES] != 0)
    {
      add_switch (text, "model.fine_grained_activation_offloading", TRUE);
      add (text, "model.offload_modules", "%s", modules);
      if (IS (CUDA_GRAPH, ON))
        add (text, "model.fine_grained_offloading_max_inflight_offloads", "1");
    }
}

static const char *
moment_of (gint64 value)
{
  static const char *const names[PLAN_EXP_AVG_N_VALUES] = { [PLAN_EXP_AVG_FP32] = "torch.float32",
                                                            [PLAN_EXP_AVG_BF16] = "torch.bfloat16",
                                                            [PLAN_EXP_AVG_FP16] = "torch.float16",
                                                            [PLAN_EXP_AVG_FP8] = "torch.uint8" };
  return names[value];
}

static void
append_step (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gboolean checks = IS (NAN_CHECK, LOSS), is_nvl = IS (SHARP, NVL) || IS (SHARP, NVL_IB);
  GString *variables = g_string_new (NULL);
  add (text, "optimizer.optimizer", "\"%s\"", IS (OPTIMIZER, SGD) ? "sgd" : "adam");
  if (IS (OPTIMIZER, ADAMW))
    add (text, "optimizer.adam_beta2", "0.95");
  add (text, "optimizer.exp_avg_dtype", "%s", moment_of (value[PLAN_EXP_AVG]));
  add (text, "optimizer.exp_avg_sq_dtype", "%s", moment_of (value[PLAN_EXP_AVG_SQ]));
  add_switch (text, "rerun_state_machine.check_for_nan_in_loss", checks);
  add_switch (text, "ddp.check_for_nan_in_grad", checks);
  add_switch (text, "dist.use_sharp", IS (SHARP, IB) || IS (SHARP, NVL_IB));
  add_switch (text, "model.deterministic_mode", IS (DETERMINISTIC, ON));
  add (text, "train.empty_unused_memory_level", IS (EMPTY_CACHE, ON) ? "1" : "0");
  if (value[PLAN_GRAPH_MODULES] != 0)
    {
      g_autofree char *graphs = list_of (PLAN_GRAPH_MODULES, value[PLAN_GRAPH_MODULES]);
      add (text, "model.cuda_graph_impl", "\"transformer_engine\"");
      add (text, "model.cuda_graph_modules", "%s", graphs);
    }
  if (IS (CUDA_GRAPH, ON))
    add (text, "model.cuda_graph_impl", "\"full_iteration\"");
  if (IS (CUDA_GRAPH, ON) || value[PLAN_GRAPH_MODULES] != 0)
    {
      add_switch (text, "model.use_te_rng_tracker", TRUE);
      add_switch (text, "rng.te_rng_tracker", TRUE);
    }
  if (is_ddp (value))
    g_string_append (variables, "\"CUDA_DEVICE_MAX_CONNECTIONS\": 1, ");
  if (is_nvl)
    g_string_append (variables, "\"NCCL_NVLS_ENABLE\": 1, ");
  if (IS (DETERMINISTIC, ON))
    g_string_append (variables, "\"NCCL_ALGO\": \"Ring\", ");
  if (value[PLAN_OFFLOAD_MODULES] != 0)
    g_string_append (variables, "\"NVTE_CPU_OFFLOAD_V1\": 1, ");
  if (variables->len > 0)
    add (text, "env_vars", "{%.*s}", (int)variables->len - 2, variables->str);
  g_string_free (variables, TRUE);
}

char *
plan_emit_bridge (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  GString *text = g_string_new (NULL);
  refuse (subject, reasons);
  append_head (text, subject);
  append_imports (text, subject);
  append_model (text, subject);
  g_string_append_printf (
      text,
      "\n\ndef config() -> ConfigContainer:\n    cfg = _pretrain_common()\n"
      "    cfg.model = model()\n"
      "    cfg.tokenizer = TokenizerConfig(tokenizer_type=\"NullTokenizer\", vocab_size=" INT
      ")\n    cfg.checkpoint.save = cfg.checkpoint.load = None\n"
      "    cfg.train.train_iters = 100\n    cfg.scheduler.lr_warmup_iters = 10\n"
      "    cfg.validation.eval_iters = 0\n    cfg.logger.log_interval = 1\n",
      subject->of->model->vocab);
  append_precision (text, subject);
  append_settings (text, subject->of);
  append_sharding (text, subject);
  append_recompute (text, value);
  append_offload (text, value);
  append_step (text, subject);
  g_string_append (text, "    return cfg\n\n\nif __name__ == \"__main__\":\n"
                         "    pretrain(config=config(), forward_step_func=forward_step)\n");
  return g_string_free (text, FALSE);
}
