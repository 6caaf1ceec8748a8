/* SPDX-License-Identifier: Apache-2.0 */
/* Experts: the router that assigns tokens to them, sorting rows by expert and back, and their
 * biases. */
#include "config.h"

#include "exec/cpu/kernels-cpu-experts.h"
#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cpu/row-map.h"

#include <string.h>

#define BLOCK EXEC_CPU_BLOCK

/* Added to the sum of scores that scores are divided by, so that a sum of 0 is no division by zero:
 * as in Megatron-LM (moe_utils.py, topk_routing_with_score_function) and models of Hugging Face. */
#define LEAST_SUM 1e-20f

/* --- the router --------------------------------------------------------------------------- */

/* Chooses the `topk` largest of `n` keys; among equal keys, and NaNs, the first. is_open has an
 * entry for each group of `size` keys: whether these may be chosen; NULL: all may. */
static void
choose (const float *keys, gint64 n, gint64 topk, const guint8 *is_open, gint64 size,
        guint8 *out_map)
{
  memset (out_map, 0, (gsize)n);
  for (gint64 k = 0; k < topk; k++)
    {
      gint64 best = -1;

      for (gint64 e = 0; e < n; e++)
        if (!out_map[e] && (is_open == NULL || is_open[e / size])
            && (best < 0 || keys[e] > keys[best]))
          best = e;
      out_map[best] = 1;
    }
}

/* The score of a group of experts: its largest key (DeepSeek-V2), or the sum of its two largest
 * keys (DeepSeek-V3, which adds a bias to scores to choose). */
static float
group_key (const float *keys, gint64 size, gboolean is_sum)
{
  float best = -INFINITY, next = -INFINITY;

  for (gint64 e = 0; e < size; e++)
    if (keys[e] > best)
      {
        next = best;
        best = keys[e];
      }
    else if (keys[e] > next)
      next = keys[e];
  return is_sum && size > 1 ? best + next : best;
}

/* Chooses the experts of a row: first the groups that they may come from, if there are groups, then
 * experts within these. */
static void
choose_experts (const ExecArgs *args, const float *keys, guint8 *out_map)
{
  const gint64 experts = args->op->dims[PLAN_DIM_ROUTE_experts],
               topk = args->op->dims[PLAN_DIM_ROUTE_topk];
  const gint64 groups = (gint64)exec_manner (args, PLAN_MANNER_GROUPS);
  const gint64 size = groups > 0 ? experts / groups : experts;
  g_autofree float *of_group = g_new (float, experts);
  g_autofree guint8 *is_open = g_new (guint8, experts);

  for (gint64 g = 0; g < groups; g++)
    of_group[g] = group_key (keys + g * size, size, args->ptr[PLAN_REF_ROUTE_bias] != NULL);
  if (groups > 0)
    choose (of_group, groups, (gint64)exec_manner (args, PLAN_MANNER_GROUP_TOPK), NULL, 1, is_open);
  choose (keys, experts, topk, groups > 0 ? is_open : NULL, size, out_map);
}

static void
softmax (const float *logits, gint64 experts, float *out)
{
  float max = -INFINITY, sum = 0;

  for (gint64 e = 0; e < experts; e++)
    if (logits[e] > max)
      max = logits[e];
  for (gint64 e = 0; e < experts; e++)
    {
      out[e] = EXEC_CPU_EXP (logits[e] - max);
      sum += out[e];
    }
  for (gint64 e = 0; e < experts; e++)
    out[e] /= sum;
}

/* The score of an expert by its logit alone: sigmoid, or sqrt (log (1 + e^x)). */
static float
score_of (PlanRouterScore kind, float x)
{
  float small = EXEC_CPU_EXP (-fabsf (x));

  if (kind == PLAN_ROUTER_SIGMOID)
    return x > 0 ? 1.0f / (1.0f + small) : small / (1.0f + small);
  return sqrtf ((x > 0 ? x : 0) + log1pf (small));
}

/* The derivative of score_of, in terms of the score. */
static float
slope_of (PlanRouterScore kind, float score)
{
  if (kind == PLAN_ROUTER_SIGMOID)
    return score * (1.0f - score);
  return score > 0 ? -expm1f (-score * score) / (2.0f * score) : 0;
}

