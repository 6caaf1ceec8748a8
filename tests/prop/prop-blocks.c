/* SPDX-License-Identifier: Apache-2.0 */
/* The fast allocator (sim/fast/blocks.c) against that of sim/memory.c; and its jump over many
 * rounds of requests against going through all of them. */
#include "config.h"

#include "sim/fast/blocks.h"
#include "sim/memory.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define N_BUFFERS 40
#define KEEPS 30 /* buffers that stay, with holes between them */

static guint64
any_size (GRand *rand)
{
  static const guint64 scale[] = { 512, 100 << 10, 1 << 20, 3 << 20, 12 << 20 };
  const guint64 few = (guint64)g_rand_int_range (rand, 1, 8);
  return (few * scale[g_rand_int_range (rand, 0, 5)] + 511) / 512 * 512;
}

/* Allocs and frees in any order, taken by both allocators. */
START_TEST (takes_the_same_decisions)
{
  const PlanStack stack
      = { .memory.allocation_bytes = 512,
          .memory.allocator = _i % 2 ? PLAN_ALLOCATOR_EXPANDABLE : PLAN_ALLOCATOR_CACHING };
  static const PlanStream streams[]
      = { PLAN_STREAM_COMPUTE, PLAN_STREAM_GATHER, PLAN_STREAM_REDUCE };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanSchedule) schedule = plan_schedule_new (0, 1);
  guint64 sizes[N_BUFFERS];
  guint32 held[N_BUFFERS];
  for (guint b = 0; b < N_BUFFERS; b++)
    {
      g_autofree char *name = g_strdup_printf ("b%u", b);
      sizes[b] = any_size (rand);
      held[b] = SIM_BLOCKS_NONE;
      plan_schedule_add_buffer (schedule, name, 1, sizes[b], PLAN_DTYPE_U8, PLAN_CATEGORY_LOSS);
    }
  SimBlocks blocks = { 0 };
  sim_blocks_begin (&blocks, stack.memory.allocation_bytes, _i % 2);
  sim_blocks_begin (&blocks, stack.memory.allocation_bytes,
                    _i % 2); /* once more, as between runs */
  SimBlocksHint hints[N_BUFFERS] = { 0 };
  g_autoptr (SimMemory) memory = sim_memory_new (schedule, &stack, NULL);
  const PlanCursor cursor = { .schedule = schedule };
  for (guint i = 0; i < 2000; i++)
    {
      const guint b = (guint)g_rand_int_range (rand, 0, N_BUFFERS);
      const gboolean is_held = held[b] != SIM_BLOCKS_NONE;
      PlanOp op;
      PlanMemory columns;
      plan_op_init (&op, is_held ? PLAN_OP_FREE : PLAN_OP_ALLOC, streams[b % 3]);
      op.refs[0] = (PlanRef){ .array = (gint32)b, .loop = -1 };
      op.graph = b % 4 == 3 ? PLAN_GRAPH_WITHIN : PLAN_GRAPH_NONE;
      sim_memory_apply (memory, &cursor, &op);
      if (is_held)
        sim_blocks_give_back (&blocks, held[b]);
      held[b] = is_held ? SIM_BLOCKS_NONE
                        : sim_blocks_take (&blocks, sizes[b],
                                           sim_memory_pool (sizes[b], streams[b % 3], b % 4 == 3),
                                           &hints[b]);
      ck_assert (sim_memory_report (memory, &columns, NULL));
      ck_assert_msg (columns.reserved == blocks.reserved, "seed %d: op %u", _i, i);
    }
  sim_blocks_clear (&blocks);
}
END_TEST

/* One round of takes and frees that ends as it began. */
typedef struct
{
  guint64 sizes[N_BUFFERS];
  guint order[2 * N_BUFFERS]; /* a buffer is taken where it comes first, given back the next time */
} Round;

static void
round_init (Round *self, GRand *rand)
{
  const guint64 common = any_size (rand);
  for (guint b = 0; b < N_BUFFERS; b++)
    {
      self->sizes[b] = g_rand_boolean (rand) ? common : any_size (rand);
      self->order[2 * b] = self->order[2 * b + 1] = b;
    }
  for (guint i = 2 * N_BUFFERS - 1; i > 0; i--)
    {
      const guint j = (guint)g_rand_int_range (rand, 0, (gint32)i + 1);
      const guint kept = self->order[i];
      self->order[i] = self->order[j];
      self->order[j] = kept;
    }
}

