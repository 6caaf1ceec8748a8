/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/floor.h"

#include "advise/predict.h"
#include "advise/serial.h"
#include "planner/lower/lower.h"
#include "planner/model/layer-kinds.h"
#include "planner/plan/stages.h"
#include "planner/search/bound.h"
#include "planner/search/search.h"
#include "sim/fast/slowdown-bound.h"

/* How long the host and each stream are busy, and which part of that accumulates gradients. These
 * can be added and multiplied. */
enum
{
  WORK_HOST,
  WORK_ADDING,        /* accumulating gradients: time of the compute stream, */
  WORK_ADDING_LAUNCH, /* of the host, */
  WORK_N_ADDING,      /* and the number of ops */
  WORK_AWAITED, /* collectives of the tensor-parallel stream for which compute waits at once */
  WORK_SERIAL,  /* advise_serial_ns */
  WORK_PERIOD,  /* the time it takes when simulated; 0 where it was not */
  WORK_STREAMS,
  WORK_N = WORK_STREAMS + PLAN_N_STREAMS,
};

typedef struct
{
  gint64 of[WORK_N];
  SimSlowdown chain;          /* compute and awaited collectives, without accumulating gradients */
  SimSlowdown gather, reduce; /* collectives between data-parallel ranks */
  gint64 trade_ns;            /* the quickest exchange with another stage; 0: there is none */
} Work;

/* The gathers and reductions of a micro batch. */
typedef struct
{
  SimSlowdownStream beside[2];
} Exchange;

struct _AdviseFloors
{
  const AdviseInput *input;
  GMutex lock;
  GHashTable *micro_batches; /* Plan, relaxed -> Work */
  GHashTable *exchanges;     /* Plan, distilled -> Exchange */
  GHashTable *gathers;       /* Plan, of few micro batches -> gint64 */
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
  self->gathers
      = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  return self;
}

void
advise_floors_free (AdviseFloors *self)
{
  if (!self)
    return;
  g_hash_table_unref (self->gathers);
  g_hash_table_unref (self->exchanges);
  g_hash_table_unref (self->micro_batches);
  g_mutex_clear (&self->lock);
  g_free (self);
}

/* The sum of `a` and `times` times `b`. An exchange between stages takes as long as in `a`: it is
 * one op's time, not a sum. */
static Work
add (const Work *a, const Work *b, gint64 times)
{
  Work sum = *a;
  for (guint i = 0; i < WORK_N; i++)
    sum.of[i] += times * b->of[i];
  sim_slowdown_join (&sum.chain, &b->chain, times);
  sim_slowdown_join (&sum.gather, &b->gather, times);
  sim_slowdown_join (&sum.reduce, &b->reduce, times);
  return sum;
}

static gboolean
adds_gradients (const PlanSchedule *schedule, const PlanOp *op)
{
  return op->kind == PLAN_OP_ACCUMULATE
         && plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_ACCUMULATE_out].array)
                    ->category
                == PLAN_CATEGORY_MAIN_GRADS;
}

/* A collective that begins when compute is done with all that was issued, and for which compute
 * then waits. */
static gboolean
is_awaited (const PlanSchedule *schedule, guint node)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  if (op->stream != PLAN_STREAM_TENSOR || op->n_waits == 0
      || node + 1 == plan_schedule_n_nodes (schedule))
    return FALSE;
  const PlanOp *next = plan_schedule_node (schedule, node + 1);
  return next->kind == PLAN_OP_WAIT && next->stream == PLAN_STREAM_COMPUTE && next->n_waits > 0
         && next->waits[0].array == op->record.array;
}

static SimSlowdown *
crowd_of (const PlanOp *op, gboolean awaited, Work *work)
{
  if (op->stream == PLAN_STREAM_COMPUTE || awaited)
    return &work->chain;
  return op->stream == PLAN_STREAM_GATHER   ? &work->gather
         : op->stream == PLAN_STREAM_REDUCE ? &work->reduce
                                            : NULL;
}

