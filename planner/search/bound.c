/* SPDX-License-Identifier: Apache-2.0 */
/* Claims, each a lower bound of what sim_run gives for the same case:
 *
 * plan_bound_memory. Device memory is at least what is live at any chosen moment. Without a
 * pipeline one is the start of the loss, where the state between steps, the kept activations of
 * all layers and the logits are live together; others are products of the backward pass, where
 * gathered weights and the buckets of gradients in flight take the place of the logits
 * (backward_bytes). In a pipeline it is the first stage's last forward pass before its first
 * backward pass, where the activations of plan_stage_held() micro batches are live. Assumptions:
 * buffers are at least as large as their elements (an allocator only rounds up), and where a stack
 * may drop something before that moment it is counted as dropped.
 *
 * plan_bound_time_ns. No kernel exceeds the peak FLOP rate of the plan's compute format, and
 * recompute and communication only add time.
 *
 * plan_bound_leanest, plan_bound_relax and plan_bound_distil_exchange choose the field values
 * whose bound is least or common to a set of plans. They assume that the fields they set act on
 * the bound as the comments beside them say.
 *
 * tests/prop/prop-search.c checks the claims on random plans
 * (bounds_are_never_above_the_simulation, bounds_of_pipelines_hold) and that a search with
 * bounds answers as one without (bounds_change_no_answer). */
#include "config.h"

#include "planner/search/bound.h"

#include "planner/lower/lower-loss.h"
#include "planner/lower/lower-offload.h"
#include "planner/plan/stages.h"

/* The layers of the first stage. In a pipeline all memory bounds are those of the first stage,
 * which holds the most activations; only the loss is elsewhere. */
static PlanModel
first_part (const PlanCase *of)
{
  const PlanStage first = plan_stage_of (of->model, of->stack, &of->plan, 0);
  return plan_stage_model (&first, of->model);
}

/* Elements of all buckets on one rank: unsharded (whole), sharded over the ranks of a bucket's
 * inner group (shared), and sharded over the replicas as well where HFSDP does so (split). */
typedef struct
{
  guint64 whole, shared, split;
  /* The part of linear weights that are gathered in another format than they are kept in. */
  guint64 linear, linear_shared;
  guint64 lent; /* the part of weights whose memory the gradients reuse */
} Elements;

/* The ranks over which a kind of bucket is sharded. */
static guint64
ranks_of_bucket (const PlanCase *of, PlanBucketKind kind)
{
  const gint64 all = plan_data_parallel (&of->plan, of->cluster) * of->plan.value[PLAN_CP];
  const gint64 ranks
      = plan_bucket_is_of_experts (kind) ? plan_layout_expert_data_parallel (&of->plan, all) : all;
  return (guint64)MAX (ranks / of->plan.value[PLAN_DP_OUTER], 1);
}

static Elements
count_elements (const PlanCase *of)
{
  const Plan *plan = &of->plan;
  const PlanLayout *layout = &of->layout;
  const gint64 *value = plan->value;
  const gint64 replicas = value[PLAN_DP_OUTER];
  const gboolean is_hfsdp = value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM;
  Elements sum = { 0 };
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    {
      const guint64 elements = layout->buckets[kind].padded * (guint64)layout->buckets[kind].units;
      const guint64 ranks = ranks_of_bucket (of, kind);
      sum.whole += elements;
      sum.shared += elements / ranks;
      sum.split += elements / ranks / (is_hfsdp ? (guint64)replicas : 1);
      if (plan_layout_lends_grads (kind, of->stack, plan))
        sum.lent += elements;
      else if (plan_layout_quantises (kind, of->stack, plan))
        {
          sum.linear += elements;
          sum.linear_shared += elements / ranks;
        }
    }
  return sum;
}

/* Bytes of one rank's state: weights, main weights, gradients and moments, each over the ranks that
 * shard it. */
