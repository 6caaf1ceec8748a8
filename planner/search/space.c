/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/search/space.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/case/hazards.h"
#include "planner/layout/layout.h"
#include "planner/plan/stack.h"
#include "planner/search/cuts.h"

#include <string.h>

struct _PlanSpace
{
  const PlanModel *model;
  const PlanCluster *cluster;
  Plan base;
  const PlanStack *stack; /* stack of the base plan, which need not be legal; NULL: none */
  guint allow;
  gboolean may_slim; /* plan_space_slim applies */
  GPtrArray *axes; /* of GArray of PlanChoice: first the axes within a block, then those that change
                      what a micro batch computes, last the axis of extras */
  guint n_fast;    /* number of axes within a block */
  GPtrArray *neighbour_axes; /* axes that plan_space_neighbours tries and a search does not */
};

#define SET(field, id) PLAN_##field, PLAN_##field##_##id

static const char *const allow_names[] = {
#define X(id, name, summary) name,
  PLAN_ALLOW_LIST (X)
#undef X
      NULL
};

static gboolean
allows (const PlanSpace *self, PlanAllow class)
{
  return (self->allow >> class & 1) != 0;
}

/* Makes a choice from pairs of field and value. */
static PlanChoice
choice_of (guint n_pairs, const gint64 *pairs)
{
  PlanChoice choice = { .n = n_pairs };
  g_assert (n_pairs <= PLAN_MAX_SET);
  for (guint i = 0; i < n_pairs; i++)
    {
      choice.field[i] = (PlanField)pairs[2 * i];
      choice.value[i] = pairs[2 * i + 1];
    }
  return choice;
}

/* Adds an axis without choices. */
static GArray *
new_axis (GPtrArray *axes)
{
  GArray *axis = g_array_new (FALSE, FALSE, sizeof (PlanChoice));
  g_ptr_array_add (axes, axis);
  return axis;
}

#define ADD(axis, ...) \
  add (axis, sizeof ((gint64[]){ __VA_ARGS__ }) / sizeof (gint64) / 2, (gint64[]){ __VA_ARGS__ })

static void
add (GArray *axis, guint n_pairs, const gint64 *pairs)
{
  const PlanChoice choice = choice_of (n_pairs, pairs);
  g_array_append_val (axis, choice);
}

static void
add_switch (GPtrArray *axes, PlanField field)
{
  GArray *axis = new_axis (axes);
  ADD (axis, field, FALSE);
  ADD (axis, field, TRUE);
}

/* Whether there is one device, which shards nothing and communicates with nobody. */
static gboolean
is_alone (const PlanSpace *self)
{
  return plan_cluster_devices (self->cluster) == 1;
}

static void
add_sharding (PlanSpace *self)
{
  GArray *axis = new_axis (self->axes);
  if (is_alone (self))
    {
      /* On one device all strategies are the same. Each stack has at least one of these two names
       * for it, and leave_to_stack keeps the first. */
      ADD (axis, SET (STRATEGY, NO_SHARD), PLAN_DP_OUTER, 1, SET (OUTER_STRATEGY, NO_SHARD),
           SET (AG_GROUP, OFF));
      ADD (axis, SET (STRATEGY, OPTIM_GRADS_PARAMS), PLAN_DP_OUTER, 1,
           SET (OUTER_STRATEGY, NO_SHARD), SET (AG_GROUP, OFF));
      return;
    }
  for (gint64 s = 0; s < PLAN_STRATEGY_N_VALUES; s++)
    ADD (axis, PLAN_STRATEGY, s, PLAN_DP_OUTER, 1, SET (OUTER_STRATEGY, NO_SHARD),
         SET (AG_GROUP, OFF));
  /* Where weights are always sharded, gathers may have a communicator to themselves. */
  ADD (axis, SET (STRATEGY, OPTIM_GRADS_PARAMS), PLAN_DP_OUTER, 1, SET (OUTER_STRATEGY, NO_SHARD),
       SET (AG_GROUP, ON));
  /* A replica has whole nodes. */
  for (gint64 outer = 2; outer <= self->cluster->nodes; outer++)
    {
      if (self->cluster->nodes % outer != 0)
        continue;
      for (gint64 s = 0; s < PLAN_STRATEGY_N_VALUES; s++)
        ADD (axis, PLAN_STRATEGY, s, PLAN_DP_OUTER, outer, SET (OUTER_STRATEGY, NO_SHARD),
             SET (AG_GROUP, OFF));
      ADD (axis, SET (STRATEGY, OPTIM_GRADS_PARAMS), PLAN_DP_OUTER, outer,
           SET (OUTER_STRATEGY, OPTIM), SET (AG_GROUP, OFF));
    }
}

