/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/compare-dims.h"

#include "planner/model/model.h"

#include <string.h>

gint64
compare_odd_size (GRand *rand, gint32 most)
{
  static const gint32 edges[] = { 1, 7, 8, 9, 31, 32, 33, 255, 256, 257, 511, 513, 1024 };
  gint32 edge = edges[g_rand_int_range (rand, 0, G_N_ELEMENTS (edges))];

  return g_rand_boolean (rand) && edge <= most ? edge : g_rand_int_range (rand, 1, most + 1);
}

/* Makes one head of all. */
static void
join_heads (gint64 dims[PLAN_MAX_DIMS])
{
  dims[3] *= dims[1];
  dims[4] *= dims[2];
  dims[1] = dims[2] = 1;
}

/* Draws the dims of ops on heads; leaves those of other ops as they are. */
static void
draw_head_dims (PlanOpKind kind, GRand *rand, gint64 out_dims[PLAN_MAX_DIMS])
{
  gint64 kv_heads = g_rand_int_range (rand, 1, 4), heads = kv_heads * g_rand_int_range (rand, 1, 4);

  switch ((int)kind)
    {
    case PLAN_OP_ATTENTION:
    case PLAN_OP_ATTENTION_BWD:
      out_dims[0] = g_rand_int_range (rand, 1, 3);
      out_dims[1] = compare_odd_size (rand, 140);
      out_dims[2] = heads;
      out_dims[3] = kv_heads;
      out_dims[4] = compare_odd_size (rand, 150);
      return;
    case PLAN_OP_ATTENTION_JOIN:
      out_dims[0] = g_rand_int_range (rand, 1, 3);
      out_dims[1] = g_rand_int_range (rand, 1, 30);
      out_dims[2] = heads;
      out_dims[3] = compare_odd_size (rand, 300);
      return;
    case PLAN_OP_LATENT_ATTENTION:
    case PLAN_OP_LATENT_ATTENTION_BWD:
      out_dims[0] = g_rand_int_range (rand, 1, 3);
      out_dims[1] = compare_odd_size (rand, 140);
      out_dims[2] = kv_heads;
      out_dims[3] = compare_odd_size (rand, 150);
      out_dims[4] = compare_odd_size (rand, 150);
      return;
    case PLAN_OP_LATENT_ROPE:
    case PLAN_OP_LATENT_ROPE_BWD:
      out_dims[0] = g_rand_int_range (rand, 1, 30);
      out_dims[1] = g_rand_int_range (rand, 1, 20);
      out_dims[2] = heads;
      out_dims[3] = compare_odd_size (rand, 40);
      out_dims[4] = 2 * compare_odd_size (rand, 300);
      out_dims[5] = compare_odd_size (rand, 40);
      out_dims[6] = g_rand_boolean (rand) ? compare_odd_size (rand, 300) : 0;
      return;
    case PLAN_OP_HEAD_NORM:
    case PLAN_OP_HEAD_NORM_BWD:
      out_dims[0] = g_rand_int_range (rand, 1, 40);
      out_dims[1] = heads;
      out_dims[2] = kv_heads;
      out_dims[3] = out_dims[4] = compare_odd_size (rand, 300);
      if (g_rand_int_range (rand, 0, 4) == 0)
        join_heads (out_dims);
      return;
    case PLAN_OP_ROPE:
      out_dims[0] = g_rand_int_range (rand, 1, 30);
      out_dims[1] = g_rand_int_range (rand, 1, 20);
      out_dims[2] = heads;
      out_dims[3] = kv_heads;
      out_dims[4] = 2 * compare_odd_size (rand, 70);
      out_dims[5] = g_rand_boolean (rand);
      return;
    default:
      return;
    }
}

/* Draws the dims of ops whose operands may be in formats with scales of blocks: whole blocks, and
 * one time in three whole tiles of scales. */
static void
draw_block_dims (PlanOpKind kind, GRand *rand, gint64 out_dims[PLAN_MAX_DIMS])
{
  const gboolean is_tiled = g_rand_int_range (rand, 0, 3) == 0;

  if (kind == PLAN_OP_QUANTIZE)
    {
      out_dims[0]
          = is_tiled ? 128 * g_rand_int_range (rand, 1, 3) : 32 * g_rand_int_range (rand, 1, 6);
      out_dims[1]
          = is_tiled ? 128 * g_rand_int_range (rand, 1, 4) : 32 * g_rand_int_range (rand, 1, 9);
      return;
    }
  out_dims[0] = is_tiled ? 128 : compare_odd_size (rand, 150);
  out_dims[1] = is_tiled ? 128 : compare_odd_size (rand, 150);
  out_dims[2] = is_tiled ? 128 : 32 * g_rand_int_range (rand, 1, 5);
  out_dims[3] = g_rand_int_range (rand, 0, 3);
}

