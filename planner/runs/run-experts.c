/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of models with experts: what their notes say of latent attention, and what is assumed for
 * expert plans where notes say nothing. */
#include "config.h"

#include "planner/runs/run-private.h"

#include "planner/base/error.h"

#include <math.h>
#include <string.h>

/* Imbalance of experts (rows of the fullest rank over the mean) while a router learns. */
#define UNFORCED "1.25"

/* Models that the run tables call "deepseek" and that are known by name: `note` is how the name
 * begins. */
static const struct
{
  const char *note, *keys;
} models[] = {
  { "deepseek-v3-671b", "family=deepseek_v3" },
  { "kimi-k2", "family=kimi_k2" },
  { "deepseekv2", "family=deepseek_v2,router_groups=8,router_group_topk=3,router_scale=16" },
  { "deepseek-v3-16b",
    "family=deepseek_v2,q_lora=0" }, /* torchtitan's own model, after DeepSeek-V2-Lite */
  { "moonlight", "family=deepseek_v3,router_groups=0,router_group_topk=0,q_lora=0" },
};

#define OTHER "family=deepseek_v3,router_groups=0,router_group_topk=0"

/* Names that notes use for ranks and widths of latent attention. */
static const struct
{
  const char *name, *key;
} latent[] = {
  { "q_lora", "q_lora" },   { "q-lora-rank", "q_lora" },
  { "kv_lora", "kv_lora" }, { "kv-lora-rank", "kv_lora" },
  { "nope", "nope_dim" },   { "qk-head-dim", "nope_dim" },
  { "rope", "rope_dim" },   { "qk-pos-emb-head-dim", "rope_dim" },
  { "v", "v_dim" },         { "v-head-dim", "v_dim" },
};

static const char *
find_model (const PlanRunRow *row)
{
  g_autofree char *name = plan_run_row_note (row, "model");
  for (guint i = 0; name && i < G_N_ELEMENTS (models); i++)
    if (g_str_has_prefix (name, models[i].note))
      return models[i].keys;
  return NULL;
}

/* Adds keys from "q_lora:none,kv_lora:512,...". */
static void
add_latent (GString *text, PlanRunRow *row, const char *mla)
{
  g_auto (GStrv) pairs = g_strsplit (mla, ",", -1);
  for (char **pair = pairs; *pair; pair++)
    {
      g_autofree char *known = NULL;
      char *const value = strchr (*pair, ':');
      guint i = 0;
      if (value)
        *value = '\0';
      while (value && i < G_N_ELEMENTS (latent) && !g_str_equal (latent[i].name, *pair))
        i++;
      if (!value || i == G_N_ELEMENTS (latent))
        {
          plan_run_row_skip (row, "mla=%s: not ranks and widths of latent attention", mla);
          return;
        }
      known = g_strdup_printf (",%s=", latent[i].key);
      if (!strstr (text->str, known))
        g_string_append_printf (text, ",%s=%s", latent[i].key,
                                g_str_equal (value + 1, "none") ? "0" : value + 1);
    }
}

char *
plan_run_row_latent_keys (PlanRunRow *self)
{
  g_autofree char *mla = plan_run_row_note (self, "mla");
  const char *const known = find_model (self);
  GString *text = g_string_new (known ? known : OTHER);
  if (mla && strchr (mla, ':'))
    add_latent (text, self, mla);
  else if (!known)
    plan_run_row_skip (self, "mla: latent attention whose ranks are not known");
  return g_string_free (text, FALSE);
}

static double
number_in (const PlanRunRow *row, PlanRunColumn column)
{
  return row->cell[column] ? g_ascii_strtod (row->cell[column], NULL) : 0;
}

