/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/prop/pipelines.h"

#include "planner/plan/stages.h"

#define EXPERTS ",experts=4,topk=2,expert_ffn=32,dense_layers=1,moe_every=1"

static gint64
pipeline_some (GRand *rand, gint32 least, gint32 most)
{
  return g_rand_int_range (rand, least, most + 1);
}

/* Deals layers out to one pipeline in four by a layout of its own: every inner virtual stage has a
 * layer, and the others go anywhere. */
static void
set_layout (Plan *plan, const PlanModel *model, guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 11);
  const gint64 n = plan->value[PLAN_PP] * plan->value[PLAN_VPP];
  if (seed / 1000 % 4 != 2 || model->layers < n || plan->value[PLAN_PP] < 2
      || plan->value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_NANOTRON)
    return;
  g_autofree gint64 *layers = g_new0 (gint64, n);
  gint64 left = model->layers;
  for (gint64 i = 1; i + 1 < n; i++, left--)
    layers[i] = 1;
  for (; left > 0; left--)
    layers[g_rand_int_range (rand, 0, (gint32)n)]++;
  g_autofree char *text = pipeline_layout_text (layers, (guint)n, model->mtp, rand);
  g_autoptr (GError) error = NULL;
  const gint64 stages = plan->value[PLAN_PP];
  plan_stages_clear (plan);
  plan->value[PLAN_PP] = stages;
  plan->value[PLAN_VPP] = n / stages;
  ck_assert_msg (plan_set (plan, "pp_layout", text, &error), "%s", error ? error->message : "");
}

/* Lets one in three stages run all forward passes first, or exchange in batches, if they can, and
 * one in three overlap all their exchanges. */
static void
set_order (Plan *plan, guint seed)
{
  const gint64 *value = plan->value;
  const gboolean is_megatron = value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON;
  if (seed % 3 == 0 && value[PLAN_VPP] == 1 && !is_megatron)
    plan->value[PLAN_PP_SCHEDULE] = PLAN_PP_SCHEDULE_AFAB;
  if (seed % 3 < 2 && value[PLAN_VPP] > 1 && value[PLAN_PP] > 2 && is_megatron)
    plan->value[PLAN_PP_OVERLAP]
        = seed % 3 == 0 ? PLAN_PP_OVERLAP_OFF : PLAN_PP_OVERLAP_WARMUP_FLUSH;
}

/* How experts are split, and in some plans their rows travel beside another pass. */
static const char *
experts_words (GRand *rand, gboolean is_interleaved)
{
  static const char *const ways[]
      = { "", "", " ep=2", " ep=2 ep_overlap=on", " ep=2 ep_overlap=on ep_delay_wgrad=on" };
  return ways[g_rand_int_range (rand, 0, is_interleaved ? G_N_ELEMENTS (ways) : 3)];
}

/* By the seed alone, so that the rest of a plan is drawn as it would be without. */
static const char *
offload_words (const char *stack, const PlanModel *model, guint seed)
{
  if (g_str_equal (stack, "megatron") && seed % 3 == 0)
    return " precision_aware=on offload_optimizer=0.5";
  if ((!g_str_equal (stack, "megatron") && !g_str_equal (stack, "native")) || seed % 3 == 2)
    return "";
  return model->experts > 0 ? " offload_modules=attn_norm+mlp_norm+expert_fc1+moe_act"
                            : " offload_modules=attn_norm+core_attn+mlp_norm";
}

/* What counts as a layer. Without virtual stages the first four. */
static const char *const counts[] = { "",
                                      " pp_count_embedding=on pp_count_loss=on",
                                      " pp_count_loss=on",
                                      " pp_count_embedding=on",
                                      " pp_last_short=2",
                                      " pp_count_embedding=on pp_last_short=3" };

