/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of loops as sim_measure finds it, against sim_run, which goes through every op.
 * Buffers live within an iteration, from one to the next, or from one loop to another (see Use),
 * among segments that earlier buffers left behind. */
#include "config.h"

#include "sim/fast/footprint.h"
#include "sim/fast/measure.h"
#include "sim/sim.h"
#include "tests/share.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARRAYS 14
#define MAX_BODY (2 * MAX_ARRAYS)
#define LAG 2

typedef enum
{
  SAVED,   /* taken in the first loop, given back in the second */
  HANDED,  /* taken an iteration ahead in the first loop */
  LAGGED,  /* given back some iterations late in the second */
  TURNS,   /* two of them, in turns, in the first loop */
  FIRST,   /* within an iteration of the first loop */
  SECOND,  /* within an iteration of the second loop */
  BOTH,    /* within an iteration of either loop */
  AT_ONCE, /* as BOTH, and given back right after it was taken */
  HOLES,   /* taken and given back before the loops: they leave free segments */
  LASTING, /* taken in the setup, given back in the teardown */
  N_USES
} Use;

typedef struct
{
  GRand *rand;
  PlanSchedule *schedule;
  gint64 layers;
  guint n;
  guint64 bytes[MAX_ARRAYS];
  gint32 arrays[MAX_ARRAYS];
  Use uses[MAX_ARRAYS];
} Maker;

/* An op of a loop's body. */
typedef struct
{
  double key; /* its place in the body, from 0 to 1 */
  PlanOpKind kind;
  PlanRef ref;
} Step;

static guint64
any_bytes (GRand *rand)
{
  static const guint64 common[] = { 16 << 10, 100 << 10, 2 << 20,   12 << 20,  19 << 20,
                                    24 << 20, 40 << 20,  128 << 20, 128 << 20, 300 << 20 };
  const guint64 bytes = common[g_rand_int_range (rand, 0, G_N_ELEMENTS (common))];
  return g_rand_int_range (rand, 0, 4) ? bytes
                                       : bytes + (guint64)g_rand_int_range (rand, 0, 1 << 22);
}

static void
add (Maker *self, PlanOpKind kind, PlanRef ref)
{
  PlanOp op;
  plan_op_init (&op, kind, PLAN_STREAM_COMPUTE);
  op.refs[0] = ref;
  plan_schedule_add (self->schedule, &op);
}

static void
add_fixed (Maker *self, PlanOpKind kind, guint i, gint64 element)
{
  add (self, kind, (PlanRef){ .array = self->arrays[i], .offset = (gint32)element, .loop = -1 });
}

/* Elements that are there before a loop, or still there after it. */
static void
add_around (Maker *self, PlanOpKind kind, Use use, gint64 from, gint64 count)
{
  for (guint i = 0; i < self->n; i++)
    for (gint64 e = from; self->uses[i] == use && e < from + count; e++)
      add_fixed (self, kind, i, e);
}

static int
compare_steps (gconstpointer a, gconstpointer b)
{
  const double one = ((const Step *)a)->key, other = ((const Step *)b)->key;
  return (one > other) - (one < other);
}

/* The allocs and frees of an array in a loop, by its use. */
static guint
steps_of (Maker *self, guint i, gboolean is_second, Step *steps)
{
  const double at = g_rand_double (self->rand);
  const double later
      = self->uses[i] == AT_ONCE ? nextafter (at, 1) : at + (1 - at) * g_rand_double (self->rand);
  const PlanRef fixed = { .array = self->arrays[i], .loop = -1 },
                moving = { .array = self->arrays[i], .loop = 1 };
  PlanRef taken = moving, given = moving;
  gboolean takes = TRUE, gives = TRUE;
  switch (self->uses[i])
    {
    case SAVED:
      takes = !is_second;
      gives = is_second;
      break;
    case HANDED:
      takes = gives = !is_second;
      taken.offset = 1;
      break;
    case LAGGED:
      takes = gives = is_second;
      given.offset = LAG;
      break;
    case TURNS:
      takes = gives = !is_second;
      taken.modulus = given.modulus = 2;
      given.offset = 1;
      break;
    case FIRST:
    case SECOND:
      takes = gives = is_second == (self->uses[i] == SECOND);
      taken = given = fixed;
      break;
    case BOTH:
    case AT_ONCE:
      taken = given = fixed;
      break;
    default:
      return 0;
    }
  guint n = 0;
  if (takes)
    steps[n++] = (Step){ at, PLAN_OP_ALLOC, taken };
  if (gives)
    steps[n++] = (Step){ takes ? later : at, PLAN_OP_FREE, given };
  return n;
}