static guint64
state_bytes (const PlanCase *of)
{
  const Plan *plan = &of->plan;
  const PlanLayout *layout = &of->layout;
  const gint64 *value = plan->value;
  const Elements sum = count_elements (of);
  const gboolean shards_grads = plan_shards_grads (plan);
  const gboolean shards_weights = plan_shards_weights (plan);
  const gboolean has_main = value[PLAN_MAIN_PARAMS] != PLAN_MAIN_PARAMS_AUTO;
  const guint64 linear = shards_weights ? sum.linear_shared : sum.linear;
  const guint64 own = plan_shards_optimizer (plan) ? sum.split : sum.whole;
  /* Sharded gradients that a stack allocates and drops with each backward pass may not exist when
   * the loss begins. */
  const guint64 grads = shards_grads && plan_stack_collects (of->stack) ? 0
                        : shards_grads                                  ? sum.shared
                                                                        : sum.whole;
  /* Where a stack rounds the main weights as it gathers them, there are no other weights between
   * steps. */
  const gboolean keeps_weights
      = !(shards_grads && of->stack->weights.rounds_as_gathered && has_main);
  /* Embedding and head, which belong to no layer, may stay gathered for the whole step. */
  const guint64 whole = shards_weights && of->stack->weights.outer == PLAN_OUTER_STAYS
                            ? layout->buckets[PLAN_BUCKET_EMBEDDING].padded
                                  + layout->buckets[PLAN_BUCKET_HEAD].padded
                            : 0;
  const guint64 weights = shards_weights ? sum.shared : sum.whole;
  const guint64 others = MIN (sum.whole - sum.linear, weights - linear + whole) - sum.lent;
  guint64 bytes = (keeps_weights ? plan_dtype_bytes (plan_weights_dtype (plan), others)
                                       + plan_dtype_bytes (plan_gathered_dtype (plan), linear)
                                 : 0)
                  + plan_dtype_bytes (plan_field_dtype (plan, PLAN_MAIN_GRADS), grads)
                  + plan_dtype_bytes (plan_field_dtype (plan, PLAN_EXP_AVG), own);
  if (value[PLAN_OFFLOAD_OPTIMIZER] > 0)
    bytes -= plan_dtype_bytes (plan_field_dtype (plan, PLAN_EXP_AVG), own);
  else if (value[PLAN_OPTIMIZER] == PLAN_OPTIMIZER_ADAMW)
    bytes += plan_dtype_bytes (plan_field_dtype (plan, PLAN_EXP_AVG_SQ), own);
  if (has_main)
    bytes += plan_dtype_bytes (plan_field_dtype (plan, PLAN_MAIN_PARAMS), own);
  return bytes;
}

/* Elements of the weights of all GEMMs of a layer of one kind, on this rank. */
static guint64
linear_elements (const PlanCase *of, const PlanLayerGraph *net)
{
  const PlanBucketRule *rule = &of->layout.rule;
  guint64 elements = 0;
  for (guint i = 0; i < net->n_nodes; i++)
    if (plan_node_is_product (&net->nodes[i]))
      {
        const gboolean is_expert = net->nodes[i].kind == PLAN_NODE_EXPERT_LINEAR;
        const PlanTensor tensor = plan_buckets_part (of->model, net->nodes[i].weight, rule);
        elements += tensor.rows * tensor.cols * (guint64)(is_expert ? of->graphs.sizes.experts : 1);
      }
  return elements;
}

/* Bytes of the quantised copies of all layers' weights that exist from the setup on, and of the
 * scales of their blocks. Every rank holds them whole. */
static guint64
derived_bytes (const PlanCase *of)
{
  const PlanLayout *layout = &of->layout;
  const PlanLayerGraphs *graphs = &of->graphs;
  const gint64 gather = of->plan.value[PLAN_PARAM_GATHER];
  const PlanSizes *sizes = &graphs->sizes;
  const PlanModel part = first_part (of);
  gint64 layers[PLAN_N_LAYER_KINDS];
  guint64 copies = 0, bytes = 0;
  plan_model_count_kinds (&part, of->plan.value[PLAN_SEQ], layers);
  if (!sizes->quantises)
    return 0;
  const gboolean lends = plan_layout_lends_grads (PLAN_BUCKET_LAYER, of->stack, &of->plan);
  if ((gather == PLAN_PARAM_GATHER_COMPUTE || lends)
      && of->stack->weights.quantised != PLAN_QUANTISED_ON_USE)
    copies = sizes->has_columns ? 2 : 1;
  else if (gather == PLAN_PARAM_GATHER_FP8 && sizes->has_columns && !layout->by_size
           && of->plan.value[PLAN_KEEP_TRANSPOSE] == PLAN_KEEP_TRANSPOSE_ON)
    copies = 1;
  for (guint kind = 0; copies > 0 && kind < PLAN_N_LAYER_KINDS; kind++)
    bytes += (guint64)layers[kind] * copies
             * plan_dtype_bytes (sizes->weights, linear_elements (of, graphs->of[kind]));
  const guint64 block = gather == PLAN_PARAM_GATHER_MXFP8   ? 32
                        : gather == PLAN_PARAM_GATHER_NVFP4 ? 16
                                                            : 0;
  for (PlanBucketKind kind = 0; block > 0 && !layout->by_size && kind < PLAN_BUCKET_PART; kind++)
    if (plan_layout_quantises (kind, of->stack, &of->plan))
      bytes += (guint64)MIN (layout->buckets[kind].units, part.layers)
               * (2 * layout->buckets[kind].raw / block);
  return bytes;
}