/* A random plan with pipeline stages; NULL: it is not legal, or does not divide the devices. */
static PlanCase *
pipeline_case (guint seed, gboolean is_interleaved, const PlanModel *model,
               const PlanCluster *cluster)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 7);
  static const char *const stacks[] = { "megatron", "nanotron", "native" };
  static const char *const strategies[]
      = { "no_shard", "optim", "optim_grads", "optim_grads_params" };
  const gboolean is_torch = seed / 1000 % 7 == 3;
  const char *stack = is_torch         ? "fsdp2"
                      : is_interleaved ? g_rand_int_range (rand, 0, 3) == 0 ? "native" : "megatron"
                                       : stacks[g_rand_int_range (rand, 0, 3)];
  const gboolean is_native = g_str_equal (stack, "native");
  const gint64 stages
      = is_interleaved ? pipeline_some (rand, 2, 8) : 1 << pipeline_some (rand, 1, 3);
  const gint64 mbs = pipeline_some (rand, 1, 2), tp = g_rand_boolean (rand) ? 2 : 1;
  const gint64 n_virtual = is_interleaved ? pipeline_some (rand, 2, 4) : 1;
  const gint64 group = stages + (pipeline_some (rand, 0, 2) == 0 ? pipeline_some (rand, 0, 3) : 0);
  const gint64 rest = group > stages && seed % 2 ? stages + seed / 2 % (group - stages) : 0;
  const gint64 m = is_interleaved ? group * pipeline_some (rand, 1, 10) + rest
                                  : stages - 1 + pipeline_some (rand, 0, 19);
  const gint64 devices = plan_cluster_devices (cluster);
  static const char *const recomputes[] = { "none", "full", "selective" };
  static const char *const formats[]
      = { " compute=fp8-delayed", " compute=fp8-delayed param_gather=fp8",
          " compute=fp8-tensorwise param_gather=fp8", " compute=fp8-blockwise param_gather=fp8",
          " compute=mxfp8 param_gather=mxfp8" };
  static const char *const settings[]
      = { " loss_chunks=2", " compile=on", " compute=fp8-tensorwise grad_comm=bf16" };
  g_autofree char *of_group = is_interleaved && group > stages
                                  ? g_strdup_printf (" pp_group=%" G_GINT64_FORMAT, group)
                                  : g_strdup ("");
  if (devices % (stages * tp) != 0 || m == 0)
    return NULL;
  const gint64 gbs = m * mbs * devices / stages / tp;
  g_autofree char *words = g_strdup_printf (
      "stack=%s%s pp=%" G_GINT64_FORMAT " vpp=%" G_GINT64_FORMAT " tp=%" G_GINT64_FORMAT
      " mbs=%" G_GINT64_FORMAT " gbs=%" G_GINT64_FORMAT " seq=%" G_GINT64_FORMAT
      " strategy=%s recompute=%s%s%s%s%s%s%s",
      stack,
      (is_interleaved || is_torch) && !is_native && g_rand_boolean (rand) ? "@2025-06-01" : "",
      stages, n_virtual, tp, mbs, gbs, model->max_seq,
      strategies[is_torch ? 2 : g_rand_int_range (rand, 0, is_native ? 4 : 2)],
      recomputes[g_rand_int_range (rand, 0, is_torch ? 2 : 3)],
      is_torch                ? settings[g_rand_int_range (rand, 0, 3)]
      : g_rand_boolean (rand) ? ""
                              : " overlap_grad_reduce=off overlap_param_gather=off",
      is_torch || g_rand_boolean (rand) ? "" : " recompute_layers=2", of_group,
      g_str_equal (stack, "nanotron") ? ""
                                      : counts[g_rand_int_range (rand, 0, is_interleaved ? 6 : 4)],
      model->experts > 0                             ? experts_words (rand, is_interleaved)
      : !is_torch && pipeline_some (rand, 0, 2) == 0 ? formats[g_rand_int_range (rand, 0, 5)]
                                                     : "",
      offload_words (stack, model, seed));
  Plan plan = test_plan (words);
  set_order (&plan, seed);
  set_layout (&plan, model, seed);
  return plan_case_new (model, cluster, &plan, NULL, NULL);
}

/* Appends n letters, at random as "ttt" or "t*3", with commas. */
static void
append_letters (GString *text, char letter, gint64 n, GRand *rand)
{
  if (g_rand_int_range (rand, 0, 4) == 0)
    g_string_append_c (text, ',');
  if (n > 1 && g_rand_boolean (rand))
    {
      g_string_append_printf (text, "%c*%" G_GINT64_FORMAT, letter, n);
      return;
    }
  for (gint64 i = 0; i < n; i++)
    g_string_append_c (text, letter);
}