/* The scores of all experts: their softmax, or a function of each logit alone. */
static void
scores_of (PlanRouterScore kind, const float *logits, gint64 experts, float *out)
{
  if (kind == PLAN_ROUTER_SOFTMAX)
    softmax (logits, experts, out);
  else
    for (gint64 e = 0; e < experts; e++)
      out[e] = score_of (kind, logits[e]);
}

/* Whether scores are divided by the sum of those chosen. That makes a softmax over all experts one
 * over those chosen. */
static gboolean
divides (const ExecConstants *c, gint64 topk)
{
  return c->router_score == PLAN_ROUTER_SOFTMAX ? !c->pre_softmax : topk > 1;
}

/* What scores of the chosen experts are divided by. */
static float
divisor_of (const ExecConstants *c, const float *scores, const guint8 *map, gint64 experts,
            gint64 topk)
{
  float sum = 0;

  if (!divides (c, topk))
    return 1;
  for (gint64 e = 0; e < experts; e++)
    if (map[e])
      sum += scores[e];
  return sum + LEAST_SUM;
}

/* What experts are chosen by: logits; or, in `out`, scores and biases. */
static const float *
keys_of (const ExecArgs *args, const float *logits, float *out)
{
  const gint64 experts = args->op->dims[PLAN_DIM_ROUTE_experts];
  const float *bias = args->ptr[PLAN_REF_ROUTE_bias];

  if (bias == NULL)
    return logits;
  scores_of (args->constants->router_score, logits, experts, out);
  for (gint64 e = 0; e < experts; e++)
    out[e] += bias[e];
  return out;
}

void
exec_cpu_route (const ExecArgs *args)
{
  const gint64 rows = args->op->dims[PLAN_DIM_ROUTE_rows],
               experts = args->op->dims[PLAN_DIM_ROUTE_experts],
               topk = args->op->dims[PLAN_DIM_ROUTE_topk];
  const ExecConstants *c = args->constants;
  const float scale = (float)c->router_scale;
  float *loads = args->ptr[PLAN_REF_ROUTE_loads];
  g_autofree float *storage = g_new (float, experts), *scores = g_new (float, experts);

  for (gint64 row = 0; row < rows; row++)
    {
      const guint64 at = (guint64)(row * experts);
      guint8 *map = (guint8 *)args->ptr[PLAN_REF_ROUTE_map] + at;
      const float *logits
          = exec_cpu_read_ref (args, PLAN_REF_ROUTE_logits, at, (guint64)experts, storage);

      choose_experts (args, keys_of (args, logits, scores), map);
      for (gint64 e = 0; loads != NULL && e < experts; e++)
        loads[e] += map[e];
      scores_of (c->router_score, logits, experts, scores);
      exec_cpu_write_ref (args, PLAN_REF_ROUTE_saved, at, (guint64)experts, scores);
      const float divisor = divisor_of (c, scores, map, experts, topk);
      for (gint64 e = 0; e < experts; e++)
        scores[e] = map[e] ? scores[e] / divisor * scale : 0;
      exec_cpu_write_ref (args, PLAN_REF_ROUTE_probs, at, (guint64)experts, scores);
    }
}

/* Turns the gradients of routing weights into gradients of logits, in place. */
static void
route_row_bwd (const ExecConstants *c, const float *saved, const guint8 *map, gint64 experts,
               gint64 topk, float *grad)
{
  const gboolean is_softmax = c->router_score == PLAN_ROUTER_SOFTMAX;
  const gboolean is_divided = divides (c, topk);
  const float divisor = divisor_of (c, saved, map, experts, topk);
  float mean = 0;

  for (gint64 e = 0; e < experts; e++)
    {
      grad[e] = map[e] ? grad[e] * (float)c->router_scale : 0;
      mean += grad[e] * (saved[e] / divisor);
    }
  for (gint64 e = 0; e < experts; e++)
    if (is_softmax)
      grad[e] = map[e] || !is_divided ? saved[e] / divisor * (grad[e] - mean) : 0;
    else if (map[e])
      grad[e] = (is_divided ? (grad[e] - mean) / divisor : grad[e])
                * slope_of (c->router_score, saved[e]);
}

/* Adds to the gradients of a row's logits those of the auxiliary loss, whose gradient by each
 * expert's probability is in aux_grads. Probabilities are a softmax, or scores over their sum. */
