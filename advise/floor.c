/* SPDX-License-Identifier: Apache-2.0 */
/* Terms: the chain is the compute stream with the collectives for which compute waits at once
 * (tensor parallelism); no two of its ops run at the same time. A relaxed plan computes the same
 * but communicates between data-parallel ranks only at the end of a step (plan_bound_relax). The
 * exchange of a plan is the gathers and reductions of one micro batch between data-parallel
 * ranks. A trade is the exchange of activations between two stages.
 *
 * Claim: advise_floors_ns and advise_floors_beside_ns are at most the step time that sim_run
 * gives.
 *
 * Why it holds. Each of host, stream and chain does one thing after another, so each one's sum
 * of costs bounds the time (stage_floor_ns). So does a communicator's, which gathers and reductions
 * share unless gathers have one to themselves (floor_beside_ns). Sharing a device only slows ops
 * (sim/sharing.h).
 * The work of a micro batch is the difference of two relaxed steps of n + 1 and n micro batches
 * (find_micro_batch). Where the relaxed plan accumulates gradients more slowly than the plan
 * itself may, that difference is subtracted (adding_left_out_ns). In a pipeline a stage's passes
 * of all micro batches are preceded by a forward pass in each earlier stage and followed by a
 * backward pass (pipeline_floor_ns, hostless_floor_ns; planner/search/detour.c for virtual stages),
 * and what a stage exchanges once in a step has few passes beside it (once_floor_ns). The slowing
 * of the chain by gathers and reductions is bounded in sim/fast/slowdown-bound.c.
 *
 * Assumptions: every micro batch after the second adds the same work; micro batches cost no less
 * at the start of a step; and gathers and reductions run beside compute to the extent that
 * find_met says. The constants there (backward_share, LATE) are chosen with a margin and not
 * derived.
 *
 * tests/prop/prop-floor.c checks the claim on uneven pipelines, tests/prop/prop-search.c on random
 * plans (bounds_are_never_above_the_simulation, bounds_of_pipelines_hold,
 * bounds_of_plans_hold_where_compute_is_slowed,
 * bounds_hold_where_sequences_travel_beside_products). */
#include "config.h"

#include "advise/floor.h"

#include "advise/floor-work.h"
#include "advise/predict.h"
#include "planner/lower/lower.h"
#include "planner/plan/stages.h"
#include "planner/search/bound.h"
#include "planner/search/detour.h"
#include "planner/search/search.h"

/* The gathers and reductions of a micro batch, by stream; and for how long the busiest communicator
 * is busy with both. */
typedef struct
{
  SimSlowdownStream beside[2];
  gint64 group_ns;
} Exchange;

/* Times of a stage's collectives that run once in a step: gathers of its weights, reductions of its
 * gradients. */
typedef struct
{
  gint64 gather_ns, reduce_ns;
} Once;

struct _AdviseFloors
{
  const AdviseInput *input;
  GMutex lock;
  GHashTable *micro_batches; /* relaxed Plan -> AdviseFloorWork */
  GHashTable *exchanges;     /* distilled Plan -> Exchange */
  GHashTable *onces;         /* Plan with few micro batches -> Once */
};

AdviseFloors *
advise_floors_new (const AdviseInput *input)
{
  AdviseFloors *self = g_new0 (AdviseFloors, 1);
  self->input = input;
  g_mutex_init (&self->lock);
  self->micro_batches
      = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  self->exchanges
      = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  self->onces = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  return self;
}

void
advise_floors_free (AdviseFloors *self)
{
  if (!self)
    return;
  g_hash_table_unref (self->onces);
  g_hash_table_unref (self->exchanges);
  g_hash_table_unref (self->micro_batches);
  g_mutex_clear (&self->lock);
  g_free (self);
}

/* Whether activations are offloaded. Then a simulated step, which knows what waits for what, bounds
 * the time better than sums. */
static gboolean
copies_activations (const Plan *plan)
{
  return plan->value[PLAN_OFFLOAD_LAYERS] > 0 || plan->value[PLAN_OFFLOAD_MODULES] != 0;
}

/* Lowers a plan for one rank of a stage, and finds costs. NULL where it is illegal. */
static PlanSchedule *
lower (const AdviseFloors *self, const Plan *plan, gint64 stage, gboolean is_brief,
       SimCost **out_cost)
{
  const AdviseInput *input = self->input;
  /* No time in a micro batch depends on workspaces. */
  g_autoptr (PlanCase) of = plan_case_new (input->model, input->cluster, plan, NULL, NULL);
  const guint rank = (guint)(stage * plan_cluster_devices (input->cluster) / plan->value[PLAN_PP]);
  g_autoptr (PlanSchedule) schedule = !of        ? NULL
                                      : is_brief ? plan_lower_brief (of, rank)
                                                 : plan_lower (of, rank, NULL);
  *out_cost = schedule ? advise_cost_of (input, of, schedule, NULL) : NULL;
  return *out_cost ? g_steal_pointer (&schedule) : NULL;
}

