/* SPDX-License-Identifier: Apache-2.0 */
/* Writes torchtitan's configuration: a function that returns a Trainer.Config
 * (torchtitan/config/README.md). TOML files were read until 2026-02; the modelled version reads
 * Python. */
#include "config.h"

#include "planner/emit/emit-private.h"
#include "planner/plan/stages.h"

#define INT "%" G_GINT64_FORMAT
#define IS(field, id) (value[PLAN_##field] == PLAN_##field##_##id)

/* clang-format off */
static const PlanEmitSaid said[] = {
  CAN_SAY (STRATEGY), CAN_SAY (DP_OUTER), CAN_SAY (TP), CAN_SAY (SP), CAN_SAY (CP), CAN_SAY (EP), CAN_SAY (MBS), CAN_SAY (GBS), CAN_SAY (SEQ),
  CAN_SAY (PP), CAN_SAY (VPP), CAN_SAY (PP_GROUP), CAN_SAY (PP_SCHEDULE), CAN_SAY (PP_COUNT_EMBEDDING), CAN_SAY (PP_COUNT_LOSS),
  CAN_SAY (PP_LAST_SHORT), CAN_SAY (PP_LAYOUT), CAN_SAY (PP_FIRST_LAYERS), CAN_SAY (PP_LAST_LAYERS),
  CAN_SAY (RECOMPUTE), CAN_SAY (RECOMPUTE_MODULES), CAN_SAY (RECOMPUTE_METHOD), CAN_SAY (RECOMPUTE_LAYERS),
  CAN_SAY (COMPILE), CAN_SAY (TP_OVERLAP), CAN_SAY (LOSS_CHUNKS), CAN_SAY (DETERMINISTIC), CAN_SAY (ADAM_FOREACH),
  { PLAN_COMPUTE, PLAN_EMIT_ONLY (COMPUTE, FP32) | PLAN_EMIT_ONLY (COMPUTE, BF16) | PLAN_EMIT_ONLY (COMPUTE, MXFP8)
      | PLAN_EMIT_ONLY (COMPUTE, FP8_TENSORWISE) /* refuse_formats gives its reason */, NULL },
  { PLAN_MOE_DISPATCHER, PLAN_EMIT_ONLY (MOE_DISPATCHER, ALLTOALL) | PLAN_EMIT_ONLY (MOE_DISPATCHER, DEEPEP)
      | PLAN_EMIT_ONLY (MOE_DISPATCHER, HYBRIDEP), NULL },
  CAN_ONLY (GRAD_COMM, FP32), /* mixed_precision_reduce accepts fp32 only */
  { PLAN_MAIN_PARAMS, PLAN_EMIT_ONLY (MAIN_PARAMS, FP32) | PLAN_EMIT_ONLY (MAIN_PARAMS, BF16), NULL },
  { PLAN_MAIN_GRADS, PLAN_EMIT_ONLY (MAIN_GRADS, FP32) | PLAN_EMIT_ONLY (MAIN_GRADS, BF16), NULL },
  { PLAN_EXP_AVG, PLAN_EMIT_ONLY (EXP_AVG, FP32) | PLAN_EMIT_ONLY (EXP_AVG, BF16), NULL },
  { PLAN_EXP_AVG_SQ, PLAN_EMIT_ONLY (EXP_AVG_SQ, FP32) | PLAN_EMIT_ONLY (EXP_AVG_SQ, BF16), NULL },
};
/* clang-format on */

static const PlanEmitTarget target = {
  .name = "torchtitan",
  .version = "torchtitan main at b5bcd76c (2026-08-21)",
  .stacks = 1 << PLAN_STACK_FSDP2,
  .said = said,
  .n_said = G_N_ELEMENTS (said),
};

/* A family of torchtitan's whose blocks a model is made of. */
typedef struct
{
  const char *module, *prefix, *parallelize, *rope;
} Family;

/* Llama 3's blocks have neither experts nor norms of queries and keys, Qwen3's have both,
 * DeepSeek-V3's have latent attention and experts, gpt-oss's sinks and biases. */
static const Family llama3 = { "llama3", "Llama3", "parallelize_llama", "ComplexRoPE" },
                    qwen2 = { "llama3", "Llama3", "parallelize_llama", "CosSinRoPE" },
                    qwen3 = { "qwen3", "Qwen3", "parallelize_qwen3", "CosSinRoPE" },
                    deepseek_v3
                    = { "deepseek_v3", "DeepSeekV3", "parallelize_deepseekv3", "ComplexRoPE" },
                    gpt_oss = { "gpt_oss", "GptOss", "parallelize_gptoss", "CosSinRoPE" };

static const Family *
family_of (const PlanModel *m)
{
  if (m->kv_lora > 0)
    return &deepseek_v3;
  if (m->sinks && m->expert_bias)
    return &gpt_oss;
  if (m->qk_norm || m->experts > 0)
    return &qwen3;
  return m->qkv_bias ? &qwen2 : &llama3;
}