static void
balance_row_bwd (const ExecConstants *c, const float *saved, const float *aux_grads, gint64 experts,
                 float *grad)
{
  const gboolean is_softmax = c->router_score == PLAN_ROUTER_SOFTMAX;
  float sum = 0, mean = 0;

  for (gint64 e = 0; e < experts; e++)
    sum += saved[e];
  sum = is_softmax ? 1 : sum + LEAST_SUM;
  for (gint64 e = 0; e < experts; e++)
    mean += aux_grads[e] * (saved[e] / sum);
  for (gint64 e = 0; e < experts; e++)
    grad[e] += (aux_grads[e] - mean) / sum
               * (is_softmax ? saved[e] : slope_of (c->router_score, saved[e]));
}

/* The gradient of a micro batch's auxiliary loss (Fedus and others 2021, as Megatron-LM scales it;
 * see exec_aux_loss_unit) by a row's probability of each expert. How many rows an expert got counts
 * as a constant. The caller frees; NULL: there is no such loss. */
static float *
aux_grads_of (const ExecArgs *args)
{
  const gint64 rows = args->op->dims[PLAN_DIM_ROUTE_BWD_rows],
               experts = args->op->dims[PLAN_DIM_ROUTE_BWD_experts],
               topk = args->op->dims[PLAN_DIM_ROUTE_BWD_topk];
  const guint8 *map = args->ptr[PLAN_REF_ROUTE_BWD_map];
  const gint64 counted = (gint64)exec_manner (args, PLAN_MANNER_COUNTED);
  const float unit = exec_aux_loss_unit (args, counted > 0 ? counted : rows, experts, topk);
  float *aux_grads;

  if (unit == 0)
    return NULL;
  aux_grads = g_new0 (float, experts);
  if (counted > 0)
    memcpy (aux_grads, args->ptr[PLAN_REF_ROUTE_BWD_counts], (gsize)experts * sizeof *aux_grads);
  for (gint64 i = 0; counted == 0 && i < rows * experts; i++)
    aux_grads[i % experts] += map[i];
  for (gint64 e = 0; e < experts; e++)
    aux_grads[e] *= unit;
  return aux_grads;
}

void
exec_cpu_route_bwd (const ExecArgs *args)
{
  const gint64 rows = args->op->dims[PLAN_DIM_ROUTE_BWD_rows],
               experts = args->op->dims[PLAN_DIM_ROUTE_BWD_experts],
               topk = args->op->dims[PLAN_DIM_ROUTE_BWD_topk];
  g_autofree float *storage = g_new (float, experts), *grad = g_new (float, experts);
  g_autofree float *aux_grads = aux_grads_of (args);

  for (gint64 row = 0; row < rows; row++)
    {
      const guint64 at = (guint64)(row * experts), n = (guint64)experts;
      const guint8 *map = (const guint8 *)args->ptr[PLAN_REF_ROUTE_BWD_map] + at;
      const float *saved = exec_cpu_read_ref (args, PLAN_REF_ROUTE_BWD_saved, at, n, storage);

      memmove (grad, exec_cpu_read_ref (args, PLAN_REF_ROUTE_BWD_dprobs, at, n, grad),
               n * sizeof *grad);
      route_row_bwd (args->constants, saved, map, experts, topk, grad);
      if (aux_grads != NULL)
        balance_row_bwd (args->constants, saved, aux_grads, experts, grad);
      exec_cpu_write_ref (args, PLAN_REF_ROUTE_BWD_dlogits, at, n, grad);
    }
}

void
exec_cpu_count_routes (const ExecArgs *args)
{
  const gint64 rows = args->op->dims[PLAN_DIM_COUNT_ROUTES_rows],
               experts = args->op->dims[PLAN_DIM_COUNT_ROUTES_experts];
  const guint8 *map = args->ptr[PLAN_REF_COUNT_ROUTES_map];
  float *counts = args->ptr[PLAN_REF_COUNT_ROUTES_counts];

  memset (counts, 0, (gsize)experts * sizeof *counts);
  for (gint64 i = 0; i < rows * experts; i++)
    counts[i % experts] += map[i];
}

/* --- capacity ----------------------------------------------------------------------------- */