static gboolean
find_step (const AdviseFloors *self, const Plan *plan, gint64 stage, gboolean is_simulated,
           AdviseFloorWork *out)
{
  g_autoptr (SimCost) cost = NULL;
  g_autoptr (PlanSchedule) schedule = lower (self, plan, stage, !is_simulated, &cost);
  if (!schedule)
    return FALSE;
  *out = advise_floor_work_of_step (schedule, cost);
  if (is_simulated)
    out->of[ADVISE_FLOOR_PERIOD] = sim_measure_step (schedule, cost, advise_workspace ());
  return TRUE;
}

/* The work of a step of the relaxed plan with so many micro batches. */
static gboolean
find_relaxed (const AdviseFloors *self, const Plan *plan, gint64 stage, gint64 micro_batches,
              AdviseFloorWork *out)
{
  Plan relaxed;
  plan_bound_relax (plan, self->input->cluster, micro_batches, &relaxed);
  return find_step (self, &relaxed, stage, copies_activations (plan), out);
}

/* The work of a micro batch of the relaxed plan, from one step with enough micro batches for those
 * that are alike to be a repeat. FALSE where it takes two steps. Under 1F1B a stage repeats as many
 * micro batches as it holds, twice at least, after those that fill it and before the last. */
static gboolean
find_repeated (const AdviseFloors *self, const Plan *plan, gint64 stage, gint64 few,
               AdviseFloorWork *out)
{
  Plan relaxed;
  g_autoptr (SimCost) cost = NULL;
  if (plan->value[PLAN_VPP] > 1 || plan_stage_is_afab (plan)
      || plan->value[PLAN_EP_OVERLAP] == PLAN_EP_OVERLAP_ON || copies_activations (plan))
    return FALSE;
  const gint64 held = plan_stage_held (plan, stage, MAX (few, plan->value[PLAN_PP]));
  plan_bound_relax (plan, self->input->cluster, MAX (3 * held + 1, few), &relaxed);
  g_autoptr (PlanSchedule) schedule = lower (self, &relaxed, stage, TRUE, &cost);
  return schedule && advise_floor_work_of_repeat (schedule, cost, held, out);
}

/* Whether all neighbouring stages reach each other in the same way, all by links or all by the
 * network. */
static gboolean
are_neighbours_alike (const Plan *plan, const PlanCluster *cluster)
{
  const gint64 all = plan_cluster_devices (cluster);
  const gint64 linked = plan_cluster_linked_devices (cluster);
  return all <= linked || all / plan->value[PLAN_PP] >= linked;
}

/* The work that one more micro batch adds to a step of two, or of as many as a pipeline needs to be
 * filled. It is all zero where such a plan is illegal. */
static AdviseFloorWork
find_micro_batch (AdviseFloors *self, const Plan *plan, gint64 stage)
{
  Plan key;
  AdviseFloorWork two, three, work = { .chain = { 0 } };
  const PlanStack *stack = plan_stack_of (plan, self->input->cluster->kind, NULL);
  const PlanFill fill = stack->pipeline.fill;
  const gint64 few = fill == PLAN_FILL_ANY
                         ? 2
                         : MAX (plan->value[PLAN_PP] - (fill == PLAN_FILL_BUT_ONE ? 1 : 0), 2);
  plan_bound_relax (plan, self->input->cluster, few, &key);
  key.value[PLAN_COMM_UNIT]
      = stage + 1; /* the stage is part of the key; relaxed plans leave this field unset */
  g_mutex_lock (&self->lock);
  const AdviseFloorWork *known = g_hash_table_lookup (self->micro_batches, &key);
  if (known)
    work = *known;
  g_mutex_unlock (&self->lock);
  if (known)
    return work;
  if (!find_repeated (self, plan, stage, few, &work) && find_relaxed (self, plan, stage, few, &two)
      && find_relaxed (self, plan, stage, few + 1, &three))
    work = advise_floor_work_add (&three, &two, -1);
  work.trade_ns = are_neighbours_alike (plan, self->input->cluster) ? work.trade_ns : 0;
  g_mutex_lock (&self->lock);
  g_hash_table_replace (self->micro_batches, g_memdup2 (&key, sizeof key),
                        g_memdup2 (&work, sizeof work));
  g_mutex_unlock (&self->lock);
  return work;
}