gboolean
plan_run_row_shows_module (PlanRunRow *row, const PlanModel *model)
{
  g_autofree char *noted = plan_run_row_note (row, "mtp");
  const double rate = number_in (row, PLAN_RUN_TOKENS_PER_S_PER_GPU);
  const double flops = number_in (row, PLAN_RUN_TFLOPS_PER_GPU) * 1e12;
  const gint64 seq = plan_run_row_int (row, PLAN_RUN_SEQ);
  PlanModel with_module = *model;
  with_module.mtp = 1;
  if (noted || model->kv_lora == 0 || model->experts == 0 || rate <= 0 || seq < 1
      || !plan_run_row_is (row, PLAN_RUN_TFLOPS_KIND, "model-causal"))
    return FALSE;
  const double with = plan_model_flops_per_token (&with_module, seq, model->vocab);
  const double without = plan_model_flops_per_token (model, seq, model->vocab);
  const gboolean shows = fabs (flops / rate - with) < fabs (with - without) / 3;
  if (shows)
    plan_run_row_remark (row, "its FLOPs per token are those of a model with a prediction module");
  return shows;
}

/* Sets a field that no note gives, and remarks on it. */
static gboolean
assume (PlanRunRow *row, const char *note, const char *field, const char *value, GError **error)
{
  g_autofree char *told = plan_run_row_note (row, note);
  if (told)
    return TRUE;
  plan_run_row_remark (row, "%s is not known: %s is assumed", field, value);
  return plan_set (&row->plan, field, value, error);
}

static gboolean
set_imbalance (PlanRunRow *row, GError **error)
{
  g_autofree char *routing = plan_run_row_note (row, "routing");
  g_autofree char *capacity = plan_run_row_note (row, "capacity_factor");
  const gboolean is_even = (routing && g_str_has_prefix (routing, "balanced"))
                           || (capacity && g_ascii_strtod (capacity, NULL) <= 1);
  if (is_even)
    return plan_set (&row->plan, "moe_imbalance", "1", error);
  return routing ? plan_set (&row->plan, "moe_imbalance", UNFORCED, error)
                 : assume (row, "routing", "moe_imbalance", UNFORCED, error);
}

/* What Megatron-LM does unless it is told otherwise (arguments.py, transformer_config.py). Its
 * tests state every flag that they set, so it holds there: experts one after the other, rows moved
 * op by op, a router in the format of compute. */
static void
set_defaults (PlanRunRow *row)
{
  row->plan.value[PLAN_MOE_DISPATCHER] = PLAN_MOE_DISPATCHER_ALLGATHER;
  row->plan.value[PLAN_MOE_GROUPED_GEMM] = PLAN_MOE_GROUPED_GEMM_OFF;
  row->plan.value[PLAN_MOE_PERMUTE_FUSION] = PLAN_MOE_PERMUTE_FUSION_OFF;
  row->plan.value[PLAN_ROUTER_DTYPE] = PLAN_ROUTER_DTYPE_BF16;
}

/* Sets what notes on runs of Megatron-LM leave out. By Megatron-LM's own default etp is tp
 * (arguments.py 587). Elsewhere than in its tests what most recipes set is assumed. */
static gboolean
assume_megatron (PlanRunRow *row, GError **error)
{
  const char *const source = row->cell[PLAN_RUN_SOURCE];
  const gboolean is_test = g_str_has_prefix (source, "NVIDIA/Megatron-LM tests/");
  const gboolean is_bridge = g_str_has_prefix (source, "NVIDIA-NeMo/Megatron-Bridge");
  const gboolean is_deepseek = plan_run_row_is (row, PLAN_RUN_FAMILY, "deepseek");
  g_autofree char *etp = plan_run_row_note (row, "etp");
  const gint64 tp = row->plan.value[PLAN_TP];
  g_autofree char *known_etp = etp ? NULL : plan_run_row_known (row, "etp");
  if (!etp)
    row->plan.value[PLAN_ETP] = known_etp ? g_ascii_strtoll (known_etp, NULL, 10) : tp;
  if (is_test)
    {
      set_defaults (row);
      return TRUE;
    }
  if (!etp && !known_etp && tp > 1)
    plan_run_row_remark (row, "etp is not known: that of tp is assumed");
  if (!(is_bridge && is_deepseek) /* for these runs the recipe is known */
      && !assume (row, "moe_token_dispatcher_type", "moe_dispatcher", "alltoall", error))
    return FALSE;
  if (is_bridge && is_deepseek) /* the recipe says so (deepseek_v3_bridge.py 57-97) */
    row->plan.value[PLAN_MOE_SHARED_OVERLAP] = PLAN_MOE_SHARED_OVERLAP_ON;
  else if (!assume (row, "moe_permute_fusion", "moe_permute_fusion", "on", error))
    return FALSE;
  return assume (row, "moe_grouped_gemm", "moe_grouped_gemm", "on", error)
         && ((is_bridge && is_deepseek)
             || assume (row, "router_dtype", "router_dtype", "fp32", error));
}