/* A token that chose an expert. */
typedef struct
{
  float key; /* those with the largest stay */
  gint32 row;
} Candidate;

static int
compare_candidates (const void *a, const void *b)
{
  const Candidate *x = a, *y = b;

  return x->key != y->key ? (x->key < y->key ? 1 : -1) : x->row - y->row;
}

/* Lists the tokens that chose an expert, best first: of equal ones, and of NaNs, which count as 0,
 * the first. */
static gint64
list_candidates (const ExecArgs *args, gint64 expert, Candidate *out)
{
  const gint64 rows = args->op->dims[PLAN_DIM_DROP_TOKENS_rows],
               experts = args->op->dims[PLAN_DIM_DROP_TOKENS_experts];
  const guint8 *routes = args->ptr[PLAN_REF_DROP_TOKENS_routes];
  const gboolean by_position = exec_manner (args, PLAN_MANNER_BY_POSITION) > 0;
  gint64 n = 0;

  for (gint64 row = 0; row < rows; row++)
    {
      const guint64 at = (guint64)(row * experts + expert);
      float storage;
      const float prob = *exec_cpu_read_ref (args, PLAN_REF_DROP_TOKENS_in, at, 1, &storage);

      if (routes[at])
        out[n++] = (Candidate){ prob > 0 && !by_position ? prob : 0, (gint32)row };
    }
  qsort (out, (gsize)n, sizeof *out, compare_candidates);
  return n;
}

void
exec_cpu_drop_tokens (const ExecArgs *args)
{
  const gint64 rows = args->op->dims[PLAN_DIM_DROP_TOKENS_rows],
               experts = args->op->dims[PLAN_DIM_DROP_TOKENS_experts],
               capacity = args->op->dims[PLAN_DIM_DROP_TOKENS_capacity];
  guint8 *map = args->ptr[PLAN_REF_DROP_TOKENS_map];
  g_autofree Candidate *of_expert = g_new (Candidate, rows);
  g_autofree float *storage = g_new (float, experts);

  memcpy (map, args->ptr[PLAN_REF_DROP_TOKENS_routes], (gsize)(rows * experts));
  for (gint64 e = 0; e < experts; e++)
    {
      const gint64 n = list_candidates (args, e, of_expert);

      for (gint64 i = capacity; i < n; i++)
        map[of_expert[i].row * experts + e] = EXEC_ROUTE_DROPPED;
    }
  for (gint64 row = 0; row < rows; row++)
    {
      const guint64 at = (guint64)(row * experts), n = (guint64)experts;

      memmove (storage, exec_cpu_read_ref (args, PLAN_REF_DROP_TOKENS_in, at, n, storage),
               n * sizeof *storage);
      for (gint64 e = 0; e < experts; e++)
        storage[e] = map[row * experts + e] == EXEC_ROUTE_TAKEN ? storage[e] : 0;
      exec_cpu_write_ref (args, PLAN_REF_DROP_TOKENS_probs, at, n, storage);
    }
}

/* --- sorting rows ------------------------------------------------------------------------- */

/* The first place for rows of an expert, at `sorted` or behind it. */
static gint64
round_up (gint64 sorted, gint64 multiple)
{
  return (sorted + multiple - 1) / multiple * multiple;
}

/* How many rows each expert has: its own, or, with a capacity, as many as that is, and rows of
 * zeros up to a multiple. */
typedef struct
{
  gint64 capacity, multiple;
} Filling;

static gint64
rows_taken (const Filling *fill, gint64 rows)
{
  return round_up (fill->capacity > 0 ? fill->capacity : rows, fill->multiple);
}

/* Makes the row map of the sender. `routes` says which experts each row goes to; the same number of
 * experts lies on each of `ranks` ranks, and each rank has room for `room` rows. */