char *
pipeline_layout_text (const gint64 *layers, guint n, gint64 modules, GRand *rand)
{
  GString *text = g_string_new ("E");
  for (guint i = 0; i < n; i++)
    {
      guint same = 1;
      while (i > 0 && i + same + 1 < n && layers[i + same] == layers[i]
             && g_rand_int_range (rand, 0, 4) > 0)
        same++;
      g_string_append (text, same > 1 ? "(" : "");
      append_letters (text, 't', layers[i], rand);
      g_string_append (text, i + same < n ? "|" : "");
      if (same > 1)
        g_string_append_printf (text, ")*%u", same);
      i += same - 1;
    }
  append_letters (text, 'm', modules, rand);
  return g_string_free (g_string_append_c (text, 'L'), FALSE);
}

void
pipeline_init (Pipeline *self, guint seed, gboolean is_interleaved)
{
  const int scale = seed % 2 ? 64 : 1;
  *self = (Pipeline){ 0 };
  for (guint try = 0; !self->of; try++)
    {
      g_autoptr (GRand) rand = g_rand_new_with_seed (seed * 1000 + try);
      g_clear_pointer (&self->model, plan_model_free);
      g_clear_pointer (&self->cluster, plan_cluster_free);
      g_autofree char *spec = g_strdup_printf (
          "layers=%d,hidden=%d,ffn=%d,heads=4,kv_heads=%d,vocab=%d,max_seq=%d,tied=%s%s%s",
          is_interleaved ? 12 * g_rand_int_range (rand, 1, 5) - (g_rand_boolean (rand) ? 2 : 0)
                         : g_rand_int_range (rand, 2, 17),
          64 * scale, 32 * scale * g_rand_int_range (rand, 1, 5), g_rand_boolean (rand) ? 4 : 2,
          64 * scale * g_rand_int_range (rand, 1, 20) * (seed % 3 == 0 && !is_interleaved ? 3 : 1),
          64 * scale, g_rand_boolean (rand) ? "on" : "off",
          g_rand_boolean (rand) ? "" : ",window=16,window_every=2",
          seed % 4 != 1                                  ? ""
          : try % 2 && (is_interleaved || seed % 8 == 1) ? EXPERTS ",mtp=1"
          : is_interleaved                               ? EXPERTS
                                                         : "");
      const int n_nodes = g_rand_int_range (rand, 1, is_interleaved ? 7 : 4);
      g_autofree char *nodes
          = g_strdup_printf ("%s:%d", seed % 5 == 4 ? "dgx-b200" : "dgx-h100", n_nodes);
      self->model = plan_model_new (spec, NULL);
      self->cluster = plan_cluster_new (nodes, NULL);
      ck_assert (self->model && self->cluster);
      self->of = pipeline_case (seed * 1000 + try, is_interleaved, self->model, self->cluster);
    }
  self->n = (guint)self->of->plan.value[PLAN_PP];
  for (guint i = 0; i < self->n; i++)
    {
      g_autoptr (GError) error = NULL;
      self->schedules[i]
          = test_lower (self->of, i * (guint)plan_cluster_devices (self->cluster) / self->n);
      const SimCostInput input = sim_cost_input (self->of, self->schedules[i]);
      self->costs[i] = sim_cost_new (&input, &error);
      ck_assert_msg (self->costs[i] != NULL, "%s", error ? error->message : "");
    }
}

void
pipeline_clear (Pipeline *self)
{
  for (guint i = 0; i < self->n; i++)
    {
      plan_schedule_free (self->schedules[i]);
      sim_cost_free (self->costs[i]);
    }
  plan_case_free (self->of);
  plan_model_free (self->model);
  plan_cluster_free (self->cluster);
}

guint
pipeline_passes (gint64 m, gint64 group, gint64 n_virtual, gboolean is_backward, Pass *out)
{
  guint n = 0;
  for (gint64 first = 0; first < m; first += group)
    for (gint64 turn = 0; turn < n_virtual; turn++)
      for (gint64 k = first; k < first + group && k < m; k++)
        out[n++] = (Pass){ is_backward, is_backward ? n_virtual - 1 - turn : turn, k };
  return n;
}