static void
add_powers (PlanSpace *self, PlanField field, gint64 most)
{
  GArray *axis = new_axis (self->axes);
  for (gint64 value = 1; value <= most; value *= 2)
    ADD (axis, field, value);
}

static void
add_cuts (PlanSpace *self, const gboolean *pinned)
{
  static const PlanField layout[]
      = { PLAN_PP_FIRST_LAYERS, PLAN_PP_LAST_LAYERS, PLAN_PP_COUNT_EMBEDDING,
          PLAN_PP_COUNT_LOSS,   PLAN_PP_LAST_SHORT,  PLAN_PP_LAYOUT };
  PlanCutFixed fixed = { pinned[PLAN_VPP], FALSE, pinned[PLAN_OVERLAP_PARAM_GATHER],
                         plan_cuts_fixed (&self->base) };
  const gint64 seq
      = self->base.value[PLAN_SEQ] > 0 ? self->base.value[PLAN_SEQ] : self->model->max_seq;
  for (guint i = 0; i < G_N_ELEMENTS (layout); i++)
    fixed.has_layout = fixed.has_layout || pinned[layout[i]] || fixed.parts > 0;
  g_autoptr (GArray) cuts = plan_cuts_of (self->model, self->cluster, self->stack, seq, fixed);
  GArray *axis = new_axis (self->axes);
  for (guint i = 0; i < cuts->len; i++)
    {
      const PlanCut *cut = &g_array_index (cuts, PlanCut, i);
      if (self->stack->pipeline.deal == PLAN_DEAL_COST)
        ADD (axis, PLAN_PP, cut->stages);
      else if (fixed.has_layout)
        ADD (axis, PLAN_PP, cut->stages, PLAN_VPP, cut->n_virtual, PLAN_OVERLAP_PARAM_GATHER,
             cut->gathers_beside);
      else
        ADD (axis, PLAN_PP, cut->stages, PLAN_VPP, cut->n_virtual, PLAN_OVERLAP_PARAM_GATHER,
             cut->gathers_beside, PLAN_PP_FIRST_LAYERS, cut->first_layers, PLAN_PP_LAST_LAYERS,
             cut->last_layers, PLAN_PP_COUNT_EMBEDDING, cut->counts_ends, PLAN_PP_COUNT_LOSS,
             cut->counts_ends || cut->last_short == 1, PLAN_PP_LAST_SHORT,
             cut->last_short > 1 ? cut->last_short : 0);
    }
}

#define NO_MODULES PLAN_RECOMPUTE_MODULES, 1 << PLAN_RECOMPUTE_MODULES_CORE_ATTN
#define NO_METHOD SET (RECOMPUTE_METHOD, UNIFORM), PLAN_RECOMPUTE_LAYERS, 1

/* What is recomputed: nothing; the MLPs; cheap ops one by one; all layers; or some number of
 * layers, in steps of a sixteenth. */
static void
add_recompute (PlanSpace *self)
{
  GArray *axis = new_axis (self->axes);
  const gint64 layers = self->model->layers, step = (layers + 15) / 16;
  ADD (axis, SET (RECOMPUTE, NONE), NO_MODULES, NO_METHOD);
  ADD (axis, SET (RECOMPUTE, SELECTIVE), PLAN_RECOMPUTE_MODULES, 1 << PLAN_RECOMPUTE_MODULES_MLP,
       NO_METHOD);
  ADD (axis, SET (RECOMPUTE, SELECTIVE), PLAN_RECOMPUTE_MODULES, 1 << PLAN_RECOMPUTE_MODULES_OP_SAC,
       NO_METHOD);
  /* In a pipeline the layers are counted in each stage, which may have few. */
  for (gint64 n = 1; n < MIN (step, 4) && plan_cuts_any (self->stack, self->cluster); n++)
    ADD (axis, SET (RECOMPUTE, FULL), NO_MODULES, SET (RECOMPUTE_METHOD, BLOCK),
         PLAN_RECOMPUTE_LAYERS, n);
  for (gint64 n = step; n < layers; n += step)
    ADD (axis, SET (RECOMPUTE, FULL), NO_MODULES, SET (RECOMPUTE_METHOD, BLOCK),
         PLAN_RECOMPUTE_LAYERS, n);
  ADD (axis, SET (RECOMPUTE, FULL), NO_MODULES, NO_METHOD);
}

/* What is recomputed of layers with experts or latent attention: nothing; the activation function
 * between an expert's two GEMMs; that, the norms and the up-projections of latent vectors; all that
 * experts do; or all layers. */