/* Whether all layers may share one buffer for a value. */
static gboolean
is_static (PlanValueId id)
{
  return id == PLAN_VALUE_JOINED || id == PLAN_VALUE_NORM1_FULL || id == PLAN_VALUE_NORM2_FULL;
}

/* The bytes that one layer of a kind keeps for the backward passes of its first `n` nodes. It holds
 * for layers without full recompute, and for one that has just been recomputed. The layer's output
 * is not counted here, as it is the next layer's input. */
static guint64
kept_by_nodes (const PlanCase *of, guint kind, guint n)
{
  const PlanLayerGraph *net = of->graphs.of[kind];
  const gint64 *value = of->plan.value;
  PlanNodeSet again = 0;
  guint64 bytes = 0;
  for (guint i = 0; i < net->n_nodes && value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE; i++)
    if (plan_node_is_again (&of->graphs.sizes, &net->nodes[i], &of->plan, FALSE))
      again |= plan_node_bit (i);
  PlanValueSet kept = plan_layer_graph_kept (net, &of->graphs.sizes, again, n)
                      & ~plan_lower_offload_takes (of->stack, net, value[PLAN_OFFLOAD_MODULES])
                      & ~plan_value_bit (PLAN_VALUE_OUT);
  while (kept)
    {
      const PlanValueId id = plan_value_pop (&kept);
      const PlanValue *v = &net->values[id];
      bytes += is_static (id) ? 0 : plan_dtype_bytes (v->dtype, v->elements);
    }
  return bytes;
}

/* Bytes of the activations that layers [first, end) of the first stage keep for one micro batch. */
static guint64
kept_from (const PlanCase *of, gint64 first, gint64 end)
{
  const PlanModel part = first_part (of);
  guint64 of_kind[PLAN_N_LAYER_KINDS], bytes = 0;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    of_kind[kind]
        = of->graphs.layers[kind] > 0 ? kept_by_nodes (of, kind, of->graphs.of[kind]->n_nodes) : 0;
  for (gint64 layer = first; layer < end; layer++)
    bytes += of_kind[plan_model_layer_kind (&part, layer, of->plan.value[PLAN_SEQ])];
  return bytes;
}

/* Bytes of a layer's input, or 0 where it is offloaded. */
static guint64
input_bytes (const PlanCase *of)
{
  const PlanValue *x = &of->graphs.values[PLAN_VALUE_X];
  PlanValueSet outgoing = 0;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    outgoing |= plan_lower_offload_takes (of->stack, of->graphs.of[kind],
                                          of->plan.value[PLAN_OFFLOAD_MODULES]);
  return outgoing & plan_value_bit (PLAN_VALUE_X) ? 0 : plan_dtype_bytes (x->dtype, x->elements);
}

/* Bytes of the activations of one micro batch in one virtual stage of the first stage. */
static guint64
activation_bytes (const PlanCase *of, const PlanStage *part)
{
  const gint64 *value = of->plan.value;
  const gint64 layers = part->layers, end = part->first + layers;
  const guint64 input = input_bytes (of);
  const gboolean is_full = value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL;
  const gboolean is_block = value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK;
  if (value[PLAN_TASK] != PLAN_TASK_TRAIN)
    return 0;
  if (value[PLAN_OFFLOAD_LAYERS] > 0)
    return kept_from (of, part->first + value[PLAN_OFFLOAD_LAYERS], end);
  if (is_full && !is_block)
    return (guint64)(layers / value[PLAN_RECOMPUTE_LAYERS]) * input;
  const gint64 again = is_full ? MIN (value[PLAN_RECOMPUTE_LAYERS], layers) : 0;
  return (guint64)again * input + kept_from (of, part->first + again, end);
}

/* Bytes that are live while the loss is computed: the logits of one chunk; their softmax (fp32
 * unless the loss rounds it), unless the gradient replaces the logits in place; an fp32 image of
 * the softmax, for losses that keep one; and the last layer's output with its norm. */