static void
round_run (const Round *self, SimBlocks *blocks)
{
  guint32 held[N_BUFFERS];
  for (guint b = 0; b < N_BUFFERS; b++)
    held[b] = SIM_BLOCKS_NONE;
  for (guint i = 0; i < 2 * N_BUFFERS; i++)
    {
      SimBlocksHint hint = { 0 };
      const guint b = self->order[i];
      if (held[b] != SIM_BLOCKS_NONE)
        sim_blocks_give_back (blocks, held[b]);
      else
        held[b]
            = sim_blocks_take (blocks, self->sizes[b],
                               sim_memory_pool (self->sizes[b], PLAN_STREAM_COMPUTE, FALSE), &hint);
    }
}

/* Makes an allocator with blocks that stay (`keeps`) and holes of several sizes between them. */
static void
prepare (SimBlocks *blocks, const Round *around, gboolean expands, guint32 keeps[KEEPS])
{
  guint32 holes[KEEPS];
  *blocks = (SimBlocks){ 0 };
  sim_blocks_begin (blocks, 512, expands);
  for (guint k = 0; k < KEEPS; k++)
    {
      SimBlocksHint hint = { 0 };
      keeps[k] = sim_blocks_take (
          blocks, around->sizes[k] / 1024 * 512 + 512,
          sim_memory_pool (around->sizes[k] / 1024 * 512 + 512, PLAN_STREAM_COMPUTE, FALSE), &hint);
      hint = (SimBlocksHint){ 0 };
      holes[k]
          = sim_blocks_take (blocks, around->sizes[k],
                             sim_memory_pool (around->sizes[k], PLAN_STREAM_COMPUTE, FALSE), &hint);
    }
  for (guint k = 0; k < KEEPS; k++)
    sim_blocks_give_back (blocks, holes[k]);
}

static GArray *
describe (SimBlocks *blocks, const guint32 *keeps, guint kind, GArray *places)
{
  GArray *text = g_array_new (FALSE, FALSE, sizeof (guint64));
  sim_blocks_describe (blocks, keeps, KEEPS, kind, text, places);
  return text;
}

static gboolean
is_same (const GArray *a, const GArray *b)
{
  return a->len == b->len && memcmp (a->data, b->data, a->len * sizeof (guint64)) == 0;
}

static void
note_state (SimBlocks *blocks, const guint32 *keeps, GPtrArray *texts, GPtrArray *all_places)
{
  GArray *places = g_array_new (FALSE, FALSE, sizeof (SimPlace));
  g_ptr_array_add (texts, describe (blocks, keeps, 0, places));
  g_ptr_array_add (all_places, places);
}

/* Goes through rounds until one ends in the state of an earlier one, then jumps over many more. The
 * state must be the one that going through all of them leads to. A description of kind 0 sees
 * walls, one of kind 1 sees none. */
START_TEST (jumps_to_where_it_would_have_gone)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Round around;
  SimBlocks slow, fast;
  guint32 slow_keeps[KEEPS], keeps[KEEPS];
  round_init (&around, rand);
  prepare (&slow, &around, _i % 2, slow_keeps);
  prepare (&fast, &around, _i % 2, keeps);
  for (guint k = 0; k < KEEPS; k++)
    sim_blocks_set_wall (&fast, keeps[k], 0, TRUE);
  g_autoptr (GArray) places = g_array_new (FALSE, FALSE, sizeof (SimPlace));
  g_autoptr (GPtrArray) texts = g_ptr_array_new_with_free_func ((GDestroyNotify)g_array_unref);
  g_autoptr (GPtrArray) all_places = g_ptr_array_new_with_free_func ((GDestroyNotify)g_array_unref);
  const guint times = (guint)g_rand_int_range (rand, 0, 100);
  guint rounds = 0, period = 0;
  note_state (&fast, keeps, texts, all_places);
  while (period == 0 && rounds < 50)
    {
      round_run (&around, &fast);
      rounds++;
      note_state (&fast, keeps, texts, all_places);
      for (guint i = rounds; i-- > 0 && period == 0;)
        if (is_same (g_ptr_array_index (texts, i), g_ptr_array_index (texts, rounds)))
          period = rounds - i;
    }
  ck_assert_msg (period > 0, "seed %d: never steady", _i);
  sim_blocks_repeat (&fast, g_ptr_array_index (all_places, rounds - period),
                     g_ptr_array_index (all_places, rounds), g_ptr_array_index (all_places, rounds),
                     times);
  for (guint i = 0; i < rounds + times * period; i++)
    round_run (&around, &slow);
  g_autoptr (GArray) fast_text = describe (&fast, keeps, 1, places);
  g_autoptr (GArray) slow_text = describe (&slow, slow_keeps, 1, places);
  ck_assert_msg (is_same (fast_text, slow_text), "seed %d", _i);
  sim_blocks_clear (&slow);
  sim_blocks_clear (&fast);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-blocks");
  TCase *tcase = tcase_create ("random");
  tcase_add_loop_test (tcase, takes_the_same_decisions, 0, 50);
  tcase_add_loop_test (tcase, jumps_to_where_it_would_have_gone, 0, 300);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