static void
add_recompute_of_experts (PlanSpace *self)
{
  GArray *axis = new_axis (self->axes);
  const gint64 latent = self->model->kv_lora > 0 ? 1 << PLAN_RECOMPUTE_MODULES_MLA_UP_PROJ : 0;
  const gint64 act = 1 << PLAN_RECOMPUTE_MODULES_MOE_ACT;
  const gint64 cheap = act | 1 << PLAN_RECOMPUTE_MODULES_LAYERNORM | latent;
  ADD (axis, SET (RECOMPUTE, NONE), NO_MODULES, NO_METHOD);
  ADD (axis, SET (RECOMPUTE, SELECTIVE), PLAN_RECOMPUTE_MODULES, act, NO_METHOD);
  ADD (axis, SET (RECOMPUTE, SELECTIVE), PLAN_RECOMPUTE_MODULES, cheap, NO_METHOD);
  ADD (axis, SET (RECOMPUTE, SELECTIVE), PLAN_RECOMPUTE_MODULES, 1 << PLAN_RECOMPUTE_MODULES_MOE,
       NO_METHOD);
  ADD (axis, SET (RECOMPUTE, FULL), NO_MODULES, NO_METHOD);
}

/* Adds the expert parallel degrees that divide the experts and the devices, and the ways in which
 * tokens are sent. etp is set only where experts can be split, so that elsewhere the user may ask
 * for any value. */
static void
add_experts (PlanSpace *self)
{
  const gint64 most = plan_cuts_of_expert (self->model, self->cluster, &self->base);
  GArray *axis = new_axis (self->axes);
  for (gint64 ep = 1; ep <= self->model->experts; ep *= 2)
    for (gint64 d = PLAN_MOE_DISPATCHER_ALLTOALL; d <= PLAN_MOE_DISPATCHER_HYBRIDEP; d++)
      for (gint64 parts = 1; parts <= (d == PLAN_MOE_DISPATCHER_ALLTOALL ? most : 1); parts *= 2)
        {
          const gint64 pairs[] = { PLAN_EP, ep, PLAN_MOE_DISPATCHER, d, PLAN_ETP, parts };
          const PlanChoice choice = choice_of (most > 1 ? 3 : 2, pairs);
          const gboolean divides
              = self->model->experts % ep == 0 && plan_cluster_devices (self->cluster) % ep == 0;
          const gboolean is_library = ep > 1 && d >= PLAN_MOE_DISPATCHER_DEEPEP;
          if (divides && (is_library || d == PLAN_MOE_DISPATCHER_ALLTOALL))
            g_array_append_val (axis, choice);
        }
}

static void
add_buffers (PlanSpace *self)
{
  if (is_alone (self) || self->model->experts > 0)
    return;
  GArray *axis = new_axis (self->axes);
  ADD (axis, SET (DOUBLE_BUFFER, OFF), SET (NCCL_UB, OFF));
  ADD (axis, SET (DOUBLE_BUFFER, ON), SET (NCCL_UB, OFF));
  if (self->cluster->kind == PLAN_DEVICE_GPU)
    ADD (axis, SET (DOUBLE_BUFFER, ON), SET (NCCL_UB, ON));
}

/* Adds the values of comm_unit: the stack's own, and two with which one unit is gathered ahead
 * while two or three gradient buckets are alive. */
static void
add_comm_unit (PlanSpace *self)
{
  PlanLayout layout;
  Plan plan = self->base;
  GArray *axis = new_axis (self->axes);
  ADD (axis, PLAN_COMM_UNIT, PLAN_UNSET);
  if (!self->stack || is_alone (self))
    return;
  plan.value[PLAN_STRATEGY] = PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
  plan_layout_init (&layout, self->model, self->stack, &plan, plan_cluster_devices (self->cluster));
  const gint64 unit
      = (gint64)(layout.buckets[PLAN_BUCKET_LAYER].padded + layout.buckets[PLAN_BUCKET_PLAIN].padded
                 + plan_layout_of_experts (layout.buckets));
  ADD (axis, PLAN_COMM_UNIT, unit - 1);
  ADD (axis, PLAN_COMM_UNIT, 2 * unit - 1);
}

/* Adds the ways to reduce gradients. An all-to-all sums in fp32 whatever format it carries, so it
 * is offered to carry a narrower one. */
static void
add_gradients (PlanSpace *self)
{
  GArray *grads = new_axis (self->axes);
  ADD (grads, SET (MAIN_GRADS, FP32), SET (GRAD_COMM, FP32), SET (PRECISION_AWARE, OFF),
       SET (REDUCE_ALGO, RS));
  if (!is_alone (self))
    {
      ADD (grads, SET (MAIN_GRADS, FP32), SET (GRAD_COMM, BF16), SET (PRECISION_AWARE, OFF),
           SET (REDUCE_ALGO, RS));
      ADD (grads, SET (MAIN_GRADS, FP32), SET (GRAD_COMM, BF16), SET (PRECISION_AWARE, OFF),
           SET (REDUCE_ALGO, A2A));
    }
  if (!allows (self, PLAN_ALLOW_MIXED))
    return;
  ADD (grads, SET (MAIN_GRADS, BF16), SET (GRAD_COMM, BF16), SET (PRECISION_AWARE, ON),
       SET (REDUCE_ALGO, RS));
  if (!is_alone (self))
    ADD (grads, SET (MAIN_GRADS, BF16), SET (GRAD_COMM, BF16), SET (PRECISION_AWARE, ON),
         SET (REDUCE_ALGO, A2A));
}