static guint64
loss_bytes (const PlanCase *of)
{
  const Plan *plan = &of->plan;
  const PlanSizes *sizes = &of->graphs.sizes;
  const guint64 rows = (guint64)(sizes->rows / plan->value[PLAN_LOSS_CHUNKS]);
  const guint64 logits = rows * (guint64)sizes->vocab;
  const gboolean has_softmax = !plan_lower_turns_logits (of->stack, plan, of->model);
  const PlanLoss loss = plan_stack_loss (of->stack, plan);
  const PlanDtype kept = loss == PLAN_LOSS_ROUNDED ? sizes->compute : PLAN_DTYPE_FP32;
  const gboolean has_image
      = plan->value[PLAN_CE_FUSION] == PLAN_CE_FUSION_ON && loss == PLAN_LOSS_IMAGE;
  const guint64 ends = plan->value[PLAN_TASK] == PLAN_TASK_TRAIN ? 2 * input_bytes (of) : 0;
  return plan_dtype_bytes (sizes->compute, logits)
         + plan_dtype_bytes (kept, logits) * (has_softmax + has_image) + ends;
}

/* The number of groups over which tokens are sent to their experts. */
static guint
groups_of_experts (const Plan *plan)
{
  const gboolean is_parallel = plan->value[PLAN_EP] > 1, is_split = plan->value[PLAN_ETP] > 1;
  return plan->value[PLAN_MOE_DISPATCHER] == PLAN_MOE_DISPATCHER_ALLGATHER ? is_parallel || is_split
                                                                           : is_parallel + is_split;
}

guint64
plan_bound_communicator_bytes (const PlanCase *of)
{
  const gint64 *value = of->plan.value;
  const gint64 all = plan_data_parallel (&of->plan, of->cluster) * value[PLAN_CP];
  const gint64 inner = all / value[PLAN_DP_OUTER];
  const gint64 of_experts
      = of->model->experts > 0
            ? plan_layout_expert_data_parallel (&of->plan, all) / value[PLAN_DP_OUTER]
            : 0;
  const gboolean has_gather_group = value[PLAN_AG_GROUP] == PLAN_AG_GROUP_ON;
  const gboolean has_stages = value[PLAN_PP] > 1;
  const gboolean shares_magnitudes = has_stages && all * value[PLAN_TP] > 1
                                     && (value[PLAN_COMPUTE] == PLAN_COMPUTE_FP8_DELAYED
                                         || (value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE
                                             && !plan_stack_scales_slices (of->stack, &of->plan)));
  const gboolean sums_embedding = has_stages && value[PLAN_TASK] == PLAN_TASK_TRAIN
                                  && first_part (of).cut.shares_embedding
                                  && !plan_stack_sums_shared_first (of->stack);
  const guint n = has_stages + (value[PLAN_VPP] > 1) + shares_magnitudes + sums_embedding
                  + (value[PLAN_TP] > 1) + (value[PLAN_CP] > 1) + (value[PLAN_DP_OUTER] > 1)
                  + (inner > 1) + (inner > 1 && has_gather_group)
                  + (plan_cluster_devices (of->cluster) > 1) + groups_of_experts (&of->plan)
                  + (of_experts > 1) + (of_experts > 1 && has_gather_group);
  return n * of->stack->memory.communicator_bytes;
}

/* Bytes of activations at the moment that plan_bound_memory counts: as the loss begins, or, for the
 * first stage of a pipeline, as its last forward pass before the first backward pass begins. */
static guint64
passing_bytes (const PlanCase *of)
{
  const gint64 m = plan_micro_batches (&of->plan, of->cluster);
  const PlanStage first = plan_stage_of (of->model, of->stack, &of->plan, 0);
  guint64 least = G_MAXUINT64; /* of one pass through any virtual stage */
  for (gint64 i = 0; i < first.n_virtual; i++)
    {
      const PlanStage part = plan_stage_virtual (&first, i);
      const guint64 bytes = activation_bytes (of, &part);
      least = MIN (least, bytes);
    }
  return of->plan.value[PLAN_PP] == 1 ? loss_bytes (of) + least
                                      : (guint64)plan_stage_held (&of->plan, 0, m) * least;
}

/* Bytes of what the first stage keeps whole if its stack holds gradients up to the last micro
 * batch: weights, and gradients if a forward pass is left once every virtual stage has had a
 * backward pass. */
static guint64
whole_bytes (const PlanCase *of)
{
  const Plan *plan = &of->plan;
  const gint64 *value = plan->value;
  const guint64 whole = count_elements (of).whole;
  const gint64 m = plan_micro_batches (plan, of->cluster);
  const gint64 first = value[PLAN_VPP] > 1 ? plan_stage_group (plan) * value[PLAN_VPP] : 1;
  const gint64 left = plan_stage_passes (plan, m) - plan_stage_warm_up (plan, 0, m);
  if (value[PLAN_PP] == 1 || of->stack->pipeline.reductions != PLAN_STAGES_REDUCE_HELD
      || !plan_shards_grads (plan))
    return 0;
  const guint64 grads = MIN (plan_dtype_bytes (plan_field_dtype (plan, PLAN_GRAD_COMM), whole),
                             plan_dtype_bytes (plan_field_dtype (plan, PLAN_MAIN_GRADS), whole));
  /* Of more than three virtual stages some are whole (lower-interleaved.c). */
  const gboolean stay = !plan_shards_weights (plan) && value[PLAN_VPP] <= 3;
  return (stay ? plan_dtype_bytes (plan_weights_dtype (plan), whole) : 0)
         + (left > first ? grads : 0);
}