static void
note_op (const PlanSchedule *schedule, const SimCost *cost, guint node, gint64 times, Work *work)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  if (op->kind == PLAN_OP_TRADE) /* few micro batches have more of them than many have each */
    {
      const gint64 ns = sim_cost_ns (cost, node);
      work->trade_ns = work->trade_ns == 0 ? ns : MIN (work->trade_ns, ns);
      return;
    }
  const gint64 ns = times * sim_cost_ns (cost, node);
  const gint64 launch_ns = times * sim_cost_launch_ns (cost, node);
  const gboolean awaited = is_awaited (schedule, node);
  work->of[WORK_AWAITED] += awaited ? ns : 0;
  work->of[WORK_STREAMS + op->stream] += ns;
  work->of[WORK_HOST] += launch_ns;
  if (!adds_gradients (schedule, op))
    {
      SimSlowdown *crowd = crowd_of (op, awaited, work);
      if (crowd && ns > 0)
        sim_slowdown_add (crowd, sim_cost_load (cost, node), times, ns);
      return;
    }
  work->of[WORK_ADDING] += ns;
  work->of[WORK_ADDING_LAUNCH] += launch_ns;
  work->of[WORK_N_ADDING] += times;
}

/* Gradients added up are left out, as some plans do less about them than others. */
static gboolean
serial_cost (const PlanSchedule *schedule, const SimCost *cost, guint node, gint64 *out_ns,
             gint64 *out_launch_ns)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  if (op->kind == PLAN_OP_TRADE || adds_gradients (schedule, op))
    return FALSE;
  const gboolean is_in_chain = op->stream == PLAN_STREAM_COMPUTE || is_awaited (schedule, node);
  *out_ns = is_in_chain ? sim_cost_ns (cost, node) : 0;
  *out_launch_ns = sim_cost_launch_ns (cost, node);
  return TRUE;
}

/* The work of one step, repeats counted. */
static Work
work_of_step (const PlanSchedule *schedule, const SimCost *cost)
{
  Work work = { .chain = { 0 } };
  PlanTimes counting = { 0 };
  for (guint node = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);
       node < plan_schedule_section_node (schedule, PLAN_SECTION_TEARDOWN); node++)
    {
      const gint64 times = plan_times_next (&counting, plan_schedule_node (schedule, node));
      if (times > 0)
        note_op (schedule, cost, node, times, &work);
    }
  work.of[WORK_SERIAL] = advise_serial_ns (schedule, cost, serial_cost);
  return work;
}

/* Where activations are copied to the host and back, dependencies bound a step better than sums. */
static gboolean
copies_activations (const Plan *plan)
{
  return plan->value[PLAN_OFFLOAD_LAYERS] > 0 || plan->value[PLAN_OFFLOAD_MODULES] != 0;
}

static gboolean
find_step (const AdviseFloors *self, const Plan *plan, gint64 stage, gboolean is_simulated,
           Work *out)
{
  const AdviseInput *input = self->input;
  /* Nothing of a micro batch's time depends on workspaces. */
  g_autoptr (PlanCase) of = plan_case_new (input->model, input->cluster, plan, NULL, NULL);
  const guint rank = (guint)(stage * plan_cluster_devices (input->cluster) / plan->value[PLAN_PP]);
  g_autoptr (PlanSchedule) schedule = of ? plan_lower (of, rank, NULL) : NULL;
  g_autoptr (SimCost) cost = schedule ? advise_cost_of (input, of, schedule, NULL) : NULL;
  if (!cost)
    return FALSE;
  *out = work_of_step (schedule, cost);
  if (is_simulated)
    out->of[WORK_PERIOD] = sim_measure_step (schedule, cost, advise_workspace ());
  return TRUE;
}

/* The work of a step of so many micro batches whose data-parallel ranks communicate only at its
 * end. */
static gboolean
find_relaxed (const AdviseFloors *self, const Plan *plan, gint64 stage, gint64 micro_batches,
              Work *out)
{
  Plan relaxed;
  plan_bound_relax (plan, self->input->cluster, micro_batches, &relaxed);
  return find_step (self, &relaxed, stage, copies_activations (plan), out);
}