static void
add_moments (PlanSpace *self)
{
  if (!allows (self, PLAN_ALLOW_MOMENTS))
    return;
  GArray *moments = new_axis (self->axes);
  ADD (moments, SET (EXP_AVG, FP32), SET (EXP_AVG_SQ, FP32));
  if (self->base.value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_FSDP2)
    ADD (moments, SET (EXP_AVG, BF16), SET (EXP_AVG_SQ, BF16));
  else
    ADD (moments, SET (EXP_AVG, BF16), SET (EXP_AVG_SQ, BF16), SET (PRECISION_AWARE, ON));
}

static gboolean
has_rate (const PlanSpace *self, gint64 compute)
{
  Plan plan = self->base;
  plan.value[PLAN_COMPUTE] = compute;
  return self->cluster->kind != PLAN_DEVICE_GPU
         || self->cluster->peak_flops[plan_field_dtype (&plan, PLAN_COMPUTE)] > 0;
}

/* Adds the recipes of low precision. Those that the device cannot compute are left out here: most
 * points of a space would have one of them, and rules would refuse these one by one. Without
 * PLAN_ALLOW_LOWBIT only the base's recipe is left, with the ways to gather weights in it. */
static void
add_recipes (PlanSpace *self)
{
  const gboolean is_free = allows (self, PLAN_ALLOW_LOWBIT);
  const gint64 base_recipe = self->base.value[PLAN_COMPUTE];
  if (!is_free && plan_field_dtype (&self->base, PLAN_COMPUTE) == plan_weights_dtype (&self->base))
    return;
  GArray *compute = new_axis (self->axes);
  ADD (compute, PLAN_COMPUTE, base_recipe, PLAN_PARAM_GATHER, self->base.value[PLAN_PARAM_GATHER],
       SET (KEEP_TRANSPOSE, OFF));
  for (gint64 recipe = PLAN_COMPUTE_FP8_DELAYED; recipe <= PLAN_COMPUTE_FP8_BLOCKWISE; recipe++)
    {
      ADD (compute, PLAN_COMPUTE, recipe, SET (PARAM_GATHER, COMPUTE), SET (KEEP_TRANSPOSE, OFF));
      ADD (compute, PLAN_COMPUTE, recipe, SET (PARAM_GATHER, FP8), SET (KEEP_TRANSPOSE, OFF));
      ADD (compute, PLAN_COMPUTE, recipe, SET (PARAM_GATHER, FP8), SET (KEEP_TRANSPOSE, ON));
    }
  ADD (compute, SET (COMPUTE, MXFP8), SET (PARAM_GATHER, COMPUTE), SET (KEEP_TRANSPOSE, OFF));
  ADD (compute, SET (COMPUTE, MXFP8), SET (PARAM_GATHER, MXFP8), SET (KEEP_TRANSPOSE, OFF));
  ADD (compute, SET (COMPUTE, NVFP4), SET (PARAM_GATHER, COMPUTE), SET (KEEP_TRANSPOSE, OFF));
  for (guint c = compute->len; c-- > 1;)
    {
      const gint64 recipe = g_array_index (compute, PlanChoice, c).value[0];
      if (!has_rate (self, recipe) || (!is_free && recipe != base_recipe))
        g_array_remove_index (compute, c);
    }
  /* The loop has added the base's recipe as well. */
  if (!is_free)
    g_array_remove_index (compute, 0);
}

/* Adds sums of weight gradients within the GEMM, which spares writing and reading each again. */
static void
add_fusion (PlanSpace *self)
{
  if (self->cluster->kind == PLAN_DEVICE_GPU)
    ADD (new_axis (self->axes), SET (GRAD_ACCUM_FUSION, ON));
}

static gboolean
cuts_loss (const PlanSpace *self)
{
  return self->stack && self->stack->loss.pieces && self->cluster->kind == PLAN_DEVICE_GPU;
}

#define LEAST_PART 4096 /* fewest tokens of a sequence on a rank of context parallelism */
#define LOSS_CHUNKS 8   /* the logits of a chunk are small, and its GEMMs still large */
#define HALF 500000     /* shares of the optimizer state that is offloaded, in millionths */
#define WHOLE 1000000
#define N_OFFLOADABLE(of) /* modules that may be offloaded: the last two are of experts */ \
  ((of)->model->experts > 0 ? PLAN_OFFLOAD_MODULES_N_VALUES : PLAN_OFFLOAD_MODULES_EXPERT_FC1)

