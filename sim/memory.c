/* SPDX-License-Identifier: Apache-2.0 */
/* The caching allocator is PyTorch's: blocks are cut from segments it got from the driver and never
 * gives back. Requests of at most SMALL come from segments of SMALL_SEGMENT, larger ones below
 * LARGE from segments of LARGE_SEGMENT, others from segments of their own, rounded up. A free block
 * is chosen by best fit and split when what is left is worth keeping; neighbours merge. An
 * expandable segment serves a whole pool and grows at its end, by multiples of SMALL_SEGMENT or
 * LARGE_SEGMENT. */
#include "config.h"

#include "sim/memory.h"

#include "planner/schedule/arena.h"
#include "planner/schedule/meter.h"

#define SMALL SIM_MEMORY_SMALL
#define SMALL_SEGMENT (2 * PLAN_MIB)
#define LARGE (10 * PLAN_MIB)
#define LARGE_SEGMENT SIM_MEMORY_LARGE_SEGMENT
#define SEGMENT_MULTIPLE (2 * PLAN_MIB)
#define NO_BLOCK G_MAXUINT32

typedef struct
{
  guint64 bytes;
  gboolean is_free;
  guint pool;
  guint32 before, after; /* neighbours in the segment, or NO_BLOCK */
} Block;

struct _SimMemory
{
  const PlanSchedule *schedule;
  const PlanStack *stack;
  PlanMeter meter;
  SimRecordStream lead;
  guint64 reserved;
  GArray *blocks;                 /* Block */
  GArray *unused;                 /* guint32: entries of blocks that were merged away */
  GArray *free[SIM_MEMORY_POOLS]; /* guint32: free blocks, by size then age */
  guint32 *block_of;              /* per buffer id, or NO_BLOCK */
  GArray *is_late;                /* gboolean per buffer array */
  guint32 last[SIM_MEMORY_POOLS]; /* where segments grow: their last block, or NO_BLOCK */
};

guint64
sim_memory_segment_bytes (guint64 bytes)
{
  return bytes <= SMALL  ? SMALL_SEGMENT
         : bytes < LARGE ? LARGE_SEGMENT
                         : plan_units_round_up (bytes, SEGMENT_MULTIPLE);
}

guint64
sim_memory_growth_bytes (guint64 missing, gboolean is_small)
{
  return plan_units_round_up (missing, is_small ? SMALL_SEGMENT : LARGE_SEGMENT);
}

static void
find_late (SimMemory *self, const PlanSchedule *schedule)
{
  self->is_late = g_array_new (FALSE, TRUE, sizeof (gboolean));
  g_array_set_size (self->is_late, plan_schedule_n_buffers (schedule));
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      if (op->kind == PLAN_OP_TOUCH)
        g_array_index (self->is_late, gboolean, op->refs[PLAN_REF_TOUCH_buf].array) = TRUE;
    }
}

SimMemory *
sim_memory_new (const PlanSchedule *schedule, const PlanStack *stack, const SimPace *pace)
{
  SimMemory *self = g_new0 (SimMemory, 1);
  sim_record_stream_begin (&self->lead, schedule, stack, pace ? pace : &(SimPace){ 0 });
  self->schedule = schedule;
  self->stack = stack;
  self->blocks = g_array_new (FALSE, FALSE, sizeof (Block));
  self->unused = g_array_new (FALSE, FALSE, sizeof (guint32));
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    {
      self->free[i] = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->last[i] = NO_BLOCK;
    }
  const guint n_ids = plan_schedule_n_buffer_ids (schedule) + 1;
  self->block_of = g_new (guint32, n_ids);
  for (guint i = 0; i < n_ids; i++)
    self->block_of[i] = NO_BLOCK;
  find_late (self, schedule);
  return self;
}

void
sim_memory_free (SimMemory *self)
{
  if (!self)
    return;
  g_array_unref (self->blocks);
  g_array_unref (self->unused);
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    g_array_unref (self->free[i]);
  g_free (self->block_of);
  g_array_unref (self->is_late);
  sim_record_stream_clear (&self->lead);
  g_free (self);
}

static Block *
block_at (const SimMemory *self, guint32 block)
{
  return &g_array_index (self->blocks, Block, block);
}