/* Layers of a backward pass that the bound looks at, from the last one on. With fewer the bound is
 * lower, but still a bound. */
#define LAYERS_LOOKED_AT 128

/* The memory of a layer in its backward pass. */
typedef struct
{
  guint64 elements; /* of sharded buckets */
  guint64 weights;  /* bytes of gathered weights */
  guint64 buckets;  /* bytes of all its gradient buckets */
  guint64 most;     /* peak of gradient buckets and the layer's own kept activations, in bytes */
} Unit;

/* Adds a bucket to a layer's unit, if it is sharded. Returns the bytes of its gradients. */
static guint64
add_bucket (const PlanCase *of, PlanBucketKind kind, Unit *unit)
{
  const Plan *plan = &of->plan;
  const guint64 elements = of->layout.buckets[kind].padded;
  if (elements == 0 || ranks_of_bucket (of, kind) == 1)
    return 0;
  const gboolean is_narrow = plan_layout_quantises (kind, of->stack, plan);
  const PlanDtype gathered = is_narrow ? plan_gathered_dtype (plan) : of->graphs.sizes.compute;
  const guint64 bytes = plan_dtype_bytes (plan_field_dtype (plan, PLAN_GRAD_COMM), elements);
  unit->elements += elements;
  unit->weights += plan_shards_weights (plan) ? plan_dtype_bytes (gathered, elements) : 0;
  unit->buckets += bytes;
  return bytes;
}

/* The memory of a layer of a kind. The backward pass runs nodes in reverse. A gradient bucket is
 * allocated by the first product that writes to it, while earlier nodes still keep their
 * activations. */
static Unit
unit_of_kind (const PlanCase *of, guint kind)
{
  const PlanLayerGraph *net = of->graphs.of[kind];
  const PlanBucketKind main = plan_layout_main (&of->layout, kind);
  Unit unit = { 0 };
  const guint64 main_bytes = add_bucket (of, main, &unit);
  add_bucket (of, plan_bucket_plain (main), &unit);
  const guint64 expert_bytes
      = kind & PLAN_LAYER_EXPERTS ? add_bucket (of, PLAN_BUCKET_EXPERTS, &unit) : 0;
  if (kind & PLAN_LAYER_EXPERTS)
    add_bucket (of, PLAN_BUCKET_EXPERTS_PLAIN, &unit);
  guint64 taken[] = { 0, 0 };
  for (guint i = net->n_nodes; i-- > 0;)
    {
      const gboolean is_expert = net->nodes[i].kind == PLAN_NODE_EXPERT_LINEAR;
      if (!plan_node_is_product (&net->nodes[i]))
        continue;
      taken[is_expert] = is_expert ? expert_bytes : main_bytes;
      unit.most = MAX (unit.most, taken[0] + taken[1] + kept_by_nodes (of, kind, i));
    }
  return unit;
}

/* Whether weights are gathered in shares of layers (lower-combined.c). */
static gboolean
gathers_shares (const PlanCase *of)
{
  return of->plan.value[PLAN_EP_OVERLAP] == PLAN_EP_OVERLAP_ON && plan_shards_weights (&of->plan);
}

/* The number of units whose weights are gathered ahead of the one in use; 0 where it is not sure.
 */
static gint64
units_ahead (const PlanCase *of, gint64 unit)
{
  const PlanBucket *b = of->layout.buckets;
  const gint64 *value = of->plan.value;
  const gint64 limit = plan_layout_comm_unit (&of->layout, of->stack, &of->plan) / 2;
  const gint64 elements
      = (gint64)(MAX (MAX (b[PLAN_BUCKET_LAYER].padded, b[PLAN_BUCKET_RECURRENT].padded),
                      b[PLAN_BUCKET_ATTENTION].padded)
                 + b[PLAN_BUCKET_PLAIN].padded
                 + (ranks_of_bucket (of, PLAN_BUCKET_EXPERTS) > 1 ? plan_layout_of_experts (b)
                                                                  : 0));
  const gint64 ahead = elements > 0 ? (limit + elements - 1) / elements : 0;
  const gboolean is_in_turn
      = value[PLAN_DOUBLE_BUFFER] == PLAN_DOUBLE_BUFFER_OFF
        && (value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_FULL || value[PLAN_RECOMPUTE_LAYERS] == 1);
  /* The first units may be dropped before the backward pass reaches them: the output layer's hook
   * has gathered them too early (lower-acts.c). */
  return is_in_turn && !gathers_shares (of) && unit >= 2 * ahead ? ahead : 0;
}