/* Whether torchtitan's state dict adapters can read the model's weights: they know the names of
 * Llama 3, Qwen3, DeepSeek-V3 and gpt-oss. */
static gboolean
has_adapter (const PlanModel *m)
{
  if (family_of (m) == &gpt_oss)
    return TRUE;
  return !m->qkv_bias && (m->experts == 0 || m->kv_lora > 0 || (m->qk_norm && m->shared_ffn == 0));
}

static void
refuse_experts (const PlanModel *m, GPtrArray *reasons)
{
  plan_emit_refuse (reasons, m->shared_gate || m->expert_bias != m->sinks,
                    "model shared_gate, expert_bias, sinks: torchtitan's blocks with experts have "
                    "none of these, or as gpt-oss has them");
  plan_emit_refuse (reasons, m->router_score == PLAN_ROUTER_SQRTSOFTPLUS,
                    "model router_score: torchtitan's routers have softmax and sigmoid");
  plan_emit_refuse (reasons, m->router_groups > 0 && m->experts / m->router_groups < 2,
                    "model router_groups: torchtitan's have two experts at least");
}

/* Refuses rotary frequencies that the family's blocks cannot make. DeepSeek-V3's blocks put yarn's
 * mscale_all_dim into attention's scale and scale queries and keys by nothing else, which is the
 * same only if mscale equals it. */
static void
refuse_rope (const PlanModel *m, GPtrArray *reasons)
{
  const Family *const family = family_of (m);
  const PlanRope *const rope = &m->rope;
  const gboolean is_none = rope->scaling == PLAN_ROPE_SCALING_NONE;
  const gboolean is_yarn = rope->scaling == PLAN_ROPE_SCALING_YARN && rope->mscale_all > 0
                           && rope->mscale == rope->mscale_all;
  if (family == &gpt_oss)
    return;
  plan_emit_refuse (reasons, m->positions != PLAN_POSITIONS_ROPE || m->rope_fraction != 1,
                    "model positions, rope_fraction: torchtitan's blocks rotate whole heads");
  plan_emit_refuse (reasons, family == &deepseek_v3 && !is_none && !is_yarn,
                    "model rope_scaling: torchtitan's latent attention has yarn only, with "
                    "rope_mscale and rope_mscale_all alike");
  plan_emit_refuse (
      reasons,
      family != &deepseek_v3 && !is_none
          && (rope->scaling != PLAN_ROPE_SCALING_LLAMA3 || family != &llama3),
      "model rope_scaling: torchtitan's blocks scale as llama3 only, and where queries "
      "and keys have neither norms nor biases");
  plan_emit_refuse (reasons, m->qk_norm == PLAN_QK_NORM_FULL,
                    "model qk_norm=full: torchtitan's blocks norm each head of queries and keys");
  plan_emit_refuse (
      reasons, m->nope_every > 0 || m->qk_l2_norm != PLAN_QK_L2_OFF || m->scores_on_input,
      "model nope_every, qk_l2_norm, scores_on_input: torchtitan has none since PR #3573 "
      "(2026-06-08) removed Llama 4");
}

/* Refuses what the builder of gpt-oss's layers does not take (gpt_oss/__init__.py,
 * _build_gptoss_layers): it takes width, layers, experts and rotary positions. */
static void
refuse_gpt_oss (const PlanModel *m, GPtrArray *reasons)
{
  const gboolean has_heads = m->heads == 64 && m->kv_heads == 8 && m->head_dim == 64;
  const gboolean has_biases = m->qkv_bias && m->proj_bias;
  const gboolean has_windows = m->window == 128 && m->window_every == 2 && !m->window_chunks;
  const gboolean has_gate = m->activation == PLAN_ACTIVATION_QUICK_GELU && m->gated
                            && m->glu_limit == 7 && m->glu_offset == 1;
  const gboolean has_router = m->router_score == PLAN_ROUTER_SOFTMAX && !m->pre_softmax
                              && m->router_groups == 0 && m->router_scale == 1;
  const gboolean has_layers = m->dense_layers == 0 && m->moe_every <= 1 && m->shared_ffn == 0;
  const gboolean has_norms = m->norm == PLAN_NORM_RMSNORM && !m->norm_bias && !m->norm_1p
                             && !m->post_norms && !m->qk_norm && !m->parallel;
  const gboolean has_rope
      = m->positions == PLAN_POSITIONS_ROPE && m->rope_fraction == 1 && m->nope_every == 0
        && (m->rope.scaling == PLAN_ROPE_SCALING_NONE
            || (m->rope.scaling == PLAN_ROPE_SCALING_YARN && m->rope.mscale_all == 0));
  plan_emit_refuse (reasons,
                    !has_heads || !has_biases || !has_windows || !has_gate || !has_router
                        || !has_layers || !has_norms || !has_rope || m->embed_scale
                        || m->logit_softcap > 0 || m->attn_softcap > 0,
                    "model heads, kv_heads, head_dim, window, window_every, qkv_bias, proj_bias, "
                    "activation, glu_limit, router_score, dense_layers, rope_scaling: torchtitan's "
                    "gpt_oss has those of gpt-oss-20b alone");
}