/* Adds the axis of extras: nothing, or one of the choices that help few plans. */
static void
add_extras (PlanSpace *self)
{
  const gint64 modules[] = { 1 << PLAN_OFFLOAD_MODULES_ATTN_NORM, (1 << N_OFFLOADABLE (self)) - 1 };
  const gint64 seq = self->base.value[PLAN_SEQ] == PLAN_UNSET ? self->model->max_seq
                                                              : self->base.value[PLAN_SEQ];
  const gint64 layers = self->model->layers, step = (layers + 3) / 4;
  GArray *axis = new_axis (self->axes);
  const PlanChoice none = { .n = 0 };
  g_array_append_val (axis, none);
  ADD (axis, SET (CUDA_GRAPH, ON));
  for (gint64 cp = 2; cp <= 16 && seq / cp >= LEAST_PART; cp *= 2)
    ADD (axis, PLAN_CP, cp);
  if (cuts_loss (self))
    ADD (axis, PLAN_LOSS_CHUNKS, LOSS_CHUNKS);
  if (!allows (self, PLAN_ALLOW_OFFLOAD))
    return;
  ADD (axis, PLAN_OFFLOAD_OPTIMIZER, HALF, SET (PRECISION_AWARE, ON));
  ADD (axis, PLAN_OFFLOAD_OPTIMIZER, WHOLE, SET (PRECISION_AWARE, ON));
  for (gint64 n = step; n < layers; n += step)
    ADD (axis, PLAN_OFFLOAD_LAYERS, n);
  for (guint i = 0; i < G_N_ELEMENTS (modules); i++)
    {
      ADD (axis, PLAN_OFFLOAD_MODULES, modules[i]);
      ADD (axis, PLAN_OFFLOAD_MODULES, modules[i], PLAN_OFFLOAD_OPTIMIZER, WHOLE,
           SET (PRECISION_AWARE, ON));
    }
}

static gboolean
sets (const PlanChoice *choice, PlanField field, gint64 *out_value)
{
  for (guint i = 0; i < choice->n; i++)
    if (choice->field[i] == field)
      {
        *out_value = choice->value[i];
        return TRUE;
      }
  return FALSE;
}

/* Removes the extras that set a pinned field, since a plan starts without extras. */
static void
leave_out_extras (PlanSpace *self, PlanField field)
{
  GArray *axis = self->axes->pdata[self->axes->len - 1];
  gint64 value;
  for (guint c = axis->len; c-- > 0;)
    if (sets (&g_array_index (axis, PlanChoice, c), field, &value))
      g_array_remove_index (axis, c);
}

/* Adds what plan_space_neighbours changes besides the axes, each field by itself. */
static void
add_neighbour_axes (PlanSpace *self)
{
  static const PlanField switches[]
      = { PLAN_FINE_GRAINED, PLAN_AG_GROUP,          PLAN_REDUCE_ALGO,    PLAN_CUDA_GRAPH,
          PLAN_CE_FUSION,    PLAN_GRAD_ACCUM_FUSION, PLAN_PRECISION_AWARE };
  static const gint64 modules[]
      = { 1 << PLAN_RECOMPUTE_MODULES_CORE_ATTN, 1 << PLAN_RECOMPUTE_MODULES_LAYERNORM,
          1 << PLAN_RECOMPUTE_MODULES_MLP | 1 << PLAN_RECOMPUTE_MODULES_CORE_ATTN,
          1 << PLAN_RECOMPUTE_MODULES_MLP | 1 << PLAN_RECOMPUTE_MODULES_LAYERNORM };
  for (guint i = 0; i < G_N_ELEMENTS (switches); i++)
    add_switch (self->neighbour_axes, switches[i]);
  GArray *overlap = new_axis (self->neighbour_axes);
  ADD (overlap, SET (OVERLAP_PARAM_GATHER, OFF), SET (OVERLAP_GRAD_REDUCE, OFF));
  ADD (overlap, SET (OVERLAP_PARAM_GATHER, OFF), SET (OVERLAP_GRAD_REDUCE, ON));
  ADD (overlap, SET (OVERLAP_PARAM_GATHER, ON), SET (OVERLAP_GRAD_REDUCE, ON));
  ADD (new_axis (self->neighbour_axes), SET (DOUBLE_BUFFER, MAX_POOL));
  GArray *pieces = new_axis (self->neighbour_axes);
  for (gint64 n = 1; n <= 32 && cuts_loss (self); n *= 2)
    ADD (pieces, PLAN_LOSS_CHUNKS, n);
  GArray *context = new_axis (self->neighbour_axes);
  for (gint64 cp = 1; cp <= 8; cp *= 2)
    ADD (context, PLAN_CP, cp);
  GArray *selective = new_axis (self->neighbour_axes);
  for (guint i = 0; i < G_N_ELEMENTS (modules); i++)
    ADD (selective, SET (RECOMPUTE, SELECTIVE), PLAN_RECOMPUTE_MODULES, modules[i], NO_METHOD);
  if (!allows (self, PLAN_ALLOW_OFFLOAD))
    return;
  GArray *state = new_axis (self->neighbour_axes);
  ADD (state, PLAN_OFFLOAD_OPTIMIZER, 0);
  for (gint64 share = 250000; share <= 1000000; share += 250000)
    ADD (state, PLAN_OFFLOAD_OPTIMIZER, share, SET (PRECISION_AWARE, ON));
  const gint64 layers = self->model->layers, step = (layers + 3) / 4;
  GArray *layer = new_axis (self->neighbour_axes);
  ADD (layer, PLAN_OFFLOAD_LAYERS, 0, PLAN_OFFLOAD_MODULES, 0);
  for (gint64 n = step; n < layers + step; n += step)
    ADD (layer, PLAN_OFFLOAD_LAYERS, MIN (n, layers), PLAN_OFFLOAD_MODULES, 0);
  for (guint n = 0; n < N_OFFLOADABLE (self); n++)
    ADD (layer, PLAN_OFFLOAD_LAYERS, 0, PLAN_OFFLOAD_MODULES, 1 << n);
}