static guint32
block_new (SimMemory *self, const Block *block)
{
  if (self->unused->len > 0)
    {
      const guint32 index = g_array_index (self->unused, guint32, self->unused->len - 1);
      g_array_set_size (self->unused, self->unused->len - 1);
      *block_at (self, index) = *block;
      return index;
    }
  g_array_append_vals (self->blocks, block, 1);
  return self->blocks->len - 1;
}

/* First free block of at least that many bytes: the list is sorted, so it is the best fit. */
static guint
find_free (const SimMemory *self, guint pool, guint64 bytes)
{
  const GArray *list = self->free[pool];
  guint low = 0, high = list->len;
  while (low < high)
    {
      const guint middle = (low + high) / 2;
      if (block_at (self, g_array_index (list, guint32, middle))->bytes < bytes)
        low = middle + 1;
      else
        high = middle;
    }
  return low;
}

static void
list_free (SimMemory *self, guint32 block)
{
  Block *b = block_at (self, block);
  b->is_free = TRUE;
  g_array_insert_val (self->free[b->pool], find_free (self, b->pool, b->bytes + 1), block);
}

static void
unlist_free (SimMemory *self, guint32 block)
{
  const Block *b = block_at (self, block);
  GArray *list = self->free[b->pool];
  guint i = find_free (self, b->pool, b->bytes);
  while (g_array_index (list, guint32, i) != block)
    i++;
  g_array_remove_index (list, i);
}

/* Splits a block that is larger than was asked for: its rest becomes a free block of its own, where
 * it is worth keeping. */
static void
split (SimMemory *self, guint32 block, guint64 bytes)
{
  const Block whole = *block_at (self, block);
  const guint64 rest = whole.bytes - bytes;
  const gboolean keeps_any = sim_memory_pool_is_small (whole.pool)
                             || self->stack->memory.allocator == PLAN_ALLOCATOR_EXPANDABLE;
  if (keeps_any ? rest < self->stack->memory.allocation_bytes : rest <= SMALL)
    return;
  const Block tail = { .bytes = rest, .pool = whole.pool, .before = block, .after = whole.after };
  const guint32 index = block_new (self, &tail);
  block_at (self, block)->bytes = bytes;
  block_at (self, block)->after = index;
  if (whole.after != NO_BLOCK)
    block_at (self, whole.after)->before = index;
  else
    self->last[whole.pool] = index;
  list_free (self, index);
}

/* Makes a block at the end of an expandable segment. A free block that ends there becomes larger.
 */
static guint32
grow (SimMemory *self, guint64 bytes, guint pool)
{
  const gboolean is_small = sim_memory_pool_is_small (pool);
  const guint32 last = self->last[pool];
  if (last != NO_BLOCK && block_at (self, last)->is_free)
    {
      const guint64 growth
          = sim_memory_growth_bytes (bytes - block_at (self, last)->bytes, is_small);
      unlist_free (self, last);
      block_at (self, last)->bytes += growth;
      self->reserved += growth;
      return last;
    }
  const Block fresh = { .bytes = sim_memory_growth_bytes (bytes, is_small),
                        .pool = pool,
                        .before = last,
                        .after = NO_BLOCK };
  const guint32 block = block_new (self, &fresh);
  if (last != NO_BLOCK)
    block_at (self, last)->after = block;
  self->last[pool] = block;
  self->reserved += fresh.bytes;
  return block;
}

static guint32
take (SimMemory *self, guint64 bytes, guint pool)
{
  const guint at = find_free (self, pool, bytes);
  guint32 block;
  if (at < self->free[pool]->len)
    {
      block = g_array_index (self->free[pool], guint32, at);
      g_array_remove_index (self->free[pool], at);
    }
  else if (self->stack->memory.allocator == PLAN_ALLOCATOR_EXPANDABLE)
    block = grow (self, bytes, pool);
  else
    {
      const guint64 segment = sim_memory_segment_bytes (bytes);
      const Block fresh = { .bytes = segment, .pool = pool, .before = NO_BLOCK, .after = NO_BLOCK };
      block = block_new (self, &fresh);
      self->reserved += segment;
    }
  block_at (self, block)->is_free = FALSE;
  split (self, block, bytes);
  return block;
}