/* Whether weights are gathered and gradients reduced unit by unit, with buffers of their own. */
static gboolean
goes_by_unit (const PlanCase *of)
{
  const gint64 *value = of->plan.value;
  return of->stack->weights.ahead == PLAN_AHEAD_HOOKS && !of->layout.by_size
         && value[PLAN_TASK] == PLAN_TASK_TRAIN && plan_shards_grads (&of->plan)
         && value[PLAN_PP] == 1 && value[PLAN_GRAD_SYNC] == PLAN_GRAD_SYNC_EVERY;
}

static gboolean
has_pools (const PlanCase *of)
{
  return of->plan.value[PLAN_DOUBLE_BUFFER] != PLAN_DOUBLE_BUFFER_OFF
         && ranks_of_bucket (of, PLAN_BUCKET_LAYER) > 1;
}

/* Bytes of pools, two sets of buffers for units of one kind, which exist from the setup on. */
static guint64
pool_bytes (const PlanCase *of)
{
  Unit all = { 0 };
  for (PlanBucketKind kind = PLAN_BUCKET_LAYER; kind < PLAN_BUCKET_PART; kind++)
    if (plan_layout_is_pooled (&of->layout, kind))
      add_bucket (of, kind, &all);
  return goes_by_unit (of) && has_pools (of) ? 2 * (all.weights + all.buckets) : 0;
}

/* The reductions in flight, oldest first: elements [first, n). The output layer's bytes are not
 * counted. */
typedef struct
{
  guint64 elements[LAYERS_LOOKED_AT + 1], bytes[LAYERS_LOOKED_AT + 1];
  guint first, n;
  guint64 all_elements, all_bytes;
} InFlight;

static void
push (InFlight *self, guint64 elements, guint64 bytes)
{
  self->elements[self->n] = elements;
  self->bytes[self->n++] = bytes;
  self->all_elements += elements;
  self->all_bytes += bytes;
}

static void
pop (InFlight *self)
{
  self->all_elements -= self->elements[self->first];
  self->all_bytes -= self->bytes[self->first++];
}

/* Bytes of activations, gathered weights and gradients in flight that are live at once in the
 * backward pass. As the products of a layer run, the layers before it still keep their activations,
 * and reductions of later ones are waited for only when more than a communication unit is in
 * flight. The output layer's gradients are left out where they are reduced first: without them no
 * other reduction ends later. A prediction module's layer is reduced before them. */
static guint64
backward_bytes (const PlanCase *of)
{
  const PlanStage first = plan_stage_of (of->model, of->stack, &of->plan, 0);
  const PlanModel part = plan_stage_model (&first, of->model);
  const guint64 limit = (guint64)plan_layout_comm_unit (&of->layout, of->stack, &of->plan);
  const gint64 end = MAX (part.layers - LAYERS_LOOKED_AT, 0), seq = of->plan.value[PLAN_SEQ];
  Unit units[PLAN_N_LAYER_KINDS] = { 0 };
  InFlight in_flight = { .n = 0 };
  guint64 most = 0;
  if (!goes_by_unit (of) || has_pools (of) || first.modules > 1
      || of->plan.value[PLAN_OFFLOAD_LAYERS] > 0)
    return 0;
  if (gathers_shares (of) && limit < 2) /* a layer's weights are not all there at once */
    return 0;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    if (of->graphs.layers[kind] > 0)
      units[kind] = unit_of_kind (of, kind);
  /* Once a reduction is waited for there are no more in flight at lower layers. */
  for (gint64 layer = part.layers - 1; layer >= end && in_flight.first < 2; layer--)
    {
      const PlanStage before = { .layers = layer };
      const Unit *unit = &units[plan_model_layer_kind (&part, layer, seq)];
      guint64 bytes = activation_bytes (of, &before) + in_flight.all_bytes + unit->most;
      for (gint64 u = layer; u >= layer - units_ahead (of, layer); u--)
        bytes += units[plan_model_layer_kind (&part, u, seq)].weights;
      most = MAX (most, bytes);
      while (in_flight.all_elements > limit)
        pop (&in_flight);
      push (&in_flight, unit->elements, unit->buckets);
      if (layer == part.layers - 1 && first.modules > 0)
        push (&in_flight, of->layout.buckets[PLAN_BUCKET_HEAD].padded, 0);
    }
  return most;
}