/* Removes choices that contradict a pinned field. */
static void
pin (PlanSpace *self, PlanField field)
{
  for (guint a = 0; a < self->axes->len + self->neighbour_axes->len; a++)
    {
      GArray *axis = a < self->axes->len ? self->axes->pdata[a]
                                         : self->neighbour_axes->pdata[a - self->axes->len];
      for (guint c = axis->len; c-- > 0;)
        {
          const PlanChoice *choice = &g_array_index (axis, PlanChoice, c);
          for (guint i = 0; i < choice->n; i++)
            if (choice->field[i] == field && choice->value[i] != self->base.value[field])
              {
                g_array_remove_index (axis, c);
                break;
              }
        }
    }
}

static void
choose (const PlanChoice *choice, Plan *plan)
{
  for (guint i = 0; i < choice->n; i++)
    plan->value[choice->field[i]] = choice->value[i];
}

/* Whether the stack offers what a choice sets, with this sharding strategy. */
static gboolean
has_choice (const PlanSpace *self, const PlanChoice *sharding, const PlanChoice *choice)
{
  Plan plan = self->base;
  choose (sharding, &plan);
  choose (choice, &plan);
  return plan_rules_stack_has (&plan, choice->field, choice->n, self->model, self->cluster);
}

/* Removes choices that the stack does not offer with any sharding strategy. Rules would refuse
 * their points one by one. An axis that is left without choices stays as in the base. */
static void
leave_to_stack (PlanSpace *self)
{
  const PlanChoice none = { .n = 0 };
  GArray *shardings = self->axes->pdata[0];
  for (guint c = shardings->len; c-- > 0;)
    if (!has_choice (self, &none, &g_array_index (shardings, PlanChoice, c)))
      g_array_remove_index (shardings, c);
  if (is_alone (self) && shardings->len > 1)
    g_array_set_size (shardings, 1);
  for (guint a = 1; a < self->axes->len; a++)
    {
      GArray *axis = self->axes->pdata[a];
      for (guint c = axis->len; c-- > 0;)
        {
          const PlanChoice *choice = &g_array_index (axis, PlanChoice, c);
          gboolean is_there = shardings->len == 0 && has_choice (self, &none, choice);
          for (guint i = 0; i < shardings->len && !is_there; i++)
            is_there = has_choice (self, &g_array_index (shardings, PlanChoice, i), choice);
          if (!is_there)
            g_array_remove_index (axis, c);
        }
    }
}