/* Refuses models that torchtitan's blocks cannot make. */
static void
refuse_model (const PlanModel *m, GPtrArray *reasons)
{
  const guint before = reasons->len;
  refuse_experts (m, reasons);
  if (family_of (m) == &gpt_oss)
    {
      refuse_gpt_oss (m, reasons);
      return;
    }
  plan_emit_refuse (
      reasons, m->norm != PLAN_NORM_RMSNORM || m->norm_bias || m->norm_1p || m->post_norms,
      "model norm, norm_bias, norm_1p, post_norms: torchtitan's blocks have RMS norms "
      "before attention and MLP only");
  plan_emit_refuse (reasons, m->activation != PLAN_ACTIVATION_SILU || !m->gated,
                    "model activation, gated: torchtitan's MLP is a gated silu");
  plan_emit_refuse (reasons, m->proj_bias || m->mlp_bias,
                    "model proj_bias, mlp_bias: torchtitan's blocks add none: only off");
  refuse_rope (m, reasons);
  plan_emit_refuse (reasons, m->parallel || m->embed_scale || m->window > 0,
                    "model parallel, embed_scale, window: torchtitan's blocks have none");
  plan_emit_refuse (
      reasons,
      (m->attn_scalar > 0 && m->attn_scalar != (double)m->head_dim) || m->attn_softcap > 0
          || m->logit_softcap > 0,
      "model attn_scalar, attn_softcap, logit_softcap: torchtitan's blocks have none");
  plan_emit_refuse (reasons, m->mtp > 0, "model mtp: torchtitan predicts one token: only 0");
  plan_emit_refuse (reasons, reasons->len > before, "model of another kind: use %s",
                    m->experts > 0 || m->kv_lora > 0 ? "stack=megatron-fsdp or megatron"
                                                     : "--as fsdp2, for a program of your own");
}

/* Refuses formats. Float8LinearConverter took "tensorwise" until PR #3127 (2026-04-28). */
static void
refuse_formats (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  const gboolean is_bf16 = IS (MAIN_PARAMS, BF16);
  plan_emit_refuse (reasons, IS (COMPUTE, FP8_TENSORWISE),
                    "compute=fp8-tensorwise: torchtitan's fp8 has a scale per row "
                    "(components/quantization/float8.py, recipe_name): use bf16 or mxfp8, or "
                    "--as fsdp2, which calls torchao itself");
  plan_emit_refuse (reasons, IS (MAIN_GRADS, BF16) != is_bf16,
                    "main_grads: torchtitan keeps reduced gradients in the format of its weights: "
                    "use main_grads=%s",
                    is_bf16 ? "bf16" : "fp32");
}

/* Refuses sizes that torchtitan's trainer and blocks refuse. */
static void
refuse_sizes (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 tp = value[PLAN_TP], cp = value[PLAN_CP];
  const gint64 parts = (IS (SP, ON) ? tp : 1) * (cp > 1 ? 2 * cp : 1);
  plan_emit_refuse (reasons, value[PLAN_MBS] * value[PLAN_SEQ] % parts != 0,
                    "tp, cp: torchtitan's tokens of a micro batch must be a multiple of " INT,
                    parts);
  plan_emit_refuse (reasons,
                    plan_emit_recomputed (subject) > 0
                        && plan_emit_recomputed (subject) < subject->of->model->layers,
                    "recompute_layers: torchtitan recomputes all layers or none: use "
                    "recompute_method=uniform, or --as fsdp2");
}

static void
append_head (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, " \\\n#     ");
  plan_emit_head (text, subject, PLAN_EMIT_TORCHTITAN);
  plan_emit_for (text, subject, target.version);
  g_string_append_printf (
      text,
      ", which reads Python, no TOML. As\n# torchtitan_plan.py in its folder:\n"
      "#   PYTORCH_ALLOC_CONF=expandable_segments:True %s \\\n"
      "#     -m torchtitan.train --module torchtitan_plan --config config\n"
      "#\n"
      "# Yours to choose: hf_assets_path (a folder with the model's tokenizer, which may know at "
      "most\n"
      "# " INT
      " tokens), the data, steps and learning rate, checkpoints. Documents are packed into\n"
      "# sequences, and attention stays within each: it computes less than the plan counts.\n"
      "# Attention by \"varlen\" and not \"flex\" is faster than predicted from Hopper on; it "
      "takes\n"
      "# flash-attention 3, or 4 on Blackwell: packages of their own. It does not split by cp.\n",
      launch, subject->of->model->vocab);
  if (IS (MOE_DISPATCHER, DEEPEP))
    g_string_append (text,
                     "# moe_dispatcher=deepep is DeepEP 2.0 or newer here (ElasticBuffer).\n");
}