/* Whether all stages reach their neighbours in one way, by links or by the network. */
static gboolean
are_neighbours_alike (const Plan *plan, const PlanCluster *cluster)
{
  const gint64 all = plan_cluster_devices (cluster);
  const gint64 linked = plan_cluster_linked_devices (cluster);
  return all <= linked || all / plan->value[PLAN_PP] >= linked;
}

/* The work that one more micro batch adds to two, or to as few as a pipeline needs; no work where
 * such a plan is illegal. */
static Work
find_micro_batch (AdviseFloors *self, const Plan *plan, gint64 stage)
{
  Plan key;
  Work two, three, work = { .chain = { 0 } };
  const PlanStack *stack = plan_stack_of (plan, self->input->cluster->kind, NULL);
  const gint64 few = stack->pipeline.is_filled ? MAX (plan->value[PLAN_PP] - 1, 2) : 2;
  plan_bound_relax (plan, self->input->cluster, few, &key);
  key.value[PLAN_COMM_UNIT] = stage + 1; /* relaxed plans do not use this field */
  g_mutex_lock (&self->lock);
  const Work *known = g_hash_table_lookup (self->micro_batches, &key);
  if (known)
    work = *known;
  g_mutex_unlock (&self->lock);
  if (known)
    return work;
  if (find_relaxed (self, plan, stage, few, &two)
      && find_relaxed (self, plan, stage, few + 1, &three))
    work = add (&three, &two, -1);
  work.trade_ns = are_neighbours_alike (plan, self->input->cluster) ? work.trade_ns : 0;
  g_mutex_lock (&self->lock);
  g_hash_table_replace (self->micro_batches, g_memdup2 (&key, sizeof key),
                        g_memdup2 (&work, sizeof work));
  g_mutex_unlock (&self->lock);
  return work;
}

/* The same; where only some layers are recomputed, each one more adds the same work. */
static Work
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
  const Work one = find_micro_batch (self, &some, stage);
  some.value[PLAN_RECOMPUTE_LAYERS] = 2;
  const Work two = find_micro_batch (self, &some, stage), another = add (&two, &one, -1);
  return add (&one, &another, layers - 1);
}

/* The most by which accumulating gradients is quicker in this plan than in the relaxed one, which
 * adds bf16 to bf16 and so moves 6 bytes for each: sharded gradients are copied, which moves at
 * least 4, and fused accumulation takes no op of its own. */
static gint64
adding_left_out_ns (const Work *work, const Plan *resolved)
{
  const gboolean is_fused = resolved->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
  const gint64 adding = work->of[WORK_ADDING];
  return is_fused ? adding : adding / 3 + 2 * work->of[WORK_N_ADDING];
}

/* Compute and the collectives it waits for at once follow one another. */
static gint64
chain_ns (const Work *work, const Plan *resolved)
{
  const gint64 *streams = &work->of[WORK_STREAMS];
  return streams[PLAN_STREAM_COMPUTE] + work->of[WORK_AWAITED]
         - adding_left_out_ns (work, resolved);
}

/* A stream, and the host, does one thing after another, so the busiest of them bounds the time.
 * Leaving ops out shortens the longest path by no more than their own time. Compute and the host
 * both wait for `trades` exchanges with other stages. */
static gint64
stage_floor_ns (AdviseFloors *self, const Plan *resolved, gint64 stage, gint64 trades)
{
  const gboolean is_fused = resolved->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
  const Work work = find_work (self, resolved, stage);
  const gint64 *of = work.of, *streams = &work.of[WORK_STREAMS];
  const gint64 less = adding_left_out_ns (&work, resolved);
  const gint64 less_launch = is_fused ? of[WORK_ADDING_LAUNCH] : 0;
  gint64 most = MAX (of[WORK_HOST] - less_launch, of[WORK_PERIOD] - less - less_launch);
  most = MAX (MAX (most, of[WORK_SERIAL]), chain_ns (&work, resolved)) + trades * work.trade_ns;
  for (PlanStream s = 0; s < PLAN_N_STREAMS; s++)
    if (s != PLAN_STREAM_COMPUTE)
      most = MAX (most, streams[s]);
  return MAX (most, 0);
}