PlanSpace *
plan_space_new (const PlanModel *model, const PlanCluster *cluster, const Plan *base,
                const gboolean pinned[PLAN_N_FIELDS], guint allow)
{
  PlanSpace *self = g_new0 (PlanSpace, 1);
  self->model = model;
  self->cluster = cluster;
  self->base = *base;
  self->stack = plan_stack_of (base, cluster->kind, NULL);
  self->allow = allow;
  self->may_slim = self->stack && self->stack->grads.unused != PLAN_UNUSED_NOT_KEPT
                   && !pinned[PLAN_GRAD_ACCUM_FUSION];
  self->axes = g_ptr_array_new_with_free_func ((GDestroyNotify)g_array_unref);
  self->neighbour_axes = g_ptr_array_new_with_free_func ((GDestroyNotify)g_array_unref);
  add_sharding (self);
  add_buffers (self);
  add_comm_unit (self);
  add_gradients (self);
  add_moments (self);
  self->n_fast = self->axes->len;
  add_fusion (self);
  add_powers (self, PLAN_TP, MIN (plan_cluster_linked_devices (cluster), 8));
  add_powers (self, PLAN_MBS, CLAMP (base->value[PLAN_GBS], 1, 16));
  if (plan_cuts_any (self->stack, self->cluster))
    add_cuts (self, pinned);
  if (model->experts > 0)
    add_experts (self);
  if (model->experts > 0 || model->kv_lora > 0)
    add_recompute_of_experts (self);
  else
    add_recompute (self);
  add_switch (self->axes, PLAN_COMPILE);
  add_recipes (self);
  add_extras (self);
  add_neighbour_axes (self);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (pinned[f])
      {
        leave_out_extras (self, f);
        pin (self, f);
      }
  leave_to_stack (self);
  /* A pinned field that no choice sets stays as it is in the base. */
  for (guint a = self->axes->len; a-- > 0;)
    if (((GArray *)self->axes->pdata[a])->len == 0)
      {
        self->n_fast -= a < self->n_fast ? 1 : 0;
        g_ptr_array_remove_index (self->axes, a);
      }
  return self;
}

void
plan_space_free (PlanSpace *self)
{
  if (!self)
    return;
  g_ptr_array_unref (self->axes);
  g_ptr_array_unref (self->neighbour_axes);
  g_free (self);
}

static gboolean
is_among (gint64 value, const gint64 *values, guint n)
{
  for (guint i = 0; i < n; i++)
    if (values[i] == value)
      return TRUE;
  return FALSE;
}

/* Whether all choices of an axis are values of one field alone, so that any other value may be put
 * there. */
static gboolean
is_of_one_field (const GArray *axis)
{
  for (guint c = 0; c < axis->len; c++)
    if (g_array_index (axis, PlanChoice, c).n != 1)
      return FALSE;
  return TRUE;
}

gboolean
plan_space_slim (const PlanSpace *self, const Plan *plan, Plan *out_slim)
{
  *out_slim = *plan;
  out_slim->value[PLAN_GRAD_ACCUM_FUSION] = PLAN_GRAD_ACCUM_FUSION_OFF;
  return self->may_slim && plan->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
}

gboolean
plan_space_restrict (PlanSpace *self, PlanField field, const gint64 *values, guint n,
                     GError **error)
{
  gboolean is_there = FALSE;
  gint64 value;
  self->may_slim &= field != PLAN_GRAD_ACCUM_FUSION;
  leave_out_extras (self, field);
  for (guint a = 0; a + 1 < self->axes->len; a++)
    {
      GArray *axis = self->axes->pdata[a];
      if (!sets (&g_array_index (axis, PlanChoice, 0), field, &value))
        continue;
      is_there = TRUE;
      if (is_of_one_field (axis))
        {
          g_array_set_size (axis, 0);
          for (guint i = 0; i < n; i++)
            ADD (axis, field, values[i]);
          continue;
        }
      for (guint c = axis->len; c-- > 0;)
        if (sets (&g_array_index (axis, PlanChoice, c), field, &value)
            && !is_among (value, values, n))
          g_array_remove_index (axis, c);
      if (axis->len > 0)
        continue;
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--only %s: none of these values is searched; set one with --set %s=VALUE",
                   plan_field_name (field), plan_field_name (field));
      return FALSE;
    }
  if (is_there)
    return TRUE;
  GArray *axis = g_array_new (FALSE, FALSE, sizeof (PlanChoice));
  g_ptr_array_insert (self->axes, (gint)self->axes->len - 1, axis);
  for (guint i = 0; i < n; i++)
    ADD (axis, field, values[i]);
  return TRUE;
}

gboolean
plan_space_chooses (const PlanSpace *self, PlanField field, gint64 value)
{
  for (guint a = 0; a < self->axes->len; a++)
    {
      const GArray *axis = g_ptr_array_index (self->axes, a);
      gint64 chosen;
      for (guint c = 0; c < axis->len; c++)
        if (sets (&g_array_index (axis, PlanChoice, c), field, &chosen) && chosen == value)
          return TRUE;
    }
  return FALSE;
}

gboolean
plan_space_allow_parse (const char *text, guint *out_allow, GError **error)
{
  g_auto (GStrv) words = g_strsplit (text, ",", -1);
  guint allow = 0;
  for (char **w = words; *w; w++)
    {
      guint i = 0;
      while (allow_names[i] && strcmp (allow_names[i], *w) != 0)
        i++;
      if (!allow_names[i])
        {
          g_autofree char *shown = plan_text_quote (*w);
          g_autofree char *hint = plan_text_suggest (*w, allow_names);
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "--allow: %s is not a class of choices: %s", shown, hint);
          return FALSE;
        }
      allow |= 1u << i;
    }
  *out_allow = allow;
  return TRUE;
}