/* Imports what makes layers and the model of them. */
static void
append_block_imports (GString *text, const PlanModel *m)
{
  const Family *const family = family_of (m);
  const gboolean is_latent = family == &deepseek_v3;
  if (family == &gpt_oss)
    g_string_append (text, "from torchtitan.models.common.param_init import skip_param_init\n"
                           "from torchtitan.models.gpt_oss import _build_gptoss_layers\n");
  else
    g_string_append_printf (
        text,
        "from torchtitan.models.common.config_utils import (\n    get_attention_config,\n"
        "    make_ffn_config,\n%s%s)\n"
        "from torchtitan.models.common.param_init import depth_scaled_std, skip_param_init\n"
        "%sfrom torchtitan.models.%s.model import %sTransformerBlock\n",
        is_latent ? "" : "    make_gqa_config,\n",
        m->experts == 0 ? ""
                        : "    make_moe_config,\n    make_routed_experts_config,\n"
                          "    make_router_config,\n",
        is_latent ? "from torchtitan.models.deepseek_v3 import make_mla_attention_config\n" : "",
        family->module, family->prefix);
  g_string_append_printf (text,
                          "from torchtitan.models.%s.model import %sModel\n"
                          "from torchtitan.models.%s.parallelize import %s\n",
                          family->module, family->prefix, family->module, family->parallelize);
}

static void
append_imports (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const PlanModel *const m = subject->of->model;
  const Family *const family = family_of (m);
  g_string_append (
      text,
      "from functools import partial\n\nimport torch.nn as nn\n"
      "from torchtitan.components.data import ConcatThenSplitPackingConfig, GrainDataLoader\n");
  g_string_append_printf (text, "from torchtitan.components.loss import %sCrossEntropyLoss\n",
                          value[PLAN_LOSS_CHUNKS] > 1 ? "ChunkedLossWrapper, " : "");
  g_string_append (
      text, "from torchtitan.components.metrics import MetricsProcessor\n"
            "from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw\n");
  if (m->router_bias)
    g_string_append (text, "from torchtitan.components.optimizer import "
                           "register_moe_load_balancing_hook\n");
  if (IS (COMPUTE, MXFP8))
    g_string_append (text, "from torchtitan.components.quantization import MXFP8LinearConverter\n");
  g_string_append_printf (
      text,
      "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig\n"
      "from torchtitan.config.configs import DebugConfig\n%s%s%s"
      "from torchtitan.distributed.pipeline_parallel import pipeline_llm\n"
      "from torchtitan.hf_datasets.text_datasets import DATASETS\n"
      "from torchtitan.models.common import %s, Embedding, Linear\n"
      "from torchtitan.models.common.nn_modules import RMSNorm\n",
      IS (RECOMPUTE, NONE) ? "" : "from torchtitan.distributed.activation_checkpoint import ",
      IS (RECOMPUTE, NONE)   ? ""
      : IS (RECOMPUTE, FULL) ? "FullAC"
                             : "SelectiveAC",
      IS (RECOMPUTE, NONE) ? "" : "\n", family->rope);
  append_block_imports (text, m);
  if (has_adapter (m))
    g_string_append_printf (
        text, "from torchtitan.models.%s.state_dict_adapter import %sStateDictAdapter\n",
        family->module, family->prefix);
  g_string_append (text, "from torchtitan.protocols.model_spec import ModelSpec\n"
                         "from torchtitan.trainer import Trainer\n");
}

static char *
scaling_of (const PlanModel *m)
{
  const PlanRope *const rope = &m->rope;
  g_autofree char *factor = plan_emit_real (rope->factor), *slow = plan_emit_real (rope->slow);
  g_autofree char *fast = plan_emit_real (rope->fast);
  if (rope->scaling == PLAN_ROPE_SCALING_YARN)
    return g_strdup_printf ("                    scaling=\"yarn\",\n"
                            "                    rope_factor=%s,\n"
                            "                    beta_fast=%s,\n"
                            "                    beta_slow=%s,\n"
                            "                    original_seq_len=" INT ",\n"
                            "                    truncate=%s,\n",
                            factor, fast, slow, rope->original,
                            plan_emit_python (!rope->is_fractional));
  if (rope->scaling == PLAN_ROPE_SCALING_LLAMA3)
    return g_strdup_printf ("                    scaling=\"llama\",\n"
                            "                    scaling_factor=%s,\n"
                            "                    low_freq_factor=%s,\n"
                            "                    high_freq_factor=%s,\n"
                            "                    original_max_position_embeddings=" INT ",\n",
                            factor, slow, fast, rope->original);
  return g_strdup (family_of (m) == &llama3 ? "                    scaling=\"none\",\n" : "");
}