/* The work of one micro batch in a stage, as find_micro_batch. With recompute_method=block it is
 * extrapolated from one and two recomputed layers, since each further one adds the same work. */
static AdviseFloorWork
find_work (AdviseFloors *self, const Plan *plan, gint64 stage)
{
  const gint64 layers = plan->value[PLAN_RECOMPUTE_LAYERS];
  if (plan->value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_FULL
      || plan->value[PLAN_RECOMPUTE_METHOD] != PLAN_RECOMPUTE_METHOD_BLOCK
      || layers >= self->input->model->layers / plan->value[PLAN_PP] - 1
      || copies_activations (plan))
    return find_micro_batch (self, plan, stage);
  Plan some = *plan;
  some.value[PLAN_RECOMPUTE_LAYERS] = 1;
  const AdviseFloorWork one = find_micro_batch (self, &some, stage);
  some.value[PLAN_RECOMPUTE_LAYERS] = 2;
  const AdviseFloorWork two = find_micro_batch (self, &some, stage),
                        another = advise_floor_work_add (&two, &one, -1);
  return advise_floor_work_add (&one, &another, layers - 1);
}

/* The most by which this plan accumulates gradients faster than the relaxed plan. The relaxed plan
 * adds bf16 to bf16 and so moves 6 bytes per element; sharded gradients are copied, which moves at
 * least 4, and fused accumulation takes no op of its own. */
static gint64
adding_left_out_ns (const AdviseFloorWork *work, const Plan *resolved)
{
  const gboolean is_fused = resolved->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
  const gint64 adding = work->of[ADVISE_FLOOR_ADDING];
  return is_fused ? adding : adding / 3 + 2 * work->of[ADVISE_FLOOR_N_ADDING];
}

/* Time of the chain in one micro batch. */
static gint64
chain_ns (const AdviseFloorWork *work, const Plan *resolved)
{
  const gint64 *streams = &work->of[ADVISE_FLOOR_STREAMS];
  return streams[PLAN_STREAM_COMPUTE] + work->of[ADVISE_FLOOR_AWAITED]
         - adding_left_out_ns (work, resolved);
}

/* How long the busiest of host, chain and streams works at a micro batch. */
static gint64
busy_ns (const AdviseFloorWork *work, const Plan *resolved)
{
  const gboolean is_fused = resolved->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
  const gint64 less_launch = is_fused ? work->of[ADVISE_FLOOR_ADDING_LAUNCH] : 0;
  gint64 most = MAX (work->of[ADVISE_FLOOR_HOST] - less_launch, chain_ns (work, resolved));
  for (PlanStream s = 0; s < PLAN_N_STREAMS; s++)
    if (s != PLAN_STREAM_COMPUTE)
      most = MAX (most, work->of[ADVISE_FLOOR_STREAMS + s]);
  return MAX (most, 0);
}

/* Lower bound of the time of a micro batch in one stage, where the host waits for exchanges with
 * other stages: the busiest of host, chain and streams, or host and chain in turn. Leaving ops out
 * shortens the longest path by no more than their own time. Host and compute both wait for `trades`
 * trades with other stages. */
static gint64
stage_floor_ns (AdviseFloors *self, const Plan *resolved, gint64 stage, gint64 trades)
{
  const gboolean is_fused = resolved->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
  const AdviseFloorWork work = find_work (self, resolved, stage);
  const gint64 less = adding_left_out_ns (&work, resolved);
  const gint64 less_launch = is_fused ? work.of[ADVISE_FLOOR_ADDING_LAUNCH] : 0;
  const gint64 host = work.of[ADVISE_FLOOR_HOST] - less_launch;
  const gint64 in_turn
      = MAX (work.of[ADVISE_FLOOR_PERIOD] - less - less_launch, work.of[ADVISE_FLOOR_SERIAL]);
  const gint64 most = MAX (MAX (host, in_turn), chain_ns (&work, resolved));
  const gint64 busy = busy_ns (&work, resolved);
  return MAX (most + trades * work.trade_ns, busy);
}

static void
recompute_nothing (Plan *plan)
{
  plan->value[PLAN_RECOMPUTE] = PLAN_RECOMPUTE_NONE;
  plan->value[PLAN_RECOMPUTE_METHOD] = PLAN_RECOMPUTE_METHOD_UNIFORM;
  plan->value[PLAN_RECOMPUTE_MODULES] = 1 << PLAN_RECOMPUTE_MODULES_CORE_ATTN;
  plan->value[PLAN_RECOMPUTE_LAYERS] = 1;
}