static void
map_routes (const guint8 *routes, gint64 rows, gint64 ranks, gint64 room, const Filling *fill,
            ExecRowMap *out, gint32 *most)
{
  const gint64 experts = out->groups, each = experts / ranks;
  g_autofree gint32 *filled = g_new0 (gint32, rows);

  for (gint64 rank = 0; rank < ranks; rank++)
    {
      gint64 n = 0, all = 0;

      for (gint64 e = rank * each; e < (rank + 1) * each; e++)
        {
          const gint64 first = n;

          for (gint64 row = 0; row < rows; row++)
            {
              const gint64 sorted = rank * room + n;

              if (routes[row * experts + e] != EXEC_ROUTE_TAKEN)
                continue;
              out->place[row * out->slots + filled[row]++] = n < room ? (gint32)sorted : -1;
              if (n++ >= room)
                continue;
              out->source[sorted] = (gint32)(row * experts + e);
              out->counts[e]++;
            }
          out->counts[e] = (gint32)rows_taken (fill, out->counts[e]);
          all += n - first;
          n = first + rows_taken (fill, n - first);
        }
      *most = MAX (*most, (gint32)all);
    }
}

/* How many rows of an expert came from a rank. */
static gint64
rows_from (const gint32 *came, gint64 rank, gint64 e, gint64 experts, const Filling *fill)
{
  return came != NULL ? came[rank * experts + e] : fill->capacity;
}

/* Makes the row map of the receiver, which sorts the rows that came by expert; came[rank][expert]
 * says how many came; NULL: as many as the capacity. */
static void
map_arrivals (const gint32 *came, gint64 ranks, gint64 room, const Filling *fill, ExecRowMap *out)
{
  const gint64 experts = out->groups;
  gint64 sorted = 0;

  for (gint64 e = 0; e < experts; e++)
    {
      for (gint64 rank = 0; rank < ranks; rank++)
        {
          gint64 row = rank * room;

          for (gint64 before = 0; before < e; before++)
            row += rows_from (came, rank, before, experts, fill);
          const gint64 n = rows_from (came, rank, e, experts, fill);

          for (gint64 i = 0; i < n; i++, row++, sorted++)
            {
              out->source[sorted] = (gint32)row;
              out->place[row] = (gint32)sorted;
            }
          out->counts[e] += (gint32)n;
        }
      out->counts[e] = (gint32)round_up (out->counts[e], fill->multiple);
      sorted = round_up (sorted, fill->multiple);
    }
}

void
exec_cpu_row_map (const ExecArgs *args)
{
  const gint64 rows = args->op->dims[PLAN_DIM_ROW_MAP_rows],
               experts = args->op->dims[PLAN_DIM_ROW_MAP_experts],
               ranks = args->op->dims[PLAN_DIM_ROW_MAP_ranks],
               entries = args->op->dims[PLAN_DIM_ROW_MAP_entries];
  const Filling fill = { (gint64)exec_manner (args, PLAN_MANNER_CAPACITY),
                         MAX ((gint64)exec_manner (args, PLAN_MANNER_MULTIPLE), 1) };
  const guint8 *routes = args->ptr[PLAN_REF_ROW_MAP_routes];
  gint32 *map = args->ptr[PLAN_REF_ROW_MAP_map];
  gint64 slots = routes != NULL ? 0 : 1;

  for (gint64 e = 0; routes != NULL && e < experts; e++)
    slots += routes[e] != 0;
  const gint64 sorted = entries - PLAN_ROW_MAP_HEAD - rows * slots - experts;
  memset (map, 0xff, (gsize)entries * sizeof *map);
  map[EXEC_ROW_MAP_SLOTS] = (gint32)slots;
  map[EXEC_ROW_MAP_COLUMNS] = routes != NULL ? (gint32)experts : 1;
  map[EXEC_ROW_MAP_MOST] = map[EXEC_ROW_MAP_DROPPED] = 0;
  for (gint64 i = 0; routes != NULL && i < rows * experts; i++)
    map[EXEC_ROW_MAP_DROPPED] += routes[i] == EXEC_ROUTE_DROPPED;
  ExecRowMap out = exec_row_map_of (map, rows, sorted, entries);
  memset (out.counts, 0, (gsize)experts * sizeof *out.counts);
  if (routes != NULL)
    map_routes (routes, rows, ranks, sorted / ranks, &fill, &out, &map[EXEC_ROW_MAP_MOST]);
  else
    map_arrivals (args->ptr[PLAN_REF_ROW_MAP_came], ranks, rows / ranks, &fill, &out);
}