/* Adds what rotates `dim` elements of each head. */
static void
append_rope (GString *text, const PlanEmitSubject *subject, gint64 dim)
{
  const PlanModel *const m = subject->of->model;
  g_autofree char *theta = plan_emit_real (m->rope.theta), *scaling = scaling_of (m);
  g_string_append_printf (text,
                          "                rope=%s.Config(\n                    dim=" INT ",\n"
                          "                    max_context_length=" INT ",\n"
                          "                    theta=%s,\n%s                ),\n",
                          family_of (m)->rope, dim,
                          MAX (m->max_seq, subject->of->plan.value[PLAN_SEQ]), theta, scaling);
}

static void
append_attention (GString *text, const PlanEmitSubject *subject)
{
  const PlanModel *const m = subject->of->model;
  g_string_append_printf (text,
                          "            attention=make_gqa_config(\n"
                          "                dim=" INT ",\n                n_heads=" INT ",\n"
                          "                n_kv_heads=" INT ",\n                head_dim=" INT ",\n"
                          "                wqkv_param_init=init,\n"
                          "                wo_param_init=scaled,\n"
                          "                inner_attention=get_attention_config(\"flex\"),\n"
                          "                fuse_qkv=True,\n",
                          m->hidden, m->heads, m->kv_heads, m->head_dim);
  if (m->qk_norm)
    g_string_append_printf (text, "                qk_norm=norm(normalized_shape=" INT "),\n",
                            m->head_dim);
  append_rope (text, subject, m->head_dim);
  g_string_append (text, "            ),\n");
}

static void
append_latent_attention (GString *text, const PlanEmitSubject *subject)
{
  const PlanModel *const m = subject->of->model;
  g_autofree char *mscale = plan_emit_real (m->rope.mscale_all > 0 ? m->rope.mscale_all : 1);
  g_string_append_printf (text,
                          "            attention=make_mla_attention_config(\n"
                          "                layer_id=i,\n                dim=" INT ",\n"
                          "                n_heads=" INT ",\n                q_lora_rank=" INT ",\n"
                          "                kv_lora_rank=" INT ",\n"
                          "                qk_nope_head_dim=" INT ",\n"
                          "                qk_rope_head_dim=" INT ",\n"
                          "                v_head_dim=" INT ",\n                mscale=%s,\n"
                          "                attn_backend=\"flex\",\n"
                          "                linear_init=init,\n"
                          "                norm_init={\"weight\": nn.init.ones_},\n"
                          "                depth_init=lambda _: scaled,\n",
                          m->hidden, m->heads, m->q_lora, m->kv_lora, m->nope_dim, m->rope_dim,
                          m->v_dim, mscale);
  append_rope (text, subject, m->rope_dim);
  g_string_append (text, "            ),\n");
}

static void
append_ffn (GString *text, const PlanModel *m, const char *what, gint64 ffn, const char *indent)
{
  g_string_append_printf (
      text,
      "%s%s=%smake_ffn_config(\n%s    dim=" INT ",\n%s    hidden_dim=" INT ",\n"
      "%s    w1_param_init=init,\n%s    w2w3_param_init=scaled,\n%s),\n",
      indent, what,
      g_str_equal (what, "feed_forward") && m->experts > 0 ? "None if is_moe else " : "", indent,
      m->hidden, indent, ffn, indent, indent, indent);
}

static const char *
backend_of (const PlanEmitSubject *subject)
{
  static const char *const backends[]
      = { [PLAN_MOE_DISPATCHER_ALLTOALL] = "standard",
          [PLAN_MOE_DISPATCHER_ALLGATHER] = "standard", /* no such backend: refused elsewhere */
          [PLAN_MOE_DISPATCHER_DEEPEP] = "deepep",
          [PLAN_MOE_DISPATCHER_HYBRIDEP] = "hybridep" };
  return backends[subject->of->plan.value[PLAN_MOE_DISPATCHER]];
}

/* Adds the layers of gpt-oss, which torchtitan builds by itself, all but what norms add. */
static void
append_gpt_oss_layers (GString *text, const PlanEmitSubject *subject)
{
  const PlanModel *const m = subject->of->model;
  g_autofree char *eps = plan_emit_real (m->norm_eps);
  GString *args = g_string_new ("\n");
  g_string_append_printf (args,
                          "                dim=" INT ",\n                n_layers=" INT ",\n"
                          "                hidden_dim=" INT ",\n                num_experts=" INT
                          ",\n                top_k=" INT ",\n"
                          "                load_balance_coeff=%s,\n"
                          "                attn_backend=\"flex\",\n"
                          "                moe_comm_backend=\"%s\",\n",
                          m->hidden, m->layers, m->expert_ffn, m->experts, m->topk,
                          m->router_bias ? "1e-3" : "None", backend_of (subject));
  append_rope (args, subject, m->head_dim);
  g_string_replace (args, "\n        ", "\n", 0); /* they are indented as those of a layer */
  g_string_append_printf (text,
                          "    layers = _build_gptoss_layers(%s    )\n    for layer in layers:\n"
                          "        layer.attention_norm.eps = layer.ffn_norm.eps = %s\n",
                          args->str, eps);
  g_string_free (args, TRUE);
}