static void
add_loop (Maker *self, gboolean is_second)
{
  Step steps[MAX_BODY];
  guint n = 0;
  for (guint i = 0; i < self->n; i++)
    n += steps_of (self, i, is_second, &steps[n]);
  qsort (steps, n, sizeof *steps, compare_steps);
  if (is_second)
    plan_schedule_begin_repeat (self->schedule, "l", self->layers - 1, self->layers, -1);
  else
    plan_schedule_begin_repeat (self->schedule, "l", 0, self->layers, 1);
  for (guint i = 0; i < n; i++)
    add (self, steps[i].kind, steps[i].ref);
  plan_schedule_end_repeat (self->schedule);
}

static void
add_micro_batch (Maker *self)
{
  add_around (self, PLAN_OP_ALLOC, HANDED, 0, 1);
  add_around (self, PLAN_OP_ALLOC, TURNS, 1, 1);
  add_loop (self, FALSE);
  add_around (self, PLAN_OP_FREE, HANDED, self->layers, 1);
  add_around (self, PLAN_OP_FREE, TURNS, (self->layers - 1) % 2, 1);
  if (g_rand_boolean (self->rand))
    {
      add_around (self, PLAN_OP_ALLOC, HOLES, 0, 3);
      add_around (self, PLAN_OP_FREE, HOLES, 0, 3);
    }
  add_around (self, PLAN_OP_ALLOC, LAGGED, self->layers, LAG);
  add_loop (self, TRUE);
  add_around (self, PLAN_OP_FREE, LAGGED, 0, LAG);
}

static PlanSchedule *
make (Maker *self)
{
  PlanSchedule *schedule = self->schedule = plan_schedule_new (0, 1);
  for (guint i = 0; i < self->n; i++)
    {
      g_autofree char *name = g_strdup_printf ("b%u", i);
      self->arrays[i] = plan_schedule_add_buffer (
          schedule, name, (guint32)self->layers + LAG, self->bytes[i], PLAN_DTYPE_U8,
          (PlanCategory)g_rand_int_range (self->rand, 0, 3));
    }
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  add_around (self, PLAN_OP_ALLOC, HOLES, 0, 3);
  add_around (self, PLAN_OP_ALLOC, LASTING, 0, 3);
  add_around (self, PLAN_OP_FREE, HOLES, 0, 3);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  plan_schedule_begin_repeat (schedule, "m", 0, g_rand_int_range (self->rand, 1, 5), 1);
  add_micro_batch (self);
  plan_schedule_end_repeat (schedule);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  add_around (self, PLAN_OP_FREE, LASTING, 0, 3);
  return schedule;
}

static SimCost *
no_cost (const PlanSchedule *schedule, const PlanStack *stack)
{
  g_autoptr (GError) error = NULL;
  SimParams params = { .id = "test" };
  for (SimParam p = 0; p < SIM_N_PARAMS; p++)
    params.value[p] = 1;
  const PlanCluster cluster = { .name = (char *)"test",
                                .kind = PLAN_DEVICE_GPU,
                                .nodes = 1,
                                .devices_per_node = 2,
                                .memory_bytes_per_s = 1e9,
                                .link_bytes_per_s = 1e9 };
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = stack, .params = &params };
  SimCost *cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  return cost;
}

static void
assert_same (const PlanMemory *a, const PlanMemory *b, int seed)
{
  ck_assert_msg (a->allocated == b->allocated && a->max_allocated == b->max_allocated,
                 "seed %d: live bytes", seed);
  ck_assert_msg (a->reserved == b->reserved && a->device == b->device,
                 "seed %d: reserved %.0f, not %.0f", seed, (double)a->reserved,
                 (double)b->reserved);
  ck_assert_msg (memcmp (a->by_category, b->by_category, sizeof a->by_category) == 0
                     && memcmp (a->resting, b->resting, sizeof a->resting) == 0,
                 "seed %d: categories", seed);
  ck_assert_msg (a->peak_node == b->peak_node && a->peak_unit == b->peak_unit,
                 "seed %d: peak at %u %d, not %u %d", seed, a->peak_node, a->peak_unit,
                 b->peak_node, b->peak_unit);
}