/* Bytes of the updated weights of one kind of bucket, rounded to the format of activations: all are
 * there at once before any is quantised (lower-step.c). */
static guint64
rounded_bytes (const PlanCase *of)
{
  const Plan *plan = &of->plan;
  const guint64 replicas = plan->value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM
                               ? (guint64)plan->value[PLAN_DP_OUTER]
                               : 1;
  guint64 most = 0;
  if (plan->value[PLAN_TASK] != PLAN_TASK_TRAIN || plan->value[PLAN_OFFLOAD_OPTIMIZER] > 0)
    return 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_layout_quantises (kind, of->stack, plan))
      {
        const guint64 shards
            = plan_shards_optimizer (plan) ? ranks_of_bucket (of, kind) * replicas : 1;
        const guint64 bytes
            = plan_dtype_bytes (of->graphs.sizes.compute, of->layout.buckets[kind].padded / shards);
        most = MAX (most, bytes * (guint64)of->layout.buckets[kind].units);
      }
  return most;
}

/* What is there for the whole of a step. */
static guint64
lasting_bytes (const PlanCase *of)
{
  return state_bytes (of) + derived_bytes (of) + plan_bound_communicator_bytes (of)
         + of->stack->memory.fixed_bytes + of->stack->memory.context_bytes;
}

guint64
plan_bound_memory_of_loss (const PlanCase *of)
{
  const guint64 passing = whole_bytes (of) + passing_bytes (of), rounded = rounded_bytes (of);
  return lasting_bytes (of) + MAX (passing, rounded);
}

guint64
plan_bound_memory (const PlanCase *of)
{
  const guint64 passing = passing_bytes (of), backward = backward_bytes (of);
  const guint64 pass = whole_bytes (of) + MAX (passing, backward), rounded = rounded_bytes (of);
  return lasting_bytes (of) + MAX (pass, rounded) + pool_bytes (of);
}

void
plan_bound_distil (Plan *resolved)
{
  resolved->value[PLAN_DOUBLE_BUFFER] = PLAN_DOUBLE_BUFFER_OFF;
  resolved->value[PLAN_NCCL_UB] = PLAN_NCCL_UB_OFF;
  resolved->value[PLAN_COMM_UNIT] = PLAN_UNSET;
  resolved->value[PLAN_REDUCE_ALGO] = PLAN_REDUCE_ALGO_RS;
}

gint64
plan_bound_time_ns (const PlanModel *model, const PlanCluster *cluster, const Plan *resolved)
{
  const gint64 *value = resolved->value;
  const double peak = cluster->peak_flops[plan_field_dtype (resolved, PLAN_COMPUTE)];
  const double tokens = (double)(value[PLAN_GBS] * value[PLAN_SEQ]);
  const gint64 attended = plan_attended_tokens (resolved);
  const double flops = tokens * plan_model_flops_per_token (model, attended, model->vocab);
  if (peak <= 0 || value[PLAN_TASK] != PLAN_TASK_TRAIN || cluster->kind == PLAN_DEVICE_CPU)
    return 0;
  return (gint64)(1e9 * flops / (double)plan_cluster_devices (cluster) / peak);
}

#define SET(plan, field, id) ((plan)->value[PLAN_##field] = PLAN_##field##_##id)

/* Sets gradients to bf16 whatever the stack. A bound may use a plan that its stack would refuse. */
static void
narrow (Plan *plan)
{
  SET (plan, MAIN_GRADS, BF16);
  SET (plan, GRAD_COMM, BF16);
  SET (plan, PRECISION_AWARE, ON);
}

static void
shard (Plan *plan, gint64 strategy)
{
  plan->value[PLAN_STRATEGY] = strategy;
  plan->value[PLAN_DP_OUTER] = 1;
  SET (plan, OUTER_STRATEGY, NO_SHARD);
  SET (plan, DOUBLE_BUFFER, OFF);
  SET (plan, NCCL_UB, OFF);
  SET (plan, AG_GROUP, OFF);
}

void
plan_bound_leanest (const Plan *plan, const PlanLean *lean, Plan *out_plan)
{
  Plan least = *plan;
  /* Stages of PyTorch's pipelines keep their weights gathered. */
  const gboolean keeps_weights
      = plan->value[PLAN_PP] > 1 && plan->value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_FSDP2;
  if (lean->strategy != PLAN_UNSET)
    shard (&least,
           keeps_weights ? MIN (lean->strategy, PLAN_STRATEGY_OPTIM_GRADS) : lean->strategy);
  if (lean->has_bf16)
    narrow (&least);
  else if (lean->has_bf16_comm)
    SET (&least, GRAD_COMM, BF16);
  if (lean->moment != PLAN_UNSET)
    least.value[PLAN_EXP_AVG] = least.value[PLAN_EXP_AVG_SQ] = lean->moment;
  *out_plan = least;
}