static void
append_router (GString *text, const PlanModel *m)
{
  const gboolean is_sigmoid = m->router_score == PLAN_ROUTER_SIGMOID;
  g_autofree char *scale = plan_emit_real (m->router_scale);
  g_string_append_printf (
      text,
      "                router=make_router_config(\n"
      "                    dim=" INT ",\n                    num_experts=" INT
      ",\n                    gate_param_init=init,\n"
      "                    top_k=" INT ",\n"
      "                    score_func=\"%s\",\n"
      "                    route_norm=%s,\n                    route_scale=%s,\n",
      m->hidden, m->experts, m->topk, is_sigmoid ? "sigmoid" : "softmax",
      plan_emit_python (!m->pre_softmax), scale);
  if (m->router_groups > 0)
    g_string_append_printf (text,
                            "                    num_expert_groups=" INT ",\n"
                            "                    num_limited_groups=" INT ",\n",
                            m->router_groups, m->router_group_topk);
  g_string_append (text, "                ),\n");
}

/* Adds the experts of layers for which is_moe holds. */
static void
append_experts (GString *text, const PlanEmitSubject *subject)
{
  const PlanModel *const m = subject->of->model;
  g_string_append_printf (text,
                          "            moe=None if not is_moe else make_moe_config(\n"
                          "                num_experts=" INT ",\n"
                          "                load_balance_coeff=%s,\n",
                          m->experts, m->router_bias ? "1e-3" : "None");
  append_router (text, m);
  g_string_append_printf (
      text,
      "                routed_experts=make_routed_experts_config(\n"
      "                    dim=" INT ",\n                    hidden_dim=" INT ",\n"
      "                    num_experts=" INT ",\n                    top_k=" INT ",\n"
      "                    param_init={\n                        \"w1_EFD\": init[\"weight\"],\n"
      "                        \"w2_EDF\": scaled[\"weight\"],\n"
      "                        \"w3_EFD\": init[\"weight\"],\n                    },\n"
      "                    comm_backend=\"%s\",\n                ),\n",
      m->hidden, m->expert_ffn, m->experts, m->topk, backend_of (subject));
  if (m->shared_ffn > 0)
    append_ffn (text, m, "shared_experts", m->shared_ffn, "                ");
  g_string_append (text, "            ),\n");
}

static void
append_layer (GString *text, const PlanEmitSubject *subject)
{
  const PlanModel *const m = subject->of->model;
  const Family *const family = family_of (m);
  g_autofree char *eps = plan_emit_real (m->norm_eps);
  g_string_append_printf (
      text,
      "    layers = []\n    for i in range(" INT "):\n"
      "        scaled = {\n"
      "            \"weight\": partial(nn.init.trunc_normal_, std=depth_scaled_std(0.02, i)),\n"
      "            \"bias\": nn.init.zeros_,\n        }\n",
      m->layers);
  if (m->experts > 0)
    g_string_append_printf (text, "        is_moe = i >= " INT " and (i + 1) %% " INT " == 0\n",
                            m->dense_layers, m->moe_every);
  g_string_append_printf (text,
                          "        layer = %sTransformerBlock.Config(\n"
                          "            attention_norm=norm(normalized_shape=" INT "),\n"
                          "            ffn_norm=norm(normalized_shape=" INT "),\n",
                          family->prefix, m->hidden, m->hidden);
  if (family == &deepseek_v3)
    append_latent_attention (text, subject);
  else
    append_attention (text, subject);
  if (m->experts > 0)
    append_experts (text, subject);
  append_ffn (text, m, "feed_forward", m->ffn, "            ");
  g_string_append (text, "        )\n");
  if (m->qkv_bias)
    g_string_append (text, "        layer.attention.qkv_linear.wqkv.bias = True\n");
  if (family == &deepseek_v3)
    g_string_append_printf (
        text, "        layer.attention.q_norm.eps = layer.attention.kv_norm.eps = %s\n", eps);
  g_string_append (text, "        layers.append(layer)\n");
}