void
exec_cpu_permute (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  const gint64 sorted = dims[PLAN_DIM_PERMUTE_out_rows], cols = dims[PLAN_DIM_PERMUTE_cols];
  const ExecRowMap map
      = exec_row_map_of (args->ptr[PLAN_REF_PERMUTE_map], dims[PLAN_DIM_PERMUTE_rows], sorted,
                         dims[PLAN_DIM_PERMUTE_entries]);
  const guint64 bytes = plan_dtype_bytes (args->dtype[PLAN_REF_PERMUTE_out], (guint64)cols);
  guint8 *out = args->ptr[PLAN_REF_PERMUTE_out];
  const guint8 *in = args->ptr[PLAN_REF_PERMUTE_in];
  const float none = 0;
  float share;

  g_assert (args->dtype[PLAN_REF_PERMUTE_out] == args->dtype[PLAN_REF_PERMUTE_in]);
  for (gint64 i = 0; i < sorted; i++)
    if (map.source[i] >= 0)
      memcpy (out + (guint64)i * bytes, in + (guint64)(map.source[i] / map.columns) * bytes, bytes);
    else
      memset (out + (guint64)i * bytes, 0, bytes);
  for (gint64 i = 0; args->ptr[PLAN_REF_PERMUTE_row_probs] != NULL && i < sorted; i++)
    exec_cpu_write_ref (args, PLAN_REF_PERMUTE_row_probs, (guint64)i, 1,
                        map.source[i] < 0 ? &none
                                          : exec_cpu_read_ref (args, PLAN_REF_PERMUTE_probs,
                                                               (guint64)map.source[i], 1, &share));
}

/* Adds up, in fp32 and in the order of experts, the sorted rows that came from one row. */
static void
gather_row (const ExecArgs *args, const gint32 *place, gint64 slots, guint64 row, guint64 cols)
{
  float storage[BLOCK], sum[BLOCK];

  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      const guint64 n = MIN (BLOCK, cols - at);

      memset (sum, 0, sizeof sum);
      for (gint64 k = 0; k < slots; k++)
        {
          if (place[k] < 0)
            continue;
          const float *in = exec_cpu_read_ref (args, PLAN_REF_UNPERMUTE_in,
                                               (guint64)place[k] * cols + at, n, storage);

          for (guint64 i = 0; i < n; i++)
            sum[i] += in[i];
        }
      exec_cpu_write_ref (args, PLAN_REF_UNPERMUTE_out, row * cols + at, n, sum);
    }
}

/* Puts gradients of routing weights back to their row and expert; those of experts that were not
 * chosen are 0. */
static void
gather_shares (const ExecArgs *args, const ExecRowMap *map, gint64 rows, gint64 sorted)
{
  float share;

  memset (
      args->ptr[PLAN_REF_UNPERMUTE_dprobs], 0,
      plan_dtype_bytes (args->dtype[PLAN_REF_UNPERMUTE_dprobs], (guint64)(rows * map->columns)));
  for (gint64 i = 0; i < sorted; i++)
    if (map->source[i] >= 0)
      exec_cpu_write_ref (
          args, PLAN_REF_UNPERMUTE_dprobs, (guint64)map->source[i], 1,
          exec_cpu_read_ref (args, PLAN_REF_UNPERMUTE_row_dprobs, (guint64)i, 1, &share));
}

void
exec_cpu_unpermute (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  const gint64 rows = dims[PLAN_DIM_UNPERMUTE_rows], sorted = dims[PLAN_DIM_UNPERMUTE_in_rows];
  const ExecRowMap map = exec_row_map_of (args->ptr[PLAN_REF_UNPERMUTE_map], rows, sorted,
                                          dims[PLAN_DIM_UNPERMUTE_entries]);

  for (gint64 row = 0; row < rows; row++)
    gather_row (args, map.place + row * map.slots, map.slots, (guint64)row,
                (guint64)dims[PLAN_DIM_UNPERMUTE_cols]);
  if (args->ptr[PLAN_REF_UNPERMUTE_dprobs] != NULL)
    gather_shares (args, &map, rows, sorted);
}

/* --- rows times shares -------------------------------------------------------------------- */

PLAN_SAME_DIM (SCALE_ROWS, SCALE_ROWS_BWD, rows);
PLAN_SAME_DIM (SCALE_ROWS, SCALE_ROWS_BWD, cols);