/* Finds these times, which neither the number of micro batches nor recompute changes. */
static Once
find_once (AdviseFloors *self, const Plan *resolved, gint64 stage)
{
  Plan key = *resolved;
  Once once = { 0 };
  AdviseFloorWork work;
  key.value[PLAN_MBS] = 1;
  key.value[PLAN_GBS]
      = plan_stage_group (resolved) * plan_data_parallel (resolved, self->input->cluster);
  recompute_nothing (&key);
  g_mutex_lock (&self->lock);
  const Once *known = g_hash_table_lookup (self->onces, &key);
  once = known ? *known : once;
  g_mutex_unlock (&self->lock);
  if (known)
    return once;
  if (find_step (self, &key, stage, FALSE, &work))
    once = (Once){ work.of[ADVISE_FLOOR_STREAMS + PLAN_STREAM_GATHER],
                   work.of[ADVISE_FLOOR_STREAMS + PLAN_STREAM_REDUCE] };
  g_mutex_lock (&self->lock);
  g_hash_table_replace (self->onces, g_memdup2 (&key, sizeof key), g_memdup2 (&once, sizeof once));
  g_mutex_unlock (&self->lock);
  return once;
}

/* Whether stages gather weights and reduce gradients once in a step. */
static gboolean
exchanges_once (const AdviseFloors *self, const Plan *resolved)
{
  const PlanStack *stack = plan_stack_of (resolved, self->input->cluster->kind, NULL);
  return resolved->value[PLAN_PP] > 1 && stack->weights.whole == PLAN_WHOLE_IN_TURN
         && !plan_shards_grads (resolved);
}

/* Gather time of a stage behind the first. Its gathers start when its first micro batch arrives,
 * and compute waits for them. */
static gint64
fill_gather_ns (AdviseFloors *self, const Plan *resolved, gint64 stage)
{
  if (!exchanges_once (self, resolved) || resolved->value[PLAN_STRATEGY] != PLAN_STRATEGY_OPTIM
      || resolved->value[PLAN_OVERLAP_PARAM_GATHER] == PLAN_OVERLAP_PARAM_GATHER_OFF)
    return 0;
  return find_once (self, resolved, stage).gather_ns;
}

/* The plan without virtual stages, with the same layers on each stage, of which that stage
 * recomputes as many. */
static Plan
without_virtual_stages (const AdviseFloors *self, const Plan *resolved, gint64 stage)
{
  const PlanStack *stack = plan_stack_of (resolved, self->input->cluster->kind, NULL);
  const PlanStage here = plan_stage_of (self->input->model, stack, resolved, stage);
  Plan plan = *resolved;
  gint64 again = 0;
  plan.value[PLAN_VPP] = 1;
  plan.value[PLAN_PP_GROUP] = PLAN_UNSET;
  for (gint64 i = 0; i < here.n_virtual; i++)
    again += MIN (plan_stage_virtual (&here, i).layers, resolved->value[PLAN_RECOMPUTE_LAYERS]);
  if (plan.value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK)
    plan.value[PLAN_RECOMPUTE_LAYERS] = MAX (again, 1);
  return plan;
}

/* Lower bound of the step time of a pipeline that counts a stage's gathers and reductions. All
 * ranks meet for the norm of the gradients. From there on all weights are gathered before a micro
 * batch leaves the stage's last virtual stage; and no gradient is reduced before the last micro
 * batch's backward pass there, which is the first of its passes, nor after all ranks meet again.
 * Before the one there may be the forward passes, and after the other the backward passes, of a
 * group in the other virtual stages, and of one micro batch in the last. */
static gint64
once_floor_ns (AdviseFloors *self, const Plan *resolved)
{
  const AdviseInput *input = self->input;
  const gint64 n = plan_micro_batches (resolved, input->cluster);
  const gint64 n_virtual = resolved->value[PLAN_VPP], group = plan_stage_group (resolved);
  const gint64 some = MIN (resolved->value[PLAN_PP] - 2, 1);
  const PlanStack *stack = plan_stack_of (resolved, input->cluster->kind, NULL);
  if (!exchanges_once (self, resolved))
    return 0;
  const Plan plan = without_virtual_stages (self, resolved, some);
  const PlanStage here = plan_stage_of (input->model, stack, resolved, some);
  const gboolean are_alike
      = n_virtual == 1
        || (some > 0 && plan_kinds_are_alike (input->model, &here, resolved->value[PLAN_SEQ]));
  const gint64 beside = are_alike ? (n_virtual - 1) * group + 1 : n_virtual * group;
  const AdviseFloorWork work = find_work (self, &plan, some);
  const Once once = find_once (self, resolved, some);
  return once.gather_ns + once.reduce_ns
         + MAX (n * n_virtual - beside, 0) * chain_ns (&work, &plan) / n_virtual;
}