void
compare_draw_dims (PlanOpKind kind, GRand *rand, gint64 out_dims[PLAN_MAX_DIMS])
{
  memset (out_dims, 0, PLAN_MAX_DIMS * sizeof *out_dims);
  out_dims[0]
      = plan_op_n_dims (kind) == 1 ? compare_odd_size (rand, 3000) : g_rand_int_range (rand, 1, 7);
  out_dims[1] = compare_odd_size (rand, 1500);
  switch ((int)kind)
    {
    case PLAN_OP_NORM_SQ:
      out_dims[0] = compare_odd_size (rand, 20000);
      return;
    case PLAN_OP_SUM_PARTS:
      out_dims[0] = compare_odd_size (rand, 3000);
      out_dims[1] = g_rand_int_range (rand, 1, 6);
      return;
    case PLAN_OP_CLIP:
      out_dims[0] = g_rand_int_range (rand, 1, 6);
      out_dims[1] = g_rand_int_range (rand, 1, (gint32)out_dims[0] + 1);
      out_dims[2] = compare_odd_size (rand, 3000);
      return;
    case PLAN_OP_GEMM:
    case PLAN_OP_GEMM_ADD:
    case PLAN_OP_QUANTIZE:
      draw_block_dims (kind, rand, out_dims);
      return;
    case PLAN_OP_ACTIVATE:
    case PLAN_OP_ACTIVATE_BWD:
      out_dims[2] = g_rand_int_range (rand, 0, PLAN_ACTIVATION_QUICK_GELU + 1);
      out_dims[3] = g_rand_boolean (rand);
      return;
    case PLAN_OP_EMBED:
    case PLAN_OP_EMBED_BWD:
      out_dims[0] = compare_odd_size (rand, 600);
      out_dims[1] = compare_odd_size (rand, 40);
      out_dims[2] = g_rand_int_range (rand, 1, 50);
      return;
    case PLAN_OP_DROPOUT:
    case PLAN_OP_DROPOUT_ADD:
    case PLAN_OP_DROPOUT_BWD:
      out_dims[2] = g_rand_int_range (rand, 1, 4);
      out_dims[3] = g_rand_boolean (rand);
      return;
    case PLAN_OP_POSITIONS:
    case PLAN_OP_POSITIONS_BWD:
      out_dims[2] = g_rand_int_range (rand, 1, 4);
      out_dims[0] = out_dims[2] * g_rand_int_range (rand, 1, 6);
      return;
    case PLAN_OP_RMSNORM_BWD:
    case PLAN_OP_LAYERNORM_BWD:
    case PLAN_OP_BIAS_BWD:
      out_dims[0] = compare_odd_size (rand, 700) / g_rand_int_range (rand, 1, 30) + 1;
      out_dims[1] = compare_odd_size (rand, 300);
      return;
    default:
      draw_head_dims (kind, rand, out_dims);
      return;
    }
}

/* Sets the dims of a layer of DeepSeek-V2-Lite for ops of latent attention; leaves those of other
 * ops as they are. */
static void
speed_latent_dims (PlanOpKind kind, gint64 rows, gint64 out_dims[PLAN_MAX_DIMS])
{
  switch ((int)kind)
    {
    case PLAN_OP_LATENT_ATTENTION:
    case PLAN_OP_LATENT_ATTENTION_BWD:
      out_dims[0] = 1;
      out_dims[1] = out_dims[5] = MIN (rows, 4096);
      out_dims[2] = MIN (rows, 16);
      out_dims[3] = 192;
      out_dims[4] = 128;
      return;
    case PLAN_OP_LATENT_ROPE:
    case PLAN_OP_LATENT_ROPE_BWD:
      out_dims[2] = 16;
      out_dims[3] = out_dims[5] = 128;
      out_dims[4] = 64;
      out_dims[6] = 512;
      return;
    default:
      return;
    }
}