/* Gather time of a stage behind the first: gathers start when the first micro batch arrives, and
 * compute waits for them. Micro batches and recompute do not change it. */
static gint64
fill_gather_ns (AdviseFloors *self, const Plan *resolved, gint64 stage)
{
  const PlanCluster *cluster = self->input->cluster;
  const PlanStack *stack = plan_stack_of (resolved, cluster->kind, NULL);
  Plan key = *resolved;
  Work work = { .chain = { 0 } };
  if (stack->weights.whole != PLAN_WHOLE_IN_TURN
      || resolved->value[PLAN_STRATEGY] != PLAN_STRATEGY_OPTIM
      || resolved->value[PLAN_OVERLAP_PARAM_GATHER] == PLAN_OVERLAP_PARAM_GATHER_OFF)
    return 0;
  key.value[PLAN_MBS] = 1;
  key.value[PLAN_GBS] = resolved->value[PLAN_PP] * plan_data_parallel (resolved, cluster);
  key.value[PLAN_RECOMPUTE] = PLAN_RECOMPUTE_NONE;
  key.value[PLAN_RECOMPUTE_METHOD] = PLAN_RECOMPUTE_METHOD_UNIFORM;
  key.value[PLAN_RECOMPUTE_LAYERS] = 1;
  g_mutex_lock (&self->lock);
  const gint64 *known = g_hash_table_lookup (self->gathers, &key);
  gint64 ns = known ? *known : 0;
  g_mutex_unlock (&self->lock);
  if (known)
    return ns;
  if (find_step (self, &key, stage, FALSE, &work))
    ns = work.of[WORK_STREAMS + PLAN_STREAM_GATHER];
  g_mutex_lock (&self->lock);
  g_hash_table_replace (self->gathers, g_memdup2 (&key, sizeof key), g_memdup2 (&ns, sizeof ns));
  g_mutex_unlock (&self->lock);
  return ns;
}

/* The same layers on the same stages in one pass each. */
static Plan
uncut (const Plan *resolved)
{
  Plan plan = *resolved;
  plan.value[PLAN_VPP] = 1;
  plan.value[PLAN_PP_GROUP] = PLAN_UNSET;
  if (plan.value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK)
    plan.value[PLAN_RECOMPUTE_LAYERS] *= resolved->value[PLAN_VPP];
  return plan;
}

/* The quickest exchange of two stages: of all alike, but where the last ones exchange logits. */
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

/* Lower bound of a pipeline's step. For a stage it is the sum of its passes of all micro batches
 * and, for each stage before it, one forward pass (the first micro batch on its way down) and one
 * backward pass (the last gradient on its way up), each with an exchange; the larger of the last
 * two stages' bounds. A stage exchanges twice for each micro batch, the ends once; but the last one
 * has its first input and its last gradient from the way. The second stage stands for all between
 * the ends that hold at least as much; of others exchanges alone count. `gathers` adds the gathers
 * of the stages on the way down, which this very plan has. */
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

static gboolean
has_one_kind (const PlanModel *model, gint64 seq)
{
  gint64 layers[PLAN_N_LAYER_KINDS];
  guint n = 0;
  plan_model_count_kinds (model, seq, layers);
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    n += layers[kind] > 0;
  return n == 1;
}

/* The same of interleaved stages. Only the first virtual stages are on the way down and up, and
 * while a stage waits its host may go ahead, which it does not where exchanges are awaited. Where
 * layers differ, the first ones may be the quickest. Where each output is awaited, compute stands
 * still while it travels. */