static void
scale_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  const guint64 cols = (guint64)args->op->dims[PLAN_DIM_SCALE_ROWS_cols];
  float storage[BLOCK], out[BLOCK], share;

  for (guint64 row = first; row < end; row++)
    {
      const float p = *exec_cpu_read_ref (args, PLAN_REF_SCALE_ROWS_probs, row, 1, &share);

      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          const guint64 n = MIN (BLOCK, cols - at);
          const float *in
              = exec_cpu_read_ref (args, PLAN_REF_SCALE_ROWS_in, row * cols + at, n, storage);

          for (guint64 i = 0; i < n; i++)
            out[i] = in[i] * p;
          exec_cpu_write_ref (args, PLAN_REF_SCALE_ROWS_out, row * cols + at, n, out);
        }
    }
}

/* Also computes the gradient of each row's share, a sum over the row's columns in order. */
static void
scale_rows_bwd (const ExecArgs *args, guint64 first, guint64 end)
{
  const guint64 cols = (guint64)args->op->dims[PLAN_DIM_SCALE_ROWS_BWD_cols];
  float storage[BLOCK], dout_storage[BLOCK], din[BLOCK], share;

  for (guint64 row = first; row < end; row++)
    {
      const float p = *exec_cpu_read_ref (args, PLAN_REF_SCALE_ROWS_BWD_probs, row, 1, &share);
      float sum = 0;

      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          const guint64 n = MIN (BLOCK, cols - at);
          const float *in
              = exec_cpu_read_ref (args, PLAN_REF_SCALE_ROWS_BWD_in, row * cols + at, n, storage);
          const float *dout = exec_cpu_read_ref (args, PLAN_REF_SCALE_ROWS_BWD_dout,
                                                 row * cols + at, n, dout_storage);

          for (guint64 i = 0; i < n; i++)
            {
              sum += dout[i] * in[i];
              din[i] = dout[i] * p;
            }
          exec_cpu_write_ref (args, PLAN_REF_SCALE_ROWS_BWD_din, row * cols + at, n, din);
        }
      exec_cpu_write_ref (args, PLAN_REF_SCALE_ROWS_BWD_dprobs, row, 1, &sum);
    }
}

static void
spread_scaled (const ExecArgs *args, ExecCpuRange run)
{
  const gint64 *dims = args->op->dims;

  exec_cpu_spread (args, (guint64)dims[PLAN_DIM_SCALE_ROWS_rows],
                   (guint64)dims[PLAN_DIM_SCALE_ROWS_cols], run);
}

void
exec_cpu_scale_rows (const ExecArgs *args)
{
  spread_scaled (args, scale_rows);
}

void
exec_cpu_scale_rows_bwd (const ExecArgs *args)
{
  spread_scaled (args, scale_rows_bwd);
}

/* --- biases of experts -------------------------------------------------------------------- */

PLAN_SAME_DIM (ADD_EXPERT_BIAS, ADD_EXPERT_BIAS_BWD, rows);
PLAN_SAME_DIM (ADD_EXPERT_BIAS, ADD_EXPERT_BIAS_BWD, cols);
PLAN_SAME_DIM (ADD_EXPERT_BIAS, ADD_EXPERT_BIAS_BWD, groups);

/* The share of a row, or 1 where no shares are given. */
static float
share_of (const ExecArgs *args, guint operand, guint64 row)
{
  float share;

  return args->ptr[operand] != NULL ? *exec_cpu_read_ref (args, operand, row, 1, &share) : 1.0f;
}

/* out += share * bias of one row. */
static void
add_bias_row (const ExecArgs *args, guint64 row, guint64 group, guint64 cols)
{
  const float share = share_of (args, PLAN_REF_ADD_EXPERT_BIAS_probs, row);
  float storage[BLOCK], bias_storage[BLOCK], out[BLOCK];

  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      const guint64 n = MIN (BLOCK, cols - at);
      const float *bias = exec_cpu_read_ref (args, PLAN_REF_ADD_EXPERT_BIAS_bias, group * cols + at,
                                             n, bias_storage);
      const float *in
          = exec_cpu_read_ref (args, PLAN_REF_ADD_EXPERT_BIAS_out, row * cols + at, n, storage);

      for (guint64 i = 0; i < n; i++)
        out[i] = in[i] + share * bias[i];
      exec_cpu_write_ref (args, PLAN_REF_ADD_EXPERT_BIAS_out, row * cols + at, n, out);
    }
}