/* The quickest trade of two stages. All trades are alike, but that the last stages may exchange
 * logits. */
static gint64
quickest_trade_ns (AdviseFloors *self, const PlanStack *stack, const Plan *resolved)
{
  const gint64 last = resolved->value[PLAN_PP] - 1;
  const PlanStage end = plan_stage_of (self->input->model, stack, resolved, last);
  const gint64 at_end = find_work (self, resolved, last).trade_ns;
  if (!plan_stage_reads_logits (&end))
    return at_end;
  const gint64 before = find_work (self, resolved, last - 1).trade_ns;
  return MIN (MIN (at_end, before), find_work (self, resolved, MIN (last - 1, 1)).trade_ns);
}

static gboolean
holds_as_much (const PlanStage *stage, const PlanStage *other)
{
  return stage->layers >= other->layers && stage->has_head >= other->has_head
         && stage->has_cast >= other->has_cast && stage->has_loss >= other->has_loss;
}

/* Lower bound of the step time of a pipeline without virtual stages. For each stage it is the sum
 * of the stage's passes of all micro batches and, for each stage before it, one forward pass (the
 * first micro batch on its way down) and one backward pass (the last gradient on its way up), each
 * with a trade. The result is the largest of these. A stage trades twice per micro batch, an end
 * stage once; the last stage's first input and last gradient are already counted with the way. The
 * second stage stands for all inner stages that hold at least as much; of the others only the
 * trades count. With `gathers` the gathers of the stages on the way down are added, which only this
 * very plan has. */
static gint64
pipeline_floor_ns (AdviseFloors *self, const Plan *resolved, gboolean gathers)
{
  const AdviseInput *input = self->input;
  const gint64 n = plan_micro_batches (resolved, input->cluster);
  const gint64 last = resolved->value[PLAN_PP] - 1;
  const PlanStack *stack = plan_stack_of (resolved, input->cluster->kind, NULL);
  const gint64 some = MIN (last - 1, 1);
  const PlanStage second = plan_stage_of (input->model, stack, resolved, some);
  const gint64 way_ns = stage_floor_ns (self, resolved, some, 0);
  const gint64 first_ns = stage_floor_ns (self, resolved, some, 1);
  const gint64 inner_ns = stage_floor_ns (self, resolved, some, 2);
  const gint64 trade_ns = quickest_trade_ns (self, stack, resolved);
  const gint64 gather_ns = gathers && last > 1 ? fill_gather_ns (self, resolved, some) : 0;
  gint64 before = 0, most = 0;
  for (gint64 stage = 0; stage < last; stage++)
    {
      const PlanStage here = plan_stage_of (input->model, stack, resolved, stage);
      const gboolean counts = holds_as_much (&here, &second);
      before += counts && stage > 0 ? gather_ns : 0;
      most = MAX (most, counts ? before + n * (stage > 0 ? inner_ns : first_ns) : 0);
      before += (counts ? way_ns : 0) + 2 * trade_ns;
    }
  const gint64 end_ns = stage_floor_ns (self, resolved, last, 1);
  return MAX (most, before + n * end_ns - trade_ns);
}

/* Lower bound of the step time of a pipeline in which the host may run ahead while a stage waits:
 * an interleaved one, or any where compute alone waits for exchanges. So host and chain do not take
 * turns, and only the chain counts on the way. Only the first virtual stage of each stage is on the
 * way down and up, and its time counts only where it has its share of each kind of layers. Where a
 * framework waits for each output to be sent, compute stands still for that trade as well; without
 * virtual stages it does so for every trade. */