static gint64
interleaved_floor_ns (AdviseFloors *self, const Plan *resolved)
{
  const AdviseInput *input = self->input;
  const gint64 n = plan_micro_batches (resolved, input->cluster);
  const gint64 last = resolved->value[PLAN_PP] - 1, some = MIN (last - 1, 1);
  const PlanStack *stack = plan_stack_of (resolved, input->cluster->kind, NULL);
  const Plan plan = uncut (resolved);
  const Work inner = find_work (self, &plan, some), end = find_work (self, &plan, last);
  const PlanStage of_inner = plan_stage_of (input->model, stack, resolved, some);
  const gint64 first_layers = plan_stage_virtual (&of_inner, 0).layers;
  const gint64 way_ns = has_one_kind (input->model, plan.value[PLAN_SEQ])
                            ? chain_ns (&inner, &plan) * first_layers / of_inner.layers
                            : 0;
  const gint64 sent = stack->pipeline.awaits_sent ? resolved->value[PLAN_VPP] : 0;
  const gint64 inner_ns = chain_ns (&inner, &plan) + sent * inner.trade_ns;
  const gint64 end_ns = chain_ns (&end, &plan) + MAX (sent - 1, 0) * end.trade_ns;
  gint64 before = 0, most = 0;
  for (gint64 stage = 0; stage < last; stage++)
    {
      const PlanStage here = plan_stage_of (input->model, stack, resolved, stage);
      const gboolean counts = here.layers >= of_inner.layers;
      if (counts)
        most = MAX (most, MAX (before + n * inner_ns, n * stage_floor_ns (self, &plan, some, 0)));
      before += counts && plan_stage_virtual (&here, 0).layers >= first_layers ? way_ns : 0;
      before += 2 * inner.trade_ns;
    }
  most = MAX (most, before + n * end_ns);
  return MAX (most, n * stage_floor_ns (self, &plan, last, 0));
}

/* Every micro batch; of a pipeline's stages the busiest has its even share of them at least, which
 * is found soonest. */
static gint64
floor_ns (AdviseFloors *self, const Plan *resolved, gint64 enough_ns)
{
  const gint64 n = plan_micro_batches (resolved, self->input->cluster);
  const gint64 stages = resolved->value[PLAN_PP];
  Plan whole = *resolved;
  whole.value[PLAN_PP] = whole.value[PLAN_VPP] = 1;
  whole.value[PLAN_PP_GROUP] = PLAN_UNSET;
  whole.value[PLAN_PP_FIRST_LAYERS] = whole.value[PLAN_PP_LAST_LAYERS] = PLAN_UNSET;
  whole.value[PLAN_PP_COUNT_EMBEDDING] = PLAN_PP_COUNT_EMBEDDING_OFF;
  whole.value[PLAN_PP_COUNT_LOSS] = PLAN_PP_COUNT_LOSS_OFF;
  whole.value[PLAN_PP_LAST_SHORT] = 0;
  const gint64 even = n * stage_floor_ns (self, &whole, 0, 0) / stages;
  if (stages == 1 || even > enough_ns)
    return even;
  return MAX (even, resolved->value[PLAN_VPP] > 1 ? interleaved_floor_ns (self, resolved)
                                                  : pipeline_floor_ns (self, resolved, FALSE));
}

/* Each layer's backward pass takes that much of the chain at least, of what the layer has in it:
 * twice its forward pass, which may be done once or, for another layer, twice. */
static double
backward_share (const Plan *plan)
{
  return plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL
                 && (plan->value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK
                     || plan->value[PLAN_RECOMPUTE_LAYERS] > 1)
             ? 0.45
             : 0.6;
}

#define LATE \
  0.95 /* reductions that take as much of what there is are taken to be late for good \
        */

/* An op is slowed by what it finds among the spells of a stream (sim/sharing.h). A collective
 * begins when all is over that was given to the compute stream before: what lies beside it was
 * issued later, and finds it as long as no more than SIM_SPELLS are waiting.
 *
 * Gathers that wait are the few ahead of their use. Reductions of one kind that wait touch one
 * another, and are one: with what is seldom between them they fill the spells only where they are
 * late by a micro batch. Those of two kinds do where they are late by two units; for a while they
 * are, behind each that is seldom, and that much of them is left out. What is reduced takes half of
 * what is gathered at the same time longer: one of the two keeps its pace, and the other half of
 * it. */