START_TEST (any_loops)
{
  const PlanStack stack
      = { .memory.allocation_bytes = 512,
          .memory.allocator = _i % 16 ? PLAN_ALLOCATOR_CACHING : PLAN_ALLOCATOR_EXPANDABLE };
  g_autoptr (GError) error = NULL;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Maker maker = { .rand = rand, .layers = g_rand_int_range (rand, 1, 90) };
  maker.n = (guint)g_rand_int_range (rand, 2, MAX_ARRAYS + 1);
  for (guint i = 0; i < maker.n; i++)
    {
      maker.uses[i] = (Use)g_rand_int_range (rand, 0, N_USES);
      maker.bytes[i] = any_bytes (rand);
    }
  g_autoptr (PlanSchedule) schedule = make (&maker);
  g_autoptr (SimCost) cost = no_cost (schedule, &stack);
  g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
  g_autoptr (PlanTrace) trace = sim_run (schedule, cost, &stack, &error);
  ck_assert_msg (trace != NULL, "seed %d: %s", _i, error ? error->message : "");
  for (guint again = 0; again < 2; again++)
    {
      const guint64 device = trace->memory.device;
      SimSummary summary;
      guint64 bytes;
      gboolean is_settled;
      ck_assert (sim_measure (schedule, cost, &stack, workspace, &summary, &error));
      assert_same (&summary.memory, &trace->memory, _i);
      const guint64 enough = device * (guint64)g_rand_int_range (rand, 1, 20) / 10;
      ck_assert (sim_measure_device_bytes (schedule, cost, &stack, enough, workspace, &bytes,
                                           &is_settled, &error));
      ck_assert_msg (device > enough ? bytes > enough && bytes <= device : bytes == device,
                     "seed %d: enough %.0f of %.0f, found %.0f", _i, (double)enough, (double)device,
                     (double)bytes);
    }
}
END_TEST

/* A collective's buffer waits for the device, though it is taken and given back at once, so several
 * blocks are held. */
START_TEST (waits_for_collectives)
{
  PlanStack stack = { .memory.allocation_bytes = 512,
                      .memory.allocator = PLAN_ALLOCATOR_CACHING,
                      .memory.streams = _i ? PLAN_STREAMS_RECORDED : PLAN_STREAMS_WAITED };
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_new (0, 2);
  const gint8 group = plan_schedule_add_group (schedule, "all", 2, 1);
  const PlanRef buffer = { .array = plan_schedule_add_buffer (schedule, "b", 1, 2 * PLAN_MIB,
                                                              PLAN_DTYPE_U8, PLAN_CATEGORY_LOSS),
                           .loop = -1 };
  Maker maker = { .schedule = schedule };
  for (PlanLaunch launch = 0; launch < PLAN_N_LAUNCHES; launch++)
    stack.host.launch_ns[launch] = 100;
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  plan_schedule_begin_repeat (schedule, "l", 0, 40, 1);
  add (&maker, PLAN_OP_ALLOC, buffer);
  PlanOp *reduce = plan_schedule_add_op (schedule, PLAN_OP_ALL_REDUCE, PLAN_STREAM_TENSOR);
  reduce->group = group;
  reduce->dims[0] = 2 * PLAN_MIB;
  reduce->refs[0] = buffer;
  add (&maker, PLAN_OP_FREE, buffer);
  plan_schedule_end_repeat (schedule);
  g_autoptr (SimCost) cost = no_cost (schedule, &stack);
  g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
  g_autoptr (PlanTrace) trace = sim_run (schedule, cost, &stack, &error);
  SimSummary summary;
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  ck_assert (sim_measure (schedule, cost, &stack, workspace, &summary, &error));
  assert_same (&summary.memory, &trace->memory, _i);
  ck_assert_int_eq (trace->memory.reserved > 20 * PLAN_MIB, _i);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-footprint");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  test_add_share (tcase, any_loops, 2000);
  tcase_add_loop_test (tcase, waits_for_collectives, 0, 2);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