/* A whole layer's heads attend where there are as many rows; a single row is for trying it all. */
void
compare_speed_dims (PlanOpKind kind, gint64 rows, gint64 out_dims[PLAN_MAX_DIMS])
{
  memset (out_dims, 0, PLAN_MAX_DIMS * sizeof *out_dims);
  out_dims[0] = plan_op_n_dims (kind) == 1 ? rows * 4096 : rows;
  out_dims[1] = 4096;
  out_dims[2] = MAX (rows / 4, 1); /* rows of one sequence; the other ops have a dim for that */
  switch ((int)kind)
    {
    case PLAN_OP_GEMM:
    case PLAN_OP_GEMM_ADD:
      out_dims[0] = out_dims[1] = out_dims[2] = MIN (rows, 4096);
      return;
    case PLAN_OP_ROPE:
      out_dims[2] = 24;
      out_dims[3] = 4;
      out_dims[4] = 128;
      return;
    case PLAN_OP_ATTENTION:
    case PLAN_OP_ATTENTION_BWD:
      out_dims[0] = 1;
      out_dims[1] = out_dims[5] = MIN (rows, 4096);
      out_dims[3] = MIN (rows, 8);
      out_dims[2] = 4 * out_dims[3];
      out_dims[4] = 128;
      return;
    case PLAN_OP_ATTENTION_JOIN:
      out_dims[0] = 1;
      out_dims[1] = rows;
      out_dims[2] = 32;
      out_dims[3] = 128;
      return;
    case PLAN_OP_HEAD_NORM:
    case PLAN_OP_HEAD_NORM_BWD:
      out_dims[1] = 24;
      out_dims[2] = 4;
      out_dims[3] = out_dims[4] = 128;
      return;
    case PLAN_OP_SUM_PARTS:
      out_dims[0] = rows * 4096;
      out_dims[1] = 4;
      return;
    case PLAN_OP_EMBED:
    case PLAN_OP_EMBED_BWD:
      out_dims[2] = 2 * rows;
      return;
    case PLAN_OP_ACTIVATE:
    case PLAN_OP_ACTIVATE_BWD:
      out_dims[2] = PLAN_ACTIVATION_GELU;
      return;
    case PLAN_OP_CLIP:
      out_dims[0] = out_dims[1] = out_dims[2] = 8;
      return;
    default:
      speed_latent_dims (kind, rows, out_dims);
      return;
    }
}

static gint64
whole (gint64 size, gint64 of)
{
  return (size + of - 1) / of * of;
}

void
compare_whole_dims (PlanOpKind kind, gint64 out_dims[PLAN_MAX_DIMS])
{
  if (kind == PLAN_OP_HEAD_NORM || kind == PLAN_OP_HEAD_NORM_BWD)
    {
      out_dims[3] = whole (out_dims[3], 8);
      out_dims[4] = whole (out_dims[4], 8);
    }
  else if (kind == PLAN_OP_ROPE)
    out_dims[4] = whole (out_dims[4], 16);
  else if (plan_op_n_dims (kind) > 1 && strcmp (plan_op_dim_name (kind, 1), "cols") == 0)
    out_dims[1] = whole (out_dims[1], 8);
}

gboolean
compare_attends (PlanOpKind kind)
{
  return plan_op_work (kind) == PLAN_WORK_ATTENTION;
}

void
compare_draw_manner (PlanManner *self, PlanOpKind kind, const gint64 *dims, GRand *rand)
{
  const gboolean is_attention = compare_attends (kind), turns = kind == PLAN_OP_ROPE;
  const gint32 keys = is_attention ? (gint32)dims[1] + 2 : 2;
  const double values[PLAN_N_MANNERS] = {
    [PLAN_MANNER_WINDOW] = g_rand_int_range (rand, 1, keys),
    [PLAN_MANNER_CHUNK] = g_rand_int_range (rand, 1, keys),
    [PLAN_MANNER_ALIBI] = 1,
    [PLAN_MANNER_SCALAR] = g_rand_double_range (rand, 1, 50),
    [PLAN_MANNER_CAP]
    = is_attention ? g_rand_double_range (rand, 0.2, 3) : g_rand_double_range (rand, 1, 20),
    [PLAN_MANNER_TURNED] = turns ? 2 * g_rand_int_range (rand, 1, (gint32)dims[4] / 2 + 1) : 0,
    [PLAN_MANNER_THETA] = g_rand_double_range (rand, 10, 1e5),
    [PLAN_MANNER_ONE_PLUS] = 1,
    [PLAN_MANNER_LIMIT] = g_rand_double_range (rand, 0.1, 2),
    [PLAN_MANNER_OFFSET] = 1,
    [PLAN_MANNER_FACTOR] = g_rand_double_range (rand, 1, 50),
    [PLAN_MANNER_RATE] = g_rand_double (rand) * (is_attention ? 0.5 : 1),
  };
  for (PlanMannerKey key = 0; key < PLAN_N_MANNERS; key++)
    if (plan_manner_is_of (key, kind)
        && (g_rand_boolean (rand) || (key == PLAN_MANNER_CAP && !is_attention)))
      self->value[key] = values[key];
}