static gint64
hostless_floor_ns (AdviseFloors *self, const Plan *resolved)
{
  const AdviseInput *input = self->input;
  const PlanModel *model = input->model;
  const gint64 n = plan_micro_batches (resolved, input->cluster), seq = resolved->value[PLAN_SEQ];
  const PlanStack *stack = plan_stack_of (resolved, input->cluster->kind, NULL);
  const gint64 last = resolved->value[PLAN_PP] - 1, some = MIN (last - 1, 1);
  const Plan plan = without_virtual_stages (self, resolved, some),
             of_last = without_virtual_stages (self, resolved, last);
  const AdviseFloorWork inner = find_work (self, &plan, some),
                        end = find_work (self, &of_last, last);
  const PlanStage of_inner = plan_stage_of (model, stack, resolved, some);
  const PlanStage of_first = plan_stage_virtual (&of_inner, 0);
  const PlanKinds all = plan_kinds_of (model, &of_inner, &of_inner, seq),
                  first = plan_kinds_of (model, &of_inner, &of_first, seq);
  const gint64 inner_chain = chain_ns (&inner, &plan);
  const gint64 way_ns
      = plan_kinds_are_share (&first, &all) ? inner_chain * first.layers / MAX (all.layers, 1) : 0;
  const gint64 n_virtual = resolved->value[PLAN_VPP];
  const gint64 sent = n_virtual == 1                                  ? 2
                      : stack->pipeline.trades == PLAN_TRADES_AWAITED ? n_virtual
                                                                      : 0;
  const gint64 inner_ns = inner_chain + sent * inner.trade_ns;
  const gint64 first_ns = inner_ns - (n_virtual == 1 ? inner.trade_ns : 0);
  const gint64 end_ns = chain_ns (&end, &of_last) + MAX (sent - 1, 0) * end.trade_ns;
  gint64 before = 0, most = 0;
  for (gint64 stage = 0; stage < last; stage++)
    {
      const PlanStage here = plan_stage_of (model, stack, resolved, stage);
      const PlanStage part = plan_stage_virtual (&here, 0);
      const PlanKinds of_here = plan_kinds_of (model, &here, &here, seq),
                      of_part = plan_kinds_of (model, &here, &part, seq);
      const gboolean counts = plan_kinds_cover (&of_here, &all);
      if (counts)
        most = MAX (most, MAX (before + n * (stage > 0 ? inner_ns : first_ns),
                               n * busy_ns (&inner, &plan)));
      before += counts && plan_kinds_cover (&of_part, &first) ? way_ns : 0;
      before += 2 * inner.trade_ns;
    }
  const gint64 detour = plan_detour_ns (model, input->cluster, resolved, &of_inner, inner_chain,
                                        n_virtual > 1 && sent > 0 ? inner.trade_ns : 0);
  most = MAX (most, before + n * end_ns + detour - (n_virtual == 1 ? end.trade_ns : 0));
  return MAX (most, n * busy_ns (&end, &of_last));
}

/* Lower bound of the step time of a pipeline whose stages together take `ns` for a micro batch. A
 * stage takes as long as all n micro batches take in it, and one in each stage before it. The
 * longest of these is shortest where they are equal: each stage takes 1 - 1 / n of the one
 * before. */
static gint64
filled_ns (gint64 ns, gint64 n, gint64 stages)
{
  double left = 1;
  for (gint64 stage = 0; stage < stages; stage++)
    left *= 1 - 1 / (double)n;
  return (gint64)((double)ns / (1 - left));
}

/* Whether the host of a pipeline may run ahead while a stage waits. */
static gboolean
runs_ahead (const AdviseFloors *self, const Plan *resolved)
{
  const PlanStack *stack = plan_stack_of (resolved, self->input->cluster->kind, NULL);
  return resolved->value[PLAN_VPP] > 1
         || (resolved->value[PLAN_PP] > 1 && stack->pipeline.trades == PLAN_TRADES_ON_DEVICE);
}

/* Lower bound of the step time of a pipeline, by what each of its stages does. */
static gint64
stages_floor_ns (AdviseFloors *self, const Plan *resolved, gboolean gathers)
{
  return runs_ahead (self, resolved) ? hostless_floor_ns (self, resolved)
                                     : pipeline_floor_ns (self, resolved, gathers);
}

/* The even share of all work, which the busiest stage of a pipeline has at least. Where a pipeline
 * keeps weights and gradients whole from micro batch to micro batch, it is that of the chain alone,
 * without copies of what only other plans exchange in each of them, and filling counts. */
static gint64
even_floor_ns (AdviseFloors *self, const Plan *resolved)
{
  const gint64 n = plan_micro_batches (resolved, self->input->cluster);
  const gint64 stages = resolved->value[PLAN_PP];
  const PlanStack *stack = plan_stack_of (resolved, self->input->cluster->kind, NULL);
  Plan whole = *resolved;
  plan_stages_clear (&whole);
  whole.value[PLAN_PP_GROUP] = PLAN_UNSET;
  if (stages == 1 || stack->pipeline.reductions != PLAN_STAGES_REDUCE_HELD)
    return n * stage_floor_ns (self, &whole, 0, 0) / stages;
  const AdviseFloorWork work = find_work (self, &whole, 0);
  const gint64 chain = MAX (chain_ns (&work, &whole) - work.of[ADVISE_FLOOR_COPYING], 0);
  return resolved->value[PLAN_VPP] == 1 ? filled_ns (chain, n, stages) : n * chain / stages;
}