void
plan_bound_relax (const Plan *plan, const PlanCluster *cluster, gint64 micro_batches,
                  Plan *out_plan)
{
  Plan relaxed = *plan;
  const gint64 stack = plan->value[PLAN_STACK] % PLAN_STACK_BASE;
  /* PyTorch's FSDP always shards gradients, and the ranks over which it does so decide how long a
   * micro batch's reductions take. */
  if (stack == PLAN_STACK_FSDP1 || stack == PLAN_STACK_FSDP2)
    SET (&relaxed, STRATEGY, OPTIM_GRADS);
  else
    shard (&relaxed, PLAN_STRATEGY_NO_SHARD);
  SET (&relaxed, PRECISION_AWARE, OFF);
  /* Where the relaxed plan shards no gradients but this one does, GEMMs still write gradients as in
   * this plan. Only an optimizer that takes gradients in their own format has them in bf16. */
  if (stack == PLAN_STACK_MEGATRON_FSDP || stack == PLAN_STACK_NATIVE)
    {
      SET (&relaxed, GRAD_ACCUM_FUSION, OFF);
      if (plan->value[PLAN_OPTIMIZER] == PLAN_OPTIMIZER_ADAMW)
        narrow (&relaxed);
    }
  if (stack == PLAN_STACK_MEGATRON || stack == PLAN_STACK_MEGATRON_FSDP
      || stack == PLAN_STACK_NATIVE)
    {
      SET (&relaxed, EXP_AVG, FP32);
      SET (&relaxed, EXP_AVG_SQ, FP32);
    }
  SET (&relaxed, PARAM_GATHER, COMPUTE);
  SET (&relaxed, KEEP_TRANSPOSE, OFF);
  SET (&relaxed, FUSED_MASTERS, OFF);
  SET (&relaxed, REDUCE_ALGO, RS);
  SET (&relaxed, FINE_GRAINED, OFF);
  SET (&relaxed, SHARP, OFF);
  SET (&relaxed, OVERLAP_GRAD_REDUCE, ON);
  SET (&relaxed, OVERLAP_PARAM_GATHER, ON);
  SET (&relaxed, SYNC_EVERY_MICRO_BATCH, OFF);
  relaxed.value[PLAN_COMM_UNIT] = PLAN_UNSET;
  relaxed.value[PLAN_OFFLOAD_OPTIMIZER] = 0;
  relaxed.value[PLAN_GBS]
      = micro_batches * MAX (relaxed.value[PLAN_MBS], 1) * plan_data_parallel (&relaxed, cluster);
  *out_plan = relaxed;
}

/* comm_unit and recompute are set to their least demanding values: a gather that is issued ahead
 * may cost nothing, and recomputed activations may need weights a second time. */
void
plan_bound_distil_exchange (const Plan *resolved, Plan *out_plan)
{
  Plan plan = *resolved;
  plan.value[PLAN_COMM_UNIT] = 1;
  plan.value[PLAN_MBS] = plan.value[PLAN_GBS] = plan.value[PLAN_LOSS_CHUNKS] = 1;
  if (plan.value[PLAN_NCCL_UB] == PLAN_NCCL_UB_OFF)
    SET (&plan, DOUBLE_BUFFER, OFF);
  SET (&plan, EXP_AVG, FP32);
  SET (&plan, EXP_AVG_SQ, FP32);
  SET (&plan, RECOMPUTE, NONE);
  SET (&plan, RECOMPUTE_METHOD, UNIFORM);
  plan.value[PLAN_RECOMPUTE_MODULES] = 1 << PLAN_RECOMPUTE_MODULES_CORE_ATTN;
  plan.value[PLAN_RECOMPUTE_LAYERS] = 1;
  plan.value[PLAN_OFFLOAD_LAYERS] = plan.value[PLAN_OFFLOAD_MODULES] = 0;
  plan.value[PLAN_OFFLOAD_OPTIMIZER] = 0;
  SET (&plan, CUDA_GRAPH, OFF);
  plan.value[PLAN_GRAPH_MODULES] = 0;
  *out_plan = plan;
}

void
plan_bound_exchange (const Plan *resolved, const PlanCluster *cluster, gint64 micro_batches,
                     Plan *out_plan)
{
  plan_bound_distil_exchange (resolved, out_plan);
  out_plan->value[PLAN_GBS] = micro_batches * plan_data_parallel (out_plan, cluster);
}