static void
append_model (GString *text, const PlanEmitSubject *subject)
{
  const PlanModel *const m = subject->of->model;
  const gint64 *const value = subject->of->plan.value;
  const Family *const family = family_of (m);
  g_autofree char *eps = plan_emit_real (m->norm_eps);
  g_string_append_printf (
      text,
      "\n\ndef model() -> ModelSpec:\n"
      "    init = {\"weight\": partial(nn.init.trunc_normal_, std=0.02), \"bias\": "
      "nn.init.zeros_}\n"
      "    norm = partial(RMSNorm.Config, eps=%s, param_init={\"weight\": nn.init.ones_})\n",
      eps);
  if (family == &gpt_oss)
    append_gpt_oss_layers (text, subject);
  else
    append_layer (text, subject);
  g_string_append_printf (
      text,
      "    decoder = %sModel.Config(\n        dim=" INT ",\n        vocab_size=" INT ",\n"
      "        enable_weight_tying=%s,\n        tok_embeddings=Embedding.Config(\n"
      "            num_embeddings=" INT ",\n            embedding_dim=" INT ",\n"
      "            param_init={\"weight\": %s},\n        ),\n"
      "        norm=norm(normalized_shape=" INT "),\n        lm_head=Linear.Config(\n"
      "            in_features=" INT ",\n            out_features=" INT ",\n"
      "            param_init=init,\n        ),\n        layers=layers,\n    )\n",
      family->prefix, m->hidden, m->vocab, plan_emit_python (m->tied_embeddings), m->vocab,
      m->hidden, m->tied_embeddings ? "skip_param_init" : "partial(nn.init.normal_, std=0.02)",
      m->hidden, m->hidden, m->vocab);
  if (IS (COMPUTE, MXFP8))
    g_string_append_printf (text,
                            "    converter = MXFP8LinearConverter.Config(\n"
                            "        fqns=[\"layers\"],\n        model_compile_enabled=%s,\n    )\n"
                            "    decoder = converter.build().convert(decoder)\n",
                            plan_emit_python (IS (COMPILE, ON)));
  g_string_append_printf (text,
                          "    return ModelSpec(\n        name=\"%s\",\n        flavor=\"%s\",\n"
                          "        model=decoder,\n        parallelize_fn=%s,\n"
                          "        pipelining_fn=pipeline_llm,\n"
                          "        post_optimizer_build_fn=%s,\n"
                          "        state_dict_adapter=%s%s,%s\n    )\n",
                          family->module, m->name, family->parallelize,
                          m->router_bias ? "register_moe_load_balancing_hook" : "None",
                          has_adapter (m) ? family->prefix : "None",
                          has_adapter (m) ? "StateDictAdapter" : "",
                          has_adapter (m) ? ""
                          : m->qkv_bias ? "  # Hugging Face weights with these biases are not read"
                                        : "  # Hugging Face weights of this family are not read");
}

static void
append_loss (GString *text, const PlanEmitSubject *subject)
{
  const gint64 chunks = subject->of->plan.value[PLAN_LOSS_CHUNKS];
  if (chunks > 1)
    g_string_append_printf (text,
                            "        loss=ChunkedLossWrapper.Config(\n"
                            "            num_chunks=" INT ",\n"
                            "            loss_fn=CrossEntropyLoss.Config(global_vocab_size=" INT
                            "),\n        ),\n",
                            chunks, subject->of->model->vocab);
  else
    g_string_append_printf (text,
                            "        loss=CrossEntropyLoss.Config(global_vocab_size=" INT "),\n",
                            subject->of->model->vocab);
}

/* Lists the modules of each virtual stage, where torchtitan by itself would divide the layers in
 * another way: it makes at most two virtual stages per stage, and its settings say only by how many
 * layers the first and the last stage are shorter than the others. */
static void
append_stages (GString *text, const PlanEmitSubject *subject)
{
  const PlanCase *const of = subject->of;
  const gint64 *const value = of->plan.value;
  const gint64 n = value[PLAN_PP] * value[PLAN_VPP];
  gint64 layer = 0;
  g_string_append (text, "            module_fqns_per_model_part=[\n");
  for (gint64 i = 0; i < n; i++)
    {
      const PlanStage stage = plan_stage_of (of->model, of->stack, &of->plan, i % value[PLAN_PP]);
      const PlanStage part = plan_stage_virtual (&stage, i / value[PLAN_PP]);
      g_string_append_printf (
          text, "                [%s*(f\"layers.{i}\" for i in range(" INT ", " INT "))%s],\n",
          part.has_embedding ? "\"tok_embeddings\", " : "", layer, layer + part.layers,
          part.has_head ? ", \"norm\", \"lm_head\"" : "");
      layer += part.layers;
    }
  g_string_append (text, "            ],\n");
}