static Exchange
find_met (const Exchange *exchange, gint64 chain_ns, const Plan *resolved)
{
  Exchange met = *exchange;
  SimSlowdownStream *gather = &met.beside[0], *reduce = &met.beside[1];
  const gboolean is_one = reduce->n_kinds < 2;
  const double there_is = (double)chain_ns * (is_one ? 1 : backward_share (resolved));
  /* Half of the gathers are the forward pass's. */
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

/* Ops that the plan has beside these only add to that, as crowd.c says. */
static gint64
floor_beside_ns (const Work *work, const Exchange *exchange, const Plan *resolved)
{
  const gint64 chain = chain_ns (work, resolved);
  const Exchange met = find_met (exchange, chain, resolved);
  const gint64 slowed = chain + sim_slowdown_slowing_ns (&work->chain, met.beside);
  return MAX (slowed, MAX (exchange->beside[0].ns, exchange->beside[1].ns));
}

static gboolean
find_exchanged (const AdviseFloors *self, const Plan *plan, gint64 micro_batches, Work *out)
{
  Plan few;
  plan_bound_exchange (plan, self->input->cluster, micro_batches, &few);
  return find_step (self, &few, 0, FALSE, out);
}

/* What the third micro batch of a plan exchanges; nothing where that cannot be said. */
static Exchange
find_exchange (AdviseFloors *self, const Plan *plan)
{
  Plan key;
  Work two, three;
  Exchange exchange = { { { .n_kinds = 0 } } };
  plan_bound_distil_exchange (plan, &key);
  g_mutex_lock (&self->lock);
  const Exchange *known = g_hash_table_lookup (self->exchanges, &key);
  if (known)
    exchange = *known;
  g_mutex_unlock (&self->lock);
  if (known)
    return exchange;
  if (find_exchanged (self, plan, 2, &two) && find_exchanged (self, plan, 3, &three))
    {
      const Work work = add (&three, &two, -1);
      exchange.beside[0] = sim_slowdown_stream (&work.gather);
      exchange.beside[1] = sim_slowdown_stream (&work.reduce);
    }
  g_mutex_lock (&self->lock);
  g_hash_table_replace (self->exchanges, g_memdup2 (&key, sizeof key),
                        g_memdup2 (&exchange, sizeof exchange));
  g_mutex_unlock (&self->lock);
  return exchange;
}

gint64
advise_floors_beside_ns (AdviseFloors *self, const Plan *resolved)
{
  Plan here = *resolved;
  if (resolved->value[PLAN_TASK] != PLAN_TASK_TRAIN
      || self->input->cluster->kind != PLAN_DEVICE_GPU)
    return 0;
  if (resolved->value[PLAN_VPP] > 1)
    return interleaved_floor_ns (self, resolved);
  if (resolved->value[PLAN_PP] > 1)
    return pipeline_floor_ns (self, resolved, TRUE);
  here.value[PLAN_OFFLOAD_LAYERS] = here.value[PLAN_OFFLOAD_MODULES] = 0;
  const Exchange exchange = find_exchange (self, resolved);
  const Work work = find_work (self, &here, 0);
  return plan_micro_batches (resolved, self->input->cluster)
         * floor_beside_ns (&work, &exchange, resolved);
}

/* Without its copies to the host, a plan has a floor that others have, too. */
gint64
advise_floors_ns (AdviseFloors *self, const Plan *resolved, gint64 enough_ns)
{
  Plan here = *resolved;
  if (resolved->value[PLAN_TASK] != PLAN_TASK_TRAIN
      || self->input->cluster->kind != PLAN_DEVICE_GPU)
    return 0;
  here.value[PLAN_OFFLOAD_LAYERS] = here.value[PLAN_OFFLOAD_MODULES] = 0;
  const gint64 least = floor_ns (self, &here, enough_ns);
  return least > enough_ns || plan_search_key_equal (&here, resolved)
             ? least
             : MAX (least, floor_ns (self, resolved, enough_ns));
}