/* Whether the passes of a pipeline's stages say nothing of its step. No stage stands for others
 * where a layout says what each holds (pp_layout). Where rows of experts travel beside another pass
 * (ep_overlap), passes without virtual stages wait for rows that those of the plan do not wait
 * for. */
static gboolean
hides_stages (const Plan *resolved)
{
  return resolved->value[PLAN_PP_LAYOUT] != PLAN_UNSET
         || resolved->value[PLAN_EP_OVERLAP] == PLAN_EP_OVERLAP_ON;
}

/* Lower bound of a step's time. The even share is found first, since it is cheap; where any bound
 * is enough it is that of the plan without recompute, which many plans have in common. */
static gint64
floor_ns (AdviseFloors *self, const Plan *resolved, gint64 enough_ns)
{
  const gint64 stages = resolved->value[PLAN_PP];
  Plan plan = *resolved;
  if (enough_ns == 0)
    recompute_nothing (&plan);
  const gint64 even = even_floor_ns (self, &plan);
  if (stages == 1 || even > enough_ns || hides_stages (resolved))
    return even;
  const gint64 uneven = stages_floor_ns (self, resolved, FALSE);
  return MAX (even, uneven);
}

/* The least share of the chain that a layer's backward pass takes: its backward pass takes twice
 * its forward pass, which is done once, or twice where a layer is recomputed. */
static double
backward_share (const Plan *plan)
{
  return plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL
                 && (plan->value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK
                     || plan->value[PLAN_RECOMPUTE_LAYERS] > 1)
             ? 0.45
             : 0.6;
}

/* Where communication takes more than this share of the time available, reductions are assumed to
 * fall behind for good. */
#define LATE 0.95

/* Reduces an exchange to the gathers and reductions that surely run beside the chain, each for all
 * of its time.
 *
 * An op is slowed by ops that it finds among the spells of another stream (sim/sharing.h). A
 * collective begins when all compute issued before it is over, so the ops beside it were issued
 * later, and they find it as long as no more than SIM_SPELLS spells of its stream are waiting.
 *
 * Gathers that wait are few: those issued ahead of their use. Reductions of one kind that wait
 * touch one another and form one spell; they fill the spells only where they are late by a whole
 * micro batch. Reductions of two kinds do so where they are late by two units, as they are for a
 * while behind each op that is done seldom; that much of them is left out. A reduction beside
 * gathers is slowed by up to half of their time, since of the two the later one keeps half of its
 * pace. */
static Exchange
find_met (const Exchange *exchange, gint64 chain_ns, const Plan *resolved)
{
  Exchange met = *exchange;
  SimSlowdownStream *gather = &met.beside[0], *reduce = &met.beside[1];
  const gboolean is_one = reduce->n_kinds < 2;
  const double there_is = (double)chain_ns * (is_one ? 1 : backward_share (resolved));
  /* The forward pass issues half of the gathers. */
  const double taken
      = ((double)reduce->ns + (double)gather->ns * (is_one ? 0.5 : 0.25)) / MAX (there_is, 1);
  gint64 seldom = reduce->ns;
  if (gather->n_kinds > SIM_SLOWDOWN_KINDS)
    gather->n_kinds = 0;
  if (reduce->n_kinds > SIM_SLOWDOWN_KINDS || taken > LATE)
    reduce->n_kinds = 0;
  for (guint k = 0; k < reduce->n_kinds; k++)
    seldom -= reduce->kinds[k].ns;
  const gint64 late = is_one ? 0 : (gint64)((double)seldom * (1 + 1 / (1 - MIN (taken, LATE))));
  for (guint k = 0; k < reduce->n_kinds; k++)
    reduce->kinds[k].ns = MAX (reduce->kinds[k].ns - late, 0);
  return met;
}

/* Lower bound of a micro batch's time with its exchange. Other ops of the plan only add to it
 * (sim/fast/slowdown-bound.c). */