static void
append_pipeline (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gboolean is_told = value[PLAN_PP_FIRST_LAYERS] != PLAN_UNSET
                           || value[PLAN_PP_LAST_LAYERS] != PLAN_UNSET
                           || value[PLAN_PP_LAYOUT] != PLAN_UNSET || value[PLAN_VPP] > 2;
  if (value[PLAN_PP] == 1)
    return;
  g_string_append_printf (text,
                          "            pipeline_parallel_degree=" INT ",\n"
                          "            pipeline_parallel_schedule=\"%s\",\n"
                          "            num_pp_microbatches=" INT ",\n",
                          value[PLAN_PP],
                          IS (PP_SCHEDULE, AFAB) ? "GPipe"
                          : value[PLAN_VPP] > 1  ? "Interleaved1F1B"
                                                 : "1F1B",
                          plan_micro_batches (&subject->of->plan, subject->of->cluster));
  if (is_told)
    append_stages (text, subject);
  else
    g_string_append_printf (text,
                            "            pipeline_parallel_first_stage_less_layers=%d,\n"
                            "            pipeline_parallel_last_stage_less_layers=" INT ",\n",
                            IS (PP_COUNT_EMBEDDING, ON) ? 1 : 0,
                            (IS (PP_COUNT_LOSS, ON) ? 1 : 0) + value[PLAN_PP_LAST_SHORT]);
}

static void
append_training (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 tp = value[PLAN_TP], cp = value[PLAN_CP], outer = value[PLAN_DP_OUTER];
  g_string_append_printf (
      text,
      "        training=TrainingConfig(\n"
      "            num_tokens_per_microbatch_per_dp_rank=" INT " * " INT ",\n"
      "            num_tokens_per_train_step=" INT " * " INT ",\n"
      "            max_context_length=" INT ",\n            steps=100,\n"
      "            dtype=\"%s\",\n            mixed_precision_param=\"%s\",\n"
      "            mixed_precision_reduce=\"float32\",\n            disable_cuda_graphs=True,\n"
      "        ),\n"
      "        parallelism=ParallelismConfig(\n"
      "            data_parallel_replicate_degree=" INT ",\n"
      "            data_parallel_shard_degree=" INT ",\n"
      "            fsdp_reshard_after_forward=\"%s\",\n"
      "            tensor_parallel_degree=" INT ",\n"
      "            enable_sequence_parallel=%s,\n"
      "            context_parallel_degree=" INT ",\n",
      value[PLAN_MBS], value[PLAN_SEQ], value[PLAN_GBS], value[PLAN_SEQ], value[PLAN_SEQ],
      IS (MAIN_PARAMS, BF16) ? "bfloat16" : "float32", IS (COMPUTE, FP32) ? "float32" : "bfloat16",
      outer, plan_cluster_devices (subject->of->cluster) / tp / cp / outer / value[PLAN_PP],
      IS (STRATEGY, OPTIM_GRADS) ? "never" : "default", tp,
      plan_emit_python (tp == 1 || IS (SP, ON)), cp);
  append_pipeline (text, subject);
  if (subject->of->model->experts > 0)
    g_string_append_printf (text, "            expert_parallel_degree=" INT ",\n", value[PLAN_EP]);
  g_string_append (text, "        ),\n");
}

static void
append_config (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gboolean is_narrow = IS (EXP_AVG, BF16) && IS (MAIN_PARAMS, FP32);
  g_string_append_printf (text,
                          "\n\ndef config() -> Trainer.Config:\n"
                          "    optimizer = default_adamw(lr=3e-4)\n"
                          "    optimizer.implementation = \"%s\"\n"
                          "    return Trainer.Config(\n        model_spec=model(),\n"
                          "        hf_assets_path=\"./assets/hf/%s\",\n",
                          is_narrow               ? "fused_opt_states_bf16"
                          : IS (ADAM_FOREACH, ON) ? "foreach"
                                                  : "fused",
                          subject->of->model->name);
  append_loss (text, subject);
  g_string_append (
      text,
      "        optimizer=optimizer,\n"
      "        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=10),\n"
      "        dataloader=GrainDataLoader.Config(\n"
      "            dataset=ConcatThenSplitPackingConfig(dataset=DATASETS[\"c4\"]),\n        ),\n"
      "        metrics=MetricsProcessor.Config(log_freq=1),\n");
  append_training (text, subject);
  g_string_append_printf (text,
                          "        activation_checkpoint=%s,\n        compile=CompileConfig(\n"
                          "            enable=%s,\n            components=[\"model\", \"loss\"],\n"
                          "            enable_async_tensor_parallel=%s,\n        ),\n"
                          "        debug=DebugConfig(deterministic=%s),\n    )\n",
                          IS (RECOMPUTE, NONE)   ? "None"
                          : IS (RECOMPUTE, FULL) ? "FullAC.Config()"
                                                 : "SelectiveAC.Config()",
                          plan_emit_python (IS (COMPILE, ON)),
                          plan_emit_python (IS (TP_OVERLAP, ASYNC)),
                          plan_emit_python (IS (DETERMINISTIC, ON)));
}

char *
plan_emit_torchtitan (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  GString *text = g_string_new (NULL);
  plan_emit_refuse_target (subject, &target, reasons);
  refuse_formats (subject, reasons);
  refuse_sizes (subject, reasons);
  refuse_model (subject->of->model, reasons);
  append_head (text, subject);
  append_imports (text, subject);
  append_model (text, subject);
  append_config (text, subject);
  return g_string_free (text, FALSE);
}