char *
plan_space_allow_print (guint allow)
{
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < PLAN_N_ALLOW; i++)
    if (allow >> i & 1)
      g_string_append_printf (text, "%s%s", text->len ? "," : "", allow_names[i]);
  return g_string_free (text, FALSE);
}

guint64
plan_space_size (const PlanSpace *self)
{
  guint64 size = 1;
  for (guint a = 0; a < self->axes->len; a++)
    size *= ((GArray *)self->axes->pdata[a])->len;
  return size;
}

guint64
plan_space_block_size (const PlanSpace *self)
{
  guint64 size = 1;
  for (guint a = 0; a < self->n_fast; a++)
    size *= ((GArray *)self->axes->pdata[a])->len;
  return size;
}

guint64
plan_space_n_plain_blocks (const PlanSpace *self)
{
  const GArray *extras = self->axes->pdata[self->axes->len - 1];
  return plan_space_size (self) / plan_space_block_size (self) / extras->len;
}

/* Whether gradients that travel as bf16 are summed in fp32. They are by NCCL's symmetric kernels
 * (registered buffers inside NVLink, NCCL 2.27 or newer), by an all-to-all with a local sum, and on
 * a CPU, which sums in rank order. */
static gboolean
sums_in_fp32 (const PlanSpace *self, const Plan *plan)
{
  const gint64 *value = plan->value;
  const gint64 all = plan_cluster_devices (self->cluster) / value[PLAN_TP];
  const gboolean inside
      = all * value[PLAN_TP] / value[PLAN_DP_OUTER] <= plan_cluster_linked_devices (self->cluster)
        && value[PLAN_DP_OUTER] == 1;
  return value[PLAN_REDUCE_ALGO] == PLAN_REDUCE_ALGO_A2A || self->cluster->kind == PLAN_DEVICE_CPU
         || (value[PLAN_NCCL_UB] == PLAN_NCCL_UB_ON && value[PLAN_NCCL] >= 2027 && inside
             && plan_shards_grads (plan));
}

/* Whether a plan's gradients are summed in fp32, or may be in less, as the base's are. */
static gboolean
is_exact_enough (const PlanSpace *self, const Plan *plan)
{
  return allows (self, PLAN_ALLOW_MIXED) || plan->value[PLAN_GRAD_COMM] != PLAN_GRAD_COMM_BF16
         || plan->value[PLAN_MAIN_GRADS] != PLAN_MAIN_GRADS_FP32
         || self->base.value[PLAN_GRAD_COMM] == PLAN_GRAD_COMM_BF16 || sums_in_fp32 (self, plan);
}

gboolean
plan_space_admits (const PlanSpace *self, const Plan *resolved, const PlanCase *of)
{
  return allows (self, PLAN_ALLOW_HAZARDS)
         || (plan_hazards_level (resolved, self->model, self->cluster) == PLAN_HAZARD_COST
             && (!of || plan_case_fits_host (of)));
}

gboolean
plan_space_at (const PlanSpace *self, guint64 point, Plan *out_plan)
{
  *out_plan = self->base;
  for (guint a = 0; a < self->axes->len; a++)
    {
      const GArray *axis = self->axes->pdata[a];
      choose (&g_array_index (axis, PlanChoice, point % axis->len), out_plan);
      point /= axis->len;
    }
  return is_exact_enough (self, out_plan)
         && plan_cut_may_help (out_plan, &self->base, self->model, self->cluster);
}

static void
add_neighbours (const PlanSpace *self, const GArray *axis, const Plan *plan, GArray *plans)
{
  for (guint c = 0; c < axis->len; c++)
    {
      Plan other = *plan;
      choose (&g_array_index (axis, PlanChoice, c), &other);
      if (other.value[PLAN_TP] != plan->value[PLAN_TP])
        other.value[PLAN_SP] = self->base.value[PLAN_SP];
      gboolean is_new = memcmp (&other, plan, sizeof other) != 0
                        && (is_exact_enough (self, &other) || !is_exact_enough (self, plan));
      for (guint i = 0; i < plans->len && is_new; i++)
        is_new = memcmp (&other, &g_array_index (plans, Plan, i), sizeof other) != 0;
      if (is_new)
        g_array_append_val (plans, other);
    }
}

GArray *
plan_space_neighbours (const PlanSpace *self, const Plan *plan)
{
  GArray *plans = g_array_new (FALSE, FALSE, sizeof (Plan));
  for (guint a = 0; a < self->axes->len; a++)
    add_neighbours (self, self->axes->pdata[a], plan, plans);
  for (guint a = 0; a < self->neighbour_axes->len; a++)
    add_neighbours (self, self->neighbour_axes->pdata[a], plan, plans);
  return plans;
}