gboolean
plan_run_row_assume_experts (PlanRunRow *self, GError **error)
{
  const gint64 stack = self->plan.value[PLAN_STACK] % PLAN_STACK_BASE;
  const gboolean is_megatron = stack == PLAN_STACK_MEGATRON || stack == PLAN_STACK_MEGATRON_FSDP;
  if (!self->model || self->model->experts == 0)
    return TRUE;
  return set_imbalance (self, error) && (!is_megatron || assume_megatron (self, error));
}

gboolean
plan_run_row_apply_recipe (PlanRunRow *self, GError **error)
{
  if (!self->model || self->model->experts == 0)
    return TRUE;
  g_autofree char *type = plan_run_row_note (self, "moe_token_dispatcher_type");
  g_autofree char *backend = plan_run_row_note (self, "moe_flex_backend");
  g_autofree char *dispatcher = plan_run_row_known (self, "moe_dispatcher");
  g_autofree char *more = self->plan.value[PLAN_COMPUTE] == PLAN_COMPUTE_MXFP8
                              ? plan_run_row_known (self, "experts_in_mxfp8")
                              : NULL;
  const gboolean is_flex
      = type ? g_str_equal (type, "flex") : plan_run_row_is (self, PLAN_RUN_FAMILY, "deepseek");
  g_autofree char *fusion = plan_run_row_known (self, "moe_router_fusion");
  g_autofree char *overlap = plan_run_row_known (self, "ep_overlap");
  g_autofree char *delay = plan_run_row_known (self, "ep_delay_wgrad");
  if ((fusion && !plan_set (&self->plan, "moe_router_fusion", fusion, error))
      || (overlap && !plan_set (&self->plan, "ep_overlap", overlap, error)))
    return FALSE;
  if (overlap && g_str_equal (overlap, "on") && delay
      && !plan_set (&self->plan, "ep_delay_wgrad", delay, error))
    return FALSE;
  if (self->plan.value[PLAN_EP_OVERLAP] == PLAN_EP_OVERLAP_ON)
    self->plan.value[PLAN_MOE_SHARED_OVERLAP] = PLAN_MOE_SHARED_OVERLAP_OFF;
  g_autofree char *beyond = plan_run_row_known (self, "unplanned");
  if (beyond)
    plan_run_row_skip (self, "recipe: %s", beyond);
  if (more)
    plan_run_row_skip (self, "experts in mxfp8: their recipe has since %s: %s",
                       self->cell[PLAN_RUN_STACK_DATE], more);
  if (!dispatcher || !is_flex || backend)
    return TRUE;
  /* HybridEP and DeepEP do not overlap shared experts (flex_dispatcher_backend.py). */
  if (!g_str_equal (dispatcher, "alltoall"))
    self->plan.value[PLAN_MOE_SHARED_OVERLAP] = PLAN_MOE_SHARED_OVERLAP_OFF;
  return plan_set (&self->plan, "moe_dispatcher", dispatcher, error);
}