/* Joins a block with its right neighbour, which disappears. */
static void
absorb_right (SimMemory *self, guint32 block)
{
  const guint32 right = block_at (self, block)->after;
  const Block gone = *block_at (self, right);
  block_at (self, block)->bytes += gone.bytes;
  block_at (self, block)->after = gone.after;
  if (gone.after != NO_BLOCK)
    block_at (self, gone.after)->before = block;
  else
    self->last[gone.pool] = block;
  g_array_append_val (self->unused, right);
}

static void
give_back (SimMemory *self, guint32 block)
{
  const guint32 left = block_at (self, block)->before, right = block_at (self, block)->after;
  if (right != NO_BLOCK && block_at (self, right)->is_free)
    {
      unlist_free (self, right);
      absorb_right (self, block);
    }
  if (left != NO_BLOCK && block_at (self, left)->is_free)
    {
      unlist_free (self, left);
      absorb_right (self, left);
      block = left;
    }
  list_free (self, block);
}

static void
give_back_what_is_over (SimMemory *self)
{
  guint32 block;
  while (sim_record_stream_next (&self->lead, &block))
    give_back (self, block);
}

void
sim_memory_issue (SimMemory *self, guint launches)
{
  sim_record_stream_issue (&self->lead, launches);
}

void
sim_memory_end_step (SimMemory *self)
{
  sim_record_stream_meet (&self->lead);
  give_back_what_is_over (self);
}

static void
take_block (SimMemory *self, guint32 id, guint64 bytes, const PlanOp *op)
{
  give_back_what_is_over (self);
  self->block_of[id]
      = take (self, bytes, sim_memory_pool (bytes, op->stream, op->graph != PLAN_GRAPH_NONE));
}

PlanCategory
sim_memory_apply (SimMemory *self, const PlanCursor *cursor, const PlanOp *op)
{
  const guint32 id = plan_cursor_buffer (cursor, &op->refs[PLAN_REF_ALLOC_buf]);
  const guint64 multiple = self->stack ? self->stack->memory.allocation_bytes : 1;
  const guint64 bytes = plan_units_round_up (
      plan_schedule_buffer_bytes (self->schedule, (guint)op->refs[PLAN_REF_ALLOC_buf].array),
      multiple);
  const gboolean is_late
      = g_array_index (self->is_late, gboolean, op->refs[PLAN_REF_ALLOC_buf].array);

  if (plan_schedule_buffer (self->schedule, (guint)op->refs[PLAN_REF_ALLOC_buf].array)->category
      == PLAN_CATEGORY_HOST)
    return PLAN_CATEGORY_HOST;

  if (self->stack && self->stack->memory.allocator != PLAN_ALLOCATOR_ARENA && bytes > 0)
    {
      if (op->kind != PLAN_OP_FREE && self->block_of[id] == NO_BLOCK
          && is_late == (op->kind == PLAN_OP_TOUCH))
        take_block (self, id, bytes, op);
      else if (op->kind == PLAN_OP_FREE && self->block_of[id] != NO_BLOCK)
        {
          if (!sim_record_stream_give_back (&self->lead, (guint)op->refs[PLAN_REF_ALLOC_buf].array,
                                            self->block_of[id]))
            give_back (self, self->block_of[id]);
          self->block_of[id] = NO_BLOCK;
        }
    }
  return plan_meter_apply (&self->meter, cursor, op, bytes);
}

guint64
sim_memory_live (const SimMemory *self, PlanCategory category)
{
  return self->meter.live[category];
}

void
sim_memory_begin_step (SimMemory *self)
{
  plan_meter_begin_step (&self->meter);
}

gboolean
sim_memory_report (const SimMemory *self, PlanMemory *out, GError **error)
{
  PlanMemory memory;
  plan_meter_report (&self->meter, self->stack ? self->stack->memory.fixed_bytes : 0, &memory);
  memory.reserved = self->reserved + (self->stack ? self->stack->memory.fixed_bytes : 0);
  if (self->stack && self->stack->memory.allocator == PLAN_ALLOCATOR_ARENA)
    {
      g_auto (PlanArena) arena = { 0 };
      if (!plan_arena_init (&arena, self->schedule, error))
        return FALSE;
      memory.reserved = arena.size_bytes;
    }
  memory.host = plan_meter_host_bytes (self->schedule);
  memory.device = memory.reserved
                  + (self->stack ? plan_stack_outside_bytes (self->stack, self->schedule) : 0);
  *out = memory;
  return TRUE;
}