static gint64
floor_beside_ns (const AdviseFloorWork *work, const Exchange *exchange, const Plan *resolved)
{
  const gint64 chain = chain_ns (work, resolved);
  const Exchange met = find_met (exchange, chain, resolved);
  const gint64 slowed = chain + sim_slowdown_slowing_ns (&work->chain, met.beside);
  const gboolean is_shared = resolved->value[PLAN_AG_GROUP] == PLAN_AG_GROUP_OFF;
  const gint64 exchanged = MAX (exchange->beside[0].ns, exchange->beside[1].ns);
  return MAX (slowed, is_shared ? MAX (exchanged, exchange->group_ns) : exchanged);
}

static gboolean
find_exchanged (const AdviseFloors *self, const Plan *plan, gint64 micro_batches,
                AdviseFloorWork *out)
{
  Plan few;
  plan_bound_exchange (plan, self->input->cluster, micro_batches, &few);
  return find_step (self, &few, 0, FALSE, out);
}

/* The exchange of a plan's third micro batch; empty where it cannot be found. Gathers and
 * reductions share communicators in it, whatever they do in the plan. */
static Exchange
find_exchange (AdviseFloors *self, const Plan *resolved)
{
  Plan key, shared = *resolved;
  AdviseFloorWork two, three;
  Exchange exchange = { .group_ns = 0 };
  shared.value[PLAN_AG_GROUP] = PLAN_AG_GROUP_OFF;
  plan_bound_distil_exchange (&shared, &key);
  g_mutex_lock (&self->lock);
  const Exchange *known = g_hash_table_lookup (self->exchanges, &key);
  if (known)
    exchange = *known;
  g_mutex_unlock (&self->lock);
  if (known)
    return exchange;
  if (find_exchanged (self, &shared, 2, &two) && find_exchanged (self, &shared, 3, &three))
    {
      const AdviseFloorWork work = advise_floor_work_add (&three, &two, -1);
      exchange.beside[0] = sim_slowdown_stream (&work.gather);
      exchange.beside[1] = sim_slowdown_stream (&work.reduce);
      for (guint i = 0; i < PLAN_MAX_GROUPS; i++)
        exchange.group_ns = MAX (exchange.group_ns, work.of[ADVISE_FLOOR_GROUPS + i]);
    }
  g_mutex_lock (&self->lock);
  g_hash_table_replace (self->exchanges, g_memdup2 (&key, sizeof key),
                        g_memdup2 (&exchange, sizeof exchange));
  g_mutex_unlock (&self->lock);
  return exchange;
}

/* Whether all micro batches reduce alike: of those that keep whole gradients the first adds to
 * nothing and the last alone reduces, so no one of them bounds the others. */
static gboolean
reduces_alike (const Plan *resolved)
{
  return resolved->value[PLAN_GRAD_SYNC] == PLAN_GRAD_SYNC_EVERY;
}

gint64
advise_floors_beside_ns (AdviseFloors *self, const Plan *resolved)
{
  Plan here = *resolved;
  if (resolved->value[PLAN_TASK] != PLAN_TASK_TRAIN || !reduces_alike (resolved)
      || self->input->cluster->kind != PLAN_DEVICE_GPU)
    return 0;
  if (resolved->value[PLAN_PP] > 1 && hides_stages (resolved))
    return 0;
  if (resolved->value[PLAN_PP] > 1)
    {
      const gint64 once = once_floor_ns (self, resolved);
      const gint64 stages = stages_floor_ns (self, resolved, TRUE);
      return MAX (once, stages);
    }
  here.value[PLAN_OFFLOAD_LAYERS] = here.value[PLAN_OFFLOAD_MODULES] = 0;
  const Exchange exchange = find_exchange (self, resolved);
  const AdviseFloorWork work = find_work (self, &here, 0);
  return plan_micro_batches (resolved, self->input->cluster)
         * floor_beside_ns (&work, &exchange, resolved);
}

/* Without its copies to the host a plan shares its floor with other plans, so that one is tried
 * first. */
gint64
advise_floors_ns (AdviseFloors *self, const Plan *resolved, gint64 enough_ns)
{
  Plan here = *resolved;
  if (resolved->value[PLAN_TASK] != PLAN_TASK_TRAIN || !reduces_alike (resolved)
      || self->input->cluster->kind != PLAN_DEVICE_GPU)
    return 0;
  here.value[PLAN_OFFLOAD_LAYERS] = here.value[PLAN_OFFLOAD_MODULES] = 0;
  const gint64 least = floor_ns (self, &here, enough_ns);
  if (least > enough_ns || plan_search_key_equal (&here, resolved))
    return least;
  const gint64 with_copies = floor_ns (self, resolved, enough_ns);
  return MAX (least, with_copies);
}