/* How many of `rows` rows an expert has: equally many where nothing counts them. */
static guint64
rows_of (const gint32 *counts, guint64 group, guint64 groups, guint64 rows)
{
  return counts != NULL ? (guint64)counts[group] : rows / groups;
}

/* Rows behind those of the last expert are no expert's and stay as they are. */
void
exec_cpu_add_expert_bias (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  const guint64 groups = (guint64)dims[PLAN_DIM_ADD_EXPERT_BIAS_groups];
  const gint32 *counts = args->ptr[PLAN_REF_ADD_EXPERT_BIAS_counts];
  const guint64 rows = (guint64)dims[PLAN_DIM_ADD_EXPERT_BIAS_rows];
  guint64 row = 0;

  for (guint64 group = 0; group < groups; group++)
    for (guint64 i = rows_of (counts, group, groups, rows); i > 0; i--, row++)
      add_bias_row (args, row, group, (guint64)dims[PLAN_DIM_ADD_EXPERT_BIAS_cols]);
}

/* dbias of one expert, whose rows are `first` to `end` - 1: a sum in the order of rows. */
static void
bias_bwd_of (const ExecArgs *args, guint64 group, guint64 first, guint64 end, guint64 cols)
{
  float storage[BLOCK], sum[BLOCK];

  for (guint64 at = 0; at < cols; at += BLOCK)
    {
      const guint64 n = MIN (BLOCK, cols - at);

      memset (sum, 0, sizeof sum);
      for (guint64 row = first; row < end; row++)
        {
          const float share = share_of (args, PLAN_REF_ADD_EXPERT_BIAS_BWD_probs, row);
          const float *dout = exec_cpu_read_ref (args, PLAN_REF_ADD_EXPERT_BIAS_BWD_dout,
                                                 row * cols + at, n, storage);

          for (guint64 i = 0; i < n; i++)
            sum[i] += share * dout[i];
        }
      exec_cpu_write_ref (args, PLAN_REF_ADD_EXPERT_BIAS_BWD_dbias, group * cols + at, n, sum);
    }
}

/* The gradient of a row's share: a sum over its columns in order; 0 of a row of no expert. */
static void
share_bwd (const ExecArgs *args, guint64 row, guint64 group, guint64 groups, guint64 cols)
{
  float storage[BLOCK], bias_storage[BLOCK], sum = 0;

  for (guint64 at = 0; group < groups && at < cols; at += BLOCK)
    {
      const guint64 n = MIN (BLOCK, cols - at);
      const float *bias = exec_cpu_read_ref (args, PLAN_REF_ADD_EXPERT_BIAS_BWD_bias,
                                             group * cols + at, n, bias_storage);
      const float *dout = exec_cpu_read_ref (args, PLAN_REF_ADD_EXPERT_BIAS_BWD_dout,
                                             row * cols + at, n, storage);

      for (guint64 i = 0; i < n; i++)
        sum += dout[i] * bias[i];
    }
  exec_cpu_write_ref (args, PLAN_REF_ADD_EXPERT_BIAS_BWD_dprobs, row, 1, &sum);
}

void
exec_cpu_add_expert_bias_bwd (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  const guint64 rows = (guint64)dims[PLAN_DIM_ADD_EXPERT_BIAS_BWD_rows],
                cols = (guint64)dims[PLAN_DIM_ADD_EXPERT_BIAS_BWD_cols],
                groups = (guint64)dims[PLAN_DIM_ADD_EXPERT_BIAS_BWD_groups];
  const gint32 *counts = args->ptr[PLAN_REF_ADD_EXPERT_BIAS_BWD_counts];
  const gboolean has_shares = args->ptr[PLAN_REF_ADD_EXPERT_BIAS_BWD_dprobs] != NULL;
  guint64 first = 0;

  for (guint64 group = 0; group <= groups; group++)
    {
      const guint64 end = group < groups ? first + rows_of (counts, group, groups, rows) : rows;

      if (group < groups)
        bias_bwd_of (args, group, first, end, cols);
      for (guint64 row = first; has_shares && row < end; row++)
        share_bwd (args, row, group, groups, cols);
      first = end;
    }
}
